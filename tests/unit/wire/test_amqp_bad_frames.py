"""Broken frames, each with the condition that it closes with."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from enmasse.message.codec import encode
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError
from enmasse.message.sections import header_of
from enmasse.message.types import Described, UInt, ULong
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.connection_output import MAX_FRAME_SIZE
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Close, Composite, Flow, Open, SaslInit, Source, Target
from enmasse.wire.amqp.sasl import SaslServer
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


def breach(start: bytes, data: bytes) -> AmqpError:
    """The error that the engine closes with, told to the peer as well."""
    engine, handler = fresh()
    engine.receive(start, 0.0)
    peer = RawPeer(engine)
    peer.hear()
    engine.receive(data, 0.0)
    assert engine.closed
    assert handler.error is not None
    assert peer.hear_one(Close).error == handler.error
    assert len(handler.error.description or "") < 250
    return handler.error


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0) + b"\x00\x53\x14\xc0", "amqp:connection:framing-error"),
        (struct.pack(">IBBH", MAX_FRAME_SIZE + 1, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 0, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 7, 2, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 7, 2, 0, 0) + bytes(20), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 1, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 3, 0, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 12, 255, 0, 0) + bytes(4), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 2, 1, 0), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 8, 2, 7, 0), "amqp:connection:framing-error"),
        (sasl_frame(SaslInit("ANONYMOUS")), "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 9, 2, 0, 0) + b"\x40", "amqp:decode-error"),
        (struct.pack(">IBBH", 10, 2, 0, 0) + b"\x00\x53", "amqp:decode-error"),
        (struct.pack(">IBBH", 11, 2, 0, 0) + b"\x00\x53\x14", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x14\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x15\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x13\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x12\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x99\x45", "amqp:decode-error"),
        (struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x24\x45", "amqp:connection:framing-error"),
        (amqp_frame(0, SaslInit("ANONYMOUS")), "amqp:connection:framing-error"),
    ],
)
def test_broken_frames_close_with_their_condition(frame: bytes, condition: str) -> None:
    assert breach(BEGUN, frame).condition == condition


def test_a_list_nested_ten_thousand_deep_is_a_decode_error() -> None:
    depth = 10_000
    nest = b"".join(b"\xd0" + struct.pack(">II", 9 * (depth - level) - 4, 1) for level in range(depth)) + b"\x45"
    body = b"\x00\x53\x10" + nest
    error = breach(AMQP_HEADER, struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
    assert error.condition == "amqp:decode-error"
    assert "levels deep" in (error.description or "")


@pytest.mark.parametrize("code", [0x13, 0x14, 0x15])
def test_deep_nesting_in_hot_frames_is_a_decode_error(code: int) -> None:
    depth = 10_000
    nest = b"".join(b"\xd0" + struct.pack(">II", 9 * (depth - level) - 4, 1) for level in range(depth)) + b"\x45"
    fields = b"\x43" * 7 + nest
    body = b"\x00\x53" + bytes((code,)) + b"\xd0" + struct.pack(">II", len(fields) + 4, 8) + fields
    assert breach(ATTACHED, struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body).condition == "amqp:decode-error"


def test_a_huge_frame_is_refused_by_its_size_alone() -> None:
    engine, handler = fresh()
    engine.receive(OPENED + struct.pack(">IB", 0xFFFFFFFF, 2), 0.0)
    assert not engine.closed, "the head is not complete"
    engine.receive(b"\x00\x00\x00", 0.0)
    assert handler.calls("closed") == ["amqp:connection:framing-error"]


def test_a_client_with_small_frames_closes_on_a_larger_one() -> None:
    pair = RecordedPair(client={"max_frame_size": 512})
    pair.begin()
    pair.server.put(amqp_frame(0, Open("x" * 600)))
    pair.pump()
    assert pair.client_diary.calls("closed") == ["amqp:connection:framing-error"]


@pytest.mark.parametrize("count", [1, 2, 3, 50])
@pytest.mark.parametrize("extra", [b"", b"\x00", b"\x00\x00\x00\x08\x02\x00\x00"])
def test_heartbeats_and_extended_headers_are_let_go(count: int, extra: bytes) -> None:
    engine, handler = fresh()
    extended = struct.pack(">IBBH", 12, 3, 0, 0) + b"more"
    engine.receive(OPENED + HEARTBEAT * count + extended * count + HEARTBEAT + extra, 0.0)
    assert not engine.closed
    assert handler.calls("opened") == ["raw"]


def test_frames_behind_a_close_are_let_go() -> None:
    engine, handler = fresh()
    engine.receive(BEGUN + amqp_frame(0, Close()) + b"\xff" * 100, 0.0)
    assert handler.calls("closed") == [None]


def test_a_peer_that_breaks_the_rules_while_closing_is_let_go() -> None:
    engine, handler = fresh()
    engine.receive(BEGUN, 0.0)
    engine.close()
    engine.receive(b"\xff" * 100, 0.0)
    frames = RawPeer(engine).hear()
    assert [type(frame.performative) for frame in frames].count(Close) == 1
    assert engine.closed
    assert len(handler.calls("closed")) == 1


def test_chunks_out_of_order_close_in_order() -> None:
    pair = RecordedPair()
    pair.begin()
    pair.to_server.chunk_bytes = 5
    pair.client.begin().attach_sender("a", pair.client_diary, Target("q"))
    pair.to_server.collect()
    pair.to_server.reorder(list(reversed(range(len(pair.to_server.waiting)))))
    pair.pump()
    assert pair.server.closed
    assert pair.server_diary.calls("closed")[0] in CONDITIONS
    assert pair.client.closed


@pytest.mark.parametrize(
    "fields",
    [
        [1],
        ["x"],
        [None, -1],
        [None, UInt(4)],
        [None, True],
        [None, None, -1],
        [None, None, ULong(5)],
        [None, None, None, 1],
        [None, None, None, None, -1],
        [None, None, None, None, ULong(1 << 40)],
        [None, None, None, None, UInt(1), None],
    ],
)
def test_a_header_of_wrong_types_is_a_decode_error(fields: list[Any]) -> None:
    """What is read from a header must fit when it is written again."""
    with pytest.raises(DecodeError):
        header_of(encode(Described(ULong(0x70), fields)) + b"\x00\x53\x75\xa0\x00")
