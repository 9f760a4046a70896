"""What becomes of messages at addresses that keep nothing: anycast, multicast, dynamic, and by their `to`."""

from __future__ import annotations

import asyncio

import pytest

from enmasse.client import LinkDetachedError, LinkRefusedError, Message, Outcome
from tests.outcomes.outcome_cells import cell, row
from tests.outcomes.outcome_site import Site, names_of

pytestmark = pytest.mark.slow

FULL = "amqp:resource-limit-exceeded"


# Accepted


@cell("anycast", "accepted", "a receiver accepted it; any other outcome is that receiver's own, with its details")
async def test_anycast_gives_the_receivers_outcome(site: Site) -> None:
    address = await site.declare("anycast")
    receiver, sender = await site.receiver(address), await site.sender(address)
    sent = [sender.send_nowait(Message(number)) for number in range(2)]
    for wanted in ("accept", "reject"):
        delivery = await receiver.receive(10)
        assert delivery is not None
        delivery.accept() if wanted == "accept" else delivery.reject("shop:closed", "come again")
    accepted, rejected = [await future for future in sent]
    assert accepted == Outcome.ACCEPTED
    assert (rejected.name, rejected.condition, rejected.description) == ("rejected", "shop:closed", "come again")


@cell(
    "multicast",
    "accepted",
    "a receiver accepted it, whatever the others said; if none did: rejected, modified or released, the first of "
    "these that any said",
)
async def test_multicast_gives_the_best_outcome(site: Site) -> None:
    address = await site.declare("multicast")
    one, other = [await site.receiver(address) for _ in range(2)]
    await site.settle()
    sender = await site.sender(address)
    sent = [sender.send_nowait(Message(number)) for number in range(2)]
    for number in range(2):
        first, second = await one.receive(10), await other.receive(10)
        assert first is not None
        assert second is not None
        first.release()
        second.accept() if number == 0 else second.reject("shop:closed")
    assert await names_of(sent) == ["accepted", "rejected"]


@cell(
    "dynamic",
    "accepted",
    "the receiver accepted it; in a temporary queue (capability `temporary-queue`): it is stored in memory; in a "
    "temporary topic: every subscriber has a copy",
)
async def test_a_dynamic_address_accepts_as_its_kind_does(site: Site) -> None:
    replies, sender = await site.receiver(None, dynamic=True), await site.sender(None)
    sent = sender.send_nowait(Message("reply", to=replies.address))
    delivery = await replies.receive(10)
    assert delivery is not None
    assert not sent.done()
    delivery.accept()
    assert await sent == Outcome.ACCEPTED
    queue = await site.receiver(None, dynamic=True, credit=0, capabilities=["temporary-queue"])
    assert await sender.send(Message("kept", to=queue.address), timeout=10) == Outcome.ACCEPTED
    topic = await site.receiver(None, dynamic=True, capabilities=["temporary-topic"])
    other = await site.receiver(topic.address)
    await site.settle()
    assert await sender.send(Message("copied", to=topic.address), timeout=10) == Outcome.ACCEPTED
    for subscriber in (topic, other):
        assert (await subscriber.receive(10)) is not None


@cell("anonymous terminus", "accepted", "what it means at the address in the message's `to`")
async def test_the_anonymous_terminus_accepts_as_the_named_address_does(site: Site) -> None:
    queue, anycast = await site.declare("queue"), await site.declare("anycast")
    receiver, sender = await site.receiver(anycast), await site.sender(None)
    await site.settle()
    assert await sender.send(Message("stored", to=queue), timeout=10) == Outcome.ACCEPTED
    sent = sender.send_nowait(Message("direct", to=anycast))
    delivery = await receiver.receive(10)
    assert delivery is not None
    delivery.reject("shop:closed")
    assert (await sent).condition == "shop:closed"


# No consumer


@row(
    "no consumer",
    {
        "anycast": "senders have no credit; with a `fallback`, they have that queue's credit and outcomes",
        "multicast": "senders have no credit; with a `fallback`, they have that queue's credit and outcomes",
    },
)
async def test_without_receivers_there_is_no_credit_or_a_fallback(site: Site, address_type: str) -> None:
    sender = await site.sender(await site.declare(address_type))
    assert await site.credit(sender) == 0
    queue = await site.declare("queue")
    lucky = await site.sender(await site.declare(address_type, fallback=queue))
    assert await lucky.send(Message("kept"), timeout=10) == Outcome.ACCEPTED
    assert await site.count(queue, "messagesStored") == 1


