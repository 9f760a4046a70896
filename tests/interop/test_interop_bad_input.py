"""Clients that break the rules, on raw sockets: each costs only itself, and others are served."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from enmasse.client import blocking
from enmasse.message.outcomes import Accepted, Rejected
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Attach, Close, Detach, Disposition, End, Flow, Source, Target, Transfer
from tests.support.node_process import NodeProcess
from tests.support.stranger import Stranger
from tests.support.stranger import condition_of as condition

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0
MEGABYTE = 1 << 20


@pytest.fixture
def bystander(node: NodeProcess, addresses: Any) -> Iterator[Callable[[], None]]:
    """Sends and receives on a connection that was there before."""
    address = addresses.declare("queue")
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        sender = connection.sender(address)
        receiver = connection.receiver(address)

        def check() -> None:
            assert sender.send(blocking.Message(body="still here")) is blocking.Outcome.ACCEPTED
            delivery = receiver.receive(timeout=TIMEOUT_S)
            assert delivery is not None
            assert delivery.message.body == "still here"
            delivery.accept()

        check()
        yield check
        check()


Make = Callable[[], Stranger]


@pytest.mark.parametrize(
    "garbage",
    [
        os.urandom(1000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"*1\r\n$4\r\nPING\r\n",
        bytes(1 << 20),
        b"AMQP\x00\x00\x09\x01",
    ],
    ids=["random", "http", "tls", "redis", "zeros", "amqp-0-9-1"],
)
def test_garbage_is_answered_with_a_header_and_the_end(stranger: Make, bystander: Any, garbage: bytes) -> None:
    peer = stranger()
    try:
        peer.say_bytes(garbage)
    except (BrokenPipeError, ConnectionResetError):
        assert len(garbage) > 1000, "it hung up in the middle of a megabyte"
        return
    assert peer.is_hung_up()
    assert peer.headers in ([SASL_HEADER], [])


def test_garbage_behind_a_proper_start_closes_with_a_condition(stranger: Make, bystander: Any) -> None:
    peer = stranger()
    peer.open()
    peer.say_bytes(b"\x00\x00\x00\x04garbage!")
    assert condition(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()


def test_a_frame_of_4_gib_is_refused_when_it_is_announced(stranger: Make, bystander: Any, node: NodeProcess) -> None:
    before = node.memory_bytes
    peer = stranger()
    peer.open()
    peer.say_bytes(struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0))
    assert condition(peer.hear(Close)) == "amqp:connection:framing-error"
    assert peer.is_hung_up()
    assert node.memory_bytes < before + 16 * MEGABYTE


def test_lists_nested_ten_thousand_deep_are_refused(stranger: Make, bystander: Any) -> None:
    depth = 10_000
    nest = b"".join(b"\xd0" + struct.pack(">II", 9 * (depth - level) - 4, 1) for level in range(depth)) + b"\x45"
    body = b"\x00\x53\x10" + nest
    peer = stranger()
    peer.say_bytes(AMQP_HEADER + struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
    close = peer.hear(Close)
    assert condition(close) == "amqp:decode-error"
    assert peer.is_hung_up()


def test_a_message_of_deep_nesting_passes_as_bytes(stranger: Make, bystander: Any, addresses: Any) -> None:
    """What a body holds is between sender and receiver: the node never looks inside."""
    depth = 10_000
    nest = b"".join(b"\xd0" + struct.pack(">II", 9 * (depth - level) - 4, 1) for level in range(depth)) + b"\x45"
    payload = b"\x00\x53\x77" + nest
    peer = stranger()
    peer.open()
    peer.begin()
    address = addresses.declare("queue")
    peer.attach_sender(address)
    peer.hear(Flow)
    peer.say(Transfer(0, 0, b"t", 0, False), payload=payload)
    assert peer.hear(Disposition).state == Accepted()
    peer.attach_receiver(address, 1)
    peer.say(Flow(0, 1000, 1, 1000, 1, 0, 1))
    while True:
        frame = peer.hear_frame()
        assert frame is not None
        if isinstance(frame[0], Transfer):
            assert frame[1] == payload
            break


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", os.urandom(100), bytes.fromhex("005370c0ff"), bytes.fromhex("005374d1ffffffff00000002"), bytes(999)],
    ids=["empty", "zero", "random", "header", "properties", "zeros"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["anycast", "queue", "topic", "stream"])
def test_garbage_in_a_message_hurts_nobody_but_its_sender_or_receiver(
    stranger: Make, bystander: Any, addresses: Any, kind: str, payload: bytes
) -> None:
    address = addresses.declare(kind)
    peer = stranger()
    peer.open()
    peer.begin()
    peer.attach_receiver(address, 1)
    peer.say(Flow(0, 1000, 0, 1000, 1, 0, 10))
    peer.attach_sender(address, 0)
    peer.hear(Flow)
    peer.say(Transfer(0, 0, b"t", 0, False), payload=payload)
    while True:
        frame = peer.hear_frame()
        assert frame is not None
        if isinstance(frame[0], Disposition) and isinstance(frame[0].state, Rejected):
            error = frame[0].state.error
            assert error is not None
            assert error.condition == "amqp:decode-error"
            is_message = payload.startswith(b"\0\x53")
            assert kind != "anycast" or is_message, "which hands on what is no message, as it is"
            return
        if isinstance(frame[0], Transfer):
            assert frame[1].endswith(payload)
            return


def test_a_transfer_without_attach_ends_its_session_only(stranger: Make, bystander: Any, addresses: Any) -> None:
    peer = stranger()
    peer.open()
    peer.begin()
    peer.begin(channel=1)
    peer.say(Transfer(7, 0, b"t", 0, False), payload=b"x")
    assert condition(peer.hear(End)) == "amqp:session:unattached-handle"
    peer.say(End())
    assert peer.attach_sender(addresses.declare("queue"), channel=1).target is not None


def test_an_unknown_address_is_refused_and_the_connection_lives(
    stranger: Make, bystander: Any, addresses: Any
) -> None:
    peer = stranger()
    peer.open()
    peer.begin()
    assert peer.attach_sender("nowhere", 0).target is None
    assert condition(peer.hear(Detach)) == "amqp:not-found"
    peer.say(Detach(0, True))
    assert peer.attach_receiver("nowhere", 1).source is None
    assert condition(peer.hear(Detach)) == "amqp:not-found"
    peer.say(Detach(1, True))
    assert peer.attach_sender(addresses.declare("queue"), 0).target is not None


@pytest.mark.parametrize("address", [5, b"bytes", ["list"], {"map": 1}, "", " ", "a" * 100_000, "\0", "$management"])
def test_strange_addresses_are_refused_and_the_connection_lives(
    stranger: Make, bystander: Any, addresses: Any, address: Any
) -> None:
    peer = stranger()
    peer.open()
    peer.begin()
    peer.say(Attach("r", 0, True, source=Source(address), target=Target()))
    assert condition(peer.hear(Detach)) in ("amqp:not-found", "amqp:invalid-field")
    peer.say(Detach(0, True))
    assert peer.attach_sender(addresses.declare("queue"), 1).target is not None


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "topic", "stream"])
def test_sending_beyond_credit_detaches_the_link_only(
    stranger: Make, bystander: Any, addresses: Any, kind: str
) -> None:
    # A stored address grants again while it is sent to, so have it fill up, within the session's window.
    bound = {"maxBytes": 64 << 10}
    address = addresses.declare(kind, **(bound if kind in ("queue", "stream") else {}))
    if kind == "topic":
        addresses.declare("subscription", topic=address, **bound)
    peer = stranger()
    peer.open()
    peer.begin()
    peer.attach_sender(address)
    count = 1 if kind in ("anycast", "multicast") else 15_000
    payload = b"\x00\x53\x75\xa0\x01x"
    peer.say_bytes(b"".join(amqp_frame(0, Transfer(0, n, b"t", 0, True), 6) + payload for n in range(count)))
    while True:
        frame = peer.hear_frame()
        assert frame is not None
        if isinstance(frame[0], Detach):
            assert condition(frame[0]) == "amqp:link:transfer-limit-exceeded"
            break
    peer.say(Detach(0, True))
    assert peer.attach_sender(address, 1).target is not None


# Clients that never read


def test_a_receiver_that_never_reads_costs_a_bounded_amount(
    stranger: Make, bystander: Any, addresses: Any, node: NodeProcess
) -> None:
    for kind in ("anycast", "multicast", "topic", "stream"):
        address = addresses.declare(kind)
        deaf = stranger()
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.open()
        deaf.begin()
        deaf.attach_receiver(address)
        deaf.say(Flow(0, 1 << 30, 0, 1000, 0, 0, 1_000_000))

        before = node.memory_bytes
        sent = 0
        is_direct = kind in ("anycast", "multicast")
        with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
            sender = connection.sender(address)
            deadline = time.monotonic() + 2.0
            while sent < 5 or (sent < 2000 and time.monotonic() < deadline):
                patience_s = 0.3 if sent >= 5 else TIMEOUT_S
                try:
                    sender.send(blocking.Message(body=bytes(100_000)), timeout=patience_s, settled=is_direct)
                except TimeoutError:
                    break
                sent += 1
        assert sent >= 5, kind
        assert node.memory_bytes < before + 64 * MEGABYTE, kind
        bystander()
        deaf.socket.close()


def test_a_client_that_asks_and_never_reads_is_not_read_either(
    stranger: Make, bystander: Any, node: NodeProcess
) -> None:
    deaf = stranger()
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.open()
    deaf.begin()
    before = node.memory_bytes
    # The answer repeats the name, so that the way back is soon full.
    question = amqp_frame(0, Attach("r" * 8000, 0, True, source=Source("nowhere"))) + amqp_frame(0, Detach(0, True))
    questions = question * 20
    deaf.socket.settimeout(1.0)
    asked = 0
    try:
        while asked < 100 * MEGABYTE:
            asked += deaf.socket.send(questions)
    except TimeoutError:
        pass
    assert asked < 100 * MEGABYTE, "the node went on reading"
    assert node.memory_bytes < before + 64 * MEGABYTE
    bystander()


def test_many_silent_connections_leave_room_for_others(stranger: Make, bystander: Any, node: NodeProcess) -> None:
    silent = [stranger() for _ in range(200)]
    for peer in silent[::2]:
        peer.say_bytes(AMQP_HEADER[:5])
    bystander()
    for peer in silent:
        peer.socket.close()
