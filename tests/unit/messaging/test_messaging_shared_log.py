"""A topic's log among very many subscriptions: what it costs, what it keeps of whom, and what a crash leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.log.holders import Holders
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.log.numbers import LOG_COUNTER
from enmasse.messaging.log.shared_log import SHARED_PARTITION
from enmasse.messaging.patterns import matches, parse
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Operation, Table
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from tests.support.chance import seeds
from tests.unit.messaging.topic_scene import TOPIC_LOG, Scene, bodies, message

TABLES = (Table.FRAME, Table.SETTLED, Table.ATTEMPTS, Table.HOLDER)


def records(harness: CoreHarness, table: Table) -> dict[tuple[int, int, int], bytes]:
    """Records by log, partition and offset."""
    return {
        (int.from_bytes(key[:4], "big"), int.from_bytes(key[4:8], "big"), int.from_bytes(key[8:], "big")): value
        for key, value in harness.storage.scan_all(table)
    }


def subscriber(scene: Scene, name: str, source: str, credit: int = 0) -> MemoryConsumerPort:
    return scene.receiver(
        source, credit, is_durable=True, container="c", name=name, expiry_policy="never"
    )  # fmt: skip


# What is on disk


def test_a_frame_that_all_share_has_no_record() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.subscription(name)
    scene.sender("news").send(message())
    scene.harness.commit()
    assert {table: len(records(scene.harness, table)) for table in TABLES} == {
        Table.FRAME: 1, Table.SETTLED: 0, Table.ATTEMPTS: 0, Table.HOLDER: 0,
    }  # fmt: skip


def test_a_frame_that_not_all_share_has_a_record_of_who_has_which_rows() -> None:
    scene = Scene()
    for number in range(5):
        scene.subscription(f"s{number}", f"news/{number % 2}/#")
    senders = [scene.sender(name) for name in ("news/0", "news/1", "news/0")]
    for sender in senders:
        sender.send(message())
    scene.harness.commit()
    (record,) = records(scene.harness, Table.HOLDER).values()
    assert dict(Holders(record).items()) == {1: (0, 2), 2: (1,), 3: (0, 2), 4: (1,), 5: (0, 2)}
    assert not records(scene.harness, Table.SETTLED)


def test_what_nobody_has_any_more_is_deleted_with_all_that_was_said_of_it() -> None:
    scene = Scene()
    ports = []
    for number in range(5):
        scene.subscription(f"s{number}", "news/0" if number else "news/#")
        ports.append(scene.receiver(f"s{number}", 0))
    senders = [scene.sender(name) for name in ("news/0", "news/1")]
    for sender in senders:
        sender.send(message())
    scene.harness.commit()
    left = []
    for port in ports:
        port.grant(10)
        scene.harness.turn()
        port.accept(len(port.unsettled))
        scene.harness.commit()
        left.append(tuple(len(records(scene.harness, table)) for table in TABLES))
    # Frame, settled rows of those who are done, attempts, holders: the record is written anew when half are done.
    assert left == [(1, 1, 0, 1), (1, 2, 0, 1), (1, 0, 0, 1), (1, 0, 0, 1), (0, 0, 0, 0)]


def test_a_subscription_that_ends_takes_along_what_only_it_had() -> None:
    scene = Scene()
    first, second = (scene.subscription(name, pattern) for name, pattern in (("a", "news/a"), ("b", "news/#")))
    for name in ("news/a", "news/b", "news/a"):
        scene.sender(name).send(message())
        scene.harness.commit()
    assert len(records(scene.harness, Table.FRAME)) == 3
    scene.space.remove(second)
    scene.harness.commit()
    assert [offset for _, _, offset in records(scene.harness, Table.FRAME)] == [0, 2]
    scene.space.remove(first)
    scene.harness.commit()
    assert not records(scene.harness, Table.FRAME)
    assert not records(scene.harness, Table.HOLDER)


def test_a_subscription_that_ends_while_its_messages_are_written_leaves_nothing() -> None:
    scene = Scene()
    made = scene.subscription("a")
    sender = scene.sender()
    sender.send(message())
    scene.harness.turn()
    scene.space.remove(made)
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert not records(scene.harness, Table.FRAME)


def test_a_message_that_only_an_ended_subscription_wanted_is_not_written() -> None:
    scene = Scene()
    made = scene.subscription("a", "news/a")
    other = scene.subscription("b", "news/b")
    sender = scene.sender("news/a")
    sender.send(message())
    scene.sender("news/b").send(message())
    scene.space.remove(made)
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert len(scene.stored()) == other.depth == 1


def test_the_mark_of_a_beginning_follows_offsets_that_are_taken_back() -> None:
    scene = Scene()
    scene.subscription("a")
    sender = scene.sender()
    sender.send(message(b"fails"))
    scene.harness.turn()
    # While the first message is on its way to the disk, and its offset is given.
    made = scene.space.find("news")
    late = subscriber(scene, "late", "news", 10)
    scene.harness.fail()
    scene.harness.advance(1)
    sender.send(message(b"comes"))
    scene.harness.commit()
    assert isinstance(made, Topic)
    assert bodies(late) == [b"comes"]
    again = Scene(scene.harness.restarted(), is_fresh=False)
    again.topic.load()
    assert bodies(subscriber(again, "late", "news", 10)) == [b"comes"]


def test_a_start_takes_up_settled_rows_as_earlier_versions_wrote_them() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.subscription(name)
    for number in range(3):
        scene.sender().send(message(b"%d" % number))
        scene.harness.commit()
    whole = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    # Format 3 said of a subscription that has nothing of a frame that it is done with it.
    scene.harness.storage.submit(
        [Operation(Table.SETTLED, log_key(1, SHARED_PARTITION, offset), whole) for offset in (0, 2)]
        + [Operation(Table.SETTLED, log_key(2, SHARED_PARTITION, 2), whole)]
    )
    scene.harness.storage.commit()
    again = Scene(scene.harness.restarted(), is_fresh=False)
    made = [again.subscription(name) for name in ("a", "b")]
    again.topic.load()
    again.harness.commit()
    assert [one.depth for one in made] == [1, 2]
    assert sorted(offset for _, _, offset in records(again.harness, Table.FRAME)) == [0, 1]
    ports = [again.receiver(name, 10) for name in ("a", "b")]
    again.harness.commit()
    assert [bodies(port) for port in ports] == [[b"1"], [b"0", b"1"]]
    for port in ports:
        port.accept(len(port.unsettled))
    again.harness.commit()
    assert not any(records(again.harness, table) for table in TABLES)


# What it costs


class Steps:
    """Counts the instructions of Python that something takes."""

    def __init__(self) -> None:
        self.count = 0

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
        return self._trace

    def of(self, act: Callable[[], Any]) -> int:
        before = sys.gettrace()
        self.count = 0
        sys.settrace(self._trace)
        try:
            act()
        finally:
            sys.settrace(before)
        return self.count


class Crowd:
    """A topic with very many durable and volatile subscriptions, and a few that are looked at."""

    def __init__(self, number: int) -> None:
        self.scene = Scene()
        self.harness = self.scene.harness
        self.topic = self.scene.topic
        for index in range(number):
            subscriber(self.scene, f"durable-{index}", f"news/{index}/#").grant(10)
            self.scene.receiver(f"news/{index}/+", 10)
        self.port = subscriber(self.scene, "mine", "news/mine/#", 1_000)
        self.volatile = self.scene.receiver("news/mine/+", 1_000)
        self.absent = subscriber(self.scene, "absent", "news/mine/#")
        self.sender = self.scene.sender("news/mine/x")
        self.harness.commit()
        self.messages = 0
        self.written = 0
        submit = self.harness.storage.submit

        def counted(operations: Any) -> int:
            self.written += len(operations)
            return submit(operations)

        self.harness.storage.submit = counted  # type: ignore[method-assign]
        # What is done once only is done before anything is counted.
        for act in (self.publish, self.fail, self.come_and_go):
            act()
            act()

    def publish(self) -> None:
        self.sender.send(message())
        self.harness.commit()
        self.port.accept()
        self.volatile.accept()
        self.harness.commit()

    def fail(self) -> None:
        self.sender.send(message())
        self.harness.turn()
        self.harness.fail()
        self.port.release()
        self.volatile.accept()
        self.harness.advance(1)
        self.harness.commit()

    def come_and_go(self) -> None:
        came = subscriber(self.scene, "new", "news/new", 10)
        passing = self.scene.receiver("news/new", 10)
        self.harness.commit()
        self.publish()
        for port in (came, passing):
            port.is_detached = True
            port.sink.on_detached(closed=True)
        self.harness.commit()


@pytest.mark.parametrize("act", ["publish", "fail", "come_and_go"])
def test_others_cost_nothing(act: str) -> None:
    taken = []
    for number in (20, 200):
        crowd = Crowd(number)
        crowd.written = 0
        taken.append((Steps().of(getattr(crowd, act)), crowd.written))
        assert crowd.harness.faults == []
    few, many = taken
    # Arrays and heaps that grow may take a few steps more.
    assert many[0] <= few[0] * 1.02, "Python does more, the more subscriptions there are"
    assert many[1] == few[1], "more is written, the more subscriptions there are"


def test_a_start_takes_time_by_what_is_stored() -> None:
    taken = []
    for number in (50, 500):
        scene = Scene()
        for index in range(number):
            subscriber(scene, f"s{index}", f"news/{index}")
        senders = [scene.sender(f"news/{index}") for index in range(number)]
        scene.harness.commit()
        for sender in senders:
            sender.send(message())
            scene.harness.commit()
        harness = scene.harness.restarted()
        again = Scene(harness, is_fresh=False)
        taken.append(Steps().of(again.topic.load) / number)
        assert [one.depth for one in again.topic.subscriptions] == [1] * number
    assert taken[1] < taken[0] * 1.5, "ten times as much takes more than ten times as long"


# Stories

SEEDS = seeds(30)
NAMES = ("news", "news/a", "news/b", "news/a/c")
PATTERNS = ("news/#", "news", "news/a", "news/+", "news/#/c", "news/b/#")


class Reader:
    """A durable subscription, and what it must and may be given."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self.pattern = pattern
        self.log = 0
        self.must: set[int] = set()
        """Messages that were accepted, and not settled here."""
        self.may: set[int] = set()
        """Messages that were not accepted yet, or settled here, which may not be on disk."""
        self.done: set[int] = set()
        """Messages that were settled here."""
        self.port: MemoryConsumerPort | None = None
        self.seen = 0
        self.out: list[int] = []