@cell(
    "dynamic",
    "no consumer",
    "what waits is `released` when the receiver leaves; a temporary queue keeps it, a temporary topic accepts and "
    "drops it",
)
async def test_a_dynamic_address_without_receivers(site: Site) -> None:
    anonymous = await site.sender(None)
    receiver = await site.receiver(None, dynamic=True, credit=0)
    waiting = anonymous.send_nowait(Message("reply", to=receiver.address))
    await site.settle()
    assert not waiting.done()
    await receiver.close()
    assert (await waiting).name == "released"
    queue = await site.receiver(None, dynamic=True, credit=0, capabilities=["temporary-queue"])
    topic = await site.receiver(None, dynamic=True, credit=0, capabilities=["temporary-topic"])
    for address in (queue.address, topic.address):
        assert await anonymous.send(Message("m", to=address), timeout=10) == Outcome.ACCEPTED


@cell(
    "anonymous terminus",
    "no consumer",
    "`released` by a direct address, or dropped if it was settled; a stored address keeps it",
)
async def test_the_anonymous_terminus_without_receivers(site: Site) -> None:
    direct = [await site.declare(kind) for kind in ("anycast", "multicast")]
    queue, sender = await site.declare("queue"), await site.sender(None)
    sent = [sender.send_nowait(Message("m", to=address)) for address in (*direct, queue)]
    assert await names_of(sent) == ["released", "released", "accepted"]
    await sender.send(Message("m", to=direct[0]), settled=True)
    await site.settle()
    assert await site.count(direct[0], "dropped") == 1


# Full


@cell(
    "anycast",
    "full",
    "senders have no more credit than the receivers have granted in all",
)
async def test_anycast_hands_on_its_receivers_credit(site: Site) -> None:
    address = await site.declare("anycast")
    receivers = [await site.receiver(address, credit=0) for _ in range(2)]
    for receiver in receivers:
        receiver.grant(2)
    sender = await site.sender(address)
    assert await site.credit(sender) == 4
    sent = [sender.send_nowait(Message(number)) for number in range(4)]
    assert await site.credit(sender) == 0
    for receiver in receivers:
        for _ in range(2):
            delivery = await receiver.receive(10)
            assert delivery is not None
            delivery.accept()
    assert await names_of(sent) == ["accepted"] * 4


@cell(
    "multicast",
    "full",
    "senders have the least credit of the receivers; one that takes nothing for a second is set aside, and loses "
    "what waited for it, unless `slowPolicy` is `block`",
)
async def test_multicast_waits_for_the_slowest_receiver_for_a_while(site: Site) -> None:
    for policy, credit in (("block", 0), ("drop", 49)):
        address = await site.declare("multicast", slowPolicy=policy)
        slow, quick = await site.receiver(address, credit=0), await site.receiver(address, credit=0)
        slow.grant(1)
        quick.grant(50)
        sender = await site.sender(address)
        assert await site.credit(sender) == 1
        sender.send_nowait(Message("m"))
        if policy == "drop":
            while not await site.count(address, "timesSetAside"):
                await asyncio.sleep(0.05)
        assert await site.credit(sender) == credit
        assert await site.count(address, "receiversAside") == (policy == "drop")
    assert await site.count(address, "timesSetAside") == 1


@cell(
    "dynamic",
    "full",
    "up to 1,000 replies or 1 MiB wait for a receiver without credit, more are `released`; a temporary queue takes "
    "16 MiB",
)
async def test_replies_wait_for_credit_within_bounds(site: Site) -> None:
    replies, sender = await site.receiver(None, dynamic=True, credit=0), await site.sender(None)
    sent = [sender.send_nowait(Message(number, to=replies.address)) for number in range(1_001)]
    assert (await sent[-1]).name == "released"
    assert not any(future.done() for future in sent[:-1])
    replies.grant(1_000)
    for _ in range(1_000):
        delivery = await replies.receive(10)
        assert delivery is not None
        delivery.accept()
    assert set(await names_of(sent[:-1])) == {"accepted"}


@cell(
    "anonymous terminus",
    "full",
    "`released` where no receiver has credit that nobody was promised, or a stored address has no room; where the "
    "policy is `reject`: `rejected` with `amqp:resource-limit-exceeded`",
)
async def test_the_anonymous_terminus_and_what_is_full(site: Site) -> None:
    direct, sender = await site.declare("anycast"), await site.sender(None)
    receiver = await site.receiver(direct, credit=0)
    receiver.grant(1)
    await site.settle()
    sent = [sender.send_nowait(Message("m", to=direct)) for _ in range(2)]
    assert (await sent[1]).name == "released"
    body = "x" * 2_000
    for policy, name in (("block", "released"), ("reject", "rejected")):
        queue = await site.declare("queue", maxBytes=1_000, fullPolicy=policy)
        outcome = await sender.send(Message(body, to=queue), timeout=10)
        assert (outcome.name, outcome.condition) == (name, FULL if policy == "reject" else None)


