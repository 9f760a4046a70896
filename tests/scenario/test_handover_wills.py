"""Wills of clients whose connections were handed over, when the node ends that they had reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.wire.mqtt.packets import PublishProperties, Version, Will
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.nodes import Nodes, two_nodes

pytestmark = pytest.mark.slow

SPACE = "default/there"
USER: dict[str, Any] = {"user_name": "anyone@there.default"}


def will(text: str) -> Will:
    return Will("gone", text.encode(), 1, False, 0, PublishProperties())


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with two_nodes(tmp_path) as found:
        found.space(SPACE, 1, willGrace=3_000)
        found.address(SPACE, 1, "gone", "topic")
        yield found


@pytest.mark.parametrize("end", [NodeProcess.kill, NodeProcess.stop], ids=["killed", "stopped"])
def test_clients_have_time_to_come_back_whose_front_has_ended(
    nodes: Nodes, end: Callable[[NodeProcess], object]
) -> None:
    front, home = nodes.nodes

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with (
            MqttPeer(home.port, "watcher", **USER) as watcher,
            MqttPeer(front.port, "lost", **USER, will=will("lost")) as lost,
            MqttPeer(front.port, "clean", Version.V3_1_1, **USER, will=will("clean")),
            MqttPeer(front.port, "lasting", **USER, session_expiry_s=300, will=will("lasting")),
            MqttPeer(front.port, "away", **USER, will=will("away")),
        ):
            assert await watcher.subscribed("gone") == [0]
            lost._writer.transport.abort()
            assert (await watcher.message()).payload == b"lost", "its own doing: at once"
            began = loop.time()
            await asyncio.to_thread(end, front)
            async with (
                MqttPeer(home.port, "clean", Version.V3_1_1, **USER),
                MqttPeer(home.port, "lasting", **USER, session_expiry_s=300, is_clean=False) as lasting,
            ):
                assert lasting.connack is not None
                assert lasting.connack.said.is_session_present
                assert (await watcher.message()).payload == b"away"
                assert loop.time() - began >= 2.9
                # Nothing of those who came back is behind it.
                assert await lasting.answer("gone", b"last") == 0
                assert (await watcher.message()).payload == b"last"

    asyncio.run(story())
