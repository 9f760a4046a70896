"""Latencies counted in buckets whose width grows with the value.

A value falls into a bucket that is no wider than 1/128 of it, so any percentile is right within 0.8 %,
and a histogram of nanoseconds up to an hour takes 37 KB however many values it counts. It is our own
because the HdrHistogram of the package index wants build tools (pbr, setuptools) where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BITS = 7
"""Each power of two has 128 buckets: two significant digits, and a bit."""

LIMIT = (1 << 42) - 1
"""The largest value that is kept apart from larger ones: 73 minutes in nanoseconds."""

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def _bucket(value: int) -> int:
    shift = value.bit_length() - BITS - 1
    return value if shift <= 0 else (shift << BITS) + (value >> shift)


def _greatest(bucket: int) -> int:
    """The greatest value that falls into a bucket."""
    shift = (bucket >> BITS) - 1
    return bucket if shift <= 0 else ((bucket - (shift << BITS) + 1) << shift) - 1


class Histogram:
    """Counts of latencies by bucket.

    Attributes:
        count: values counted.
        total: their sum.
        least: the smallest; 0 without any.
        most: the greatest.
    """

    __slots__ = ("_counts", "count", "least", "most", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_bucket(LIMIT) + 1)
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0

    def record(self, value: int) -> None:
        """Count a value; a negative one counts as 0."""
        if value < 0:
            value = 0
        if not self.count or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += 1
        self.total += value
        self._counts[_bucket(min(LIMIT, value))] += 1

    def percentile(self, share: float) -> int:
        """The value that so many per cent of all values do not exceed; 0 without any."""
        wanted = max(1, -int(-self.count * share // 100))
        seen = 0
        for bucket, number in enumerate(self._counts):
            seen += number
            if seen >= wanted:
                return min(_greatest(bucket), self.most)
        return self.most

    @property
    def mean(self) -> float:
        """The mean; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def merge(self, other: Histogram) -> None:
        """Count everything that another has counted, too."""
        if not other.count:
            return
        self.least = min(self.least, other.least) if self.count else other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        for bucket, number in enumerate(other._counts):
            if number:
                self._counts[bucket] += number

    def dump(self) -> list[list[int]]:
        """Return its contents for ``load``: count, total, least and most, then buckets that are not empty."""
        filled = [[bucket, number] for bucket, number in enumerate(self._counts) if number]
        return [[self.count, self.total, self.least, self.most], *filled]

    @classmethod
    def load(cls, dumped: Sequence[Sequence[int]]) -> Histogram:
        """The histogram that was dumped."""
        made = cls()
        (made.count, made.total, made.least, made.most), *filled = dumped
        for bucket, number in filled:
            made._counts[bucket] = number
        return made

    @classmethod
    def sum(cls, all_of_them: Iterable[Histogram]) -> Histogram:
        """One that has counted everything."""
        made = cls()
        for one in all_of_them:
            made.merge(one)
        return made

    def figures(self) -> dict[str, float]:
        """Percentiles, mean and extremes in microseconds, by name; none without values."""
        if not self.count:
            return {}
        found = {f"p{share:g}": self.percentile(share) / 1e3 for share in PERCENTILES}
        return {"min": self.least / 1e3, "mean": self.mean / 1e3, **found, "max": self.most / 1e3}
