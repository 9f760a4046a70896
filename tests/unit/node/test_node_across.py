"""Receivers of patterns that stand for names of several addresses."""

from __future__ import annotations

import pytest

from enmasse.messaging.across import Across
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


def test_a_receiver_with_messages_that_have_no_outcome_drains_and_ends_at_all(scene: Scene) -> None:
    space = next(iter(scene.node.entities.spaces.values()))
    port = scene.harness.receiver(Across(space, "news/#"), 10, source="news/#", presettle=True)
    sender = scene.amqp_sender("news/uk")
    scene.go_on()
    sender.send(b"\x00Su\xa0\x01x", settled=True)
    scene.go_on()
    assert len(port.arrivals) == 1
    assert port.credit == 9
    assert port.sink.deliveries in (0, 1)
    port.sink.on_detached()
    assert not space.crossing
    assert not port.sink.ends  # type: ignore[attr-defined]
