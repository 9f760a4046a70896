"""Frame traces: the frames of connections, copied to whoever asked by management while they come and go.

Rules:
1. A connection that nobody traces pays nothing: its engine asks once per read and once per turn whether
   somebody listens.
2. A trace has ``MAX_BUFFER_BYTES``. What its reader is too slow for is dropped, frame by frame, and counted.
3. Its life is its reader's: when the receiver goes, or does not come in ``PATIENCE_S``, it is over.
4. The administrator's own connections are not traced: a trace would trace its own delivery.
5. Secrets are masked before a frame is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.node.errors import EntityError
from enmasse.wire.amqp.sections import encode_message
from enmasse.wire.amqp.trace import Splitter, mask, shorten

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.binding import Binding
    from enmasse.node.connections import Connections

__all__ = ["MAX_BUFFER_BYTES", "Tracer"]

MAX_BUFFER_BYTES = 8 << 20
"""What a trace may hold for its reader: a burst, and not a full disk's worth."""

MAX_UNDECIDED_BYTES = 64 << 10
"""What is kept of a connection that has not said its container yet: headers, SASL and open are far smaller."""

MESSAGE_BYTES = 64 << 10
"""Frames that go together in one message to the reader."""

RECORD_BYTES = 100
"""What a record costs beside its frame."""

PATIENCE_S = 10.0
"""How soon the receiver of a trace must attach."""

MAX_TRACES = 16

_ARGUMENTS = ("container", "payload")


@dataclass(slots=True)
class _Record:
    """One frame on its way to a reader."""

    time_us: int
    connection: int
    is_outgoing: bool
    frame: bytes
    size: int


class _Tap:
    """What one connection's engine tells its bytes to."""

    __slots__ = ("_clock_us", "_splitters", "binding", "number", "traces")

    def __init__(self, binding: Binding, number: int, clock_us: Callable[[], int]) -> None:
        self.binding = binding
        self.number = number
        self.traces: list[_Trace] = []
        self._clock_us = clock_us
        self._splitters = (Splitter(binding.connection.unread), Splitter())

    def hear(self, is_outgoing: bool, data: bytes) -> None:
        """Hand every frame that is complete now to the traces; an empty one where no frame follows."""
        now_us = self._clock_us()
        for frame in self._splitters[is_outgoing].feed(data):
            masked = mask(frame) if frame else frame
            for trace in self.traces:
                trace.add(self, now_us, is_outgoing, masked)


