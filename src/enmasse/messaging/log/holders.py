"""The record beside a frame that says which owners of the log have which of its rows.

Layout, little-endian u32: how many owners, how many sets of rows; the owners (numbers of their logs) in order; for
each of them which set is its own, unless there is one set alone; for each set where its ranges end; the ranges, each
as its first row and their number. So the rows of one owner are found without a look at the others, and a message for
ten subscriptions has a record of 60 bytes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

_START = struct.Struct("<II")

Rows = tuple[int, ...]
"""Rows of a frame, in order."""


def encode_holders(owners: Mapping[Rows, Sequence[int]]) -> bytes:
    """Return the record of a frame.

    Args:
        owners: by their rows, the numbers of those who have these and no others.
    """
    sets = list(owners)
    pairs = sorted((owner, index) for index, rows in enumerate(sets) for owner in owners[rows])
    ends, ranges = array("I"), array("I")
    for rows in sets:
        _add_ranges(rows, ranges)
        ends.append(len(ranges) // 2)
    numbers = array("I", [owner for owner, _ in pairs])
    which = array("I", [index for _, index in pairs] if len(sets) > 1 else ())
    parts = [column.tobytes() for column in (numbers, which, ends, ranges)]
    return b"".join([_START.pack(len(pairs), len(sets)), *parts])


def _add_ranges(rows: Rows, ranges: array[int]) -> None:
    first = following = rows[0]
    for row in rows:
        if row != following:
            ranges.extend((first, following - first))
            first = row
        following = row + 1
    ranges.extend((first, following - first))


class Holders:
    """A view over one such record.

    Args:
        record: the record as ``encode_holders`` made it.

    Raises:
        ValueError: it is not.
    """

    __slots__ = ("_count", "_ends", "_numbers", "_ranges", "_which")

    def __init__(self, record: bytes) -> None:
        if len(record) < _START.size:
            raise ValueError(f"{len(record)} bytes are too short for a record of owners")
        self._count: int
        self._count, sets = _START.unpack_from(record)
        words = array("I")
        words.frombytes(record[_START.size : len(record) & ~3])
        at = self._count
        self._numbers = words[:at]
        self._which = words[at : at + self._count] if sets > 1 else None
        at += self._count if sets > 1 else 0
        self._ends = words[at : at + sets]
        self._ranges = words[at + sets :]
        is_whole = len(self._ends) == sets and len(self._ranges) == 2 * (self._ends[-1] if sets else 0)
        if len(record) & 3 or not is_whole or list(self._ends) != sorted(self._ends):
            raise ValueError("a record of owners has the wrong length")
        if self._which is not None and any(index >= sets for index in self._which):
            raise ValueError("a record of owners names a set that it has not")
        if any(after <= before for before, after in zip(self._numbers, self._numbers[1:], strict=False)):
            raise ValueError("a record of owners has them out of order")

    def __len__(self) -> int:
        """Return the number of owners."""
        return self._count

    def rows_of(self, owner: int) -> Rows:
        """Return the rows of one owner; none if it has nothing of the frame."""
        at = bisect_left(self._numbers, owner)
        if at == self._count or self._numbers[at] != owner:
            return ()
        return self._rows(0 if self._which is None else self._which[at])

    def items(self) -> Iterator[tuple[int, Rows]]:
        """Iterate over the owners and their rows."""
        sets = [self._rows(index) for index in range(len(self._ends))]
        for at, owner in enumerate(self._numbers):
            yield owner, sets[0 if self._which is None else self._which[at]]

    def _rows(self, index: int) -> Rows:
        begin = self._ends[index - 1] if index else 0
        rows: list[int] = []
        for at in range(begin, self._ends[index]):
            first, count = self._ranges[2 * at : 2 * at + 2]
            rows += range(first, first + count)
        return tuple(rows)
