"""Transactions over addresses: all of it or nothing, whatever fails, and what they may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, ROLLBACK, TIMEOUT, AmqpError
from enmasse.message.sections import encode_message
from enmasse.messaging.budget import Budget
from enmasse.messaging.core import Log
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams.stream import Stream
from enmasse.messaging.transaction import (
    MESSAGE_OVERHEAD_BYTES,
    GivesMessages,
    OutcomeLog,
    TakesMessages,
    Transaction,
)
from enmasse.testing.ports import CoreHarness


class Shelf:
    """An address that stores what it is given as one record each, and a log."""

    kind = "shelf"

    def __init__(self, harness: CoreHarness, name: str = "shelf") -> None:
        self.core = harness.core
        self.name = name
        self.is_closed = False
        self.free_bytes = 1 << 30
        self.writes = True
        """Whether settlements are written."""
        self.visible: list[bytes] = []
        self.outcomes: list[Any] = []
        self._coming: list[tuple[bytes, bytes | None, Callable[[str | None], None]]] = []

    keeps_room = True

    def has_room(self, size: int) -> bool:
        return size <= self.free_bytes

    def annotate(self, payload: bytes, target: str) -> bytes:
        return payload

    def copies(self, target: str) -> int:
        return 1

    def why_not_retained(self, payload: bytes, target: str) -> None:
        return None

    def enlist_message(self, payload: bytes, target: str, done: Callable[[str | None], None]) -> Log:
        def decided(reason: str | None) -> None:
            if reason is None:
                self.visible.append(payload)
            done(reason)

        self._coming.append((payload, payload, decided))
        return self

    def enlist_settlement(self, entry: Item, done: Callable[[str | None], None]) -> Log | None:
        if not self.writes:
            return None
        self._coming.append((entry.payload, None, done))
        return self

    def on_outcome(self, delivery: Any, state: Any) -> None:
        self.outcomes.append((delivery.payload, state))

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        coming, self._coming = self._coming, []
        return [Operation(Table.FRAME, self.name.encode() + key, value) for key, value, _ in coming], coming or None

    def committed(self, token: Any) -> None:
        for _, _, done in token:
            done(None)

    def failed(self, token: Any, reason: str) -> None:
        for _, _, done in token:
            done(reason)

    def close(self) -> None:
        self.is_closed = True
        self.failed(self._coming, "deleted")
        self._coming = []


class Item:
    """A message at its receiver, whose outcome waits."""

    def __init__(self, shelf: Any, payload: bytes, outcome: Any = ACCEPTED) -> None:
        self.payload = payload
        self.delivery: Any = self
        self.outcome = outcome
        self.sink: Any = self
        self.address = shelf
        self.ends: list[str] = []

    def on_outcome(self, delivery: Any, state: Any) -> None:
        self.address.on_outcome(delivery, state)

    def committed(self) -> None:
        self.ends.append("committed")

    def rolled_back(self) -> None:
        self.ends.append("rolled back")


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


class Told(list[Any]):
    """What a commit's caller hears."""

    def __call__(self, problem: AmqpError | None) -> None:
        self.append(problem)


def message(body: str) -> bytes:
    return encode_message(body=body)


def begin(harness: CoreHarness, max_bytes: int = 1 << 20, budget: Budget | None = None) -> Transaction:
    return Transaction(harness.core, budget or Budget(1 << 20, grain=1), max_bytes)


def stored(harness: CoreHarness) -> list[bytes]:
    return [value for _, value in harness.storage.scan(Table.FRAME, b"", b"\xff" * 20, 1 << 30)]


def test_addresses_that_store_can_take_part(harness: CoreHarness) -> None:
    for address in (Shelf(harness), Stream(harness.core, "s", 1, uid="u")):
        assert isinstance(address, TakesMessages)
        assert isinstance(address, GivesMessages)
    assert not isinstance(Anycast(harness.core, "a"), TakesMessages | GivesMessages)


