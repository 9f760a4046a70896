"""Queues: order, storing before accepting, and exactly what was not settled after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES, PAUSE_S
from enmasse.messaging.delivery import ACCEPTED, RELEASED
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame
from enmasse.messaging.log import FRAME_ROWS, log_key, log_range
from enmasse.messaging.options import StoredOptions
from enmasse.messaging.queue import MAX_CREDIT, UNSUPPORTED_FORMAT, Queue, QueueProducer
from enmasse.messaging.queue_entry import ROW_BYTES
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from enmasse.wire.amqp.performatives import AmqpError, Modified, Rejected
from enmasse.wire.amqp.sections import Header, encode_message, header_of

LOG = 7


def message(body: Any, *, durable: bool = True, **header: Any) -> bytes:
    return encode_message(str(body).encode(), header=Header(durable=durable, **header))


def bodies(port: MemoryConsumerPort) -> list[str]:
    return [payload.rpartition(b"\xa0")[2][1:].decode() for payload in port.payloads]


class Scene:
    """A queue, one sender and one receiver."""

    def __init__(self, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        self.queue = Queue(self.harness.core, "orders", LOG, options=StoredOptions(**options))
        self.queue.load()
        self._sender: MemoryProducerPort | None = None

    @property
    def sender(self) -> MemoryProducerPort:
        if self._sender is None:
            self._sender = self.harness.sender(self.queue)
            self.harness.turn()
        return self._sender

    def receiver(self, credit: int = 0, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.queue, credit, **options)
        self.harness.turn()
        return port

    def send(self, *bodies_: Any, durable: bool = True, settled: bool = False) -> list[int]:
        return [self.sender.send(message(body, durable=durable), settled=settled) for body in bodies_]

    def stored(self) -> list[tuple[int, int]]:
        """First offset and rows of every frame on disk."""
        frames = self.harness.storage.scan(Table.FRAME, *log_range(LOG), 1 << 30)
        return [(frame.first_offset, frame.rows) for frame in (Frame(value) for _, value in frames)]

    def settled_records(self) -> list[bytes]:
        return [key for key, _ in self.harness.storage.scan(Table.SETTLED, *log_range(LOG), 1 << 30)]

    def restart(self, through: int = 0) -> Scene:
        return Scene(self.harness.restarted(through))

    def drain(self) -> list[str]:
        """Everything that can be received now."""
        port = self.receiver(10_000)
        port.accept(len(port.unsettled))
        port.leave()
        return bodies(port)


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


# Limits


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


# The rest


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


def test_a_deleted_queue_gives_back_what_was_not_on_its_way_and_writes_nothing_more(scene: Scene) -> None:
    scene.send("stored")
    scene.harness.commit()
    receiver = scene.receiver(1)
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
