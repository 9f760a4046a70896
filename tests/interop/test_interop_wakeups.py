"""A node goes on by itself, without an event from outside, and without the tick that looks every 250 ms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from enmasse.client import Message, connect
from enmasse.wire.mqtt.packets import Reason, Version
from tests.interop.conftest import Addresses
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

COUNT = 400
"""More than what goes out in one turn, several times."""

WITHOUT_TICK = """
import enmasse.node.health
enmasse.node.health.CHECK_S = 1e6
import enmasse.messaging.core
enmasse.messaging.core.WINDOW_BYTES = 1 << 20
"""
"""The tick is switched off, and what a queue has in memory is small."""

BODY = bytes(8 << 10)
"""So large that a queue of them is deeper than memory."""

Read = Callable[[NodeProcess, str, int], Coroutine[Any, Any, list[bytes]]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("wakeups"), before=WITHOUT_TICK) as process:
        addresses = Addresses(process)
        addresses.make_space()
        addresses.declare("topic", "hall")
        addresses.close()
        yield process
        assert "Traceback" not in process.log, process.log


def mqtt(version: Version, qos: int, receive_maximum: int = 65_535) -> Read:
    """Return a reader of MQTT."""

    async def read(node: NodeProcess, name: str, count: int) -> list[bytes]:
        options: dict[str, Any] = {"receive_maximum": receive_maximum} if version is Version.V5 else {}
        async with MqttPeer(node.port, version=version, **options) as peer:
            await peer.subscribed(name, qos=qos)
            return [await mqtt_message(peer) for _ in range(count)]

    return read


async def mqtt_message(peer: MqttPeer) -> bytes:
    """Return the body of the next message, and do with it as its QoS asks."""
    while True:
        found = await peer.next("publish", "pubrel")
        if found.kind == "pubrel":
            peer.engine.put_pubcomp(found.packet_id, 0)
            continue
        if found.qos:
            peer.acknowledge(found)
        return found.payload


async def stomp(node: NodeProcess, name: str, count: int) -> list[bytes]:
    """Read by STOMP, all acknowledged as it is sent."""
    async with StompPeer(node.port, host="/") as peer:
        await peer.subscribe(name, **({"retained": "always"} if name.endswith("#") else {}))
        return [(await peer.next("MESSAGE")).body for _ in range(count)]


def amqp(*, settled: bool, credit: int = 1_000) -> Read:
    """Return a reader of AMQP."""

    async def read(node: NodeProcess, name: str, count: int) -> list[bytes]:
        async with connect(node.url) as connection:
            filters = {"enmasse:retained": "always"} if name.endswith("#") else None
            receiver = await connection.receiver(name, credit=credit, settled=settled, filters=filters)
            found: list[bytes] = []
            for _ in range(count):
                delivery = await receiver.receive(timeout=60)
                assert delivery is not None, f"{len(found)} of {count} came"
                found.append(bytes(delivery.message.body))
                if not settled:
                    delivery.accept()
            return found

    return read


READERS = {
    "MQTT 5, QoS 0": mqtt(Version.V5, 0),
    "MQTT 5, QoS 1": mqtt(Version.V5, 1),
    "MQTT 5, QoS 1, receive maximum 3": mqtt(Version.V5, 1, 3),
    "MQTT 5, QoS 2, receive maximum 3": mqtt(Version.V5, 2, 3),
    "MQTT 3.1.1, QoS 0": mqtt(Version.V3_1_1, 0),
    "MQTT 3.1.1, QoS 2": mqtt(Version.V3_1_1, 2),
    "STOMP": stomp,
    "AMQP, settled": amqp(settled=True),
    "AMQP, unsettled": amqp(settled=False, credit=10),
}
each_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@asynccontextmanager
async def sender(node: NodeProcess, name: str | None) -> AsyncIterator[Any]:
    async with connect(node.url) as connection:
        yield await connection.sender(name)


@pytest.fixture(scope="module")
def retained(node: NodeProcess) -> list[bytes]:
    """Retained values of the topic."""

    async def put() -> list[bytes]:
        async with MqttPeer(node.port) as peer:
            bodies = [b"%d" % number for number in range(COUNT)]
            for body in bodies:
                assert await peer.answer(f"hall/{int(body)}", body, 1, retain=True) in (
                    0,
                    Reason.NO_MATCHING_SUBSCRIBERS,
                )
            return bodies

    return asyncio.run(put())


@each_reader
def test_retained_values(node: NodeProcess, retained: list[bytes], read: Read) -> None:
    assert sorted(asyncio.run(read(node, "hall/#", COUNT))) == sorted(retained)


@each_reader
def test_a_queue_that_is_deeper_than_memory(node: NodeProcess, addresses: Addresses, read: Read) -> None:
    queue = addresses.declare("queue")

    async def story() -> list[bytes]:
        async with sender(node, queue) as sending:
            await sending.send_all([Message(BODY, durable=True) for _ in range(COUNT)])
        return await read(node, queue, COUNT)

    assert asyncio.run(story()) == [BODY] * COUNT


@each_reader
@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_direct_address(node: NodeProcess, addresses: Addresses, kind: str, read: Read) -> None:
    name = addresses.declare(kind)
    bodies = [b"%d" % number for number in range(COUNT)]

    async def story() -> list[bytes]:
        reading = asyncio.create_task(read(node, name, COUNT))
        async with sender(node, name) as sending:
            await sending.wait_for_credit()
            await sending.send_all([Message(body) for body in bodies])
            return await reading

    assert asyncio.run(story()) == bodies


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_held_for_a_session(node: NodeProcess, qos: int) -> None:
    asyncio.run(hold(node, qos))


async def hold(node: NodeProcess, qos: int) -> None:
    """Have a session hold messages, and take them."""
    options: dict[str, Any] = {"is_clean": False, "session_expiry_s": 600, "receive_maximum": 3}
    client = f"held-{qos}"
    async with MqttPeer(node.port, client, **options) as peer:
        await peer.subscribed(f"hall/held/{qos}", qos=qos)
    bodies = [b"%d" % number for number in range(COUNT)]
    async with MqttPeer(node.port) as peer:
        for body in bodies:
            await peer.answer(f"hall/held/{qos}", body, 1)
    async with MqttPeer(node.port, client, **options) as peer:
        assert [await mqtt_message(peer) for _ in range(COUNT)] == bodies
