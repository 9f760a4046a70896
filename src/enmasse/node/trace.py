"""Frame traces: copies of connections' frames for a reader that asked for them through management.

Rules:
1. A connection that is not traced pays nothing: its engine checks once per read and once per turn.
2. A trace buffers ``MAX_BUFFER_BYTES``. Frames that its reader is too slow for are dropped and counted.
3. A trace ends with its reader: when the receiver detaches, or does not attach within ``PATIENCE_S``.
4. The administrator's own connections are not traced: a trace would trace its own delivery.
5. Secrets are masked before a frame is kept.
6. The row of the connection's protocol names the module that splits and masks frames.
7. Where a traced connection goes on behind a connector, the frames of its sessions there are part of the trace, by
   the number of the connection with the connector's name behind; those of others, on the same connection, are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.message.sections import encode_message
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.space import AnonymousTerminus
from enmasse.node.errors import EntityError
from enmasse.node.protocols import PROTOCOLS, Frames, ProtocolRow

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.connections.connections import Connections


MAX_BUFFER_BYTES = 8 << 20
"""The most bytes that a trace buffers for its reader: a burst."""

MAX_UNDECIDED_BYTES = 64 << 10
"""The most bytes that are kept of a connection whose container is not known yet: a login and open are far less."""

MESSAGE_BYTES = 64 << 10
"""The bytes of frames that are sent in one message to the reader."""

RECORD_BYTES = 100
"""The bytes that a record costs beside its frame."""

PATIENCE_S = 10.0
"""Seconds within which the receiver of a trace must attach."""

MAX_TRACES = 16

FRAME_HEAD = 8
"""The bytes of a frame's head [AMQP 2.3]."""

_ARGUMENTS = ("container", "payload")


@dataclass(slots=True)
class _Record:
    """One frame that waits for the reader."""

    time_us: int
    connection: int | str
    is_outgoing: bool
    frame: bytes
    size: int


class _Tap:
    """Receives the bytes of one connection's engine, and gives the frames to its traces."""

    __slots__ = ("_clock_us", "_splitters", "connection", "frames", "number", "traces")

    def __init__(
        self, connection: ClientConnection, number: int, frames: Frames, clock_us: Callable[[], int]
    ) -> None:
        self.connection = connection
        self.number = number
        self.frames = frames
        self.traces: list[_Trace] = []
        self._clock_us = clock_us
        self._splitters = (frames.Splitter(connection.engine.unread), frames.Splitter())

    def on_bytes(self, is_outgoing: bool, data: bytes) -> None:
        """Give the frames that are complete now to the traces; an empty one if no frame follows."""
        now_us = self._clock_us()
        for frame in self._splitters[is_outgoing].feed(data):
            masked = self.frames.mask(frame) if frame else frame
            for trace in self.traces:
                trace.add(self, now_us, is_outgoing, masked)


class Line(Protocol):
    """A connection of ours to another container, with a session of its own for each client's connection."""

    @property
    def name(self) -> str:
        """The connector: ``<namespace>/<space>/<connector>``."""

    @property
    def container(self) -> str:
        """The other container's name for itself."""

    @property
    def url(self) -> Any:
        """The place that it is connected to."""

    def trace(self, on_bytes: Callable[[bool, bytes], None] | None) -> bytes:
        """Have what is received and sent told, or not any more; returns what has come of an incomplete frame."""

    def owner(self, is_outgoing: bool, channel: int) -> object:
        """Return whose session a channel is: a client's connection, or the end of a link that is its only one."""

    def links_of(self, owner: object) -> list[tuple[int, int, str, str, str]]:
        """Return channel, handle, role of the client, name and address of the links that are attached."""


class _Hop:
    """A traced connection behind one connector, as a trace shows it."""

    __slots__ = ("about", "frames", "number", "told")

    def __init__(self, number: str, frames: Frames, about: Callable[[], dict[str, Any]]) -> None:
        self.number = number
        self.frames = frames
        self.about = about
        self.told: set[_Trace] = set()
        """The traces that have been told of it."""


