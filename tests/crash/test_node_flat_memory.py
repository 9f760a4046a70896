"""A node whose collector of cycles never runs keeps its memory flat while clients of every protocol come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from enmasse.client import Message, blocking, connect
from tests.support.chance import kills
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.stomp_peer import StompPeer

ROUNDS = kills(0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chance,
    pytest.mark.timeout(120 + 30 * ROUNDS),
    pytest.mark.skipif(not ROUNDS, reason="make soak looks at memory at length"),
]

SPACE = "default/flat"
HOST = "flat.default"

NO_COLLECTOR = "import gc; gc.disable(); gc.set_threshold = lambda *_: None"

CLIENTS = 150
"""Clients of a round; at once there are ten connections."""

WARM_UP = 2
"""Rounds after which what is made once, and grows by doubling, is there."""

MAX_BYTES = 5 << 10
"""Of memory that a client may leave behind; in cycles one would leave 10 to 50 KiB."""


async def mqtt(port: int, number: int) -> None:
    """A session that expires."""
    async with MqttPeer(port, f"device-{number}", is_clean=True, session_expiry_s=1) as peer:
        assert await peer.subscribed(f"news/{number}", qos=1) == [1]
        peer.publish(f"news/{number}", bytes(100), 1)
        for _ in range(2):
            await peer.next("publish", "puback")


async def amqp(port: int, number: int) -> None:
    async with connect(f"amqp://127.0.0.1:{port}", hostname=HOST, reconnect=False) as connection:
        sender = await connection.sender(f"news/{number}")
        async with connection.receiver(f"news/{number}") as receiver:
            await sender.send(Message("x"))
            delivery = await receiver.receive(30)
            assert delivery is not None
            delivery.accept()


async def stomp(port: int, number: int) -> None:
    async with StompPeer(port) as peer:
        await peer.subscribe(f"news/{number}")
        peer.say("BEGIN", transaction="t")
        peer.send(f"news/{number}", transaction="t")
        peer.say("COMMIT", transaction="t")
        await peer.next("MESSAGE")


async def http(port: int, number: int, *, is_2: bool = False) -> None:
    base = f"http://127.0.0.1:{port}/v1/spaces/{HOST}/addresses/"
    # Authorities are not read for each of thousands of clients.
    plain: dict[str, Any] = {"timeout": 60, "trust_env": False, "verify": False}
    async with httpx.AsyncClient(base_url=base, http1=not is_2, http2=is_2, **plain) as client:
        assert (await client.post("work/messages", content="x")).status_code == 202
        answer = await client.post("work/receive", params={"wait": 30, "auto": "true"})
        assert answer.json()["messages"]
        headers = {"Accept": "text/event-stream"}
        async with client.stream("GET", f"news%2F{number}/events", headers=headers) as events:
            assert events.status_code == 200


async def http2(port: int, number: int) -> None:
    await http(port, number, is_2=True)


async def come_and_go(one: Callable[[int, int], Awaitable[None]], port: int, first: int) -> None:
    for at in range(first, first + CLIENTS, 10):
        await asyncio.gather(*(one(port, number) for number in range(at, at + 10)))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Any]]:
    with (
        NodeProcess(tmp_path_factory.mktemp("node"), before=NO_COLLECTOR) as process,
        blocking.connect(process.admin_url, patience=20) as connection,
    ):
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"authentication": "none"})
        for address, kind in (("news", "topic"), ("work", "queue")):
            attributes = {"space": SPACE, "address": address, "addressType": kind}
            management.create("io.enmasse.address", f"{SPACE}.{address}", attributes)
        yield process, management


@pytest.mark.parametrize("one", [mqtt, amqp, stomp, http, http2], ids=lambda one: str(one.__name__))
def test_what_ends_leaves_nothing_for_a_collector(
    node: tuple[NodeProcess, Any], one: Callable[[int, int], Awaitable[None]]
) -> None:
    process, management = node
    before = 0
    for number in range(WARM_UP + ROUNDS):
        if number == WARM_UP:
            before = process.memory_bytes
        asyncio.run(come_and_go(one, process.port, number * CLIENTS))
        until(lambda: not management.query("io.enmasse.session"))
        # The one that asks.
        until(lambda: len(management.query("io.enmasse.connection")) == 1)
    grown = (process.memory_bytes - before) // (ROUNDS * CLIENTS)
    print(f"{one.__name__}: {grown} bytes a client, {process.memory_bytes >> 20} MiB")  # noqa: T201
    assert grown < MAX_BYTES, f"{grown} bytes a client"
