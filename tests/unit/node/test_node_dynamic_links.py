"""Links that ask for a node of their own, as clients do it: what they are told, and when the node goes."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, Rejected
from enmasse.message.types import Array, Described, Symbol, ULong
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.performatives import Attach, Source, Target
from tests.unit.node.test_node_binding import Client, Node, message

CLOSE, NO_LINKS = ULong(0x2B), ULong(0x2C)


@pytest.fixture
def node() -> Node:
    return Node()


def asking(code: ULong, **options: Any) -> dict[str, Any]:
    properties = {Symbol("lifetime-policy"): Described(code, [])}
    return {"dynamic": True, "dynamic_node_properties": properties, **options}


def answer(sink: RecordingSink) -> Attach:
    assert sink.link is not None
    assert sink.link.remote_attach is not None
    return sink.link.remote_attach


def made_for(sink: RecordingSink) -> Any:
    """The node's terminus: a sender's target or a receiver's source."""
    attach = answer(sink)
    return attach.source if attach.source is not None and attach.source.dynamic else attach.target


def leave(client: Client, sink: RecordingSink) -> None:
    assert sink.link is not None
    sink.link.detach()
    client.go()


def test_a_jms_client_makes_a_temporary_queue_by_a_sender_and_deletes_it_by_closing_that(node: Node) -> None:
    client = node.client()
    target = Target(**asking(CLOSE, expiry_policy="link-detach", capabilities=("temporary-queue",)))
    creator = client.sender(target, name="qpid-jms:temp-queue-creator:1")
    told = made_for(creator)
    assert told.address.startswith("$dynamic/")
    assert told.dynamic
    assert told.capabilities == ("temporary-queue",)
    assert told.expiry_policy == "link-detach"
    assert told.dynamic_node_properties == {
        "lifetime-policy": Described(CLOSE, []),
        "supported-dist-modes": Array(0xA3, [Symbol("move"), Symbol("copy")]),
    }
    anonymous = client.sender(Target(), name="anonymous")
    before = anonymous.send(message(b"early", to=told.address))
    client.go()
    assert before.state is ACCEPTED
    consumer = client.receiver(Source(address=told.address, capabilities=("temporary-queue",)))
    assert len(consumer.payloads) == 1
    leave(client, creator)
    assert client.refusals[-1] == ("in", "amqp:resource-deleted", True)
    late = anonymous.send(message(to=told.address))
    client.go()
    assert isinstance(late.state, Rejected)


def test_a_temporary_topic_copies_to_all_its_subscribers(node: Node) -> None:
    client = node.client()
    creator = client.sender(Target(dynamic=True, capabilities=("temporary-topic",)))
    name = made_for(creator).address
    subscribers = [client.receiver(name, name=f"sub-{number}") for number in range(2)]
    creator.send(message(b"news"))
    client.go()
    assert [subscriber.payloads for subscriber in subscribers] == [[message(b"news")]] * 2


def test_without_a_policy_the_default_is_told(node: Node) -> None:
    receiver = node.client().receiver(Source(dynamic=True))
    assert made_for(receiver).dynamic_node_properties == {
        "lifetime-policy": Described(CLOSE, []),
        "supported-dist-modes": Symbol("move"),
    }


def test_a_node_may_outlive_the_link_that_made_it(node: Node) -> None:
    first, second = node.client(), node.client()
    creator = first.receiver(Source(**asking(NO_LINKS)))
    name = made_for(creator).address
    other = second.receiver(name)
    leave(first, creator)
    first.cut()
    assert node.entities.spaces["ns/shop"].find(name).name == name
    second.cut()
    assert name not in node.entities.spaces["ns/shop"].addresses
    assert other.payloads == []


def test_a_subscriber_keeps_a_topic_that_lives_by_its_links(node: Node) -> None:
    client = node.client()
    creator = client.sender(Target(**asking(NO_LINKS, capabilities=("temporary-topic",))))
    name = made_for(creator).address
    subscriber = client.receiver(name)
    leave(client, creator)
    assert name in node.entities.spaces["ns/shop"].addresses
    leave(client, subscriber)
    assert name not in node.entities.spaces["ns/shop"].addresses


@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_a_wish_that_makes_no_sense_is_refused_and_leaves_no_node(node: Node, kind: str) -> None:
    client = node.client()
    if kind == "sender":
        client.sender(Target(**asking(ULong(1))))
    else:
        client.receiver(Source(**asking(ULong(1))), credit=0)
    assert [condition for _, condition, _ in client.refusals] == ["amqp:invalid-field"]
    assert len(node.entities.spaces["ns/shop"].dynamic) == 0


def test_a_receiver_that_is_refused_after_all_leaves_no_node(node: Node) -> None:
    client = node.client()
    selector = {Symbol("jms-selector"): "colour =="}
    client.receiver(Source(dynamic=True, filter=selector, capabilities=("queue",)), credit=0)
    assert [condition for _, condition, _ in client.refusals] == ["amqp:invalid-field"]
    assert len(node.entities.spaces["ns/shop"].dynamic) == 0


def test_nodes_of_one_space_are_not_reached_from_another() -> None:
    node = Node("ns/shop", "ns/factory")
    shop, factory = node.client(hostname="shop.ns"), node.client(hostname="factory.ns")
    name = made_for(shop.receiver(Source(dynamic=True))).address
    factory.receiver(name, credit=0)
    assert factory.refusals == [("in", "amqp:not-found", True)]


def test_an_anonymous_sender_that_knows_no_rejection_is_detached(node: Node) -> None:
    client = node.client()
    outcomes = (Symbol("amqp:accepted:list"), Symbol("amqp:released:list"))
    anonymous = client.sender(Target(), source=Source(outcomes=outcomes))
    anonymous.send(message(to="nowhere"))
    client.go()
    assert client.refusals == [("out", "amqp:not-found", True)]