class Story:
    """A topic whose subscriptions come and go, over a journal that fails and a node that dies."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = CoreHarness()
        self.window = self.random.choice((1_500, 1 << 20))
        self.readers: dict[str, Reader] = {}
        self.numbers = 0
        self.open()

    def open(self) -> None:
        core = self.harness.core
        core.window_bytes = self.window
        self.space = Space(core, "ns/shop", lambda: "id")
        self.topic = Topic(core, "news", TOPIC_LOG)
        self.space.add(self.topic)
        counter = self.harness.storage.get(Table.ENTITY, LOG_COUNTER)
        core.log_numbers.next = 2_000 if counter is None else int.from_bytes(counter, "big")
        self.topic.load()
        logs = {TOPIC_LOG, *self.topic.extra_logs()}
        # As the loader of the journal does with what the node before left unfinished.
        core.store_in_time(
            [
                Operation(table, key, None)
                for table in (*TABLES, Table.MARK)
                for key, _ in self.harness.storage.scan_all(table)
                if int.from_bytes(key[:4], "big") not in logs
            ]
        )
        self.senders = {name: self.harness.sender(self.topic, name) for name in NAMES}
        self.waiting: dict[tuple[str, int], tuple[int, list[Reader]]] = {}
        self.heard = dict.fromkeys(NAMES, 0)
        self.harness.turn()

    def send(self) -> None:
        for _ in range(self.random.choice((1, 1, 5))):
            name = self.random.choice(NAMES)
            self.numbers += 1
            wanting = [reader for reader in self.readers.values() if matches(parse(reader.pattern), name)]
            for reader in wanting:
                reader.may.add(self.numbers)
            sender: MemoryProducerPort = self.senders[name]
            payload = encode_message(b"%d" % self.numbers, header=Header(durable=True))
            self.waiting[name, sender.send(payload)] = self.numbers, wanting
        self.harness.turn()

    def subscribe(self) -> None:
        name = self.random.choice("abcdefg")
        if name in self.readers:
            return
        reader = self.readers[name] = Reader(name, self.random.choice(PATTERNS))
        self.attach(reader)

    def attach(self, reader: Reader) -> None:
        reader.port = self.harness.receiver(
            self.topic, self.random.choice((0, 2, 100)), source=reader.pattern, is_durable=True, container="c",
            name=reader.name, expiry_policy="never",
        )  # fmt: skip
        reader.log = self.topic.subscribing._lasting["c", reader.name].subscription.log_id
        reader.seen = 0
        reader.out = []
        self.harness.turn()

    def come(self) -> None:
        for reader in self.readers.values():
            if reader.port is None:
                self.attach(reader)
                return

    def settle(self) -> None:
        for reader in self.readers.values():
            if reader.port is not None and self.random.random() < 0.5:
                for _ in range(self.random.randrange(len(reader.port.unsettled) + 1)):
                    number = reader.out.pop(0)
                    reader.port.accept()
                    reader.must.discard(number)
                    reader.may.add(number)
                    reader.done.add(number)
        self.harness.turn()

    def grant(self) -> None:
        for reader in self.readers.values():
            if reader.port is not None:
                reader.port.grant(self.random.choice((1, 100)))
        self.harness.turn()

    def leave(self) -> None:
        if not self.readers:
            return
        reader = self.random.choice(list(self.readers.values()))
        if reader.port is None:
            return
        port, reader.port = reader.port, None
        if self.random.random() < 0.5:
            port.is_detached = True
            port.sink.on_detached(closed=True)
            del self.readers[reader.name]
        else:
            port.leave()
        self.harness.turn()

    def commit(self) -> None:
        if self.harness.storage.pending:
            self.harness.storage.commit(self.harness.storage.pending[0])
            self.harness.turn()

    def fail(self) -> None:
        if self.harness.storage.pending and self.random.random() < 0.4:
            self.harness.fail()
            self.harness.advance(0.2)

    def calm(self) -> None:
        for _ in range(3):
            self.harness.commit()
            self.harness.advance(1)
        self.harness.commit()
        self.look()
        self.compare()

    def crash(self) -> None:
        if self.random.random() < 0.6:
            return
        if not self.harness.storage.get(Table.ENTITY, LOG_COUNTER) or self.random.random() < 0.3:
            self.calm()
        pending = self.harness.storage.pending
        through = self.random.choice([0, *pending])
        self.look()
        self.harness = self.harness.restarted(through)
        for _, wanting in self.waiting.values():
            assert all(reader.may for reader in wanting)
        kept = {value["name"] for value in self.subscriptions()}
        # A subscription that came or went lately is there or not, as the disk has it.
        for name in [name for name in self.readers if name not in kept]:
            del self.readers[name]
        for reader in self.readers.values():
            reader.port = None
        known = {(value["name"], value["source"], value["log"]) for value in self.subscriptions()}
        self.open()
        for name, source, log in sorted(known):
            found = self.readers.get(name)
            if found is None or found.log != log:
                # It had ended.
                self.end(name, source)
                self.readers.pop(name, None)
        self.compare()

    def subscriptions(self) -> list[dict[str, Any]]:
        first, last = TOPIC_LOG.to_bytes(4, "big"), (TOPIC_LOG + 1).to_bytes(4, "big")
        return [json.loads(value) for _, value in self.harness.storage.scan(Table.SUBSCRIPTION, first, last, 1 << 30)]

    def end(self, name: str, source: str) -> None:
        port = self.harness.receiver(
            self.topic, 0, source=source, is_durable=True, container="c", name=name, expiry_policy="never"
        )
        port.is_detached = True
        port.sink.on_detached(closed=True)
        self.harness.turn()

    # What must be so

    def look(self) -> None:
        assert self.harness.faults == []
        for name, sender in self.senders.items():
            for delivery, state in sender.outcomes[self.heard[name] :]:
                number, wanting = self.waiting.pop((name, delivery))
                if state is ACCEPTED:
                    for reader in wanting:
                        if number not in reader.done:
                            reader.may.discard(number)
                            reader.must.add(number)
                else:
                    for reader in wanting:
                        reader.may.add(number)
            self.heard[name] = len(sender.outcomes)
        for reader in self.readers.values():
            if reader.port is None:
                continue
            for payload in reader.port.payloads[reader.seen :]:
                number = int(Sections(payload).body)
                assert number in reader.must | reader.may, f"{number} is not for {reader.name}"
                assert number not in reader.out, f"{number} comes twice at once to {reader.name}"
                reader.out.append(number)
            reader.seen = len(reader.port.payloads)

    def compare(self) -> None:
        """What is in memory is what a start would find, once nothing is on its way."""
        if not self.harness.core.is_idle:
            return
        copy = CoreHarness(self.harness.storage)
        self.harness.storage.listener = self.harness.core
        space = Space(copy.core, "ns/shop", lambda: "id")
        twin = Topic(copy.core, "news", TOPIC_LOG)
        space.add(twin)
        twin.load()
        for log in (twin.log, self.topic.log):
            assert isinstance(log, MessageLog)
        found = {one.log_id: one for one in twin.subscriptions}
        mine = {one.log_id: one for one in self.topic.subscriptions}
        assert found.keys() == mine.keys()
        for log_id, one in mine.items():
            twin_share = found[log_id].share
            assert one.share is not None
            assert twin_share is not None
            # What a receiver has whose commit failed goes back to the sender, and is in memory alone.
            refused = sum(
                arrival.delivery.is_refused
                for consumer in one.consumers
                if isinstance(consumer.port, MemoryConsumerPort)
                for arrival in consumer.port.unsettled
            )
            assert (found[log_id].depth, list(twin_share.held)) == (
                one.depth - refused,
                list(one.share.held),
            )
        counts = [
            {first: log._counts.get(first) for first in log._counts.within(0, 1 << 62)}
            for log in (self.topic.log, twin.log)
        ]
        assert counts[0] == counts[1]
        frames = {offset for _, _, offset in records(self.harness, Table.FRAME)}
        assert frames == set(counts[0])
        assert {offset for _, _, offset in records(self.harness, Table.HOLDER)} <= frames

    def finish(self) -> None:
        self.calm()
        for reader in self.readers.values():
            if reader.port is not None:
                reader.port.leave()
            self.attach(reader)
            assert reader.port is not None
            reader.port.grant(10_000)
            self.calm()
            assert reader.must <= set(reader.out), f"{reader.name} lacks messages"
            reader.port.accept(len(reader.port.unsettled))
        self.calm()
        assert not [(table, key) for table in TABLES for key in records(self.harness, table)]
        assert not len(self.topic.log._counts)
        assert not self.topic.log._done


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_left_behind(seed: int) -> None:
    story = Story(seed)
    happenings = [
        story.send, story.send, story.send, story.subscribe, story.come, story.settle, story.settle, story.grant,
        story.leave, story.commit, story.commit, story.fail, story.calm, story.crash,
    ]  # fmt: skip
    for _ in range(150):
        story.random.choice(happenings)()
        story.look()
    story.finish()
