"""Over sockets: what comes behind messages that wait is answered, and publishers are answered on a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from enmasse.wire.mqtt.packets import NEVER_EXPIRES, Connect, Reason, Version
from tests.interop.conftest import Addresses
from tests.support.mqtt_peer import MqttPeer, MqttVoice
from tests.support.node_process import NodeProcess
from tests.support.small_disk import fill_up, small_disk
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

IMPATIENT = """
import enmasse.messaging.queues.backlog
enmasse.messaging.queues.backlog.UNSTORED_S = 0.5
import enmasse.node.connections.waiting
enmasse.node.connections.waiting.PATIENCE_S = 1.5
import enmasse.node.mqtt.publishing
enmasse.node.mqtt.publishing.PATIENCE_S = 1.5
import enmasse.node.stomp.links
enmasse.node.stomp.links.PATIENCE_S = 1.5
"""
BODY = bytes(20_000)
"""So large that no free page of the journal takes it."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("small") / "disk", "24m") as place:
        yield place


@pytest.fixture(scope="module")
def node(disk: Path) -> Iterator[NodeProcess]:
    with NodeProcess(disk / "data", before=IMPATIENT) as process:
        addresses = Addresses(process)
        addresses.make_space()
        addresses.declare("queue", "orders")
        addresses.declare("queue", "full", maxBytes=1_000)
        addresses.declare("queue", "other")
        addresses.declare("topic", "news")
        addresses.close()
        yield process
        assert "Traceback" not in process.log, process.log


async def publish_by_mqtt(peer: MqttPeer, qos: int, address: str) -> None:
    """Publish what nothing is taken of, and check what is answered."""
    for _ in range(25):
        peer.publish(address, BODY, qos)
    peer.engine.put(b"\xc0\x00")
    await peer.next("pingresp")
    if peer.is_v5:
        assert [(await peer.next("puback", "pubrec")).reason for _ in range(25)] == [Reason.QUOTA_EXCEEDED] * 25
    else:
        assert await peer.ended() is None


async def send_by_stomp(peer: StompPeer, address: str) -> None:
    """Send what nothing is taken of, and check what is answered."""
    for number in range(25):
        peer.send(address, BODY, persistent="true", receipt=f"{number}")
    peer.say("BEGIN", transaction="t", receipt="begun")
    await peer.receipt("begun")
    error = await peer.next("ERROR")
    # Those that came first may still be with the disk as others are refused, which are told before them.
    assert error["receipt-id"] in map(str, range(25))
    assert error["condition"] == "amqp:resource-limit-exceeded"


def test_publishers_are_answered_on_a_full_disk_and_nothing_of_that_is_stored(node: NodeProcess, disk: Path) -> None:
    async def publish() -> None:
        async with AsyncExitStack() as stack:
            reader = await stack.enter_async_context(MqttPeer(node.port, "reader", session_expiry_s=1_000))
            assert await reader.subscribed("news", qos=1) == [1]
            publishing = []
            for address in ("orders", "news"):
                for version, qos in product((Version.V3_1_1, Version.V5), (1, 2)):
                    # What lasts is on disk: of QoS 2 the message and its identifier together.
                    lasts: dict[str, Any] = {"session_expiry_s": NEVER_EXPIRES, "is_clean": False}
                    peer = MqttPeer(node.port, f"{version}-{qos}-{address}", version, **lasts)
                    publishing.append(publish_by_mqtt(await stack.enter_async_context(peer), qos, address))
                sender = await stack.enter_async_context(StompPeer(node.port))
                publishing.append(send_by_stomp(sender, address))
            ballast = fill_up(disk)
            try:
                await asyncio.gather(*publishing)
            finally:
                ballast.unlink()
            async with MqttPeer(node.port, "after") as peer:
                for address in ("orders", "news"):
                    while await peer.answer(address, b"after"):
                        pass  # on a busy machine, once more
                assert await peer.subscribed("orders", qos=1) == [1]
                assert (await peer.message()).payload == b"after"
            while (await reader.message()).payload != b"after":
                pass  # what could not be written, and a subscriber had all the same

    asyncio.run(publish())


def test_pings_are_answered_over_a_websocket_whose_messages_wait(node: NodeProcess) -> None:
    async def talk() -> None:
        url = f"ws://127.0.0.1:{node.port}"
        async with connect(url, subprotocols=[Subprotocol("mqtt")], ping_interval=None) as web, asyncio.timeout(60):
            voice = MqttVoice(Connect(Version.V3_1_1, "web"))

            async def say_and_hear(kind: str) -> None:
                await web.send(b"".join(bytes(chunk) for chunk in voice.engine.pending_output()))
                while not any(one.kind == kind for one in voice.heard):
                    data = await web.recv()
                    assert isinstance(data, bytes)
                    voice.engine.receive(data, 0.0)

            await say_and_hear("connack")
            for _ in range(25):
                voice.publish("full", BODY, 1)
            voice.engine.put(b"\xc0\x00")
            await say_and_hear("pingresp")
            assert [one.packet_id for one in voice.heard if one.kind == "puback"] in ([], [1])
            await (await web.ping())

    asyncio.run(talk())
