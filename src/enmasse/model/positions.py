"""Where the reading of a stream begins: ``earliest``, ``latest``, a moment, or JSON by partition."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from enmasse.model.schema import describe_value

__all__ = ["position_problem"]

_FORMS = (
    "expected earliest, latest, a moment such as 2026-01-31T12:00:00Z, "
    'or JSON by partition such as {"0": 120, "1": "latest"}'
)


def position_problem(text: str) -> str | None:
    """Return what is wrong with where a reading is to begin, or None."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None if _is_named(stripped) else f"{_FORMS}, got {describe_value(text)}"
    try:
        given: Any = json.loads(stripped)
    except (ValueError, RecursionError):
        return f"{_FORMS}, got {describe_value(text)}"
    for partition, value in given.items():
        is_offset = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not partition.isdecimal() or not (is_offset or (isinstance(value, str) and _is_named(value.strip()))):
            return f"{_FORMS}; partition {describe_value(partition)} has {describe_value(value)}"
    return None


def _is_named(text: str) -> bool:
    if text.lower() in ("earliest", "latest"):
        return True
    try:
        return not text.isdecimal() and bool(datetime.fromisoformat(text))
    except ValueError:
        return False
