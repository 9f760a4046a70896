"""Resources below objects in paths, and reports beside objects: what can be done there, with its fields.

Connections, links, sessions, wills and retained values are no objects: nodes report the present ones. Rows, series
and the overview are what flows beside what is declared. Their fields are declared here alone; both OpenAPI documents
and discovery follow, and so do the routes and roles where they go by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FieldType = Literal["string", "integer", "number", "boolean", "time", "strings", "numbers", "object", "objects"]


@dataclass(frozen=True, slots=True)
class ListedField:
    """One field of an answer, of each item of a list, or of the body of a request.

    Attributes:
        name: in the answer.
        description: the meaning of the field.
        type: the type of its value; a time is milliseconds on a node, and a text in the answer.
        is_always: whether every item has it; whether every request has to have it.
        of_node: the name that the node uses; empty: the same.
    """

    name: str
    description: str
    type: FieldType = "string"
    is_always: bool = True
    of_node: str = ""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object, or beside all objects.

    Attributes:
        name: its last part; with parameters in braces where several parts follow.
        verbs: the things that can be done there, in Kubernetes' words.
        kind: the kind of what is answered; empty: the object itself.
        answer: the form of the answer; ``items``: a page of what nodes report; ``report``: what the fields say.
        fields: the fields of each item.
        item: the parameter at the end of the path of a single item, which can be deleted; empty: those that ``query``
            chooses are deleted.
        query: parameters that choose items; a deletion needs them.
        beside: fields of the answer beside its items.
        body: the fields of what is posted.
    """

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    answer: Literal["object", "status", "rows", "text", "items", "messages", "report"] = "object"
    fields: tuple[ListedField, ...] = ()
    item: str = ""
    query: tuple[str, ...] = ()
    beside: tuple[ListedField, ...] = ()
    body: tuple[ListedField, ...] = ()

    @property
    def resource(self) -> str:
        """The resource that one needs the right to: the first part of its path."""
        return self.name.partition("/")[0]


CONNECTIONS: Final = Subresource(
    "connections",
    ("delete", "get"),
    "ConnectionList",
    "items",
    (
        ListedField("name", "What it is closed by."),
        ListedField("protocol", "What its client speaks."),
        ListedField("containerId", "The client, as it calls itself.", is_always=False, of_node="container"),
        ListedField("host", "Where the client is.", is_always=False),
        ListedField(
            "via", "The node that it came in by, if that is another one than the home of the space.", is_always=False
        ),
        ListedField("user", "Who the client has logged in as.", is_always=False),
        ListedField("mechanism", "How it has proved that.", is_always=False),
        ListedField("tls", "The version of TLS and its cipher; empty without TLS.", is_always=False),
        ListedField("properties", "What its program tells: product, version, platform.", "object", is_always=False),
        ListedField("senders", "Its links that send to the space.", "integer"),
        ListedField("receivers", "Its links that receive from the space.", "integer"),
        ListedField("messagesIn", "Messages that have come from it.", "integer"),
        ListedField("messagesOut", "Messages that have gone to it.", "integer"),
        ListedField("bytesIn", "Bytes that have come from it.", "integer"),
        ListedField("bytesOut", "Bytes that have gone to it.", "integer"),
        ListedField(
            "notRead", "Why the node does not read it now; empty if it does.", is_always=False, of_node="paused"
        ),
        ListedField("openedAt", "When it was opened.", "time"),
    ),
    item="connection",
)

LINKS: Final = Subresource(
    "links",
    ("get",),
    "LinkList",
    "items",
    (
        ListedField("name", "The link, as its client calls it."),
        ListedField("connection", "The connection that it is on."),
        ListedField("containerId", "The client of that, as it calls itself.", is_always=False, of_node="container"),
        ListedField("role", "Whether its client sends or receives."),
        ListedField("address", "Where it sends to or receives from.", is_always=False),
        ListedField("credit", "How many more messages it may carry.", "integer", is_always=False),
        ListedField("unsettled", "Messages without an outcome.", "integer", is_always=False),
        ListedField("deliveries", "Messages that it has carried.", "integer", is_always=False),
        ListedField("accepted", "Messages with this outcome.", "integer", is_always=False),
        ListedField("rejected", "Messages with this outcome.", "integer", is_always=False),
        ListedField("released", "Messages with this outcome.", "integer", is_always=False),
        ListedField("modified", "Messages with this outcome.", "integer", is_always=False),
        ListedField("presettled", "Messages that went settled, where that is known.", "integer", is_always=False),
        ListedField("backlog", "Messages that wait for its credit, where that is known.", "integer", is_always=False),
    ),
)

