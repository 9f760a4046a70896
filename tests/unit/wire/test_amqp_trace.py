"""What an observer sees of a connection: every frame, no secret, and a line for each."""

from __future__ import annotations

import random

import pytest

from enmasse.message.outcomes import AmqpError
from enmasse.message.types import Described, Symbol
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Transfer,
)
from enmasse.wire.amqp.trace import MAX_OBSERVED_BYTES, Splitter, describe, mask, shorten

SECRET = b"correct horse battery staple"

UNITS = [
    SASL_HEADER,
    sasl_frame(SaslMechanisms(("PLAIN",))),
    AMQP_HEADER,
    amqp_frame(0, Open("c")),
    HEARTBEAT,
    amqp_frame(7, Transfer(0, 1, b"t", 0), 3000) + bytes(3000),
    amqp_frame(0, Close()),
]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 64, 100_000])
def test_frames_are_found_however_they_come(size: int) -> None:
    data = b"".join(UNITS)
    splitter = Splitter()
    found = [unit for at in range(0, len(data), size) for unit in splitter.feed(data[at : at + size])]
    assert found == UNITS


def test_frames_are_found_from_the_middle_of_one_on() -> None:
    data = b"".join(UNITS)
    for _ in range(20):
        cut = random.randrange(len(data))
        first = Splitter()
        before = first.feed(data[:cut])
        begun = data[sum(map(len, before)) : cut]
        assert before + Splitter(begun).feed(data[cut:]) == UNITS


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\n",
        (7).to_bytes(4, "big") + b"\x02\x00\x00\x00",
        (20).to_bytes(4, "big") + b"\x06\x00\x00\x00",
        (20).to_bytes(4, "big") + b"\x01\x00\x00\x00",
        (MAX_OBSERVED_BYTES + 1).to_bytes(4, "big") + b"\x02\x00\x00\x00",
    ],
)
def test_what_is_no_frame_is_told_once_and_never_shown(bad: bytes) -> None:
    splitter = Splitter()
    assert splitter.feed(HEARTBEAT + bad + SECRET) == [HEARTBEAT, b""]
    assert splitter.is_lost
    assert splitter.feed(HEARTBEAT) == []
    assert describe(b"") == "no frames from here on: what came cannot be split into frames"


@pytest.mark.parametrize(
    "frame",
    [
        SaslInit("PLAIN", b"\0user\0" + SECRET, "host"),
        SaslChallenge(SECRET),
        SaslResponse(SECRET),
        SaslOutcome(0, SECRET),
    ],
)
def test_secrets_are_masked_and_their_lengths_stay(frame: Composite) -> None:
    told = sasl_frame(frame)
    masked = mask(told)
    assert SECRET in told
    assert SECRET not in masked
    assert len(masked) == len(told)
    assert "masked" in describe(masked)
    assert SECRET.decode() not in describe(told)  # not even where somebody forgot to mask


def test_a_sasl_frame_that_cannot_be_read_is_masked_whole() -> None:
    data = b"\x00\x53\x41" + SECRET
    frame = (8 + len(data)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + data
    assert mask(frame) == frame[:8] + b"*" * len(data)
    assert "unreadable frame of" in describe(frame)


def test_frames_of_amqp_and_what_is_harmless_in_sasl_stay_as_they_are() -> None:
    for unit in UNITS:
        assert mask(unit) == unit


def test_only_the_payload_of_a_transfer_is_shortened() -> None:
    transfer = UNITS[5]
    assert len(shorten(transfer, 16)) == len(transfer) - 3000 + 16
    assert describe(shorten(transfer, 0)) == describe(transfer)
    for unit in UNITS[:5]:
        assert shorten(unit, 0) == unit


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (AMQP_HEADER, "header AMQP 1.0.0"),
        (SASL_HEADER, "header SASL 1.0.0"),
        (HEARTBEAT, "0 heartbeat"),
        (
            amqp_frame(3, Attach("l", 4, True, source=Source("q", filter={Symbol("f"): Described(Symbol("d"), 1)}))),
            "3 attach name='l' handle=4 role=receiver source=source(address='q' filter={'f': @'d' 1})",
        ),
        (amqp_frame(0, Begin(None, 0, 10, 20)), "0 begin next-outgoing-id=0 incoming-window=10 outgoing-window=20"),
        (
            amqp_frame(1, Transfer(0, 1, b"\xab", 0), 4) + b"abcd",
            "1 transfer handle=0 delivery-id=1 delivery-tag=0xab message-format=0 payload 4 B [61 62 ...]",
        ),
        (
            amqp_frame(0, Close(AmqpError("amqp:not-found", "no\nsuch"))),
            "0 close error=error(condition='amqp:not-found' description='no\\nsuch')",
        ),
        (
            sasl_frame(SaslMechanisms(("PLAIN", "ANONYMOUS"))),
            "sasl sasl-mechanisms mechanisms=['PLAIN', 'ANONYMOUS']",
        ),
    ],
)
def test_a_frame_is_one_line(frame: bytes, line: str) -> None:
    assert describe(frame, 2) == line


def test_long_values_are_cut() -> None:
    line = describe(amqp_frame(0, Open("c" * 5000)))
    assert len(line) < 300
    assert line.endswith("...")


def test_a_connection_tells_its_observer_all_bytes_of_both_directions() -> None:
    node = Connection(Recorder(), container_id="n", is_server=True, now=0.0)
    client = Connection(Recorder(), container_id="c", is_server=False, now=0.0)
    splitters = Splitter(), Splitter()
    heard: list[tuple[bool, str]] = []
    node.trace = lambda out, data: heard.extend((out, describe(frame)) for frame in splitters[out].feed(data))
    pair = EnginePair(client, node)
    pair.pump()
    client.begin()
    pair.pump()
    names = [(out, line.split(" ")[1]) for out, line in heard]
    assert [name for out, name in names if not out] == ["AMQP", "open", "begin"]
    assert [name for out, name in names if out] == ["AMQP", "open", "begin"]
    node.trace = None
    client.close()
    pair.pump()
    assert len(heard) == len(names)
