"""Direct addresses: what it costs to take a message from one connection and give it to another."""

from __future__ import annotations

from benchmarks.cases import Case

__all__ = ["CASES"]

CASES = (
    Case("1:1, 100 B, unsettled", "anycast", target=3.0),
    Case("1:1, 100 B, presettled, at most 200 on their way", "anycast", settled=True, outstanding=200, target=2.5),
    Case("1:1, 1 KiB, unsettled", "anycast", size=1024, target=4.5),
    Case("1:1, 64 KiB, unsettled", "anycast", size=65_536, target=60.0),
    Case("10:10, 100 B, unsettled", "anycast", pairs=10, target=3.5),
    Case("multicast 1:10, 100 B, unsettled, per copy", "multicast", fanout=10, target=2.0),
    Case("1:1, 100 B, unsettled, 1,000/s", "anycast", rate=1_000, target=100.0, target_p99_ms=1.7),
)
