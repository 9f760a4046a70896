"""MQTT to AMQP and back over every address type: paho-mqtt on one side, python-qpid-proton on the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.conftest import Addresses
from tests.interop.mqtt.conftest import IS_MOSQUITTO
from tests.support.foreign_tools import require
from tests.support.mqtt_devices import Connect, Foreign
from tests.support.node_process import NodeProcess

require("python-qpid-proton")
from proton import Described, Message, symbol

from tests.support.proton_blocking import ProtonClient

pytestmark = [pytest.mark.slow, pytest.mark.skipif(IS_MOSQUITTO, reason="Mosquitto speaks no AMQP")]

ALL = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]
COUNT = 10


@pytest.fixture(scope="module")
def amqp(node: NodeProcess) -> Iterator[ProtonClient]:
    with ProtonClient(node.url) as client:
        yield client


@pytest.fixture(scope="module")
def beside() -> Iterator[ThreadPoolExecutor]:
    """A thread for a client that waits until the other one has done its part."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def bodies(number: int = COUNT) -> list[bytes]:
    return [f"message {n}".encode() for n in range(number)]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", ALL)
def test_what_a_device_publishes_reaches_amqp(
    paho: Foreign, connect: Connect, amqp: ProtonClient, beside: Any, addresses: Addresses, kind: str, version: int
) -> None:
    source, target = addresses.pair(kind)
    device = connect(paho, version)
    receiver = amqp.receiver(source)
    for qos in (0, 1, 2):
        receiver.receiver.link.flow(COUNT)
        receiver.flush()
        published = beside.submit(device.publish, target, *bodies(), qos=qos)
        messages = receiver.take(COUNT)
        assert [bytes(message.body) for message in messages] == bodies()
        assert {message.durable for message in messages} == {qos > 0}
        assert published.result(60) == [0] * COUNT
    receiver.close()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", ALL)
def test_what_amqp_sends_reaches_a_device(
    paho: Foreign, connect: Connect, amqp: ProtonClient, addresses: Addresses, kind: str, version: int
) -> None:
    source, target = addresses.pair(kind)
    device = connect(paho, version)
    for qos in (1, 2, 0):
        assert device.subscribe(source, qos) == qos
        # Each of these is accepted: by the address, or by the device itself.
        amqp.send(target, *(Message(body=body, durable=True, inferred=True) for body in bodies()))
        messages = device.receive(COUNT)
        assert [message.payload for message in messages] == bodies()
        assert {message.qos for message in messages} == {qos}
        assert {message.topic for message in messages} == {source}
        device.unsubscribe(source)


def test_what_a_device_says_about_a_message_is_known_to_amqp(
    paho: Foreign, connect: Connect, amqp: ProtonClient, addresses: Addresses
) -> None:
    queue = addresses.declare("queue")
    connect(paho, 5).publish(
        queue,
        "grün".encode(),
        qos=1,
        content_type="text/plain",
        response_topic="answers/7",
        correlation=b"\x00c-7".hex(),
        expiry=3600,
        format=1,
        user_properties="colour=red,site=7",
    )
    (message,) = amqp.receiver(queue).take(1)
    assert bytes(message.body) == "grün".encode()
    assert (message.content_type, message.reply_to, bytes(message.correlation_id)) == (
        "text/plain",
        "answers/7",
        b"\x00c-7",
    )
    assert message.properties == {"colour": "red", "site": "7"}
    assert message.durable
    assert 3590 <= message.ttl <= 3600


