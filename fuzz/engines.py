"""Targets of the engine: framing, and whole connections as server and as client.

An input's first byte says how the conversation begins and into which pieces the rest is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, zip_longest
from typing import Any

from enmasse.message.composites import decode_composite
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Begin, Close, Detach, End, Flow, Open, Source, Transfer
from enmasse.wire.amqp.performatives import Target as LinkTarget
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.amqp.session import Session
from enmasse.wire.sasl.mechanisms import Anonymous
from fuzz.mutation import mutate_conversation, split
from fuzz.target import BrokenBoundError, Target, held_bytes, is_measured
from fuzz.vocabulary import PERFORMATIVES, frame_of, hello

__all__ = [
    "CLIENT_TARGET", "FRAMING_TARGET", "SERVER_TARGET", "Application", "check_output", "converse", "cut", "headed",
]  # fmt: skip

PIECES = (0, 1, 2, 3, 7, 8, 11, 64)
"""Sizes that an input is cut into; 0 leaves it whole."""

HELD_AT_ALL = 128 << 10
HELD_PER_BYTE = 400
"""What an engine may hold for what it was told: a link that a frame of twenty bytes attaches has its own
state, two attaches and an answer."""

MAX_FRAME = 512
PASSES_FROM = 100
"""Bytes from which every second link passes messages on while they come."""
STATES = (Accepted(), Released(), Rejected(AmqpError("fuzz:no")), Modified(True))

_BASE_OPENED = hello(Open("fuzz"))
_BASE_BEGUN = hello(Open("fuzz"), Begin(incoming_window=100, outgoing_window=100))
_BASE_ATTACHED = _BASE_BEGUN + b"".join(
    frame_of(item)
    for item in (
        Attach("in", 0, False, source=Source(), target=LinkTarget("queue"), initial_delivery_count=0),
        Attach("out", 1, True, source=Source("queue"), target=LinkTarget()),
        Flow(0, 100, 0, 100, 1, 0, 10),
    )
)
STARTS = (b"", AMQP_HEADER, _BASE_OPENED, _BASE_BEGUN, _BASE_ATTACHED)


def cut(head: int, data: bytes) -> Sequence[bytes]:
    """The pieces that the first byte of an input asks for."""
    size = PIECES[head & 7]
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def check_output(engine: Connection) -> bytes:
    """Take what an engine says, which must be headers and frames that decode and keep to the peer's limits."""
    data = b"".join(engine.pending_output())
    for piece in split(data):
        if piece[:4] == b"AMQP":
            continue
        assert int.from_bytes(piece[:4], "big") == len(piece), "an incomplete frame"
        if len(piece) > 8:
            decode_composite(piece, 8, len(piece))
    return data


class Application:
    """Accepts every link, grants, settles, sends: a careless user of the engine, within reason."""

    def __init__(self) -> None:
        self.engine: Connection
        self.heard: list[tuple[Any, ...]] = []
        self.is_closed = False
        self._answers = cycle(STATES)
        self._sends = 60
        self._links = 0

    def on_opened(self, connection: Connection, remote: Open) -> None:
        self.heard.append(("opened", remote.container_id))
        if not connection.is_open_sent:
            connection.open()

    def on_begun(self, session: Session) -> None:
        self.heard.append(("begun", session.channel))

    def on_attach(self, link: Link, attach: Attach) -> None:
        self.heard.append(("attach", attach.name))
        self._links += 1
        if self._links % 7 == 6:
            link.refuse("amqp:not-found", "nowhere")
            return
        # Every third link is told to keep messages small, so that they are measured.
        limit = 1000 if self._links % 3 == 2 else None
        link.accept(Ear(self, link), source=attach.source, target=attach.target, max_message_size=limit)
        if isinstance(link, ReceivingLink):
            link.passes_from = PASSES_FROM if self._links % 2 else 0
            link.grant(5)

    def on_attached(self, link: Link) -> None:
        self.heard.append(("attached", link.name))
        if isinstance(link, ReceivingLink):
            link.grant(5)

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.heard.append(("detached", link.name, closed))
        if isinstance(link, SendingLink):
            link.take_unsettled()

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        self.heard.append(("ended", session.channel))

    def on_closed(self, error: AmqpError | None) -> None:
        assert not self.is_closed, "an end that is told twice"
        self.is_closed = True
        self.heard.append(("closed", error and error.condition))

    def on_transactional_message(
        self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool, message_format: int, txn_id: bytes
    ) -> None:
        self.heard.append(("posted", payload, txn_id))
        link.settle(delivery_id, Released())

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        self.heard.append(("retired", delivery_id))
        delivery = session.unsettled.pop(delivery_id, None)
        if delivery is not None and not settled:
            session.settle_sent(delivery_id, Released())

    def answer(self) -> Any:
        """The next outcome to tell."""
        return next(self._answers)

    def may_send(self) -> bool:
        """Whether there is anything left to send."""
        self._sends -= 1
        return self._sends >= 0


