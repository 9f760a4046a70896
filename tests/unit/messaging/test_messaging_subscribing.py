"""Durable subscriptions that receivers make: while the disk is full, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import Header, encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.numbers import LOG_COUNTER
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from tests.unit.messaging.topic_scene import bodies


class Scene:
    """A topic ``news`` that is ready."""

    def __init__(self, harness: CoreHarness | None = None) -> None:
        self.harness = harness or CoreHarness()
        self.space = Space(self.harness.core, "ns/shop", lambda: "id")
        self.topic = Topic(self.harness.core, "news", 1)
        self.harness.core.log_numbers.next = 2
        self.space.add(self.topic)
        self.topic.load()
        self.harness.commit()

    def restarted(self) -> Scene:
        return Scene(self.harness.restarted())

    def subscribe(self, name: str, **more: Any) -> MemoryConsumerPort:
        options = {"name": name, "container": "office", "is_durable": True, "expiry_policy": "never"} | more
        if "user" in options:
            options.setdefault("owner", f"user:{options['user']}")
        return self.harness.receiver(self.topic, 10, **({"source": "news"} | options))

    def publish(self, **bodies: bytes) -> None:
        """Send a durable message to each name."""
        for name, body in bodies.items():
            sender = self.harness.sender(self.topic, name)
            self.harness.turn()
            sender.send(encode_message(body, header=Header(durable=True)))
            self.harness.commit()

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
    receiver.sink.on_detached(closed=True)
    scene.harness.fail()
    scene.harness.advance(PAUSE_S)
    scene.harness.commit()
    assert scene.records() == 0


def test_a_subscription_is_its_makers_over_a_restart() -> None:
    scene = Scene()
    scene.subscribe("first", user="ann").sink.on_detached()
    scene.harness.commit()
    after = scene.restarted()
    assert after.topic.subscribing.find("office", "first", "user:eve", "eve", may_manage=False) is None
    for asked in ({}, {"filters": {SELECTOR_FILTER: "x = 1"}}, {"capabilities": ("shared",)}):
        with pytest.raises(AttachError, match="belongs to another user") as caught:
            after.subscribe("first", user="eve", may_manage=False, **asked)
        assert caught.value.condition == "amqp:unauthorized-access"
    assert after.records() == 1
    after.subscribe("first", user="ann", may_manage=False)


def test_who_may_manage_the_space_takes_any_subscription_and_its_maker_keeps_it() -> None:
    scene = Scene()
    ann = scene.subscribe("first", user="ann", may_manage=False)
    scene.subscribe("first", user="root")
    assert ann.is_detached
    assert scene.topic.subscribing.find("office", "first", "user:root", "root", may_manage=True) is not None
    scene.subscribe("first", user="ann", may_manage=False)


def test_a_subscription_of_nobody_becomes_the_first_users_who_comes() -> None:
    scene = Scene()
    scene.subscribe("first").sink.on_detached()
    scene.harness.commit()
    taken = scene.restarted()
    taken.subscribe("first", user="ann", may_manage=False)
    taken.harness.commit()
    after = taken.restarted()
    with pytest.raises(AttachError, match="belongs to another user"):
        after.subscribe("first", user="eve", may_manage=False)


SUBTREE = {"capabilities": ("shared", "global", SUBTREE_CAPABILITY), "container": "any"}


def test_a_subscription_to_a_topic_alone_becomes_one_to_all_below_and_keeps_what_waits() -> None:
    scene = Scene()
    scene.subscribe("lake", capabilities=("shared", "global")).sink.on_detached()
    scene.publish(news=b"1")
    scene.publish(**{"news/sport": b"not yet"})
    scene = scene.restarted()
    wide = scene.subscribe("lake", source="news/#", **SUBTREE)
    scene.publish(**{"news": b"2", "news/sport": b"3", "news/sport/chess": b"4"})
    assert bodies(wide) == [b"1", b"2", b"3", b"4"]
    wide.sink.on_detached()
    after = scene.restarted()
    after.publish(**{"news/sport": b"5"})
    assert after.records() == 1
    again = after.subscribe("lake", source="news/#", **SUBTREE)
    after.harness.turn()
    assert bodies(again) == [b"1", b"2", b"3", b"4", b"5"]
    assert len(after.topic.subscriptions) == 1


def test_a_shared_subscription_becomes_wide_while_others_read_it() -> None:
    scene = Scene()
    scene.subscribe("lake", capabilities=("shared", "global"))
    wide = scene.subscribe("lake", source="news/#", **SUBTREE)
    scene.publish(**{"news/a": b"1", "news/b": b"2"})
    assert bodies(wide)
    assert len(scene.topic.subscriptions) == 1


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ({}, {"source": "news/#"}),
        ({"source": "news/#", **SUBTREE}, {}),
        ({"source": "news/sport"}, {"source": "news/#", **SUBTREE}),
        ({}, {"source": "news/#", "filters": {SELECTOR_FILTER: "x = 1"}, **SUBTREE}),
    ],
    ids=["by a pattern", "back to the topic", "from another name", "with a selector"],
)
def test_any_other_source_makes_another_subscription(before: dict[str, Any], then: dict[str, Any]) -> None:
    scene = Scene()
    shared = {"capabilities": ("shared", "global")}
    scene.subscribe("lake", **(shared | before)).sink.on_detached()
    scene.publish(**{"news": b"1", "news/sport": b"2"})
    assert bodies(scene.subscribe("lake", **(shared | then))) == []
