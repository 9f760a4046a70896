"""What tables show of each kind, and what counts as ready."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from enmasse.cli.errors import UsageError
from enmasse.model.columns import columns_of as printer_columns
from enmasse.model.columns import value_at
from enmasse.model.spaces import AddressSpaceSpec

if TYPE_CHECKING:
    from enmasse.model.columns import Column
    from enmasse.model.kinds import Kind

__all__ = ["age", "columns_of", "is_ready", "present", "row_of", "sentence_of", "values_at"]

Document = dict[str, Any]

_DAY_S = 86_400

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[\]'{}]+)|\[(?P<index>-?[0-9]+|\*)\]|\['(?P<quoted>[^']+)'\]")


def columns_of(kind: Kind, *, wide: bool, with_namespace: bool) -> list[str]:
    """Return the heads of a kind's table."""
    columns = ["NAMESPACE"] if with_namespace else []
    columns += ["NAME"]
    match kind.name:
        case "AddressSpace":
            columns += ["TYPE", "PLAN", "READY", "PHASE", "AGE"]
        case "Address":
            columns += ["ADDRESS", "TYPE", "PLAN", "READY", "PHASE", "AGE"]
            columns += ["TOPIC", "PARTITIONS"] if wide else []
        case "AddressPlan":
            columns += ["TYPE", "PARTITIONS", "READY", "AGE"]
        case "AddressSpacePlan":
            columns += ["TYPE", "PLANS", "READY", "AGE"]
        case _:
            return columns + [column.name.upper() for column in _printed(kind, wide)]
    return columns + (["MESSAGE"] if wide else [])


def row_of(kind: Kind, item: Document, now: datetime, *, wide: bool, with_namespace: bool) -> list[str]:
    """Return an object's row, to the heads of ``columns_of``."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
    ready, since = str(is_ready(item)), age(metadata.get("creationTimestamp", ""), now)
    row = [metadata.get("namespace", "")] if with_namespace else []
    row += [metadata["name"]]
    plan_status = status.get("planStatus") or {}
    match kind.name:
        case "AddressSpace":
            plan = AddressSpaceSpec.model_validate(spec).plan_name
            row += [spec["type"], plan, ready, status.get("phase", "Pending"), since]
        case "Address":
            plan = plan_status.get("name") or spec.get("plan", "-")
            row += [spec["address"], spec["type"], plan, ready, status.get("phase", "Pending"), since]
            row += [spec.get("topic", "-"), str(plan_status.get("partitions", "-"))] if wide else []
        case "AddressPlan":
            row += [spec["addressType"], str(spec.get("partitions", 1)), ready, since]
        case "AddressSpacePlan":
            row += [spec["addressSpaceType"], str(len(spec["addressPlans"])), ready, since]
        case _:
            return row + [_shown(item, column, now) for column in _printed(kind, wide)]
    return row + ([sentence_of(item)] if wide else [])


def _printed(kind: Kind, wide: bool) -> list[Column]:
    return [column for column in printer_columns(kind.name) if wide or column.priority == 0]


def _shown(item: Document, column: Column, now: datetime) -> str:
    value = value_at(item, column.path)
    if column.type == "date":
        return age(str(value), now)
    if column.type == "number" and isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else str(value)


def values_at(item: Document, path: str) -> list[Any]:
    """Return what lies at a path such as ``.status.messages[*]`` or ``.metadata.labels['a.b']`` in an object.

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
    """Tell whether an object is ready in its present generation."""
    metadata = item["metadata"]
    return not metadata.get("deletionTimestamp") and any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and condition.get("observedGeneration") == metadata["generation"]
        for condition in item.get("status", {}).get("conditions", [])
    )


def sentence_of(item: Document) -> str:
    """Return why an object is not ready, as far as it is known; empty when it is."""
    if is_ready(item):
        return ""
    messages = item.get("status", {}).get("messages", [])
    return "; ".join(messages) or "not looked at yet"


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
