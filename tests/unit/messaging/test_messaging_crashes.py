"""Whatever fails and whenever the node dies: what was accepted is there, what was settled is gone.

Each seed is a story: messages are sent, received and settled, batches are committed in part, fail, or reach
the disk without an answer, and nodes die in between. A model kept beside it says what must hold.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Header, Sections, encode_message, with_header
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.log.entry import ROW_BYTES, settled_rows
from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.messaging.streams.stream import Stream
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from tests.support.chance import seeds

SEEDS = seeds(40)
STEPS = 120


class Story:
    """What both kinds of address live through."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = CoreHarness()
        self.open()

    def open(self) -> None:
        """Take up what the storage holds."""
        raise NotImplementedError

    def look(self) -> None:
        """Hear what the address said, and check what must hold now."""
        raise NotImplementedError

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def journal(self) -> None:
        """Commit a part of what waits, or let the oldest batch fail."""
        pending = self.harness.storage.pending
        if pending and self.chance(0.25):
            self.harness.storage.fail()
        elif pending:
            self.harness.storage.commit(self.random.choice(pending))
        if self.chance(0.5):
            self.harness.advance(self.random.choice([0.0, PAUSE_S]))

    def crash(self) -> None:
        """The node dies; of the batches on their way some reached the disk."""
        pending = self.harness.storage.pending
        through = self.random.choice([0, *pending])
        self.harness = self.harness.restarted(through)
        self.open()

    def calm_down(self) -> None:
        """Commit everything."""
        while not self.harness.core.is_idle:
            self.harness.commit()
            self.harness.advance(PAUSE_S)


class QueueStory(Story):
    """One sender numbers its messages; receivers come and go."""

    def __init__(self, seed: int) -> None:
        self.next = 0
        self.live: set[int] = set()
        """What the queue must hold."""
        self.durable: set[int] = set()
        self.accepted: set[int] = set()
        """Durable messages that the sender was told are safe."""
        self.consumed: set[int] = set()
        """What receivers finished with."""
        self.gone: set[int] = set()
        """Consumed messages whose settlement is on disk for certain."""
        super().__init__(seed)

    def open(self) -> None:
        core, storage = self.harness.core, self.harness.storage
        self.queue = Queue(core, "orders", 1)
        records = [
            (Frame(value), storage.get(Table.SETTLED, key))
            for key, value in storage.scan(Table.FRAME, *log_range(1), 1 << 30)
        ]
        self.queue.load()
        on_disk = [
            number(payload)
            for frame, settled in records
            if not frame.is_volatile
            for row, payload in enumerate(frame.payloads())
            if row not in settled_rows(settled or b"")
        ]
        assert on_disk == sorted(set(on_disk)), "stored in the order of arrival, and once"
        assert self.accepted - self.consumed <= set(on_disk), "nothing that was accepted is lost"
        assert not self.gone & set(on_disk), "nothing that was settled for certain comes again"
        self.live = set(on_disk)
        self.consumed -= self.live
        self.sender: MemoryProducerPort = self.harness.sender(self.queue)
        self.sent: dict[int, int] = {}
        """Delivery id to number."""
        self.heard = 0
        self.receivers: list[MemoryConsumerPort] = []
        self.seen: dict[MemoryConsumerPort, int] = {}
        self.highest = -1
        """The highest number handed out so far by this node."""
        self.harness.turn()

    def send(self) -> None:
        durable, settled = self.chance(0.8), self.chance(0.2)
        delivery = self.sender.send(
            encode_message(b"%d" % self.next, header=Header(durable=durable)), settled=settled
        )
        self.live.add(self.next)
        if durable:
            self.durable.add(self.next)
        if not settled:
            self.sent[delivery] = self.next
        self.next += 1

    def receive(self) -> None:
        if len(self.receivers) < 3 and self.chance(0.3):
            self.receivers.append(self.harness.receiver(self.queue))
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            if self.chance(0.1):
                receiver.leave()
                self.receivers.remove(receiver)
            elif self.chance(0.2):
                receiver.block(self.chance(0.3))
            else:
                receiver.grant(self.random.randrange(6))

    def settle(self) -> None:
        for receiver in self.receivers:
            while receiver.unsettled and self.chance(0.6):
                at = self.random.randrange(len(receiver.unsettled))
                body = number(receiver.unsettled[at].payload)
                state: Any = self.random.choice([ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, FAILED, None, Rejected()])
                if state is ACCEPTED or isinstance(state, Rejected):
                    self.live.discard(body)
                    self.consumed.add(body)
                receiver.settle(state, at=at)

    def look(self) -> None:
        for delivery, state in self.sender.outcomes[self.heard :]:
            body = self.sent.pop(delivery)
            if state is RELEASED:
                assert body not in self.consumed
                self.live.discard(body)
            else:
                assert state is ACCEPTED
                if body in self.durable:
                    self.accepted.add(body)
        self.heard = len(self.sender.outcomes)
        fresh = []
        for receiver in self.receivers:
            seen = self.seen.get(receiver, 0)
            self.seen[receiver] = len(receiver.arrivals)
            fresh += [number(arrival.payload) for arrival in receiver.arrivals[seen:]]
        first_time = sorted(body for body in fresh if body > self.highest)
        if first_time:
            self.highest = first_time[-1]
        assert self.harness.faults == []
        assert self.queue.depth == len(self.live)
        counts = self.queue.counts()
        assert counts["messagesStored"] == len(self.live)
        # What is on disk only is counted by guess after a restart.
        if self.queue.pager is not None and self.queue.pager.at is None:
            assert counts["bytesStored"] == sum(size(body, body in self.durable) for body in self.live)
        if self.harness.core.is_idle:
            self.gone |= self.consumed

    def finish(self) -> None:
        for receiver in self.receivers:
            receiver.leave()
        self.look()
        self.calm_down()
        self.look()
        assert not self.sender.unsettled, "every sender hears what became of its message"
        last = self.harness.receiver(self.queue, 100_000)
        self.harness.turn()
        bodies = [number(payload) for payload in last.payloads]
        assert bodies == sorted(self.live)
        last.accept(len(bodies))
        self.calm_down()
        storage = self.harness.storage
        for table in (Table.FRAME, Table.SETTLED):
            assert storage.scan(table, *log_range(1), 1 << 30) == []
        assert self.harness.core.gathered_bytes == 0


