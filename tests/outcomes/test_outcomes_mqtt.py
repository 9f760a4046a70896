"""What becomes of messages that MQTT clients publish: PUBACK or PUBREC with a reason code, or the connection ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.wire.mqtt.packets import PublishProperties, Reason, Version
from tests.outcomes.outcome_cells import row, rows
from tests.outcomes.outcome_site import BANK, PASSWORD, Site
from tests.outcomes.test_outcomes_stored import bodies, declare_subscription
from tests.support.mqtt_peer import MqttPeer

pytestmark = pytest.mark.slow

V3, V5 = Version.V3_1_1, Version.V5

NOBODY = "version 5: `0x83` at once. Before: it waits for a receiver; after 30 s without one the connection is closed"
CROWDED = (
    "it waits for a receiver's credit, and a client with too many of these is not read; after 30 s version 5 has "
    "`0x97`, before that the connection is closed"
)
NOT_KNOWN = "without PUBACK or PUBREC the outcome is not known. Send it again, and it may come twice"
DENIED = "version 5: `0x87`. Before: the connection is closed, or it is acknowledged and dropped if the space says so"
GONE = "version 5: `0x90` to the next message. Before: the connection is closed, or acknowledged and dropped"
LATER = "never handed out; it goes to the `expiry` address, or is dropped, and is counted"
AGAIN = "what had its PUBACK or PUBREC is there again; QoS 2 is there once"
POLICY = (
    "`block`: it waits for room, as for a receiver's credit; `reject`: version 5 has `0x97`, before that the "
    "connection is closed; `drop-oldest`: the oldest make room"
)
ON_DISK = "QoS 1 and 2: it is stored on disk. QoS 0 is stored in memory, and its sender hears nothing"


def mqtt(site: Site, version: Version = V5, **options: Any) -> MqttPeer:
    """A client of the open space."""
    return MqttPeer(site.node.port, version=version, **options)


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
        "anycast": "the receiver's own outcome: rejected is `0x80`, failed `0x83`; released, it is offered again. "
        "With `acknowledge: node`: a receiver has it",
        "multicast": "a receiver accepted it; `0x80` or `0x83` if none did, but one rejected it or failed",
    },
    protocol="mqtt",
)
async def test_an_answer_is_the_receivers_word(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver = await site.receiver(address)
    async with mqtt(site) as client:
        for qos, outcome in ((1, "accept"), (2, "accept"), (1, "release"), (1, "reject")):
            client.publish(address, qos=qos)
            client.flush()
            delivery = await receiver.receive(10)
            assert delivery is not None
            if outcome == "release" and address_type == "anycast":
                delivery.release()
                delivery = await receiver.receive(10)
                assert delivery is not None
            if outcome == "reject":
                delivery.reject("shop:closed", "come again")
            else:
                delivery.accept()
            answer = await client.next("puback" if qos == 1 else "pubrec")
            assert answer.reason == (Reason.UNSPECIFIED_ERROR if outcome == "reject" else 0)
    if address_type == "anycast":
        own = await site.declare("anycast", acknowledge="node")
        receiver = await site.receiver(own)
        async with mqtt(site) as client:
            assert await client.answer(own) == 0
            assert await receiver.receive(10) is not None


@row(
    "accepted",
    {
        "queue": ON_DISK,
        "topic": "every subscription has it: with QoS 1 and 2 durable ones have it on disk",
        "subscription": "to its topic: it is here; to itself: `0x83`, before version 5 the connection is closed",
        "stream": "it is on disk, whatever its QoS, and readers see it",
        "deadletter": ON_DISK,
        "dynamic": "in a temporary queue: it is stored in memory; elsewhere the receiver accepted it",
    },
    protocol="mqtt",
)
async def test_an_answer_says_that_it_is_stored(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    filters = {"enmasse:start": "first"} if address_type == "stream" else {}
    async with mqtt(site) as client, mqtt(site, V3) as old:
        assert await client.answer(target, b"1") == 0
        assert await client.answer(target, b"2", 2) == 0
        assert await old.answer(target, b"3") == 0
        if address_type == "stream":
            receiver = await site.receiver(address, filters=filters)
            assert await bodies(receiver, 3) == [b"1", b"2", b"3"]
            return
        assert await client.subscribed(address, qos=1) == [1]
        assert [(await client.message()).payload for _ in range(3)] == [b"1", b"2", b"3"]
        if address_type == "subscription":
            assert await client.answer(address) == Reason.IMPLEMENTATION_SPECIFIC_ERROR


@row("no consumer", {"anycast": NOBODY, "multicast": NOBODY}, protocol="mqtt")
async def test_a_message_without_a_consumer(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with mqtt(site) as client, mqtt(site, V3) as old, mqtt(site) as receiver:
        for qos in (1, 2):
            assert await client.answer(address, qos=qos) == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        old.publish(address, b"patient", 1)
        await old.answer(await site.declare("queue"), qos=2)
        await receiver.subscribed(address, qos=1)
        assert (await receiver.message()).payload == b"patient"
        assert (await old.next("puback")).packet_id == 1


@row(
    "no consumer",
    {
        "queue": "it is stored and waits",
        "topic": "accepted, and gone: without a subscription to the name nobody asked for it. Version 5: `0x10`",
        "subscription": "copies are stored and wait",
        "stream": "it is stored: readers are never waited for",
        "deadletter": "it is stored and waits",
        "dynamic": "a temporary queue keeps it; elsewhere as at a direct address",
    },
    protocol="mqtt",
)
async def test_what_stores_accepts_without_consumers(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    lonely = await site.declare("topic")
    async with mqtt(site) as client, mqtt(site, V3) as old:
        if address_type == "topic":
            assert await client.answer(lonely) == Reason.NO_MATCHING_SUBSCRIBERS
            assert await client.answer(lonely, qos=2) == Reason.NO_MATCHING_SUBSCRIBERS
            assert await old.answer(lonely) == 0
            return
        assert await client.answer(target) == 0
        if address_type != "dynamic":
            assert await site.count(address, "messagesStored") == 1


@row("full", {"anycast": CROWDED, "multicast": CROWDED}, protocol="mqtt")
async def test_a_message_waits_for_a_consumers_credit(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with mqtt(site) as client, mqtt(site, receive_maximum=1) as receiver:
        await receiver.subscribed(address, qos=1)
        for number in range(3):
            client.publish(address, b"%d" % number, 1)
        client.flush()
        for number in range(3):
            assert (await receiver.message()).payload == b"%d" % number
            assert (await client.next("puback")).reason == 0


@row(
    "full",
    {
        "queue": POLICY,
        "topic": "as the fullest of its durable subscriptions, by its own `fullPolicy`, as a queue; sessions lose "
        "their oldest messages and hold nobody up",
        "subscription": "as the topic's `fullPolicy` says, as a queue",
        "stream": "without a retention it waits for room, as for credit; with one the oldest frames are deleted",
        "deadletter": POLICY,
        "dynamic": "it waits for room, of which a temporary queue has 16 MiB",
    },
    protocol="mqtt",
)
async def test_what_is_full_makes_a_message_wait_or_refuses_it(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        _, target = await target_of(site, address_type)
        async with mqtt(site) as client, mqtt(site) as receiver:
            for _ in range(5):
                client.publish(target, bytes(4 << 20), 1)
            for number in range(3):
                assert (await client.next("puback")).packet_id == number + 1
            await receiver.subscribed(target, qos=1)
            await receiver.message()
            await client.next("puback")
        return
    limits: dict[str, Any] = {"maxBytes": 4_000}
    for policy in ("block", "reject"):
        if address_type == "stream":
            target, size = await site.declare("stream", maxBytes=100_000), 60_000
            source = target
        elif address_type in ("topic", "subscription"):
            target, size = await site.declare("topic", fullPolicy=policy), 3_000
            source = await declare_subscription(site, target, **limits)
        else:
            source = target = await site.declare(address_type, fullPolicy=policy, **limits)
            size = 3_000
        async with mqtt(site) as client:
            assert await client.answer(target, bytes(size)) == 0
            if policy == "reject" and address_type != "stream":
                reason = 0
                while not reason:
                    reason = await client.answer(target, bytes(size))
                assert reason == Reason.QUOTA_EXCEEDED
                continue
            numbers = [client.publish(target, bytes(size), 1) for _ in range(3)]
            elsewhere = client.publish(await site.declare("queue"), b"x", 1)
            while (answer := await client.next("puback")).packet_id != elsewhere:
                assert answer.packet_id in numbers[:2], "a full address takes more"
                numbers.remove(answer.packet_id)
            if address_type != "stream":
                await bodies(await site.receiver(source), 4)
                for number in numbers:
                    assert (await client.next("puback")).packet_id == number


@row(
    "unauthorised",
    {
        "anycast": DENIED,
        "multicast": DENIED,
        "queue": DENIED,
        "topic": f"{DENIED}. Names below the topic need a grant that covers them",
        "subscription": DENIED,
        "stream": DENIED,
        "deadletter": DENIED,
        "dynamic": "whoever knows the name may send; other users that subscribe have `0x87`, before version 5 `0x80`",
    },
    protocol="mqtt",
)
async def test_an_mqtt_user_without_a_grant_is_refused(site: Site, address_type: str) -> None:
    who: dict[str, Any] = {"user_name": "guest@bank.default", "password": PASSWORD.encode()}
    if address_type == "dynamic":
        owner = await site.connect(user="owner")
        receiver = await owner.receiver(dynamic=True)
        assert receiver.address is not None
        names = [receiver.address]
    else:
        address = await site.declare(address_type, space=BANK)
        names = [address, f"{address}/below"] if address_type == "topic" else [address]
    for name in names:
        async with mqtt(site, **who) as guest, mqtt(site, V3, **who) as old:
            assert await guest.subscribed(name, qos=1) == [Reason.NOT_AUTHORIZED]
            assert await old.subscribed(name, qos=1) == [0x80]
            if address_type == "dynamic":
                guest.publish(name, b"x", 1)
                guest.flush()
                delivery = await receiver.receive(10)
                assert delivery is not None
                delivery.accept()
                assert (await guest.next("puback")).reason == 0
                continue
            assert await guest.answer(name) == Reason.NOT_AUTHORIZED
            assert await guest.answer(name, qos=2) == Reason.NOT_AUTHORIZED
            old.publish(name, qos=1)
            await old.ended()


@row(
    "expired",
    {
        "anycast": "nothing expires: the message expiry is passed on for the receiver to look at",
        "multicast": "nothing expires: the message expiry is passed on for the receivers to look at",
        "stream": "the message expiry is not looked at: what is kept, and for how long, is the stream's retention",
    },
    protocol="mqtt",
)
async def test_a_message_expiry_is_passed_on(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with mqtt(site) as client:
        await client.subscribed(address)
        client.publish(address, properties=PublishProperties(message_expiry_s=1))
        message = await client.message()
        assert message.properties is not None
        assert message.properties.message_expiry_s == 1


@row(
    "expired",
    {
        "queue": LATER,
        "topic": "each subscription, and each session, sees to it by itself",
        "subscription": LATER,
        "deadletter": f"{LATER}; expired letters that lie here have lost their time to live",
        "dynamic": "a temporary queue drops what is too late; elsewhere the message expiry is passed on",
    },
    protocol="mqtt",
)
async def test_what_has_expired_is_not_sent_to_mqtt(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with mqtt(site) as client:
        assert await client.answer(target, b"old", properties=PublishProperties(message_expiry_s=0)) == 0
        assert await client.answer(target, b"new", properties=PublishProperties(message_expiry_s=1_000)) == 0
        await client.subscribed(address, qos=1)
        message = await client.message()
        while message.payload == b"old":  # as quick as that
            message = await client.message()
        assert message.payload == b"new"
        assert message.properties is not None
        assert message.properties.message_expiry_s in range(900, 1_001)


@row(
    "deleted",
    {
        "anycast": f"`0x83` for what a receiver had, before version 5 the connection is closed. {GONE}",
        "multicast": f"`0x83` for what receivers had, before version 5 the connection is closed. {GONE}",
        "queue": GONE,
        "topic": GONE,
        "subscription": "its subscribers get nothing until one of that name is there again; senders notice nothing",
        "stream": GONE,
        "deadletter": GONE,
        "dynamic": f"goes with the link that it was made for. {GONE}",
    },
    protocol="mqtt",
)
async def test_an_address_of_mqtt_clients_is_deleted(site: Site, address_type: str) -> None:
    if address_type == "dynamic":
        owner = await site.receiver(None, dynamic=True)
        assert owner.address is not None
        async with mqtt(site) as client, mqtt(site, V3) as old:
            await owner.close()
            assert await client.answer(owner.address) == Reason.TOPIC_NAME_INVALID
            old.publish(owner.address, qos=1)
            await old.ended()
        return
    address, target = await target_of(site, address_type)
    is_direct = address_type in ("anycast", "multicast")
    async with mqtt(site) as client, mqtt(site) as receiver, mqtt(site, V3) as old:
        if address_type == "subscription":
            await receiver.subscribed(address, qos=1)
            await site.delete(address)
            assert await client.answer(target) == Reason.NO_MATCHING_SUBSCRIBERS
            await declare_subscription(site, target)
            assert await client.answer(target, b"again") == 0
            assert (await receiver.message()).payload == b"again"
            return
        await receiver.subscribed(target, qos=1)
        client.publish(target, qos=1)
        client.flush()
        await receiver.next("publish")
        if not is_direct:
            assert (await client.next("puback")).reason == 0
        await site.delete(target)
        if is_direct:
            assert (await client.next("puback")).reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        old.publish(target, qos=1)
        await old.ended()
        assert await client.answer(target) == Reason.TOPIC_NAME_INVALID


@rows(
    "node gone",
    {
        "anycast": NOT_KNOWN,
        "multicast": NOT_KNOWN,
        "queue": AGAIN,
        "topic": f"{AGAIN}, in durable subscriptions and in sessions that outlive their connections",
        "subscription": AGAIN,
        "stream": "all that had its PUBACK or PUBREC is there again, in its order; QoS 2 is there once",
        "deadletter": AGAIN,
        "dynamic": "it is gone with its messages",
    },
    protocol="mqtt",
)
async def test_what_mqtt_had_an_answer_for_is_there_again(site: Site, address_types: list[str]) -> None:
    places = {kind: await target_of(site, kind) for kind in address_types}
    direct = [kind for kind in places if kind in ("anycast", "multicast")]
    lasting: dict[str, Any] = {"client_id": "lasting", "is_clean": False, "session_expiry_s": 600}
    async with mqtt(site, **lasting) as client, mqtt(site) as receiver:
        await client.subscribed(places["topic"][1], qos=2)
        for kind, (source, target) in places.items():
            if kind in direct:
                await receiver.subscribed(source, qos=1)
            for qos in (1, 2):
                client.publish(target, kind.encode(), qos)
                client.flush()
                if kind in direct:
                    await receiver.next("publish")
                    continue
                heard = await client.next("puback", "pubrec", "publish")
                while heard.kind == "publish":
                    heard = await client.next("puback", "pubrec", "publish")
                assert heard.reason == 0
        await asyncio.to_thread(site.node.kill)
        await asyncio.to_thread(site.node.start)
        await client.ended()
    async with mqtt(site, **lasting) as client:
        found = [await client.next("publish") for _ in range(2)]
        assert sorted(message.payload for message in found) == [b"topic", b"topic"]
    async with mqtt(site) as client:
        for kind, (source, target) in places.items():
            if kind in ("dynamic", "stream", *direct):
                continue
            await client.subscribed(source, qos=1)
            assert [(await client.message()).payload for _ in range(2)] == [kind.encode()] * 2
            client.publish(target, b"after")
            assert (await client.message()).payload == b"after", "and no more than these"
            client.unsubscribe(source)
            await client.next("unsuback")
        again = await site.connect()
        stream = await again.receiver(places["stream"][0], filters={"enmasse:start": "first"})
        assert await bodies(stream, 2) == [b"stream", b"stream"]
        assert await client.answer(places["dynamic"][1]) == Reason.TOPIC_NAME_INVALID
