"""What becomes of messages at addresses that store: queues, topics, subscriptions, streams, dead letters."""

from __future__ import annotations

import asyncio

import pytest

from enmasse.client import LinkDetachedError, LinkRefusedError, Message, Outcome, Receiver
from tests.outcomes.outcome_cells import cell, row
from tests.outcomes.outcome_site import OPEN, Site, names_of

pytestmark = pytest.mark.slow

BODY = "x" * 1_000
FULL = "amqp:resource-limit-exceeded"


async def bodies(receiver: Receiver, count: int) -> list[object]:
    """The bodies of the next messages, which are accepted."""
    found = []
    for _ in range(count):
        delivery = await receiver.receive(10)
        assert delivery is not None
        found.append(delivery.message.body)
        delivery.accept()
    return found


def topic_of(subscription: str) -> str:
    return f"{subscription}-topic"


# Accepted


@row(
    "accepted",
    {
        "queue": "it is stored: on disk if it is durable, else in memory; whoever receives it answers to the queue",
        "deadletter": "as for a queue",
    },
)
async def test_a_queue_accepts_what_it_has_stored(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    sender, commits = await site.sender(address), await committed(site)
    assert await sender.send(Message("on disk", durable=True), timeout=10) == Outcome.ACCEPTED
    assert await committed(site) > commits
    assert await sender.send(Message("in memory"), timeout=10) == Outcome.ACCEPTED
    receiver = await site.receiver(address)
    first = await receiver.receive(10)
    assert first is not None
    first.release()
    assert set(await bodies(receiver, 2)) == {"on disk", "in memory"}


async def committed(site: Site) -> int:
    """Batches of the journal that are on disk."""
    (found,) = await site.management.query("io.enmasse.statistics", ["commits"])
    return int(found["commits"])


@cell("topic", "accepted", "every subscription has it: durable ones on disk if it is durable, else in memory")
async def test_a_topic_accepts_what_its_subscriptions_have(site: Site) -> None:
    subscription = await site.declare("subscription")
    topic = topic_of(subscription)
    volatile, sender = await site.receiver(topic), await site.sender(topic)
    commits = await committed(site)
    assert await sender.send(Message("news", durable=True), timeout=10) == Outcome.ACCEPTED
    assert await committed(site) > commits
    assert await bodies(volatile, 1) == await bodies(await site.receiver(subscription), 1) == ["news"]


@cell(
    "subscription",
    "accepted",
    "senders are refused with `amqp:not-allowed`: they send to the topic, whose `accepted` means that it is here",
)
async def test_a_subscription_is_fed_by_its_topic_alone(site: Site) -> None:
    subscription = await site.declare("subscription")
    with pytest.raises(LinkRefusedError, match="amqp:not-allowed"):
        await site.sender(subscription)
    sender = await site.sender(topic_of(subscription))
    assert await sender.send(Message("news"), timeout=10) == Outcome.ACCEPTED
    assert await site.count(subscription, "messagesStored") == 1


@cell("stream", "accepted", "it is on disk, whatever its durability, and readers see it")
async def test_a_stream_accepts_what_is_on_disk(site: Site) -> None:
    address = await site.declare("stream")
    reader, sender = await site.receiver(address), await site.sender(address)
    commits = await committed(site)
    assert await sender.send(Message("row"), timeout=10) == Outcome.ACCEPTED
    assert await committed(site) > commits
    assert await bodies(reader, 1) == ["row"]


# No consumer


@row(
    "no consumer",
    {
        "queue": "it is stored and waits",
        "deadletter": "it is stored and waits",
        "stream": "it is stored: readers are never waited for",
    },
)
async def test_what_stores_needs_no_receiver(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    assert await (await site.sender(address)).send(Message("m"), timeout=10) == Outcome.ACCEPTED
    filters = {"enmasse:start": "first"} if address_type == "stream" else None
    assert await bodies(await site.receiver(address, filters=filters), 1) == ["m"]


@cell("topic", "no consumer", "`accepted`, and gone: without a subscription nobody asked for it")
async def test_a_topic_without_subscriptions_keeps_nothing(site: Site) -> None:
    address = await site.declare("topic")
    sender = await site.sender(address)
    assert await sender.send(Message("early", durable=True), timeout=10) == Outcome.ACCEPTED
    receiver = await site.receiver(address)
    await sender.send(Message("later"), timeout=10)
    assert await bodies(receiver, 1) == ["later"]


@cell("subscription", "no consumer", "copies are stored and wait")
async def test_a_subscription_keeps_copies_for_later(site: Site) -> None:
    subscription = await site.declare("subscription")
    await (await site.sender(topic_of(subscription))).send(Message("news"), timeout=10)
    assert await bodies(await site.receiver(subscription), 1) == ["news"]


# Full


@row(
    "full",
    {
        "queue": "`block`: no credit; `reject`: `rejected` with `amqp:resource-limit-exceeded`; `drop-oldest`: "
        "`accepted`, and the oldest make room",
        "deadletter": "as a queue",
        "subscription": "its topic's senders are held back, or refused, or its oldest make room, as the topic's "
        "`fullPolicy` says",
    },
)
async def test_what_a_full_address_does_is_its_policy(site: Site, address_type: str) -> None:
    for policy in ("block", "reject", "drop-oldest"):
        if address_type == "subscription":
            target = await site.declare("topic", fullPolicy=policy)
            address = await declare_subscription(site, target, maxBytes=4_000)
        else:
            address = target = await site.declare(address_type, fullPolicy=policy, maxBytes=4_000)
        sender = await site.sender(target)
        names: list[tuple[str, str | None]] = []
        while len(names) < 10 and await site.credit(sender):
            outcome = await sender.send(Message(f"{len(names)}{BODY}"), timeout=10)
            names.append((outcome.name, outcome.condition))
        if policy == "block":
            assert 2 <= len(names) < 6
            assert set(names) == {("accepted", None)}
        elif policy == "reject":
            assert len(names) == 10
            assert names[-1] == ("rejected", FULL)
        else:
            assert set(names) == {("accepted", None)}
            (oldest,) = await bodies(await site.receiver(address), 1)
            assert str(oldest)[0] != "0"


async def declare_subscription(site: Site, topic: str, **attributes: object) -> str:
    """A subscription of a topic that exists."""
    address = f"{topic}-sub"
    asked = {"space": OPEN, "address": address, "addressType": "subscription", "topic": topic, **attributes}
    await site.management.create("io.enmasse.address", f"{OPEN}.{address}", asked)
    return address


@cell(
    "topic",
    "full",
    "stores nothing itself: as the fullest of its durable subscriptions, by its own `fullPolicy`",
)
async def test_a_topic_is_as_full_as_its_fullest_subscription(site: Site) -> None:
    topic = await site.declare("topic")
    full = await declare_subscription(site, topic, maxBytes=2_500)
    sender = await site.sender(topic)
    sent = 0
    while await site.credit(sender):
        await sender.send(Message(BODY), timeout=10)
        sent += 1
        assert sent < 10
    await bodies(await site.receiver(full), sent)
    assert await site.credit(sender)


@cell(
    "stream",
    "full",
    "no credit at `maxBytes`; with a retention it is always `accepted`, and the oldest frames are deleted",
)
async def test_a_full_stream_blocks_or_forgets(site: Site) -> None:
    blocking = await site.declare("stream", maxBytes=50_000)
    sender = await site.sender(blocking)
    body, sent = "x" * 10_000, 0
    while await site.credit(sender):
        await sender.send(Message(body), timeout=10)
        sent += 1
        assert sent < 20
    keeping = await site.declare("stream", retentionBytes=50_000)
    forgetful = await site.sender(keeping)
    for _ in range(20):
        assert await forgetful.send(Message(body), timeout=10) == Outcome.ACCEPTED
    while (await site.count(keeping, "partitionMarks"))[0][1] == 0:
        await asyncio.sleep(0.05)


# Expired


@row(
    "expired",
    {
        "queue": "never handed out; it goes to the `expiry` address, or is dropped, and is counted",
        "subscription": "never handed out; it goes to the `expiry` address, or is dropped, and is counted",
        "topic": "each subscription sees to it by itself",
        "deadletter": "as for a queue; expired letters that lie here have lost their `ttl`",
    },
)
async def test_what_has_expired_is_not_handed_out(site: Site, address_type: str) -> None:
    expiry = await site.declare("deadletter")
    if address_type in ("topic", "subscription"):
        target = await site.declare("topic")
        address = await declare_subscription(site, target, expiry=expiry)
    else:
        address = target = await site.declare(address_type, expiry=expiry)
    sender = await site.sender(target)
    await sender.send(Message("old", ttl=0.001), timeout=10)
    await asyncio.sleep(0.02)
    await sender.send(Message("new"), timeout=10)
    assert await bodies(await site.receiver(address), 1) == ["new"]
    letters = await site.receiver(expiry)
    letter = await letters.receive(10)
    assert letter is not None
    assert (letter.message.body, letter.message.ttl) == ("old", None)
    letter.accept()
    assert await site.count(address, "expired") == 1


@cell("stream", "expired", "`ttl` is not looked at: what is kept, and for how long, is the stream's retention")
async def test_a_stream_keeps_what_has_expired(site: Site) -> None:
    address = await site.declare("stream")
    await (await site.sender(address)).send(Message("old", ttl=0.001), timeout=10)
    await asyncio.sleep(0.02)
    assert await bodies(await site.receiver(address, filters={"enmasse:start": "first"}), 1) == ["old"]


# The address is deleted


@row(
    "deleted",
    {
        "queue": "links are detached with `amqp:resource-deleted`, and what is stored is deleted; new links are "
        "refused with `amqp:not-found`",
        "topic": "links are detached with `amqp:resource-deleted`; new links are refused with `amqp:not-found`",
        "stream": "links are detached with `amqp:resource-deleted`, and what is stored is deleted",
        "deadletter": "links are detached with `amqp:resource-deleted`, and what is stored is deleted",
    },
)
async def test_a_stored_address_is_deleted(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver, sender = await site.receiver(address), await site.sender(address)
    sent = sender.send_nowait(Message("m", durable=True))
    assert await names_of([sent]) == ["accepted"]
    assert await receiver.receive(10) is not None
    await site.delete(address)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await receiver.receive(10)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await sender.send(Message("m"), timeout=10)
    with pytest.raises(LinkRefusedError, match="amqp:not-found"):
        await site.sender(address)
    attributes = {"space": OPEN, "address": address, "addressType": address_type}
    await site.management.create("io.enmasse.address", f"{OPEN}.{address}", attributes)
    assert await site.count(address, "messagesStored") == 0


@cell(
    "subscription",
    "deleted",
    "receivers are detached with `amqp:resource-deleted`, and its copies are deleted; the topic's senders notice "
    "nothing",
)
async def test_a_subscription_is_deleted(site: Site) -> None:
    subscription = await site.declare("subscription")
    receiver, sender = await site.receiver(subscription), await site.sender(topic_of(subscription))
    await sender.send(Message("m", durable=True), timeout=10)
    assert await receiver.receive(10) is not None
    await site.delete(subscription)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await receiver.receive(10)
    assert await sender.send(Message("m", durable=True), timeout=10) == Outcome.ACCEPTED
