"""A hundred thousand addresses in one node: creating them, what each takes while it is idle, and a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.accounting import cpu_seconds
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import SPACE, Node
from enmasse.client import Message, connect
from enmasse.client.management import Management

__all__ = ["MEASUREMENTS"]

ADDRESSES = 100_000
GROUP = 1_000
"""As many as the first and the last that are compared."""

AT_ONCE = 50
"""Requests under way, as control has them when it declares many."""

KINDS = ("queue", "anycast", "queue", "topic")

MAX_RATIO = 1.2
MAX_BYTES_EACH = 2_048
MAX_RESTART_S = 2.0

TIMEOUT_S = 60.0


def many(setting: Setting) -> Iterator[Line]:
    """Create, look at memory, restart."""
    count = max(2 * GROUP, setting.count(ADDRESSES))
    with setting.node() as node:
        before = asyncio.run(_memory(node))
        groups, spent = asyncio.run(_create(node, count))
        each = (asyncio.run(_memory(node)) - before) / count
        yield Line("addresses", count, "")
        yield Line(f"creating the first {GROUP:,}", groups[0], "s")
        yield Line(f"creating the last {GROUP:,}", groups[-1], "s")
        # Single groups meet whatever else the machine does; tenths of the whole do so less.
        tenth = max(1, len(groups) // 10)
        yield Line("time of the last tenth to that of the first", sum(groups[-tenth:]) / sum(groups[:tenth]), "")
        # A busy machine makes everything late, but not dear.
        ratio = sum(spent[-tenth:]) / sum(spent[:tenth])
        yield Line("CPU of the last tenth to that of the first", ratio, "", MAX_RATIO)
        yield Line("memory of an idle address", each, "bytes", MAX_BYTES_EACH)
        yield Line("paging through all of them", asyncio.run(_page(node, count)), "s")
        node.kill()
        starts = [node.start()]
        for _ in range(setting.runs - 1):
            node.kill()
            starts.append(node.start())
        yield Line("restart until it listens", min(starts), "s", MAX_RESTART_S)
        yield Line("first message through the last address", asyncio.run(_use(node, count - 1)), "s")
        yield Line("memory of an idle address after it", (asyncio.run(_memory(node)) - before) / count, "bytes",
                   MAX_BYTES_EACH)  # fmt: skip


def _attributes(number: int) -> dict[str, Any]:
    """An address as control declares it."""
    return {
        "space": SPACE,
        "address": f"site/{number % 1000}/device-{number}",
        "addressType": KINDS[number % len(KINDS)],
        "uid": f"8b7f2d0e-57a4-4d4a-9c7e-{number:012d}",
        "generation": 1,
        "maxBytes": 10_000_000,
    }


async def _create(node: Node, count: int) -> tuple[list[float], list[float]]:
    """Declare addresses; the seconds that each group of them took, and the CPU seconds of node and journal."""
    times, spent = [], []
    pids = [pid for found in node.processes.values() for pid in found]
    async with connect(node.admin_url) as connection:
        management = Management(connection, timeout=TIMEOUT_S)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with gate:
                await management.create("io.enmasse.address", f"default/bench.device-{number}", _attributes(number))

        for first in range(0, count, GROUP):
            began, used = time.perf_counter(), cpu_seconds(pids)
            await asyncio.gather(*(one(number) for number in range(first, min(first + GROUP, count))))
            times.append(time.perf_counter() - began)
            spent.append(cpu_seconds(pids) - used)
    return times, spent


async def _page(node: Node, count: int) -> float:
    """Ask for all addresses, page by page."""
    began = time.perf_counter()
    found = 0
    async with connect(node.admin_url) as connection:
        management = Management(connection, timeout=TIMEOUT_S)
        while found < count:
            found += len(await management.query("io.enmasse.address", ("name", "digest"), offset=found, count=500))
    return time.perf_counter() - began


async def _memory(node: Node) -> int:
    async with connect(node.admin_url) as connection:
        (statistics,) = await Management(connection, timeout=TIMEOUT_S).query("io.enmasse.statistics")
        return int(statistics["memoryBytes"])


async def _use(node: Node, number: int) -> float:
    """Send a message to an address and receive it."""
    began = time.perf_counter()
    address = _attributes(number)["address"]
    async with (
        connect(node.url) as connection,
        connection.receiver(address) as receiver,
        connection.sender(address) as sender,
    ):
        sending = asyncio.ensure_future(sender.send(Message("first"), timeout=TIMEOUT_S))
        delivery = await receiver.receive(timeout=TIMEOUT_S)
        assert delivery is not None
        await delivery.accept()
        await sending
    return time.perf_counter() - began


MEASUREMENTS = (Measurement("A hundred thousand addresses in one node", many),)