def test_nothing_is_seen_before_the_commit_is_on_disk(harness: CoreHarness) -> None:
    first, second = Shelf(harness, "a"), Shelf(harness, "b")
    item = Item(first, b"old")
    transaction, told = begin(harness), Told()
    assert transaction.post(first, "a", message("1")) is None
    assert transaction.post(second, "b", message("2")) is None
    assert transaction.retire(item) is None
    harness.commit()
    assert stored(harness) == []
    transaction.commit(told)
    assert not transaction.is_open
    harness.turn()
    assert len(harness.storage.operations(1)) == 3
    assert (first.visible, item.ends, told) == ([], [], [])
    harness.commit()
    assert (first.visible, second.visible) == ([message("1")], [message("2")])
    assert (item.ends, told) == (["committed"], [None])


def test_a_commit_that_fails_leaves_everything_as_before(harness: CoreHarness) -> None:
    first, second = Shelf(harness, "a"), Shelf(harness, "b")
    items = [Item(first, b"x"), Item(second, b"y", RELEASED)]
    transaction, told = begin(harness), Told()
    transaction.post(first, "a", message("1"))
    for item in items:
        transaction.retire(item)
    transaction.commit(told)
    harness.fail()
    assert (first.visible, second.visible, second.outcomes) == ([], [], [])
    assert [item.ends for item in items] == [["rolled back"], ["rolled back"]]
    (problem,) = told
    assert problem.condition == ROLLBACK
    assert "the disk is full" in problem.description
    harness.commit()
    assert stored(harness) == []


def test_a_rollback_lets_messages_go_and_gives_deliveries_back(harness: CoreHarness) -> None:
    shelf, budget = Shelf(harness), Budget(1 << 20, grain=1)
    item = Item(shelf, b"x")
    transaction = begin(harness, budget=budget)
    transaction.post(shelf, "a", message("1"))
    transaction.retire(item)
    assert budget.held == transaction.held_bytes == len(message("1")) + MESSAGE_OVERHEAD_BYTES
    transaction.rollback()
    transaction.rollback()
    harness.commit()
    assert (shelf.visible, item.ends, budget.held) == ([], ["rolled back"], 0)


def test_outcomes_that_take_nothing_away_are_told_after_the_commit(harness: CoreHarness) -> None:
    shelf = Shelf(harness)
    item = Item(shelf, b"x", RELEASED)
    transaction, told = begin(harness), Told()
    transaction.post(shelf, "a", message("1"))
    transaction.retire(item)
    transaction.commit(told)
    harness.turn()
    assert shelf.outcomes == []
    harness.commit()
    assert (shelf.outcomes, item.ends, told) == ([(b"x", RELEASED)], ["committed"], [None])


def test_what_nobody_writes_is_accepted_once_the_rest_is_on_disk(harness: CoreHarness) -> None:
    shelf, memory = Shelf(harness, "a"), Shelf(harness, "b")
    memory.writes = False
    item = Item(memory, b"x")
    transaction, told = begin(harness), Told()
    transaction.post(shelf, "a", message("1"))
    transaction.retire(item)
    transaction.commit(told)
    harness.fail()
    assert (memory.outcomes, item.ends) == ([], ["rolled back"])
    transaction = begin(harness)
    transaction.retire(item)
    transaction.commit(told)
    assert (memory.outcomes, item.ends) == ([(b"x", ACCEPTED)], ["rolled back", "committed"])
    assert told[1] is None


def test_an_empty_transaction_commits_at_once(harness: CoreHarness) -> None:
    told = Told()
    begin(harness).commit(told)
    assert told == [None]
    assert harness.storage.pending == []


def test_a_direct_address_cannot_take_part(harness: CoreHarness) -> None:
    direct = Anycast(harness.core, "desk")
    transaction, told = begin(harness), Told()
    for problem in (transaction.post(direct, "desk", message("1")), transaction.retire(Item(direct, b"x"))):
        assert problem is not None
        assert problem.condition == "amqp:not-implemented"
        assert "anycast 'desk' stores nothing" in (problem.description or "")
    transaction.commit(told)
    assert told[0].condition == ROLLBACK
    assert "anycast 'desk'" in told[0].description


