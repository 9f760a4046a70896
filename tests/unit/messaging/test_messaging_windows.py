"""The window of a topic's senders, against a look at every subscription."""

from __future__ import annotations

from random import Random

import pytest

from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import MAX_CREDIT
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.windows import FEW, Windows
from tests.unit.messaging.topic_scene import Scene, message


def by_looking(subscriptions: list[Subscription], senders: int) -> int:
    """What a look at each of them says."""
    return min(subscription.room_for(senders) for subscription in subscriptions)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_room_is_found_whatever_happens(seed: int) -> None:
    random = Random(seed)
    scene = Scene()
    made = [scene.subscription(f"s{number}") for number in range(5)]
    for subscription in made:
        subscription.max_bytes = random.choice((20_000, 300_000, 1 << 32))
        scene.topic.windows.update(subscription)
    for _ in range(60):
        subscription = random.choice(made)
        if random.random() < 0.7:
            subscription.take(message(b"x" * random.choice((10, 3_000)), durable=False), None)
        else:
            while (entry := subscription.next_entry()) is not None and random.random() < 0.9:
                subscription.settle(entry)
        scene.harness.turn()
        senders = random.choice((1, 3, 20))
        wanted = by_looking(made, senders)
        window = scene.topic.windows.least(senders)
        # A step is an eighth of the room at most.
        assert (window == 0) == (wanted == 0)
        assert wanted == window or window / 2 <= wanted <= window * 2


def test_of_many_only_those_with_the_least_room_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    made = [scene.subscription(f"s{number}") for number in range(4 * FEW)]
    tight = made[7]
    tight.max_bytes = 10_000
    scene.topic.windows.update(tight)
    looks: list[Subscription] = []
    room_for = Subscription.room_for

    def counted(subscription: Subscription, senders: int) -> int:
        looks.append(subscription)
        return room_for(subscription, senders)

    monkeypatch.setattr(Subscription, "room_for", counted)
    assert scene.topic.window_for(1) == room_for(tight, 1) < MAX_CREDIT
    assert set(looks) == {tight}
    scene.space.remove(tight)
    looks.clear()
    assert scene.topic.window_for(1) >= MAX_CREDIT
    assert not looks


def test_without_subscriptions_that_hold_back_there_is_no_bound() -> None:
    scene = Scene()
    assert not Windows()
    assert scene.topic.window_for(1) == MAX_CREDIT
    scene.receiver("news/#")
    assert scene.topic.window_for(1) == MAX_CREDIT
    assert parse("news/#") == next(iter(scene.topic.subscriptions)).pattern
