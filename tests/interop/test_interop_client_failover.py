"""Our client under load while its nodes are killed, one after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from enmasse.client import Connection, Message, Outcome, Sender, blocking, connect
from enmasse.net.loop import run
from tests.support.node_process import NodeProcess
from tests.support.polling import until_async

pytestmark = pytest.mark.slow

SPACE = "default/failover"
ROUNDS = 4
"""Kills, of either node in turn."""

CALM_S = 0.5
"""How long the load runs before each of them."""


def declare(node: NodeProcess) -> None:
    with blocking.connect(node.admin_url, timeout=30, patience=30) as connection:
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
        for address in ("work", "kept"):
            asked = {"space": SPACE, "address": address, "addressType": "queue"}
            management.create("io.enmasse.address", f"default/failover.{address}", asked)


class Load:
    """Sends numbered messages as fast as they go, and takes some of them."""

    def __init__(self) -> None:
        self.is_stopping = False
        self.futures: dict[str, dict[int, asyncio.Future[Outcome]]] = {"work": {}, "kept": {}}
        self.worked: Counter[int] = Counter()

    async def send(self, sender: Sender, address: str) -> None:
        number = 0
        while not self.is_stopping:
            await sender.wait_for_credit()
            for _ in range(min(50, sender.credit)):
                self.futures[address][number] = sender.send_nowait(Message(number, durable=True))
                number += 1
            await asyncio.sleep(0.002)

    async def work(self, connection: Connection) -> None:
        async with connection.receiver("work", credit=50, timeout=60) as receiver:
            async for delivery in receiver:
                self.worked[delivery.message.body] += 1
                delivery.accept()

    async def go_on(self) -> None:
        """Return when more has been sent."""
        goal = len(self.futures["kept"]) + 100
        await until_async(lambda: len(self.futures["kept"]) >= goal)

    def accepted(self, address: str) -> set[int]:
        """Numbers that were said to be safe; every future has an outcome."""
        outcomes = {number: future.result() for number, future in self.futures[address].items()}
        assert {outcome.name for outcome in outcomes.values()} == {"accepted"}
        return set(outcomes)

    def resent(self, address: str) -> set[int]:
        return {number for number, future in self.futures[address].items() if future.result().is_resent}


async def read_all(node: NodeProcess) -> list[tuple[int, bool]]:
    """What a node keeps: numbers, and whether each says that it may be a duplicate."""
    found: list[tuple[int, bool]] = []
    async with connect(node.url, patience=30) as connection, connection.receiver("kept", timeout=60) as receiver:
        while True:
            await receiver.drain(timeout=60)
            if not receiver.waiting:
                return found
            while (delivery := receiver.receive_nowait()) is not None:
                found.append((delivery.message.body, delivery.may_be_repeated))
                delivery.accept()
            await asyncio.sleep(0)


async def story(nodes: list[NodeProcess]) -> None:
    load = Load()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect([node.url for node in nodes], patience=30))
        senders = {address: await connection.sender(address) for address in ("work", "kept")}
        tasks = [asyncio.ensure_future(load.send(sender, address)) for address, sender in senders.items()]
        for node in nodes:
            workers = await stack.enter_async_context(connect(node.url, patience=30))
            tasks.append(asyncio.ensure_future(load.work(workers)))
        for turn in range(ROUNDS):
            await asyncio.sleep(CALM_S)
            await load.go_on()
            victim = nodes[turn % len(nodes)]
            await asyncio.to_thread(victim.kill)
            await until_async(lambda: connection.is_connected)
            await asyncio.to_thread(victim.start)
        load.is_stopping = True
        async with asyncio.timeout(60):
            await asyncio.gather(*(sender.flush() for sender in senders.values()))
        wanted = load.accepted("work")
        await until_async(lambda: wanted <= set(load.worked))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        kept = [found for node in nodes for found in await read_all(node)]
    assert load.accepted("kept") <= {number for number, _ in kept}
    copies = Counter(number for number, _ in kept)
    twice = {number for number, count in copies.items() if count > 1}
    assert twice <= load.resent("kept")
    assert twice <= {number for number, is_flagged in kept if is_flagged}
    assert load.resent("kept") | load.resent("work"), "no kill met a message under way"


def test_nothing_accepted_is_lost_and_every_send_is_answered_while_nodes_are_killed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "a") as one, NodeProcess(tmp_path / "b") as two:
        for node in (one, two):
            declare(node)
        run(story([one, two]))
        for node in (one, two):
            assert "Traceback" not in node.log, node.log
