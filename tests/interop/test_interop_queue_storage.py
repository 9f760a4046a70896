"""What of a queue or subscription survives a crash, as its address says, with python-qpid-proton."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message

from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow

SURVIVORS = {"message": ["durable"], "memory": [], "durable": ["durable", "volatile"]}


def test_the_address_decides_what_survives_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    places: list[tuple[str, str, str]] = []
    for storage in SURVIVORS:
        queue = addresses.declare("queue", storage=storage)
        topic = addresses.declare("topic", storage=storage)
        subscription = addresses.declare("subscription", topic=topic, storage=storage)
        places += [(storage, queue, queue), (storage, subscription, topic)]
    with ProtonClient(process.url) as client:
        for _, source, target in places:
            client.send(target, Message(body="durable", durable=True), Message(body="volatile"))
            assert addresses.read(source)["messagesStored"] == 2
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        for storage, source, target in places:
            assert [message.body for message in client.receiver(source).rest()] == SURVIVORS[storage], source
            client.send(target, Message(body="new", durable=True))
            assert [message.body for message in client.receiver(source).rest()] == ["new"]


def test_options_survive_a_crash_and_changes_hold(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address = addresses.declare("queue", lastValueKey="subject", ttlMaximum=600_000)
    addresses.update(address, maxConsumers=1, ttlMaximum=300_000)
    with ProtonClient(process.url) as client:
        client.send(address, *[Message(body=n, subject="same", durable=True) for n in range(5)])
    process.kill()
    process.start()
    account = addresses.read(address)
    assert (account["maxConsumers"], account["ttlMaximum"], account["lastValueKey"]) == (1, 300_000, "subject")
    with ProtonClient(process.url) as client:
        (message,) = client.receiver(address).take(1)
        assert message.body == 4
        assert 0 < message.ttl <= 300


def test_what_was_settled_stays_settled(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address, (subscription, topic) = addresses.declare("queue"), addresses.pair("subscription")
    with ProtonClient(process.url) as client:
        for source, target in ((address, address), (subscription, topic)):
            client.send(target, *[Message(body=n, durable=True) for n in range(20)])
            receiver = client.receiver(source)
            assert len(receiver.take(10)) == 10
            receiver.close()
            # The settlements go with the batch of what is accepted next, or with one before.
            client.send(target, Message(body="last", durable=True))
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        for source in (address, subscription):
            found = [message.body for message in client.receiver(source).rest()]
            assert found == [*range(10, 20), "last"]
