"""Derives from a batch query's filters which rows it can want, so that the others are never fetched.

Rules:
1. Filters of partition, offset and timestamp become ranges; all others are left to Spark.
2. A range may hold rows that the filters refuse, never leave one out that they want. Only filters that a
   range says exactly are taken off Spark's hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

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
)

from enmasse.model.sql.message_columns import NEVER_NULL
from enmasse.pipeline.source.bounds import moment_of
from enmasse.pipeline.source.offsets import Position


@dataclass
class Range:
    """Numbers from ``start`` to below ``end``; ``None`` is no limit."""

    start: int | None = None
    end: int | None = None

    def cut(self, start: int | None, end: int | None) -> None:
        """Keep what lies in another range as well."""
        if start is not None:
            self.start = start if self.start is None else max(self.start, start)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)

    @property
    def is_all(self) -> bool:
        """True if there is no limit."""
        return self.start is None and self.end is None

    def holds(self, number: int) -> bool:
        """Return whether a number lies in it."""
        return (self.start is None or number >= self.start) and (self.end is None or number < self.end)


@dataclass
class Wanted:
    """The offsets and moments that a query can want of a stream."""

    partition: Range = field(default_factory=Range)
    offset: Range = field(default_factory=Range)
    time: Range = field(default_factory=Range)
    """In microseconds since 1970 UTC."""
    partitions: frozenset[int] | None = None
    """Those that are listed, if any are."""

    def push(self, filters: Sequence[Filter]) -> list[Filter]:
        """Take up filters, all of which hold; those that Spark still has to apply."""
        return [filter_ for filter_ in filters if not self._push(filter_)]

    def _push(self, filter_: Filter) -> bool:
        """Take up one filter; return whether the ranges cover all of it."""
        attribute: Sequence[str] = getattr(filter_, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else ""
        if isinstance(filter_, IsNotNull):
            return column in NEVER_NULL
        if isinstance(filter_, In):
            return self._push_list(column, filter_.value)
        value = _number(column, getattr(filter_, "value", None))
        if value is None:
            return False
        range_ = {"partition": self.partition, "offset": self.offset, "timestamp": self.time}[column]
        if isinstance(filter_, EqualTo | EqualNullSafe):
            range_.cut(value, value + 1)
        elif isinstance(filter_, GreaterThan):
            range_.cut(value + 1, None)
        elif isinstance(filter_, GreaterThanOrEqual):
            range_.cut(value, None)
        elif isinstance(filter_, LessThan):
            range_.cut(None, value)
        elif isinstance(filter_, LessThanOrEqual):
            range_.cut(None, value + 1)
        else:
            return False
        return True

    def _push_list(self, column: str, values: Sequence[Any]) -> bool:
        numbers = [_number(column, value) for value in values if value is not None]
        known = [number for number in numbers if number is not None]
        if not known or len(known) != len(numbers):
            return False
        if column == "partition":
            self.partitions = frozenset(known) if self.partitions is None else self.partitions & frozenset(known)
            return True
        range_ = self.offset if column == "offset" else self.time
        range_.cut(min(known), max(known) + 1)
        return False

    def wants(self, partition: int) -> bool:
        """Return whether rows of a partition can be wanted."""
        return self.partition.holds(partition) and (self.partitions is None or partition in self.partitions)


def _number(column: str, value: object) -> int | None:
    """Return a value as a column's ranges have it; ``None`` where it is no such value."""
    if column in {"partition", "offset"}:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return moment_of(value).us
    return None


def restrict(
    start: Position,
    end: Position,
    wanted: Wanted,
    *,
    first: Mapping[int, int] | None = None,
    after: Mapping[int, int] | None = None,
) -> tuple[Position, Position]:
    """Return the part of a reading that can be wanted; partitions that are not wanted are left out.

    Args:
        start: the start of the reading.
        end: the end of the reading.
        wanted: derived from the filters.
        first: by partition the first row of the time wanted.
        after: by partition the first row behind that time.
    """
    begins, ends = {}, {}
    for number, at in start.next.items():
        if not wanted.wants(number):
            continue
        to = end.next.get(number, at)
        # What is wanted may lie beyond what there is, which is no gap.
        begin = max(at, min(to, max(wanted.offset.start or 0, (first or {}).get(number, 0))))
        for limit in (wanted.offset.end, (after or {}).get(number)):
            to = to if limit is None else min(to, limit)
        begins[number], ends[number] = begin, max(begin, to)
    return Position(start.stream, begins), Position(end.stream, ends)
