"""Receivers on a queue that is deeper than memory: each finds what lies on disk for it, and none waits long."""

from __future__ import annotations

import pytest

from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.messaging.queues.operations import Choice, purge
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.selectors.selector import selector_of
from enmasse.testing.ports import FIRST_WALL_US, CoreHarness, MemoryConsumerPort
from tests.unit.messaging import topic_scene

MANY = 300

SELECTOR_FILTER = "apache.org:selector-filter:string"


def message(number: int, colour: str) -> bytes:
    header, properties = Header(durable=True), Properties(subject=colour)
    return encode_message(b"%03d" % number, header=header, properties=properties)


def numbers(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(arrival.payload).body) for arrival in port.arrivals]


class Scene:
    """A queue of red messages, most of them on disk, with a blue and a green one far behind."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        self.harness.core.window_bytes = 8_000
        self.queue = Queue(self.harness.core, "orders", 1)
        self.queue.load()
        sender = self.harness.sender(self.queue)
        self.harness.turn()
        for number in range(MANY):
            colour = {200: "blue", 250: "green"}.get(number, "red")
            sender.send(message(number, colour))
            self.harness.commit()

    def receiver(self, colour: str, credit: int) -> MemoryConsumerPort:
        filters = {SELECTOR_FILTER: f"JMSType = '{colour}'"}
        port = self.harness.receiver(self.queue, credit, filters=filters)
        self.harness.commit()
        return port


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_one_that_comes_after_another_has_looked_in_vain_finds_its_own(scene: Scene) -> None:
    assert numbers(scene.receiver("white", 10)) == []
    assert numbers(scene.receiver("blue", 10)) == [200]


def test_one_that_had_no_credit_while_another_looked_finds_its_own_later(scene: Scene) -> None:
    waiting = scene.receiver("blue", 0)
    assert numbers(scene.receiver("green", 10)) == [250]
    waiting.grant(1)
    scene.harness.commit()
    assert numbers(waiting) == [200]


def test_what_was_sought_for_one_that_left_is_there_for_the_next_of_its_kind(scene: Scene) -> None:
    first = scene.receiver("blue", 10)
    assert numbers(first) == [200]
    first.leave()
    assert numbers(scene.receiver("blue", 10)) == [200]


def step(harness: CoreHarness) -> None:
    """What waits is read, a page for each who asked, and there is a turn."""
    harness.storage.answer_reads()
    harness.core.run_turn(harness.clock.now, FIRST_WALL_US)


def test_the_first_message_after_a_restart_does_not_wait_until_the_disk_was_looked_through(scene: Scene) -> None:
    harness = scene.harness.restarted()
    harness.core.window_bytes = 8_000
    queue = Queue(harness.core, "orders", 1)
    queue.load()
    step(harness)
    assert queue.pager is not None
    receiver = harness.receiver(queue, 1)
    for _ in range(4):
        step(harness)
    assert numbers(receiver) == [0]
    assert queue.pager.sweeps, "what has expired is still being looked for"
    harness.commit()
    assert not queue.pager.sweeps


def test_a_look_through_the_disk_ends_while_a_receiver_takes_all_it_can(scene: Scene) -> None:
    receiver = scene.harness.receiver(scene.queue, 1)
    told: list[int] = []
    purge(
        scene.queue, Choice(selector_of({SELECTOR_FILTER: "JMSType <> 'red'"})), lambda count, _: told.append(count)
    )
    while not told:
        receiver.accept(len(receiver.unsettled))
        receiver.grant(1)
        step(scene.harness)
        while scene.harness.storage.pending:
            scene.harness.storage.commit()
    assert told == [2]
    assert len(receiver.arrivals) < MANY - 2


@pytest.mark.parametrize("reads", range(3))
def test_what_is_settled_while_its_frame_is_written_does_not_come_again_with_its_page(reads: int) -> None:
    harness = CoreHarness()
    harness.core.window_bytes = 2_000
    scene = topic_scene.Scene(harness)
    made = scene.subscription("a")
    scene.subscription("b")
    sender = scene.sender()
    for number in range(60):
        for colour in ("blue", "blue") if number == 40 else ("red",):
            sender.send(message(number, colour))
        harness.commit()
    blue = scene.receiver("a", 10, filters={SELECTOR_FILTER: "JMSType = 'blue'"})
    assert numbers(blue) == [40, 40]
    whole = harness.receiver(made, 100)
    for _ in range(reads):
        harness.core.run_turn(harness.clock.now, FIRST_WALL_US)
        harness.storage.answer_reads(1)
        whole.accept(len(whole.unsettled))
    blue.accept(1)
    harness.core.run_turn(harness.clock.now, FIRST_WALL_US)
    blue.accept(1)
    while harness.storage.pending:
        harness.storage.commit()
    harness.storage.answer_reads()
    harness.commit()
    assert numbers(blue) == [40, 40]
    assert numbers(whole) == [number for number in range(60) if number != 40]
    assert made.depth == len(whole.unsettled)
