"""What waits for room, a rate, the disk or a slow receiver holds up nothing behind it on its connection."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.node import waiting
from enmasse.node.waiting import ASSURED_BYTES, GRAIN_BYTES, WaitingBudget, WaitingRoom
from enmasse.wire.amqp.sections import Header, Sections, encode_message
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Will
from tests.unit.node import mqtt_scene
from tests.unit.node.mqtt_scene import V3, V5

ROOM = {"maxBytes": 1_000}
MESSAGES = 25
"""More than a client of a library is used to have without an answer."""


class MqttPublisher:
    """One of MQTT; QoS 1."""

    def __init__(self, scene: mqtt_scene.Scene, version: Any, qos: int, **options: Any) -> None:
        self.scene, self.qos = scene, qos
        self.client = scene.client(version, **options)

    def publish(self, address: str, body: bytes) -> None:
        self.client.publish(address, body, self.qos)

    def outcomes(self) -> list[str]:
        told = self.client.told()
        assert {one.kind for one in told} <= {"puback", "pubrec", "disconnect"}, told
        return ["accepted" if one.reason < 0x80 else "refused" for one in told if one.kind != "disconnect"]

    def take(self) -> None:
        assert self.client.subscribed("other", qos=1) == [1]
        (message,) = self.client.told()
        self.client.acknowledge(message)
        self.scene.go_on()

    def is_alive(self) -> bool:
        self.client.engine.put(b"\xc0\x00")
        return [one.kind for one in self.client.told()] == ["pingresp"]


PUBLISHERS = {
    "MQTT 3.1.1": (V3, 1),
    "MQTT 3.1.1, QoS 2": (V3, 2),
    "MQTT 5": (V5, 1),
    "MQTT 5, QoS 2": (V5, 2),
}


def scene_of(what: str) -> mqtt_scene.Scene:
    """Return a node whose address ``queue``, ``topic`` or ``all`` does not take more, or not at once."""
    options: dict[str, Any] = {"room": {"queue": ROOM}, "a rate": {"queue": {"maxMessageRate": 1}}}.get(what, {})
    if what == "a slow subscriber":
        options = {"topic": {"slowPolicy": "block"}}
    if what == "a slow receiver":
        options = {"all": {"slowPolicy": "block"}}
    scene = mqtt_scene.Scene(**options)
    scene.node.address("other", "queue")
    return scene


def address_of(what: str) -> str:
    return {"a slow subscriber": "topic", "a slow receiver": "all"}.get(what, "queue")


def fill(scene: mqtt_scene.Scene, what: str) -> None:
    """Have an address take no more."""
    if what in ("room", "a rate"):
        sender = scene.amqp_sender("queue")
        scene.go_on()
        for _ in range(2):
            if sender.credit:
                sender.send(encode_message(bytes(600), header=Header(durable=True)))
                scene.go_on()
        sender.leave()
    elif what == "a slow receiver":
        scene.amqp_receiver("all", 0)
    elif what == "a slow subscriber":
        scene.amqp_receiver("topic", 0)
        sender = scene.amqp_sender("topic")
        scene.go_on()
        for _ in range(10):
            if sender.credit:
                sender.send(encode_message(bytes(1 << 20)))
                scene.go_on()
        assert not sender.credit
        sender.leave()
    scene.go_on()


def pass_time(scene: mqtt_scene.Scene, seconds: float, *, is_full: bool) -> None:
    """Let time pass, on a disk that is full or not."""
    harness = scene.harness
    for _ in range(int(seconds * 2)):
        while is_full and harness.storage.pending:
            harness.storage.fail()
            harness.turn()
        harness.advance(0.5)


@pytest.mark.parametrize("what", ["room", "a rate", "a slow subscriber", "a slow receiver"])
@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_what_comes_behind_messages_that_wait_is_served(publisher: str, what: str) -> None:
    scene = scene_of(what)
    fill(scene, what)
    scene.node.fill("other", 1)
    client = MqttPublisher(scene, *PUBLISHERS[publisher])
    for number in range(MESSAGES):
        client.publish(address_of(what), b"%d" % number)
    assert len(client.outcomes()) <= 1
    assert client.is_alive()
    client.take()
    assert scene.space.find("other").counts()["messagesStored"] == 0
    client.publish("other", b"elsewhere")
    (message,) = [one for one in client.client.told() if one.kind == "publish"]
    assert message.payload == b"elsewhere"
    client.client.unsubscribe("other")
    assert client.client.one("unsuback").codes in ([], [0])
    assert not client.client.is_held()


def stored(scene: mqtt_scene.Scene, address: str) -> list[bytes]:
    """Return the bodies of all messages of a queue, taken out of it."""
    receiver = scene.amqp_receiver(address, 1_000)
    scene.go_on()
    while receiver.unsettled:
        receiver.accept()
    scene.go_on()
    return [Sections(payload).body for payload in receiver.payloads]


@pytest.mark.parametrize("what", ["room", "the disk"])
@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_what_has_waited_too_long_is_answered_and_never_stored(publisher: str, what: str) -> None:
    scene = scene_of(what)
    fill(scene, what)
    before = 0 if what == "the disk" else 2
    client = MqttPublisher(scene, *PUBLISHERS[publisher], session_expiry_s=100 if "QoS 2" in publisher else 0)
    for number in range(MESSAGES):
        client.publish("queue", b"%d" % number)
    is_full = what == "the disk"
    while client.client.exchange():
        scene.harness.turn()
    pass_time(scene, 28, is_full=is_full)
    assert not client.client.heard
    pass_time(scene, 4, is_full=is_full)
    while client.client.exchange():
        scene.harness.turn()
    if "5" in publisher:
        assert client.outcomes() == ["refused"] * MESSAGES
        assert client.is_alive()
    else:
        assert client.client.is_cut
    pass_time(scene, 5, is_full=False)
    assert len(stored(scene, "queue")) == before
    if "5" in publisher:
        client.publish("queue", b"again")
        assert client.outcomes() == ["accepted"]


@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_what_the_disk_did_not_take_is_stored_in_its_order_once_it_does(publisher: str) -> None:
    scene = scene_of("the disk")
    client = MqttPublisher(scene, *PUBLISHERS[publisher], session_expiry_s=100 if "QoS 2" in publisher else 0)
    for number in range(9):
        client.publish("queue", b"%d" % number)
        if not number % 3:
            while client.client.exchange():
                scene.harness.turn()
            pass_time(scene, 2, is_full=True)
            while scene.harness.storage.pending:
                scene.harness.fail()
    pass_time(scene, 5, is_full=False)
    assert client.outcomes() == ["accepted"] * 9
    assert stored(scene, "queue") == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_a_slow_drain_ends_no_connection_that_has_no_other_answer(publisher: str) -> None:
    scene = mqtt_scene.Scene(queue={"maxMessageRate": 1})
    client = MqttPublisher(scene, *PUBLISHERS[publisher])
    for number in range(2 * MESSAGES):
        client.publish("queue", b"%d" % number)
    found = []
    for _ in range(2 * MESSAGES + 1):
        found += client.outcomes()
        scene.harness.advance(1)
    found += client.outcomes()
    if "5" in publisher:
        assert {*found} == {"accepted", "refused"}
    else:
        assert found == ["accepted"] * 2 * MESSAGES
    assert client.is_alive()


@pytest.mark.parametrize("ends", ["there is room", "there is none", "another takes the session over"])
@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_a_goodbye_comes_after_what_was_published_before_it(publisher: str, ends: str) -> None:
    scene = scene_of("room")
    fill(scene, "room")
    will = Will("other", b"will", qos=1)
    client = MqttPublisher(scene, *PUBLISHERS[publisher], client_id="one", will=will)
    client.publish("queue", b"before")
    client.client.engine.put(b"\xe0\x00")
    client.client.told()
    assert scene.connections.numbers, "it is not closed yet"
    if ends == "there is room":
        assert stored(scene, "queue")[2:] == [b"before"]
        assert client.outcomes() == ["accepted"]
    elif ends == "there is none":
        scene.harness.advance(31)
        scene.go_on()
    else:
        scene.client(PUBLISHERS[publisher][0], "one")
    assert client.client.is_cut
    scene.go_on()
    assert scene.space.find("other").counts()["messagesStored"] == 0, "its will"


def test_a_will_that_is_asked_for_comes_after_what_was_published_before() -> None:
    scene = scene_of("room")
    fill(scene, "room")
    client = scene.client(V5, will=Will("queue", b"will", qos=1))
    client.publish("queue", b"before", 1)
    client.engine.put(b"\xe0\x01\x04")
    client.told()
    assert not client.is_cut
    assert stored(scene, "queue")[2:] == [b"before", b"will"]
    assert client.is_cut


@pytest.mark.parametrize("version", [V3, V5])
def test_what_a_receiver_has_accepted_is_answered_on_a_full_disk_too(version: Any) -> None:
    scene = mqtt_scene.Scene()
    receiver = scene.amqp_receiver("any")
    client = scene.client(version, "one", session_expiry_s=NEVER_EXPIRES, is_clean=False)
    client.publish("any", b"once", 2)
    while client.exchange():
        scene.harness.turn()
    receiver.accept()
    scene.harness.fail()
    client.exchange()
    assert [(one.kind, one.reason) for one in client.heard] == [("pubrec", 0)]
    client.heard.clear()
    scene.harness.advance(1)
    scene.go_on()
    scene.restart()
    again = scene.client(version, "one", session_expiry_s=NEVER_EXPIRES, is_clean=False)
    again.publish("any", b"once", 2, packet_id=1)
    assert again.one("pubrec").reason == 0, "known, and sent to nobody"


# Bounds


@pytest.mark.parametrize("version", [V3, V5])
def test_a_client_with_more_than_may_wait_is_not_read_and_is_alive_all_the_same(
    version: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ASSURED_BYTES", 100 * 1_000)
    scene = scene_of("room")
    fill(scene, "room")
    connections = scene.connections
    monkeypatch.setattr(connections._waiting, "max_bytes", 4 * GRAIN_BYTES)
    client = scene.client(version, keep_alive_s=10)
    for _ in range(400):
        client.publish("queue", bytes(1_000), 1)
    assert client.told() == []
    assert client.is_held()
    waits = len(client.connection.publications.unanswered)
    assert 200 < waits < 260, "what is assured, and half of the budget"
    (told,) = [one for one in connections.read_connections() if one["container"] == client.connection.container]
    assert f"{waits} messages" in told["paused"]
    other = scene.client(V5)
    other.publish("any", b"of another", 1)
    assert other.told()
    for _ in range(3):
        scene.harness.advance(8)
        client.node_engine.receive(b"", scene.now)  # as for what lies unread in its socket
        client.node_engine.handle_deadline(scene.now)
        scene.go_on()
        assert not client.is_cut
    scene.harness.advance(8)
    scene.go_on()
    assert client.is_cut is (version is V3)
    client.connection.engine.close()
    assert connections._waiting.held == 0


def test_a_space_takes_no_more_of_the_budget_than_it_leaves() -> None:
    budget = WaitingBudget(12 * GRAIN_BYTES)
    greedy, other, third = (WaitingRoom(budget, name) for name in ("one", "two", "one"))

    def take(room: WaitingRoom) -> int:
        for grains in range(1, 20):
            if not room.resize(ASSURED_BYTES + grains * GRAIN_BYTES):
                return grains - 1
        raise AssertionError("without a bound")

    assert take(greedy) == 6
    assert take(third) == 0
    assert take(other) == 3
    assert third.resize(ASSURED_BYTES), "what each connection is assured"
    for room in (greedy, other, third):
        assert room.resize(0)
    assert budget.held == 0
    assert take(third) == 6
