"""Random lives of a stream: appended to, read, kept short, merged, failing and crashing, all at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Sections, encode_message
from enmasse.message.types import Timestamp
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.storage import Table
from enmasse.messaging.streams import merging as stream_merging
from enmasse.messaging.streams import partition_log as stream_log
from enmasse.messaging.streams import readers as stream_readers
from enmasse.messaging.streams import stream
from enmasse.testing.ports import FIRST_WALL_US, MemoryConsumerPort, MemoryProducerPort
from tests.support.stream_scene import StreamScene

STEPS = 120


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is enough for everything to happen."""
    monkeypatch.setattr(stream, "TAIL_BYTES", 2_000)
    monkeypatch.setattr(stream_merging, "RUN_FRAMES", 4)
    monkeypatch.setattr(stream_log, "RUN_FRAMES", 4)
    monkeypatch.setattr(stream_merging, "LARGE_ROWS", 30)
    monkeypatch.setattr(stream_readers, "READ_BYTES", 1_500)
    monkeypatch.setattr(stream_readers, "LEAST_READ_BYTES", 500)
    monkeypatch.setattr(stream_readers, "CHUNK_ROWS", 7)


class Reader:
    """A reader of messages and what it may get."""

    def __init__(self, port: MemoryConsumerPort, name: str, partitions: list[int]) -> None:
        self.port = port
        self.name = name
        self.since_us = 0
        self.partitions = partitions
        self.looked_at = 0
        self.last: dict[int, int] = {}
        """The latest offset by partition."""
        self.first: dict[int, int] = {}


