"""MQTT clients that flood, take over, never read or never answer: what they get, and that others notice nothing."""

from __future__ import annotations

import pytest

from enmasse.node.connections.client_connection import MAX_LINKS
from enmasse.node.mqtt.connection import MAX_INFLIGHT
from enmasse.node.mqtt.publications import MAX_SENDERS, MAX_TARGETS
from enmasse.wire.mqtt.output import TURN_BYTES
from enmasse.wire.mqtt.packets import MAX_FILTERS, Reason
from tests.unit.node.mqtt_scene import V3, V5, Client, Scene


class Bystanders:
    """A publisher and a subscriber of the same space, who have nothing to do with all this."""

    def __init__(self, scene: Scene) -> None:
        self._publisher, self._subscriber = scene.client(), scene.client()
        self._subscriber.subscribed("topic/bystander", qos=1)

    def notice_nothing(self) -> None:
        assert self._publisher.answer("topic/bystander", b"as ever") == 0
        assert self._subscriber.bodies() == [b"as ever"]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def bystanders(scene: Scene) -> Bystanders:
    return Bystanders(scene)


@pytest.mark.slow
def test_a_flood_of_subscriptions_ends_at_the_limit_of_links(scene: Scene, bystanders: Bystanders) -> None:
    client = scene.client()
    codes: list[int] = []
    while len(codes) <= MAX_LINKS:
        wanted = [f"topic/{len(codes) + number}/+" for number in range(MAX_FILTERS)]
        codes += client.subscribed(*wanted, qos=1)
    assert set(codes) == {1, Reason.QUOTA_EXCEEDED}
    assert codes.count(1) == MAX_LINKS
    bystanders.notice_nothing()
    client.node_engine.lost()
    scene.go_on()
    assert len(scene.space.find("topic").subscriptions) == 1


def test_the_same_filters_over_and_over_are_one_subscription_each(scene: Scene, bystanders: Bystanders) -> None:
    client = scene.client()
    for _ in range(20):
        assert client.subscribed(*["topic/a/#"] * 100, qos=1) == [1] * 100
    assert len(scene.space.find("topic").subscriptions) == 2
    bystanders.notice_nothing()


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_of_a_storm_of_takeovers_the_last_is_left(scene: Scene, bystanders: Bystanders, expiry_s: int) -> None:
    storm = [Client(scene, V5, "device", is_clean=False, session_expiry_s=expiry_s) for _ in range(200)]
    scene.go_on()
    *before, last = storm
    assert all(client.is_cut for client in before)
    # Those that were not let in yet have no such code in CONNACK.
    assert {client.heard[-1].reason for client in before} <= {Reason.SESSION_TAKEN_OVER, Reason.UNSPECIFIED_ERROR}
    assert not last.is_cut
    assert len(scene.space.sessions) == 3
    assert len(scene.connections) == 3
    bystanders.notice_nothing()


def test_a_client_that_never_acknowledges_has_a_bounded_number_in_flight(
    scene: Scene, bystanders: Bystanders
) -> None:
    client = scene.client(V3)
    client.subscribed("topic/#", "queue", qos=2)
    sender = scene.client()
    for _ in range(MAX_INFLIGHT + 500):
        sender.publish("topic/a", bytes(10_000))
        sender.publish("queue", b"x")
    sender.publish("topic/a", b"last", 1)
    assert [one.kind for one in sender.told()] == ["puback"], "it holds up nobody"
    heard = client.told()
    numbered = [one for one in heard if one.qos]
    assert len(numbered) <= MAX_INFLIGHT
    assert len({one.packet_id for one in numbered}) == len(numbered)
    assert scene.space.find("queue").counts()["messagesStored"] == MAX_INFLIGHT + 500
    bystanders.notice_nothing()


def test_a_client_that_never_reads_is_sent_a_bounded_amount(scene: Scene, bystanders: Bystanders) -> None:
    client = scene.client()
    client.subscribed("topic/#", qos=0)
    scene.clients.remove(client)  # its socket takes nothing any more
    client.node_engine.block_output()
    sender = scene.client()
    for _ in range(500):
        sender.publish("topic/a", bytes(100_000))
    scene.go_on()
    assert client.node_engine.out_bytes <= TURN_BYTES
    (subscription,) = [one for one in scene.space.find("topic").subscriptions if one.name == "topic/#"]
    assert subscription.bytes_stored <= subscription.max_bytes
    assert subscription.dropped > 0
    bystanders.notice_nothing()


def test_a_client_that_is_blocked_and_goes_on_gets_what_waited(scene: Scene) -> None:
    client, sender = scene.client(), scene.client()
    client.subscribed("topic/#", qos=1)
    client.node_engine.block_output()
    for number in range(5):
        sender.publish("topic/a", b"%d" % number, number % 2)
    assert client.told() == []
    client.node_engine.resume_output()
    assert client.bodies() == [b"%d" % number for number in range(5)]


def test_names_without_number_are_published_to_in_bounded_memory(scene: Scene, bystanders: Bystanders) -> None:
    scene.node.address("#", "topic")
    client = scene.client()
    for number in range(3 * MAX_TARGETS):
        client.publish(f"topic/{number}")
        client.publish(f"names/{number}/" + "x" * 2_000)
    scene.go_on()
    publications = client.connection.publications
    assert len(publications._targets) <= MAX_TARGETS
    assert all(len(name) < 1_100 for name in publications._targets)
    assert len(client.connection.links) == 2
    bystanders.notice_nothing()


def test_addresses_without_number_are_published_to_over_a_bounded_number_of_links(scene: Scene) -> None:
    for number in range(2 * MAX_SENDERS):
        scene.node.address(f"q{number}", "queue")
    client = scene.client()
    for number in range(2 * MAX_SENDERS):
        assert client.answer(f"q{number}") == 0
    assert len(client.connection.links) == MAX_SENDERS
    assert client.answer("q0") == 0
    assert scene.space.find("q0").counts()["messagesStored"] == 2


@pytest.mark.parametrize("qos", [0, 1])
def test_a_flood_into_nowhere_is_counted(scene: Scene, bystanders: Bystanders, qos: int) -> None:
    client = scene.client()
    for number in range(1_000):
        client.publish(f"nowhere/{number}", b"x", qos)
    answers = client.told()
    assert [one.reason for one in answers] == [Reason.TOPIC_NAME_INVALID] * (1_000 * qos)
    assert scene.space.unroutable == 1_000
    bystanders.notice_nothing()


def test_more_than_the_receive_maximum_ends_the_connection(scene: Scene, bystanders: Bystanders) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any", 5)
    scene.go_on()
    # The engine of a client keeps to the maximum that it was told, this one does not.
    for number in range(1_001):
        client.publish("any", b"x", 1, packet_id=number + 1)
    heard = client.told()
    assert heard[-1].kind == "disconnect"
    assert heard[-1].reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    receiver.leave()
    bystanders.notice_nothing()


@pytest.mark.slow
def test_large_messages_without_an_answer_are_bounded_in_bytes(scene: Scene, bystanders: Bystanders) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any", 1_000)
    scene.go_on()
    for _ in range(100):
        client.publish("any", bytes(1 << 20), 1)
    scene.go_on()
    assert client.is_held()
    assert client.connection.publications.kept_bytes <= 18 << 20
    while receiver.unsettled:
        receiver.accept(len(receiver.unsettled))
        scene.go_on()
    assert len(receiver.payloads) == 100
    assert client.connection.publications.kept_bytes == 0
    bystanders.notice_nothing()
