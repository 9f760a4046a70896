"""What becomes of messages that HTTP clients send: the status of the answer."""

from __future__ import annotations

import asyncio
from typing import Any, Self
from urllib.parse import quote

import httpx
import pytest

from tests.outcomes.outcome_cells import row, rows
from tests.outcomes.outcome_site import PASSWORD, Site
from tests.outcomes.test_outcomes_stomp import target_of
from tests.outcomes.test_outcomes_stored import bodies, declare_subscription
from tests.support import through_front

pytestmark = pytest.mark.slow

RECEIVER = "200: a receiver accepted it; 422: it rejected it; 503: it released it; 502: it failed"
STORED = "202: it is stored: on disk unless `X-Durable: false`, else in memory"
NOBODY = "it waits for `wait` seconds, then 503 with `Retry-After`"
NOT_KNOWN = "without an answer the outcome is not known. Send it again, and it may come twice"
POLICY = "`block`: it waits for room, after `wait` seconds 429; `reject`: 429; `drop-oldest`: the oldest make room"
DENIED = "403 with `amqp:unauthorized-access`"
LATER = "never handed out; it goes to the `expiry` address, or is dropped, and is counted"
GONE = "404 with `amqp:not-found`"
AGAIN = "what was answered with 202 is there again, unless it was not durable"


