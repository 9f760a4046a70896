"""HTTP: what a POST to a queue costs a node, from clients that keep their connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.accounting import cpu_seconds
from benchmarks.measurement import Line, Measurement, Setting
from benchmarks.node import SPACE, Node

__all__ = ["MEASUREMENTS"]

CONNECTIONS = 50
TARGET_US = 60.0
ANSWERED = b"HTTP/1.1 202 "


def posts(setting: Setting) -> Iterator[Line]:
    """POST of 100 B to a queue over 50 connections, each of which waits for its answer."""
    with setting.node() as node:
        node.declare("queue.0", addressType="queue", maxBytes=4 << 30)
        for is_durable in (True, False):
            spent, rates = [], []
            for _ in range(setting.runs):
                setting.patience.wait()
                count, used, took = asyncio.run(_post(node, setting.seconds, is_durable=is_durable))
                spent.append(used / count * 1e6)
                rates.append(count / took)
            name = "durable" if is_durable else "not durable"
            yield Line(f"{name}, 100 B, of the node's process", median(spent), "us", TARGET_US)
            yield Line("requests a second", median(rates), "")


async def _post(node: Node, seconds: float, *, is_durable: bool) -> tuple[int, float, float]:
    """How many requests were answered, the node's CPU time, and how long it took."""
    namespace, _, space = SPACE.partition("/")
    request = (
        f"POST /v1/spaces/{space}.{namespace}/addresses/queue.0/messages HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: text/plain\r\nX-Durable: {str(is_durable).lower()}\r\nContent-Length: 100\r\n\r\n"
    ).encode() + bytes(100)
    pids = node.processes["node"]
    end = time.perf_counter() + seconds
    before, began = cpu_seconds(pids), time.perf_counter()
    counts = await asyncio.gather(*(_ask(node.port, request, end) for _ in range(CONNECTIONS)))
    return sum(counts), cpu_seconds(pids) - before, time.perf_counter() - began


async def _ask(port: int, request: bytes, end: float) -> int:
    """Send a request after the other; how many were answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    try:
        while time.perf_counter() < end:
            writer.write(request)
            answer = await reader.readuntil(b"}\n")
            if not answer.startswith(ANSWERED):
                raise RuntimeError(answer.decode(errors="replace"))
            count += 1
    finally:
        writer.close()
    return count


MEASUREMENTS = (Measurement("HTTP: a request for each message", posts),)
