"""A second protocol of clients, as small as can be: one line for each thing that is said, in UTF-8.

    HELLO user password host container      WELCOME container, or BYE condition description
    SEND address words                      DONE address outcome
    READ address                            READY address, then MESSAGE address words; they count as taken
    anything else                           BYE, and the end

Its row in the table names the classes of this module, as ``wire/X`` and ``node/X`` would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.net.first_bytes import ProtocolSignature
from enmasse.node.connections.client_connection import ClientConnection, ClientLink
from enmasse.node.connections.unfinished import FREE_BYTES
from enmasse.node.protocols import PROTOCOLS, ProtocolRow
from enmasse.pending import Pending
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort

if TYPE_CHECKING:
    from enmasse.wire.sasl.mechanisms import Verdict

LINES = ProtocolRow(
    ProtocolSignature("lines", (b"HELLO ",), subprotocols=("v1.lines",), takes_text=True),
    port=7007,
    schemes=("lines", "lines+ssl"),
    connection="tests.unit.node.line_protocol:LineConnection",
    frames="tests.unit.node.line_protocol",
)

BOTH = {**PROTOCOLS, "lines": LINES}


class LineEngine:
    """Cuts bytes into lines, and keeps those that are to go out."""

    def __init__(self, connection: LineConnection) -> None:
        self.wake: Callable[[Any], None] = lambda _: None
        self.is_late: Callable[[bool], bool] = lambda _: False
        self.out_room = 1 << 20
        self.out_bytes = 0
        self.more_out: Callable[[int], bool] = lambda _size: False
        self.admits: Callable[[int], bool] = lambda _: True
        self.has_more = self.is_paused = self.is_blocked = self.is_held = self.closed = False
        self.trace: Callable[[bool, bytes], None] | None = None
        self.unread = b""
        self._connection = connection
        self._out: list[bytes | memoryview] = []
        self._is_gone = False

    def say(self, *words: str) -> None:
        self._out.append(" ".join(words).encode() + b"\n")
        self.wake(self)

    def hold(self, is_held: bool) -> None:
        self.is_held = is_held
        if not is_held:
            self._take()
        self.wake(self)

    def close(self) -> None:
        self.closed = True
        self.wake(self)

    def receive(self, data: bytes, now: float) -> None:
        if self.trace is not None:
            self.trace(False, data)
        self.unread += data
        self._take()

    def _take(self) -> None:
        while b"\n" in self.unread and not (self.closed or self.is_held):
            line, _, self.unread = self.unread.partition(b"\n")
            self._connection.hear(line.decode("utf-8", "replace"))
        if len(self.unread) > FREE_BYTES:
            self._connection.close("amqp:resource-limit-exceeded", "a line is too long")

    def pending_output(self) -> list[bytes | memoryview]:
        out, self._out = self._out, []
        if out and self.trace is not None:
            self.trace(True, b"".join(out))
        return out

    def next_deadline(self) -> float | None:
        return None

    def handle_deadline(self, now: float) -> None: ...

    def block_output(self) -> None:
        self.is_blocked = True

    def resume_output(self) -> None:
        self.is_blocked = False

    def lost(self) -> None:
        if not self._is_gone:
            self._is_gone = self.closed = True
            self._connection.lost()


class Sending(MemoryProducerPort):
    """A client's link to an address."""

    passes_from = 0

    def __init__(self, connection: LineConnection, address: str) -> None:
        super().__init__()
        self._connection = connection
        self._address = address

    @property
    def is_detach_sent(self) -> bool:
        return self.is_detached

    def settle(self, delivery_id: int, state: Any) -> None:
        self._connection.engine.say("DONE", self._address, type(state).__name__.lower())

    def detach(self, error: Any = None) -> None:
        super().detach(error)
        self._connection.end_link(self._address, error)


class Reading(MemoryConsumerPort):
    """A client's link from an address."""

    def __init__(self, connection: LineConnection, address: str) -> None:
        super().__init__()
        self._connection = connection
        self._address = address
        self.credit = 1 << 20

    @property
    def is_detach_sent(self) -> bool:
        return self.is_detached

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        self.credit -= 1
        self._connection.engine.say("MESSAGE", self._address, str(Sections(payload).body))

    def detach(self, error: Any = None) -> None:
        super().detach(error)
        self._connection.end_link(self._address, error)


