"""The form of a QUERY and of its answer [AMQP Management draft 4, 3.1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enmasse.node.errors import EntityError

__all__ = ["_asked_number", "asked_names", "asked_page", "table"]


def _asked_number(asked: dict[str, Any], name: str) -> int | None:
    """Return a number of entities that a query names, if it does.

    Raises:
        EntityError: 400 it is none.
    """
    value = asked.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise EntityError(400, f"{name} is a number of entities, not {value!r:.100}")
    return value


def asked_page(asked: dict[str, Any], most: int | None = None) -> slice:
    """Return which of the entities a query asks for.

    Args:
        asked: the application properties of the request.
        most: how many one answer may tell; nothing for any number.

    Raises:
        EntityError: 400 offset or count is no number.
    """
    first = _asked_number(asked, "offset") or 0
    count = _asked_number(asked, "count")
    if most is not None:
        count = most if count is None else min(count, most)
    return slice(first, None if count is None else first + count)


def asked_names(body: Any) -> list[str]:
    """Return the names of the attributes that a query asks for; none for all.

    Raises:
        EntityError: 400 they are no list of strings.
    """
    names = body.get("attributeNames") if isinstance(body, dict) else None
    if not names:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise EntityError(400, f"attributeNames is a list of strings, not {names!r:.100}")
    return names


def table(found: Sequence[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Return the body of the answer: the attributes asked for, of each entity."""
    columns = names or list(dict.fromkeys(name for entity in found for name in entity))
    return {"attributeNames": columns, "results": [[entity.get(name) for name in columns] for entity in found]}
