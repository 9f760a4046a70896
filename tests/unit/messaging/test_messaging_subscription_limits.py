"""What subscriptions, sessions and wills of a space count for: every kind, made, made again, ended and taken up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import EXCEEDED, SESSION_BYTES, SpaceLimits, filter_footprint
from enmasse.messaging.queues.session_subscription import footprint_at
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.sessions.wills import LinkKey, WillMessage
from tests.unit.messaging.session_scene import Client, Scene, message

Kind = Callable[[Scene, Client, int], Callable[[], Any]]
"""Makes one with a number; returns what ends it."""


def of_mqtt(text: str, qos: int) -> Kind:
    def make(_scene: Scene, client: Client, number: int) -> Callable[[], Any]:
        client.subscribe(text.format(number), qos)
        return lambda: client.session.unsubscribe(text.format(number))

    return make


def of_receiver(**options: Any) -> Kind:
    def make(scene: Scene, _client: Client, number: int) -> Callable[[], Any]:
        asked = {"container": "office", "name": f"r{number}", "expiry_policy": "never"} | options
        port = scene.harness.receiver(scene.space.find("news"), source=f"news/{number}", **asked)
        scene.harness.commit()
        return lambda: port.sink.on_detached(closed=True) if "is_durable" in asked else port.leave()

    return make


KINDS: dict[str, Kind] = {
    "a filter of QoS 0": of_mqtt("news/{}", 0),
    "a filter of QoS 1": of_mqtt("news/{}", 1),
    "a filter with wildcards": of_mqtt("+/{}", 2),
    "a shared filter": of_mqtt("$share/g/news/{}", 1),
    "a filter for a name below a queue's": of_mqtt("+/{}/none", 1),
    "a receiver": of_receiver(),
    "a receiver with a selector": of_receiver(filters={SELECTOR_FILTER: "a = 1"}),
    "a shared subscription": of_receiver(capabilities=("shared",)),
    "a durable subscription": of_receiver(is_durable=True),
    "a durable shared subscription": of_receiver(is_durable=True, capabilities=("shared", "global")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expiry_s", [0, 100])
def test_there_are_as_many_subscriptions_as_the_plan_says(kind: str, expiry_s: int) -> None:
    scene = Scene(limits=SpaceLimits(subscriptions=2))
    usage = scene.space.usage
    client = scene.client(expiry_s=expiry_s)
    empty = usage.subscription_bytes
    make = KINDS[kind]
    ends = [make(scene, client, number) for number in range(2)]
    full = usage.subscription_bytes
    with pytest.raises(
        AttachError, match="space 'ns/shop' has 2 subscriptions, as many as its plan allows"
    ) as refused:
        make(scene, client, 2)
    assert refused.value.condition == EXCEEDED
    assert (usage.subscriptions, usage.subscription_bytes) == (2, full)
    ends.pop()()
    ends.append(make(scene, client, 2))
    assert (usage.subscriptions, usage.subscription_bytes) == (2, full)
    for end in ends:
        end()
    assert (usage.subscriptions, usage.subscription_bytes) == (0, empty)
    client.session.sessions.delete(client.session)
    assert usage.subscription_bytes == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "filter" in kind or "durable" in kind])
def test_what_is_there_can_be_made_again_and_is_taken_up_whatever_the_limit(kind: str) -> None:
    scene = Scene()
    client = scene.client()
    for number in range(2):
        KINDS[kind](scene, client, number)
    before = scene.space.usage
    scene.limits = SpaceLimits(subscriptions=1, subscription_bytes=1)
    scene = scene.restart()
    after = scene.space.usage
    assert after.subscriptions == 2
    client = scene.client()
    for number in range(2):
        KINDS[kind](scene, client, number)
    assert (after.subscriptions, after.subscription_bytes) == (2, before.subscription_bytes)
    scene.send("news/1", "hello")
    with pytest.raises(AttachError):
        KINDS[kind](scene, client, 3)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("text", ["#", "$share/g/#"])
def test_each_topic_of_a_filter_takes_memory(text: str, qos: int) -> None:
    room = SESSION_BYTES + 100 + filter_footprint(text).size + 2 * footprint_at("news/#").size
    scene = Scene({"a": "topic", "b": "topic", "c": "topic"}, limits=SpaceLimits(subscription_bytes=room))
    client = scene.client()
    with pytest.raises(AttachError, match="bytes of memory") as refused:
        client.subscribe(text, qos)
    assert refused.value.condition == EXCEEDED
    assert not client.session.filters
    assert scene.space.usage.subscription_bytes < filter_footprint(text).size + SESSION_BYTES
    scene.space.remove(scene.space.find("c"))
    client.subscribe(text, qos)
    # It goes without those that come later, also once its client is back.
    scene.declare("d")
    assert len(client.links) == 2
    client.leave()
    assert len(scene.client().links) == 2


def test_long_names_take_memory() -> None:
    scene = Scene(limits=SpaceLimits(subscription_bytes=100_000))
    client = scene.client()
    for text in ("news/" + "x" * 60_000, "news/" + "x/" * 100 + "y" * 30_000):
        with pytest.raises(AttachError, match="use shorter names"):
            client.subscribe(text)
    with pytest.raises(AttachError, match="bytes of memory"):
        scene.client("x" * 60_000)
    with pytest.raises(AttachError, match="bytes of memory"):
        of_receiver(filters={SELECTOR_FILTER: "a = 1" + " or a = 1" * 100})(scene, client, 1)


@pytest.mark.parametrize("text", ["news/" + "x/" * 127, "news/" + "+/" * 127 + "#", "+/" * 10_000 + "#"])
def test_a_filter_of_more_words_than_any_name_is_refused(text: str) -> None:
    scene = Scene()
    with pytest.raises(AttachError, match="at most 128 words"):
        scene.client().subscribe(text)
    assert not scene.space.usage.subscriptions


def test_wills_take_memory_until_they_are_over() -> None:
    scene = Scene(limits=SpaceLimits(subscription_bytes=50_000))
    usage = scene.space.usage
    will = WillMessage("news/gone", message("x" * 20_000))
    client = scene.client(will=will)
    link = scene.space.sessions.wills.put(LinkKey("user:1", "office", "link"), "anna", will, lambda _problem: None)
    scene.harness.commit()
    full = usage.subscription_bytes
    for name, wanted in (("other", will), ("y" * 2_000, None)):
        with pytest.raises(AttachError, match="bytes of memory"):
            scene.client(name, will=wanted)
    assert usage.subscription_bytes == full
    assert scene.restart().space.usage.subscription_bytes == full
    link.cancel()
    client.leave(clean=True)
    assert usage.subscription_bytes < 10_000


def test_a_topic_that_is_deleted_gives_back_what_its_subscriptions_took() -> None:
    scene = Scene()
    client = scene.client()
    empty = scene.space.usage.subscription_bytes
    kinds = ["a receiver", "a shared subscription", "a durable subscription", "a durable shared subscription"]
    for number, kind in enumerate(kinds):
        KINDS[kind](scene, client, number)
    client.subscribe("news/#", 1)
    scene.space.remove(scene.space.find("news"))
    scene.harness.commit()
    usage = scene.space.usage
    assert usage.subscriptions == 1, "the filter is there, and waits for another topic"
    client.session.unsubscribe("news/#")
    assert (usage.subscriptions, usage.subscription_bytes) == (0, empty)
