from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from enmasse.bench.histogram import LIMIT, Histogram

values = st.integers(0, LIMIT)
lists = st.lists(values, min_size=1, max_size=200)


def filled(found: list[int]) -> Histogram:
    histogram = Histogram()
    for value in found:
        histogram.record(value)
    return histogram


@given(lists, st.floats(0.01, 100))
def test_a_percentile_is_right_within_one_part_in_128(found: list[int], share: float) -> None:
    exact = sorted(found)[max(1, math.ceil(len(found) * share / 100)) - 1]
    assert exact <= filled(found).percentile(share) <= exact * (1 + 1 / 128)


@given(lists, lists)
def test_merged_histograms_are_one_of_everything(one: list[int], other: list[int]) -> None:
    merged = filled(one)
    merged.merge(filled(other))
    assert merged.dump() == filled(one + other).dump()


@given(lists)
def test_what_was_dumped_is_loaded_again(found: list[int]) -> None:
    histogram = filled(found)
    assert Histogram.load(json.loads(json.dumps(histogram.dump()))).figures() == histogram.figures()


def test_count_mean_and_extremes_are_exact() -> None:
    histogram = filled([1_000_003, 5, 2_000_000_000])
    assert (histogram.count, histogram.least, histogram.most) == (3, 5, 2_000_000_000)
    assert histogram.mean == (1_000_003 + 5 + 2_000_000_000) / 3


def test_beyond_the_limit_values_are_counted_and_the_greatest_is_kept() -> None:
    histogram = filled([LIMIT * 8, 1])
    assert histogram.count == 2
    assert histogram.most == LIMIT * 8
    assert histogram.percentile(50) == 1


def test_a_negative_value_counts_as_nothing() -> None:
    assert filled([-7]).most == 0


def test_without_values_there_are_no_figures() -> None:
    assert Histogram().figures() == {}
    assert Histogram().percentile(99) == 0


def test_the_memory_is_the_same_however_many_values_there_are() -> None:
    histogram = Histogram()
    buckets = len(histogram._counts)
    for value in range(0, 1 << 40, (1 << 40) // 10_000):
        histogram.record(value)
    assert len(histogram._counts) == buckets < 5_000
