"""What waits for room, a rate, the disk or a slow receiver holds up nothing behind it on its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pytest

from enmasse.message.sections import Header, Sections, encode_message
from enmasse.node.connections import waiting
from enmasse.node.connections.waiting import ASSURED_BYTES, GRAIN_BYTES, WaitingBudget, WaitingRoom
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Will
from tests.unit.node import mqtt_scene, stomp_scene
from tests.unit.node.mqtt_scene import V3, V5

ROOM = {"maxBytes": 1_000}
MESSAGES = 25
"""More than a client of a library is used to have without an answer."""


class Publisher(ABC):
    """A client of any protocol whose messages have outcomes; of node and client nothing is written on the way."""

    client: Any

    def __init__(self, scene: Any) -> None:
        self.scene = scene

    @property
    def has_codes(self) -> bool:
        """True if a message that is not accepted has an answer that does not end the connection."""
        return False

    @abstractmethod
    def publish(self, address: str, body: bytes) -> None:
        """Send a message."""

    @abstractmethod
    def outcomes(self) -> list[str]:
        """``accepted`` or ``refused``, of each message since the last time; it has heard of nothing else."""

    @abstractmethod
    def take(self) -> None:
        """Subscribe to the queue ``other``, and acknowledge the message that it has."""

    @abstractmethod
    def taken(self) -> bytes:
        """The body of the message that has come; what else was heard is forgotten."""

    @abstractmethod
    def leave_other(self) -> bool:
        """Unsubscribe, and tell whether that was answered."""

    @abstractmethod
    def is_alive(self) -> bool:
        """Ask for a sign of life, and tell whether it came."""

    @abstractmethod
    def talk(self) -> bool:
        """Carry what was said; nothing is committed. True if it has heard anything."""

    @property
    @abstractmethod
    def is_cut(self) -> bool:
        """True if the node has ended the connection."""


class MqttPublisher(Publisher):
    """One of MQTT."""

    def __init__(self, scene: mqtt_scene.Scene, version: Any, qos: int, **options: Any) -> None:
        super().__init__(scene)
        self.qos = qos
        if qos == 2:
            # Identifiers of a session that lasts are on disk.
            options = {"session_expiry_s": NEVER_EXPIRES, "is_clean": False, **options}
        self.client: mqtt_scene.Client = scene.client(version, **options)

    @property
    def has_codes(self) -> bool:
        return self.client.is_v5

    def publish(self, address: str, body: bytes) -> None:
        self.client.publish(address, body, self.qos)

    def outcomes(self) -> list[str]:
        told = self.client.told()
        assert {one.kind for one in told} <= {"puback", "pubrec"}, told
        return ["accepted" if one.reason < 0x80 else "refused" for one in told]

    def take(self) -> None:
        assert self.client.subscribed("other", qos=1) == [1]
        (message,) = self.client.told()
        self.client.acknowledge(message)
        self.scene.go_on()

    def taken(self) -> bytes:
        (message,) = [one for one in self.client.told() if one.kind == "publish"]
        return message.payload

    def leave_other(self) -> bool:
        self.client.unsubscribe("other")
        return self.client.one("unsuback").codes in ([], [0])

    def is_alive(self) -> bool:
        self.client.engine.put(b"\xc0\x00")
        return [one.kind for one in self.client.told()] == ["pingresp"]

    def talk(self) -> bool:
        while self.client.exchange():
            self.scene.harness.turn()
        return bool(self.client.heard)

    @property
    def is_cut(self) -> bool:
        return self.client.is_cut


class StompPublisher(Publisher):
    """One of STOMP."""

    def __init__(self, scene: stomp_scene.Scene) -> None:
        super().__init__(scene)
        self.client: stomp_scene.Client = scene.client()
        self._sent = 0

    def publish(self, address: str, body: bytes) -> None:
        self._sent += 1
        self.client.send(address, body, persistent="true", receipt=f"m{self._sent}")

    def outcomes(self) -> list[str]:
        told = self.client.told()
        assert {frame.command for frame in told} <= {"RECEIPT", "ERROR"}, told
        assert all(frame["receipt-id"].startswith("m") for frame in told), told
        return ["accepted" if frame.command == "RECEIPT" else "refused" for frame in told]

    def take(self) -> None:
        self.client.say("SUBSCRIBE", id="0", destination="other", ack="client-individual")
        self.client.say("ACK", id=self.client.one("MESSAGE")["ack"])
        self.scene.go_on()

    def taken(self) -> bytes:
        (message,) = [frame for frame in self.client.told() if frame.command == "MESSAGE"]
        return message.body

    def leave_other(self) -> bool:
        self.client.say("UNSUBSCRIBE", id="0", receipt="bye")
        return self.client.one("RECEIPT")["receipt-id"] == "bye"

    def is_alive(self) -> bool:
        self._sent += 1
        self.client.say("BEGIN", transaction=f"t{self._sent}", receipt="begun")
        return self.client.one("RECEIPT")["receipt-id"] == "begun"

    def talk(self) -> bool:
        self.scene.harness.turn()
        return self.client.write()

    @property
    def is_cut(self) -> bool:
        return self.client.engine.closed


MQTT = {
    "MQTT 3.1.1": (V3, 1),
    "MQTT 3.1.1, QoS 2": (V3, 2),
    "MQTT 5": (V5, 1),
    "MQTT 5, QoS 2": (V5, 2),
}
PUBLISHERS = [*MQTT, "STOMP"]


def scene_of(what: str, publisher: str = "MQTT 5") -> Any:
    """Return a node whose address ``queue``, ``topic`` or ``all`` does not take more, or not at once."""
    kinds: dict[str, dict[str, Any]] = {
        "room": {"queue": ROOM},
        "a rate": {"queue": {"maxMessageRate": 1}},
        "a slow subscriber": {"topic": {"slowPolicy": "block"}},
        "a slow receiver": {"all": {"slowPolicy": "block"}},
    }
    options = kinds.get(what, {})
    scene = stomp_scene.Scene(**options) if publisher == "STOMP" else mqtt_scene.Scene(**options)
    scene.node.address("other", "queue")
    return scene


def publisher_of(scene: Any, publisher: str, **options: Any) -> Publisher:
    """Return a client that is connected."""
    return StompPublisher(scene) if publisher == "STOMP" else MqttPublisher(scene, *MQTT[publisher], **options)


def address_of(what: str) -> str:
    return {"a slow subscriber": "topic", "a slow receiver": "all"}.get(what, "queue")


def fill(scene: Any, what: str) -> None:
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


def pass_time(scene: Any, seconds: float, *, is_full: bool) -> None:
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
    scene = scene_of(what, publisher)
    fill(scene, what)
    scene.node.fill("other", 1)
    client = publisher_of(scene, publisher)
    for number in range(MESSAGES):
        client.publish(address_of(what), b"%d" % number)
    assert len(client.outcomes()) <= 1
    assert client.is_alive()
    client.take()
    assert scene.node.find("other").counts()["messagesStored"] == 0
    client.publish("other", b"elsewhere")
    assert client.taken() == b"elsewhere"
    assert client.leave_other()
    assert not client.client.is_held()


def stored(scene: Any, address: str) -> list[bytes]:
    """Return the bodies of all messages of a queue, taken out of it."""
    receiver = scene.amqp_receiver(address, 1_000)
    scene.go_on()
    while receiver.unsettled:
        receiver.accept()
    scene.go_on()
    receiver.leave()
    scene.go_on()
    return [Sections(payload).body for payload in receiver.payloads]


@pytest.mark.parametrize("what", ["room", "the disk"])
@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_what_has_waited_too_long_is_answered_and_never_stored(publisher: str, what: str) -> None:
    scene = scene_of(what, publisher)
    fill(scene, what)
    is_full = what == "the disk"
    client = publisher_of(scene, publisher)
    for number in range(MESSAGES):
        client.publish("queue", b"%d" % number)
    client.talk()
    pass_time(scene, 28, is_full=is_full)
    assert not client.talk()
    pass_time(scene, 4, is_full=is_full)
    client.talk()
    if client.has_codes:
        assert client.outcomes() == ["refused"] * MESSAGES
        assert client.is_alive()
    else:
        assert client.is_cut
        assert client.outcomes() == ["refused"] * (publisher == "STOMP")
    pass_time(scene, 5, is_full=False)
    assert len(stored(scene, "queue")) == (0 if is_full else 2)
    if client.has_codes:
        client.publish("queue", b"again")
        assert client.outcomes() == ["accepted"]


@pytest.mark.parametrize("address", ["queue", "topic"])
@pytest.mark.parametrize("publisher", ["MQTT 3.1.1", "MQTT 5", "STOMP"])  # of QoS 2 nobody has it before it is stored
def test_what_a_receiver_keeps_that_could_not_be_written_is_answered(publisher: str, address: str) -> None:
    scene = scene_of("the disk", publisher)
    scene.node.address("durable", "subscription", topic="topic")
    receiver = scene.amqp_receiver("queue" if address == "queue" else "durable", 100)
    client = publisher_of(scene, publisher)
    for number in range(3):
        client.publish(address, b"%d" % number)
    client.talk()
    pass_time(scene, 5, is_full=True)
    assert not client.talk()
    pass_time(scene, 8, is_full=True)
    client.talk()
    if client.has_codes:
        assert client.outcomes() == ["refused"] * 3
    else:
        assert client.is_cut
    pass_time(scene, 5, is_full=False)
    assert len(receiver.payloads) == 3
    receiver.leave()
    scene.go_on()
    assert stored(scene, "queue" if address == "queue" else "durable") == []


@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_what_the_disk_did_not_take_is_stored_in_its_order_once_it_does(publisher: str) -> None:
    scene = scene_of("the disk", publisher)
    client = publisher_of(scene, publisher)
    for number in range(9):
        client.publish("queue", b"%d" % number)
        if not number % 3:
            client.talk()
            pass_time(scene, 2, is_full=True)
            while scene.harness.storage.pending:
                scene.harness.fail()
    pass_time(scene, 5, is_full=False)
    assert client.outcomes() == ["accepted"] * 9
    assert stored(scene, "queue") == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("publisher", PUBLISHERS)
def test_a_slow_drain_ends_no_connection_that_has_no_other_answer(publisher: str) -> None:
    scene = scene_of("a rate", publisher)
    client = publisher_of(scene, publisher)
    for number in range(2 * MESSAGES):
        client.publish("queue", b"%d" % number)
    found = []
    for _ in range(2 * MESSAGES + 1):
        found += client.outcomes()
        scene.harness.advance(1)
    found += client.outcomes()
    if client.has_codes:
        assert {*found} == {"accepted", "refused"}
    else:
        assert found == ["accepted"] * 2 * MESSAGES
    assert client.is_alive()


@pytest.mark.parametrize("ends", ["there is room", "there is none", "another takes the session over"])
@pytest.mark.parametrize("publisher", MQTT)
def test_a_goodbye_comes_after_what_was_published_before_it(publisher: str, ends: str) -> None:
    scene = scene_of("room")
    fill(scene, "room")
    client = publisher_of(scene, publisher, client_id="one", will=Will("other", b"will", qos=1))
    client.publish("queue", b"before")
    client.client.engine.put(b"\xe0\x00")
    assert client.outcomes() == []
    assert not client.is_cut
    if ends == "there is room":
        assert stored(scene, "queue")[2:] == [b"before"]
        assert client.outcomes() == ["accepted"]
    elif ends == "there is none":
        scene.harness.advance(31)
        scene.go_on()
    else:
        scene.client(MQTT[publisher][0], "one")
    assert not scene.connections.numbers.get(client.client.connection)
    scene.go_on()
    assert scene.node.find("other").counts()["messagesStored"] == 0, "its will"


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


@pytest.mark.parametrize("version", [V3, V5])
def test_a_flood_of_qos_0_holds_up_what_is_behind_it_for_a_second(version: Any) -> None:
    scene = scene_of("room")
    fill(scene, "room")
    client = scene.client(version)
    for number in range(5_000):
        client.publish("queue", b"%d" % number)
    client.engine.put(b"\xc0\x00")
    assert client.told() == []
    assert client.is_held()
    scene.harness.advance(1.1)
    assert client.one("pingresp")
    assert scene.node.find("queue").counts()["dropped"] == 5_000
    assert len(stored(scene, "queue")) == 2
    client.publish("queue", b"after")
    client.told()
    assert stored(scene, "queue") == [b"after"]


# Transactions of STOMP


def transaction_behind_a_full_queue() -> tuple[Any, Any]:
    """Return a node and a client whose transactions come behind a message that waits."""
    scene = scene_of("room", "STOMP")
    scene.node.address("third", "queue")
    fill(scene, "room")
    scene.node.fill("other", 1)
    client = scene.client()
    client.say("SUBSCRIBE", id="0", destination="other", ack="client-individual")
    number = client.one("MESSAGE")["ack"]
    client.send("queue", b"before", persistent="true")
    client.say("BEGIN", transaction="a", receipt="begun")
    client.send("third", b"in a", transaction="a", persistent="true", receipt="posted")
    client.say("ACK", id=number, transaction="a", receipt="acknowledged")
    assert [frame["receipt-id"] for frame in client.told()] == ["begun", "posted", "acknowledged"]
    return scene, client


@pytest.mark.parametrize("ends", ["COMMIT", "ABORT"])
def test_the_end_of_a_transaction_comes_after_messages_that_were_sent_before(ends: str) -> None:
    scene, client = transaction_behind_a_full_queue()
    client.say(ends, transaction="a", receipt="ended")
    client.send("third", b"after a", persistent="true", receipt="after")
    client.say("BEGIN", transaction="a", receipt="begun again")
    client.send("third", b"in a again", transaction="a", persistent="true", receipt="posted again")
    client.say("COMMIT", transaction="a", receipt="committed")
    client.send("third", b"last", persistent="true", receipt="last")
    client.say("DISCONNECT", receipt="bye")
    assert client.told() == []
    assert scene.node.find("third").counts()["messagesStored"] == 0
    assert stored(scene, "queue")[2:] == [b"before"]
    receipts = [frame["receipt-id"] for frame in client.told()]
    assert {*receipts[:-1]} == {"ended", "after", "begun again", "posted again", "committed", "last"}
    assert receipts[-1] == "bye"
    third = [b"in a"] * (ends == "COMMIT") + [b"after a", b"in a again", b"last"]
    assert sorted(stored(scene, "third")) == sorted(third)
    assert scene.node.find("other").counts()["messagesStored"] == (ends == "ABORT")


def test_what_is_wrong_behind_the_end_of_a_transaction_is_said_in_its_turn() -> None:
    scene, client = transaction_behind_a_full_queue()
    client.say("COMMIT", transaction="a", receipt="ended")
    client.send("nowhere", b"", receipt="lost")
    client.send("third", b"never", persistent="true", receipt="never")
    client.say("NACK", id="77", transaction="a")
    assert client.told() == []
    assert stored(scene, "queue")[2:] == [b"before"]
    (error,) = [frame for frame in client.told() if frame.command == "ERROR"]
    assert (error["receipt-id"], error["condition"]) == ("lost", "amqp:not-found")
    assert stored(scene, "third") == [b"in a"]


def test_a_transaction_whose_end_waits_too_long_leaves_nothing() -> None:
    scene, client = transaction_behind_a_full_queue()
    client.say("COMMIT", transaction="a", receipt="ended")
    assert client.told() == []
    scene.harness.advance(31)
    assert client.one("ERROR")["condition"] == "amqp:resource-limit-exceeded"
    assert len(stored(scene, "queue")) == 2
    assert stored(scene, "third") == []
    assert scene.node.find("other").counts()["messagesStored"] == 1


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
    (told,) = [one for one in connections.connections_of().page() if one["container"] == client.connection.container]
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
