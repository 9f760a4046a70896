"""Durable subscriptions that receivers make, while the disk is full."""

from __future__ import annotations

from enmasse.messaging.core import LOG_COUNTER, PAUSE_S
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.messaging.topic import Topic
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort


class Scene:
    """A topic ``news`` that is ready."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        self.space = Space(self.harness.core, "ns/shop", lambda: "id")
        self.topic = Topic(self.harness.core, "news", 1)
        self.harness.core.next_log = 2
        self.space.add(self.topic)
        self.topic.load()
        self.harness.commit()

    def subscribe(self, name: str) -> MemoryConsumerPort:
        options = {"name": name, "container": "office", "is_durable": True, "expiry_policy": "never"}
        return self.harness.receiver(self.topic, 10, source="news", **options)

    def counter(self) -> int:
        return int.from_bytes(self.harness.storage.get(Table.ENTITY, LOG_COUNTER) or b"", "big")

    def records(self) -> int:
        return len(self.harness.storage.scan(Table.SUBSCRIPTION, b"", b"\xff" * 8, 1 << 20))


def test_a_record_that_is_written_late_does_not_give_a_number_away_again() -> None:
    scene = Scene()
    scene.subscribe("first")
    scene.harness.turn()
    scene.subscribe("second")
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert (scene.counter(), scene.records()) == (4, 2)


def test_a_subscription_that_ended_before_it_was_written_leaves_nothing() -> None:
    scene = Scene()
    receiver = scene.subscribe("first")
    scene.harness.turn()
    receiver.sink.gone(closed=True)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.records() == 0