def test_what_amqp_says_about_a_message_is_known_to_a_device(
    paho: Foreign, connect: Connect, amqp: ProtonClient, addresses: Addresses
) -> None:
    queue = addresses.declare("queue")
    amqp.send(
        queue,
        Message(
            body=b"\x00binary",
            inferred=True,
            durable=True,
            content_type="application/octet-stream",
            reply_to="answers/8",
            correlation_id=b"c-8",
            ttl=3600,
            properties={"colour": "blue"},
        ),
    )
    device = connect(paho, 5)
    device.subscribe(queue, 1)
    (message,) = device.receive(1)
    assert message.payload == b"\x00binary"
    told = message.properties
    assert 3590 <= told.pop("expiry") <= 3600
    assert told == {
        "content_type": "application/octet-stream",
        "response_topic": "answers/8",
        "correlation": b"c-8".hex(),
        "user_properties": [["colour", "blue"]],
    }


@pytest.mark.parametrize(
    ("body", "payload", "content_type"),
    [
        ("grün", "grün".encode(), None),
        ({"temperature": 21.5, "tags": ["a", "b"]}, {"temperature": 21.5, "tags": ["a", "b"]}, "application/json"),
        (17, 17, "application/json"),
        (Described(symbol("acme:reading"), 5), 5, "application/json"),
    ],
)
def test_values_of_amqp_are_text_or_json_to_a_device(
    paho: Foreign,
    connect: Connect,
    amqp: ProtonClient,
    addresses: Addresses,
    body: Any,
    payload: Any,
    content_type: str | None,
) -> None:
    queue = addresses.declare("queue")
    amqp.send(queue, Message(body=body, durable=True))
    device = connect(paho, 5)
    device.subscribe(queue, 1)
    (message,) = device.receive(1)
    found = message.payload if content_type is None else json.loads(message.payload)
    assert found == payload
    assert message.properties.get("content_type") == content_type


def test_a_request_of_a_device_is_answered_by_amqp(
    paho: Foreign, connect: Connect, amqp: ProtonClient, beside: Any, addresses: Addresses
) -> None:
    requests, answers = addresses.declare("anycast"), addresses.declare("queue")
    device = connect(paho, 5)
    device.subscribe(answers, 1)
    receiver = amqp.receiver(requests)
    receiver.receiver.link.flow(1)
    receiver.flush()
    published = beside.submit(
        device.publish, requests, b"ping", qos=1, response_topic=answers, correlation=b"r-1".hex()
    )
    (request,) = receiver.take(1)
    assert published.result(60) == [0]
    amqp.send(
        request.reply_to, Message(body=b"ping pong", inferred=True, correlation_id=bytes(request.correlation_id))
    )
    (answer,) = device.receive(1)
    assert (answer.payload, answer.properties["correlation"]) == (b"ping pong", b"r-1".hex())
    receiver.close()


def test_wildcards_reach_topics_that_amqp_sends_below(
    paho: Foreign, connect: Connect, amqp: ProtonClient, addresses: Addresses
) -> None:
    topic = addresses.declare("topic")
    device = connect(paho, 5)
    assert device.subscribe(f"{topic}/+/temperature", 1) == 1
    for place in ("hall", "yard"):
        amqp.send(f"{topic}/{place}/temperature", Message(body=place.encode(), inferred=True, durable=True))
        amqp.send(f"{topic}/{place}/humidity", Message(body=b"other", inferred=True, durable=True))
    assert [(message.topic, message.payload) for message in device.receive(2)] == [
        (f"{topic}/hall/temperature", b"hall"),
        (f"{topic}/yard/temperature", b"yard"),
    ]


def test_the_code_says_why_a_message_or_a_subscription_is_refused(
    paho: Foreign, connect: Connect, addresses: Addresses
) -> None:
    device = connect(paho, 5)
    # An anycast address that nobody receives from; a topic that nobody subscribed to; a queue that is full.
    assert device.publish(addresses.declare("anycast"), b"for whom", qos=1) == [0x83]
    assert device.publish(addresses.declare("topic"), b"for whom", qos=1) == [0x10]
    full = addresses.declare("queue", maxBytes=2000, fullPolicy="reject")
    assert 0x97 in device.publish(full, *[b"x" * 500] * 10, qos=1)
    assert device.publish("$nowhere", b"to where", qos=1) == [0x90]
