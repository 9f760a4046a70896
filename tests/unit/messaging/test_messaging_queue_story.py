"""Random stories of a queue larger than its memory: nothing lost, nothing twice, everybody gets what is theirs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import Modified
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import ULong
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.queues.operations import Choice, purge
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, Selector
from enmasse.messaging.space import Space
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from tests.support.chance import seeds

SEEDS = seeds(30)
STEPS = 150
COLOURS = ("red", "blue", "green")
SELECTORS = (None, None, "colour = 'red'", "colour <> 'red'", "n > 50 OR JMSPriority > 6")


class Note:
    """What the story knows of a message."""

    def __init__(self, number: int, payload: bytes, sent_at: float, ttl: float, delay: float) -> None:
        self.number = number
        self.payload = payload
        self.expires = sent_at + ttl if ttl else float("inf")
        self.due = self.scheduled = sent_at + delay
        sections = Sections(payload)
        self.durable = sections.header.durable
        self.group = sections.properties.group_id
        self.is_plain = sections.header.priority == 4 and self.group is None and not delay
        self.holder: Reader | None = None
        self.deliveries = 0
        self.attempts = 0


class Reader(MemoryConsumerPort):
    """A receiver's link, which notes in what order messages come to all of them."""

    def __init__(self, story: Story, selector: str | None) -> None:
        super().__init__()
        self.selector = None if selector is None else Selector(selector)
        self.story = story
        options = AttachOptions(filters={} if selector is None else {SELECTOR_FILTER: selector})
        self.sink = story.queue.attach_consumer(self, options)

    def selects(self, note: Note) -> bool:
        return self.selector is None or self.selector.matches(note.payload, note.attempts)

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        super().send(delivery, payload, settled, message_format)
        self.story.fresh.append((number_of(payload), self, payload))


