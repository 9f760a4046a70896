"""Rows of tables: what is declared beside what flows, filtered, sorted and paged here and not by who looks at them.

Rules:
1. Only rows of the page are built whole: of the others just what is filtered and sorted by is looked at.
2. What is not known is left out, as the figures of a node that does not answer.
3. Connections and links are asked of nodes when somebody looks; simultaneous viewers share the answer.
4. Where a bound leaves something out, the answer has the bound as ``truncatedAt``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from enmasse.api.live.connectors import COUNTS, connector_rows
from enmasse.api.live.declared import DeclaredRows
from enmasse.api.live.history import Recorded
from enmasse.api.live.sampler import SAMPLED
from enmasse.api.live.sessions import LINK_COUNTS, SessionRows, connection_row, link_row
from enmasse.identity.rbac import AccessRequest
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.kinds.pipelines.pipeline import BEHIND_SINK
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, MESSAGING_USER, PIPELINE
from enmasse.model.schema.quantities import amount_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from enmasse.api.live.history import Values
    from enmasse.api.live.sampler import Sampler
    from enmasse.control.ports import SessionAdmin
    from enmasse.control.store.port import Store
    from enmasse.model.schema.kinds import Kind

Document = dict[str, Any]

MAX_ROWS: Final = 500
"""The most rows of one answer."""

_MAX_ORDERS: Final = 100  # of addresses, kept while nothing changes: a reference for each row
_SPARK_COLUMN: Final = "spark"
_SPARK_TIMES: Final = 31  # for thirty rates between them


@dataclass(frozen=True, slots=True)
class Query:
    """The rows that are wanted, and their order.

    Attributes:
        search: a part of the name, in any case.
        type: the type of an address or a space.
        status: the phase.
        address: rows that concern this address.
        connection: links of this connection.
        sort: a column; with ``-`` before it in descending order.
        offset: the number of rows to skip.
        limit: the most rows.
    """

    search: str = ""
    type: str = ""
    status: str = ""
    address: str = ""
    connection: str = ""
    sort: str = ""
    offset: int = 0
    limit: int = 50

    def choose(self, rows: Iterable[Document]) -> list[Document]:
        """Return the rows that are wanted, in their order."""
        chosen = list(rows)
        # One condition after the other: most questions have one or none, and ten thousand rows are looked at.
        if self.search:
            chosen = [row for row in chosen if self.search in row[_TEXT]]
        wanted = (("type", self.type), ("phase", self.status), ("connection", self.connection))
        for column, value in (*wanted, ("address", self.address)):
            if value:
                chosen = [row for row in chosen if row.get(column) == value]
        return chosen


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of table.

    Attributes:
        kind: the kind of objects.
        resource: the resource that one needs the right to see: the kind itself, or a part of each space.
        columns: the columns that can be sorted by.
        searched: the columns that ``search`` looks into; the first is the order of those who ask for none.
    """

    kind: Kind
    resource: str
    columns: tuple[str, ...]
    searched: tuple[str, ...]

    @property
    def is_stored(self) -> bool:
        """True if its rows are objects of the store."""
        return self.resource == self.kind.plural

    def access(self, namespace: str, space: str = "") -> AccessRequest:
        """Return the right that it takes to see the table of a space, or of a namespace."""
        if self.is_stored:
            return AccessRequest("list", self.kind.group, self.resource, namespace)
        return AccessRequest("get", self.kind.group, self.resource, namespace, space)


_LIVE: Final = {
    "stored": "messagesStored",
    "bytes": "bytesStored",
    "senders": "senders",
    "receivers": "receivers",
}
_LIVE_INDEX: Final = {column: SAMPLED.index(counter) for column, counter in _LIVE.items()}
_RATES: Final = ("messagesIn", "messagesOut")
_FLOW: Final = "flow"
"""The sort key that is not a column: the rates in and out together."""
_SUBSCRIBED: Final = "subscription"

