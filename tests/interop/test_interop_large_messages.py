"""Messages far larger than anybody holds, passed on by an anycast address while they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from enmasse.client import blocking
from enmasse.message.composites import decode_composite
from enmasse.message.outcomes import Accepted, Modified, Released
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import Close, Disposition, Flow, Transfer
from tests.support.node_process import NodeProcess
from tests.support.stranger import TIMEOUT_S, Stranger

pytestmark = pytest.mark.slow

MIB = 1 << 20
GIB = 1 << 30
FRAME_BYTES = 128 << 10
BOUND_BYTES = 64 * MIB
"""What the node may grow by: what turns and sockets hold, far below the largest of these messages."""
WINDOW = 1 << 30


class Sender:
    """A stranger that sends messages of any size, piece by piece."""

    def __init__(self, node: NodeProcess, address: str) -> None:
        self.peer = Stranger(node.port)
        self.peer.open()
        self.peer.begin()
        self.attach = self.peer.attach_sender(address)
        self.next = 0

    def credit(self) -> None:
        """Wait for credit."""
        while not self.peer.hear(Flow).link_credit:
            pass

    def pour(self, size: int, *, ends: bool = True) -> int:
        """Send a delivery of so many bytes, or its beginning; its delivery id."""
        delivery_id, self.next = self.next, self.next + 1
        piece = b"\x2a" * (FRAME_BYTES - 64)
        first = Transfer(0, delivery_id, b"%d" % delivery_id, 0, False, more=True)
        self.peer.say(first, payload=piece)
        frame = amqp_frame(0, Transfer(0, more=True), len(piece)) + piece
        sent = len(piece)
        while size - sent > len(piece):
            self.peer.say_bytes(frame)
            sent += len(piece)
        self.peer.say(Transfer(0, more=not ends), payload=piece[: size - sent])
        return delivery_id

    def outcome(self) -> Any:
        """The state of the next disposition."""
        return self.peer.hear(Disposition).state


class Receiver:
    """A stranger that receives pieces and keeps none."""

    def __init__(self, node: NodeProcess, address: str, credit: int = 1, window: int = WINDOW) -> None:
        self.peer = Stranger(node.port, receive_buffer_bytes=256 << 10)
        self.peer.open()
        self.peer.begin()
        self.peer.attach_receiver(address)
        self.stream = self.peer.socket.makefile("rb", MIB)
        self.grant(credit, window)

    def grant(self, credit: int, window: int = WINDOW, incoming: int = 0) -> None:
        flow = Flow(next_incoming_id=incoming, incoming_window=window, next_outgoing_id=0, outgoing_window=WINDOW)
        flow.handle, flow.delivery_count, flow.link_credit = 0, 0, credit
        self.peer.say(flow)

    def drink(self, until: int = 1 << 62, transfers: int = 1 << 62) -> tuple[int, Transfer]:
        """Read a delivery to its end, or so many bytes or transfers of it; the bytes, and the last transfer."""
        size = 0
        while True:
            head = self.stream.read(4)
            frame = head + self.stream.read(int.from_bytes(head, "big") - 4)
            if len(frame) == 8:
                continue
            found, at = decode_composite(frame[:256], 8, min(256, len(frame)))
            if not isinstance(found, Transfer):
                continue
            size += len(frame) - at
            transfers -= 1
            if not found.more or size >= until or not transfers:
                return size, found


@pytest.fixture
def met(node: NodeProcess, addresses: Any) -> Iterator[tuple[str, Callable[..., Sender], Callable[..., Receiver]]]:
    """An anycast address, and who makes strangers at it."""
    address = addresses.declare("anycast")
    made: list[Sender | Receiver] = []

    def sender() -> Sender:
        made.append(Sender(node, address))
        return made[-1]  # type: ignore[return-value]

    def receiver(**options: Any) -> Receiver:
        made.append(Receiver(node, address, **options))
        return made[-1]  # type: ignore[return-value]

    yield address, sender, receiver
    for one in made:
        if isinstance(one, Receiver):
            one.stream.close()
        one.peer.socket.close()


@pytest.fixture
def at_once() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


def test_a_message_of_a_gibibyte_passes_through_a_few_megabytes(
    node: NodeProcess, met: Any, at_once: ThreadPoolExecutor
) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(), make_sender()
    assert not sender.attach.max_message_size
    sender.credit()
    before = node.memory_bytes
    pouring = at_once.submit(sender.pour, GIB)
    most = 0
    drinking = at_once.submit(receiver.drink)
    while not drinking.done():
        most = max(most, node.memory_bytes)
        time.sleep(0.02)
    size, last = drinking.result()
    assert size == GIB
    assert not last.aborted
    assert pouring.result() == 0
    assert most - before < BOUND_BYTES
    receiver.peer.say(Disposition(True, 0, 0, True, Accepted()))
    assert isinstance(sender.outcome(), Accepted)


def test_a_receiver_that_does_not_read_holds_its_sender_and_nobody_else(
    node: NodeProcess, met: Any, addresses: Any, at_once: ThreadPoolExecutor
) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(), make_sender()
    sender.credit()
    before = node.memory_bytes
    size = 256 * MIB
    pouring = at_once.submit(sender.pour, size)
    other = addresses.declare("queue")
    with blocking.connect(node.url, timeout=TIMEOUT_S, reconnect=False) as connection:
        bystander = connection.sender(other)
        for _ in range(50):
            assert bystander.send(blocking.Message(body=b"x")) is blocking.Outcome.ACCEPTED
    assert not pouring.done()
    assert node.memory_bytes - before < BOUND_BYTES
    assert receiver.drink()[0] == size
    pouring.result(TIMEOUT_S)


def test_a_receiver_whose_window_is_used_up_holds_its_sender(met: Any, at_once: ThreadPoolExecutor) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(window=20), make_sender()
    sender.credit()
    size = 64 * MIB
    pouring = at_once.submit(sender.pour, size)
    taken, _ = receiver.drink(transfers=20)
    assert not pouring.done()
    receiver.grant(0, WINDOW, incoming=20)
    assert taken + receiver.drink()[0] == size
    pouring.result(TIMEOUT_S)


def test_a_receiver_that_goes_in_the_middle_has_failed(met: Any, at_once: ThreadPoolExecutor) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(), make_sender()
    sender.credit()
    pouring = at_once.submit(sender.pour, 64 * MIB)
    receiver.drink(until=8 * MIB)
    receiver.stream.close()
    receiver.peer.socket.close()
    pouring.result(TIMEOUT_S)
    outcome = sender.outcome()
    assert isinstance(outcome, Modified)
    assert outcome.delivery_failed


def test_a_sender_that_goes_in_the_middle_aborts_the_delivery(met: Any) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(credit=2), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    receiver.drink(until=MIB)
    sender.peer.socket.close()
    assert receiver.drink()[1].aborted
    another = make_sender()
    another.credit()
    another.pour(2 * MIB)
    size, last = receiver.drink()
    assert (size, last.aborted) == (2 * MIB, False)


def test_a_sender_that_aborts_may_send_again(met: Any) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(credit=2), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    sender.peer.say(Transfer(0, aborted=True))
    assert receiver.drink()[1].aborted
    sender.pour(3 * MIB)
    assert receiver.drink()[0] == 3 * MIB


def test_the_outcome_of_a_receiver_that_has_seen_enough_comes_after_the_last_piece(met: Any) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    receiver.drink(until=MIB)
    receiver.peer.say(Disposition(True, 0, 0, True, Released()))
    assert receiver.drink()[1].aborted
    sender.peer.say(Transfer(0), payload=b"the rest")
    assert isinstance(sender.outcome(), Released)


def test_small_messages_go_to_others_while_a_large_one_is_under_way(node: NodeProcess, met: Any) -> None:
    address, make_sender, make_receiver = met
    receiver, sender = make_receiver(credit=50), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    receiver.drink(until=MIB)
    with (
        blocking.connect(node.url, timeout=TIMEOUT_S, reconnect=False) as connection,
        connection.receiver(address, credit=10) as other,
    ):
        small = connection.sender(address)
        waiting = small.send_nowait(blocking.Message(body="small"))
        delivery = other.receive(timeout=TIMEOUT_S)
        assert delivery is not None
        assert delivery.message.body == "small"
        delivery.accept()
        assert waiting.result(TIMEOUT_S) is blocking.Outcome.ACCEPTED
    sender.peer.say(Transfer(0), payload=b"end")
    assert not receiver.drink()[1].more


def test_a_deleted_address_ends_what_is_under_way(met: Any, addresses: Any) -> None:
    address, make_sender, make_receiver = met
    receiver, sender = make_receiver(), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    receiver.drink(until=MIB)
    addresses.delete(address)
    sender.peer.say(Close())
    assert sender.peer.is_hung_up()


def test_a_sender_is_told_to_send_little_ahead_while_a_large_message_passes(met: Any) -> None:
    _, make_sender, make_receiver = met
    receiver, sender = make_receiver(credit=2), make_sender()
    sender.credit()
    sender.pour(2 * MIB, ends=False)
    while sender.peer.hear(Flow).incoming_window * FRAME_BYTES > 8 * MIB:
        pass
    sender.peer.say(Transfer(0), payload=b"end")
    while sender.peer.hear(Flow).incoming_window < 1000:
        pass
    assert receiver.drink()[0] > 2 * MIB
