"""Limits of spaces and addresses as clients meet them: what is refused, how, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import Accepted
from enmasse.message.types import Symbol
from enmasse.node.amqp.recovery import Recovery
from enmasse.node.errors import EntityError
from enmasse.node.large_messages import MAX_MESSAGE_BYTES
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.wire.amqp.performatives import Source, Target
from tests.unit.node.test_node_binding import Client, Node, message

EXCEEDED = "amqp:resource-limit-exceeded"


@pytest.fixture
def node() -> Node:
    made = Node()
    for name, kind in {"a": "anycast", "q": "queue", "t": "topic"}.items():
        made.address(name, kind)
    made.entities.rates_changed = made.connections.meter
    return made


def limit(node: Node, entity_type: str = SPACE_TYPE, name: str = "ns/shop", **limits: Any) -> None:
    node.entities.update(entity_type, name, limits, node.answers.append)
    node.harness.commit()
    assert node.answers[-1] is None


def named(node: Node, container: str) -> Client:
    return Client(node, None, None, container=container)


def error_of(client: Client) -> tuple[str, str]:
    assert client.diary.error is not None
    return client.diary.error.condition, client.diary.error.description or ""


def test_a_connection_beyond_those_of_the_space_is_closed_with_the_reason(node: Node) -> None:
    limit(node, maxConnections=2)
    first, second = node.client(), node.client()
    condition, text = error_of(node.client())
    assert condition == EXCEEDED
    assert text == (
        "space 'ns/shop' has 2 connections, as many as its plan allows; close one, or ask for a larger plan"
    )
    assert len(node.connections) == 2
    first.client.close()
    first.go()
    assert node.client().diary.error is None
    assert second.diary.error is None


def test_a_lower_limit_sends_nobody_away(node: Node) -> None:
    clients = [node.client() for _ in range(3)]
    limit(node, maxConnections=1, maxLinks=1)
    for client in clients:
        client.go()
        assert client.diary.error is None
    assert error_of(node.client())[0] == EXCEEDED


def test_devices_are_distinct_container_ids(node: Node) -> None:
    limit(node, maxDevices=2)
    one, again, two = (named(node, container) for container in ("one", "one", "two"))
    assert [client.diary.error for client in (one, again, two)] == [None] * 3
    condition, text = error_of(named(node, "three"))
    assert condition == EXCEEDED
    assert "2 devices (distinct container ids)" in text
    for client in (one, again):
        client.client.close()
        client.go()
    assert named(node, "three").diary.error is None


def test_links_of_all_connections_of_a_space_count_together(node: Node) -> None:
    limit(node, maxLinks=3)
    client, other = node.client(), node.client()
    client.sender("q", "1")
    client.receiver("q", name="2")
    other.sender(Target(), "3")
    other.sender("q", "4")
    other.receiver("q", name="5")
    assert other.refusals == [("4", EXCEEDED, True), ("5", EXCEEDED, True)]
    client.client.close()
    client.go()
    other.sender("q", "6")
    assert len(other.refusals) == 2


def test_a_link_that_was_refused_counts_no_more(node: Node) -> None:
    limit(node, maxLinks=1)
    client = node.client()
    for _ in range(3):
        client.sender("nowhere")
    assert {condition for _, condition, _ in client.refusals} == {"amqp:not-found"}
    client.sender("q", "good")
    assert node.entities.spaces["ns/shop"].usage.links == 1


def test_links_of_a_connection_that_is_lost_count_no_more(node: Node) -> None:
    client = node.client()
    client.sender("q")
    client.receiver("t")
    client.server.lost()
    usage = node.entities.spaces["ns/shop"].usage
    assert (usage.connections, usage.links, len(usage.devices), len(usage.senders)) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("limits", "refused", "word"),
    [
        ({"maxSenders": 1}, ["s2"], "1 senders"),
        ({"maxReceivers": 1}, ["r2"], "1 receivers"),
        ({"maxLinks": 2}, ["s2", "r2"], "2 links"),
    ],
)
def test_links_of_an_address_are_bounded(node: Node, limits: dict[str, int], refused: list[str], word: str) -> None:
    limit(node, ADDRESS_TYPE, "ns/shop.q", **limits)
    client = node.client()
    client.sender("q", "s1")
    client.receiver("q", name="r1")
    client.sender("q", "s2")
    client.receiver("q", name="r2")
    client.sender("a", "elsewhere")
    assert [name for name, _, _ in client.refusals] == refused
    assert {condition for _, condition, _ in client.refusals} == {EXCEEDED}
    texts = [error.description or "" for error in client.diary.link_errors]
    assert all(f"address 'q' of space 'ns/shop' has {word}, as many as its plan allows" in text for text in texts)


@pytest.mark.parametrize(
    ("space", "address", "told"),
    [(0, 0, MAX_MESSAGE_BYTES), (1_000, 0, 1_000), (0, 500, 500), (1_000, 500, 500), (300, 500, 300)],
)
def test_a_link_is_told_the_least_message_size(node: Node, space: int, address: int, told: int) -> None:
    limit(node, maxMessageSize=space)
    limit(node, ADDRESS_TYPE, "ns/shop.q", maxMessageSize=address)
    client = node.client()
    sender = client.sender("q")
    attach = sender.link.remote_attach if sender.link is not None else None
    assert attach is not None
    assert attach.max_message_size == told


@pytest.mark.parametrize("target", ["q", "a", ""])
def test_a_message_that_is_too_large_ends_its_link(node: Node, target: str) -> None:
    limit(node, maxMessageSize=1_000)
    client = node.client()
    client.receiver("a")
    sender = client.sender(Target(address=target or None))
    sender.link.max_message_size = 0  # type: ignore[union-attr]
    sender.link.room = 1 << 20  # type: ignore[union-attr]
    sender.send(message(bytes(2_000), to="q"))
    client.go()
    assert client.refusals == [("out", "amqp:link:message-size-exceeded", True)]


def test_a_large_message_that_passes_may_not_grow_beyond_its_size(node: Node) -> None:
    limit(node, maxMessageSize=3_000_000)
    client = node.client()
    taken = client.receiver("a")
    sender = client.sender("a")
    sender.link.max_message_size = 0  # type: ignore[union-attr]
    sender.link.room = min(sender.link.room, 1 << 15)  # type: ignore[union-attr]
    sender.send(message(bytes(2_000_000)))
    client.go()
    assert len(taken.payloads) == 1
    sender.send(message(bytes(4_000_000)))
    client.go()
    assert client.refusals == [("out", "amqp:link:message-size-exceeded", True)]
    assert len(taken.payloads) == 1


def test_rates_are_credit_and_hold_for_those_who_are_there(node: Node) -> None:
    client = node.client()
    sender = client.sender("q")
    assert sender.link.credit > 500  # type: ignore[union-attr]
    limit(node, maxMessageRate=20)
    client.go()
    assert sender.link.credit <= 20  # type: ignore[union-attr]
    late = client.sender("q", "late")
    assert sender.link.credit + late.link.credit <= 20  # type: ignore[union-attr]
    limit(node, maxMessageRate=0)
    client.go()
    client.node.harness.advance(1.1)
    client.go()
    assert sender.link.credit > 500  # type: ignore[union-attr]


def test_a_metered_sender_hears_its_outcomes(node: Node) -> None:
    limit(node, maxMessageRate=20, maxByteRate=100_000)
    client = node.client()
    sender = client.sender("q")
    for _ in range(3):
        sender.send(message())
    client.go()
    assert [type(state) for state in sender.states] == [Accepted] * 3


def test_the_rate_of_an_address_leaves_other_addresses_alone(node: Node) -> None:
    limit(node, ADDRESS_TYPE, "ns/shop.q", maxMessageRate=5)
    client = node.client()
    assert client.sender("q").link.credit <= 5  # type: ignore[union-attr]
    assert client.sender("t", "free").link.credit > 500  # type: ignore[union-attr]


def test_a_space_shows_what_of_it_is_in_use(node: Node) -> None:
    client = node.client()
    client.sender("q")
    shown = node.entities.read(SPACE_TYPE, "ns/shop")
    assert (shown["connections"], shown["devices"], shown["links"], shown["bytesStored"]) == (1, 1, 1, 0)


def test_messages_wait_no_longer_than_the_space_lets_them(node: Node) -> None:
    limit(node, maxTtl=5_000)
    client = node.client()
    sender = client.sender("q")
    sender.send(message())
    client.go()
    node.harness.advance(6)
    client.go()
    assert client.receiver("q").payloads == []


def test_what_an_address_asks_for_beyond_the_space_is_clamped(node: Node) -> None:
    node.address("slow", "queue", ttlMinimum=60_000, ttlMaximum=120_000)
    limit(node, maxTtl=5_000)
    found: Any = node.entities.spaces["ns/shop"].find("slow")
    assert (found.options.ttl_minimum, found.options.ttl_maximum) == (5_000, 5_000)
    limit(node, maxTtl=0)
    assert (found.options.ttl_minimum, found.options.ttl_maximum) == (60_000, 120_000)


@pytest.mark.parametrize("kind", ["anycast", "multicast", "stream"])
def test_a_brokered_space_refuses_what_keeps_nothing_in_order(kind: str) -> None:
    node = Node()
    node.entities.create(SPACE_TYPE, "ns/broker", {"spaceType": "brokered"}, node.answers.append)
    node.harness.commit()
    with pytest.raises(EntityError) as refused:
        node.address("x", kind, "ns/broker")
    assert refused.value.status == 400
    assert "is brokered, which has queue, topic, subscription, deadletter" in refused.value.description


def test_dynamic_addresses_count_as_links(node: Node) -> None:
    limit(node, maxLinks=1)
    client = node.client()
    client.receiver(Source(dynamic=True))
    client.sender(Target(dynamic=True), "second")
    assert client.refusals == [("second", EXCEEDED, True)]
    assert len(node.entities.spaces["ns/shop"].dynamic) == 1


def test_a_space_that_keeps_much_for_links_pushes_out_its_own_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.node.amqp.recovery.MAX_TERMINI", 4)
    node = Node("ns/shop", "ns/noisy")
    for space in ("ns/shop", "ns/noisy"):
        node.address("q", "queue", space)
    for host, names in (("shop.ns", "a"), ("noisy.ns", "bcdefgh")):
        for name in names:
            client = Client(node, host, None, container=name)
            client.sender(Target(address="q", expiry_policy=Symbol("never")), name)
            client.server.lost()
    kept = [(key.space.name, key.name) for key in node.connections.shared(Recovery)._termini]
    assert kept == [("ns/shop", "a"), ("ns/noisy", "f"), ("ns/noisy", "g"), ("ns/noisy", "h")]
