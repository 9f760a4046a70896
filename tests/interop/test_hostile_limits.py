"""Peers that go beyond a limit or out of order: each hears the condition that says so, and costs only itself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    Source,
    Target,
    Transfer,
)
from tests.interop.conftest import Addresses
from tests.interop.hostile import MEGABYTE, Bystander
from tests.support.node_process import NodeProcess
from tests.support.stranger import Stranger, condition_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _unharmed(bystander: Bystander) -> Iterator[None]:
    """The bystander's round trips go on in time during and after each test."""
    yield
    bystander.check()


Make = Callable[[], Stranger]


BEGIN = Begin(incoming_window=100, outgoing_window=100)


def attach_of(handle: int, address: str, name: str | None = None) -> Attach:
    return Attach(name or f"r{handle}", handle, True, source=Source(address), target=Target())


# Numbers


@pytest.mark.limit("sessions", "amqp")
def test_a_channel_above_the_channel_max_ends_the_connection(stranger: Make) -> None:
    peer = stranger()
    channel_max = peer.open().channel_max
    peer.begin(channel_max)
    peer.say(BEGIN, channel=channel_max + 1)
    assert condition_of(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()


def test_ten_thousand_sessions_cost_little(stranger: Make, node: NodeProcess) -> None:
    before = node.memory_bytes
    sessions = 0
    while sessions < 10_000:
        peer = stranger()
        channels = range(peer.open().channel_max + 1)
        peer.say_bytes(b"".join(amqp_frame(channel, BEGIN) for channel in channels))
        for _ in channels:
            peer.hear(Begin)
            sessions += 1
    assert node.memory_bytes < before + 64 * MEGABYTE


def test_a_handle_above_the_handle_max_ends_the_connection(stranger: Make, addresses: Addresses) -> None:
    peer = stranger()
    address = addresses.declare("queue")
    peer.open()
    handle_max = peer.begin().handle_max
    peer.attach_receiver(address, handle_max)
    peer.say(attach_of(handle_max + 1, address))
    assert condition_of(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()


def test_more_handles_than_the_peer_allows_itself_end_the_session(stranger: Make, addresses: Addresses) -> None:
    """It says that it takes handles up to 0, and attaches two links, for which the node needs two."""
    peer = stranger()
    address = addresses.declare("queue")
    peer.open()
    peer.say(Begin(incoming_window=1, outgoing_window=1, handle_max=0))
    peer.say(attach_of(0, address), attach_of(1, address))
    assert condition_of(peer.hear(End)) == "amqp:resource-limit-exceeded"


def test_ten_thousand_links_cost_little_and_go(stranger: Make, node: NodeProcess, addresses: Addresses) -> None:
    address = addresses.declare("anycast")
    before = node.memory_bytes
    peer = stranger()
    peer.open()
    for channel, count in ((0, 4000), (1, 4000), (2, 2000)):
        peer.begin(channel)
        for first in range(0, count, 500):
            links = (attach_of(n, address, f"{channel}-{n}") for n in range(first, first + 500))
            peer.say(*links, channel=channel)
            for _ in range(500):
                assert peer.hear(Attach).source is not None
    assert addresses.read(address)["receivers"] == 10_000
    assert node.memory_bytes < before + 10_000 * 12 * 1024
    peer.socket.close()
    for _ in range(3000):
        if not addresses.read(address)["receivers"]:
            break
    assert addresses.read(address)["receivers"] == 0


# Order


def after_open(*performatives: Composite) -> bytes:
    return AMQP_HEADER + b"".join(amqp_frame(0, item) for item in (Open("odd"), *performatives))


ODD_ORDERS = {
    "open after open": (after_open(Open("again")), "amqp:not-allowed"),
    "begin before open": (AMQP_HEADER + amqp_frame(0, BEGIN), "amqp:not-allowed"),
    "close before open": (AMQP_HEADER + amqp_frame(0, Close()), "amqp:not-allowed"),
    "transfer before open": (
        AMQP_HEADER + amqp_frame(0, Transfer(0, 0, b"t", 0)),
        "amqp:connection:framing-error",
    ),
    "begin after begin": (after_open(BEGIN, BEGIN), "amqp:not-allowed"),
    "an answer to no begin": (after_open(Begin(7, 0, 1, 1)), "amqp:not-allowed"),
    "attach without a session": (after_open(attach_of(0, "x")), "amqp:connection:framing-error"),
    "flow without a session": (after_open(Flow(0, 1, 0, 1)), "amqp:connection:framing-error"),
    "disposition without a session": (
        after_open(Disposition(True, 0, 1, True)),
        "amqp:connection:framing-error",
    ),
    "end without a session": (after_open(End()), "amqp:connection:framing-error"),
    "end after end": (after_open(BEGIN, End(), End()), "amqp:connection:framing-error"),
    "sasl among frames": (after_open() + sasl_frame(SaslInit("ANONYMOUS")), "amqp:connection:framing-error"),
    "sasl's words in a frame": (after_open(BEGIN, SaslInit("ANONYMOUS")), "amqp:connection:framing-error"),
    "a server's sasl": (after_open(BEGIN, SaslMechanisms(("PLAIN",))), "amqp:connection:framing-error"),
    "a header in the middle": (after_open() + AMQP_HEADER, "amqp:connection:framing-error"),
}


@pytest.mark.parametrize(("said", "condition"), ODD_ORDERS.values(), ids=ODD_ORDERS)
def test_an_odd_order_ends_the_connection(stranger: Make, said: bytes, condition: str) -> None:
    peer = stranger()
    peer.say_bytes(said)
    assert condition_of(peer.hear(Close)) == condition
    assert peer.is_hung_up()


ODD_IN_SESSIONS = {
    "a handle that is in use": ((attach_of(0, "x"), attach_of(0, "x", "other")), "amqp:session:handle-in-use"),
    "a flow for no link": ((Flow(0, 1, 0, 1, 5, 0, 1),), "amqp:session:unattached-handle"),
    "a detach of no link": ((Detach(5),), "amqp:session:unattached-handle"),
    "a disposition backwards": ((Disposition(True, 9, 3, True),), "amqp:invalid-field"),
}


@pytest.mark.parametrize(("said", "condition"), ODD_IN_SESSIONS.values(), ids=ODD_IN_SESSIONS)
def test_an_odd_order_within_a_session_ends_it_only(
    stranger: Make, said: tuple[Composite, ...], condition: str
) -> None:
    peer = stranger()
    peer.open()
    peer.begin(0)
    peer.begin(1)
    peer.say(*said)
    assert condition_of(peer.hear(End)) == condition
    peer.say(Close())
    assert condition_of(peer.hear(Close)) is None


def test_whatever_comes_after_close_is_let_go(stranger: Make) -> None:
    peer = stranger()
    peer.open()
    peer.say(Close(), Open("again"), BEGIN, Close())
    assert condition_of(peer.hear(Close)) is None
    assert peer.is_hung_up()


# Sizes that lie


def sized(code: int, size: int, count: int, content: bytes) -> bytes:
    return bytes((code,)) + struct.pack(">II", size, count) + content


LIES = {
    "a list of 4 GiB": sized(0xD0, 0xFFFFFFFF, 1, b"\x45"),
    "a list of four thousand million nulls": sized(0xD0, 5, 0xFFFFFFFF, b"\x40"),
    "a list that is shorter than its elements": sized(0xD0, 5, 2, b"\xa1\x05hello"),
    "a list that is longer than its elements": sized(0xD0, 14, 1, b"\xa1\x05hello\x40\x40"),
    "a map of four thousand million": sized(0xD1, 6, 0xFFFFFFFE, b"\x40\x40"),
    "a map with half a pair": b"\xc0\x05\x01" + b"\xc1\x02\x01\x40",
    "an array of four thousand million nulls": sized(0xF0, 5, 0xFFFFFFFF, b"\x40"),
    "an array of four thousand million lists": sized(0xF0, 5, 0xFFFFFFFF, b"\x45"),
    "an array of four thousand million numbers": sized(0xF0, 9, 0xFFFFFFFF, b"\x70\0\0\0\1"),
    "a string of 4 GiB": sized(0xD0, 9, 1, b"\xb1\xff\xff\xff\xff"),
    "a size of nothing": b"\xc0\x00\x00",
}


@pytest.mark.parametrize("fields", LIES.values(), ids=LIES)
@pytest.mark.parametrize("code", [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x18])
def test_sizes_and_counts_that_lie_end_the_connection(
    stranger: Make, node: NodeProcess, code: int, fields: bytes
) -> None:
    before = node.memory_bytes
    peer = stranger()
    if code != 0x10:
        peer.open()
        peer.begin()
    else:
        peer.say_bytes(AMQP_HEADER)
    body = bytes((0, 0x53, code)) + fields
    peer.say_bytes(struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
    assert condition_of(peer.hear(Close)) == "amqp:decode-error"
    assert peer.is_hung_up()
    assert node.memory_bytes < before + 16 * MEGABYTE


@pytest.mark.parametrize("excess", [1, 1 << 20, 0xFFFFFFFF])
def test_a_frame_above_the_max_frame_size_ends_the_connection(stranger: Make, excess: int) -> None:
    peer = stranger()
    size = min(0xFFFFFFFF, peer.open().max_frame_size + excess)
    peer.say_bytes(struct.pack(">IBBH", size, 2, 0, 0))
    assert condition_of(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()


@pytest.mark.parametrize(
    "head", [b"\0\0\0\7\2\0\0\0", b"\0\0\0\0\2\0\0\0", b"\0\0\0\x0a\1\0\0\0\0\0", b"\0\0\0\x10\xff\0\0\0" + bytes(8)]
)
def test_frames_whose_head_is_wrong_end_the_connection(stranger: Make, head: bytes) -> None:
    peer = stranger()
    peer.open()
    peer.say_bytes(head)
    assert condition_of(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()