SESSIONS: Final = Subresource(
    "sessions",
    ("delete", "get"),
    "SessionList",
    "items",
    (
        ListedField("name", "The client identifier."),
        ListedField("user", "Who opened it.", is_always=False),
        ListedField("connected", "Whether its client is there.", "boolean"),
        ListedField("expiry", "Seconds after which it ends without its client; none: never.", "integer", False),
        ListedField("filters", "What it subscribes to; of many the first.", "strings"),
        ListedField("filterCount", "How many filters it has.", "integer"),
        ListedField("messagesStored", "Messages that wait for its client.", "integer"),
        ListedField("bytesStored", "Bytes of these.", "integer"),
        ListedField("dropped", "Messages that it has lost, because it was full.", "integer"),
        ListedField("inFlightOut", "Messages that its client has not acknowledged.", "integer"),
        ListedField("inFlightIn", "Messages of QoS 2 that its client has not released.", "integer"),
        ListedField("leftAt", "When its client went.", "time", is_always=False),
    ),
    item="client",
)

WILLS: Final = Subresource(
    "wills",
    ("get",),
    "WillList",
    "items",
    (
        ListedField("name", "Tells it from others of the space."),
        ListedField("client", "The client whose will it is.", is_always=False),
        ListedField("link", "The link of AMQP that it belongs to.", is_always=False),
        ListedField("user", "Who made it, by whose rights it is sent.", is_always=False),
        ListedField("address", "Where it is sent to."),
        ListedField("state", "Whether its client is there (armed), or it waits, or is being sent."),
        ListedField("delay", "Seconds from its client's loss to its sending.", "number"),
        ListedField("bytes", "Size of its message.", "integer"),
    ),
)

RETAINED: Final = Subresource(
    "retained",
    ("delete", "get"),
    "RetainedValueList",
    "items",
    (
        ListedField("name", "The name whose value it is."),
        ListedField("address", "The address that keeps it."),
        ListedField("bytes", "Size of its message.", "integer"),
        ListedField("durable", "Whether it is on disk.", "boolean"),
        ListedField("time", "When it was set.", "time"),
        ListedField("expires", "When it goes by itself.", "time", is_always=False),
    ),
    query=("filter",),
)

_SEEN: Final = ("search", "type", "status", "address", "connection", "sort", "offset", "limit", "watch")
_TOLD_AT: Final = ListedField("time", "When it was computed.", "time")
_TOTAL: Final = ListedField("total", "How many there are, on all pages.", "integer")
_TRUNCATED_AT: Final = ListedField(
    "truncatedAt",
    "Where something is left out: how many connections or links are listed, or addresses of a node have figures.",
    "integer",
    is_always=False,
)


def _maybe(name: str, description: str, type_: FieldType = "string") -> ListedField:
    """Return a field that not every item has."""
    return ListedField(name, description, type_, is_always=False)


_STANDING: Final = (
    ListedField("name", "Of the object; of connections and links as they are listed."),
    _maybe("phase", "How far it is."),
    _maybe("ready", "Whether it can be used.", "boolean"),
    _maybe("messages", "Why not.", "strings"),
    _maybe("created", "When.", "time"),
)
_FLOW: Final = (
    _maybe("messagesIn", "Messages in, a second.", "number"),
    _maybe("messagesOut", "Messages out, a second.", "number"),
    _maybe("stored", "Messages that are stored.", "number"),
    _maybe("bytes", "Bytes of these.", "number"),
)

TABLES_OF_SPACES: Final = ("addresses", "connections", "connectors", "links", "pipelines", "subscriptions", "users")
"""The tables whose rows each space has."""

