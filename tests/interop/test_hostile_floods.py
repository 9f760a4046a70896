"""Peers that say far too much of little worth: others are served meanwhile, and the node stays small."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from enmasse.client import blocking
from enmasse.message.outcomes import Accepted, Rejected
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    Source,
    Target,
    Transfer,
)
from tests.interop.conftest import Addresses
from tests.interop.hostile import MEGABYTE, Bystander
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.stranger import Stranger, condition_of

pytestmark = pytest.mark.slow

FLOOD_BYTES = MEGABYTE
GROWTH_BYTES = 64 * MEGABYTE


@pytest.fixture
def bystander(node: NodeProcess, addresses: Addresses) -> Iterator[Bystander]:
    """Asks and is answered all the time."""
    found = Bystander(node.url, addresses.declare("anycast"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def unharmed(node: NodeProcess, bystander: Bystander) -> Iterator[None]:
    """The bystander's round trips go on in time during and after the test, and the node stays as small as it was."""
    before = node.memory_bytes
    bystander.check()
    yield
    bystander.check()
    assert node.memory_bytes < before + GROWTH_BYTES


@contextmanager
def reading(peer: Stranger) -> Iterator[list[str | None]]:
    """Let go whatever comes meanwhile; what is yielded holds the conditions that were heard."""
    heard: list[str | None] = []

    def read() -> None:
        while (frame := peer.hear_frame()) is not None:
            if isinstance(frame[0], Close | End | Detach):
                heard.append(condition_of(frame[0]))

    thread = threading.Thread(target=read)
    thread.start()
    yield heard
    peer.socket.shutdown(socket.SHUT_WR)
    thread.join(60)
    assert not thread.is_alive(), "the node neither answers nor hangs up"