class Handed:
    """A message on its way."""

    __slots__ = ("sink",)

    def __init__(self, sink: Ear) -> None:
        self.sink = sink


class LargeMessage:
    """Takes a message while it comes."""

    is_kept = False

    def __init__(self, application: Application, link: ReceivingLink, delivery_id: int) -> None:
        self._application = application
        self._link = link
        self._delivery_id = delivery_id

    def write(self, part: bytes | memoryview) -> None:
        self._application.heard.append(("part", bytes(part)))

    def end(self, part: bytes | memoryview, settled: bool) -> None:
        self._application.heard.append(("end", bytes(part), settled))
        if not settled:
            self._link.settle(self._delivery_id, self._application.answer())

    def abort(self) -> None:
        self._application.heard.append(("aborted",))


class Ear:
    """Hears of one link."""

    def __init__(self, application: Application, link: Link) -> None:
        self._application = application
        self._link = link
        self._is_blocked = False

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        self._application.heard.append(("message", payload, delivery_id, settled, message_format))
        link = self._link
        assert isinstance(link, ReceivingLink)
        assert link.received <= link.highest, "more than was granted"
        if not settled:
            link.settle(delivery_id, self._application.answer())

    on_crossed = on_message

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeMessage:
        self._application.heard.append(("large", len(payload) >= PASSES_FROM, delivery_id, settled))
        assert isinstance(self._link, ReceivingLink)
        return LargeMessage(self._application, self._link, delivery_id)

    def on_exhausted(self) -> None:
        assert isinstance(self._link, ReceivingLink)
        self._link.grant(3)

    def on_given_up(self, credit: int) -> None:
        self._application.heard.append(("given up", credit))

    def on_available(self, available: int) -> None:
        self._application.heard.append(("available", available))

    def on_credit(self, gained: int, drain: bool) -> None:
        self._application.heard.append(("credit", gained, drain))
        self._send()
        if drain and isinstance(self._link, SendingLink):
            self._link.drained()

    def count_available(self) -> int | None:
        return None

    def on_blocked(self, blocked: bool) -> None:
        self._is_blocked = blocked
        if not blocked:
            self._send()

    def on_outcome(self, delivery: Handed, state: Any) -> None:
        assert delivery.sink is self
        self._application.heard.append(("outcome", type(state).__name__))

    def confirm(self, done: Callable[[], None]) -> None:
        done()

    def _send(self) -> None:
        link = self._link
        assert isinstance(link, SendingLink)
        for size in (10, 600, 0):
            if link.credit > 0 and link.is_open and not self._is_blocked and self._application.may_send():
                link.send(Handed(self), bytes(size), size == 0)


def _server(**options: Any) -> tuple[Connection, Application]:
    application = Application()
    sasl = SaslServer(["ANONYMOUS", "PLAIN"], lambda *_: True, is_optional=True)
    application.engine = Connection(
        application, container_id="server", is_server=True, now=0.0, sasl=sasl, max_frame_size=MAX_FRAME, **options
    )
    return application.engine, application


def converse(engine: Connection, pieces: Sequence[bytes], turn: int = 64) -> bytes:
    """Feed pieces, see that little is held, that all that is said makes sense, and that the end is in order.

    Args:
        engine: who is fed.
        pieces: with what.
        turn: after how many of them what is said is taken, besides at the end.
    """
    said = b""
    fed = 0
    for number, piece in enumerate(pieces):
        engine.receive(piece, 0.0)
        fed += len(piece)
        if number % turn == turn - 1 or number == len(pieces) - 1:
            said += check_output(engine)
    if is_measured():
        held = held_bytes(engine, engine.handler)
        if held > HELD_AT_ALL + HELD_PER_BYTE * fed:
            raise BrokenBoundError(f"an engine holds {held} bytes after {fed} bytes of input")
    engine.handle_deadline(1000.0)
    said += check_output(engine)
    engine.lost()
    assert engine.closed
    assert engine.next_deadline() is None
    return said


