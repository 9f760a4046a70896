"""The cells of tables of objects, and the readiness of an object."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from enmasse.cli.errors import UsageError
from enmasse.model.schema.kinds import ADDRESS_SPACE, DEFAULT_SPACE_PLANS, quota_used, value_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.schema.kinds import Column, Kind


Document = dict[str, Any]

_DAY_S = 86_400

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[\]'{}]+)|\[(?P<index>-?[0-9]+|\*)\]|\['(?P<quoted>[^']+)'\]")


def columns_of(kind: Kind, *, wide: bool, with_namespace: bool) -> list[str]:
    """Return the heads of a kind's table."""
    heads = ["NAMESPACE", "NAME"] if with_namespace else ["NAME"]
    return heads + [column.name.upper() for column in _printed(kind, wide)]


def row_of(kind: Kind, item: Document, now: datetime, *, wide: bool, with_namespace: bool) -> list[str]:
    """Return an object's row, to the heads of ``columns_of``."""
    metadata = item["metadata"]
    row = [metadata.get("namespace", ""), metadata["name"]] if with_namespace else [metadata["name"]]
    return row + [_shown(kind, item, column, now) for column in _printed(kind, wide)]


def _printed(kind: Kind, wide: bool) -> list[Column]:
    return [column for column in kind.table or kind.printer_columns if wide or column.priority == 0]


def _shown(kind: Kind, item: Document, column: Column, now: datetime) -> str:
    if not column.path:
        return _COMPUTED[column.name](kind, item)
    value = value_at(item, column.path)
    if column.type == "date":
        return age(str(value), now)
    if column.type == "number" and isinstance(value, float):
        return f"{value:.1f}"
    return column.empty if value is None else str(value)


def _plan(kind: Kind, item: Document) -> str:
    """Return the plan in effect, as far as it is known."""
    if kind is ADDRESS_SPACE:
        return str(item["spec"].get("plan") or DEFAULT_SPACE_PLANS[item["spec"].get("type", "standard")])
    return str(value_at(item, ".status.planStatus.name") or item["spec"].get("plan", "-"))


def _used(item: Document) -> str:
    return ", ".join(filter(None, (quota_used(item), quota_used(item, of_limits=True))))


_COMPUTED: dict[str, Callable[[Kind, Document], str]] = {
    "Plan": _plan,
    "Plans": lambda _kind, item: str(len(item["spec"]["addressPlans"])),
    "Ready": lambda _kind, item: str(is_ready(item)),
    "Message": lambda _kind, item: sentence_of(item),
    "Used": lambda _kind, item: _used(item),
}
"""Columns without a path, by their names."""


def values_at(item: Document, path: str) -> list[Any]:
    """Return the values at a path such as ``.status.messages[*]`` or ``.metadata.labels['a.b']`` in an object.

    Braces around it, and a dot or ``$`` before it, may be there or not.

    Raises:
        UsageError: when it is no such path.
    """
    parts = list(_STEP.finditer(path.strip("{}").removeprefix("$")))
    if "".join(part[0] for part in parts) != path.strip("{}").removeprefix("$") or not parts:
        raise UsageError(
            f"'{path}' is no path into an object; expected one such as .status.phase or .spec.endpoints[0].name"
        )
    found: list[Any] = [item]
    for part in parts:
        name, index = part["name"] or part["quoted"], part["index"]
        if name is not None:
            found = [value[name] for value in found if isinstance(value, dict) and name in value]
        elif index == "*":
            found = [one for value in found if isinstance(value, list) for one in value]
        else:
            place = int(index)
            found = [value[place] for value in found if isinstance(value, list) and -len(value) <= place < len(value)]
    return found


def is_ready(item: Document) -> bool:
    """Return True if an object is ready in its present generation."""
    metadata = item["metadata"]
    return not metadata.get("deletionTimestamp") and any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration") == metadata["generation"]
        for condition in item.get("status", {}).get("conditions", [])
    )


def is_stuck(item: Document) -> bool:
    """Return True if an object waits for another, or has failed: it may stay so for ever."""
    status = item.get("status", {})
    return status.get("phase") in ("Pending", "Failed") and bool(status.get("messages"))


def sentence_of(item: Document) -> str:
    """Return why an object is not ready, or what is wrong with connectors of a space; empty when all is well."""
    status = item.get("status", {})
    if not is_ready(item):
        return "; ".join(status.get("messages", [])) or "not looked at yet"
    said = [one for one in status.get("connectors", []) if one.get("messages")]
    return "; ".join(f"connector {one['name']}: {'; '.join(one['messages'])}" for one in said)


def age(timestamp: str, now: datetime) -> str:
    """Return how long ago a time was, in one unit: ``12s``, ``5m``, ``3h``, ``9d``."""
    try:
        seconds = int((now - datetime.fromisoformat(timestamp)).total_seconds())
    except (ValueError, TypeError):
        return "-"
    for unit, length in (("d", _DAY_S), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"


def present() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)
