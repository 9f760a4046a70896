"""What it costs to store a message and to take one in a queue that is empty, deep and very deep."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.accounting import anonymous_bytes
from benchmarks.measurement import Line, Setting, send_traffic

__all__ = ["cost_by_depth"]

DEPTHS = (0, 100_000, 1_000_000)
MOVED = 20_000
"""Messages that are stored and then taken in each run: few beside the depths."""
RUNS = 5
TOLERANCE = 1.25
"""What a message may cost in a deep queue, in terms of an empty one's: less than this is noise here."""


def cost_by_depth(setting: Setting) -> Iterator[Line]:
    """Durable messages of 100 bytes go in at one end and out at the other, in turns."""
    with setting.node() as node:
        node.declare("queue.0", addressType="queue")
        empty = 0.0
        for depth in map(setting.count, DEPTHS):
            missing = depth - node.stored("queue.0") if depth > 1 else 0
            if missing > 0:
                send_traffic(node, "queue.0", "--durable", "--mode", "send", "--count", str(missing))
            stored: list[float] = []
            taken: list[float] = []
            for _ in range(RUNS):
                setting.patience.wait()
                for mode, found in (("send", stored), ("recv", taken)):
                    arguments = ("--durable", "--mode", mode, "--count", str(MOVED))
                    found.append(send_traffic(node, "queue.0", *arguments).us)
            cost = median(stored) + median(taken)
            empty = empty or cost
            tolerated = 0 if cost == empty else empty * TOLERANCE
            yield Line(f"{node.stored('queue.0'):,} messages deep", cost, "us/message", target=tolerated)
            yield Line("to store one", median(stored), "us/message")
            yield Line("to take one", median(taken), "us/message")
            everybody = [pid for pids in node.processes.values() for pid in pids]
            yield Line("anonymous memory", anonymous_bytes(everybody) / 1e6, "MB")
