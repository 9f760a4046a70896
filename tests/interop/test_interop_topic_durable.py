"""Durable, shared and global subscriptions, as JMS clients make them, with python-qpid-proton and rhea."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, Terminus
from proton.reactor import DurableSubscription, LinkOption, Selector
from proton.utils import LinkDetached

from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.proton_blocking import ProtonClient, Subscriber

pytestmark = pytest.mark.slow

SHARED = Subscriber(2, "never", capabilities=("shared",))
GLOBAL = Subscriber(2, "never", capabilities=("shared", "global"))
SHARED_VOLATILE = Subscriber(capabilities=("shared",))


class Nowhere(LinkOption):
    """A link without a source, as JMS clients attach to end a subscription."""

    def apply(self, link: Any) -> None:
        link.source.type = Terminus.UNSPECIFIED


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def durable(*values: Any) -> list[Message]:
    return [Message(body=value, durable=True) for value in values]


@pytest.mark.parametrize("leave", ["detach", "connection"])
def test_a_durable_subscription_keeps_what_comes_while_its_subscriber_is_away(
    node: NodeProcess, addresses: Any, leave: str
) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url) as sender:
        with ProtonClient(node.url, f"ann-{topic}") as ann:
            subscriber = ann.receiver(topic, DurableSubscription(), name="news")
            sender.send(topic, *durable("a"))
            assert bodies(subscriber.take(1)) == ["a"]
            if leave == "detach":
                subscriber.detach()
        sender.send(topic, *durable("b"), "c")
        with ProtonClient(node.url, f"ann-{topic}") as ann:
            assert bodies(ann.receiver(topic, DurableSubscription(), name="news").rest()) == ["b", "c"]


def test_a_durable_subscription_survives_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    topic = manage().declare("topic")
    with ProtonClient(process.url, "ann") as ann:
        ann.receiver(topic, DurableSubscription(), name="news")
        ann.send(topic, *durable("a", "b"), "volatile")
    process.kill()
    process.start()
    with ProtonClient(process.url) as sender:
        sender.send(topic, *durable("c"))
    with ProtonClient(process.url, "ann") as ann:
        assert bodies(ann.receiver(topic, DurableSubscription(), name="news").rest()) == ["a", "b", "c"]


def test_closing_the_link_ends_the_subscription(killable_node: Any) -> None:
    process, manage = killable_node
    topic = manage().declare("topic")
    with ProtonClient(process.url, "ann") as ann:
        subscriber = ann.receiver(topic, DurableSubscription(), name="news")
        ann.send(topic, *durable("a"))
        subscriber.close()
        again = ann.receiver(topic, DurableSubscription(), name="news")
        assert bodies(again.rest()) == []
        again.close()
        ann.send(topic, *durable("b"))
    process.kill()
    process.start()
    with ProtonClient(process.url, "ann") as ann:
        assert bodies(ann.receiver(topic, DurableSubscription(), name="news").rest()) == []


def test_a_link_name_alone_finds_a_subscription_to_end_it(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as client:
        client.receiver(topic, DurableSubscription(), Selector("n = 1"), name="news").detach()
        client.send(topic, Message(body="x", properties={"n": 1}))
        found = client.receiver("", Nowhere(), name="news")
        assert found.receiver.link.remote_source.address == topic
        assert found.receiver.link.remote_source.durability == 2
        found.close()
        again = client.receiver(topic, DurableSubscription(), Selector("n = 1"), name="news")
        assert bodies(again.rest()) == []
        again.close()
        with pytest.raises(LinkDetached, match="no durable subscription 'news'") as refused:
            client.receiver("", Nowhere(), name="news")
        assert refused.value.condition == "amqp:not-found"


def test_a_subscription_belongs_to_its_container_and_its_link_name(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    ann, bob = f"ann-{topic}", f"bob-{topic}"
    with ProtonClient(node.url, ann) as client:
        for name in ("one", "two"):
            client.receiver(topic, DurableSubscription(), name=name).detach()
    with ProtonClient(node.url, bob) as client:
        client.receiver(topic, DurableSubscription(), name="one").detach()
        client.send(topic, "x")
        assert bodies(client.receiver(topic, DurableSubscription(), name="one").rest()) == ["x"]
        assert bodies(client.receiver(topic, DurableSubscription(), name="new").rest()) == []
    with ProtonClient(node.url, ann) as client:
        assert bodies(client.receiver(topic, DurableSubscription(), name="one").rest()) == ["x"]
        assert bodies(client.receiver(topic, DurableSubscription(), name="two").rest()) == ["x"]


def test_a_durable_subscription_may_select_and_match_words(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    container = f"ann-{topic}"
    options = (DurableSubscription(), Selector("colour = 'red'"))
    with ProtonClient(node.url, container) as client:
        client.receiver(f"{topic}/*/sport", *options, name="red").detach()
        red = {"colour": "red"}
        client.send(f"{topic}/be/sport", Message(body="red", properties=red), Message(body="plain"))
        client.send(f"{topic}/be/news", Message(body="news", properties=red))
        assert bodies(client.receiver(f"{topic}/*/sport", *options, name="red").rest()) == ["red"]


def test_a_subscriber_learns_the_name_that_a_message_was_sent_to_and_no_sender_makes_one_up(own_node: Any) -> None:
    process, manage = own_node
    topic = manage().declare("topic")
    lie = {"x-opt-topic-name": f"{topic}/lie", "x-opt-own": 1}

    def names(messages: list[Any]) -> list[tuple[Any, Any]]:
        found = [message.annotations or {} for message in messages]
        return [(told.get("x-opt-topic-name"), told.get("x-opt-own")) for told in found]

    expected = [(f"{topic}/hall/1", None), (f"{topic}/hall/2", 1), (None, 1), (None, None)]
    with ProtonClient(process.url, "ann") as ann:
        ann.receiver(f"{topic}/#", DurableSubscription(), name="alarms").detach()
        passing = ann.receiver(topic + "/#")
        ann.send(f"{topic}/hall/1", *durable("a"))
        ann.send(f"{topic}/hall/2", Message(body="b", durable=True, annotations=lie))
        ann.send(topic, Message(body="c", durable=True, annotations=lie), *durable("d"))
        # A receiver of a pattern is told the topic's own name, too.
        assert names(passing.take(4)) == [*expected[:2], (topic, 1), (topic, None)]
    process.kill()
    process.start()
    with ProtonClient(process.url, "ann") as ann:
        assert names(ann.receiver(f"{topic}/#", DurableSubscription(), name="alarms").rest()) == expected


@pytest.mark.parametrize("word", ["*", "+"])
def test_a_pattern_is_for_receivers_and_an_address_of_that_name_comes_first(
    node: NodeProcess, addresses: Any, word: str
) -> None:
    topic = addresses.declare("topic")
    pattern = f"{topic}/{word}/sport"
    with ProtonClient(node.url, f"ann-{topic}") as client:
        for address in (pattern, f"{topic}/#"):
            with pytest.raises(LinkDetached, match="is a pattern, which receivers have") as refused:
                client.send(address, "x")
            assert refused.value.condition == "amqp:not-allowed"
        subscriber = client.receiver(pattern, DurableSubscription(), name="sport")
        client.send(f"{topic}/be/sport", "one level")
        client.send(f"{topic}/be/fr/sport", "two levels")
        assert bodies(subscriber.rest()) == ["one level"]
        addresses.declare("queue", pattern)
        client.send(pattern, "for the queue")
        assert bodies(client.receiver(pattern).rest()) == ["for the queue"]
        assert bodies(subscriber.rest()) == []


def test_another_selector_makes_a_new_subscription(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as client:
        client.receiver(topic, DurableSubscription(), Selector("n = 1"), name="news").detach()
        client.send(topic, Message(body="old", properties={"n": 1}))
        changed = client.receiver(topic, DurableSubscription(), Selector("n = 2"), name="news")
        client.send(topic, Message(body="one", properties={"n": 1}), Message(body="two", properties={"n": 2}))
        assert bodies(changed.rest()) == ["two"]


def test_a_durable_subscription_goes_to_the_link_that_came_last(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    container = f"ann-{topic}"
    with ProtonClient(node.url, container) as client, ProtonClient(node.url, container) as other:
        before = client.receiver(topic, DurableSubscription(), name="news")
        after = other.receiver(topic, DurableSubscription(), name="news")
        with pytest.raises(LinkDetached) as stolen:
            before.take(1)
        assert stolen.value.condition == "amqp:link:stolen"
        other.send(topic, *durable("x"))
        assert bodies(after.rest()) == ["x"]


def test_a_plain_subscriber_is_forgotten_when_it_goes(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as client:
        client.receiver(topic, name="news").detach()
        client.send(topic, "missed")
        assert bodies(client.receiver(topic, name="news").rest()) == []


def test_a_subscription_ends_by_its_expiry_policy(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    container = f"ann-{topic}"
    lasting = Subscriber(2, "connection-close", timeout=600)
    ending = Subscriber(2, "link-detach")
    with ProtonClient(node.url, container) as client:
        client.receiver(topic, lasting, name="lasting")
        client.receiver(topic, ending, name="ending").detach()
        client.send(topic, *durable("a"))
        assert bodies(client.receiver(topic, ending, name="ending").rest()) == []
    with ProtonClient(node.url, container) as client:
        assert bodies(client.receiver(topic, lasting, name="lasting").rest()) == ["a"]


def test_a_subscription_that_times_out_is_gone(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    container = f"ann-{topic}"
    brief, patient = (Subscriber(2, "link-detach", timeout=seconds) for seconds in (1, 600))
    with ProtonClient(node.url, container) as client:
        for subscriber, name in ((brief, "brief"), (patient, "patient")):
            client.receiver(topic, subscriber, name=name).detach()
        client.send(topic, *durable("a"))
        until(lambda: addresses.read(topic)["subscriptions"] == 1)
        assert bodies(client.receiver(topic, brief, name="brief").rest()) == []
        assert bodies(client.receiver(topic, patient, name="patient").rest()) == ["a"]


@pytest.mark.parametrize("second", ["shared", "shared|2"])
def test_subscribers_of_one_container_share_a_subscription(node: NodeProcess, addresses: Any, second: str) -> None:
    topic = addresses.declare("topic")
    container = f"ann-{topic}"
    with ProtonClient(node.url, container) as client, ProtonClient(node.url, container) as other:
        one = client.receiver(topic, SHARED, name="shared")
        two = other.receiver(topic, SHARED, name=second)
        client.send(topic, *durable(*range(20)))
        first = bodies(one.take(10))
        assert sorted(first + bodies(two.rest())) == list(range(20))
        one.detach()
        two.detach()
        client.send(topic, *durable("away"))
        assert bodies(client.receiver(topic, SHARED, name="shared").rest()) == ["away"]


def test_another_container_has_a_shared_subscription_of_its_own(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as ann, ProtonClient(node.url, f"bob-{topic}") as bob:
        mine, his = ann.receiver(topic, SHARED, name="shared"), bob.receiver(topic, SHARED, name="shared")
        ann.send(topic, "x")
        assert bodies(mine.rest()) == bodies(his.rest()) == ["x"]


def test_a_global_subscription_is_shared_by_all_containers(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as ann, ProtonClient(node.url, f"bob-{topic}") as bob:
        mine = ann.receiver(topic, GLOBAL, name="everybody|global")
        his = bob.receiver(topic, GLOBAL, name="everybody|global2")
        ann.send(topic, *durable(*range(20)))
        first = bodies(mine.take(10))
        assert sorted(first + bodies(his.rest())) == list(range(20))


def test_a_volatile_shared_subscription_lives_as_long_as_its_subscribers(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    with ProtonClient(node.url, f"ann-{topic}") as client:
        one = client.receiver(topic, SHARED_VOLATILE, name="news|volatile1")
        two = client.receiver(topic, SHARED_VOLATILE, name="news|volatile2")
        client.send(topic, *range(20))
        first = bodies(one.take(10))
        assert sorted(first + bodies(two.rest())) == list(range(20))
        one.close()
        client.send(topic, "still")
        assert bodies(two.rest()) == ["still"]
        two.close()
        client.send(topic, "nobody")
        assert bodies(client.receiver(topic, SHARED_VOLATILE, name="news|volatile1").rest()) == []


def test_a_shared_subscription_survives_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    topic = manage().declare("topic")
    with ProtonClient(process.url, "ann") as ann:
        ann.receiver(topic, GLOBAL, name="everybody|global")
        ann.send(topic, *durable("a"))
    process.kill()
    process.start()
    with ProtonClient(process.url, "bob") as bob:
        receiver = bob.receiver(topic, GLOBAL, name="everybody|global")
        assert bodies(receiver.rest()) == ["a"]
        receiver.close()


def test_a_declared_subscription_is_shared_as_far_as_it_allows(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscription = addresses.declare("subscription", topic=topic, maxConsumers=2)
    with ProtonClient(node.url) as client:
        one, two = (client.receiver(f"{topic}::{subscription}") for _ in range(2))
        with pytest.raises(LinkDetached, match="receivers"):
            client.receiver(subscription)
        client.send(topic, *durable(*range(20)))
        first = bodies(one.take(10))
        assert sorted(first + bodies(two.rest())) == list(range(20))


def test_rhea_subscribes_comes_back_and_unsubscribes(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscriber = {"source": topic, "container": f"ann-{topic}", "name": "news", "durable": 2, "expiry": "never"}
    rhea("subscribe", **subscriber, leave="detach")
    for leave in ("connection", "detach"):
        rhea("exchange", target=topic, messages=[{"body": leave, "durable": True}], expect=0)
        assert rhea("subscribe", **subscriber, expect=1, leave=leave)["received"] == [leave]
    rhea("exchange", target=topic, messages=[{"body": "unread", "durable": True}], expect=0)
    rhea("subscribe", **subscriber, leave="close")
    rhea("exchange", target=topic, messages=[{"body": "missed", "durable": True}], expect=0)
    rhea("subscribe", **subscriber, leave="detach")
    rhea("exchange", target=topic, messages=[{"body": "new", "durable": True}], expect=0)
    assert rhea("subscribe", **subscriber, expect=1, leave="close")["received"] == ["new"]


def test_rhea_shares_a_global_subscription(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscriber = {
        "source": topic, "name": "all|global", "durable": 2, "expiry": "never", "capabilities": ["shared", "global"],
    }  # fmt: skip
    rhea("subscribe", **subscriber, container="ann", leave="detach")
    rhea("exchange", target=topic, messages=[{"body": n, "durable": True} for n in range(4)], expect=0)
    assert rhea("subscribe", **subscriber, container="ann", expect=2, leave="detach")["received"] == [0, 1]
    assert rhea("subscribe", **subscriber, container="bob", expect=2, leave="close")["received"] == [2, 3]
