"""Stored addresses: what it costs to own a message, in the node and in its journal together."""

from __future__ import annotations

from benchmarks.cases import Case

__all__ = ["CASES"]

OUTSTANDING = 1_000
"""So many on their way keep every server busy and drive none into overload."""

CASES = (
    Case("queue 1:1, 100 B, not durable", "queue", outstanding=OUTSTANDING),
    Case("queue 1:1, 100 B, durable", "queue", durable=True, outstanding=OUTSTANDING),
    Case("queue 10:10, 100 B, durable", "queue", durable=True, pairs=10, outstanding=OUTSTANDING),
    Case("queue 1:1, 100 B, durable, 1,000/s", "queue", durable=True, rate=1_000),
    Case("topic 1:10, 100 B, per copy", "topic", fanout=10, outstanding=OUTSTANDING),
    Case("stream, 100 B, appended", "stream", durable=True, stores=True),
)