def _without_words(frame: bytes) -> bytes:
    """A frame without what an error says to people, which may depend on where input was cut."""
    if len(frame) <= 8 or frame[:4] == b"AMQP":
        return frame
    found, _ = decode_composite(frame, 8, len(frame))
    if isinstance(found, Detach | End | Close) and found.error is not None:
        return f"{type(found).__name__} {found.error.condition}".encode()
    return frame


def run_framing(data: bytes) -> None:
    """However a stream is cut, it means the same."""
    if not data:
        return
    start = STARTS[1 + (data[0] >> 3) % 4]
    results = []
    for head in {0, data[0] & 7 or 1}:
        engine, application = _server()
        engine.receive(start, 0.0)
        engine.pending_output()
        said = converse(engine, cut(head, data[1:]), len(data))
        results.append([*application.heard, *map(_without_words, split(said))])
    for whole, pieces in zip_longest(*results):
        assert whole == pieces, f"cut, a stream means something else: {whole!r:.200} and {pieces!r:.200}"


def run_server(data: bytes) -> None:
    """A server's engine never raises, holds little, and ends in order."""
    if not data:
        return
    engine, application = _server()
    engine.receive(STARTS[(data[0] >> 3) % 5], 0.0)
    converse(engine, cut(data[0], data[1:]))
    assert application.is_closed


def run_client(data: bytes) -> None:
    """A client's engine never raises, holds little, and ends in order."""
    if not data:
        return
    application = Application()
    sasl = SaslClient([Anonymous()]) if data[0] & 8 else None
    engine = Connection(
        application, container_id="client", is_server=False, now=0.0, sasl=sasl, max_frame_size=MAX_FRAME
    )
    application.engine = engine
    if data[0] & 16 and sasl is None:
        engine.receive(hello(Open("server", max_frame_size=600)), 0.0)
        session = engine.begin()
        for link in (
            session.attach_sender("a", None, LinkTarget("queue")),
            session.attach_receiver("b", None, Source("queue")),
        ):
            link.sink = Ear(application, link)
        engine.pending_output()
        if data[0] & 32:
            engine.receive(
                b"".join(
                    frame_of(item)
                    for item in (
                        Begin(0, 0, 100, 100),
                        Attach("a", 0, True, source=Source(), target=LinkTarget("queue")),
                        Attach("b", 1, False, source=Source("queue"), initial_delivery_count=0),
                        Flow(0, 100, 0, 100, 0, 0, 10),
                    )
                ),
                0.0,
            )
    converse(engine, cut(data[0], data[1:]))
    assert application.is_closed


def headed(streams: Sequence[bytes], *heads: int) -> list[bytes]:
    """Each stream behind each of some first bytes."""
    return [bytes((head,)) + stream for head in heads for stream in streams]


def _recorded() -> list[bytes]:
    """What two engines say to each other: the client's side and the server's."""
    pair = RecordedPair(client={"max_frame_size": 512}, server={"max_frame_size": 512}, with_sasl=True)
    session = pair.begin()
    sink, link = pair.sender(session, "a")
    link.grant(10)
    back, sender = pair.receiver(session, "b", rcv_settle_mode=1)
    back.grant(10)
    pair.sink_of(back).answer = Modified(True)
    pair.pump()
    for size in (0, 10, 1500):
        sink.send(b"x" * size)
        sender.send(b"y" * size)
    pair.pump()
    for item in pair.sink_of(link).received:
        link.settle(item.delivery_id, Rejected(AmqpError("acme:bad", "why")))
    back.grant(0)
    assert sink.link is not None
    sink.link.detach()
    pair.pump()
    session.end(AmqpError("acme:end"))
    pair.client.close()
    pair.pump()
    return [bytes(pair.to_server.carried), bytes(pair.to_client.carried)]


def _seeds_server() -> Sequence[bytes]:
    frames = [frame_of(item, 0, b"payload" if isinstance(item, Transfer) else b"") for item in PERFORMATIVES]
    return [*headed([_recorded()[0]], 0, 1), *headed(frames, 16, 24, 32)]


def _seeds_client() -> Sequence[bytes]:
    frames = [frame_of(item, 0, b"payload" if isinstance(item, Transfer) else b"") for item in PERFORMATIVES]
    return [*headed([_recorded()[1]], 8, 9), *headed(frames, 0, 16, 48)]


FRAMING_TARGET = Target("framing", run_framing, _seeds_server, 600, mutate_conversation)
SERVER_TARGET = Target("server", run_server, _seeds_server, 4096, mutate_conversation)
CLIENT_TARGET = Target("client", run_client, _seeds_client, 4096, mutate_conversation)