ROWS: Final = Subresource(
    "rows/{table}",
    ("get", "watch"),
    "RowList",
    "report",
    (
        *_STANDING,
        *_FLOW,
        _maybe("address", "Of addresses, links and subscriptions: what applications call it."),
        _maybe("type", "Of an address."),
        _maybe("plan", "Of an address."),
        _maybe("topic", "Of an address that is a subscription."),
        _maybe("partitions", "Of a stream.", "integer"),
        _maybe("subscription", "What receivers of a subscription call it."),
        _maybe("senders", "Links that send.", "number"),
        _maybe("receivers", "Links that receive.", "number"),
        _maybe("fill", "Of each limit how much is used, and what it is.", "object"),
        _maybe("spark", "Rates of the last thirty readings: in and out, of a pipeline its rate.", "object"),
        _maybe("username", "Of a user."),
        _maybe("authentication", "How a user proves who it is."),
        _maybe("grants", "What a user may do, and where.", "objects"),
        _maybe("rows", "Of a pipeline: what it has done since its runner started.", "number"),
        _maybe("rate", "Rows of a pipeline, or messages of a link, a second.", "number"),
        _maybe("lag", "What waits for a pipeline.", "number"),
        _maybe("watermark", "Up to when a pipeline has seen everything."),
        _maybe("lastError", "Of a pipeline."),
        _maybe("paused", "Whether a pipeline rests.", "boolean"),
        _maybe("builtin", "Which built-in pipeline it is."),
        _maybe("sources", "The addresses and tables that a pipeline reads.", "strings"),
        _maybe("sinks", "The addresses and tables that a pipeline writes.", "strings"),
        _maybe("tables", "Those of its sinks that are tables.", "strings"),
        _maybe("restarts", "How often queries of a pipeline were started again.", "integer"),
        _maybe("badRecords", "What a pipeline could not decode.", "integer"),
        _maybe("queries", "Of a pipeline, with their states.", "objects"),
        _maybe("hosts", "The servers of a connector.", "strings"),
        _maybe("reconnects", "Connections of a connector that were lost with links.", "integer"),
        _maybe("creditGranted", "Credit that the other service has granted to senders of a connector.", "integer"),
        _maybe("creditAsked", "Credit that receivers of a connector have given.", "integer"),
        _maybe("bytesSent", "To the servers of a connector.", "integer"),
        _maybe("bytesReceived", "From the servers of a connector.", "integer"),
        _maybe("silence", "Seconds since anything came from a connector's servers.", "number"),
        _maybe("host", "Where the client of a connection is."),
        _maybe("notRead", "Why the node does not read a connection now; empty if it does."),
        _maybe("containerId", "The client of a connection or link, as it calls itself."),
        _maybe("protocol", "What the client of a connection speaks."),
        _maybe(
            "tls", "The version of TLS of a connection and its cipher, or that a connector has it; empty without TLS."
        ),
        _maybe("user", "Who the client of a connection has logged in as."),
        _maybe("mechanism", "How it has proved that."),
        _maybe("properties", "What the program of a connection tells: product, version, platform.", "object"),
        _maybe("opened", "When a connection was opened.", "time"),
        _maybe("connection", "The connection that a link is on."),
        _maybe("role", "Whether the client of a link sends or receives."),
        *(
            _maybe(field.name, f"Of a link. {field.description}", "integer")
            for field in LINKS.fields
            if field.type == "integer"
        ),
        _maybe("namespace", "That a space lies in."),
        _maybe("addresses", "That a space has.", "integer"),
        _maybe("connections", "That clients of a space have open, or a connector to its servers.", "integer"),
    ),
    query=_SEEN,
    beside=(_TOTAL, _TOLD_AT, _TRUNCATED_AT),
)

SERIES: Final = Subresource(
    "series",
    ("get", "watch"),
    "Series",
    "report",
    query=("address", "pipeline", "connection", "minutes", "watch"),
    beside=(
        ListedField("step", "Seconds from one reading to the next, at least.", "number"),
        ListedField("times", "Of the readings, in seconds since 1970.", "numbers"),
        ListedField("series", "By name one value for each time, null where nothing was known.", "object"),
    ),
)

TRACE: Final = Subresource(
    "connections/{connection}/trace",
    ("get", "watch"),
    "TraceLine",
    "report",
    query=("watch", "bodies"),
    beside=(
        _maybe("time", "When the frame came or went.", "time"),
        _maybe("direction", "in, from the client, or out."),
        _maybe("frame", "In words."),
        _maybe("bytes", "Of the frame.", "integer"),
        _maybe("remark", "What is said beside frames."),
    ),
)

_CHOICE: Final = (
    ListedField("selector", "Only what it matches.", is_always=False),
    ListedField("search", "Only what has this text in it, as in what is browsed.", is_always=False),
    ListedField("ids", "Only these messages, by the ids that browsing tells.", "strings", is_always=False),
)

PURGE: Final = Subresource("purge", ("create",), "Status", "status", query=("dryRun",), body=_CHOICE)
MOVE: Final = Subresource(
    "move",
    ("create",),
    "Status",
    "status",
    query=("dryRun",),
    body=(ListedField("to", "Another address of the space, as applications call it."), *_CHOICE),
)
REPLAY: Final = Subresource("replay", ("create",), "Status", "status", query=("dryRun",), body=_CHOICE)