# Expired


@row(
    "expired",
    {
        "anycast": "nothing waits here, so nothing expires: `ttl` is passed on for the receiver to look at",
        "multicast": "nothing waits here, so nothing expires: `ttl` is passed on for the receivers to look at",
        "dynamic": "`ttl` is passed on for the receiver to look at; a temporary queue drops what is too late",
        "anonymous terminus": "as at the address that is named",
    },
)
async def test_a_time_to_live_is_passed_on(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        receiver = await site.receiver(None, dynamic=True)
    else:
        kind = "anycast" if address_type == "anonymous terminus" else address_type
        receiver = await site.receiver(await site.declare(kind))
    await site.settle()
    sender = await site.sender(None)
    sent = sender.send_nowait(Message("m", to=receiver.address, ttl=0.001))
    await asyncio.sleep(0.01)
    delivery = await receiver.receive(10)
    assert delivery is not None
    assert delivery.message.ttl == 0.001
    delivery.accept()
    assert await sent == Outcome.ACCEPTED
    if address_type in ("dynamic", "anonymous terminus"):
        expiring = await site.receiver(None, dynamic=True, credit=0, capabilities=["temporary-queue"])
        await sender.send(Message("old", to=expiring.address, ttl=0.001), timeout=10)
        await asyncio.sleep(0.05)
        await sender.send(Message("new", to=expiring.address), timeout=10)
        expiring.grant(5)
        kept = await expiring.receive(10)
        assert kept is not None
        assert kept.message.body == "new"


# The address is deleted


@row(
    "deleted",
    {
        "anycast": "`modified` with delivery-failed for what a receiver had; then the links are detached with "
        "`amqp:resource-deleted`",
        "multicast": "`modified` with delivery-failed unless a receiver accepted it; then the links are detached "
        "with `amqp:resource-deleted`",
    },
)
async def test_a_direct_address_is_deleted(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver, sender = await site.receiver(address), await site.sender(address)
    sent = sender.send_nowait(Message("m"))
    assert await receiver.receive(10) is not None
    await site.delete(address)
    outcome = await sent
    assert (outcome.name, outcome.is_failed) == ("modified", True)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await receiver.receive(10)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await sender.send(Message("m"), timeout=10)
    with pytest.raises(LinkRefusedError, match="amqp:not-found"):
        await site.sender(address)


@cell(
    "dynamic",
    "deleted",
    "by its lifetime policy, as a rule with the link that made it: `modified` with delivery-failed for what the "
    "receiver had, `released` for what waited; links are detached with `amqp:resource-deleted`, replies that come "
    "later are `rejected` with `amqp:not-found`",
)
async def test_a_dynamic_address_goes_with_its_link(site: Site) -> None:
    replies = await site.receiver(None, dynamic=True, credit=0)
    replies.grant(1)
    await site.settle()
    anonymous, direct = await site.sender(None), await site.sender(replies.address)
    sent = [anonymous.send_nowait(Message("m", to=replies.address)) for _ in range(2)]
    assert await replies.receive(10) is not None
    other = await site.receiver(replies.address, credit=0)
    await replies.close()
    assert await names_of(sent) == ["modified", "released"]
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await other.receive(10)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await direct.send(Message("m"), timeout=10)
    late = await anonymous.send(Message("m", to=replies.address), timeout=10)
    assert (late.name, late.condition) == ("rejected", "amqp:not-found")


@cell(
    "anonymous terminus",
    "deleted",
    "`rejected` with `amqp:not-found`; what the address had not settled, as it says; the link stays",
)
async def test_the_anonymous_terminus_outlives_addresses(site: Site) -> None:
    address, sender = await site.declare("anycast"), await site.sender(None)
    receiver = await site.receiver(address)
    await site.settle()
    sent = sender.send_nowait(Message("m", to=address))
    assert await receiver.receive(10) is not None
    await site.delete(address)
    assert (await sent).name == "modified"
    late = await sender.send(Message("m", to=address), timeout=10)
    assert (late.name, late.condition) == ("rejected", "amqp:not-found")
    assert sender.is_attached
