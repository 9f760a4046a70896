"""Transactions over real queues, topics and streams: whatever they are told to do, all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, AmqpError
from enmasse.message.sections import Header, Properties, Sections, encode_message, header_of
from enmasse.messaging.budget import Budget
from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES, PAUSE_S
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.messaging.streams.stream import Stream
from enmasse.messaging.transaction import GivesMessages, TakesMessages, Transaction
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort


def message(body: Any = "x", *, durable: bool = True, subject: str | None = None) -> bytes:
    return encode_message(body, header=Header(durable=durable), properties=Properties(subject=subject))


def bodies(port: MemoryConsumerPort) -> list[Any]:
    return [Sections(payload).body for payload in port.payloads]


class Item:
    """A message at its receiver that is accepted within a transaction."""

    def __init__(self, port: MemoryConsumerPort, outcome: Any = ACCEPTED) -> None:
        self.delivery = port.unsettled.pop(0).delivery
        self.outcome = outcome
        self.ends: list[str] = []

    def committed(self) -> None:
        self.ends.append("committed")

    def rolled_back(self) -> None:
        self.ends.append("rolled back")
        self.delivery.sink.on_outcome(self.delivery, FAILED)


class Scene:
    """Queue ``q``, queue ``r``, topic ``t`` with subscriptions ``t1`` and ``t2``, stream ``s``."""

    def __init__(self, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        core = self.harness.core
        self.space = Space(core, "ns/shop", lambda: "id")
        wished = AddressSettings(**options)
        self.q = Queue(core, "q", 1, options=wished)
        self.r = Queue(core, "r", 2)
        self.t = Topic(core, "t", 3, options=wished)
        self.t1, self.t2 = (
            Subscription(core, name, log_id, topic="t", pattern=parse("t/#"), options=wished)
            for name, log_id in (("t1", 4), ("t2", 5))
        )
        self.s = Stream(core, "s", 6, uid="u", partitions=2)
        for address in (self.q, self.r, self.t, self.t1, self.t2, self.s):
            self.space.add(address)
        self.q.load()
        self.r.load()
        self.t.load()
        self.s.load()
        self.harness.commit()
        self.told: list[AmqpError | None] = []

    def begin(self) -> Transaction:
        return Transaction(self.harness.core, Budget(1 << 30, grain=1), 1 << 20)

    def post(self, transaction: Transaction, *names: str, body: Any = "x", **options: Any) -> None:
        for name in names:
            assert transaction.post(self.space.find(name), name, message(body, **options)) is None

    def commit(self, transaction: Transaction) -> AmqpError | None:
        transaction.commit(self.told.append)
        self.harness.commit()
        return self.told.pop()

    def fail(self, transaction: Transaction) -> AmqpError | None:
        transaction.commit(self.told.append)
        self.harness.fail()
        self.harness.advance(PAUSE_S)
        self.harness.commit()
        return self.told.pop()

    def fill(self, name: str, *contents: Any, **options: Any) -> None:
        port = self.harness.sender(self.space.find(name), name)
        self.harness.turn()
        for body in contents:
            port.send(message(body, **options))
        self.harness.commit()
        port.leave()

    def receiver(self, name: str, credit: int = 100) -> MemoryConsumerPort:
        port = self.harness.receiver(self.space.find(name), credit, source=name)
        self.harness.commit()
        return port

    def depths(self) -> dict[str, int]:
        return {name: self.space.addresses[name].counts()["messagesStored"] for name in ("q", "r", "t1", "t2", "s")}

    def restarted(self, **options: Any) -> Scene:
        return Scene(self.harness.restarted(), **options)


ALL = ("q", "r", "t", "s")
NOTHING = {"q": 0, "r": 0, "t1": 0, "t2": 0, "s": 0}
ONE_EACH = dict.fromkeys(NOTHING, 1)


def test_every_stored_address_can_take_part() -> None:
    scene = Scene()
    for address in (scene.q, scene.t, scene.s):
        assert isinstance(address, TakesMessages)
    for giving in (scene.q, scene.t1, scene.s):
        assert isinstance(giving, GivesMessages)


@pytest.mark.parametrize("storage", ["message", "durable", "memory"])
@pytest.mark.parametrize("durable", [True, False])
def test_messages_appear_everywhere_or_nowhere(storage: str, durable: bool) -> None:
    scene = Scene(storage=storage)
    receivers = [scene.receiver(name) for name in ("q", "r", "t1", "t2")]
    transaction = scene.begin()
    scene.post(transaction, *ALL, durable=durable)
    problem = scene.fail(transaction)
    assert problem is not None
    assert "the disk is full" in (problem.description or "")
    assert scene.depths() == NOTHING
    transaction = scene.begin()
    scene.post(transaction, *ALL, durable=durable)
    assert scene.commit(transaction) is None
    assert scene.depths() == ONE_EACH
    assert [bodies(receiver) for receiver in receivers] == [["x"]] * 4
    assert scene.harness.faults == []
    assert scene.harness.core.gathered_bytes == 0


def test_what_is_committed_survives_a_crash_and_what_is_not_does_not() -> None:
    scene = Scene()
    transaction = scene.begin()
    scene.post(transaction, *ALL)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    (number,) = scene.harness.storage.pending
    copy = Scene(scene.harness.restarted(number))
    assert copy.depths() == ONE_EACH
    scene = Scene()
    transaction = scene.begin()
    scene.post(transaction, *ALL)
    transaction.commit(scene.told.append)
    scene.harness.turn()
    assert scene.restarted().depths() == NOTHING


@pytest.mark.parametrize("source", ["q", "t1"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_message_moves_or_stays(source: str, durable: bool) -> None:
    scene = Scene()
    scene.fill("t" if source == "t1" else source, "move", durable=durable)
    receiver = scene.receiver(source)
    transaction = scene.begin()
    item = Item(receiver)
    transaction.retire(item)
    scene.post(transaction, "r", body="moved")
    assert scene.fail(transaction) is not None
    assert item.ends == ["rolled back"]
    assert (scene.depths()[source], scene.depths()["r"]) == (1, 0)
    assert bodies(receiver) == ["move", "move"]
    header = header_of(receiver.payloads[1])
    assert header is not None
    assert header.delivery_count == 1
    transaction = scene.begin()
    transaction.retire(Item(receiver))
    scene.post(transaction, "r", body="moved")
    assert scene.commit(transaction) is None
    assert (scene.depths()[source], scene.depths()["r"]) == (0, 1)
    assert (receiver.sink.unsettled, receiver.sink.accepted) == (0, 1)
    again = scene.restarted()
    assert (again.depths()[source], again.depths()["r"]) == (0, 1)


def test_a_message_that_is_not_written_yet_moves_in_the_batch_that_would_have_written_it() -> None:
    scene = Scene()
    receiver = scene.receiver("q")
    port = scene.harness.sender(scene.q)
    scene.harness.turn()
    port.send(message("fresh"))
    scene.harness.core.run_turn(0.0, 1)
    assert bodies(receiver) == ["fresh"]
    transaction = scene.begin()
    transaction.retire(Item(receiver))
    scene.post(transaction, "r", body="moved")
    assert scene.commit(transaction) is None
    assert port.states == {0: ACCEPTED}
    assert (scene.depths()["q"], scene.depths()["r"]) == (0, 1)
    assert scene.restarted().depths() == NOTHING | {"r": 1}


@pytest.mark.parametrize("others", [1, 3])
def test_what_was_settled_before_a_commit_that_failed_stays_settled_once_others_are_done(others: int) -> None:
    scene = Scene()
    for number in range(3, 2 + others):
        scene.space.add(Subscription(scene.harness.core, f"t{number}", 10 + number, topic="t", pattern=parse("t/#")))
    scene.harness.commit()
    scene.fill("t", "settled", "kept")
    receiver = scene.receiver("t1")
    receiver.accept(1)
    scene.harness.commit()
    transaction = scene.begin()
    transaction.retire(Item(receiver))
    assert scene.fail(transaction) is not None
    for number in range(2, min(2 + others, 4)):
        other = scene.receiver(f"t{number}")
        other.accept(2)
        scene.harness.commit()
        other.leave()
    receiver.leave()
    again = scene.restarted()
    assert bodies(again.receiver("t1")) == ["kept"]


def test_one_subscription_is_done_with_a_message_and_the_other_is_not() -> None:
    scene = Scene()
    scene.fill("t", "news")
    first, second = scene.receiver("t1"), scene.receiver("t2")
    transaction = scene.begin()
    transaction.retire(Item(first))
    assert scene.commit(transaction) is None
    assert (scene.depths()["t1"], scene.depths()["t2"]) == (0, 1)
    second.leave()
    again = scene.restarted()
    assert (again.depths()["t1"], again.depths()["t2"]) == (0, 1)
    assert bodies(again.receiver("t2")) == ["news"]


def test_volatile_subscribers_hear_of_it_with_the_commit() -> None:
    scene = Scene()
    passing = scene.receiver("t")
    transaction = scene.begin()
    scene.post(transaction, "t", "q")
    assert scene.fail(transaction) is not None
    assert bodies(passing) == []
    transaction = scene.begin()
    scene.post(transaction, "t", "q")
    assert scene.commit(transaction) is None
    assert bodies(passing) == ["x"]


def test_a_browsers_copy_may_be_settled_and_takes_nothing() -> None:
    scene = Scene()
    scene.fill("q", "in")
    browser = scene.harness.receiver(scene.q, 10, browse=True)
    scene.harness.commit()
    assert bodies(browser) == ["in"]
    transaction = scene.begin()
    item = Item(browser)
    transaction.retire(item)
    scene.post(transaction, "r")
    assert scene.commit(transaction) is None
    assert (item.ends, browser.sink.unsettled) == (["committed"], 0)
    assert (scene.depths()["q"], scene.depths()["r"]) == (1, 1)


def test_a_topic_without_subscriptions_takes_part() -> None:
    scene = Scene()
    for subscription in (scene.t1, scene.t2):
        scene.space.remove(subscription)
    scene.harness.commit()
    transaction = scene.begin()
    transaction.post(scene.t, "t", message())
    assert scene.commit(transaction) is None


def test_messages_of_a_transaction_keep_their_order_among_others() -> None:
    scene = Scene()
    first, second = scene.begin(), scene.begin()
    for number in range(3):
        scene.post(second, "q", body=f"second {number}")
        scene.post(first, "q", body=f"first {number}")
    scene.commit(first)
    scene.fill("q", "between")
    scene.commit(second)
    expected = [*(f"first {n}" for n in range(3)), "between", *(f"second {n}" for n in range(3))]
    assert bodies(scene.restarted().receiver("q")) == expected
    assert bodies(scene.receiver("q")) == expected


def test_a_queue_larger_than_its_window_takes_part() -> None:
    scene = Scene()
    scene.q.window = 20_000
    scene.fill("q", *range(100))
    transaction = scene.begin()
    for number in range(100, 110):
        scene.post(transaction, "q", body=number)
    assert scene.commit(transaction) is None
    receiver = scene.receiver("q", 200)
    scene.harness.commit()
    assert sorted(bodies(receiver)) == list(range(110))
    transaction = scene.begin()
    items = [Item(receiver) for _ in range(110)]
    for item in items:
        transaction.retire(item)
    assert scene.commit(transaction) is None
    assert scene.depths() == NOTHING
    assert scene.restarted().depths() == NOTHING


@pytest.mark.parametrize("full", ["block", "reject"])
def test_a_full_address_takes_nothing(full: str) -> None:
    scene = Scene(max_bytes=1_000, full_policy=full)
    transaction = scene.begin()
    assert transaction.post(scene.q, "q", message("x" * 800)) is None
    problem = transaction.post(scene.q, "q", message("x" * 800))
    assert problem is not None
    assert problem.condition == "amqp:resource-limit-exceeded"
    assert "'q' is full" in (problem.description or "")


def test_a_journal_that_is_behind_does_not_make_an_address_full() -> None:
    scene = Scene()
    scene.harness.core.gathered_bytes = MAX_UNCONFIRMED_BYTES + 1
    transaction = scene.begin()
    scene.post(transaction, *ALL)
    scene.harness.core.gathered_bytes = 0
    assert scene.commit(transaction) is None
    assert scene.depths() == ONE_EACH


def test_the_oldest_make_room_where_that_is_the_policy() -> None:
    scene = Scene(max_bytes=1_000, full_policy="drop-oldest")
    scene.fill("q", "x" * 800)
    transaction = scene.begin()
    scene.post(transaction, "q", body="y" * 800)
    assert scene.commit(transaction) is None
    assert bodies(scene.receiver("q")) == ["y" * 800]


def test_only_the_latest_of_a_key_is_kept() -> None:
    scene = Scene(last_value_key="subject")
    scene.fill("q", "old", subject="k")
    transaction = scene.begin()
    scene.post(transaction, "q", body="new", subject="k")
    assert scene.fail(transaction) is not None
    assert scene.depths()["q"] == 1
    transaction = scene.begin()
    scene.post(transaction, "q", body="new", subject="k")
    assert scene.commit(transaction) is None
    assert bodies(scene.receiver("q")) == ["new"]


@pytest.mark.parametrize("name", ["q", "t", "s"])
def test_an_address_deleted_during_the_commit_takes_its_part_with_it(name: str) -> None:
    scene = Scene()
    scene.fill("q", "in")
    scene.fill("t", "in")
    receivers = [scene.receiver(source) for source in ("q", "t1")]
    transaction = scene.begin()
    for receiver in receivers:
        transaction.retire(Item(receiver))
    scene.post(transaction, "r", name)
    transaction.commit(scene.told.append)
    scene.space.remove(scene.space.addresses[name])
    scene.harness.commit()
    assert scene.told == [None]
    assert scene.r.depth == 1
    assert scene.harness.faults == []


def test_a_topic_deleted_before_the_commit_needs_no_settlement() -> None:
    scene = Scene()
    scene.fill("t", "in")
    receiver = scene.receiver("t1")
    transaction = scene.begin()
    item = Item(receiver)
    transaction.retire(item)
    scene.post(transaction, "r")
    scene.space.remove(scene.t)
    scene.harness.commit()
    assert scene.commit(transaction) is None
    assert (item.ends, scene.r.depth, scene.t1.depth) == (["committed"], 1, 0)
    assert scene.harness.faults == []


def test_byte_accounts_are_exact_after_commits_and_failures() -> None:
    scene = Scene()
    for fails in (False, True, False, True):
        transaction = scene.begin()
        scene.post(transaction, *ALL)
        (scene.fail if fails else scene.commit)(transaction)
    receivers = [scene.receiver(name) for name in ("q", "r", "t1", "t2")]
    transaction = scene.begin()
    for receiver in receivers:
        for _ in range(2):
            transaction.retire(Item(receiver))
    assert scene.commit(transaction) is None
    for address in (scene.q, scene.r, scene.t1, scene.t2):
        assert (address.depth, address.bytes_stored, address.resident_bytes) == (0, 0, 0)
    assert scene.space.bytes_stored == 0
    assert scene.s.counts()["messagesStored"] == 2


def test_a_message_whose_acceptance_failed_stays_on_disk_although_others_were_read_meanwhile() -> None:
    scene = Scene()
    scene.t1.window = 1
    contents = ["one", "b" * 5_000, "c" * 5_000, "d" * 5_000]
    for body in contents:
        scene.fill("t", body)
    port = scene.receiver("t1", credit=2)
    assert bodies(port) == contents[:2]
    port.unsettled.pop(0)
    transaction = scene.begin()
    transaction.retire(Item(port))
    transaction.commit(scene.told.append)
    scene.harness.turn()
    port.grant(1)
    scene.harness.turn()
    assert bodies(port) == contents[:3]
    scene.harness.fail()
    assert scene.told.pop() is not None
    scene.harness.advance(PAUSE_S)
    other = scene.receiver("t2")
    other.accept(len(other.unsettled))
    scene.harness.commit()
    assert contents[1] in bodies(scene.restarted().receiver("t1"))
