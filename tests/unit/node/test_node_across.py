"""Receivers of patterns that stand for names of several addresses."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import Released
from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.across import Across, lasting_at
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import Cut, parse
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.wire.amqp.performatives import Detach, Flow, Source, Transfer
from tests.conformance.node_scene import Node, body_of, message
from tests.unit.node.stomp_scene import Client, Scene


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    for name in ("news", "news/uk"):
        found.node.address(name, "topic")
    return found


def sent(scene: Scene, client: Client, *names: str) -> list[bytes]:
    """Return what comes of a message to each of these names."""
    sender = scene.client()
    for name in names:
        sender.send(name, name.encode())
    return sorted(client.bodies())


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("news/#", [b"news", b"news/fr", b"news/uk", b"news/uk/x"]),
        ("news/+", [b"news/fr", b"news/uk"]),
        ("*/uk", [b"news/uk"]),
    ],
)
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_pattern_stands_for_all_addresses_that_it_matches(
    scene: Scene, pattern: str, expected: list[bytes], ack: str
) -> None:
    client = scene.client()
    client.subscribe(pattern, ack=ack)
    assert sent(scene, client, "news", "news/uk", "news/fr", "news/uk/x", "topic/x") == expected


def test_addresses_that_come_are_joined_and_those_that_go_are_left(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("news/#", ack="client-individual")
    assert sent(scene, client, "news/uk", "news/fr") == [b"news/fr", b"news/uk"]
    scene.node.address("news/de", "topic")
    scene.node.address("news/all", "multicast")
    scene.go_on()
    assert sent(scene, client, "news/de", "news/all") == [b"news/all", b"news/de"]
    for name in ("news/uk", "news/all"):
        scene.node.delete(ADDRESS_TYPE, f"ns/{name}")
        scene.go_on()
    assert sent(scene, client, "news/de", "news/uk") == [b"news/de", b"news/uk"]
    client.say("UNSUBSCRIBE", id="0", receipt="1")
    client.one("RECEIPT")
    assert not next(iter(scene.node.entities.spaces.values())).crossing


def test_a_selector_counts_at_each_topic_and_none_knows_it_at_a_multicast_address(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("news/#", selector="color = 'red'")
    for name in ("news", "news/uk"):
        for color in ("red", "blue"):
            scene.client().send(name, f"{name} {color}".encode(), color=color)
    assert sorted(client.bodies()) == [b"news red", b"news/uk red"]
    scene.node.address("news/all", "multicast")
    other = scene.client()
    other.say("SUBSCRIBE", id="1", destination="news/#", selector="color = 'red'")
    assert other.one("ERROR")["condition"] == "amqp:not-implemented"


def test_a_pattern_stands_for_so_many_addresses_at_most(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    space.limit(space.usage.limits._replace(filter_addresses=3))
    client = scene.client()
    client.subscribe("news/#")
    (consumer,) = space.crossing
    for name in ("news/de", "news/fr"):
        scene.node.address(name, "topic")
    # One that comes later is done without.
    assert (list(consumer.ends), space.sessions.unreached) == (["news", "news/uk", "news/de"], 1)
    client.say("SUBSCRIBE", id="1", destination="news/#")
    assert "stands for more than 3 addresses" in str(client.one("ERROR"))
    assert scene.client().said


def test_a_pattern_is_one_subscription_with_the_memory_of_each(scene: Scene) -> None:
    usage = next(iter(scene.node.entities.spaces.values())).usage
    client = scene.client()
    client.subscribe("news/uk")
    before, of_one = usage.subscriptions, usage.subscription_bytes
    client.subscribe("news/#", "1")
    scene.node.address("news/de", "topic")
    assert usage.subscriptions == before + 1
    assert usage.subscription_bytes > 3 * of_one
    client.say("UNSUBSCRIBE", id="1")
    client.say("UNSUBSCRIBE", id="0")
    client.told()
    assert (usage.subscriptions, usage.subscription_bytes) == (0, 0)


def test_what_has_no_outcome_goes_with_its_address_alone(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    port = scene.harness.receiver(Across(space, "news/#"), 10, source="news/#")
    for name in ("news", "news/uk"):
        sender = scene.amqp_sender(name)
        scene.go_on()
        sender.send(encode_message(name.encode()), settled=True)
        scene.go_on()
    assert (len(port.arrivals), port.credit, port.sink.unsettled, port.sink.deliveries) == (2, 8, 2, 2)
    scene.node.delete(ADDRESS_TYPE, "ns/news/uk")
    scene.go_on()
    assert (len(port.unsettled), port.sink.unsettled, port.is_detached) == (1, 1, False)
    port.sink.on_detached()
    assert not space.crossing
    assert port.sink.unsettled == 0


def test_a_durable_subscription_of_several_addresses_is_refused(scene: Scene) -> None:
    client = scene.client(client_id="me")
    client.say("SUBSCRIBE", id="1", destination="news/#", durable_subscription_name="mine")
    assert "stands for 2 addresses" in client.one("ERROR").body.decode() + str(client)


def test_a_durable_subscription_is_at_the_one_address_that_grants_leave_of_its_pattern(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    scene.node.address("news/uk/all", "multicast")
    asked: Any = {"container": "me", "name": "mine", "owner": "jo", "user": "jo", "is_durable": True}

    def at(source: str, **more: Any) -> str:
        return lasting_at(space, str(source), source, AttachOptions(source=source, **(asked | more))).name

    # Names below a topic that is declared lead to that alone.
    cut = Cut.of("news/#", (parse("news/uk/+/x"), parse("news/uk/y")))
    assert (at("news/uk/+/x"), at(cut), at(Cut.of("#", (parse("news/fr"),)))) == ("news/uk", "news/uk", "news")
    for source in ("news/#", "news/uk/#", Cut.of("#", (parse("news/uk/x"), parse("news/fr/#")))):
        with pytest.raises(AttachError, match=r"stands for [23] addresses"):
            at(source)
    # It stays there as grants cover more.
    made_at = space.find("news/uk")
    scene.harness.receiver(made_at, source=cut, **asked).leave()
    assert at("news/#") == "news/uk"
    port = scene.harness.receiver(made_at, 10, source="news/#", **asked)
    sender = scene.amqp_sender("news/uk/z")
    scene.go_on()
    sender.send(encode_message(b"more"), settled=True)
    scene.go_on()
    assert [Sections(payload).body for payload in port.payloads] == [b"more"]
    with pytest.raises(AttachError, match="stands for 3 addresses"):
        at("news/#", name="other")


def test_receivers_share_what_a_pattern_stands_for(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    options: Any = {"source": "news/#", "capabilities": ("shared",), "name": "group"}
    ports = [scene.harness.receiver(Across(space, "news/#"), 10, **options) for _ in range(2)]
    scene.node.address("news/de", "topic")
    scene.go_on()
    # Receivers of a multicast address do not share: it is done without.
    scene.node.address("news/all", "multicast")
    names = ("news", "news/uk", "news/de")
    for name in (*names, *names):
        sender = scene.amqp_sender(name)
        scene.go_on()
        sender.send(encode_message(name.encode()), settled=True)
        scene.go_on()
    bodies = [[Sections(payload).body for payload in port.payloads] for port in ports]
    assert sorted(bodies[0]) == sorted(bodies[1]) == sorted(name.encode() for name in names)
    assert space.sessions.unreached == 2
    with pytest.raises(AttachError, match="receivers do not share"):
        scene.harness.receiver(Across(space, "news/#"), 10, **options)


def test_what_is_acknowledged_of_an_address_that_is_gone_makes_room(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("news/#", ack="client-individual", prefetch_count="2")
    for name in ("news/uk", "news", "news"):
        scene.client().send(name, name.encode())
    frames = client.told()
    assert [frame.body for frame in frames] == [b"news/uk", b"news"]
    client.say("BEGIN", transaction="t")
    for frame in frames:
        client.say("ACK", id=frame["ack"], transaction="t")
    client.say("ABORT", transaction="t")
    scene.node.delete(ADDRESS_TYPE, "ns/news/uk")
    assert client.told() == []
    client.say("ACK", id=frames[0]["ack"])
    assert client.bodies() == [b"news"]
    client.say("ACK", id=frames[1]["ack"])
    assert client.told() == []


def test_a_transaction_gives_back_what_is_of_an_address_that_is_left(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("news/#", ack="client-individual")
    for name in ("news/uk", "news"):
        scene.client().send(name, name.encode())
    frames = client.told()
    client.say("BEGIN", transaction="t")
    for frame in frames:
        client.say("ACK", id=frame["ack"], transaction="t")
    scene.node.delete(ADDRESS_TYPE, "ns/news/uk")
    client.say("ABORT", transaction="t")
    for frame in frames:
        client.say("ACK", id=frame["ack"], receipt=frame.body.decode())
    assert [frame["receipt-id"] for frame in client.told()] == ["news/uk", "news"]


@pytest.fixture
def node() -> Node:
    found = Node()
    found.address("t/u", "topic")
    found.address("t/m", "multicast")
    return found


def test_a_drain_hands_out_what_all_addresses_have_and_leaves_no_credit(node: Node) -> None:
    peer, sender = node.peer(), node.peer()
    peer.receiver("t/#", credit=0)
    for handle, name in enumerate(("t", "t/u", "t/m", "t/x")):
        sender.sender(name, name, handle)
    sender.hear()
    for handle in (0, 1, 3):
        sender.send(message(str(handle)), handle=handle, settled=True)
    sender.hear()
    peer.hear()
    peer.grant(5, drain=True)
    frames = peer.hear()
    assert sorted(body_of(one.payload) for one in frames if isinstance(one.performative, Transfer)) == ["0", "1", "3"]
    (flow,) = [one.performative for one in frames if isinstance(one.performative, Flow) and one.performative.drain]
    assert (flow.delivery_count, flow.link_credit) == (5, 0)
    # With an address less, another drain ends, too.
    node.delete("t/u")
    peer.grant(2, count=5, drain=True)
    (flow,) = [one for one in peer.hear_all(Flow) if one.drain]
    assert (flow.delivery_count, flow.link_credit) == (7, 0)


@pytest.mark.parametrize("address", ["t", "t/u", "t/m"])
def test_what_is_settled_without_a_state_has_the_outcome_that_the_source_says(node: Node, address: str) -> None:
    peer, sender = node.peer(), node.peer()
    peer.receiver(Source("t/#", default_outcome=Released()))
    peer.hear()
    sender.sender(address)
    sender.hear()
    sender.send(message("x"))
    sender.hear()
    ((transfer, _),) = peer.transfers()
    peer.settle(transfer.delivery_id)
    (consumer,) = node.entities.spaces["ns/shop"].crossing
    assert (consumer.released, consumer.accepted) == (1, 0)


def test_with_the_last_address_the_link_ends(node: Node) -> None:
    peer = node.peer()
    peer.receiver("t/#")
    peer.hear()
    node.delete("t")
    node.delete("t/m")
    assert not peer.hear_all(Detach)
    node.delete("t/u")
    (detach,) = peer.hear_all(Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-deleted"
    assert not node.entities.spaces["ns/shop"].crossing


def test_of_a_pattern_the_part_that_grants_cover_reaches_addresses(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    cut = Cut.of("news/#", (parse("news/uk/#"),))
    port = scene.harness.receiver(Across(space, "news/#"), 10, source=cut)
    for name in ("news/fr", "news/uk", "news/uk/x"):
        sender = scene.amqp_sender(name)
        scene.go_on()
        sender.send(encode_message(name.encode()), settled=True)
        scene.go_on()
    assert [Sections(payload).body for payload in port.payloads] == [b"news/uk", b"news/uk/x"]
