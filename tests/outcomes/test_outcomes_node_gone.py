"""What is known, and what is still there, after a node was killed and started again."""

from __future__ import annotations

import asyncio

import pytest

from enmasse.client import Connection, Message, Outcome, UnavailableError
from tests.outcomes.outcome_cells import cell, row
from tests.outcomes.outcome_site import Site

pytestmark = pytest.mark.slow


async def killed(site: Site) -> Connection:
    """Have the node die and start again; a new client."""
    await asyncio.to_thread(site.node.kill)
    await asyncio.to_thread(site.node.start)
    return await site.connect()


async def bodies_at(connection: Connection, address: str, *, from_start: bool = False) -> list[object]:
    """All bodies that an address gives at once."""
    filters = {"enmasse:start": "first"} if from_start else None
    receiver = await connection.receiver(address, filters=filters)
    found: list[object] = []
    while (delivery := await receiver.receive(0.3 if found else 10)) is not None:
        found.append(delivery.message.body)
        delivery.accept()
    return found


@row(
    "node gone",
    {
        "anycast": "the outcome is not known: the receiver may have had it. Send it again, and it may come twice",
        "multicast": "the outcome is not known: receivers may have had it. Send it again, and it may come twice",
    },
)
async def test_what_had_no_outcome_is_not_known(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver, sender = await site.receiver(address), await site.sender(address, resend=False)
    sent = sender.send_nowait(Message("m"))
    assert await receiver.receive(10) is not None
    connection = await killed(site)
    with pytest.raises(UnavailableError):
        await sent
    again = await connection.receiver(address)
    second = (await connection.sender(address)).send_nowait(Message("m"))
    delivery = await again.receive(10)
    assert delivery is not None
    delivery.accept()
    assert await second == Outcome.ACCEPTED


@row(
    "node gone",
    {
        "queue": "what was accepted is there again if it is durable; what was handed out and not settled comes "
        "again, as a failed attempt",
        "deadletter": "what was accepted is there again if it is durable; what was handed out and not settled comes "
        "again, as a failed attempt",
        "topic": "what was accepted is in its durable subscriptions if it is durable",
        "subscription": "durable copies are there again; what was handed out and not settled comes again, "
        "as a failed attempt",
    },
)
async def test_what_was_accepted_and_durable_is_there_again(site: Site, address_type: str) -> None:
    if address_type in ("topic", "subscription"):
        address = await site.declare("subscription")
        target = f"{address}-topic"
    else:
        address = target = await site.declare(address_type)
    sender, receiver = await site.sender(target), await site.receiver(address)
    for message in (Message("durable", durable=True), Message("not durable")):
        assert await sender.send(message, timeout=10) == Outcome.ACCEPTED
    assert await receiver.receive(10) is not None
    assert await bodies_at(await killed(site), address) == ["durable"]


@cell("stream", "node gone", "all that was accepted is there again, in its order")
async def test_a_stream_is_all_there_again(site: Site) -> None:
    address = await site.declare("stream")
    sender = await site.sender(address)
    for number in range(3):
        assert await sender.send(Message(number), timeout=10) == Outcome.ACCEPTED
    assert await bodies_at(await killed(site), address, from_start=True) == [0, 1, 2]


@cell(
    "dynamic",
    "node gone",
    "it is gone with its messages; a client asks for another one, and late replies are `rejected` with "
    "`amqp:not-found`",
)
async def test_dynamic_addresses_are_gone_with_the_node(site: Site) -> None:
    queue = await site.receiver(None, dynamic=True, credit=0, capabilities=["temporary-queue"])
    sender = await site.sender(None)
    assert await sender.send(Message("m", to=queue.address, durable=True), timeout=10) == Outcome.ACCEPTED
    connection = await killed(site)
    outcome = await (await connection.sender(None)).send(Message("m", to=queue.address), timeout=10)
    assert (outcome.name, outcome.condition) == ("rejected", "amqp:not-found")
    assert (await connection.receiver(dynamic=True)).address != queue.address


@cell("anonymous terminus", "node gone", "as at the address that is named; without an outcome it is not known")
async def test_what_the_anonymous_terminus_had_accepted_is_there_again(site: Site) -> None:
    queue, anycast = await site.declare("queue"), await site.declare("anycast")
    receiver, sender = await site.receiver(anycast), await site.sender(None, resend=False)
    await site.settle()
    assert await sender.send(Message("durable", to=queue, durable=True), timeout=10) == Outcome.ACCEPTED
    sent = sender.send_nowait(Message("direct", to=anycast))
    assert await receiver.receive(10) is not None
    connection = await killed(site)
    with pytest.raises(UnavailableError):
        await sent
    assert await bodies_at(connection, queue) == ["durable"]