def flood(peer: Stranger, pattern: bytes, size: int = FLOOD_BYTES) -> bool:
    """Say the same again and again; whether the node took all of it."""
    batch = pattern * max(1, (64 << 10) // len(pattern))
    try:
        for _ in range(max(1, size // len(batch))):
            peer.say_bytes(batch)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


Make = Callable[[], Stranger]


def with_unsettled(peer: Stranger, node: NodeProcess, address: str, count: int) -> None:
    """Have a peer receive messages, and settle none."""
    peer.open()
    peer.begin()
    peer.attach_receiver(address, 1)
    peer.say(Flow(0, 1 << 30, 0, 1000, 1, 0, count))
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        connection.sender(address).send_all(blocking.Message(body=b"x") for _ in range(count))
    for _ in range(count):
        peer.hear(Transfer)


@pytest.mark.parametrize("state", [Accepted(), Rejected(), Received(0, 0), None], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(("first", "last"), [(900_000, None), (50_000, 0x70000000), (20_001, 80_000)])
@pytest.mark.usefixtures("unharmed")
def test_dispositions_for_unknown_deliveries(
    stranger: Make, state: object, first: int, last: int | None, node: NodeProcess, addresses: Addresses
) -> None:
    peer = stranger()
    peer.open()
    peer.begin()
    with reading(peer):
        flood(peer, amqp_frame(0, Disposition(True, first, last, True, state)))


@pytest.mark.usefixtures("unharmed")
def test_dispositions_beside_twenty_thousand_unsettled_deliveries(
    stranger: Make, node: NodeProcess, addresses: Addresses
) -> None:
    peer = stranger()
    with_unsettled(peer, node, addresses.declare("queue"), 20_000)
    # Of what lies in between, nothing is unsettled any more.
    peer.say(Disposition(True, 1, 9_999, True, Accepted()))
    with reading(peer):
        flood(peer, amqp_frame(0, Disposition(True, 1, 9_999, True, Accepted())))
        flood(peer, amqp_frame(0, Disposition(True, 20_001, 50_000, False, Accepted())))


@pytest.mark.usefixtures("unharmed")
def test_links_that_come_and_go_beside_many_unsettled_deliveries(
    stranger: Make, node: NodeProcess, addresses: Addresses
) -> None:
    peer = stranger()
    address = addresses.declare("queue")
    with_unsettled(peer, node, address, 20_000)
    attach = amqp_frame(0, Attach("again", 2, True, source=Source(address), target=Target()))
    with reading(peer):
        flood(peer, attach + amqp_frame(0, Detach(2, True)), FLOOD_BYTES // 4)


FLOWS = {
    "echo": Flow(0, 100, 0, 100, echo=True),
    "credit": Flow(0, 100, 0, 100, 1, 0, 0xFFFFFFFF),
    "drain": Flow(0, 100, 0, 100, 1, 0, 1000, drain=True, echo=True),
    "window": Flow(0, 0, 0, 0, 1, 0, 10),
    "sender": Flow(0, 100, 0, 100, 0, 5, 0, 1000, echo=True),
}


@pytest.mark.parametrize("kind", ["anycast", "queue", "stream"])
@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
@pytest.mark.usefixtures("unharmed")
def test_flows(stranger: Make, addresses: Addresses, flow: Flow, kind: str) -> None:
    peer = stranger()
    address = addresses.declare(kind)
    peer.open()
    peer.begin()
    peer.attach_sender(address, 0)
    peer.attach_receiver(address, 1)
    with reading(peer):
        assert flood(peer, amqp_frame(0, flow), FLOOD_BYTES // 2)


@pytest.mark.parametrize("kind", ["anycast", "queue", "topic", "stream"])
@pytest.mark.usefixtures("unharmed")
def test_links_that_come_and_go(stranger: Make, addresses: Addresses, kind: str) -> None:
    peer = stranger()
    address = addresses.declare(kind)
    peer.open()
    peer.begin()
    source, target = Source(address), Target(address)
    receiver = Attach("again", 1, True, source=source, target=target)
    sender = Attach("again", 1, False, source=source, target=target, initial_delivery_count=0)
    frames = b"".join(amqp_frame(0, item) for item in (receiver, Detach(1, True), sender, Detach(1, True)))
    with reading(peer) as heard:
        assert flood(peer, frames, FLOOD_BYTES // 4)
    assert set(heard) == {None}, "every link was attached and detached in order"


@pytest.mark.usefixtures("unharmed")
def test_links_under_one_name_that_steal_each_other(stranger: Make, addresses: Addresses) -> None:
    peer = stranger()
    address = addresses.declare("queue")
    peer.open()
    peer.begin()
    with reading(peer) as heard:
        for first in range(0, 8000, 4000):
            handles = range(first, first + 4000)
            peer.say(*(Attach("one", n % 4000, True, source=Source(address), target=Target()) for n in handles))
            peer.say(*(Detach(n % 4000, True) for n in handles))
    assert "amqp:link:stolen" in heard


@pytest.mark.usefixtures("unharmed")
def test_sessions_that_come_and_go(stranger: Make) -> None:
    peer = stranger()
    peer.open()
    frames = amqp_frame(0, Begin(incoming_window=1, outgoing_window=1)) + amqp_frame(0, End())
    with reading(peer) as heard:
        for _ in range(200):
            peer.say_bytes(frames * 50)
    assert heard == [None] * 10_000


@pytest.mark.usefixtures("unharmed")
def test_connections_that_come_and_go(node: NodeProcess) -> None:
    for number in range(400):
        with Stranger(node.port) as peer:
            peer.say_bytes(AMQP_HEADER + (b"", amqp_frame(0, Open("s")), amqp_frame(0, Close()))[number % 3])


@pytest.mark.usefixtures("unharmed")
def test_a_conversation_in_single_bytes(stranger: Make, addresses: Addresses) -> None:
    peer = stranger()
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address = addresses.declare("queue")
    body = b"\x00\x53\x75\xb0\x00\x00\x20\x00" + bytes(8192)
    said = [
        AMQP_HEADER,
        amqp_frame(0, Open("slow")),
        amqp_frame(0, Begin(incoming_window=9, outgoing_window=9)),
        amqp_frame(0, Attach("s", 0, False, source=Source(), target=Target(address), initial_delivery_count=0)),
    ]
    for byte in b"".join(said):
        peer.say_bytes(bytes((byte,)))
    peer.hear(Flow)
    for _ in range(3):
        for byte in amqp_frame(0, Transfer(0, 0, b"t", 0, False), len(body)) + body:
            peer.say_bytes(bytes((byte,)))
        assert peer.hear(Disposition).state == Accepted()


@pytest.mark.usefixtures("unharmed")
def test_hundreds_that_dribble_their_first_bytes(node: NodeProcess, bystander: Bystander) -> None:
    start = AMQP_HEADER + amqp_frame(0, Open("slow-loris"))
    peers = [Stranger(node.port) for _ in range(300)]
    try:
        for at in range(len(start) - 1):
            for peer in peers:
                peer.say_bytes(start[at : at + 1])
        bystander.check()
    finally:
        for peer in peers:
            peer.socket.close()


@pytest.mark.usefixtures("unharmed")
def test_credit_from_a_thousand_links(stranger: Make, node: NodeProcess, addresses: Addresses) -> None:
    peer = stranger()
    address = addresses.declare("anycast")
    peer.open()
    peer.begin()
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        sender = connection.sender(address)
        with reading(peer):
            for handle in range(1000):
                peer.say(Attach(f"r{handle}", handle, True, source=Source(address), target=Target()))
                peer.say(Flow(0, 1 << 30, 0, 1000, handle, 0, 0xFFFFFFFF))
            until(lambda: sender.credit)
            assert 0 < sender.credit <= 0x7FFFFFFF
            for _ in range(100):
                sender.send(blocking.Message(body=b"x"), settled=True)
