"""Durations of something repeated: counts by size, cheap enough to keep always."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

COMMIT_BOUNDS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""From a commit to memory alone, over what disks of all kinds take, to one that hardly answers."""

LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""A loop's clock counts milliseconds; from 100 ms on people notice, from 10 s on clients give up."""


class Durations:
    """Counts durations by upper bound.

    Args:
        bounds_s: the upper bounds in seconds, ascending; what is longer is counted as well.
    """

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        """By bound, each without those before; the last is what is longer than all bounds."""
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def summary(self) -> dict[str, Any]:
        """The same as a map for management: ``bounds``, ``counts``, ``sum``."""
        return {"bounds": list(self.bounds_s), "counts": list(self.counts), "sum": self.sum_s}
