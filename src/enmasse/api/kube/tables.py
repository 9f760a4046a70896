"""Objects as tables and as bare metadata, as kubectl asks for them.

The columns of our own kinds come from the model, those of Kubernetes' kinds are as in its own servers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from enmasse.api.kube.status import RequestError
from enmasse.model.schema.kinds import (
    AGE,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    Column,
    kind_named,
    quota_used,
    value_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.api.kube.negotiation import Form

Document = dict[str, Any]
Include = Literal["None", "Metadata", "Object"]

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_NONE = "<none>"


class Shape:
    """The form of the objects in the answer to one request.

    Args:
        kind: the name of their kind.
        form: chosen by the client.
        include: the part of each object that is added to its row of a table.
        now: returns the present time.
    """

    def __init__(
        self, kind: str, form: Form, include: Include = "Metadata", *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._form = form
        self._include = include
        self._now = now or _present
        known = kind_named(kind)
        columns = known.printer_columns if known is not None else (AGE,)
        self._columns = _CORE.get(kind) or [(column, _by_path(column)) for column in columns]
        self._defined = False

    @property
    def is_plain(self) -> bool:
        """True if objects are answered whole."""
        return not self._form.name

    def one(self, document: Document) -> Document:
        """Convert a single object."""
        if self._form.name == "Table":
            return self._table([document], {"resourceVersion": document["metadata"].get("resourceVersion", "")})
        return document if self.is_plain else self._bare(document)

    def many(self, listed: Document) -> Document:
        """Convert a list of objects; its metadata is kept."""
        if self._form.name == "Table":
            return self._table(listed["items"], listed["metadata"])
        if self.is_plain:
            return listed
        return {
            "kind": self._form.name,
            "apiVersion": self._form.api_version,
            "metadata": listed["metadata"],
            "items": [self._bare(item) for item in listed["items"]],
        }

    def event(self, document: Document) -> Document:
        """Convert the object of an event of a watch; the first table of a watch defines the columns."""
        if self._form.name != "Table":
            return document if self.is_plain else self._bare(document)
        table = self.one(document)
        if self._defined:
            table["columnDefinitions"] = []
        self._defined = True
        return table

    def _table(self, documents: Sequence[Document], metadata: Document) -> Document:
        now = self._now()
        return {
            "kind": "Table",
            "apiVersion": self._form.api_version,
            "metadata": metadata,
            "columnDefinitions": [_NAME, *(_definition(column) for column, _ in self._columns)],
            "rows": [self._row(document, now) for document in documents],
        }

    def _row(self, document: Document, now: datetime) -> Document:
        # A bookmark has no name and no spec; its row carries the version alone.
        name = document["metadata"].get("name", "")
        cells = [cell(document, now) for _, cell in self._columns] if name else [None] * len(self._columns)
        row: Document = {"cells": [name, *cells]}
        if self._include == "Metadata":
            row["object"] = self._bare(document)
        elif self._include == "Object":
            row["object"] = document
        return row

    def _bare(self, document: Document) -> Document:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": self._form.api_version,
            "metadata": document["metadata"],
        }


def include_of(value: str) -> Include:
    """Validate the parameter ``includeObject``.

    Raises:
        RequestError: when it has another value.
    """
    match value:
        case "" | "Metadata":
            return "Metadata"
        case "None" | "Object":
            return "None" if value == "None" else "Object"
        case _:
            raise RequestError(400, f"includeObject: expected None, Metadata or Object, got '{value[:40]}'")


def describe_age(timestamp: Any, now: datetime) -> str:
    """Return the age of a timestamp in the form of kubectl: ``90s``, ``5m3s``, ``2d4h``."""
    try:
        then = datetime.fromisoformat(timestamp)
        seconds = int((now - then).total_seconds())
    except (TypeError, ValueError):
        return "<unknown>"
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    for below, unit, rest in (
        (2 * _MINUTE, (1, "s"), None),
        (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
        (3 * _HOUR, (_MINUTE, "m"), None),
        (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
        (2 * _DAY, (_HOUR, "h"), None),
        (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
        (2 * _YEAR, (_DAY, "d"), None),
        (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
    ):
        if seconds < below:
            whole, left = divmod(seconds, unit[0])
            more = left // rest[0] if rest else 0
            return f"{whole}{unit[1]}" + (f"{more}{rest[1]}" if rest and more else "")
    return f"{seconds // _YEAR}y"


_NAME: Document = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "The name, unique among its kind within a namespace.",
    "priority": 0,
}


def _definition(column: Column) -> Document:
    return {
        "name": column.name,
        "type": "string" if column.type == "date" else column.type,
        "format": "",
        "description": column.description,
        "priority": column.priority,
    }


def _by_path(column: Column) -> Callable[[Document, datetime], Any]:
    def cell(document: Document, now: datetime) -> Any:
        value = value_at(document, column.path)
        return describe_age(value, now) if column.type == "date" else value

    return cell


def _count(field: str) -> Callable[[Document, datetime], Any]:
    return lambda document, _: len(document.get(field) or {})


def _event_seen(document: Document, now: datetime) -> str:
    return describe_age(document.get("lastTimestamp") or document.get("eventTime"), now)


def _event_object(document: Document, _: datetime) -> str:
    involved = document.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _external_address(document: Document, _: datetime) -> str:
    spec = document.get("spec") or {}
    return spec.get("externalName") or ",".join(spec.get("externalIPs") or []) or _NONE


def _ports(document: Document, _: datetime) -> str:
    ports = (document.get("spec") or {}).get("ports") or []
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _role(document: Document, _: datetime) -> str:
    role = document.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Callable[[Document, datetime], str]:
    def cell(document: Document, _: datetime) -> str:
        return ",".join(item.get("name", "") for item in document.get("subjects") or [] if item.get("kind") == kind)

    return cell


def _present() -> datetime:
    return datetime.now(UTC)


def _core(*columns: tuple[Column, Callable[[Document, datetime], Any]]) -> list[Any]:
    return [*columns, (AGE, _by_path(AGE))]


def _plain(name: str, path: str, description: str, priority: int = 0) -> tuple[Column, Any]:
    column = Column(name, path, description, priority=priority)
    return column, _by_path(column)


def _made(name: str, cell: Any, description: str, priority: int = 0) -> tuple[Column, Any]:
    return Column(name, "", description, priority=priority), cell


def _used(document: Document, _: datetime) -> str:
    return quota_used(document)


def _limits_used(document: Document, _: datetime) -> str:
    return quota_used(document, of_limits=True)


_BINDING = _core(_made("Role", _role, "The role that is given."))
for _kind in ("User", "Group"):
    _BINDING.append(_made(f"{_kind}s", _subjects(_kind), "Who has it.", 1))

_CORE: dict[str, list[tuple[Column, Callable[[Document, datetime], Any]]]] = {
    NAMESPACE.name: _core(_plain("Status", ".status.phase", "Whether it is in use.")),
    CONFIG_MAP.name: _core(_made("Data", _count("data"), "How many entries it has.")),
    SECRET.name: _core(
        _plain("Type", ".type", "What it holds."), _made("Data", _count("data"), "How many entries it has.")
    ),
    RESOURCE_QUOTA.name: _core(
        _made("Request", _used, "What is used, and what there may be."),
        _made("Limit", _limits_used, "The same, of limits of what runs."),
    ),
    SERVICE.name: _core(
        _plain("Type", ".spec.type", "How it is reached."),
        _plain("Cluster-IP", ".spec.clusterIP", "Its address."),
        _made("External-IP", _external_address, "Where it is reached from outside."),
        _made("Port(s)", _ports, "Its ports."),
    ),
    EVENT.name: [
        _made("Last Seen", _event_seen, "When it happened last."),
        _plain("Type", ".type", "Normal or Warning."),
        _plain("Reason", ".reason", "One word for programs."),
        _made("Object", _event_object, "What it happened to."),
        _plain("Source", ".source.component", "Who says so.", 1),
        _plain("Message", ".message", "A sentence for people."),
        _plain("Count", ".count", "How often it happened.", 1),
    ],
    CLUSTER_ROLE.name: [_plain("Created At", ".metadata.creationTimestamp", "When it was created.")],
    ROLE_BINDING.name: _BINDING,
    CLUSTER_ROLE_BINDING.name: _BINDING,
}