class Client:
    """A client that keeps its connection; an async context manager."""

    def __init__(self, site: Site, space: str = "open.default", **options: Any) -> None:
        base = f"http://127.0.0.1:{site.node.port}/v1/spaces/{space}/addresses/"
        self._http = httpx.AsyncClient(base_url=base, timeout=60, trust_env=False, verify=False, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(self, address: str, body: bytes = b"x", *, wait: float = 30, **headers: str) -> httpx.Response:
        """Send a message; underscores of headers are hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"{quote(address, safe='')}/messages?wait={wait:g}"
        return await self._http.post(path, content=body, headers=named)


def failure(answer: httpx.Response) -> tuple[int, str]:
    """Status and condition of an answer."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == answer.status_code
    assert found["detail"]
    return answer.status_code, found["condition"]


@row("accepted", {"anycast": RECEIVER, "multicast": RECEIVER}, protocol="http")
async def test_the_status_is_the_receivers_word(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver = await site.receiver(address)
    async with Client(site) as client:
        for outcome, status in (("accept", 200), ("release", 503), ("modify", 502), ("reject", 422)):
            asked = asyncio.create_task(client.post(address))
            delivery = await receiver.receive(10)
            assert delivery is not None
            if outcome == "modify":
                delivery.modify(failed=True)
            elif outcome == "reject":
                delivery.reject("shop:closed", "come again")
            else:
                getattr(delivery, outcome)()
            answer = await asked
            assert answer.status_code == status, answer.text
            assert (
                answer.json()["outcome"]
                == {200: "accepted", 503: "released", 502: "modified", 422: "rejected"}[status]
            )
        assert failure(answer) == (422, "shop:closed")
        assert "come again" in answer.json()["detail"]


@row(
    "accepted",
    {
        "queue": STORED,
        "topic": "202: every subscription has it: durable ones on disk unless `X-Durable: false`, else in memory",
        "subscription": "202 by its topic: it is here; by itself: 409 with `amqp:not-allowed`",
        "stream": "202: it is on disk, and readers see it",
        "deadletter": STORED,
        "dynamic": "in a temporary queue 202: it is stored in memory; elsewhere 200: the receiver accepted it",
    },
    protocol="http",
)
async def test_an_accepted_status_says_that_it_is_stored(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with Client(site) as client:
        answer = await client.post(target, b"kept")
        assert (answer.status_code, answer.json()) == (202, {"outcome": "accepted"})
        if address_type == "subscription":
            assert failure(await client.post(address)) == (409, "amqp:not-allowed")
    receiver = await site.receiver(
        address, **({"filters": {"enmasse:start": "first"}} if address_type == "stream" else {})
    )
    (body,) = await bodies(receiver, 1)
    assert body == b"kept"


@row("no consumer", {"anycast": NOBODY, "multicast": NOBODY}, protocol="http")
async def test_a_request_waits_for_a_receiver(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    async with Client(site) as client:
        refused = await client.post(address, wait=0)
        assert failure(refused) == (503, "amqp:resource-limit-exceeded")
        assert refused.headers["retry-after"] == "1"
        asked = asyncio.create_task(client.post(address, b"patient"))
        receiver = await site.receiver(address)
        delivery = await receiver.receive(10)
        assert delivery is not None
        delivery.accept()
        assert (await asked).status_code == 200


@row(
    "no consumer",
    {
        "queue": "202: it is stored and waits",
        "topic": "202, and gone: without a subscription nobody asked for it",
        "subscription": "202: copies are stored and wait",
        "stream": "202: it is stored: readers are never waited for",
        "deadletter": "202: it is stored and waits",
        "dynamic": "a temporary queue keeps it; elsewhere it waits as at a direct address",
    },
    protocol="http",
)
async def test_what_stores_answers_without_receivers(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with Client(site) as client:
        assert (await client.post(target)).status_code == 202
    if address_type not in ("topic", "dynamic"):
        assert await site.count(address, "messagesStored") == 1


@row(
    "full",
    {
        "anycast": "it waits for a receiver's credit, after `wait` seconds 429 with `Retry-After`",
        "multicast": "it waits for every receiver's credit, after `wait` seconds 429 with `Retry-After`",
    },
    protocol="http",
)
async def test_a_request_waits_for_a_receivers_credit(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver = await site.receiver(address, credit=0)
    await site.settle()
    async with Client(site) as client:
        refused = await client.post(address, wait=0)
        assert failure(refused) == (429, "amqp:resource-limit-exceeded")
        assert refused.headers["retry-after"] == "1"
        asked = asyncio.create_task(client.post(address))
        receiver.grant(1)
        delivery = await receiver.receive(10)
        assert delivery is not None
        delivery.accept()
        assert (await asked).status_code == 200


@row(
    "full",
    {
        "queue": POLICY,
        "topic": "as the fullest of its durable subscriptions, by its own `fullPolicy`, as a queue",
        "subscription": "as the topic's `fullPolicy` says, as a queue",
        "stream": "without a retention it waits for room, after `wait` s 429; with one the oldest frames are deleted",
        "deadletter": POLICY,
        "dynamic": "it waits for room, of which a temporary queue has 16 MiB; after `wait` seconds 429",
    },
    protocol="http",
)
async def test_what_is_full_refuses_after_a_while(site: Site, address_type: str) -> None:
    limits: dict[str, Any] = {"maxBytes": 4_000}
    size = 3_000
    for policy in ("block", "reject"):
        if address_type == "dynamic":
            _, target = await target_of(site, address_type)
            size = 6 << 20
        elif address_type == "stream":
            target, size = await site.declare("stream", maxBytes=100_000), 60_000
        elif address_type in ("topic", "subscription"):
            target = await site.declare("topic", fullPolicy=policy)
            await declare_subscription(site, target, **limits)
        else:
            target = await site.declare(address_type, fullPolicy=policy, **limits)
        async with Client(site) as client:
            answer = await client.post(target, bytes(size), wait=1)
            assert answer.status_code == 202, answer.text
            for _ in range(4):
                answer = await client.post(target, bytes(size), wait=0)
                if answer.status_code != 202:
                    break
            assert failure(answer) == (429, "amqp:resource-limit-exceeded")


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
        "dynamic": "whoever knows the name may send",
    },
    protocol="http",
)
async def test_an_http_user_without_a_grant_is_refused(site: Site, address_type: str) -> None:
    async with Client(site, "bank.default", auth=("guest", PASSWORD)) as guest:
        if address_type == "dynamic":
            owner = await site.connect(user="owner")
            receiver = await owner.receiver(dynamic=True)
            assert receiver.address is not None
            asked = asyncio.create_task(guest.post(receiver.address))
            delivery = await receiver.receive(10)
            assert delivery is not None
            delivery.accept()
            assert (await asked).status_code == 200
            return
        address = await site.declare(address_type, space="default/bank")
        for name in (address, f"{address}/below") if address_type == "topic" else (address,):
            assert failure(await guest.post(name)) == (403, "amqp:unauthorized-access")


@row(
    "expired",
    {
        "anycast": "nothing expires: `X-Ttl` and `X-Expires` are passed on for the receiver to look at",
        "multicast": "nothing expires: `X-Ttl` and `X-Expires` are passed on for the receivers to look at",
        "stream": "`X-Ttl` is not looked at: what is kept, and for how long, is the stream's retention",
    },
    protocol="http",
)
async def test_a_time_to_live_is_passed_on_from_http(site: Site, address_type: str) -> None:
    address = await site.declare(address_type)
    receiver = await site.receiver(address)
    async with Client(site) as client:
        asked = asyncio.create_task(client.post(address, x_ttl="1", x_expires="1"))
        delivery = await receiver.receive(10)
        assert delivery is not None
        assert delivery.message.ttl == 0.001
        delivery.accept()
        assert (await asked).is_success


@row(
    "expired",
    {
        "queue": LATER,
        "topic": "each subscription sees to it by itself",
        "subscription": LATER,
        "deadletter": f"{LATER}; expired letters that lie here have lost their `ttl`",
        "dynamic": "a temporary queue drops what is too late; elsewhere `X-Ttl` is passed on",
    },
    protocol="http",
)
async def test_what_has_expired_is_not_handed_out(site: Site, address_type: str) -> None:
    address, target = await target_of(site, address_type)
    async with Client(site) as client:
        assert (await client.post(target, b"old", x_expires="1")).status_code == 202
        assert (await client.post(target, b"new", x_expires="99999999999999")).status_code == 202
    assert await bodies(await site.receiver(address), 1) == [b"new"]


@row(
    "deleted",
    {
        "anycast": f"502 with `amqp:modified` for what a receiver had, or 410; to the next message {GONE}",
        "multicast": f"502 with `amqp:modified` for what receivers had, or 410; to the next message {GONE}",
        "queue": GONE,
        "topic": GONE,
        "subscription": "senders to its topic notice nothing",
        "stream": GONE,
        "deadletter": GONE,
        "dynamic": f"goes with the link that it was made for; then {GONE}",
    },
    protocol="http",
)
async def test_an_address_of_http_clients_is_deleted(site: Site, address_type: str) -> None:
    async with Client(site) as client:
        if address_type == "dynamic":
            receiver = await site.receiver(None, dynamic=True)
            assert receiver.address is not None
            await receiver.close()
            assert failure(await client.post(receiver.address)) == (404, "amqp:not-found")
            return
        address, target = await target_of(site, address_type)
        if address_type in ("anycast", "multicast"):
            receiver = await site.receiver(address)
            asked = asyncio.create_task(client.post(target))
            assert await receiver.receive(10) is not None
            await site.delete(address)
            assert failure(await asked) in ((502, "amqp:modified"), (410, "amqp:resource-deleted"))
        else:
            assert (await client.post(target)).status_code == 202
            await site.delete(target if address_type == "topic" else address)
        if address_type == "subscription":
            assert (await client.post(target)).status_code == 202
        else:
            assert failure(await client.post(target)) == (404, "amqp:not-found")


@rows(
    "node gone",
    {
        "anycast": NOT_KNOWN,
        "multicast": NOT_KNOWN,
        "queue": AGAIN,
        "topic": "what was answered with 202 is in its durable subscriptions, unless it was not durable",
        "subscription": AGAIN,
        "stream": "all that was answered with 202 is there again, in its order",
        "deadletter": AGAIN,
        "dynamic": f"it is gone with its messages: {GONE}",
    },
    protocol="http",
)
async def test_what_was_answered_is_there_again(site: Site, address_types: list[str]) -> None:
    places = {kind: await target_of(site, kind) for kind in address_types}
    direct = ("anycast", "multicast")
    async with Client(site) as client, Client(site) as other:
        lost = []
        for kind, (source, target) in places.items():
            if kind in direct:
                receiver = await site.receiver(source)
                lost.append(asyncio.create_task(other.post(target)))
                assert await receiver.receive(10) is not None
            else:
                assert (await client.post(target, kind.encode())).status_code == 202
        await asyncio.to_thread(site.node.kill)
        await asyncio.to_thread(site.node.start)
        for each in await asyncio.gather(*lost, return_exceptions=True):
            # A front that lives on says so.
            assert isinstance(each, httpx.TransportError) or (
                through_front.IS_WANTED
                and isinstance(each, httpx.Response)
                and failure(each) == (502, "amqp:connection:forced")
            )
    again = await site.connect()
    async with Client(site) as client:
        for kind, (source, target) in places.items():
            if kind in direct:
                continue
            if kind == "dynamic":
                assert failure(await client.post(target)) == (404, "amqp:not-found")
                continue
            options: dict[str, Any] = {"filters": {"enmasse:start": "first"}} if kind == "stream" else {}
            assert await bodies(await again.receiver(source, **options), 1) == [kind.encode()]
