"""Queues on disk: exactly what was not settled after a restart, a failed commit or a deletion."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.queues.queue import QueueProducer
from enmasse.messaging.storage import Table
from enmasse.testing.ports import MemoryProducerPort
from tests.unit.messaging.queue_scene import LOG, Scene, message


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Settlements on disk


def test_settled_rows_are_kept_as_ranges_until_the_whole_frame_is_settled(scene: Scene) -> None:
    scene.send(*range(6))
    scene.harness.commit()
    receiver = scene.receiver(6)
    for at in (1, 1, 3):  # rows 1, 2 and 5
        receiver.settle(ACCEPTED, at=at)
    scene.harness.commit()
    record = scene.harness.storage.get(Table.SETTLED, log_key(LOG, 0, 0))
    assert record == b"\x01\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x01\x00\x00\x00"
    assert scene.restart().drain() == ["0", "3", "4"]


def test_a_frame_whose_rows_are_all_settled_is_deleted_with_its_ranges(scene: Scene) -> None:
    scene.send(*range(3))
    scene.harness.commit()
    scene.send(3)
    scene.harness.commit()
    receiver = scene.receiver(4)
    receiver.accept()
    scene.harness.commit()
    assert scene.settled_records() == [log_key(LOG, 0, 0)]
    receiver.accept(2)
    scene.harness.commit()
    assert scene.stored() == [(3, 1)]
    assert scene.settled_records() == []


def test_settlements_after_a_restart_go_to_the_same_frame(scene: Scene) -> None:
    scene.send(*range(4))
    scene.harness.commit()
    scene.receiver(2).accept(2)
    scene.harness.commit()
    again = scene.restart()
    again.receiver(1).accept()
    again.harness.commit()
    third = again.restart()
    assert third.drain() == ["3"]
    third.harness.commit()
    assert (third.stored(), third.settled_records()) == ([], [])


def test_a_restart_finds_exactly_what_was_not_settled_on_disk(scene: Scene) -> None:
    scene.send(*range(10))
    scene.harness.commit()
    receiver = scene.receiver(5)
    receiver.accept(2)
    scene.harness.commit()
    receiver.accept(2)
    again = scene.restart()
    assert again.drain() == [str(n) for n in range(2, 10)]


def test_a_batch_that_reached_the_disk_counts_though_its_answer_did_not_come(scene: Scene) -> None:
    scene.send("one")
    scene.harness.turn()
    batch = scene.harness.storage.pending[-1]
    again = scene.restart(through=batch)
    assert again.drain() == ["one"]


def test_new_messages_after_a_restart_do_not_touch_the_old_ones(scene: Scene) -> None:
    scene.send("one")
    scene.harness.commit()
    again = scene.restart()
    again.send("two")
    again.harness.commit()
    assert again.stored() == [(0, 1), (1, 1)]
    assert again.restart().drain() == ["one", "two"]


def test_a_receiver_that_waits_hears_once_its_settlement_is_on_disk(scene: Scene) -> None:
    scene.send("one")
    scene.harness.commit()
    receiver = scene.receiver(1)
    receiver.accept()
    heard: list[str] = []
    receiver.sink.confirm(lambda: heard.append("safe"))
    scene.harness.turn()
    scene.harness.storage.fail()
    scene.harness.turn()
    assert heard == [], "a failed commit is no answer"
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert heard == ["safe"]
    assert scene.stored() == []


# Failed commits


def test_a_failed_commit_releases_what_no_receiver_has(scene: Scene) -> None:
    scene.send("one", "two")
    scene.harness.fail()
    assert scene.sender.outcomes == [(0, RELEASED), (1, RELEASED)]
    assert (scene.queue.depth, scene.queue.bytes_stored) == (0, 0)
    assert scene.receiver(1).arrivals == []
    scene.send("three")
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.restart().drain() == ["three"]


def test_a_message_that_came_back_before_its_commit_failed_is_released(scene: Scene) -> None:
    receiver = scene.receiver(2)
    scene.send("one", "two")
    scene.harness.turn()
    receiver.grant(0)
    receiver.release(2)
    scene.harness.fail()
    assert scene.sender.outcomes == [(0, RELEASED), (1, RELEASED)]
    assert scene.queue.depth == 0


def test_a_receiver_that_holds_a_message_whose_commit_failed_may_still_accept_it(scene: Scene) -> None:
    receiver = scene.receiver(1)
    scene.send("one")
    scene.harness.fail()
    assert scene.sender.outcomes == []
    receiver.accept()
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert (scene.stored(), scene.settled_records()) == ([], [])


@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_receiver_gives_back_after_its_commit_failed_goes_back_to_the_sender(
    scene: Scene, leaves: bool
) -> None:
    receiver = scene.receiver(1)
    scene.send("one")
    scene.harness.fail()
    if leaves:
        receiver.leave()
    else:
        receiver.release()
    assert scene.sender.outcomes == [(0, RELEASED)]
    assert (scene.queue.depth, scene.queue.bytes_stored) == (0, 0)
    assert scene.receiver(1).arrivals == []


def test_a_settled_message_whose_commit_failed_stays_in_memory(scene: Scene) -> None:
    scene.send("one", settled=True)
    scene.harness.fail()
    assert scene.drain() == ["one"]
    assert scene.queue.depth == 0


def test_settlements_of_a_failed_commit_go_again(scene: Scene) -> None:
    scene.send(*range(3))
    scene.harness.commit()
    receiver = scene.receiver(3)
    receiver.accept()
    scene.harness.fail()
    receiver.accept()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.restart().drain() == ["2"]


def test_rows_that_were_settled_while_their_commit_failed_leave_nothing_behind(scene: Scene) -> None:
    """A record of settled rows without a frame would settle the rows of the next frame with that key."""
    receiver = scene.receiver(2)
    scene.send("one", "two")
    scene.harness.turn()
    receiver.accept()
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.settled_records() == []
    again = scene.restart()
    again.send("three", "four")
    again.harness.commit()
    assert again.restart().drain() == ["three", "four"]


def test_a_failed_commit_of_a_long_queue_gives_back_only_its_own(scene: Scene) -> None:
    scene.send(*range(5))
    scene.harness.commit()
    scene.send(*range(5, 8))
    scene.send(8, durable=False)
    scene.harness.fail()
    assert [delivery for delivery, state in scene.sender.outcomes if state is RELEASED] == [5, 6, 7]
    assert scene.drain() == ["0", "1", "2", "3", "4", "8"]


# Deletion


def test_a_deleted_queue_gives_back_what_was_not_on_its_way_and_writes_nothing_more(scene: Scene) -> None:
    scene.send("stored")
    scene.harness.commit()
    receiver = scene.receiver(1)
    scene.harness.commit()
    anonymous = MemoryProducerPort()
    anonymous.sink = QueueProducer(scene.queue, anonymous, "orders")
    anonymous.highest = 10
    anonymous.send(message("one"))
    scene.send("two")
    receiver.accept()
    scene.queue.close("amqp:resource-deleted", "gone")
    scene.harness.turn()
    assert scene.harness.storage.pending == []
    assert scene.harness.core.gathered_bytes == 0
    assert anonymous.outcomes == [(0, RELEASED)]
    assert scene.sender.states[1] is RELEASED
    assert receiver.error.condition == scene.sender.error.condition == "amqp:resource-deleted"


@pytest.mark.parametrize("fails", [False, True])
def test_a_commit_that_is_answered_after_deletion_answers_its_senders(scene: Scene, fails: bool) -> None:
    anonymous = MemoryProducerPort()
    anonymous.sink = QueueProducer(scene.queue, anonymous, "orders")
    anonymous.highest = 10
    anonymous.send(message("one"))
    scene.harness.turn()
    scene.queue.close("amqp:resource-deleted", "gone")
    if fails:
        scene.harness.fail()
    else:
        scene.harness.commit()
    assert anonymous.outcomes == [(0, RELEASED if fails else ACCEPTED)]
    scene.harness.advance(1)
    assert scene.harness.storage.pending == []
