"""Foreign clients of MQTT 3.1.1 and 5 against a real node: every QoS, sessions, wills, retained messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.conformance.clause_list import clause
from tests.interop.mqtt.conftest import Peer
from tests.support.mqtt_devices import Connect, Device, Foreign
from tests.support.polling import until

pytestmark = pytest.mark.slow

CLIENTS = ["paho", "aiomqtt", "mqttjs", "paho_java", "hivemq", "mosquitto"]
TELL_OF_SESSIONS = {"paho", "mqttjs", "paho_java", "hivemq"}
VERSIONS = [4, 5]

COUNT = 15
"""At once: in 3.1.1 a broker may take no more than 20 that it has not acknowledged."""

_numbers = count(1)


@pytest.fixture
def topic() -> str:
    return f"site/{next(_numbers)}/temperature"


@pytest.fixture(scope="module", params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(name: str, request: pytest.FixtureRequest) -> Foreign:
    found: Foreign = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class Pair(NamedTuple):
    """Two connections of one client."""

    publisher: Device
    subscriber: Device


@pytest.fixture(scope="module")
def pair(client: Foreign, version: int, peer: Peer) -> Iterator[Pair]:
    """Connections for tests that end their own subscriptions."""
    found = Pair(*(Device(client, peer.port, version) for _ in range(2)))
    yield found
    for device in found:
        device.disconnect()


@pytest.fixture(scope="module")
def witness(paho: Foreign, peer: Peer) -> Iterator[Device]:
    """A client that looks at what others do."""
    device = Device(paho, peer.port, 5)
    yield device
    device.disconnect()


def bodies(number: int = COUNT, prefix: str = "grüße") -> list[bytes]:
    return [f"{prefix} {n}".encode() for n in range(number)]


@clause("mqtt3:7.0.0-2", "mqtt3:7.1.1-1", "mqtt5:4.2-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_with_every_qos_once_and_in_order(pair: Pair, qos: int, topic: str) -> None:
    assert pair.subscriber.subscribe(topic, qos) == qos
    assert pair.publisher.publish(topic, *bodies(), qos=qos) == [0] * COUNT
    assert pair.publisher.publish(topic, b"last", qos=qos) == [0]
    messages = pair.subscriber.receive(COUNT + 1)
    assert [message.payload for message in messages] == [*bodies(), b"last"]
    assert {message.topic for message in messages} == {topic}
    assert {message.qos for message in messages} == {qos}
    assert not any(message.retain for message in messages)
    pair.subscriber.unsubscribe(topic)


def test_a_subscription_has_the_lower_qos_and_ends(pair: Pair, topic: str, witness: Device) -> None:
    wildcard = topic.replace("temperature", "+")
    assert pair.subscriber.subscribe(wildcard, 1) == 1
    assert witness.publish(topic, b"two", qos=2) == [0]
    assert witness.publish(topic, b"zero", qos=0) == [0]
    assert [(message.payload, message.qos) for message in pair.subscriber.receive(2)] == [(b"two", 1), (b"zero", 0)]
    pair.subscriber.unsubscribe(wildcard)
    witness.publish(topic, b"unheard", qos=1)
    assert pair.subscriber.subscribe(topic, 1) == 1
    witness.publish(topic, b"heard", qos=1)
    assert pair.subscriber.receive_bodies(1) == [b"heard"]
    pair.subscriber.unsubscribe(topic)


def test_what_filters_match_together_comes_once(pair: Pair, name: str, topic: str, witness: Device) -> None:
    if name == "mosquitto":
        pytest.skip("it connects where it subscribes, so each filter is a client's of its own")
    filters = {topic: 1, topic.replace("temperature", "+"): 2, topic.replace("temperature", "#"): 0}
    for text, qos in filters.items():
        assert pair.subscriber.subscribe(text, qos) == qos
    for qos in (0, 1, 2):
        witness.publish(topic, b"%d" % qos, qos=qos)
    witness.publish(topic, b"last", qos=2)
    found = pair.subscriber.receive(4)
    assert [(message.payload, message.qos) for message in found] == [(b"0", 0), (b"1", 1), (b"2", 2), (b"last", 2)]
    for text in filters:
        pair.subscriber.unsubscribe(text)


def test_a_retained_message_waits_for_subscribers(pair: Pair, topic: str) -> None:
    pair.publisher.publish(topic, b"21.5", qos=1, retain=True)
    pair.subscriber.subscribe(topic, 1)
    assert [(message.payload, message.retain) for message in pair.subscriber.receive(1)] == [(b"21.5", True)]
    pair.publisher.publish(topic, b"21.7", qos=1, retain=True)
    assert [(message.payload, message.retain) for message in pair.subscriber.receive(1)] == [(b"21.7", False)]
    pair.publisher.publish(topic, b"", qos=1, retain=True)
    assert pair.subscriber.receive_bodies(1) == [b""]
    pair.subscriber.unsubscribe(topic)
    # An empty one has cleared it.
    pair.subscriber.subscribe(topic, 1)
    pair.publisher.publish(topic, b"after", qos=1)
    assert [(message.payload, message.retain) for message in pair.subscriber.receive(1)] == [(b"after", False)]
    pair.subscriber.unsubscribe(topic)


def test_a_session_keeps_what_comes_while_its_client_is_away(
    client: Foreign, name: str, version: int, connect: Connect, topic: str, witness: Device
) -> None:
    session: dict[str, Any] = {"client_id": f"{name}-{version}-stays", "is_clean": False}
    if version == 5:
        session["expiry"] = 600
    first = connect(client, version, **session)
    assert first.subscribe(topic, 2) == 2
    first.disconnect()
    for qos in (1, 2):
        assert witness.publish(topic, *bodies(5, f"missed {qos}"), qos=qos) == [0] * 5
    again = connect(client, version, **session)
    if name in TELL_OF_SESSIONS:
        assert (first.is_present, again.is_present) == (False, True)
    if name == "mosquitto":  # which connects where it subscribes
        again.subscribe(topic, 2)
    messages = again.receive(10)
    assert [message.payload for message in messages] == [*bodies(5, "missed 1"), *bodies(5, "missed 2")]
    assert [message.qos for message in messages] == [1] * 5 + [2] * 5
    again.disconnect()
    # What was acknowledged is gone, and so is a session that is not wanted any more.
    anew = connect(client, version, **{**session, "is_clean": True, **({"expiry": 0} if version == 5 else {})})
    if name in TELL_OF_SESSIONS:
        assert not anew.is_present
    assert anew.subscribe(topic, 1) == 1
    witness.publish(topic, b"new", qos=1)
    assert anew.receive_bodies(1) == [b"new"]


def test_a_will_is_sent_for_a_client_that_is_cut_off(
    client: Foreign, name: str, version: int, connect: Connect, topic: str, witness: Device
) -> None:
    witness.subscribe(f"{topic}/state", 1)
    will = {"will_topic": f"{topic}/state", "will_payload": b"has left".hex(), "will_qos": 1, "will_retain": 0}
    orderly = connect(client, version, **will)
    orderly.subscribe(topic)
    orderly.disconnect()
    lost = connect(client, version, has_cut=True, **{**will, "will_payload": b"was lost".hex()})
    lost.subscribe(topic)
    lost.cut()
    # Interrupted, a mosquitto_sub of MQTT 5 says that its will is to be sent.
    expected = [b"has left", b"was lost"] if (name, version) == ("mosquitto", 5) else [b"was lost"]
    messages = witness.receive(len(expected))
    assert [message.payload for message in messages] == expected
    assert {message.qos for message in messages} == {1}
    witness.unsubscribe(f"{topic}/state")


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "response_topic": "answers/7",
    "correlation": b"c-7".hex(),
    "format": 1,
    "expiry": 3600,
    "user_properties": "colour=red,site=7,colour=blue",
}


@pytest.mark.parametrize("version", [5], scope="module", indirect=True)
def test_properties_of_mqtt_5_come_as_they_were_sent(pair: Pair, topic: str) -> None:
    pair.subscriber.subscribe(topic, 1)
    pair.publisher.publish(topic, b"all of them", qos=1, **PROPERTIES)
    (message,) = pair.subscriber.receive(1)
    told = message.properties
    assert 3590 <= told.pop("expiry") <= 3600
    assert sorted(told.pop("user_properties")) == [["colour", "blue"], ["colour", "red"], ["site", "7"]]
    expected = {name: PROPERTIES[name] for name in ("content_type", "response_topic", "correlation", "format")}
    assert told == expected
    assert message.payload == b"all of them"
    pair.subscriber.unsubscribe(topic)


@pytest.mark.parametrize("version", [5], scope="module", indirect=True)
def test_a_shared_subscription_gives_each_message_to_one_client(pair: Pair, topic: str, witness: Device) -> None:
    for worker in pair:
        assert worker.subscribe(f"$share/workers/{topic}", 1) == 1
    witness.publish(topic, *bodies(20), qos=1)
    until(lambda: sum(worker.arrived() for worker in pair) == 20)
    shares = [worker.receive_bodies(worker.arrived()) for worker in pair]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == sorted(bodies(20))
    for worker in pair:
        worker.unsubscribe(f"$share/workers/{topic}")
