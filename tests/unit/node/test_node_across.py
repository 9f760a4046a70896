"""Receivers of patterns that stand for names of several addresses."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import Sections, encode_message
from enmasse.messaging.across import Across
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import Cut, parse
from enmasse.node.management.entity_fields import ADDRESS_TYPE
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


@pytest.mark.parametrize(
    "options", [{"is_durable": True, "name": "mine"}, {"capabilities": ("shared",), "name": "a"}]
)
def test_a_durable_or_shared_subscription_of_several_addresses_is_refused(scene: Scene, options: Any) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    with pytest.raises(AttachError, match="stands for 2 addresses"):
        scene.harness.receiver(Across(space, "news/#"), source="news/#", **options)


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