class _LineTap:
    """Receives the bytes of a connection to another container, and gives traced clients' frames to their traces."""

    __slots__ = ("_frames", "_hops", "_splitters", "_tracer", "line", "owners")

    def __init__(self, tracer: Tracer, line: Line, frames: Frames) -> None:
        self.line = line
        self.owners: dict[object, _Tap | None] = {}
        """The taps of those whose sessions were looked for; None: they are not traced."""
        self._tracer = tracer
        self._frames = frames
        self._hops: dict[_Tap, _Hop] = {}
        self._splitters = (frames.Splitter(line.trace(self.on_bytes)), frames.Splitter())

    def on_bytes(self, is_outgoing: bool, data: bytes) -> None:
        """Give the frames that are complete now to the traces of those whose they are."""
        now_us = self._tracer.clock_us()
        for frame in self._splitters[is_outgoing].feed(data):
            # Headers and logins are nobody's; of frames the channel says whose they are.
            if len(frame) < FRAME_HEAD or frame.startswith(b"AMQP") or frame[5]:
                continue
            owner = self.line.owner(is_outgoing, int.from_bytes(frame[6:8], "big"))
            if owner is None:
                continue
            if owner not in self.owners:
                self.owners[owner] = self._tracer.tap_of(owner)
            tap = self.owners[owner]
            if tap is not None:
                hop = self._hop(tap, owner)
                for trace in tap.traces:
                    if trace not in hop.told:
                        hop.told.add(trace)
                        trace.describe_hop(hop)
                    trace.add(hop, now_us, is_outgoing, frame)

    def _hop(self, tap: _Tap, owner: object) -> _Hop:
        hop = self._hops.get(tap)
        if hop is None:
            space, _, connector = self.line.name.rpartition("/")
            line = self.line

            def about() -> dict[str, Any]:
                keys = ("channel", "handle", "role", "name", "address")
                return {
                    "host": f"{line.url.host}:{line.url.port}",
                    "container": line.container,
                    "space": space,
                    "protocol": "amqp",
                    "connector": connector,
                    "links": [dict(zip(keys, link, strict=True)) for link in line.links_of(owner)],
                }

            hop = self._hops[tap] = _Hop(f"{tap.number}/{connector}", self._frames, about)
        return hop

    def renew(self, taps: Collection[_Tap]) -> None:
        """Look anew for whose sessions are, as others are traced."""
        self.owners.clear()
        self._hops = {tap: hop for tap, hop in self._hops.items() if tap in taps}


