"""A queue that holds far more than memory, and the start of a node that stores a lot."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.accounting import AnonymousPeak
from benchmarks.measurement import Line, Setting, send_traffic
from enmasse.client.blocking import connect

__all__ = ["enqueue_and_drain", "recover"]

MESSAGES = 10_000_000
MEMORY_MB = 300
STORED = 3_000_000
RECOVERY_S = 2
RECOVERIES = 3
FIRST_S = 60
"""How long to wait for the first message at most."""


def enqueue_and_drain(setting: Setting) -> Iterator[Line]:
    """Durable messages of 100 bytes: all in, then all out, while the memory of node and journal is watched."""
    count = setting.count(MESSAGES)
    with setting.node() as node:
        node.declare("queue.0", addressType="queue")

        def everybody() -> list[int]:
            return [pid for pids in node.processes.values() for pid in pids]

        for mode, name in (("send", "enqueued"), ("recv", "drained")):
            with AnonymousPeak(everybody) as peak:
                arguments = ("--mode", mode, "--durable", "--count", str(count))
                traffic = send_traffic(node, "queue.0", *arguments)
            result = traffic.result
            moved = result["total_received"] if mode == "recv" else result["accepted"]
            yield Line(f"{name}, 100 B, durable", moved, "messages", target=count, at_least=True)
            yield Line("", moved / result["seconds"], "messages/s")
            yield Line("node", traffic.node_us, "us/message")
            yield Line("journal", traffic.journal_us, "us/message")
            yield Line("most anonymous memory of all processes", peak.bytes / 1e6, "MB", target=MEMORY_MB)
            if mode == "recv":
                yield Line("spoilt or out of order", result["bad"] + result["reordered"], "messages", target=0)
            yield Line("stored afterwards", node.stored("queue.0"), "messages")


def recover(setting: Setting) -> Iterator[Line]:
    """From the start of the process until it listens, and until a receiver has a message, after both were killed."""
    with setting.node() as node:
        node.declare("queue.0", addressType="queue")
        count = setting.count(STORED)
        send_traffic(node, "queue.0", "--mode", "send", "--durable", "--count", str(count))
        for number in range(RECOVERIES):
            node.kill()
            setting.patience.wait()
            took = node.start()
            began = time.perf_counter()
            with connect(node.url) as connection:
                first = connection.receiver("queue.0", credit=1).receive(timeout=FIRST_S)
                came = took + time.perf_counter() - began
                assert first is not None, f"no message came within {FIRST_S} s"
                first.release()
            yield Line(f"start {number + 1} with {node.stored('queue.0'):,} messages: it listens", took, "s")
            yield Line(f"start {number + 1}: a receiver has the first message", came, "s", target=RECOVERY_S)
