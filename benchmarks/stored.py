"""Stored addresses: what it costs to own a message, in the node and in its journal together."""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.depth import cost_by_depth
from benchmarks.latency import accepted_sends
from benchmarks.measurement import Measurement
from benchmarks.streams import read_frames, read_messages
from benchmarks.volume import enqueue_and_drain, recover

__all__ = ["CASES", "MEASUREMENTS"]

OUTSTANDING = 1_000
"""So many on their way keep every server busy and drive none into overload."""

DURABLE_US = 8.0
MEMORY_US = 5.0
COPY_US = 3.0
APPEND_US = 6.0


def _queues(durable: bool) -> tuple[Case, ...]:
    name, target = ("durable", DURABLE_US) if durable else ("not durable", MEMORY_US)
    return tuple(
        Case(
            f"queue {pairs}:{pairs}, {shown}, {name}",
            "queue",
            size=size,
            pairs=pairs,
            durable=durable,
            outstanding=OUTSTANDING,
            target=target,
        )
        for pairs in (1, 8)
        for size, shown in ((100, "100 B"), (1024, "1 KiB"))
    )


CASES = (
    *_queues(durable=True),
    *_queues(durable=False),
    Case("queue 1:1, 100 B, durable, 1,000/s", "queue", durable=True, rate=1_000),
    Case("topic 1:10, 100 B, per copy", "topic", fanout=10, outstanding=OUTSTANDING, target=COPY_US),
    Case(
        "topic 1:10 durable subscriptions, 100 B, durable, per copy",
        "topic",
        fanout=10,
        subscriptions=True,
        durable=True,
        outstanding=OUTSTANDING,
    ),
    Case(
        "stream, 100 B, durable, appended by ten",
        "stream",
        durable=True,
        stores=True,
        senders=10,
        target=APPEND_US,
        target_of="node",
    ),
)

MEASUREMENTS = (
    Measurement("queue, cost of a message by depth", cost_by_depth),
    Measurement("queue, p99 of an accepted durable send", accepted_sends),
    Measurement("queue, 10 million enqueued and drained", enqueue_and_drain),
    Measurement("queue, recovery of 3 million", recover),
    Measurement("stream, read by receivers", read_messages),
    Measurement("stream, read in bulk frames", read_frames),
)
