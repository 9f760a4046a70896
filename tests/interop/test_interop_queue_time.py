"""Messages that expire and messages for later, with python-qpid-proton and rhea."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Delivery, Message, symbol, timestamp
from proton.utils import SendException

from enmasse.message.codec import encode
from enmasse.message.types import Described, Int, Timestamp, ULong
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow

DELAY = symbol("x-opt-delivery-delay")
TIME = symbol("x-opt-delivery-time")


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def test_a_command_arrives_if_its_consumer_returns_in_time(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, Message(body="open the gate", ttl=600, durable=True))
    with ProtonClient(node.url) as client:
        (command,) = client.receiver(address).take(1)
        assert command.body == "open the gate"
        assert 0 < command.ttl <= 600
    assert addresses.read(address)["expired"] == 0


@pytest.mark.parametrize("durable", [False, True])
def test_a_command_expires_and_is_counted_if_nobody_comes(node: NodeProcess, addresses: Any, durable: bool) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, Message(body="too late", ttl=0.05, durable=durable), Message(body="stays"))
        until(lambda: addresses.read(address)["expired"] == 1)
        assert addresses.read(address)["messagesStored"] == 1
        assert bodies(client.receiver(address).rest()) == ["stays"]


def test_what_expires_goes_to_the_expiry_address(node: NodeProcess, addresses: Any) -> None:
    expiry = addresses.declare("deadletter")
    address = addresses.declare("queue", expiry=expiry)
    with ProtonClient(node.url) as client:
        late = Message(body="late", ttl=0.05, durable=True, properties={"k": 1})
        by_time = Message(body="by time", durable=True)
        by_time.expiry_time = time.time() + 0.05
        client.send(address, late, by_time)
        found = client.receiver(expiry).take(2)
        assert sorted(bodies(found)) == ["by time", "late"]
        for message in found:
            assert message.annotations[symbol("x-opt-original-address")] == address
            assert message.annotations[symbol("x-opt-dead-letter-reason")] == "expired"
            assert message.ttl == 0
    account = addresses.read(address)
    assert (account["expired"], account["messagesStored"]) == (2, 0)
    assert addresses.read(expiry)["expired"] == 0


def test_an_address_bounds_the_time_to_live(node: NodeProcess, addresses: Any) -> None:
    short = addresses.declare("queue", ttlMaximum=50)
    long = addresses.declare("queue", ttlMinimum=600_000)
    with ProtonClient(node.url) as client:
        client.send(short, Message(body="none"), Message(body="long", ttl=600))
        client.send(long, Message(body="short", ttl=0.01))
        until(lambda: addresses.read(short)["expired"] == 2)
        (message,) = client.receiver(long).take(1)
        assert message.body == "short"
        assert 300 < message.ttl <= 600


def test_time_runs_through_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address = addresses.declare("queue")
    with ProtonClient(process.url) as client:
        client.send(
            address, Message(body="late", ttl=0.5, durable=True), Message(body="stays", ttl=600, durable=True)
        )
    sent = time.time()
    process.kill()
    until(lambda: time.time() > sent + 0.5)
    process.start()
    with ProtonClient(process.url) as client:
        # On a busy machine it expires before the kill, and was counted then.
        until(lambda: addresses.read(address)["messagesStored"] == 1)
        assert bodies(client.receiver(address).rest()) == ["stays"]


@pytest.mark.parametrize("annotation", [DELAY, TIME])
def test_a_message_comes_when_it_is_due(node: NodeProcess, addresses: Any, annotation: str) -> None:
    def later(seconds: float) -> Message:
        value = int(1000 * (seconds if annotation == DELAY else time.time() + seconds))
        return Message(
            body=f"in {seconds} s", annotations={annotation: value if annotation == DELAY else timestamp(value)}
        )

    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, later(3600), Message(body="now"))
        receiver = client.receiver(address)
        assert bodies(receiver.take(1)) == ["now"]
        due = time.time() + 0.2
        client.send(address, later(0.2))
        assert bodies(receiver.take(1)) == ["in 0.2 s"]
        assert time.time() >= due - 0.01
        assert bodies(receiver.rest()) == []
        assert addresses.read(address)["messagesStored"] == 1


def test_what_is_not_due_is_stored_and_handed_to_nobody(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, Message(body="much later", annotations={DELAY: 3_600_000}))
        assert bodies(client.receiver(address).rest()) == []
        assert addresses.read(address)["messagesStored"] == 1


def test_a_time_that_has_passed_is_now(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, Message(body="past", annotations={TIME: timestamp(1)}))
        client.send(address, Message(body="negative", annotations={DELAY: -5}))
        assert bodies(client.receiver(address).take(2)) == ["past", "negative"]


def test_scheduled_messages_survive_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address = addresses.declare("queue")
    with ProtonClient(process.url) as client:
        soon = Message(body="soon", durable=True, annotations={DELAY: 1_000})
        far = Message(body="far", durable=True, annotations={TIME: timestamp(int(time.time() * 1000) + 3_600_000)})
        client.send(address, soon, far)
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        receiver = client.receiver(address)
        assert bodies(receiver.take(1)) == ["soon"]
        assert bodies(receiver.rest()) == []
        assert addresses.read(address)["messagesStored"] == 1


def test_a_subscription_keeps_time_too(node: NodeProcess, addresses: Any) -> None:
    subscription, topic = addresses.pair("subscription")
    with ProtonClient(node.url) as client:
        client.send(
            topic,
            Message(body="late", ttl=0.05),
            Message(body="much later", annotations={DELAY: 3_600_000}),
            Message(body="now"),
        )
        until(lambda: addresses.read(subscription)["expired"] == 1)
        receiver = client.receiver(subscription)
        assert bodies(receiver.rest()) == ["now"]
        client.send(topic, Message(body="later", annotations={DELAY: 100}))
        assert bodies(receiver.take(1)) == ["later"]
        assert addresses.read(subscription)["messagesStored"] == 1


@pytest.mark.parametrize(
    "message",
    [
        Message(body="x", annotations={DELAY: "soon"}),
        Message(body="x", annotations={TIME: 1.5}),
        Message(body="x", annotations={DELAY: 2**62}),
    ],
)
@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_a_time_that_is_none_is_refused_and_nothing_else_is_lost(
    node: NodeProcess, addresses: Any, kind: str, message: Message
) -> None:
    source, target = addresses.pair(kind)
    with ProtonClient(node.url) as client:
        sender = client.connection.create_sender(target)
        sender.send(Message(body="before"))
        with pytest.raises(SendException) as refused:
            sender.send(message)
        assert refused.value.state == Delivery.REJECTED
        client.send(target, "after")
        assert bodies(client.receiver(source).rest()) == ["before", "after"]


@pytest.mark.parametrize("ttl", [Int(-5), Timestamp(-1), "soon"])
@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_a_time_to_live_that_is_none_is_refused_by_name(
    node: NodeProcess, addresses: Any, kind: str, ttl: Any
) -> None:
    source, target = addresses.pair(kind)
    payload = encode(Described(ULong(0x70), [True, None, ttl])) + encode(Described(ULong(0x75), b"x"))
    with ProtonClient(node.url) as client:
        link = client.connection.create_sender(target, name="raw").link
        client.connection.wait(lambda: link.credit > 0)
        delivery = link.delivery("1")
        link.stream(payload)
        link.advance()
        client.connection.wait(lambda: delivery.settled)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:decode-error"
        assert "ttl" in delivery.remote.condition.description
        client.send(target, "after")
        assert bodies(client.receiver(source).rest()) == ["after"]


def test_rhea_schedules_and_lets_expire(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    address = addresses.declare("queue")
    messages = [
        {"body": "late", "ttl": 50},
        {"body": "later", "message_annotations": {"x-opt-delivery-delay": 300}},
        {"body": "now", "ttl": 600_000},
    ]
    rhea("exchange", target=address, messages=messages, expect=0)
    until(lambda: addresses.read(address)["expired"] == 1)
    report = rhea("exchange", source=address, messages=[], expect=2)
    assert sorted(message["body"] for message in report["received"]) == ["later", "now"]