@pytest.mark.parametrize("bound", ["transaction", "node", "address"])
def test_who_holds_too_much_can_only_roll_back(harness: CoreHarness, bound: str) -> None:
    shelf = Shelf(harness)
    large = message("x" * 1000)
    limit = len(large) + MESSAGE_OVERHEAD_BYTES + 10
    budget = Budget(limit if bound == "node" else 1 << 20, grain=1)
    transaction = begin(harness, limit if bound == "transaction" else 1 << 20, budget)
    if bound == "address":
        shelf.free_bytes = len(large) + 10
    item, told = Item(shelf, b"x"), Told()
    transaction.retire(item)
    assert transaction.post(shelf, "a", large) is None
    problem = transaction.post(shelf, "a", large)
    assert problem is not None
    assert problem.condition == "amqp:resource-limit-exceeded"
    refused = transaction.post(shelf, "a", message("small"))
    assert refused is not None
    assert refused.condition == ROLLBACK
    transaction.commit(told)
    assert (told[0].condition, item.ends, budget.held) == (ROLLBACK, ["rolled back"], 0)
    harness.commit()
    assert shelf.visible == []


def test_a_message_that_cannot_be_read_cannot_be_posted(harness: CoreHarness) -> None:
    problem = begin(harness).post(Shelf(harness), "a", b"\x00\x53\x70\xc0\xff")
    assert problem is not None
    assert problem.condition == "amqp:decode-error"


def test_the_first_reason_is_the_one_that_is_told(harness: CoreHarness) -> None:
    transaction, told = begin(harness), Told()
    transaction.fail(AmqpError(TIMEOUT, "late"))
    transaction.fail(AmqpError("amqp:internal-error", "another"))
    transaction.commit(told)
    assert told == [AmqpError(TIMEOUT, "late")]


def test_a_delivery_that_is_taken_out_again_is_not_part_of_it(harness: CoreHarness) -> None:
    shelf = Shelf(harness)
    item, told = Item(shelf, b"x"), Told()
    transaction = begin(harness)
    transaction.retire(item)
    transaction.forget(item)
    transaction.commit(told)
    assert (item.ends, told) == ([], [None])


def test_a_message_for_an_address_deleted_before_the_commit_rolls_all_back(harness: CoreHarness) -> None:
    first, second = Shelf(harness, "a"), Shelf(harness, "b")
    transaction, told = begin(harness), Told()
    transaction.post(first, "a", message("1"))
    transaction.post(second, "b", message("2"))
    second.close()
    transaction.commit(told)
    harness.commit()
    assert told[0].condition == ROLLBACK
    assert "'b' was deleted" in told[0].description
    assert first.visible == []


def test_an_address_deleted_during_the_commit_takes_its_part_with_it(harness: CoreHarness) -> None:
    first, second = Shelf(harness, "a"), Shelf(harness, "b")
    items = [Item(second, b"x"), Item(second, b"y", RELEASED)]
    transaction, told = begin(harness), Told()
    transaction.post(first, "a", message("1"))
    transaction.post(second, "b", message("2"))
    for item in items:
        transaction.retire(item)
    transaction.commit(told)
    second.close()
    harness.commit()
    assert told == [None]
    assert first.visible == [message("1")]
    assert second.outcomes == []
    assert [item.ends for item in items] == [["committed"], ["committed"]]


def test_a_delivery_of_an_address_deleted_before_the_commit_needs_nothing(harness: CoreHarness) -> None:
    shelf = Shelf(harness)
    item, told = Item(shelf, b"x"), Told()
    transaction = begin(harness)
    transaction.retire(item)
    shelf.close()
    transaction.commit(told)
    assert (item.ends, shelf.outcomes, told) == (["committed"], [], [None])


def test_transactions_on_the_same_addresses_do_not_share_a_fate_by_mistake(harness: CoreHarness) -> None:
    first, second = Shelf(harness, "a"), Shelf(harness, "b")
    tolds = [Told(), Told()]
    for index, told in enumerate(tolds):
        transaction = begin(harness)
        transaction.post(first, "a", message(f"{index}"))
        transaction.post(second, "b", message(f"{index}"))
        transaction.commit(told)
        harness.turn()
    harness.storage.fail()
    harness.advance(1)
    harness.commit()
    assert tolds[0][0].condition == ROLLBACK
    assert tolds[1] == [None]
    assert first.visible == second.visible == [message("1")]