class LineConnection(ClientConnection):
    """One client that speaks lines."""

    protocol = "lines"
    engine: LineEngine

    def make_engine(self, node: str, now: float) -> LineEngine:
        self.engine = LineEngine(self)
        self._reason: RemoteError | None = None
        self._login_error: str | None = None
        return self.engine

    def end(self, error: RemoteError) -> None:
        self._reason = error
        self.engine.say("BYE", error.condition, error.description)
        self.engine.close()

    def lost(self) -> None:
        for key in list(self.links):
            self.detached(key, is_logged=False)
        self.disconnected(self._reason, login_error=self._login_error)

    def hear(self, line: str) -> None:
        verb, *words = line.split(" ", 4)
        if verb == "HELLO" and len(words) == 4 and not self.opened_at_ms:
            self._log_in(*words)
        elif verb == "SEND" and len(words) > 1 and self.opened_at_ms:
            self._send(words[0], " ".join(words[1:]))
        elif verb == "READ" and len(words) == 1 and self.opened_at_ms:
            self._attach(words[0], is_sender=False)
        else:
            self.close("amqp:not-allowed", f"{verb} is not expected here")

    def _log_in(self, user: str, password: str, host: str, container: str) -> None:
        def decided(verdict: Verdict) -> None:
            if isinstance(verdict, Pending):
                self.engine.hold(True)
                verdict.then(decided)
                return
            if verdict is not True:
                self._login_error = "authentication failed"
                self.close("amqp:unauthorized-access", self._login_error)
            elif self.enter(host, container):
                self.engine.say("WELCOME", container)
            self.engine.hold(False)

        decided(self.admission.login(user, password, host) if user != "-" else True)

    def _send(self, name: str, words: str) -> None:
        link = self.links.get(f"to {name}") or self._attach(name, is_sender=True)
        if link is not None:
            port = link.port
            port.received += 1
            take = port.sink.on_message if port.received <= port.limit else port.sink.on_crossed
            take(encode_message(words), port.received, False, 0)

    def _attach(self, name: str, *, is_sender: bool) -> ClientLink | None:
        space = self.space
        assert space is not None
        port: Any = Sending(self, name) if is_sender else Reading(self, name)
        key = f"to {name}" if is_sender else f"from {name}"
        link = ClientLink(port, name, key, name, is_sender=is_sender)
        try:
            if is_sender:
                address = self.find_target(name)
                self.count(link, address)
                producer = address.attach_producer(self.bounds.port(space, link, address), name, AttachOptions())
                port.sink, _ = self.bounds.sink(link, producer, self.bounds.size_limit(space, address))
                self.joined(key, link, producer)
            else:
                self.admission.rights.require_receive(name)
                address = space.find(name)
                self.count(link, address)
                consumer = address.attach_consumer(port, AttachOptions(presettle=True))
                self.join(
                    key,
                    link,
                    consumer,
                    begin=lambda: self.engine.say("READY", name),
                    refuse=lambda error: self.close(error.condition, error.description),
                )
        except AttachError as error:
            self.refused(link, error)
            self.close(error.condition, error.description)
            return None
        return link

    def end_link(self, address: str, error: Any) -> None:
        """There is no way to end one link, so the connection goes."""
        self.close(str(error.condition), error.description or "")


class Splitter:
    """Finds lines in the bytes of one direction."""

    def __init__(self, begun: bytes = b"") -> None:
        self._rest = begun

    def feed(self, data: bytes) -> list[bytes]:
        *found, self._rest = (self._rest + data).split(b"\n")
        return [line + b"\n" for line in found]


def mask(frame: bytes) -> bytes:
    """A line without its password."""
    words = frame.split(b" ")
    if words[0] == b"HELLO" and len(words) > 2:
        words[2] = b"*" * len(words[2])
    return b" ".join(words)


def shorten(frame: bytes, payload_bytes: int) -> bytes:
    """Lines are short."""
    return frame


def describe(frame: bytes, payload_bytes: int = 0) -> str:
    """A line as it is."""
    return frame.decode("utf-8", "replace").rstrip()
