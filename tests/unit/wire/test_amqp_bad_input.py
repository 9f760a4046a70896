"""Nonsense on the wire: whatever comes, an engine closes in order and never raises."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Symbol
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.amqp.sasl import SaslServer
from tests.support.chance import examples
from tests.support.raw_peer import RawPeer

CONDITIONS = frozenset(
    {
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:resource-limit-exceeded",
        "amqp:unauthorized-access",
        "amqp:connection:framing-error",
    }
)


def fresh() -> tuple[Connection, Recorder]:
    """A server that takes SASL or none, and receives and answers whatever it is asked to."""
    handler = Recorder()
    sasl = SaslServer(["ANONYMOUS"], lambda *_: True, is_optional=True)
    return Connection(handler, container_id="s", is_server=True, now=0.0, sasl=sasl), handler


def serve(engine: Connection, handler: Recorder, data: bytes) -> None:
    """What a careless application does: grants on every link and accepts every delivery."""
    engine.receive(data, 0.0)
    for link in handler.links:
        if link.is_sender or not link.is_open:
            continue
        link.sink.answer = Accepted()
        link.grant(5)  # type: ignore[attr-defined]


def settle_in_order(engine: Connection, handler: Recorder, data: bytes) -> None:
    """Feed bytes; then whatever the engine says must be frames that it may say, close last."""
    serve(engine, handler, data)
    peer = RawPeer(engine)
    frames = peer.hear()
    closes = [frame for frame in frames if isinstance(frame.performative, Close)]
    assert len(closes) <= 1
    for frame in closes:
        assert frame is frames[-1]
        assert isinstance(frame.performative, Close)
        assert frame.performative.error is None or frame.performative.error.condition in CONDITIONS
    if engine.closed:
        assert handler.diary[-1][0] == "closed"
    else:
        engine.lost()
        assert handler.diary[-1] == ("closed", None)
    assert len(handler.calls("closed")) == 1
    assert len(handler.calls("ended")) >= len(handler.calls("begun"))
    assert engine.next_deadline() is None


def hello(*performatives: Composite) -> bytes:
    return AMQP_HEADER + b"".join(amqp_frame(0, item) for item in performatives)


OPENED = hello(Open("raw"))
BEGUN = hello(Open("raw"), Begin(incoming_window=100, outgoing_window=100))
ATTACHED = BEGUN + b"".join(
    amqp_frame(0, item)
    for item in (
        Attach("in", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0),
        Attach("out", 1, True, source=Source("q"), target=Target()),
        Flow(0, 100, 0, 100, 1, 0, 10),
    )
)


# Random bytes


@settings(max_examples=examples(120))
@given(st.sampled_from([b"", AMQP_HEADER, SASL_HEADER, OPENED, BEGUN, ATTACHED]), st.binary(max_size=200))
def test_random_bytes_close_in_order(start: bytes, data: bytes) -> None:
    engine, handler = fresh()
    serve(engine, handler, start)
    settle_in_order(engine, handler, data)


@settings(max_examples=examples(120))
@given(
    st.sampled_from([AMQP_HEADER, OPENED, BEGUN, ATTACHED]),
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([0, 0, 0, 1]),
            st.integers(0, 2),
            st.integers(0, 0x50),
            st.binary(max_size=30),
        ),
        max_size=5,
    ),
)
def test_frames_of_random_bytes_close_in_order(start: bytes, frames: list[tuple[int, int, int, int, bytes]]) -> None:
    data = b""
    for offset, kind, channel, code, body in frames:
        content = b"\x00\x53" + bytes((code,)) + body
        data += struct.pack(">IBBH", 8 + len(content), offset, kind, channel) + content
    engine, handler = fresh()
    serve(engine, handler, start)
    settle_in_order(engine, handler, data)


# Valid frames in any order

texts = st.sampled_from(["a", "b", ""])
handles = st.integers(0, 2)
numbers = st.integers(0, 3) | st.sampled_from([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
modes = st.integers(0, 3)
errors = st.none() | st.just(AmqpError("acme:error", "x" * 300, {Symbol("k"): [1]}))
states = st.sampled_from([None, Accepted(), Released(), Rejected(), Modified(True), Received(0, 0)])
sources = st.none() | st.builds(
    Source, st.sampled_from(["q", None, 5]), dynamic=st.booleans(), default_outcome=states
)
targets = st.none() | st.just(Coordinator()) | st.builds(Target, st.sampled_from(["q", None, 5]))
anything = st.one_of(
    st.builds(Open, texts, max_frame_size=st.sampled_from([512, 0xFFFFFFFF]), channel_max=st.integers(0, 3)),
    st.builds(Begin, st.none() | st.integers(0, 2), numbers, numbers, numbers, numbers),
    st.builds(
        Attach,
        texts,
        handles | numbers,
        st.booleans(),
        modes,
        modes,
        sources,
        targets,
        initial_delivery_count=st.none() | numbers,
    ),
    st.builds(
        Flow,
        st.none() | numbers,
        numbers,
        numbers,
        numbers,
        st.none() | handles,
        numbers,
        numbers,
        numbers,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        Transfer,
        handles,
        st.none() | numbers,
        st.just(b"t"),
        st.just(0),
        st.booleans(),
        st.booleans(),
        aborted=st.sampled_from([False, False, True]),
    ),
    st.builds(Disposition, st.booleans(), numbers, st.none() | numbers, st.booleans(), states),
    st.builds(Detach, handles, st.booleans(), errors),
    st.builds(End, errors),
    st.just(SaslInit("ANONYMOUS")),
)


@settings(max_examples=examples(160))
@given(
    st.sampled_from([AMQP_HEADER, OPENED, BEGUN, ATTACHED]),
    st.lists(st.tuples(st.integers(0, 1), anything), max_size=12),
)
def test_valid_frames_in_any_order_close_in_order(start: bytes, script: list[tuple[int, Composite]]) -> None:
    engine, handler = fresh()
    serve(engine, handler, start)
    for channel, performative in script:
        serve(engine, handler, amqp_frame(channel, performative, 3) + b"xyz")
        for link in handler.links:
            if link.is_sender and link.is_open and link.credit > 0:  # type: ignore[attr-defined]
                link.sink.send(b"y" * 600)
    settle_in_order(engine, handler, b"")


# Conversations that were changed, or cut into pieces


def conversation() -> tuple[bytes, bytes]:
    """A whole conversation with everything in it: the client's bytes and the server's."""
    pair = RecordedPair(client={"max_frame_size": 512}, server={"max_frame_size": 512}, with_sasl=True)
    session = pair.begin()
    sink, link = pair.sender(session, "a")
    link.grant(10)
    back, sender = pair.receiver(session, "b", rcv_settle_mode=1)
    back.grant(10)
    pair.sink_of(back).answer = Modified(True, False, {Symbol("k"): 1})
    pair.pump()
    for size in (0, 10, 1500):
        sink.send(b"x" * size)
        sender.send(b"y" * size, message_format=1)
    pair.pump()
    for item in pair.sink_of(link).received:
        link.settle(item.delivery_id, Rejected(AmqpError("acme:bad", "why")))
    back.grant(0)
    pair.pump()
    assert sink.link is not None
    sink.link.detach()
    pair.pump()
    session.end(AmqpError("acme:end"))
    pair.begin()
    pair.client.close()
    pair.pump()
    assert pair.server.closed
    return bytes(pair.to_server.carried), bytes(pair.to_client.carried)


CLIENT_BYTES, SERVER_BYTES = conversation()


class Replay:
    """A server that behaves the same way every time, given the same bytes in whatever pieces."""

    def __init__(self) -> None:
        self.handler = Recorder()
        sasl = SaslServer(["ANONYMOUS"], lambda *_: True, is_optional=False)
        self.engine = Connection(
            self.handler, container_id="server", is_server=True, now=0.0, sasl=sasl, max_frame_size=512
        )

    def run(self, chunks: list[bytes]) -> tuple[list[tuple[str, Any]], list[list[Any]], Any]:
        """Feed all chunks; what the handler and the sinks were told, and the last word."""
        self.handler.on_wish = self._accept
        for chunk in chunks:
            self.engine.receive(chunk, 0.0)
        return (
            self.handler.diary,
            [[*link.sink.received, *link.sink.credits, *link.sink.states] for link in self.handler.links],
            self.engine.error,
        )

    def _accept(self, link: Any, attach: Attach) -> None:
        self.handler.on_wish = None
        self.handler.links.remove(link)
        Recorder.on_attach(self.handler, link, attach)
        self.handler.diary.pop()
        self.handler.on_wish = self._accept
        if not link.is_sender:
            link.grant(1000)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def test_a_conversation_in_single_bytes_is_the_same_as_in_one_piece() -> None:
    whole = Replay().run([CLIENT_BYTES])
    assert whole[0][-1] == ("closed", None)
    assert [len(item) for item in whole[1]] == [3, 2]
    assert Replay().run([CLIENT_BYTES[at : at + 1] for at in range(len(CLIENT_BYTES))]) == whole


@settings(max_examples=examples(150))
@given(st.lists(st.integers(0, 100_000), max_size=20))
def test_a_conversation_in_any_pieces_is_the_same_as_in_one(cuts: list[int]) -> None:
    assert Replay().run(pieces(CLIENT_BYTES, cuts)) == Replay().run([CLIENT_BYTES])


@pytest.mark.parametrize("size", [1, 2, 7, 8, 11, 511])
def test_two_engines_converse_in_pieces_of_any_size(size: int) -> None:
    pair = RecordedPair(with_sasl=True)
    pair.to_client.chunk_bytes = pair.to_server.chunk_bytes = size
    sink, link = pair.sender(pair.begin())
    pair.sink_of(link).answer = Accepted()
    link.grant(3)
    pair.pump()
    for length in (0, 5, 3000):
        sink.send(b"z" * length)
    pair.pump()
    pair.client.close()
    pair.pump()
    assert sink.states == [Accepted()] * 3
    assert pair.server_diary.calls("closed") == [None]


changes = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "insert", "repeat"]), st.integers(0, 100_000), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def changed(data: bytes, script: list[tuple[str, int, int]]) -> bytes:
    out = bytearray(data)
    for what, where, value in script:
        at = where % len(out)
        if what == "set":
            out[at] = value
        elif what == "cut":
            del out[at : at + value % 16 + 1]
        elif what == "insert":
            out[at:at] = bytes((value,)) * (value % 5 + 1)
        else:
            out[at:at] = out[at : at + value]
        if not out:
            break
    return bytes(out)


@settings(max_examples=examples(160))
@given(changes, st.lists(st.integers(0, 100_000), max_size=4))
def test_a_changed_conversation_closes_the_server_in_order(
    script: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    engine, handler = fresh()
    data = changed(CLIENT_BYTES, script)
    for piece in pieces(data, cuts) if data else []:
        serve(engine, handler, piece)
    settle_in_order(engine, handler, b"")


@settings(max_examples=examples(120))
@given(changes, st.lists(st.integers(0, 100_000), max_size=4))
def test_a_changed_conversation_closes_the_client_in_order(
    script: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    pair = RecordedPair(client={"max_frame_size": 512}, with_sasl=True)
    pair.client.pending_output()
    data = changed(SERVER_BYTES, script)
    for number, piece in enumerate(pieces(data, cuts) if data else []):
        pair.client.receive(piece, 0.0)
        if number == 1 and pair.client.is_open_sent and not pair.client.closed:
            session = pair.client.begin()
            session.attach_sender("a", RecordingSink(), Target("q"))
            session.attach_receiver("b", RecordingSink(), Source("q"))
    if not pair.client.closed:
        pair.client.lost()
    assert len(pair.client_diary.calls("closed")) == 1