class Story:
    """One queue, its messages, and its receivers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.options = AddressSettings(
            storage=self.random.choice(("message", "message", "durable")),
            redelivery_delay=self.random.choice((0, 0, 2_000)),
            max_attempts=self.random.choice((0, 3)),
            deadletter="dead",
            expiry="late",
        )
        self.dead: set[int] = set()
        """What has failed too often."""
        self.spent: set[int] = set()
        """What a receiver had for the last time when the node died: a dead letter once it would be handed out."""
        self.is_careful = seed % 2 == 1
        self.unsure: set[int] = set()
        """What had expired when it was purged or forgotten, so that either may have come first."""
        self.harness = CoreHarness()
        self.notes: dict[int, Note] = {}
        self.selectors = self.random.choice((SELECTORS, (None,)))
        self.is_in_order = self.selectors == (None,)
        """What a selector had brought into memory ahead of its turn, and did not take, comes early for others too."""
        self.readers: list[Reader] = []
        self.fresh: list[tuple[int, Reader, bytes]] = []
        """What came since the last look, in order."""
        self.owners: dict[str, Reader] = {}
        self.former: dict[str, list[Reader]] = {}
        """Owners of groups that have left."""
        self.count = 0
        self.last_plain = -1
        self.open_queue()

    def open_queue(self) -> None:
        self.harness.core.is_careful = self.is_careful
        space = Space(self.harness.core, "ns/shop", lambda: "id")
        self.queue = Queue(self.harness.core, "orders", 7, options=self.options)
        kept = AddressSettings(storage="durable")
        self.others = {
            name: Queue(self.harness.core, name, log, options=kept) for name, log in (("dead", 8), ("late", 9))
        }
        for queue in (self.queue, *self.others.values()):
            space.add(queue)
        self.queue.window = self.random.choice((1_500, 5_000, 1 << 20))
        for queue in (self.queue, *self.others.values()):
            queue.load()
        self.sender = self.harness.sender(self.queue)
        self.harness.turn()

    @property
    def now(self) -> float:
        return self.harness.clock.now

    # What happens

    def send(self) -> None:
        for _ in range(self.random.choice((1, 3, 20))):
            number = self.count
            self.count += 1
            pick = self.random.random
            ttl = self.random.choice((5.0, 40.0)) if pick() < 0.15 else 0.0
            delay = self.random.choice((1.0, 10.0)) if pick() < 0.1 else 0.0
            payload = encode_message(
                b"x" * self.random.choice((10, 200)),
                header=Header(
                    durable=pick() < 0.6,
                    priority=self.random.randrange(10) if pick() < 0.2 else 4,
                    ttl=round(ttl * 1000) if ttl else None,
                ),
                message_annotations={"x-opt-delivery-delay": ULong(round(delay * 1000))} if delay else None,
                properties=Properties(group_id=self.random.choice("abc")) if pick() < 0.2 else None,
                application_properties={"n": number, "colour": self.random.choice(COLOURS)},
            )
            self.notes[number] = Note(number, payload, self.now, ttl, delay)
            self.sender.send(payload)
        self.harness.turn()

    def attach(self) -> None:
        reader = Reader(self, self.random.choice(self.selectors))
        self.readers.append(reader)
        reader.grant(self.random.choice((0, 1, 5, 50)))
        self.harness.turn()

    def grant(self) -> None:
        if self.readers:
            self.random.choice(self.readers).grant(self.random.choice((0, 1, 10, 100)))
            self.harness.turn()

    def drain(self) -> None:
        if self.readers:
            self.random.choice(self.readers).drain(self.random.choice((1, 30)))
            self.harness.turn()

    def settle(self) -> None:
        for reader in self.readers:
            for _ in range(self.random.randrange(len(reader.unsettled) + 1)):
                self.settle_one(reader, self.random.choice(("accept", "accept", "accept", "release", "fail")))
        self.harness.turn()

    def settle_one(self, reader: Reader, how: str) -> None:
        self.look()
        note = self.notes[number_of(reader.unsettled[0].payload)]
        assert note.holder is reader
        note.holder = None
        if how == "accept":
            del self.notes[note.number]
            reader.accept()
        elif how == "release":
            reader.release()
        else:
            self.failed(note)
            reader.settle(Modified(delivery_failed=True))

    def failed(self, note: Note) -> None:
        note.attempts += 1
        if note.attempts == self.options.max_attempts:
            self.dead.add(note.number)
            del self.notes[note.number]
        elif self.options.redelivery_delay:
            note.due = self.now + self.options.redelivery_delay / 1_000

    def leave(self) -> None:
        if self.readers:
            reader = self.readers.pop(self.random.randrange(len(self.readers)))
            for arrival in reader.unsettled:
                note = self.notes[number_of(arrival.payload)]
                note.holder = None
                self.failed(note)
            for group in [group for group, owner in self.owners.items() if owner is reader]:
                del self.owners[group]
                self.former.setdefault(group, []).append(reader)
            reader.leave()
            self.harness.turn()

    def commit(self) -> None:
        self.harness.commit()

    def wait(self) -> None:
        self.harness.commit()
        self.harness.advance(self.random.choice((0.5, 3.0, 20.0)))
        self.harness.commit()

    def purge(self) -> None:
        self.harness.commit()
        self.look()
        soon = self.now + 1
        if any(self.now < time <= soon for note in self.notes.values() for time in (note.due, note.expires)):
            return
        selector = Selector("colour = 'green' AND n > 30")
        counts: list[int] = []
        purge(self.queue, Choice(selector), lambda count, _problem: counts.append(count))
        self.harness.commit()
        self.harness.advance(0.5)
        self.harness.commit()
        chosen = [
            note
            for note in self.notes.values()
            if note.holder is None and selector.matches(note.payload, note.attempts)
        ]
        # What has expired on disk may not have been looked for yet.
        late = sum(1 for note in chosen if note.expires <= self.now)
        assert len(counts) == 1
        assert len(chosen) - late <= counts[0] <= len(chosen) + len(self.spent)
        for note in chosen:
            del self.notes[note.number]
            if note.expires <= self.now:
                self.unsure.add(note.number)

    def browse(self) -> None:
        self.harness.commit()
        self.look()
        browser = self.harness.receiver(self.queue, 0, browse=True, presettle=True)
        browser.drain(10_000)
        self.harness.turn()
        self.look()
        shown = [number_of(payload) for payload in browser.payloads]
        assert len(shown) == len(set(shown)), "a browser is shown something twice"
        free = {number for number, note in self.notes.items() if note.holder is None}
        assert set(shown) <= free | self.spent, "a browser is shown what is not there"
        certain = {n for n in free if self.notes[n].due <= self.now and self.notes[n].expires == float("inf")}
        assert certain <= set(shown), "a browser is not shown everything"
        browser.leave()

    def restart(self) -> None:
        if self.random.random() < 0.4:
            self.harness.commit()
            self.look()
            clock = self.harness.clock.now
            self.harness = self.harness.restarted()
            self.harness.clock.advance(clock)
            self.readers = []
            self.owners = {}
            for note in list(self.notes.values()):
                if note.holder is not None:
                    note.attempts += 1
                note.holder = None
                note.due = note.scheduled
                if not note.durable and self.options.storage == "message":
                    del self.notes[note.number]
                    if note.expires <= self.now:
                        self.unsure.add(note.number)
                elif note.attempts == (self.options.max_attempts or None):
                    self.spent.add(note.number)
                    del self.notes[note.number]
            self.open_queue()

    # What must be so

    def look(self) -> None:
        """See what has come since."""
        assert self.harness.faults == []
        fresh, self.fresh = self.fresh, []
        for number, reader, payload in fresh:
            assert number in self.notes, f"{number} comes again"
            note = self.notes[number]
            assert note.holder is None, f"{number} is with two receivers"
            note.holder = reader
            assert note.due <= self.now + 0.001, f"{number} comes too early"
            assert Sections(payload).header.delivery_count == note.attempts
            if reader.selector is not None:
                assert reader.selector.matches(note.payload, note.attempts), f"{number} was not selected"
            if note.group is not None:
                self.look_at_group(note, reader)
            if self.is_in_order and note.is_plain and not note.deliveries:
                assert number > self.last_plain, f"{number} comes after {self.last_plain}"
                self.last_plain = number
            note.deliveries += 1

    def look_at_group(self, note: Note, reader: Reader) -> None:
        assert note.group is not None
        if note.group not in self.owners:
            # What an owner does not select goes to others, which may have it before the owner has any.
            if all(other.selects(note) for other in (*self.readers, *self.former.get(note.group, ()))):
                self.owners[note.group] = reader
            return
        owner = self.owners[note.group]
        assert owner is reader or not owner.selects(note), f"{note.number} left its group"

    def finish(self) -> None:
        self.harness.commit()
        self.look()
        for reader in list(self.readers):
            while reader.unsettled:
                self.settle_one(reader, "accept")
            reader.leave()
        self.readers = []
        self.owners = {}
        self.harness.commit()
        self.harness.advance(100)
        self.harness.commit()
        late = {number for number, note in self.notes.items() if note.expires <= self.now}
        for number in late:
            del self.notes[number]
        assert len(self.notes) <= self.queue.depth <= len(self.notes) + len(self.spent)
        port = self.harness.receiver(self.queue, 10_000)
        self.harness.commit()
        assert sorted(number_of(payload) for payload in port.payloads) == sorted(self.notes)
        port.accept(len(port.unsettled))
        self.harness.commit()
        assert self.dead <= self.numbers_in("dead") <= self.dead | self.spent
        assert late <= self.numbers_in("late") <= late | self.unsure | self.spent
        assert (self.queue.depth, self.queue.bytes_stored) == (0, 0)
        assert self.harness.faults == []

    def numbers_in(self, name: str) -> set[int]:
        """What another queue holds, each message once."""
        port = self.harness.receiver(self.others[name], 10_000)
        self.harness.commit()
        found = [number_of(payload) for payload in port.payloads]
        assert len(found) == len(set(found))
        return set(found)


def number_of(payload: bytes) -> int:
    number: int = Sections(payload).application_properties["n"]
    return number


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_a_deep_queue_gives_everybody_what_is_theirs_and_nothing_twice(seed: int) -> None:
    story = Story(seed)
    happenings: list[Any] = [
        story.send, story.send, story.attach, story.grant, story.grant, story.drain, story.settle, story.settle,
        story.leave, story.commit, story.wait, story.purge, story.browse, story.restart,
    ]  # fmt: skip
    for _ in range(STEPS):
        story.random.choice(happenings)()
        story.look()
    story.finish()
