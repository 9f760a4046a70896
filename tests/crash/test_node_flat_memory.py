"""A node whose collector of cycles never runs keeps its memory flat while MQTT sessions come, expire and are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enmasse.client import blocking
from tests.support.chance import kills
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = [pytest.mark.slow, pytest.mark.chance]

SPACE = "default/flat"

NO_COLLECTOR = "import gc; gc.disable(); gc.set_threshold = lambda *_: None"

SESSIONS = 150
"""Sessions of a round; at once there are ten connections."""

WARM_UP = 2
"""Rounds after which what is made once, and grows by doubling, is there."""

MAX_BYTES = 10 << 10
"""Of memory that a session may leave behind; in cycles it would leave 16 KiB."""


async def come_and_go(port: int, first: int) -> None:
    async def one(number: int) -> None:
        async with MqttPeer(port, f"device-{number}", is_clean=True, session_expiry_s=1) as peer:
            assert await peer.subscribed(f"news/{number}", qos=1) == [1]
            peer.publish(f"news/{number}", bytes(100), 1)
            for _ in range(2):
                await peer.next("publish", "puback")

    for at in range(first, first + SESSIONS, 10):
        await asyncio.gather(*(one(number) for number in range(at, at + 10)))


def test_sessions_that_expire_leave_nothing_for_a_collector(tmp_path: Path) -> None:
    rounds = kills(1)
    with (
        NodeProcess(tmp_path / "node", before=NO_COLLECTOR) as process,
        blocking.connect(process.admin_url, patience=20) as connection,
    ):
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"authentication": "none"})
        attributes = {"space": SPACE, "address": "news", "addressType": "topic"}
        management.create("io.enmasse.address", f"{SPACE}.news", attributes)
        before = 0
        for number in range(WARM_UP + rounds):
            if number == WARM_UP:
                before = process.memory_bytes
            asyncio.run(come_and_go(process.port, number * SESSIONS))
            until(lambda: not management.query("io.enmasse.session"))
        grown = (process.memory_bytes - before) // (rounds * SESSIONS)
        assert grown < MAX_BYTES, f"{grown} bytes a session"
