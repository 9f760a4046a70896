"""Named consumers of a stream within transactions: their offsets move with the batch, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, AmqpError
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.budget import Budget
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.streams.stream import Stream
from enmasse.messaging.transaction import Transaction
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort

NAME = "billing"


def message(body: Any) -> bytes:
    return encode_message(body, header=Header(durable=True))


class Item:
    """A delivery that is accepted within a transaction."""

    def __init__(self, port: MemoryConsumerPort, at: int) -> None:
        self.delivery = port.unsettled.pop(at).delivery
        self.outcome = ACCEPTED
        self.ends: list[str] = []

    def committed(self) -> None:
        self.ends.append("committed")

    def rolled_back(self) -> None:
        self.ends.append("rolled back")


class Scene:
    """A stream of ten messages, a named consumer, and a queue to write to."""

    def __init__(self, harness: CoreHarness | None = None) -> None:
        self.harness = harness or CoreHarness()
        self.stream = Stream(self.harness.core, "s", 1, uid="u")
        self.queue = Queue(self.harness.core, "q", 2)
        self.stream.load()
        self.queue.load()
        self.told: list[AmqpError | None] = []
        if harness is None:
            sender = self.harness.sender(self.stream)
            self.harness.turn()
            for number in range(10):
                sender.send(message(number))
            self.harness.commit()
            self.reader = self.read(start="first")

    def read(self, start: str | None = None) -> MemoryConsumerPort:
        filters = {"enmasse:consumer": NAME} | ({} if start is None else {"enmasse:start": start})
        port = self.harness.receiver(self.stream, 100, filters=filters)
        self.harness.commit()
        return port

    def begin(self, *at: int) -> Transaction:
        """A transaction that accepts these of the unsettled, each counted after the one before was taken."""
        transaction = Transaction(self.harness.core, Budget(1 << 20, grain=1), 1 << 20)
        for index in at:
            self.retire(transaction, index)
        assert transaction.post(self.queue, "q", message("out")) is None
        return transaction

    def retire(self, transaction: Transaction, at: int = 0) -> Item:
        item = Item(self.reader, at)
        assert transaction.retire(item) is None
        return item

    def commit(self, transaction: Transaction) -> AmqpError | None:
        transaction.commit(self.told.append)
        self.harness.commit()
        return self.told.pop()

    @property
    def offset(self) -> int | None:
        return self.stream.partitions[0].consumers.stored.get(NAME)

    def restarted(self, through: int = 0) -> Scene:
        return Scene(self.harness.restarted(through))


def bodies(port: MemoryConsumerPort) -> list[Any]:
    return [Sections(payload).body for payload in port.payloads]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_offset_moves_with_the_commit(scene: Scene) -> None:
    transaction = scene.begin(0, 0, 0)
    scene.harness.commit()
    assert not scene.stream.partitions[0].consumers.stored
    assert scene.commit(transaction) is None
    assert (scene.offset, scene.reader.sink.unsettled, scene.reader.sink.accepted) == (3, 7, 3)
    again = scene.restarted()
    assert (again.offset, again.queue.depth) == (3, 1)
    assert bodies(again.read()) == list(range(3, 10))


@pytest.mark.parametrize("reaches", [True, False])
def test_after_a_crash_offset_and_message_are_both_there_or_neither(scene: Scene, reaches: bool) -> None:
    transaction = scene.begin(0, 0)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    (number,) = scene.harness.storage.pending
    again = scene.restarted(number if reaches else 0)
    assert (again.offset, again.queue.depth) == ((2, 1) if reaches else (None, 0))


def test_a_commit_that_fails_moves_nothing(scene: Scene) -> None:
    transaction = scene.begin()
    item = scene.retire(transaction)
    transaction.commit(scene.told.append)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    (problem,) = scene.told
    assert problem is not None
    assert item.ends == ["rolled back"]
    assert (scene.offset, scene.reader.sink.unsettled, scene.queue.depth) == (None, 10, 0)
    item.delivery.sink.on_outcome(item.delivery, ACCEPTED)
    scene.harness.commit()
    assert scene.offset == 1


def test_a_rollback_moves_nothing_and_what_follows_waits_for_it(scene: Scene) -> None:
    transaction = scene.begin()
    item = scene.retire(transaction)
    transaction.rollback()
    assert scene.commit(scene.begin(0)) is None
    assert scene.offset is None
    item.delivery.sink.on_outcome(item.delivery, ACCEPTED)
    scene.harness.commit()
    assert scene.offset == 2


def test_what_was_accepted_outside_counts_for_what_is_accepted_within(scene: Scene) -> None:
    first = scene.begin(0)
    scene.reader.accept(2)
    scene.harness.commit()
    assert scene.offset is None
    assert scene.commit(first) is None
    assert scene.offset == 3


def test_what_is_accepted_outside_while_a_batch_that_fails_is_on_its_way_does_not_pass_it(scene: Scene) -> None:
    transaction = scene.begin()
    item = scene.retire(transaction)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    scene.reader.accept(3)
    scene.harness.turn()
    scene.harness.storage.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert item.ends == ["rolled back"]
    assert scene.offset is None
    item.delivery.sink.on_outcome(item.delivery, ACCEPTED)
    scene.harness.commit()
    assert scene.offset == 4


def test_what_is_accepted_outside_while_a_batch_is_on_its_way_follows_it(scene: Scene) -> None:
    transaction = scene.begin(0)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    scene.reader.accept(3)
    scene.harness.commit()
    assert scene.offset == 4


def test_a_transaction_waits_for_the_fate_of_the_one_before(scene: Scene) -> None:
    first, second = scene.begin(0), scene.begin(0)
    first.commit(scene.told.append)
    scene.harness.turn()
    second.commit(scene.told.append)
    scene.harness.turn()
    scene.harness.storage.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    failed, stored = scene.told
    assert failed is not None
    assert stored is None
    assert (scene.offset, scene.queue.depth) == (None, 1)


def test_a_reader_that_has_gone_is_brought_forward_all_the_same(scene: Scene) -> None:
    transaction = scene.begin(0, 0)
    scene.reader.leave()
    assert scene.commit(transaction) is None
    assert scene.offset == 2
    assert bodies(scene.read()) == list(range(2, 10))


def test_an_offset_that_a_client_sets_meanwhile_is_the_last_word(scene: Scene) -> None:
    transaction = scene.begin(0, 0, 0)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    scene.stream.partitions[0].commit_consumer(NAME, 1, lambda _is_stored: None)
    scene.harness.commit()
    assert (scene.offset, scene.stream.partitions[0].consumers.reached[NAME]) == (1, 1)
    assert scene.restarted().offset == 1


def test_a_consumer_that_a_client_forgets_meanwhile_stays_forgotten(scene: Scene) -> None:
    transaction = scene.begin(0)
    transaction.commit(scene.told.append)
    scene.stream.partitions[0].commit_consumer(NAME, None, lambda _is_stored: None)
    scene.harness.commit()
    assert scene.told == [None]
    assert scene.offset is None


def test_a_stream_deleted_during_the_commit_takes_its_part_with_it(scene: Scene) -> None:
    transaction = scene.begin(0)
    transaction.commit(scene.told.append)
    scene.stream.close("amqp:resource-deleted", "gone")
    scene.harness.commit()
    assert scene.told == [None]
    assert scene.queue.depth == 1


def test_a_settled_delivery_that_is_rolled_back_is_counted(scene: Scene) -> None:
    transaction = scene.begin()
    item = scene.retire(transaction)
    transaction.rollback()
    item.delivery.sink.on_outcome(item.delivery, FAILED)
    assert (scene.reader.sink.unsettled, scene.reader.sink.modified) == (9, 1)
