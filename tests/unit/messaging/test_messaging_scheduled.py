"""Scheduled messages of a queue that is deeper than memory: they wait on disk and hold up nobody."""

from __future__ import annotations

import pytest

from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.queues.operations import ALL, purge
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort

LATER_MS = 60_000
MANY = 200


def message(number: int, delay_ms: int = 0) -> bytes:
    annotations = {"x-opt-delivery-delay": delay_ms} if delay_ms else {}
    header = Header(durable=True)
    return encode_message(b"%03d" % number * 10, header=header, message_annotations=annotations)


def numbers(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(arrival.payload).body[:3]) for arrival in port.arrivals]


class Scene:
    """A queue with room for a handful of messages in memory, and many scheduled ones ahead of plain ones."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        self.harness.core.window_bytes = 8_000
        self.queue = Queue(self.harness.core, "orders", 1)
        self.queue.load()
        self.fill()

    def fill(self) -> None:
        sender = self.harness.sender(self.queue)
        self.harness.turn()
        for number in range(MANY):
            sender.send(message(number, LATER_MS))
        for number in range(MANY, 2 * MANY):
            sender.send(message(number))
            self.harness.commit()

    def restart(self) -> None:
        self.harness = self.harness.restarted()
        self.harness.core.window_bytes = 8_000
        self.queue = Queue(self.harness.core, "orders", 1)
        self.queue.load()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def take_all(scene: Scene) -> list[int]:
    receiver = scene.harness.receiver(scene.queue, 10)
    scene.harness.commit()
    while receiver.unsettled:
        assert scene.queue.resident_bytes < 400 * MANY, "what waits for its time does not fill the memory"
        receiver.accept(len(receiver.unsettled))
        receiver.grant(10)
        scene.harness.commit()
    receiver.leave()
    return numbers(receiver)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_due_passes_what_is_not_and_each_comes_in_its_time(scene: Scene, is_restarted: bool) -> None:
    if is_restarted:
        scene.restart()
    assert take_all(scene) == list(range(MANY, 2 * MANY))
    assert scene.queue.depth == MANY
    scene.harness.advance(LATER_MS / 1_000 + 1)
    receiver = scene.harness.receiver(scene.queue, 10_000)
    scene.harness.commit()
    scene.harness.advance(5)
    assert sorted(numbers(receiver)) == list(range(MANY))
    receiver.accept(len(receiver.unsettled))
    scene.harness.commit()
    assert (scene.queue.depth, scene.queue.bytes_stored) == (0, 0)
    assert scene.harness.faults == []


def test_a_purge_takes_what_waits_on_disk_too(scene: Scene) -> None:
    scene.restart()
    assert len(take_all(scene)) == MANY
    counts: list[int] = []
    purge(scene.queue, ALL, lambda count, _problem: counts.append(count))
    scene.harness.commit()
    scene.harness.advance(1)
    scene.harness.commit()
    assert (counts, scene.queue.depth) == ([MANY], 0)


def test_all_that_is_due_comes_after_a_restart_to_a_receiver_that_waited_for_it() -> None:
    scene = Scene()
    sender = scene.harness.sender(scene.queue)
    scene.harness.commit()
    for number in range(MANY):
        # Several frames, each with some that come at different times.
        sender.send(message(2 * MANY + number, LATER_MS + 500 * (number % 7)))
        if number % 20 == 0:
            scene.harness.commit()
    scene.harness.commit()
    scene.restart()
    receiver = scene.harness.receiver(scene.queue, 10_000)
    scene.harness.commit()
    scene.harness.advance(LATER_MS / 1_000 + 10)
    assert sorted(numbers(receiver)) == list(range(3 * MANY))


def test_a_deleted_queue_writes_nothing_and_moves_nothing_when_lives_end() -> None:
    harness = CoreHarness()
    core = harness.core
    space = Space(core, "s", lambda: "id")
    queue = Queue(core, "orders", 1, options=AddressSettings(expiry="late"))
    late = Queue(core, "late", 2)
    for address in (queue, late):
        space.add(address)
    sender = harness.sender(queue)
    harness.turn()
    sender.send(encode_message(b"short", header=Header(durable=True, ttl=1_000)))
    sender.send(encode_message(b"long", header=Header(durable=True)))
    harness.commit()
    space.remove(queue)
    harness.commit()
    before = list(harness.storage.scan_all(Table.SETTLED))
    harness.advance(5)
    harness.commit()
    assert (late.depth, queue.expired, list(harness.storage.scan_all(Table.SETTLED))) == (0, 0, before)


@pytest.mark.parametrize("is_reading", [False, True])
def test_a_purge_of_a_queue_that_is_deleted_meanwhile_is_answered(scene: Scene, is_reading: bool) -> None:
    scene.restart()
    told: list[int] = []
    purge(scene.queue, ALL, lambda count, _problem: told.append(count))
    if is_reading:
        scene.harness.core.run_turn(scene.harness.clock.now, 0)
    scene.queue.close("amqp:resource-deleted", "it is gone")
    scene.harness.commit()
    assert len(told) == 1
    assert scene.harness.faults == []
