"""What becomes of messages that go on through a connector, here to addresses of the same node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import LinkDetachedError, LinkRefusedError, Message
from enmasse.wire.mqtt.packets import PublishProperties
from tests.outcomes.outcome_cells import column
from tests.outcomes.outcome_site import CONNECTOR, PASSWORD, Site
from tests.outcomes.test_outcomes_http import Client
from tests.outcomes.test_outcomes_mqtt import mqtt
from tests.outcomes.test_outcomes_stomp import stomp
from tests.support import through_front

pytestmark = pytest.mark.slow

NO_GRANT = "grants on everything (`#`) do not cover a connector"
PASSED_ON = "is passed on; nothing waits on the way"
AS_THERE = "as the other service says: no credit there is none here, and its outcome is passed on"


async def say(site: Site, protocol: str, address: str, user: str | None = None) -> str:
    """Send a message with a time to live of a second, or of 1 ms, and return what its sender is told."""
    told: Any
    if protocol == "amqp":
        connection = await site.connect(user=user)
        try:
            sender = await connection.sender(address)
        except LinkRefusedError as error:
            return f"refused {error.condition}"
        told = await sender.send(Message("m", ttl=0.001))
        return f"{told.name} {told.condition or ''}".strip()
    if protocol == "http":
        auth = {"auth": (user, PASSWORD)} if user else {}
        async with Client(site, "bank.default" if user else "open.default", **auth) as client:
            told = await client.post(address, x_ttl="1")
            return f"{told.status_code} {told.json().get('condition') or ''}".strip()
    if protocol == "mqtt":
        who: dict[str, Any] = {"user_name": f"{user}@bank.default", "password": PASSWORD.encode()} if user else {}
        async with mqtt(site, **who) as peer:
            return hex(await peer.answer(address, properties=PublishProperties(message_expiry_s=1)))
    login = {"host": "bank.default", "login": user, "passcode": PASSWORD} if user else {}
    async with stomp(site, **login) as peer:
        peer.send(address, receipt="1", ttl="1")
        told = await peer.next("RECEIPT", "ERROR")
        return "receipt" if told.command == "RECEIPT" else f"ERROR {told['condition']}"


def through(address: str) -> str:
    """Return the name by which an address is reached through the connector."""
    return f"{CONNECTOR}/{address}"


@column(
    "connector",
    "accepted",
    {
        "amqp": "the other service has accepted it; any other outcome is its own, with its details",
        "stomp": "the other service has accepted it; rejected, it is an `ERROR` that says why",
        "mqtt": "the other service has accepted it; rejected is `0x80`",
        "http": "200: the other service has accepted it; 422: it rejected it",
    },
)
async def test_an_answer_is_the_other_services_word(site: Site, protocol: str) -> None:
    address = await site.declare("anycast")
    receiver = await site.receiver(address)
    for wanted in ("accept", "reject"):
        told = asyncio.create_task(say(site, protocol, through(address)))
        delivery = await receiver.receive(30)
        assert delivery is not None
        delivery.accept() if wanted == "accept" else delivery.reject("shop:closed", "come again")
        assert (
            await told
            == {
                "amqp": {"accept": "accepted", "reject": "rejected shop:closed"},
                "stomp": {"accept": "receipt", "reject": "ERROR shop:closed"},
                "mqtt": {"accept": "0x0", "reject": "0x80"},
                "http": {"accept": "200", "reject": "422 shop:closed"},
            }[protocol][wanted]
        )


@column(
    "connector",
    "no consumer",
    {
        "amqp": "senders have the credit that the other service grants, and none while it cannot be reached",
        "stomp": "it waits for credit of the other service, up to 30 s",
        "mqtt": "it waits for credit of the other service, up to 30 s",
        "http": "it waits for credit of the other service, for `wait` seconds",
    },
)
async def test_what_the_other_service_has_no_credit_for_waits(site: Site, protocol: str) -> None:
    address = await site.declare("anycast")
    told = asyncio.create_task(say(site, protocol, through(address)))
    while not await site.count(address, "senders"):
        await asyncio.sleep(0.02)
    await site.settle()
    assert not told.done()
    receiver = await site.receiver(address)
    delivery = await receiver.receive(30)
    assert delivery is not None
    delivery.accept()
    assert await told == {"amqp": "accepted", "stomp": "receipt", "mqtt": "0x0", "http": "200"}[protocol]


@column("connector", "full", {"amqp": AS_THERE, "stomp": AS_THERE, "mqtt": AS_THERE, "http": AS_THERE})
async def test_what_is_full_there_says_so(site: Site, protocol: str) -> None:
    address = await site.declare("queue", maxBytes=1_000, fullPolicy="reject")
    sender = await site.sender(address)
    while (await sender.send(Message("x"), timeout=10)).name == "accepted":
        pass
    full = "amqp:resource-limit-exceeded"
    assert await say(site, protocol, through(address)) == {
        "amqp": f"rejected {full}", "stomp": f"ERROR {full}", "mqtt": "0x97", "http": f"429 {full}",
    }[protocol]  # fmt: skip


@column(
    "connector",
    "unauthorised",
    {
        "amqp": f"attach refused with `amqp:unauthorized-access`; {NO_GRANT}",
        "stomp": f"`ERROR` with `amqp:unauthorized-access`; {NO_GRANT}",
        "mqtt": f"version 5: `0x87`; {NO_GRANT}",
        "http": f"403 with `amqp:unauthorized-access`; {NO_GRANT}",
    },
)
async def test_only_who_may_reaches_a_connector(site: Site, protocol: str) -> None:
    address = await site.declare("queue")
    denied = "amqp:unauthorized-access"
    for user, told in {
        "owner": {"amqp": f"refused {denied}", "stomp": f"ERROR {denied}", "mqtt": "0x87", "http": f"403 {denied}"},
        "miller": {"amqp": "accepted", "stomp": "receipt", "mqtt": "0x0", "http": "200"},
    }.items():
        assert await say(site, protocol, through(address), user) == told[protocol]


@column(
    "connector",
    "expired",
    {
        "amqp": f"`ttl` {PASSED_ON}",
        "stomp": f"`ttl` {PASSED_ON}",
        "mqtt": f"the message expiry {PASSED_ON}",
        "http": f"`X-Ttl` {PASSED_ON}",
    },
)
async def test_a_time_to_live_goes_through_a_connector(site: Site, protocol: str) -> None:
    address = await site.declare("anycast")
    receiver = await site.receiver(address)
    told = asyncio.create_task(say(site, protocol, through(address)))
    delivery = await receiver.receive(30)
    assert delivery is not None
    assert delivery.message.ttl == (1.0 if protocol == "mqtt" else 0.001)
    delivery.accept()
    await told


@column(
    "connector",
    "deleted",
    {
        "amqp": "over there: links are detached with the other service's reason, and new ones are refused",
        "stomp": "over there: `ERROR` with `amqp:not-found` to the next message",
        "mqtt": "over there: `0x90` to the next message",
        "http": "over there: 404 with `amqp:not-found` to the next message",
    },
)
async def test_an_address_behind_a_connector_is_deleted(site: Site, protocol: str) -> None:
    address = await site.declare("queue")
    receiver = await site.receiver(through(address))
    await site.delete(address)
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted"):
        await receiver.receive(30)
    gone = "amqp:not-found"
    assert await say(site, protocol, through(address)) == {
        "amqp": f"refused {gone}", "stomp": f"ERROR {gone}", "mqtt": "0x90", "http": f"404 {gone}",
    }[protocol]  # fmt: skip


NOT_KNOWN = "the outcome is not known: the other service may have it. Send it again, and it may come twice"


@column("connector", "node gone", {"amqp": NOT_KNOWN, "stomp": NOT_KNOWN, "mqtt": NOT_KNOWN, "http": NOT_KNOWN})
async def test_what_went_through_a_connector_of_a_node_that_is_gone_is_not_known(site: Site, protocol: str) -> None:
    address = await site.declare("anycast")
    receiver = await site.receiver(address)
    told = asyncio.create_task(say(site, protocol, through(address)))
    assert await receiver.receive(30) is not None
    await asyncio.to_thread(site.node.kill)
    await asyncio.to_thread(site.node.start)
    (answer,) = await asyncio.gather(told, return_exceptions=True)
    # A front that lives on says so.
    assert isinstance(answer, Exception) or (through_front.IS_WANTED and answer == "502 amqp:connection:forced")
    receiver = await (await site.connect()).receiver(address)
    told = asyncio.create_task(say(site, protocol, through(address)))
    delivery = await receiver.receive(30)
    assert delivery is not None
    delivery.accept()
    assert await told == {"amqp": "accepted", "stomp": "receipt", "mqtt": "0x0", "http": "200"}[protocol]
