"""What a list of each kind shows beside the name: the printer columns of tables and of CRDs.

Rules:
1. A column is a path into the object, in the small part of JSONPath that CRDs allow: names and ``[0]``.
2. Columns of priority 0 are always shown, those of priority 1 where there is room (``-o wide``).
3. Every kind ends with its age.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGE", "COLUMNS", "Column", "columns_of", "value_at"]

_PART = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<index>[0-9]+)\]")


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column.

    Attributes:
        name: its heading.
        path: where the value lies, as in ``.status.messages[0]``.
        description: a sentence on what it tells.
        type: of the value; a ``date`` is shown as the time since then.
        priority: 0, or 1 for what only wide tables show.
    """

    name: str
    path: str
    description: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    priority: int = 0


AGE: Final = Column("Age", ".metadata.creationTimestamp", "How long ago it was created.", "date")

_TYPE = Column("Type", ".spec.type", "The type.")
_PLAN = Column("Plan", ".spec.plan", "The plan that was asked for.")
_READY = Column("Ready", ".status.isReady", "Whether it can be used.", "boolean")
_PHASE = Column("Phase", ".status.phase", "How far it has come.")
_STATUS = Column("Status", ".status.messages[0]", "What it waits for.", priority=1)

COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "AddressSpace": (
        _TYPE,
        _PLAN,
        _READY,
        _PHASE,
        _STATUS,
        Column("Host", ".status.endpointStatuses[0].serviceHost", "Where it is reached.", priority=1),
    ),
    "Address": (
        Column("Address", ".spec.address", "What applications call it."),
        _TYPE,
        _PLAN,
        _READY,
        _PHASE,
        _STATUS,
        Column("Broker", ".status.brokerStatuses[0].brokerId", "What stores its messages.", priority=1),
    ),
    "AddressSpaceSchema": (),
    "MessagingUser": (
        Column("Username", ".spec.username", "The name that the user logs in with."),
        Column("Type", ".spec.authentication.type", "How the user proves to be who it is."),
        _PHASE,
        _STATUS,
    ),
    "Pipeline": (
        _READY,
        _PHASE,
        Column("Rows", ".status.rows", "How many rows it has read since it was started.", "integer"),
        Column("Rate", ".status.rate", "How many rows it reads a second.", "number"),
        Column("Lag", ".status.lag", "How many rows are there and not read yet.", "integer"),
        _STATUS,
        Column("Builtin", ".spec.builtin.name", "The built-in pipeline that it is.", priority=1),
        Column("Trigger", ".spec.trigger", "How often it looks for new rows.", priority=1),
    ),
    "AddressSpacePlan": (
        Column("Type", ".spec.addressSpaceType", "The type of spaces it is for."),
        _READY,
        Column("Description", ".spec.shortDescription", "What it is for.", priority=1),
    ),
    "AddressPlan": (
        Column("Type", ".spec.addressType", "The type of addresses it is for."),
        _READY,
        Column("Description", ".spec.shortDescription", "What it is for.", priority=1),
    ),
    "StandardInfraConfig": (Column("Version", ".spec.version", "The version it was made for."),),
    "BrokeredInfraConfig": (Column("Version", ".spec.version", "The version it was made for."),),
    "AuthenticationService": (_TYPE, _PHASE, _STATUS),
}
"""The columns of each kind of ours, without the age."""


def columns_of(kind: str) -> tuple[Column, ...]:
    """Return the columns of a kind; of one that is not listed, only the age."""
    return (*COLUMNS.get(kind, ()), AGE)


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return what lies at a column's path in an object, or None where nothing does."""
    value: Any = document
    for part in _PART.finditer(path):
        name, index = part["name"], part["index"]
        if name is not None:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) and len(value) > int(index) else None
    return value
