"""Retained values of a node that is killed, or with it its journal: what was accepted is there."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from enmasse.client import Message, Outcome, blocking, connect
from enmasse.errors import EnmasseError
from tests.support.chance import SEED, kills
from tests.support.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.chance]

ROUNDS = kills(4)
NAMES = 50
WAIT_S = 60.0


class Values:
    """What the sender knows of the value of each name: numbers, of which each tenth clears."""

    def __init__(self) -> None:
        self.sent = [0] * NAMES
        self.accepted = [0] * NAMES

    def check(self, found: dict[str, int]) -> None:
        for index in range(NAMES):
            number = found.get(f"lamps/{index}", 0)
            possible = range(self.accepted[index], self.sent[index] + 1)
            if number:
                assert number in possible, (index, number, possible)
            else:
                assert any(n % 10 == 0 for n in possible), (index, possible)


async def set_values(url: str, values: Values, chance: random.Random, enough: asyncio.Event) -> None:
    """Send messages that are retained until the node is gone."""

    async def send(index: int) -> None:
        values.sent[index] += 1
        number = values.sent[index]
        body = b"" if number % 10 == 0 else b"%d" % number
        message = Message(body, durable=True, annotations={"x-opt-retain": True})
        if await senders[index].send(message, timeout=WAIT_S) is Outcome.ACCEPTED:
            values.accepted[index] = number
        if sum(values.accepted) > before + 200:
            enough.set()

    async def send_all(index: int) -> None:
        while True:
            await send(index)
            await asyncio.sleep(chance.random() / 1000)

    before = sum(values.accepted)
    async with connect(url, reconnect=False, timeout=WAIT_S) as connection:
        senders = [await connection.sender(f"lamps/{index}") for index in range(NAMES)]
        async with asyncio.TaskGroup() as group:
            for index in range(NAMES):
                group.create_task(send_all(index))


async def load_and_kill(node: NodeProcess, values: Values, chance: random.Random, victims: list[int]) -> None:
    """Have values set, and kill processes in the midst of it."""
    enough = asyncio.Event()
    task = asyncio.create_task(set_values(node.url, values, chance, enough))
    waiting = asyncio.create_task(enough.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    waiting.cancel()
    with pytest.raises((EnmasseError, ExceptionGroup)):
        await task


def read_values(url: str) -> dict[str, int]:
    with (
        blocking.connect(url, timeout=WAIT_S) as connection,
        connection.receiver("lamps/#", credit=0, filters={"enmasse:retained": "always"}) as receiver,
    ):
        receiver.grant(2 * NAMES)
        receiver.drain(timeout=WAIT_S)
        found = {}
        while (delivery := receiver.receive_nowait()) is not None:
            assert delivery.message.annotations["x-opt-retained"] is True
            assert delivery.message.topic_name not in found
            found[str(delivery.message.topic_name)] = int(delivery.message.body)
            delivery.accept()
    return found


def test_no_accepted_value_is_lost_and_no_former_one_comes_back(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    values = Values()
    with NodeProcess(tmp_path / "node") as node:
        with blocking.connect(node.admin_url, timeout=WAIT_S) as admin:
            management = admin.management()
            management.create("io.enmasse.space", "default/shop", {})
            lamps = {"space": "default/shop", "address": "lamps", "addressType": "topic"}
            management.create("io.enmasse.address", "default/shop.lamps", lamps)
        for number in range(ROUNDS):
            with blocking.connect(node.admin_url, timeout=WAIT_S) as admin:
                journal = admin.management().query("io.enmasse.statistics")[0]["journalPid"]
            victims = [journal, node.pid] if number % 2 else [node.pid]
            asyncio.run(load_and_kill(node, values, chance, victims))
            node.kill()
            node.start()
            values.check(read_values(node.url))
        assert sum(values.accepted) > 200
        assert "Traceback" not in node.log, node.log
