"""Failed deliveries: counted, delayed, and in the end dead letters, with python-qpid-proton and rhea."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Condition, Delivery, Message, symbol

from tests.support.node_process import NodeProcess
from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def note(message: Any, name: str) -> Any:
    return message.annotations[symbol(f"x-opt-{name}")]


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_a_message_that_fails_too_often_is_a_dead_letter(node: NodeProcess, addresses: Any, kind: str) -> None:
    dead = addresses.declare("deadletter")
    attributes: dict[str, Any] = {"maxAttempts": 3, "deadletter": dead}
    if kind == "subscription":
        target = attributes["topic"] = addresses.declare("topic")
        source = addresses.declare(kind, **attributes)
    else:
        source = target = addresses.declare(kind, **attributes)
    with ProtonClient(node.url) as client:
        client.send(target, Message(body="poison", durable=True, subject="s", properties={"k": 5}), "fine")
        receiver = client.receiver(source)
        for attempt in range(3):
            (message,) = receiver.take(1, settle=False)
            assert (message.body, message.delivery_count) == ("poison", attempt)
            receiver.fail()
        assert bodies(receiver.take(1)) == ["fine"]
        (letter,) = client.receiver(dead).take(1)
        assert (letter.body, letter.subject, letter.properties, letter.durable) == ("poison", "s", {"k": 5}, True)
        assert note(letter, "original-address") == source
        assert note(letter, "dead-letter-reason") == "attempts"
        assert note(letter, "delivery-count") == 3
    account = addresses.read(source)
    assert (account["deadLettered"], account["messagesStored"]) == (1, 0)


def test_a_rejected_message_is_a_dead_letter_at_once(node: NodeProcess, addresses: Any) -> None:
    dead = addresses.declare("deadletter")
    address = addresses.declare("queue", deadletter=dead)
    with ProtonClient(node.url) as client:
        client.send(address, Message(body="invalid", durable=True), Message(body="volatile"))
        receiver = client.receiver(address)
        for _ in range(2):
            receiver.take(1, settle=False)
            delivery = receiver.receiver.fetcher.unsettled[0]
            delivery.local.condition = Condition("acme:invalid", "no amount")
            receiver.settle(Delivery.REJECTED)
        letters = client.receiver(dead).take(2)
        assert sorted(bodies(letters)) == ["invalid", "volatile"]
        for letter in letters:
            assert note(letter, "dead-letter-reason") == "rejected"
            assert note(letter, "dead-letter-condition") == "acme:invalid"
            assert note(letter, "dead-letter-description") == "no amount"


def test_without_a_place_for_dead_letters_they_are_dropped_and_counted(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", maxAttempts=1)
    with ProtonClient(node.url) as client:
        client.send(address, "a", "b")
        receiver = client.receiver(address)
        receiver.take(2, settle=False)
        receiver.fail()
        receiver.settle(Delivery.REJECTED)
        assert bodies(receiver.rest()) == []
    account = addresses.read(address)
    assert (account["deadLettered"], account["messagesStored"]) == (2, 0)


def test_released_messages_come_again_without_end_and_without_a_count(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", maxAttempts=2)
    with ProtonClient(node.url) as client:
        client.send(address, "a", "b")
        receiver = client.receiver(address)
        for _ in range(5):
            (message,) = receiver.take(1, settle=False)
            assert (message.body, message.delivery_count) == ("a", 0)
            receiver.settle(Delivery.RELEASED)
        for _ in range(5):
            (message,) = receiver.take(1, settle=False)
            assert (message.body, message.delivery_count) == ("a", 0)
            receiver.settle(Delivery.MODIFIED)
        assert bodies(receiver.rest()) == ["a", "b"]


def test_what_cannot_be_delivered_here_goes_elsewhere(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, "a", "b")
        picky = client.receiver(address)
        picky.take(1, settle=False)
        picky.settle(Delivery.MODIFIED, undeliverable=True)
        assert bodies(picky.rest()) == ["b"]
        assert bodies(client.receiver(address).rest()) == ["a"]


def test_a_connection_that_is_lost_counts_as_a_failed_attempt(node: NodeProcess, addresses: Any) -> None:
    dead = addresses.declare("deadletter")
    address = addresses.declare("queue", maxAttempts=2, deadletter=dead)
    with ProtonClient(node.url) as client:
        client.send(address, "x")
        for attempt in range(2):
            with ProtonClient(node.url) as other:
                (message,) = other.receiver(address).take(1, settle=False)
                assert message.delivery_count == attempt
        assert bodies(client.receiver(dead).take(1)) == ["x"]


def test_the_next_attempt_waits_longer_each_time_and_holds_up_nobody(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare(
        "queue", redeliveryDelay=100, redeliveryDelayMultiplier=3.0, maxRedeliveryDelay=250, maxAttempts=10
    )
    with ProtonClient(node.url) as client:
        client.send(address, "x", "y")
        receiver = client.receiver(address)
        receiver.take(1, settle=False)
        failed_at = time.time()
        receiver.fail()
        assert bodies(receiver.take(1)) == ["y"]
        for wait in (0.1, 0.25, 0.25):
            (message,) = receiver.take(1, settle=False)
            assert message.body == "x"
            assert time.time() - failed_at >= wait - 0.01
            failed_at = time.time()
            receiver.fail()


def test_attempts_survive_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    dead = addresses.declare("deadletter")
    address = addresses.declare("queue", maxAttempts=3, deadletter=dead)
    with ProtonClient(process.url) as client:
        client.send(address, Message(body="x", durable=True))
        receiver = client.receiver(address)
        for _ in range(2):
            receiver.take(1, settle=False)
            receiver.fail()
        # Its commit carries the count too.
        client.send(address, Message(body="y", durable=True))
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        receiver = client.receiver(address)
        (message,) = receiver.take(1, settle=False)
        assert (message.body, message.delivery_count) == ("x", 2)
        receiver.fail()
        assert bodies(client.receiver(dead).take(1)) == ["x"]
        assert bodies(receiver.rest()) == ["y"]


def test_a_dead_letter_survives_a_crash_and_goes_back_on_demand(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    dead = addresses.declare("deadletter")
    address = addresses.declare("queue", maxAttempts=1, deadletter=dead)
    with ProtonClient(process.url) as client:
        client.send(address, Message(body="x", durable=True, properties={"k": 1}), Message(body="y", durable=True))
        receiver = client.receiver(address)
        receiver.take(2, settle=False)
        receiver.fail()
        receiver.fail()
        client.receiver(dead).take(2, settle=False)
    process.kill()
    process.start()
    assert addresses.operate("replay", dead, selector="k = 1") == 1
    with ProtonClient(process.url) as client:
        (message,) = client.receiver(address).take(1)
        assert (message.body, message.delivery_count) == ("x", 0)
        assert addresses.operate("purge", dead) == 1
        assert addresses.read(dead)["messagesStored"] == 0


def test_messages_are_moved_and_purged_by_selector(node: NodeProcess, addresses: Any) -> None:
    address, other = addresses.declare("queue"), addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *[Message(body=n, properties={"n": n}, durable=n % 2 == 0) for n in range(10)])
        assert addresses.operate("move", address, to=other, selector="n < 4") == 4
        assert addresses.operate("purge", address, selector="n > 7") == 2
        # Durable ones are there once they are stored, the others at once.
        moved = bodies(client.receiver(other).rest())
        assert sorted(moved) == [0, 1, 2, 3]
        assert moved.index(0) < moved.index(2)
        assert bodies(client.receiver(address).rest()) == [4, 5, 6, 7]


def test_rhea_modifies_and_rejects_into_dead_letters(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    dead = addresses.declare("deadletter")
    address = addresses.declare("queue", maxAttempts=2, deadletter=dead)
    # Its modified says undeliverable-here too, so only rejections come again to the same receiver.
    report = rhea(
        "exchange", source=address, messages=[{"body": "x"}, {"body": "y"}], answers=["reject", "reject"], expect=3,
        credit=1,
    )  # fmt: skip
    assert [message["body"] for message in report["received"]] == ["x", "x", "y"]
    letters = rhea("exchange", source=dead, messages=[], expect=1)["received"]
    assert [letter["body"] for letter in letters] == ["x"]
    assert letters[0]["annotations"]["x-opt-original-address"] == address
    assert letters[0]["annotations"]["x-opt-dead-letter-condition"] == "acme:invalid"
