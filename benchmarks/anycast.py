"""Direct addresses: what it costs to take a message from one connection and give it to another."""

from __future__ import annotations

from benchmarks.cases import Case

__all__ = ["CASES"]

CASES = (
    Case("1:1, 100 B, unsettled", "anycast", target=4.0),
    Case("1:1, 100 B, presettled, at most 200 on their way", "anycast", settled=True, outstanding=200),
    Case("1:1, 1 KiB, unsettled", "anycast", size=1024),
    Case("1:1, 64 KiB, unsettled", "anycast", size=65_536),
    Case("10:10, 100 B, unsettled", "anycast", pairs=10),
    Case("multicast 1:10, 100 B, unsettled, per copy", "multicast", fanout=10),
    Case("1:1, 100 B, unsettled, 1,000/s", "anycast", rate=1_000),
)