class _Reader(Consumer):
    """The end of the link over which a trace is read."""

    __slots__ = ()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what waits."""
        self.address.due()
        if drain:
            self.port.drained()


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
        self._told = -1
        self._undecided: dict[_Tap, list[_Record]] = {}
        self._hosts: dict[int, dict[str, Any]] = {}
        """What is to be told of connections before their frames."""
        self._is_ended = False
        self._is_called = False

    # What is traced

    def wants(self, binding: Binding, number: int) -> bool:
        """Whether a connection belongs to the trace, as far as it is known by now."""
        if self.number is not None:
            return number == self.number
        return self.container is None or not binding.container or binding.container == self.container

    def joined(self, tap: _Tap) -> None:
        """A connection is traced from now on."""
        if self.container is not None and not tap.binding.container:
            self._undecided[tap] = []
        self._describe(tap)

    def decided(self, tap: _Tap) -> None:
        """The connection has said its container."""
        self._describe(tap)
        for record in self._undecided.pop(tap, ()):
            self._keep(record)

    def left(self, tap: _Tap) -> None:
        """The connection is gone."""
        self._undecided.pop(tap, None)
        if tap.number == self.number:
            self.end()

    def end(self) -> None:
        """Nothing more will come, as the reader is told once it has all."""
        self._is_ended = True
        self._call()

    def _describe(self, tap: _Tap) -> None:
        binding = tap.binding
        space = binding.space.name if binding.space is not None else None
        self._hosts[tap.number] = {"host": binding.peer, "container": binding.container, "space": space}

    def add(self, tap: _Tap, time_us: int, is_outgoing: bool, frame: bytes) -> None:
        """Take a frame; an empty one says that the bytes from here on are no frames."""
        size = len(frame)
        if frame and self._payload is not None:
            frame = shorten(frame, self._payload)
        record = _Record(time_us, tap.number, is_outgoing, frame, size)
        held = self._undecided.get(tap)
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
        # Frames are also heard while a turn's output is written, when addresses have had their turn.
        if not self._is_called:
            self._is_called = True
            self._tracer.soon(self._called)

    def _called(self) -> None:
        self._is_called = False
        self.due()

    # How it is read

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """The reader has come: connections are traced from now on.

        Raises:
            AttachError: it has a reader.
        """
        if self.consumers:
            raise AttachError("amqp:resource-locked", "a trace has one receiver, and this one has it already")
        reader = self.add_consumer(_Reader(self, port, presettle=True))
        self._tracer.begun(self)
        return reader

    def on_turn(self, now: float) -> None:
        """Send what waits, as far as the reader takes it."""
        for reader in self.consumers:
            while reader.port.credit > 0 and not reader.is_blocked and self._has_news:
                reader.deliveries += 1
                reader.send(None, self._message(), True, 0)

    @property
    def _has_news(self) -> bool:
        return bool(self._records) or self._lost > max(self._told, 0) or self._is_ended or self._told < 0

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
        hosts = {number: self._hosts.pop(number) for number in numbers if number in self._hosts}
        self._told = self._lost
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
        """A trace that nobody came to read is over."""
        if not self.consumers:
            self._tracer.ended(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """The reader has gone, and the trace with it."""
        super().remove_consumer(consumer)
        self._tracer.ended(self)

    def counts(self) -> dict[str, int]:
        """With what was dropped."""
        return super().counts() | {"backlog": len(self._records), "dropped": self._lost}


class Tracer:
    """All traces of a node.

    Args:
        space: of the administrator, where traces are read.
        connections: the node's.
        soon: has a function called in the next turn.
        clock_us: gives the time of day in microseconds since 1970 UTC.
        new_id: gives unguessable names.
    """

    def __init__(
        self,
        space: Space,
        connections: Connections,
        *,
        soon: Callable[[Callable[[], None]], None],
        clock_us: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.space = space
        self.soon = soon
        self._connections = connections
        self._clock_us = clock_us
        self._new_id = new_id
        self._traces: dict[_Trace, None] = {}
        """Those that are being read."""
        self._waiting: dict[_Trace, None] = {}
        self._taps: dict[Binding, _Tap] = {}
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
        for binding, number in self._connections.numbers.items():
            if str(number) == name and binding.space is not self.space:
                return number
        raise EntityError(404, f"there is no connection {name!r} of a client; QUERY io.enmasse.connection lists them")

    def begun(self, trace: _Trace) -> None:
        """The reader of a trace has come."""
        self._waiting.pop(trace, None)
        self._traces[trace] = None
        for binding, number in self._connections.numbers.items():
            if binding.space is not self.space and trace.wants(binding, number):
                self._join(trace, binding, number)
        if trace.number is not None and trace.number not in self._connections.numbers.values():
            trace.end()

    def _join(self, trace: _Trace, binding: Binding, number: int) -> None:
        tap = self._taps.get(binding)
        if tap is None:
            tap = self._taps[binding] = _Tap(binding, number, self._clock_us)
            binding.connection.trace = tap.hear
        tap.traces.append(trace)
        trace.joined(tap)

    def _leave(self, trace: _Trace, tap: _Tap) -> None:
        if trace in tap.traces:
            tap.traces.remove(trace)
        if not tap.traces:
            tap.binding.connection.trace = None
            self._taps.pop(tap.binding, None)

    def ended(self, trace: _Trace) -> None:
        """A trace is over."""
        self._traces.pop(trace, None)
        self._waiting.pop(trace, None)
        for tap in list(self._taps.values()):
            self._leave(trace, tap)
        if self.space.addresses.get(trace.name) is trace:
            self.space.remove(trace)

    # What the account of connections tells

    def on_connected(self, binding: Binding, number: int) -> None:
        """A socket is connected, and has said nothing yet."""
        if binding.space is self.space:
            return
        for trace in self._traces:
            if trace.wants(binding, number):
                self._join(trace, binding, number)

    def on_opened(self, binding: Binding, number: int) -> None:
        """The connection has said its container."""
        tap = self._taps.get(binding)
        if tap is None:
            return
        for trace in list(tap.traces):
            if trace.wants(binding, number):
                trace.decided(tap)
            else:
                trace.left(tap)
                self._leave(trace, tap)

    def on_closed(self, binding: Binding) -> None:
        """The connection is gone."""
        tap = self._taps.pop(binding, None)
        if tap is not None:
            for trace in tap.traces:
                trace.left(tap)
