"""Clients that reach a node which is not the home of their space: their connections are handed over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.client import Message, Outcome, blocking
from enmasse.wire.mqtt.packets import Version
from enmasse.wire.stomp.frames import Version as StompVersion
from enmasse.wire.stomp.frames import encode_frame
from tests.support.chance import is_long
from tests.support.mqtt_peer import MqttPeer
from tests.support.nodes import Nodes, two_nodes
from tests.support.stomp_peer import StompPeer, named

pytestmark = pytest.mark.slow

SPACE = "default/there"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with two_nodes(tmp_path_factory.mktemp("nodes")) as found:
        found.space("default/here", 0)
        found.space(SPACE, 1)
        found.address("default/here", 0, "orders", "queue")
        found.address(SPACE, 1, "orders", "queue")
        found.address(SPACE, 1, "large", "queue")
        found.address(SPACE, 1, "news", "topic")
        yield found


def test_amqp(nodes: Nodes) -> None:
    with blocking.connect(nodes.nodes[0].url, hostname="there.default", timeout=30) as connection:
        sender = connection.sender("orders")
        assert sender.send(Message("to the home"), timeout=30) == Outcome.ACCEPTED
        (row,) = nodes.connections(1)
        assert (row["via"], row["space"], row["senders"]) == ("node-0", SPACE, 1)
        assert row["host"].startswith("127.0.0.1:")
        delivery = connection.receiver("orders").receive(30)
        assert delivery is not None
        assert delivery.message.body == "to the home"
        delivery.accept()
    with blocking.connect(nodes.nodes[1].url, hostname="there.default", timeout=30) as connection:
        assert connection.receiver("orders").drain(30) == 0


def test_mqtt_with_a_session_that_outlives_its_connection(nodes: Nodes) -> None:
    async def story() -> None:
        front = nodes.nodes[0].port
        name: dict[str, Any] = {"user_name": "anyone@there.default"}
        async with MqttPeer(front, "meter", session_expiry_s=300, **name) as peer:
            assert await peer.subscribed("news", qos=2) == [2]
        async with MqttPeer(nodes.nodes[1].port, "other", Version.V3_1_1, **name) as peer:
            for number in range(20):
                assert await peer.answer("news", b"%d" % number, 1) == 0
        async with MqttPeer(front, "meter", session_expiry_s=300, is_clean=False, **name) as peer:
            assert peer.connack is not None
            assert peer.connack.said.is_session_present
            assert [(await peer.message()).payload for _ in range(20)] == [b"%d" % number for number in range(20)]
            (row,) = [row for row in nodes.connections(1) if row["container"] == "meter"]
            assert (row["via"], row["protocol"], row["space"]) == ("node-0", "mqtt", SPACE)

    asyncio.run(story())


def test_stomp(nodes: Nodes) -> None:
    async def story() -> None:
        async with StompPeer(nodes.nodes[0].port, host="there.default", client_id="me") as peer:
            peer.send("orders", b"one", receipt="1")
            await peer.receipt("1")
            await peer.subscribe("orders", ack="client-individual")
            assert (await peer.next("MESSAGE")).body == b"one"
            (row,) = [row for row in nodes.connections(1) if row["container"] == "me"]
            assert (row["via"], row["protocol"]) == ("node-0", "stomp")

    asyncio.run(story())


def test_a_client_that_waits_for_nothing_has_its_bytes_passed_on(nodes: Nodes) -> None:
    async def story() -> None:
        """Everything in one write, a message of the client's behind its login."""
        head = encode_frame("CONNECT", [("accept-version", "1.2"), ("host", "there.default")], b"", StompVersion.V1_2)
        large = b"x" * 300_000
        sent = encode_frame(
            "SEND",
            [("destination", "large"), ("receipt", "7"), ("content-length", str(len(large)))],
            large,
            StompVersion.V1_2,
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes.nodes[0].port)
        writer.write(head + sent)
        heard = await reader.readuntil(b"receipt-id:7\n\n\0")
        assert heard.startswith(b"CONNECTED\n")
        writer.close()

    asyncio.run(story())


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    return encode_frame(command, named(headers), body, StompVersion.V1_2)


async def come(port: int, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client of STOMP, once it is connected.

    Raises:
        EOFError: it was refused.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame("CONNECT", accept_version="1.2", host=host))
    answer = await reader.readuntil(b"\0")
    if not answer.startswith(b"CONNECTED"):
        writer.close()
        raise EOFError(answer)
    return reader, writer


async def has_come_again(port: int, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await come(port, host)
        except (EOFError, ConnectionError):
            await asyncio.sleep(0.01)


def test_a_home_that_stands_still_stops_nobody_elsewhere_and_loses_nothing(nodes: Nodes) -> None:
    """Senders of a home that is stopped are held back, newcomers are told to come again, and then it goes on."""
    front, home = nodes.nodes
    number, count, size = 20, 100, 50_000

    async def send(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> int:
        for each in range(count):
            length = str(size)
            writer.write(frame("SEND", bytes(size), destination="large", receipt=str(each), content_length=length))
            await writer.drain()
        answered = 0
        while answered < count:
            answered += (await reader.readuntil(b"\0")).startswith(b"RECEIPT") or 0
        return answered

    async def story() -> None:
        senders = [await come(front.port, "there.default") for _ in range(number)]
        before = front.memory_bytes
        os.kill(home.pid, signal.SIGSTOP)
        try:
            sending = [asyncio.create_task(send(writer, reader)) for reader, writer in senders]
            with pytest.raises(EOFError, match=r"connection.{1,4}forced"):
                await come(front.port, "there.default")
            reader, writer = await come(front.port, "here.default")
            writer.write(frame("SEND", b"x", destination="orders", receipt="1"))
            assert (await reader.readuntil(b"\0")).startswith(b"RECEIPT")
            writer.close()
            assert not any(each.done() for each in sending)
            # Of what each has to say, one read.
            assert front.memory_bytes - before < number * (1 << 20)
        finally:
            os.kill(home.pid, signal.SIGCONT)
        assert await asyncio.gather(*sending) == [count] * number
        for _, writer in senders:
            writer.close()

    asyncio.run(story())


@pytest.mark.chance
def test_all_connections_of_a_home_that_is_killed_come_again(nodes: Nodes) -> None:
    front, home = nodes.nodes
    number = 1_000 if is_long() else 200

    async def story() -> None:
        theirs = [await come(front.port, "there.default") for _ in range(number)]
        ours = await come(front.port, "here.default")
        assert nodes.statistics(1)["connections"] >= number
        home.kill()
        ends = await asyncio.gather(*(reader.read() for reader, _ in theirs), return_exceptions=True)
        assert not any(ends)
        for _, writer in theirs:
            writer.close()
        ours[1].write(frame("SEND", b"x", destination="orders", receipt="1"))
        assert (await ours[0].readuntil(b"\0")).startswith(b"RECEIPT")
        coming = [asyncio.create_task(has_come_again(front.port, "there.default")) for _ in range(number)]
        await asyncio.to_thread(home.start)
        theirs = await asyncio.gather(*coming)
        for _, writer in [*theirs, ours]:
            writer.close()

    asyncio.run(story())
    assert "Traceback" not in front.log
