"""What becomes of messages that STOMP clients send: a receipt, an error, or neither yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.outcomes.outcome_cells import row, rows
from tests.outcomes.outcome_site import BANK, PASSWORD, Site
from tests.outcomes.test_outcomes_stored import bodies, declare_subscription
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

WAITS = "the receipt comes once a receiver has accepted it; after 30 s without one that takes it: `ERROR`"
NOT_KNOWN = "without a receipt the outcome is not known. Send it again, and it may come twice"
DENIED = "`ERROR` with `amqp:unauthorized-access`"
STORED_GONE = "`ERROR` with `amqp:not-found` to the next message; a subscription ends with `amqp:resource-deleted`"
LATER = "never handed out; it goes to the `expiry` address, or is dropped, and is counted"
AGAIN = (
    "what had its receipt is there again if it is `persistent`; what was not acknowledged comes again, `redelivered`"
)
POLICY = "`block`: it waits for room, after 30 s `ERROR`; `reject`: `ERROR`; `drop-oldest`: the oldest make room"
MEMORY_OR_DISK = "it is stored: on disk if it is `persistent`, else in memory"


def stomp(site: Site, **headers: str) -> StompPeer:
    """A client of the open space."""
    return StompPeer(site.node.port, **{"host": "open.default", **headers})


async def target_of(site: Site, address_type: str, **attributes: Any) -> tuple[str, str]:
    """An address; where to receive from, and where to send to."""
    if address_type == "dynamic":
        receiver = await site.receiver(None, dynamic=True, capabilities=["temporary-queue"], credit=0)
        assert receiver.address is not None
        return receiver.address, receiver.address
    if address_type in ("topic", "subscription"):
        topic = await site.declare("topic", **attributes)
        return await declare_subscription(site, topic), topic
    address = await site.declare(address_type, **attributes)
    return address, address


@row(
    "accepted",
    {
        "anycast": "a receiver accepted it; another outcome is an `ERROR` that names it. Released, it is sent again",
        "multicast": "a receiver accepted it; an `ERROR` if none did, but one rejected it or failed",
    },
    protocol="stomp",
)
async def test_a_receipt_is_the_receivers_word(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver = await site.receiver(address)
    async with stomp(site) as client:
        for number, outcome in enumerate(("accept", "release", "reject")):
            client.send(address, receipt=str(number))
            delivery = await receiver.receive(10)
            assert delivery is not None
            if outcome == "accept":
                delivery.accept()
            elif outcome == "release":
                delivery.release()
                delivery = await receiver.receive(10)
                assert delivery is not None
                delivery.accept()
            else:
                delivery.reject("shop:closed", "come again")
            if outcome != "reject":
                await client.receipt(str(number))
        error = await client.next("ERROR")
        assert (error["receipt-id"], error["condition"]) == ("2", "shop:closed")
        await client.ended()


@row(
    "accepted",
    {
        "queue": MEMORY_OR_DISK,
        "topic": "every subscription has it: durable ones on disk if it is `persistent`, else in memory",
        "subscription": "to its topic: it is here; to itself: `ERROR` with `amqp:not-allowed`",
        "stream": "it is on disk, whether `persistent` or not, and readers see it",
        "deadletter": MEMORY_OR_DISK,
        "dynamic": "in a temporary queue: it is stored in memory; elsewhere the receiver accepted it",
    },
    protocol="stomp",
)
async def test_a_receipt_says_that_it_is_stored(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with stomp(site) as client:
        client.send(target, b"kept", receipt="1", persistent="true")
        await client.receipt("1")
        await client.subscribe(address, **({"start": "first"} if address_type == "stream" else {}))
        assert (await client.next("MESSAGE")).body == b"kept"
        if address_type == "subscription":
            client.send(address, receipt="2")
            assert (await client.next("ERROR"))["condition"] == "amqp:not-allowed"


@row("no consumer", {"anycast": WAITS, "multicast": WAITS}, protocol="stomp")
async def test_a_message_waits_for_a_receiver(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with stomp(site) as client, stomp(site) as receiver:
        client.send(address, b"patient", receipt="1")
        client.send(await site.declare("queue"), receipt="2")
        await client.receipt("2")
        await receiver.subscribe(address, ack="client")
        message = await receiver.next("MESSAGE")
        receiver.say("ACK", id=message["ack"])
        await client.receipt("1")


@row(
    "no consumer",
    {
        "queue": "it is stored and waits",
        "topic": "a receipt, and gone: without a subscription nobody asked for it",
        "subscription": "copies are stored and wait",
        "stream": "it is stored: readers are never waited for",
        "deadletter": "it is stored and waits",
        "dynamic": "a temporary queue keeps it; elsewhere it waits as at a direct address",
    },
    protocol="stomp",
)
async def test_what_stores_gives_a_receipt_without_receivers(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    lonely = await site.declare("topic")
    async with stomp(site) as client:
        client.send(lonely if address_type == "topic" else target, receipt="1")
        await client.receipt("1")
        if address_type == "topic":
            await client.subscribe(lonely)
            client.send(lonely, b"later")
            assert (await client.next("MESSAGE")).body == b"later"
        elif address_type != "dynamic":
            assert await site.count(address, "messagesStored") == 1


@row("full", {"anycast": WAITS, "multicast": WAITS}, protocol="stomp")
async def test_a_message_waits_for_a_receivers_credit(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with stomp(site) as client, stomp(site) as receiver:
        await receiver.subscribe(address, ack="client-individual", prefetch_count="1")
        for number in range(3):
            client.send(address, str(number).encode(), receipt=str(number))
        for number in range(3):
            message = await receiver.next("MESSAGE")
            assert message.body == str(number).encode()
            receiver.say("ACK", id=message["ack"])
            await client.receipt(str(number))


@row(
    "full",
    {
        "queue": POLICY,
        "topic": "as the fullest of its durable subscriptions, by its own `fullPolicy`, as a queue",
        "subscription": "as the topic's `fullPolicy` says, as a queue",
        "stream": "without a retention it waits for room, after 30 s `ERROR`; with one the oldest frames are deleted",
        "deadletter": POLICY,
        "dynamic": "it waits for room, of which a temporary queue has 16 MiB; after 30 s `ERROR`",
    },
    protocol="stomp",
)
async def test_what_is_full_makes_a_message_wait_or_refuses_it(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        _, target = await target_of(site, address_type)
        async with stomp(site) as client, stomp(site) as receiver:
            for number in range(5):
                client.send(target, bytes(4 << 20), receipt=str(number))
            for number in range(3):
                await client.receipt(str(number))
            await receiver.subscribe(target)
            await receiver.next("MESSAGE")
        return
    limits: dict[str, Any] = {"maxBytes": 4_000}
    for policy in ("block", "reject"):
        if address_type == "stream":
            source = target = await site.declare("stream", maxBytes=100_000)
            size = 60_000
        elif address_type in ("topic", "subscription"):
            target, size = await site.declare("topic", fullPolicy=policy), 3_000
            source = await declare_subscription(site, target, **limits)
        else:
            source = target = await site.declare(address_type, fullPolicy=policy, **limits)
            size = 3_000
        async with stomp(site) as client:
            client.send(target, bytes(size), receipt="0")
            await client.receipt("0")
            if policy == "reject" and address_type != "stream":
                answer = None
                while answer is None or answer.command == "RECEIPT":
                    client.send(target, bytes(size), receipt="1")
                    answer = await client.next("RECEIPT", "ERROR")
                assert answer["condition"] == "amqp:resource-limit-exceeded"
                continue
            for number in range(1, 4):
                client.send(target, bytes(size), receipt=str(number))
            if address_type == "stream":
                client.send(await site.declare("queue"), receipt="elsewhere")
                while (frame := await client.next("RECEIPT"))["receipt-id"] != "elsewhere":
                    assert frame["receipt-id"] in ("1", "2"), "a full stream takes more"
            else:
                await bodies(await site.receiver(source), 4)
                for number in range(1, 4):
                    await client.receipt(str(number))


@row(
    "unauthorised",
    {
        "anycast": DENIED,
        "multicast": DENIED,
        "queue": DENIED,
        "topic": f"{DENIED}; names below the topic need a grant that covers them",
        "subscription": DENIED,
        "stream": DENIED,
        "deadletter": DENIED,
        "dynamic": f"whoever knows the name may send; other users that subscribe: {DENIED}",
    },
    protocol="stomp",
)
async def test_a_stomp_user_without_a_grant_is_refused(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        owner = await site.connect(user="owner")
        receiver = await owner.receiver(dynamic=True)
        assert receiver.address is not None
        names = [receiver.address]
    else:
        address = await site.declare(address_type, space=BANK)
        names = [address, f"{address}/below"] if address_type == "topic" else [address]
    who = {"login": "guest", "passcode": PASSWORD, "host": "bank.default"}
    for name in names:
        async with stomp(site, **who) as guest:
            guest.say("SUBSCRIBE", id="0", destination=name, receipt="1")
            error = await guest.next("ERROR")
            assert (error["condition"], error["receipt-id"]) == ("amqp:unauthorized-access", "1")
        async with stomp(site, **who) as guest:
            guest.send(name, receipt="2")
            if address_type != "dynamic":
                assert (await guest.next("ERROR"))["condition"] == "amqp:unauthorized-access"
                continue
            delivery = await receiver.receive(10)
            assert delivery is not None
            delivery.accept()
            await guest.receipt("2")


@row(
    "expired",
    {
        "anycast": "nothing expires: `ttl` and `expires` are passed on for the receiver to look at",
        "multicast": "nothing expires: `ttl` and `expires` are passed on for the receivers to look at",
        "stream": "`ttl` is not looked at: what is kept, and for how long, is the stream's retention",
    },
    protocol="stomp",
)
async def test_a_time_to_live_is_passed_on_to_stomp(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with stomp(site) as client:
        await client.subscribe(address)
        client.send(address, ttl="1", expires="1")
        message = await client.next("MESSAGE")
        assert (message["ttl"], message["expires"]) == ("1", "1")


@row(
    "expired",
    {
        "queue": LATER,
        "topic": "each subscription sees to it by itself",
        "subscription": LATER,
        "deadletter": f"{LATER}; expired letters that lie here have lost their `ttl`",
        "dynamic": "a temporary queue drops what is too late; elsewhere `ttl` is passed on",
    },
    protocol="stomp",
)
async def test_what_has_expired_is_not_sent_to_stomp(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with stomp(site) as client:
        client.send(target, b"old", ttl="1", receipt="1")
        await client.receipt("1")
        client.send(target, b"new", expires="99999999999999")
        await client.subscribe(address)
        message = await client.next("MESSAGE")
        while message.body == b"old":  # as quick as that
            message = await client.next("MESSAGE")
        assert message.body == b"new"


@row(
    "deleted",
    {
        "anycast": "`ERROR` with `amqp:modified` for what a receiver had; to the next message `amqp:not-found`",
        "multicast": "`ERROR` with `amqp:modified` for what receivers had; to the next message `amqp:not-found`",
        "queue": STORED_GONE,
        "topic": STORED_GONE,
        "subscription": "its subscribers' connections end with `amqp:resource-deleted`; senders notice nothing",
        "stream": STORED_GONE,
        "deadletter": STORED_GONE,
        "dynamic": "goes with the link that it was made for; then `ERROR` with `amqp:not-found`",
    },
    protocol="stomp",
)
async def test_an_address_of_stomp_clients_is_deleted(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        receiver = await site.receiver(None, dynamic=True)
        assert receiver.address is not None
        async with stomp(site) as client:
            await receiver.close()
            client.send(receiver.address, receipt="1")
            assert (await client.next("ERROR"))["condition"] == "amqp:not-found"
        return
    address, target = await target_of(site, address_type)
    is_direct = address_type in ("anycast", "multicast")
    async with stomp(site) as client, stomp(site) as subscriber:
        await subscriber.subscribe(target if address_type == "topic" else address, ack="client")
        client.send(target, receipt="1")
        await subscriber.next("MESSAGE")
        if not is_direct:
            await client.receipt("1")
        await site.delete(target if address_type == "topic" else address)
        assert (await subscriber.next("ERROR"))["condition"] == "amqp:resource-deleted"
        if is_direct:
            assert (await client.next("ERROR"))["condition"] in ("amqp:modified", "amqp:resource-deleted")
            return
        client.send(target, receipt="2")
        if address_type == "subscription":
            await client.receipt("2")
        else:
            assert (await client.next("ERROR"))["condition"] == "amqp:not-found"


@rows(
    "node gone",
    {
        "anycast": NOT_KNOWN,
        "multicast": NOT_KNOWN,
        "queue": AGAIN,
        "topic": "what had its receipt is in its durable subscriptions if it is `persistent`",
        "subscription": AGAIN,
        "stream": "all that had its receipt is there again, in its order",
        "deadletter": AGAIN,
        "dynamic": "it is gone with its messages: `ERROR` with `amqp:not-found`",
    },
    protocol="stomp",
)
async def test_what_stomp_had_a_receipt_for_is_there_again(site: Site, address_types: list[str]) -> None:
    places = {kind: await target_of(site, kind) for kind in address_types}
    direct = [kind for kind in places if kind in ("anycast", "multicast")]
    async with stomp(site) as client, stomp(site) as receiver:
        for kind, (source, target) in places.items():
            if kind in direct:
                await receiver.subscribe(source, ack="client")
            client.send(target, kind.encode(), receipt=kind, persistent="true")
            if kind in direct:
                await receiver.next("MESSAGE")
            else:
                await client.receipt(kind)
        await asyncio.to_thread(site.node.kill)
        await asyncio.to_thread(site.node.start)
        await client.ended()
    async with stomp(site) as client:
        for kind, (source, target) in places.items():
            if kind == "dynamic":
                continue
            await client.subscribe(source, **({"start": "first"} if kind == "stream" else {}))
            if kind in direct:
                client.send(target, kind.encode())
            assert (await client.next("MESSAGE")).body == kind.encode()
        client.send(places["dynamic"][1], receipt="1")
        assert (await client.next("ERROR"))["condition"] == "amqp:not-found"
