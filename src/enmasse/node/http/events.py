"""Messages as Server-Sent Events, for clients that stay: each is leased, and settled by requests of their own.

Rules:
1. No more messages are under way than the client asked for: a settled one makes room for another.
2. What is not settled when the stream of events ends goes back, as a failed attempt: the client has seen it.
3. The events of a stream are not settled. Their ids are offsets, from which a client goes on that comes again.
4. What takes messages has to say that it wants events: a browser that fetches an image or a page does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.streams.reader import PARTITION_FILTER, START_FILTER
from enmasse.messaging.streams.rows import OFFSET
from enmasse.node.http.browse import offset_of
from enmasse.node.http.documents import from_sections
from enmasse.node.http.leases import Holder
from enmasse.node.http.receiving import LEASE_S, MAX_LEASE_S, STEP_BYTES, Receiving
from enmasse.node.http.routes import Route, check_query, number, seconds
from enmasse.node.http.values import INVALID, dumped
from enmasse.wire.http.answers import HttpError, head

if TYPE_CHECKING:
    from enmasse.messaging.address import Address, AttachOptions
    from enmasse.node.http.connection import HttpConnection
    from enmasse.wire.http.heads import Request


WINDOW: Final = 10
MAX_WINDOW: Final = 1_000

BEAT_S: Final = 15.0
"""Seconds between two signs of life while nothing comes; proxies end what is silent for 30 s or more."""

EVENT_STREAM: Final = "text/event-stream"

_START: Final = head(200, EVENT_STREAM, (("X-Accel-Buffering", "no"),))
_BEAT: Final = b": nothing new\n\n"


class _EventHolder(Holder):
    """The leases of a stream of events, each of which makes room as it is settled."""

    __slots__ = ("events",)
    events: ref[Events]

    def settle(self, name: str, outcome: Any) -> None:
        """Give a leased message its outcome."""
        super().settle(name, outcome)
        events = self.events()
        if events is not None:
            events.gain(1)

    def leave_if_idle(self) -> None:
        """Stay: more is to come."""


class Events(Receiving):
    """A request for a stream of events.

    Args:
        connection: the client's.
        request: its request.
    """

    __slots__ = (
        "__weakref__", "_beat_at", "_headers", "_holder", "_is_stream", "_lease_s", "_query", "_withheld",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, request: Request) -> None:
        route: Route = request.route
        query = route.query
        check_query(route, "GET")
        window = number(query, "max", WINDOW, 1, MAX_WINDOW)
        super().__init__(connection, route.address, min(window, connection.leases.room(connection.owner)), 0.0)
        self._lease_s = seconds(query, "lease", LEASE_S, MAX_LEASE_S)
        self._query = query
        self._headers = request.headers
        self._is_stream = False
        self._beat_at = 0.0
        self._withheld = 0
        self._holder = _EventHolder(connection.leases, connection.owner, route.address)
        self._holder.events = ref(self)

    def _begin(self) -> None:
        """Grant credit, and begin the answer."""
        super()._begin()
        self._holder.consumer = self.consumer
        self._connection.engine.begin_stream(_START)

    def _options(self, address: Address) -> AttachOptions:
        options = super()._options(address)
        self._is_stream = options.presettle = address.is_read_by_offset
        if not self._is_stream:
            self._require_reader()
        return options

    def _require_reader(self) -> None:
        """Check that somebody wants events, as each is taken from others.

        Raises:
            HttpError: a browser may be fetching something else, for a page that never sees what comes.
        """
        destination = self._headers.get("sec-fetch-dest", "empty")
        if destination != "empty":
            raise HttpError(
                403, f"messages are taken by EventSource or fetch, not as {destination!r:.40}", "amqp:not-allowed"
            )
        wanted = {item.partition(";")[0].strip().lower() for item in self._headers.get("accept", "").split(",")}
        if EVENT_STREAM not in wanted:
            raise HttpError(406, f"messages are taken by whoever asks for them: send Accept: {EVENT_STREAM}")

    def _filters(self, address: Address) -> dict[str, Any]:
        query = self._query
        found: dict[str, Any] = {}
        if "selector" in query:
            found[SELECTOR_FILTER] = query["selector"]
        if not address.is_read_by_offset:
            if "offset" in query or "partition" in query:
                raise HttpError(400, "offset and partition are for streams", INVALID)
            return found
        start = offset_of(query.get("offset", "next"))
        # The last event that the client has seen.
        if last_id := self._headers.get("last-event-id"):
            last = offset_of(last_id)
            start = last + 1 if isinstance(last, int) else last
        if "partition" in query:
            found[PARTITION_FILTER] = number(query, "partition", 0, 0, 1 << 30)
        elif len(address.partitions) > 1:
            raise HttpError(400, "the stream has several partitions: name one by partition", INVALID)
        found[START_FILTER] = start
        return found

    def gain(self, count: int) -> None:
        """Grant credit again."""
        if not (self.is_over or self.is_detach_sent):
            self.credit += count
            self.consumer.on_credit(count, False)

    def on_turn(self, now: float) -> float | None:
        """Write what has come, or a sign of life."""
        engine = self._connection.engine
        got, self._got = self._got, []
        if self._bytes >= STEP_BYTES:
            engine.gather(0)
        self._bytes = 0
        self._mark = STEP_BYTES
        for delivery, payload in got:
            document = from_sections(payload)
            name = ""
            if delivery is not None:
                name = self._holder.lease(delivery, now + self._lease_s, self._connection.open_space.core)
                document["lease"] = name
            elif self._is_stream:
                name = str(document.get("annotations", {}).get(OFFSET, ""))
            start = f"id: {name}\n".encode() if name else b""
            # JSON has no line ends but those that it escapes.
            engine.put_part(start + b"event: message\ndata: " + dumped(document) + b"\n")
        if got or not self._beat_at:
            self._beat_at = now + BEAT_S
        elif now >= self._beat_at:
            self._beat_at = now + BEAT_S
            if not engine.is_blocked:
                engine.put_part(_BEAT)
        gained = sum(1 for delivery, _ in got if delivery is None) + self._withheld
        self._withheld = 0
        if self.consumer.is_blocked and not engine.is_blocked:
            self.consumer.on_blocked(False)
        if gained:
            self.gain(gained)
        return self._beat_at

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Take a message whose credit is used up."""
        credit = self.credit
        super().put(delivery, payload, settled)
        # No more is taken in a turn than an answer may hold; the rest of the credit is granted after it.
        self._withheld += credit - self.credit

    @property
    def holds_back(self) -> bool:
        """True if the client does not read what it is sent."""
        return self._connection.engine.is_blocked

    def take_unsettled(self) -> list[Any]:
        """Remove and return the deliveries without an outcome, leased ones included."""
        return [*super().take_unsettled(), *self._holder.take_all()]

    def take_from(self, sink: Any) -> list[Any]:
        """Remove and return what one of several ends has sent and has no outcome yet, leased ones included."""
        unsent, leased = super().take_from(sink), self._holder.take_from(sink)
        # They make room, once whoever takes them is done.
        self._withheld += len(unsent) + len(leased)
        self._connection.due()
        return [*unsent, *leased]


def get_events(connection: HttpConnection, request: Request, _body: bytes) -> None:
    """Send messages as events, until the client leaves."""
    if request.method == "HEAD":
        connection.finish(_START)
        return
    connection.begin(Events(connection, request))
