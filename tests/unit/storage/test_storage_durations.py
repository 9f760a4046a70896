"""Durations counted by size."""

from __future__ import annotations

from enmasse.storage.durations import Durations


def test_a_duration_counts_where_it_is_not_above_the_bound() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.2, 1.0, 5.0):
        durations.add(seconds)
    assert durations.count == 5
    summary = durations.summary()
    assert (summary["bounds"], summary["counts"]) == ([0.1, 1.0], [2, 2, 1])
    assert round(summary["sum"], 6) == 6.35
