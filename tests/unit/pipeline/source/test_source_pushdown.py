from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from enmasse.pipeline.source.offsets import Position
from enmasse.pipeline.source.pushdown import Wanted, restrict

START = Position("s", {0: 0, 1: 50, 2: 10})
END = Position("s", {0: 100, 1: 90, 2: 10})
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_US = 1_769_860_800_000_000


def pushed(*filters: Filter, first: Any = None, after: Any = None) -> dict[int, tuple[int, int]]:
    wanted = Wanted()
    wanted.push(filters)
    start, end = restrict(START, END, wanted, first=first, after=after)
    return {number: (at, end.next[number]) for number, at in start.next.items()}


PARTITION, OFFSET, TIME = ("partition",), ("offset",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], {0: (0, 100), 1: (50, 90), 2: (10, 10)}),
        ([EqualTo(PARTITION, 1)], {1: (50, 90)}),
        ([EqualNullSafe(PARTITION, 1)], {1: (50, 90)}),
        ([GreaterThan(PARTITION, 0), LessThan(PARTITION, 2)], {1: (50, 90)}),
        ([In(PARTITION, (0, 7, None))], {0: (0, 100)}),
        ([In(PARTITION, (0, 1)), In(PARTITION, (1, 2))], {1: (50, 90)}),
        ([EqualTo(OFFSET, 60)], {0: (60, 61), 1: (60, 61), 2: (10, 10)}),
        ([GreaterThan(OFFSET, 60), LessThanOrEqual(OFFSET, 70)], {0: (61, 71), 1: (61, 71), 2: (10, 10)}),
        ([GreaterThanOrEqual(OFFSET, 95)], {0: (95, 100), 1: (90, 90), 2: (10, 10)}),
        ([In(OFFSET, (12, 20))], {0: (12, 21), 1: (50, 50), 2: (10, 10)}),
    ],
)
def test_ranges_are_what_filters_say(filters: list[Filter], expected: dict[int, tuple[int, int]]) -> None:
    assert pushed(*filters) == expected


def test_times_are_ranges_of_microseconds_which_the_stream_turns_into_offsets() -> None:
    wanted = Wanted()
    assert wanted.push([GreaterThan(TIME, NOON), LessThanOrEqual(TIME, NOON.replace(hour=13))]) == []
    assert (wanted.time.start, wanted.time.end) == (NOON_US + 1, NOON_US + 3_600_000_001)
    assert pushed(first={0: 20, 1: 20, 2: 10}, after={0: 30, 1: 60, 2: 10}) == {0: (20, 30), 1: (50, 60), 2: (10, 10)}


LEFT: list[Filter] = [
    EqualTo(("value",), b"x"),
    EqualTo(("key", "x"), 1),
    EqualTo(TIME, NOON.replace(tzinfo=None)),
    EqualTo(OFFSET, "7"),
    EqualTo(PARTITION, True),
    Not(EqualTo(PARTITION, 1)),
    In(OFFSET, ()),
    In(OFFSET, (5, "x")),
    In(OFFSET, (1, 2)),
    In(TIME, (NOON,)),
    IsNotNull(("content_type",)),
]


@pytest.mark.parametrize("filter_", LEFT, ids=str)
def test_what_a_range_does_not_say_exactly_is_left_to_spark(filter_: Filter) -> None:
    assert Wanted().push([filter_]) == [filter_]


def test_columns_that_are_never_null_need_no_look() -> None:
    assert Wanted().push([IsNotNull(OFFSET), IsNotNull(("value",))]) == []