TABLES: Final = {
    "addresses": Table(
        ADDRESS,
        ADDRESS.plural,
        ("address", "name", "type", "plan", "phase", "ready", "partitions", "created", _FLOW, *_RATES, *_LIVE),
        ("address", "name"),
    ),
    "subscriptions": Table(ADDRESS, ADDRESS.plural, ("name", "address", "phase", *_LIVE), ("name", "address")),
    "users": Table(MESSAGING_USER, MESSAGING_USER.plural, ("username", "name", "phase", "created"), ("username",)),
    "pipelines": Table(
        PIPELINE,
        PIPELINE.plural,
        ("name", "phase", "created", "rows", "rate", "lag", "watermark", "lastError", "restarts", "badRecords"),
        ("name",),
    ),
    "connectors": Table(ADDRESS_SPACE, ADDRESS_SPACE.plural, ("name", "ready", *_RATES, *COUNTS), ("name",)),
    "connections": Table(
        ADDRESS_SPACE,
        f"{ADDRESS_SPACE.plural}/connections",
        ("name", "host", "containerId", "protocol", "tls", "user", "opened", "senders", "receivers", *_RATES),
        ("containerId", "host", "user", "name"),
    ),
    "links": Table(
        ADDRESS_SPACE,
        f"{ADDRESS_SPACE.plural}/links",
        ("name", "connection", "containerId", "role", "address", "rate", *LINK_COUNTS),
        ("name", "address", "containerId"),
    ),
}
"""The tables of a space, by the last part of their path."""

SPACES: Final = Table(
    ADDRESS_SPACE,
    ADDRESS_SPACE.plural,
    (
        "name",
        "namespace",
        "type",
        "plan",
        "phase",
        "created",
        "addresses",
        "connections",
        "sessions",
        "subscriptions",
        "subscriptionBytes",
        _FLOW,
        *_RATES,
        "stored",
    ),
    ("name", "namespace"),
)
"""The table of all spaces."""


