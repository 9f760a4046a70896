"""What a message costs in a queue that is empty, deep and very deep; and what a node's memory is then."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.accounting import anonymous_bytes
from benchmarks.measurement import Line, Setting, send_traffic

__all__ = ["cost_by_depth"]

DEPTHS = (0, 100_000, 1_000_000)
TOLERANCE = 1.25
"""What a message may cost in a deep queue, in terms of an empty one's: less than this is noise here."""
OUTSTANDING = "1000"
WARMUP_S = 0.5


def cost_by_depth(setting: Setting) -> Iterator[Line]:
    """Senders and receivers at full load, with so many messages in between."""
    with setting.node() as node:
        node.declare("queue.0", addressType="queue")
        empty = 0.0
        for depth in DEPTHS:
            missing = setting.count(depth) - node.stored("queue.0") if depth else 0
            if missing > 0:
                send_traffic(node, "queue.0", "--durable", "--mode", "send", "--count", str(missing))
            found = []
            for _ in range(setting.runs):
                setting.patience.wait()
                arguments = ("--durable", "--max-outstanding", OUTSTANDING)
                found.append(send_traffic(node, "queue.0", *arguments, seconds=setting.seconds, warmup=WARMUP_S))
            cost = median(traffic.us for traffic in found)
            empty = empty or cost
            stored = node.stored("queue.0")
            name = f"{stored:,} messages deep"
            yield Line(name, cost, "us/message", target=0 if not depth else empty * TOLERANCE)
            yield Line("", median(traffic.result["received_per_s"] for traffic in found), "messages/s")
            everybody = [pid for pids in node.processes.values() for pid in pids]
            yield Line("", anonymous_bytes(everybody) / 1e6, "MB of anonymous memory")