class Story:
    """One life, told by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scene = StreamScene(self.rng.choice((1, 1, 3)))
        self.number = 0
        self.known: list[dict[int, tuple[bytes, int]]] = [{} for _ in self.scene.stream.partitions]
        """Body and time by offset, as ever seen on disk."""
        self.sender = self.new_sender()
        self.sent: dict[int, bytes] = {}
        self.heard = 0
        self.accepted: set[bytes] = set()
        self.readers: list[Reader] = []
        self.lows = [0] * len(self.known)
        self.finished: dict[tuple[str, int], int] = {}
        """How far each name may have come at most."""
        self.keeps: dict[str, int] = {}

    def new_sender(self) -> MemoryProducerPort:
        return self.scene.harness.sender(self.scene.stream)

    # Steps

    def send(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 40))):
            if self.sender.credit <= 0:
                break
            body = b"%d" % self.number
            self.number += 1
            self.sent[self.sender.send(encode_message(body))] = body

    def turn(self) -> None:
        self.scene.turn()

    def commit(self) -> None:
        self.scene.turn()
        storage = self.scene.harness.storage
        storage.commit()
        self.scene.turn()

    def fail(self) -> None:
        self.scene.turn()
        storage = self.scene.harness.storage
        if storage.pending:
            storage.fail()
            self.pause(PAUSE_S)

    def answer(self) -> None:
        self.scene.harness.storage.answer_reads(self.rng.choice((None, 1)))
        self.scene.turn()

    def pause(self, seconds: float | None = None) -> None:
        harness = self.scene.harness
        harness.clock.advance(self.rng.choice((0.001, 1.0, 20.0)) if seconds is None else seconds)
        harness.core.handle_deadline(harness.clock.now)
        self.scene.turn()

    def keep(self) -> None:
        self.keeps = self.rng.choice(
            (
                {},
                {"retention_bytes": 2_000},
                {"retention_ms": 30_000},
                {"retention_bytes": 50, "retention_ms": 90_000},
            )
        )
        self.scene.options = dict(self.keeps)
        self.scene.stream.configure(**self.keeps)

    def crash(self) -> None:
        self.look()
        pending = self.scene.harness.storage.pending
        self.scene = self.scene.restart(self.rng.choice([0, *pending]))
        self.readers = []
        self.sender = self.new_sender()
        self.sent, self.heard = {}, 0

    def read(self) -> None:
        rng = self.rng
        count = len(self.known)
        partition = rng.choice((None, rng.randrange(count)))
        ends = [found.visible for found in self.scene.stream.partitions]
        start = rng.choice(("first", "last", "next", rng.randrange(max(ends) + 3), "time", None))
        if start == "time":
            start = Timestamp((FIRST_WALL_US + int(rng.random() * self.scene.harness.clock.now * 1e6)) // 1000)
        name = rng.choice((None, None, "a", "b"))
        filters = {"enmasse:partition": partition, "enmasse:start": start, "enmasse:consumer": name}
        chosen = {key: value for key, value in filters.items() if value is not None}
        port = self.scene.harness.receiver(self.scene.stream, 0, filters=chosen)
        reader = Reader(port, name or "", list(range(count)) if partition is None else [partition])
        if isinstance(start, Timestamp):
            reader.since_us = start * 1_000
        for index in reader.partitions:
            reader.first[index] = self.begin(index, start, name)
        self.readers.append(reader)

    def begin(self, index: int, start: Any, name: str | None) -> int:
        """The first offset that a new reader may get."""
        partition = self.scene.stream.partitions[index]
        if start is None:
            start = partition.consumers.reached.get(name or "", "next")
        if start == "first":
            return partition.low
        if start == "last":
            return max(partition.low, partition.visible - 1)
        if start == "next":
            return partition.visible
        if isinstance(start, Timestamp):
            return partition.low
        return max(int(start), partition.low)

    def expected(self, reader: Reader, index: int) -> int:
        """The offset that a reader is to get next of a partition."""
        if index in reader.last:
            return reader.last[index] + 1
        first, since_us = reader.first[index], reader.since_us
        later = [offset for offset, (_, ts) in self.known[index].items() if ts >= since_us and offset >= first]
        return min(later, default=first) if since_us else first

    def grant(self) -> None:
        if self.readers:
            reader = self.rng.choice(self.readers)
            reader.port.grant(self.rng.choice((1, 3, 50, 1_000)))
            self.scene.turn()

    def settle(self) -> None:
        if self.readers:
            reader = self.rng.choice(self.readers)
            port = reader.port
            if port.unsettled:
                count = self.rng.randrange(len(port.unsettled)) + 1
                at = self.rng.randrange(len(port.unsettled) - count + 1)
                state = self.rng.choice((ACCEPTED, ACCEPTED, ACCEPTED, Rejected(), RELEASED))
                for arrival in port.unsettled[at : at + count] if state is not RELEASED else ():
                    annotations = Sections(arrival.payload).message_annotations
                    place = (reader.name, annotations["x-opt-partition"])
                    self.finished[place] = max(self.finished.get(place, 0), annotations["x-opt-offset"] + 1)
                port.settle(state, count, at)

    def leave(self) -> None:
        self.look()
        if self.readers:
            self.readers.pop(self.rng.randrange(len(self.readers))).port.leave()

    # Checks

    def look_at_disk(self) -> None:
        scene = self.scene
        for index, partition in enumerate(scene.stream.partitions):
            frames = scene.stored(index)
            known = self.known[index]
            for frame in frames:
                cells = zip(frame.cells(frame.bodies), frame.timestamps(), strict=True)
                for offset, cell in enumerate(cells, frame.first_offset):
                    assert known.setdefault(offset, cell) == cell, "an offset means one message for ever"
            firsts = [int.from_bytes(key[-8:], "big") for key, _ in scene.records(Table.TIME, index)]
            assert firsts == [frame.first_offset for frame in frames]
            ends = [frame.next_offset for frame in frames]
            assert firsts[1:] == ends[:-1], "no gap between frames"
            times = [ts for _, ts in (known[offset] for offset in sorted(known))]
            assert times == sorted(times)
            assert partition.low >= self.lows[index], "a log never begins lower than before"
            self.lows[index] = partition.low
            if scene.harness.core.is_idle and frames:
                assert (firsts[0], ends[-1]) == (partition.low, partition.visible)

    def look(self) -> None:
        self.look_at_disk()
        stored = {body for known in self.known for body, _ in known.values()}
        for delivery, state in self.sender.outcomes[self.heard :]:
            body = self.sent.pop(delivery)
            assert (state is ACCEPTED) == (body in stored)
        self.heard = len(self.sender.outcomes)
        for reader in self.readers:
            for arrival in reader.port.arrivals[reader.looked_at :]:
                sections = Sections(arrival.payload)
                index = sections.message_annotations["x-opt-partition"]
                offset = sections.message_annotations["x-opt-offset"]
                body, ts = self.known[index][offset]
                assert (sections.body, sections.message_annotations["x-opt-enqueued-time"]) == (body, ts // 1000)
                expected = self.expected(reader, index)
                assert offset == expected or expected < offset <= self.lows[index], (
                    "nothing is left out that is there"
                )
                reader.last[index] = offset
            reader.looked_at = len(reader.port.arrivals)
        for found in self.scene.stream.counts()["consumers"]:
            assert found["offset"] <= self.finished[found["name"], found["partition"]]
        assert self.scene.harness.faults == []

    def quiet(self) -> None:
        """Let everything come to rest, and see each commit on the way."""
        storage = self.scene.harness.storage
        self.scene.turn()
        while storage.pending or storage.waiting_reads:
            storage.commit()
            self.look()
            self.scene.turn()
        self.look()

    def end(self) -> None:
        """Everything that is there is read in the end."""
        self.pause(PAUSE_S)
        for _ in range(3):
            self.quiet()
            self.pause(1.0)
        for reader in self.readers:
            reader.port.grant(100_000)
        self.quiet()
        partitions = self.scene.stream.partitions
        for reader in self.readers:
            for index in reader.partitions:
                end = partitions[index].visible
                reached = reader.last.get(index, -1) + 1
                is_nothing_there = max(reader.first[index], partitions[index].low) >= end
                is_nothing_later = self.known[index].get(end - 1, (b"", 0))[1] < reader.since_us
                assert reached == end or is_nothing_there or is_nothing_later
        counts = self.scene.stream.counts()
        assert counts["bytesStored"] == sum(partition.bytes_stored for partition in partitions)
        for index in range(len(self.known)):
            size = sum(len(p) + 20 for frame in self.scene.stored(index) for p in frame.payloads())
            assert partitions[index].bytes_stored == size
        again = self.scene.restart().stream.counts()
        for name in ("messagesStored", "bytesStored", "partitionMarks", "consumers"):
            assert counts[name] == again[name]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_offsets_mean_what_they_meant_and_readers_miss_nothing(seed: int) -> None:
    story = Story(seed)
    weights = {
        story.send: 30, story.turn: 10, story.commit: 20, story.fail: 3, story.answer: 15, story.pause: 4,
        story.keep: 2, story.crash: 2, story.read: 6, story.grant: 15, story.settle: 8, story.leave: 2,
    }  # fmt: skip
    for _ in range(STEPS):
        step = story.rng.choices(list(weights), list(weights.values()))[0]
        step()
        story.look()
    story.end()