class Rows:
    """Answers all tables.

    Args:
        store: the store of the objects.
        sampler: the sampler of the nodes' figures.
        sessions: the ports to the connections of all nodes.
        clock: returns seconds, monotonic.
    """

    def __init__(
        self, store: Store, sampler: Sampler, sessions: Sequence[SessionAdmin], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._sampler = sampler
        self.piped = Recorded((), ("rows", "rate", "lag"))
        sampler.followers.append(self._follow_pipelines)
        self.addresses = DeclaredRows(store, ADDRESS, _found(_address, TABLES["addresses"]))
        self.spaces = DeclaredRows(store, ADDRESS_SPACE, _found(_space, SPACES), is_of_space=False)
        self.users = DeclaredRows(store, MESSAGING_USER, _found(_user, TABLES["users"]))
        self.pipelines = DeclaredRows(store, PIPELINE, _found(_pipeline, TABLES["pipelines"]))
        connection, link = _found(connection_row, TABLES["connections"]), _found(link_row, TABLES["links"])
        self.connections = SessionRows([node.connections_of for node in sessions], connection, clock)
        self._nodes = {
            "connections": self.connections,
            "links": SessionRows([node.links_of for node in sessions], link, clock),
        }
        self._ordered: dict[tuple[str, str], list[Document]] = {}
        self._ordered_at: object = None

    async def _follow_pipelines(self, at: float) -> None:
        await self.pipelines.follow()
        present = set()
        for space in self.pipelines.groups():
            namespace = space.partition("/")[0]
            for name, row in self.pipelines.of(space).items():
                values = tuple(float(row.get(column) or 0) for column in ("rows", "rate", "lag"))
                self.piped.add(f"{namespace}/{name}", at, values)
                present.add(f"{namespace}/{name}")
        self.piped.forget(self.piped.names - present)

    async def answer(self, table: str, space: str, query: Query) -> Document:
        """Return the chosen rows of a table of a space, ``<namespace>/<space>``."""
        if table in self._nodes:
            found, bound = await self._nodes[table].of(space)
            return self._page(found, TABLES[table], query) | _truncated(bound)
        if table in ("addresses", "subscriptions"):
            await self.addresses.follow()
            return self._addresses(table, space, query)
        if table == "connectors":
            document = self._store.get(ADDRESS_SPACE.name, *space.split("/"))
            connectors = connector_rows(document, self._sampler.latest.connectors.get(space, {}))
            return self._page(map(_found(dict, TABLES[table]), connectors), TABLES[table], query)
        rows = self.users if table == "users" else self.pipelines
        await rows.follow()
        page = self._page(rows.of(space).values(), TABLES[table], query)
        if rows is self.pipelines:
            namespace, times = space.partition("/")[0], self._sampler.times[-_SPARK_TIMES:]
            for row in page["items"]:
                rates = self.piped.series(f"{namespace}/{row['name']}", times, 0.0)[1]["rate"]
                row[_SPARK_COLUMN] = {"rate": [rate or 0 for rate in rates]}
        return page

    async def all_spaces(self, namespaces: Collection[str], query: Query) -> Document:
        """Return the chosen rows of the spaces of some namespaces."""
        await self.spaces.follow()
        await self.addresses.follow()
        totals = self._sampler.latest.totals
        rows, bound = [], 0
        for namespace in namespaces:
            for name, row in self.spaces.of(namespace).items():
                key = f"{namespace}/{name}"
                bound = bound or self._bound_of(key)
                live: Document = {"addresses": len(self.addresses.of(key))}
                if (total := totals.get(key)) is not None:
                    live |= {
                        "connections": total.connections,
                        "sessions": total.sessions,
                        "subscriptions": total.subscriptions,
                        "subscriptionBytes": total.subscription_bytes,
                        "messagesIn": round(total.rate_in, 2),
                        "messagesOut": round(total.rate_out, 2),
                        _FLOW: total.rate_in + total.rate_out,
                        "stored": total.stored,
                        "bytes": total.bytes,
                    }
                rows.append(row | live)
        return self._page(rows, SPACES, query) | _truncated(bound)

    def _page(self, rows: Iterable[Document], table: Table, query: Query) -> Document:
        chosen = query.choose(rows)
        column = query.sort.lstrip("-") or table.searched[0]
        chosen.sort(key=lambda row: _sortable(row.get(column)), reverse=query.sort.startswith("-"))
        page = chosen[query.offset : query.offset + query.limit]
        return {"total": len(chosen), "items": [_shown(row) for row in page]}

    def _addresses(self, table: str, space: str, query: Query) -> Document:
        namespace = space.partition("/")[0]
        rows = self._in_order(space, query.sort or TABLES[table].searched[0])
        if table == "subscriptions":
            rows = [row for row in rows if row["type"] == _SUBSCRIBED]
        chosen = query.choose(rows)
        page = chosen[query.offset : query.offset + query.limit]
        shown = _subscription if table == "subscriptions" else _shown
        found = {"total": len(chosen), "items": [shown(self._alive(row, namespace)) for row in page]}
        return found | _truncated(self._bound_of(space))

    def _bound_of(self, space: str) -> int:
        """Return how many addresses of a node have figures if for that reason some of a space have none; else 0."""
        latest = self._sampler.latest
        if not latest.truncated_at:
            return 0
        namespace = space.partition("/")[0]
        have_all = all(f"{namespace}/{name}" in latest.addresses for name in self.addresses.of(space))
        return 0 if have_all else latest.truncated_at

    def _in_order(self, space: str, sort: str) -> list[Document]:
        """Return the addresses of a space in an order, which all viewers share until something changes."""
        now = (self.addresses.version, self._sampler.latest.number)
        if now != self._ordered_at or len(self._ordered) >= _MAX_ORDERS:
            self._ordered, self._ordered_at = {}, now
        found = self._ordered.get((space, sort))
        if found is None:
            key = self._key(sort.removeprefix("-"), space.partition("/")[0])
            found = sorted(self.addresses.of(space).values(), key=key, reverse=sort.startswith("-"))
            self._ordered[space, sort] = found
        return found

    def _key(self, column: str, namespace: str) -> Callable[[Document], Any]:
        latest = self._sampler.latest
        if column == _FLOW:
            return lambda row: sum(latest.rates.get(f"{namespace}/{row['name']}", (0.0, 0.0)))
        if column in _RATES:
            which = _RATES.index(column)
            return lambda row: latest.rates.get(f"{namespace}/{row['name']}", (0.0, 0.0))[which]
        if column in _LIVE_INDEX:
            index = _LIVE_INDEX[column]
            none: Values = (-1.0,) * len(SAMPLED)
            return lambda row: latest.addresses.get(f"{namespace}/{row['name']}", none)[index]
        return lambda row: _sortable(row.get(column))

    def fill_of(self, row: Document, namespace: str) -> Document:
        """Return how much of each limit an address uses; nothing where that is not known."""
        values = self._sampler.latest.addresses.get(f"{namespace}/{row['name']}")
        if values is None:
            return {}
        used = {
            "bytes": values[_STORED_BYTES],
            "receivers": values[_RECEIVERS],
            "links": values[_SENDERS] + values[_RECEIVERS],
        }
        return {name: {"used": used[name], "limit": limit} for name, limit in row[_LIMITS].items()}

    def _alive(self, row: Document, namespace: str) -> Document:
        """Return the row of an address with its figures."""
        key = f"{namespace}/{row['name']}"
        latest = self._sampler.latest
        values = latest.addresses.get(key)
        if values is None:
            return row
        came, left = latest.rates.get(key, (0.0, 0.0))
        found = row | {"messagesIn": round(came, 2), "messagesOut": round(left, 2)}
        found |= {column: values[index] for column, index in _LIVE_INDEX.items()}
        if fill := self.fill_of(row, namespace):
            found["fill"] = fill
        into, out = self._sampler.addresses.sparks(key, self._sampler.times[-_SPARK_TIMES:])
        found[_SPARK_COLUMN] = {"in": into, "out": out}
        return found


_STORED_BYTES: Final = _LIVE_INDEX["bytes"]
_SENDERS: Final = _LIVE_INDEX["senders"]
_RECEIVERS: Final = _LIVE_INDEX["receivers"]


_LIMITS: Final = "limits"
_TEXT: Final = "text"
_PRIVATE: Final = frozenset({_LIMITS, _TEXT, _FLOW, "key", "counts"})
"""Columns that are not shown."""


def _sortable(value: Any) -> tuple[bool, Any]:
    """Return a key that sorts what is missing first, and anything else by its kind."""
    if isinstance(value, bool):
        return True, str(value)
    return (True, value.lower() if isinstance(value, str) else value) if value is not None else (False, 0)


def _found(shape: Callable[[Document], Document], table: Table) -> Callable[[Document], Document]:
    """Return what shapes rows and adds the text that a search looks into."""

    def shaped(document: Document) -> Document:
        row = shape(document)
        row[_TEXT] = "\n".join(str(row.get(name, "")) for name in table.searched).lower()
        return row

    return shaped


def _state(document: Document) -> Document:
    """Return the columns that all objects have."""
    metadata, status = document["metadata"], document.get("status") or {}
    row = {
        "name": metadata["name"],
        "phase": status.get("phase") or "Pending",
        "ready": bool(status.get("isReady")),
        "created": metadata.get("creationTimestamp"),
    }
    if messages := status.get("messages"):
        row["messages"] = messages
    return row


def _address(document: Document) -> Document:
    spec, status = document["spec"], document.get("status") or {}
    limits = status.get("limits") or spec.get("limits") or {}
    wanted = {"bytes": limits.get("maxBytes"), "receivers": limits.get("maxConsumers"), "links": limits.get("links")}
    row = _state(document) | {
        "address": spec["address"],
        "type": spec["type"],
        "plan": spec.get("plan"),
        _LIMITS: {name: int(amount_of(limit)) for name, limit in wanted.items() if limit is not None},
    }
    if spec.get("topic"):
        row["topic"] = spec["topic"]
    if spec["type"] == "stream":
        row["partitions"] = spec.get("partitions") or (status.get("planStatus") or {}).get("partitions")
    return row


def _truncated(bound: int) -> Document:
    return {"truncatedAt": bound} if bound else {}


def _shown(row: Document) -> Document:
    return {name: value for name, value in row.items() if name not in _PRIVATE and value is not None}


def _subscription(row: Document) -> Document:
    wanted = ("name", "phase", "ready", "messages", "created", "stored", "bytes", "receivers", _SPARK_COLUMN)
    return {name: row[name] for name in wanted if name in row} | {
        "subscription": row["address"],
        "address": row.get("topic", ""),
    }


def _space(document: Document) -> Document:
    spec = document["spec"]
    return _state(document) | {
        "namespace": document["metadata"]["namespace"],
        "type": spec.get("type") or "standard",
        "plan": spec.get("plan"),
    }


def _user(document: Document) -> Document:
    spec = document["spec"]
    return _state(document) | {
        "username": spec["username"],
        "authentication": (spec.get("authentication") or {}).get("type") or "password",
        "grants": [
            {"operations": grant["operations"], "addresses": grant.get("addresses") or []}
            for grant in spec.get("authorization") or ()
        ],
    }


def _pipeline(document: Document) -> Document:
    spec, status = document["spec"], document.get("status") or {}
    queries = status.get("queries") or ()
    marks = [query["watermark"] for query in queries if query.get("watermark")]
    reads, writes, tables = _ends(spec)
    found = _state(document) | {
        "rows": status.get("rows"),
        "rate": status.get("rate"),
        "lag": status.get("lag"),
        "watermark": min(marks, default=None),
        "lastError": status.get("lastError"),
        "paused": bool(spec.get("paused")),
        "behindSink": any(it.get("reason") == BEHIND_SINK for it in status.get("conditions") or ()) or None,
        "builtin": (spec.get("builtin") or {}).get("name"),
        "sources": reads,
        "sinks": [*writes, *tables],
        "tables": tables,
        "queries": [{"name": it["name"], "state": it.get("state")} for it in queries],
        "restarts": sum(it.get("restarts") or 0 for it in queries),
        "badRecords": sum(it.get("badRecords") or 0 for it in queries),
    }
    return {name: value for name, value in found.items() if value is not None}


def _ends(spec: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return what a pipeline reads, the addresses and tables of databases that it writes, and those of the lake."""
    builtin = spec.get("builtin")
    if builtin:
        try:
            parameters = BUILTINS[builtin["name"]].model_validate(builtin.get("parameters") or {})
        except (KeyError, ValidationError):
            # It was declared for another version.
            return [], [], []
        return list(parameters.reads()), list(parameters.writes()), list(parameters.tables())
    sources, sinks = spec.get("sources") or (), spec.get("sinks") or ()
    return (
        [str(name) for source in sources for name in _read_by(source)],
        [_place_of(sink) for sink in sinks if not sink.get("table")],
        [str(sink["table"]) for sink in sinks if sink.get("table")],
    )


def _read_by(source: Mapping[str, Any]) -> Sequence[str]:
    if source.get("addresses"):
        return list(source["addresses"])
    files = source.get("files") or {}
    database = source.get("database")
    if database:
        return [_place_of(source)]
    named = (source.get("address"), source.get("addressPattern"), source.get("table"), files.get("path"))
    return [next((name for name in named if name), source["name"])]


def _place_of(sink: Mapping[str, Any]) -> str:
    database = sink.get("database")
    return f"{database['host']}/{database['table']}" if database else str(sink.get("address"))