def number(payload: bytes) -> int:
    return int(Sections(payload).body)


def size(body: int, durable: bool) -> int:
    return len(with_header(encode_message(b"%d" % body), Header(durable=durable))) + ROW_BYTES


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_loses_nothing_it_accepted_and_repeats_nothing_it_settled(seed: int) -> None:
    story = QueueStory(seed)
    for _ in range(STEPS):
        action = story.random.choices(
            [story.send, story.receive, story.settle, story.harness.turn, story.journal, story.crash],
            [6, 3, 4, 3, 3, 0.3],
        )[0]
        action()
        story.look()
    story.finish()


class StreamStory(Story):
    """An ordinary sender, and an idempotent one that sends again whatever it has no answer for.

    After a crash the latter does so in order and before anything new, as every idempotent sender must: the
    node that came up does not know what the dead one never stored.
    """

    def __init__(self, seed: int) -> None:
        self.next = 0
        self.accepted: list[list[int]] = [[], []]
        """Numbers of the ordinary sender that were accepted, by partition, in order."""
        self.sequence = 0
        self.unanswered: list[int] = []
        """Sequences that the idempotent sender has no accepted for."""
        self.on_disk: list[list[int]] = [[], []]
        super().__init__(seed)

    def rows(self) -> list[list[int]]:
        """What the partitions hold on disk, by offset."""
        found = []
        for partition in range(2):
            bodies: list[int] = []
            for _, value in self.harness.storage.scan(Table.FRAME, *log_range(2, partition), 1 << 30):
                frame = Frame(value)
                assert frame.first_offset == len(bodies), "offsets are consecutive"
                bodies += [int(body) for body in frame.cells(frame.bodies)]
            found.append(bodies)
        return found

    def open(self) -> None:
        self.stream = Stream(self.harness.core, "log", 2, uid="u", partitions=2)
        self.stream.load()
        rows = self.rows()
        assert [p.next_offset for p in self.stream.partitions] == [len(bodies) for bodies in rows]
        for before, after in zip(self.on_disk, rows, strict=True):
            assert after[: len(before)] == before, "what was on disk stays where it was"
        self.sender = self.harness.sender(self.stream)
        self.frames = self.harness.sender(self.stream, capabilities=(FRAMES_CAPABILITY,))
        self.sent: dict[int, int] = {}
        self.sent_frames: dict[int, int] = {}
        self.heard = self.heard_frames = 0
        self.again = sorted(self.unanswered)
        self.reader = self.harness.receiver(self.stream, 1_000, presettle=True, filters={"enmasse:start": "first"})
        self.harness.turn()

    def send(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            if self.sender.credit:
                self.sent[self.sender.send(encode_message(b"%d" % self.next))] = self.next
                self.next += 1

    def send_frame(self) -> None:
        """A new frame, or an old one again: one that has no answer, or one that has."""
        if not self.frames.credit:
            return
        if self.again:
            sequence = self.again.pop(0)
        elif self.unanswered and self.chance(0.5):
            sequence = self.random.choice(self.unanswered)
        elif self.sequence and self.chance(0.2):
            sequence = self.random.randrange(self.sequence)
        else:
            sequence = self.sequence
            self.sequence += 1
            self.unanswered.append(sequence)
        self.put_frame(sequence)

    def put_frame(self, sequence: int) -> None:
        body = b"%d" % (-1 - sequence)
        head = b"\x00\x53\x75\xa0" + bytes([len(body)])
        data = encode_frame(0, [0], [b""], [head], [body], producer=b"p", sequence=sequence)
        self.sent_frames[self.frames.send(data, message_format=FRAME_FORMAT)] = sequence

    def look(self) -> None:
        rows = self.rows()
        where = {body: partition for partition, bodies in enumerate(rows) for body in bodies}
        assert len(where) == sum(map(len, rows)), "nothing is stored twice"
        for delivery, state in self.sender.outcomes[self.heard :]:
            body = self.sent.pop(delivery)
            if state is ACCEPTED:
                self.accepted[where[body]].append(body)
            else:
                assert state is RELEASED
                assert body not in where, "what was released is not stored"
        self.heard = len(self.sender.outcomes)
        for delivery, state in self.frames.outcomes[self.heard_frames :]:
            sequence = self.sent_frames.pop(delivery)
            if state is ACCEPTED:
                assert -1 - sequence in where, "what was accepted is stored"
                if sequence in self.unanswered:
                    self.unanswered.remove(sequence)
        self.heard_frames = len(self.frames.outcomes)
        self.on_disk = rows
        for accepted, bodies in zip(self.accepted, rows, strict=True):
            places = [bodies.index(body) for body in accepted]
            assert places == sorted(places), "accepted in order"
        visible = [partition.visible for partition in self.stream.partitions]
        assert visible == [len(bodies) for bodies in rows], "readers see what is committed"
        assert self.stream.counts()["messagesStored"] == sum(visible)
        assert self.harness.faults == []
        self.check_reader(rows)
        if self.harness.core.is_idle:
            assert self.stream.bytes_stored == sum(partition.bytes_stored for partition in self.stream.partitions)
            marks = self.harness.storage.scan(Table.MARK, *log_range(2), 1 << 30)
            assert self.stream.bytes_stored == sum(int.from_bytes(mark[16:24], "big") for _, mark in marks)

    def check_reader(self, rows: list[list[int]]) -> None:
        """A reader that takes everything sees every row in its place."""
        seen: list[list[int]] = [[], []]
        for payload in self.reader.payloads:
            sections = Sections(payload)
            partition = sections.message_annotations["x-opt-partition"]
            assert sections.message_annotations["x-opt-offset"] == len(seen[partition])
            seen[partition].append(int(sections.body))
        for read, bodies in zip(seen, rows, strict=True):
            assert read == bodies[: len(read)]
        if self.harness.core.is_idle and not self.harness.turns_requested:
            assert seen == rows

    def finish(self) -> None:
        self.calm_down()
        self.look()
        for sequence in sorted(self.unanswered):
            self.put_frame(sequence)
            self.calm_down()
            self.look()
        assert self.unanswered == []
        own = [-1 - body for bodies in self.rows() for body in bodies if body < 0]
        assert sorted(own) == list(range(self.sequence)), "every frame is stored exactly once"
        assert not self.sender.unsettled
        assert not self.frames.unsettled


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_loses_nothing_it_accepted_and_stores_nothing_twice(seed: int) -> None:
    story = StreamStory(seed)
    for _ in range(STEPS):
        action = story.random.choices(
            [story.send, story.send_frame, story.harness.turn, story.journal, story.crash],
            [4, 4, 3, 3, 0.3],
        )[0]
        action()
        story.look()
    story.finish()
