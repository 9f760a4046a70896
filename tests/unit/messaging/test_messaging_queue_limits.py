"""Queues: how much they take, from how many, and what they count."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.entry import ROW_BYTES
from enmasse.messaging.queues.queue import MAX_CREDIT, QueueProducer
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import MemoryProducerPort
from tests.unit.messaging.queue_scene import Scene, message


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_queue_grants_what_its_byte_budget_allows() -> None:
    scene = Scene(max_bytes=20_000)
    assert scene.sender.credit == 20_000 // 1_024
    body = "x" * 600
    size = len(message(body)) + ROW_BYTES
    for _ in range(10):
        scene.send(body)
    scene.harness.commit()
    assert scene.queue.bytes_stored == 10 * size
    assert scene.sender.credit == (20_000 - 10 * size) // size


def test_a_full_queue_grants_nothing_until_something_is_settled() -> None:
    scene = Scene(max_bytes=3_000)
    scene.send("x" * 1_500)
    scene.send("x" * 1_500)
    scene.harness.commit()
    assert scene.sender.credit == 0
    receiver = scene.receiver(1)
    assert scene.sender.credit == 0
    receiver.accept()
    scene.harness.commit()
    assert scene.sender.credit > 0


def test_credit_is_bounded_however_large_the_budget_is(scene: Scene) -> None:
    assert scene.sender.credit == MAX_CREDIT


def test_senders_share_the_budget() -> None:
    scene = Scene(max_bytes=102_400)
    senders = [scene.harness.sender(scene.queue) for _ in range(4)]
    scene.harness.turn()
    assert [sender.credit for sender in senders] == [25] * 4


def test_large_messages_call_credit_in() -> None:
    scene = Scene(max_bytes=1_000_000)
    before = scene.sender.credit
    scene.send("x" * 50_000)
    scene.harness.commit()
    assert before > 900
    assert scene.sender.credit == (1_000_000 - scene.queue.bytes_stored) // scene.queue.bytes_stored


def full_scene() -> Scene:
    """A queue that called the sender's credit in."""
    scene = Scene(max_bytes=10_000)
    for _ in range(4):
        scene.send("x" * 2_500)
        scene.harness.commit()
    assert scene.sender.credit == 0
    assert scene.sender.highest > scene.sender.received
    return scene


@pytest.mark.parametrize("settled", [False, True])
def test_a_message_that_crossed_a_call_in_is_taken_if_there_is_room(settled: bool) -> None:
    scene = full_scene()
    port = scene.receiver(4)
    port.accept()
    scene.send("crossed", settled=settled)
    scene.harness.commit()
    assert len(scene.sender.outcomes) == 4 + (not settled)
    assert all(state is ACCEPTED for _, state in scene.sender.outcomes)
    assert scene.drain() == ["crossed"]


def test_a_message_that_crossed_a_call_in_is_refused_by_a_full_queue() -> None:
    scene = full_scene()
    scene.send("crossed", settled=True)
    (crossed,) = scene.send("crossed")
    assert scene.sender.states[crossed] is RELEASED
    assert scene.queue.counts()["dropped"] == 1
    assert scene.queue.depth == 4


def test_a_queue_takes_as_many_receivers_as_it_may() -> None:
    scene = Scene(max_consumers=2)
    first, _second = scene.receiver(), scene.receiver()
    with pytest.raises(AttachError, match="2 receivers") as refusal:
        scene.receiver()
    assert refusal.value.condition == "amqp:resource-limit-exceeded"
    first.leave()
    scene.receiver()


def test_while_the_journal_is_behind_senders_get_no_credit_and_then_they_do(scene: Scene) -> None:
    scene.send("one")
    scene.harness.commit()
    scene.harness.core.store([Operation(Table.ENTITY, b"k", bytes(MAX_UNCONFIRMED_BYTES))], lambda _reason: None)
    scene.harness.turn()
    scene.queue.due()
    scene.harness.turn()
    assert scene.sender.credit == 0
    crossed = scene.sender.send(message("two"))
    assert scene.sender.states[crossed] is RELEASED
    scene.harness.commit()
    assert scene.sender.credit == MAX_CREDIT


def test_messages_that_wait_for_a_slow_journal_press_it_too(scene: Scene) -> None:
    body = "x" * (MAX_UNCONFIRMED_BYTES // 8)
    for _ in range(9):
        scene.send(body)
    pressed = [scene.harness.core.is_pressed]
    scene.harness.commit()
    pressed.append(scene.harness.core.is_pressed)
    assert pressed == [True, False]
    assert scene.harness.core.gathered_bytes == 0


def test_counters_tell_what_is_stored(scene: Scene) -> None:
    scene.send("one", "two")
    size = sum(len(message(body)) + ROW_BYTES for body in ("one", "two"))
    counts = scene.queue.counts()
    assert (counts["messagesStored"], counts["bytesStored"], counts["messagesIn"]) == (2, size, 2)
    scene.harness.commit()
    again = scene.restart().queue.counts()
    assert again["messagesStored"] == 2
    assert abs(again["bytesStored"] - size) < 64, "bytes are guessed until they are looked at"


def test_an_anonymous_senders_message_needs_room_but_no_credit(scene: Scene) -> None:
    port = MemoryProducerPort()
    port.sink = QueueProducer(scene.queue, port, "orders")
    port.highest = 10
    port.send(message("one"))
    scene.harness.commit()
    assert port.outcomes == [(0, ACCEPTED)]