def test_a_transaction_ends_even_if_an_address_fails_to_write_its_part(harness: CoreHarness) -> None:
    class Broken(Shelf):
        def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
            raise RuntimeError("a bug")

    shelf, broken = Shelf(harness, "a"), Broken(harness, "b")
    item, told = Item(shelf, b"x"), Told()
    transaction = begin(harness)
    transaction.post(broken, "b", message("1"))
    transaction.post(shelf, "a", message("1"))
    transaction.retire(item)
    transaction.commit(told)
    harness.commit()
    assert told[0].condition == ROLLBACK
    assert "'b' failed" in told[0].description
    assert (shelf.visible, item.ends, stored(harness)) == ([], ["rolled back"], [])


def test_an_address_that_fails_to_enlist_its_part_has_nothing_written_of_the_others(harness: CoreHarness) -> None:
    class Broken(Shelf):
        def enlist_settlement(self, entry: Item, done: Callable[[str | None], None]) -> Log | None:
            raise RuntimeError("a bug")

    shelf = Shelf(harness, "a")
    items = [Item(shelf, b"x"), Item(Broken(harness, "b"), b"y")]
    told = Told()
    transaction = begin(harness)
    transaction.post(shelf, "a", message("1"))
    for item in items:
        transaction.retire(item)
    transaction.commit(told)
    harness.commit()
    assert told[0].condition == ROLLBACK
    assert "a bug" in told[0].description
    assert [str(error) for _, error in harness.faults] == ["a bug"]
    assert (shelf.visible, stored(harness)) == ([], [])
    assert [item.ends for item in items] == [["rolled back"], ["rolled back"]]


def test_a_fate_hears_of_its_batch_and_writes_nothing(harness: CoreHarness) -> None:
    told: list[Any] = []
    shelf = Shelf(harness)
    shelf.enlist_message(b"1", "a", told.append)
    harness.core.write_together([OutcomeLog("memory", told.append), shelf])
    harness.turn()
    assert len(harness.storage.operations(1)) == 1
    harness.commit()
    harness.core.write(OutcomeLog("memory", told.append))
    harness.fail()
    assert told == [None, None, "the disk is full"]


def test_a_stream_takes_part(harness: CoreHarness) -> None:
    stream = Stream(harness.core, "s", 1, uid="u", partitions=2)
    shelf = Shelf(harness)
    for fails in (True, False):
        transaction, told = begin(harness), Told()
        for number in range(4):
            transaction.post(stream, "s", message(f"{number}"))
        transaction.post(shelf, "a", message("x"))
        transaction.commit(told)
        if fails:
            harness.fail()
            assert told[0].condition == ROLLBACK
        else:
            harness.commit()
            assert told == [None]
        assert sum(partition.visible for partition in stream.partitions) == (0 if fails else 4)
        harness.advance(1)


def test_a_stream_deleted_during_the_commit_takes_its_part_with_it(harness: CoreHarness) -> None:
    stream = Stream(harness.core, "s", 1, uid="u")
    shelf = Shelf(harness)
    transaction, told = begin(harness), Told()
    transaction.post(stream, "s", message("1"))
    transaction.post(shelf, "a", message("2"))
    transaction.commit(told)
    stream.close("amqp:resource-deleted", "gone")
    harness.commit()
    assert told == [None]
    assert shelf.visible == [message("2")]


def test_what_is_read_from_a_stream_within_a_transaction_is_only_counted(harness: CoreHarness) -> None:
    stream = Stream(harness.core, "s", 1, uid="u")
    reader = harness.receiver(stream, 10, filters={"enmasse:start": "first"})
    harness.sender(stream)
    transaction, told = begin(harness), Told()
    transaction.post(stream, "s", message("1"))
    transaction.commit(told)
    harness.commit()
    (arrival,) = reader.unsettled
    item = Item(stream, b"")
    item.delivery = arrival.delivery
    transaction = begin(harness)
    assert transaction.retire(item) is None
    transaction.commit(told)
    assert (reader.sink.unsettled, reader.sink.accepted, item.ends, told) == (0, 1, ["committed"], [None, None])