MESSAGES: Final = Subresource(
    "messages",
    ("get", "watch", "create"),
    "MessageList",
    "messages",
    query=("limit", "continue", "selector", "search", "offset", "time", "bodies", "whole", "id", "watch"),
    body=(ListedField("messages", "What is sent, in order.", "objects"),),
)
RECEIVE: Final = Subresource(
    "receive",
    ("create",),
    "MessageList",
    "messages",
    body=(
        ListedField("limit", "How many messages at most: 1, up to 500.", "integer", is_always=False),
        ListedField("waitSeconds", "How long to wait for the first: 5, up to 30.", "number", is_always=False),
    ),
)
QUERY: Final = Subresource(
    "query",
    ("create",),
    "QueryResult",
    "rows",
    body=(
        ListedField("sql", "A query in Spark's SQL."),
        ListedField("limit", "How many rows at most.", "integer", is_always=False),
        ListedField("credentialsSecret", "A secret with the user as whom addresses are read.", is_always=False),
    ),
)
TABLES: Final = Subresource("tables", ("get",), "QueryResult", "rows")
CHECK: Final = Subresource(
    "check",
    ("create",),
    "AccessCheck",
    "report",
    beside=(
        ListedField("allowed", "Whether it may do that.", "boolean"),
        ListedField("reason", "The permission that allows it, or why none does."),
    ),
    body=(
        ListedField("operation", "send, recv, view or manage."),
        ListedField("address", "Of send and recv: where.", is_always=False),
    ),
)

CONNECTOR_TEST: Final = Subresource(
    "connectors/{connector}/test",
    ("create",),
    "ConnectorTest",
    "report",
    (
        ListedField("host", "The server."),
        ListedField("port", "Its port.", "integer"),
        ListedField("succeeded", "Whether every step did.", "boolean"),
        ListedField(
            "steps", "DNS, TCP, TLS, SASL, open, attach: what was found, or why not, and the time.", "objects"
        ),
    ),
    body=(ListedField("address", "An address over there, to which a receiver is attached.", is_always=False),),
)

ROWS_OF_SPACES: Final = Subresource(
    "rows/addressspaces",
    ("get", "watch"),
    "RowList",
    "report",
    ROWS.fields,
    query=("namespace", "search", "type", "status", "sort", "offset", "limit", "watch"),
    beside=ROWS.beside,
)
OVERVIEW: Final = Subresource(
    "overview",
    ("list", "watch"),
    "Overview",
    "report",
    query=("watch",),
    beside=(
        ListedField("problems", "What is wrong, with the remedy and a path in the console.", "objects"),
        ListedField("problemCount", "How many problems there are; the first of them are told.", "integer"),
        ListedField("totals", "Sums of all that one may see.", "object"),
        ListedField("series", "Sums of the last minutes.", "object"),
        ListedField("nodes", "As nodes are listed, for those who may list them.", "objects", is_always=False),
        _TOLD_AT,
    ),
)
NODES: Final = Subresource(
    "nodes",
    ("list", "watch"),
    "NodeList",
    "report",
    (
        ListedField("name", "Of the node."),
        ListedField("up", "Whether it answers.", "boolean"),
        ListedField("ready", "Whether clients can use it.", "boolean"),
        _maybe("cpu", "The share of a processor that it uses.", "number"),
        _maybe("memory", "Bytes.", "integer"),
        _maybe("connections", "That are open.", "integer"),
        _maybe("links", "That are attached.", "integer"),
        _maybe("addresses", "That it has.", "integer"),
        _maybe("uptime", "Milliseconds since its start.", "integer"),
        _maybe("version", "Of the program."),
        _maybe("diskFree", "Bytes on the disk of its journal.", "integer"),
        _maybe("lag", "Seconds that its turns took of late.", "number"),
        ListedField("problems", "In words.", "strings"),
    ),
    query=("watch",),
    beside=(_TOLD_AT,),
)
AUDIT: Final = Subresource(
    "audit",
    ("list",),
    "AuditList",
    "report",
    (
        ListedField("time", "When the request came.", "time"),
        ListedField("user", "Whose it was."),
        _maybe("from", "Where it came from."),
        _maybe("agent", "What sent it."),
        ListedField("verb", "What it asked for."),
        _maybe("group", "Of the resource."),
        _maybe("resource", "What it was about."),
        _maybe("namespace", "Of the object."),
        _maybe("name", "Of the object."),
        _maybe("path", "Where it was about no resource."),
        _maybe("dryRun", "Whether nothing was to be written.", "boolean"),
        ListedField("code", "How it ended.", "integer"),
        ListedField("ms", "How long it took.", "number"),
    ),
    query=("limit", "search", "user", "before"),
)

BUILTINS: Final = Subresource(
    "builtinpipelines",
    ("list",),
    "BuiltinPipelineList",
    "report",
    (
        ListedField("name", "What a pipeline calls it."),
        ListedField("does", "What it does, in a few words."),
        ListedField("schema", "Of its parameters.", "object"),
    ),
)

REPORTS: Final = (ROWS_OF_SPACES, OVERVIEW, NODES, AUDIT, BUILTINS)
"""The reports that the API gives beside objects, in the group of addresses."""