class _Reader(Consumer):
    """The end of the link over which a trace is read."""

    __slots__ = ()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what waits: in the next turn, or at once to a reader that drains, who wants no more after that."""
        if drain:
            self.address.on_turn(0.0)
            self.port.drained()
        else:
            self.address.due()


class _Trace(Address):
    """One trace: an address that exactly one receiver reads."""

    kind = "trace"

    def __init__(
        self, tracer: Tracer, name: str, *, number: int | None, container: str | None, payload: int | None
    ) -> None:
        super().__init__(tracer.space.core, name)
        self.number = number
        self.container = container
        self._payload = payload
        self._tracer = tracer
        self._records: deque[_Record] = deque()
        self._bytes = 0
        self._lost = 0
        self._reported = -1
        self._undecided: dict[_Tap, list[_Record]] = {}
        self._hosts: dict[int | str, dict[str, Any]] = {}
        """The connections that have to be described to the reader before their frames."""
        self._is_ended = False
        self._is_called = False

    # What is traced

    def wants(self, connection: ClientConnection, number: int) -> bool:
        """Return true if a connection belongs to the trace, as far as that is known."""
        if self.number is not None:
            return number == self.number
        return self.container is None or not connection.container or connection.container == self.container

    def joined(self, tap: _Tap) -> None:
        """Begin to trace a connection."""
        if self.container is not None and not tap.connection.container:
            self._undecided[tap] = []
        self._describe(tap)

    def decided(self, tap: _Tap) -> None:
        """Keep the frames of a connection whose container is known now."""
        self._describe(tap)
        for record in self._undecided.pop(tap, ()):
            self._keep(record)

    def left(self, tap: _Tap) -> None:
        """Stop tracing a connection that is closed, or does not belong to the trace."""
        self._undecided.pop(tap, None)
        if tap.number == self.number:
            self.end()

    def end(self) -> None:
        """End the trace; the reader gets a mark after the last frame."""
        self._is_ended = True
        self._call()

    def _describe(self, tap: _Tap) -> None:
        connection = tap.connection
        space = connection.space.name if connection.space is not None else None
        self._hosts[tap.number] = {
            "host": connection.peer,
            "container": connection.container,
            "space": space,
            "protocol": connection.protocol,
        }

    def describe_hop(self, hop: _Hop) -> None:
        """Have the reader told where a connection goes on."""
        self._hosts[hop.number] = hop.about()

    def add(self, tap: _Tap | _Hop, time_us: int, is_outgoing: bool, frame: bytes) -> None:
        """Take a frame; an empty one says that the bytes from here on are no frames."""
        size = len(frame)
        if frame and self._payload is not None:
            frame = tap.frames.shorten(frame, self._payload)
        record = _Record(time_us, tap.number, is_outgoing, frame, size)
        held = self._undecided.get(tap) if isinstance(tap, _Tap) else None
        if held is None:
            self._keep(record)
        elif sum(len(item.frame) for item in held) + len(frame) <= MAX_UNDECIDED_BYTES:
            held.append(record)
        else:
            self._lost += 1

    def _keep(self, record: _Record) -> None:
        cost = len(record.frame) + RECORD_BYTES
        if self._bytes + cost > MAX_BUFFER_BYTES:
            self._lost += 1
            return
        self._bytes += cost
        self._records.append(record)
        self._call()

    def _call(self) -> None:
        # Frames also come while a turn's output is written, after the addresses' turn.
        if not self._is_called:
            self._is_called = True
            self._tracer.soon(self._called)

    def _called(self) -> None:
        self._is_called = False
        self.due()

    # How it is read

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach the reader, and begin to trace.

        Raises:
            AttachError: the trace has a reader already.
        """
        if self.consumers:
            raise AttachError("amqp:resource-locked", "a trace has one receiver, and this one has it already")
        reader = self.add_consumer(_Reader(self, port, presettle=True))
        self._tracer.begun(self)
        return reader

    def on_turn(self, now: float) -> None:
        """Send waiting frames, as far as the reader has credit."""
        for reader in self.consumers:
            while reader.port.credit > 0 and not reader.is_blocked and self._has_news:
                reader.deliveries += 1
                reader.send(None, self._message(), True, 0)

    @property
    def _has_news(self) -> bool:
        return bool(self._records) or self._lost > max(self._reported, 0) or self._is_ended or self._reported < 0

    def _message(self) -> bytes:
        records: list[list[Any]] = []
        size = 0
        while self._records and size < MESSAGE_BYTES:
            record = self._records.popleft()
            cost = len(record.frame) + RECORD_BYTES
            size += cost
            self._bytes -= cost
            records.append([record.time_us, record.connection, record.is_outgoing, record.frame, record.size])
        numbers = {record[1] for record in records}
        hosts = {number: self._hosts.pop(number) for number in sorted(numbers, key=str) if number in self._hosts}
        self._reported = self._lost
        is_last = self._is_ended and not self._records
        if is_last:
            self._is_ended = False
        return encode_message(
            {
                "connections": {str(number): host for number, host in hosts.items()},
                "records": records,
                "dropped": self._lost,
                "ended": is_last,
            }
        )

    def on_deadline(self, now: float) -> None:
        """End the trace if no reader has attached."""
        if not self.consumers:
            self._tracer.ended(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """End the trace with its reader."""
        super().remove_consumer(consumer)
        self._tracer.ended(self)

    def counts(self) -> dict[str, int]:
        """Return the counters, with frames that wait and were dropped."""
        return super().counts() | {"backlog": len(self._records), "dropped": self._lost}


class Tracer:
    """The traces of a node.

    Args:
        space: the administrator's space, where traces are read.
        connections: the node's connections.
        soon: calls a function in the next turn.
        clock_us: returns the time in microseconds since 1970 UTC.
        new_id: returns unguessable names.
        protocols: the node's protocols by name.
        lines: returns the connections to other containers.
    """

    def __init__(
        self,
        space: Space,
        connections: Connections,
        *,
        soon: Callable[[Callable[[], None]], None],
        clock_us: Callable[[], int],
        new_id: Callable[[], str],
        protocols: Mapping[str, ProtocolRow] = PROTOCOLS,
        lines: Callable[[], Iterable[Line]] = lambda: (),
    ) -> None:
        self.space = space
        self.soon = soon
        self._connections = connections
        self.clock_us = clock_us
        self._new_id = new_id
        self._protocols = protocols
        self._lines = lines
        self._line_taps: dict[Line, _LineTap] = {}
        self._traces: dict[_Trace, None] = {}
        """The traces that are being read."""
        self._waiting: dict[_Trace, None] = {}
        self._taps: dict[ClientConnection, _Tap] = {}
        connections.watchers.append(self)

    def start(self, name: str, arguments: Any) -> dict[str, Any]:
        """Prepare a trace; it runs as long as the address in the answer has a receiver.

        Args:
            name: the number of a connection; empty for all that ``container`` chooses, those to come included.
            arguments: ``container``, or nothing for all; ``payload``: how many bytes of each transfer's
                payload are wanted, or nothing for all.

        Raises:
            EntityError: 400 the arguments make no sense, 404 there is no such connection, 409 too many traces.
        """
        given = arguments if isinstance(arguments, dict) else {}
        for key in given:
            if key not in _ARGUMENTS:
                raise EntityError(400, f"TRACE has no argument {key!r:.100}; it has {', '.join(_ARGUMENTS)}")
        container, payload = given.get("container"), given.get("payload")
        if container is not None and (not isinstance(container, str) or not container or name):
            raise EntityError(400, "argument container is the name of a container, and names no connection besides")
        if payload is not None and (not isinstance(payload, int) or isinstance(payload, bool) or payload < 0):
            raise EntityError(400, f"argument payload is a number of bytes, not {payload!r:.100}")
        number = self._number(name) if name else None
        if len(self._traces) + len(self._waiting) >= MAX_TRACES:
            raise EntityError(409, f"{MAX_TRACES} traces run already; end one of them")
        trace = _Trace(self, f"$trace/{self._new_id()}", number=number, container=container, payload=payload)
        self._waiting[trace] = None
        self.space.add(trace)
        self.space.core.call_later(PATIENCE_S, lambda: trace.on_deadline(0.0))
        return {"address": trace.name}

    def _number(self, name: str) -> int:
        for connection, number in self._connections.numbers.items():
            if str(number) == name and connection.space is not self.space:
                return number
        raise EntityError(404, f"there is no connection {name!r} of a client; QUERY io.enmasse.connection lists them")

    def begun(self, trace: _Trace) -> None:
        """Begin a trace, as its reader has attached."""
        self._waiting.pop(trace, None)
        self._traces[trace] = None
        for connection, number in self._connections.numbers.items():
            if connection.space is not self.space and trace.wants(connection, number):
                self._join(trace, connection, number)
        self._look_at_lines()
        if trace.number is not None and trace.number not in self._connections.numbers.values():
            trace.end()

    def _join(self, trace: _Trace, connection: ClientConnection, number: int) -> None:
        tap = self._taps.get(connection)
        if tap is None:
            frames = self._protocols[connection.protocol].load_frames()
            tap = self._taps[connection] = _Tap(connection, number, frames, self.clock_us)
            connection.engine.trace = tap.on_bytes
        tap.traces.append(trace)
        trace.joined(tap)

    def _leave(self, trace: _Trace, tap: _Tap) -> None:
        if trace in tap.traces:
            tap.traces.remove(trace)
        if not tap.traces:
            tap.connection.engine.trace = None
            self._taps.pop(tap.connection, None)

    def ended(self, trace: _Trace) -> None:
        """Remove a trace."""
        self._traces.pop(trace, None)
        self._waiting.pop(trace, None)
        for tap in list(self._taps.values()):
            self._leave(trace, tap)
        self._look_at_lines()
        if self.space.addresses.get(trace.name) is trace:
            self.space.remove(trace)

    # The watcher of connections

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Trace the connection if a trace may want it."""
        if connection.space is self.space:
            return
        for trace in self._traces:
            if trace.wants(connection, number):
                self._join(trace, connection, number)

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """Decide which traces the connection belongs to, as its container is known."""
        tap = self._taps.get(connection)
        if tap is None:
            return
        for trace in list(tap.traces):
            if trace.wants(connection, number):
                trace.decided(tap)
            else:
                trace.left(tap)
                self._leave(trace, tap)
        self._look_at_lines()

    def on_closed(self, connection: ClientConnection) -> None:
        """Tell the connection's traces that it is closed."""
        tap = self._taps.pop(connection, None)
        if tap is not None:
            for trace in tap.traces:
                trace.left(tap)
            self._look_at_lines()

    # Connections to other containers

    def tap_of(self, owner: object) -> _Tap | None:
        """Return the tap of a client's connection, or of the one that has a link's end, if it is traced."""
        for connection, tap in self._taps.items():
            if connection is owner:
                return tap
            for link in connection.links.values():
                end = link.end
                if end is owner or (isinstance(end, AnonymousTerminus) and owner in end.ends):
                    return tap
        return None

    def on_line(self, line: Line) -> None:
        """Look at the connections to other containers, as there is another one."""
        if self._taps:
            self._look_at_lines()

    def _look_at_lines(self) -> None:
        """Hear the connections of the connectors of spaces with traced connections, and no others."""
        spaces = {tap.connection.space.name for tap in self._taps.values() if tap.connection.space is not None}
        wanted = {line for line in self._lines() if line.name.rpartition("/")[0] in spaces} if spaces else set()
        for line in [line for line in self._line_taps if line not in wanted]:
            del self._line_taps[line]
            line.trace(None)
        for line in wanted:
            tap = self._line_taps.get(line)
            if tap is None:
                self._line_taps[line] = _LineTap(self, line, self._protocols["amqp"].load_frames())
            else:
                tap.renew(self._taps.values())
