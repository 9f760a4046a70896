"""Clients that reach a node which is not the home of their space: their connections are handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.client import Message, Outcome, blocking
from enmasse.wire.mqtt.packets import Version
from enmasse.wire.stomp.frames import Version as StompVersion
from enmasse.wire.stomp.frames import encode_frame
from tests.support.mqtt_peer import MqttPeer
from tests.support.nodes import Nodes, two_nodes
from tests.support.stomp_peer import StompPeer

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
