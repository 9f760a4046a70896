"""Queues: order, storing before accepting, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.message.sections import encode_message, header_of
from enmasse.messaging.errors import UNSUPPORTED_FORMAT
from enmasse.messaging.log.layout import FRAME_ROWS
from tests.unit.messaging.queue_scene import Scene, bodies, message


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Order and hand-out


def test_messages_come_in_the_order_of_arrival(scene: Scene) -> None:
    scene.send(*range(5))
    receiver = scene.receiver(10)
    scene.send(*range(5, 8), durable=False)
    scene.harness.turn()
    assert bodies(receiver) == [str(n) for n in range(8)]


def test_competing_receivers_share_the_messages(scene: Scene) -> None:
    receivers = [scene.receiver(10) for _ in range(3)]
    scene.send(*range(9))
    scene.harness.turn()
    assert [len(receiver.arrivals) for receiver in receivers] == [3, 3, 3]


def test_a_message_is_handed_out_before_it_is_written(scene: Scene) -> None:
    receiver = scene.receiver(10)
    scene.send("one")
    scene.harness.turn()
    assert bodies(receiver) == ["one"]
    assert scene.sender.outcomes == []


def test_without_credit_or_while_blocked_nothing_is_handed_out(scene: Scene) -> None:
    receiver = scene.receiver()
    scene.send("one")
    scene.harness.turn()
    assert receiver.arrivals == []
    receiver.block()
    receiver.grant(1)
    scene.harness.turn()
    assert receiver.arrivals == []
    receiver.block(False)
    scene.harness.turn()
    assert bodies(receiver) == ["one"]


def test_a_drained_receiver_gets_what_there_is_in_that_turn_and_has_no_credit_left(scene: Scene) -> None:
    scene.send("one", "two")
    receiver = scene.receiver()
    receiver.drain(10)
    scene.harness.turn()
    assert bodies(receiver) == ["one", "two"]
    assert receiver.credit == 0
    scene.send("three")
    scene.harness.turn()
    assert bodies(receiver) == ["one", "two"]


def test_a_drain_waits_for_messages_that_are_on_their_way_to_the_disk(scene: Scene) -> None:
    scene.queue.window = 1
    scene.send(*range(4))
    scene.harness.turn()
    scene.send(*range(4, 8))
    receiver = scene.receiver()
    receiver.drain(10)
    scene.harness.turn()
    assert receiver.credit > 0
    scene.harness.commit()
    while scene.harness.storage.waiting_reads or scene.harness.storage.pending:
        scene.harness.storage.commit()
        scene.harness.turn()
    assert (bodies(receiver), receiver.credit) == ([str(number) for number in range(8)], 0)


def test_a_page_of_which_all_was_deleted_since_it_was_asked_for_hides_nothing_behind_it(scene: Scene) -> None:
    scene.queue.window = 1
    for number in range(4):
        scene.send(number)
        scene.harness.commit()
    receiver = scene.harness.receiver(scene.queue, 10)
    scene.harness.core.run_turn(0.0, 1)
    # Another process looked how far a page goes; nothing is left of what it found.
    *_, done = scene.harness.storage._reads.popleft()
    done([], [])
    scene.harness.commit()
    assert bodies(receiver) == [str(number) for number in range(4)]


def test_a_drain_does_not_wait_for_a_journal_that_cannot_be_written(scene: Scene) -> None:
    scene.queue.window = 1
    scene.send(0)
    scene.harness.commit()
    scene.send(1, 2, settled=True)
    scene.harness.turn()
    receiver = scene.receiver()
    receiver.drain(10)
    scene.harness.storage.fail("the disk is full")
    scene.harness.turn()
    assert (bodies(receiver), receiver.credit) == (["0"], 0)


def test_a_receiver_of_settled_messages_consumes_by_getting_them(scene: Scene) -> None:
    scene.send("one")
    receiver = scene.receiver(1, presettle=True)
    assert receiver.arrivals[0].settled
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    assert scene.queue.depth == 0


# Accepting


def test_a_durable_message_is_accepted_only_after_its_commit(scene: Scene) -> None:
    scene.send("one")
    scene.harness.turn()
    assert scene.sender.outcomes == []
    scene.harness.commit()
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    assert scene.stored() == [(0, 1)]


def test_a_message_that_is_not_durable_is_accepted_at_once_and_never_written(scene: Scene) -> None:
    scene.send("one", durable=False)
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    scene.harness.commit()
    assert scene.stored() == []
    assert scene.restart().queue.depth == 0


def test_a_durable_message_that_is_consumed_before_it_is_written_never_is(scene: Scene) -> None:
    receiver = scene.receiver(10)
    scene.sender.send(message("one"))
    scene.queue.dispatch()
    receiver.accept()
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    scene.harness.turn()
    assert scene.harness.storage.pending == []
    assert scene.harness.core.gathered_bytes == 0


def test_a_durable_message_that_is_consumed_while_its_commit_runs_is_accepted_and_then_deleted(scene: Scene) -> None:
    receiver = scene.receiver(10)
    scene.send("one")
    scene.harness.turn()
    receiver.accept()
    assert scene.sender.outcomes == [(0, ACCEPTED)]
    scene.harness.commit()
    assert (scene.stored(), scene.settled_records()) == ([], [])


def test_a_settled_durable_message_is_written_and_answered_by_nobody(scene: Scene) -> None:
    scene.send("one", settled=True)
    scene.harness.commit()
    assert scene.sender.outcomes == []
    assert scene.restart().drain() == ["one"]


def test_everything_of_one_turn_is_one_frame(scene: Scene) -> None:
    scene.send(*range(100))
    scene.harness.commit()
    scene.send(*range(50))
    scene.harness.commit()
    assert scene.stored() == [(0, 100), (100, 50)]


def test_a_turn_that_is_too_large_for_one_frame_is_several(scene: Scene) -> None:
    for _ in range(FRAME_ROWS + 5):
        scene.queue.enqueue(message("x"), None, 0, durable=True)
    big = message("y" * 600_000)
    for _ in range(3):
        scene.queue.enqueue(big, None, 0, durable=True)
    scene.harness.commit()
    assert scene.stored() == [(0, FRAME_ROWS), (FRAME_ROWS, 7), (FRAME_ROWS + 7, 1)]
    assert scene.restart().queue.depth == FRAME_ROWS + 8


def test_only_messages_of_format_0_can_be_stored(scene: Scene) -> None:
    refused = scene.sender.send(b"frame", message_format=5)
    scene.sender.send(b"frame", message_format=5, settled=True)
    assert scene.sender.outcomes == [(refused, UNSUPPORTED_FORMAT)]
    assert scene.queue.depth == 0


# Outcomes and redelivery


def test_an_accepted_or_rejected_message_is_gone(scene: Scene) -> None:
    scene.send("one", "two", "three")
    receiver = scene.receiver(2)
    receiver.accept()
    receiver.settle(Rejected(AmqpError("a:b", "no")))
    assert scene.queue.depth == 1
    scene.harness.commit()
    assert scene.restart().drain() == ["three"]
    counts = scene.queue.counts()
    assert (counts["accepted"], counts["rejected"]) == (1, 1)


def test_what_comes_back_takes_its_old_place(scene: Scene) -> None:
    scene.send(*range(5))
    receiver = scene.receiver(3)
    receiver.release(3)
    scene.send(5)
    receiver.grant(10)
    scene.harness.turn()
    assert bodies(receiver)[3:] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("order", [[2, 0, 0], [0, 0, 0], [1, 1, 0]])
def test_the_order_in_which_messages_come_back_does_not_matter(scene: Scene, order: list[int]) -> None:
    scene.send(*range(4))
    receiver = scene.receiver(3)
    for at in order:
        receiver.settle(RELEASED, at=at)
    receiver.grant(10)
    scene.harness.turn()
    assert bodies(receiver)[3:] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (RELEASED, 0),
        (None, 0),
        (Modified(delivery_failed=False), 0),
        (Modified(delivery_failed=True), 1),
    ],
    ids=["released", "none", "modified", "failed"],
)
def test_only_a_failed_delivery_counts_in_the_header(scene: Scene, outcome: Any, failed: int) -> None:
    scene.sender.send(message("one", delivery_count=2))
    receiver = scene.receiver(1)
    assert receiver.payloads == [message("one", delivery_count=2)]
    receiver.settle(outcome)
    receiver.grant(1)
    scene.harness.turn()
    header = header_of(receiver.payloads[1])
    assert header is not None
    assert header.delivery_count == 2 + failed
    assert bodies(receiver) == ["one", "one"]


def test_attempts_add_up(scene: Scene) -> None:
    scene.sender.send(encode_message(b"no header"))
    receiver = scene.receiver(4)
    for _ in range(3):
        receiver.settle(Modified(delivery_failed=True))
        scene.harness.turn()
    header = header_of(receiver.payloads[-1])
    assert header is not None
    assert header.delivery_count == 3


def test_a_message_that_cannot_be_read_is_rejected_and_harms_nobody(scene: Scene) -> None:
    scene.sender.send(b"\x00\x53\x99garbage")
    assert scene.sender.states[0].error.condition == "amqp:decode-error"
    scene.send("good", durable=False)
    assert bodies(scene.receiver(2)) == ["good"]


def test_a_message_that_cannot_be_read_is_rejected_however_often_it_comes(scene: Scene) -> None:
    good = encode_message(b"x" * 20, application_properties={"a": "b"})
    body, properties = encode_message(b"x" * 20), encode_message(b"", application_properties={"a": "b"})[:-5]
    out_of_order = body + properties
    assert len(out_of_order) == len(good)
    for payload in (good, out_of_order, out_of_order):
        scene.sender.send(payload)
    states = list(scene.sender.states.values())
    assert (states[0], [type(state) for state in states[1:]]) == (ACCEPTED, [Rejected, Rejected])


def test_what_a_receiver_held_when_it_left_comes_again_as_a_failed_attempt(scene: Scene) -> None:
    scene.send("one", "two")
    leaver = scene.receiver(2)
    leaver.leave()
    other = scene.receiver(2)
    assert bodies(other) == ["one", "two"]
    header = header_of(other.payloads[0])
    assert header is not None
    assert header.delivery_count == 1
    assert scene.queue.counts()["modified"] == 2


@pytest.mark.parametrize(
    ("attempts", "rejects", "comes_again"),
    [(0, "", False), (0, "deadletter", False), (0, "retry", True),
     (3, "", True), (3, "deadletter", False), (3, "retry", True)],
)  # fmt: skip
def test_a_rejection_is_an_attempt_or_the_last_one_as_the_queue_says(
    attempts: int, rejects: str, *, comes_again: bool
) -> None:
    scene = Scene(max_attempts=attempts, reject_policy=rejects)
    scene.send("a")
    receiver = scene.receiver(1)
    scene.harness.commit()
    receiver.settle(Rejected(AmqpError("a:b", "no")))
    scene.harness.commit()
    assert (scene.queue.counts()["messagesStored"], scene.queue.dead_lettered) == ((1, 0) if comes_again else (0, 1))
