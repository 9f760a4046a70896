"""Queues and topics that are full, and what is done about it, with python-qpid-proton."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, Timeout
from proton.reactor import Copy
from proton.utils import SendException

from tests.support.node_process import NodeProcess
from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow

BODY = "x" * 1_000
LIMIT = 20_000


SURE = 5
"""Messages for which there is room in any case, however long the node takes."""


def fill(client: ProtonClient, address: str, durable: bool = False) -> int:
    """Send until nothing more goes in; how many went in."""
    sender = client.connection.create_sender(address)
    for number in range(1_000):
        try:
            sender.send(Message(body=f"{number:04}{BODY}", durable=durable), timeout=60 if number < SURE else 1)
        except (Timeout, SendException):
            return number
    raise AssertionError("there was no end to it")


def heads(messages: list[Any]) -> list[int]:
    return [int(message.body[:4]) for message in messages]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_a_full_address_blocks_its_senders_until_there_is_room(
    node: NodeProcess, addresses: Any, kind: str, durable: bool
) -> None:
    attributes = {"topic": addresses.declare("topic")} if kind == "subscription" else {}
    address = addresses.declare(kind, maxBytes=LIMIT, **attributes)
    target = attributes.get("topic", address)
    with ProtonClient(node.url) as client, ProtonClient(node.url) as other:
        count = fill(client, target, durable)
        assert SURE <= count <= LIMIT // len(BODY) + 1
        account = addresses.read(address)
        # The last message may be larger than the room there was.
        assert account["bytesStored"] <= LIMIT + 2 * len(BODY)
        # Neither consumers nor browsers nor management wait for room.
        assert len(other.receiver(address, Copy()).rest()) >= count
        receiver = other.receiver(address)
        taken = receiver.take(count)
        assert heads(taken) == list(range(count))
        other.send(target, "room again")
        assert receiver.rest()[-1].body == "room again"


def test_a_full_queue_may_reject_what_comes(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", maxBytes=LIMIT, fullPolicy="reject")
    with ProtonClient(node.url) as client:
        sender = client.connection.create_sender(address)
        outcomes = []
        for number in range(60):
            try:
                sender.send(Message(body=f"{number:04}{BODY}"))
                outcomes.append(True)
            except SendException:
                outcomes.append(False)
        count = outcomes.index(False)
        assert count >= 5
        assert not any(outcomes[count:])
        assert heads(client.receiver(address).rest()) == list(range(count))
        client.send(address, "room again")


def test_a_full_queue_may_drop_its_oldest(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", maxBytes=LIMIT, fullPolicy="drop-oldest")
    with ProtonClient(node.url) as client:
        client.send(address, *[Message(body=f"{n:04}{BODY}", durable=n % 2 == 0) for n in range(60)])
        kept = heads(client.receiver(address).rest())
        assert len(kept) >= 5
        assert kept == list(range(60 - len(kept), 60))
    assert addresses.read(address)["dropped"] == 60 - len(kept)


def test_a_space_that_is_full_blocks_the_senders_of_all_its_queues(own_node: Any) -> None:
    process, manage = own_node
    addresses = manage()
    addresses.update_space(maxBytes=LIMIT)
    first, second = addresses.declare("queue"), addresses.declare("queue")
    with ProtonClient(process.url) as client, ProtonClient(process.url) as other:
        count = fill(client, first)
        assert SURE <= count <= LIMIT // len(BODY) + 1
        with pytest.raises(Timeout):
            other.connection.create_sender(second).send(Message(body=BODY), timeout=0.5)
        assert len(other.receiver(first).take(count)) == count
        other.send(second, "room again")


def test_a_limit_may_change_while_it_holds(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", maxBytes=LIMIT)
    with ProtonClient(node.url) as client:
        count = fill(client, address)
        addresses.update(address, maxBytes=10 * LIMIT)
        client.send(address, *[f"{count + n:04}{BODY}" for n in range(count)])
        assert len(client.receiver(address).rest()) >= 2 * count


def test_a_slow_subscriber_slows_no_other(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    large = BODY * 1_000
    with ProtonClient(node.url) as client, ProtonClient(node.url) as slow:
        stuck, quick = slow.receiver(topic), client.receiver(topic)
        for start in range(0, 30, 5):
            client.send(topic, *[f"{n:04}{large}" for n in range(start, start + 5)])
            assert heads(quick.take(5)) == list(range(start, start + 5))
        kept = heads(stuck.rest())
        assert len(kept) < 30
        assert kept == list(range(30 - len(kept), 30))


def test_a_slow_subscriber_may_be_kept_on_disk_or_hold_up_the_topic(node: NodeProcess, addresses: Any) -> None:
    large = BODY * 1_000
    spilling = addresses.declare("topic", slowPolicy="spill")
    with ProtonClient(node.url) as client, ProtonClient(node.url) as slow:
        stuck = slow.receiver(spilling)
        client.send(spilling, *[f"{n:04}{large}" for n in range(30)])
        assert heads(stuck.rest()) == list(range(30))
    blocking = addresses.declare("topic", slowPolicy="block")
    with ProtonClient(node.url) as client, ProtonClient(node.url) as slow:
        stuck = slow.receiver(blocking)
        sender = client.connection.create_sender(blocking)
        sent = 0
        while sent < 100:
            try:
                sender.send(Message(body=f"{sent:04}{large}"), timeout=1)
            except Timeout:
                break
            sent += 1
        assert sent < 100
        kept = heads(stuck.rest())
        assert kept[:sent] == list(range(sent))
        client.send(blocking, "9999 goes on")
        assert stuck.rest()[-1].body == "9999 goes on"
