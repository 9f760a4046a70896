"""Lengths of time as people write them: ``30s``, ``15m``, ``12h``, ``7d``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from enmasse.model.kinds.address_settings import MAX_MS

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"([0-9]{1,12})(ms|[wdhms])")
_WHOLE = re.compile(f"(?:{_PART.pattern})+")


def milliseconds(text: str) -> int:
    """Return how long a duration is.

    Raises:
        ValueError: it is none, or longer than a hundred years.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no duration")
    total = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if total > MAX_MS:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return total


def written(length_ms: int) -> str:
    """Return a length of time as a duration in the largest unit that divides it."""
    unit = next(unit for unit, size in _UNITS_MS.items() if length_ms % size == 0)
    return f"{length_ms // _UNITS_MS[unit]}{unit}"


def _check(text: str) -> str:
    try:
        if milliseconds(text):
            return text
    except ValueError:
        pass
    expected = "expected a duration such as 30s, 15m, 12h, 7d or 1h30m, at most a hundred years"
    raise PydanticCustomError("duration", expected)


Duration = Annotated[
    str,
    AfterValidator(_check),
    WithJsonSchema({"type": "string", "pattern": f"^{_WHOLE.pattern}$"}),
]
"""A field that holds a duration above 0."""
