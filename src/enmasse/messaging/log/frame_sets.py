"""The frames of a log that several owners share: how many need each frame, and which of them one owner needs.

Both are arrays of numbers, as there may be very many: 12 bytes for a frame, and 16 bytes for what an owner needs of
frames that follow one another.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

_REMOVED = 0xFFFFFFFF
_FEW = 64
"""Removed entries that are not worth moving the others."""


class FrameCounts:
    """The number of owners that need each frame, and whether a record says which ones."""

    __slots__ = ("_firsts", "_removed", "_values")

    def __init__(self) -> None:
        self._firsts = array("Q")
        """First offsets, in order."""
        self._values = array("I")
        """Twice the number of owners, and one more if there is a record."""
        self._removed = 0

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._firsts) - self._removed

    def _index(self, first: int) -> int | None:
        at = bisect_left(self._firsts, first)
        if at == len(self._firsts) or self._firsts[at] != first or self._values[at] == _REMOVED:
            return None
        return at

    def append(self, first: int, owners: int, *, has_record: bool) -> None:
        """Add a frame that follows all others."""
        self._firsts.append(first)
        self._values.append(2 * owners + has_record)

    def get(self, first: int) -> int:
        """Return how many owners need a frame; none if there is no such frame."""
        at = self._index(first)
        return 0 if at is None else self._values[at] >> 1

    def change(self, first: int, by: int) -> int:
        """Correct the number of those who need a frame, and return it; one that is not there stays away."""
        at = self._index(first)
        if at is None:
            return 0
        self._values[at] += 2 * by
        return self._values[at] >> 1

    def release(self, first: int, following: int) -> None:
        """Count one owner less of a frame up to an offset; frames that were made part of it are removed."""
        at = self._index(first)
        if at is None:
            return
        self._values[at] -= 2
        if at + 1 < len(self._firsts) and self._firsts[at + 1] < following:
            for merged in self.within(first + 1, following):
                self.remove(merged)

    def has_record(self, first: int) -> bool:
        """Return whether a record says who needs a frame."""
        at = self._index(first)
        return at is not None and bool(self._values[at] & 1)

    def note_record(self, first: int) -> None:
        """Note that a record says who needs a frame."""
        at = self._index(first)
        if at is not None:
            self._values[at] |= 1

    def remove(self, first: int) -> None:
        """Remove a frame."""
        at = self._index(first)
        if at is None:
            return
        self._values[at] = _REMOVED
        self._removed += 1
        if self._removed > _FEW and 2 * self._removed > len(self._firsts):
            kept = [at for at, value in enumerate(self._values) if value != _REMOVED]
            self._firsts = array("Q", [self._firsts[at] for at in kept])
            self._values = array("I", [self._values[at] for at in kept])
            self._removed = 0

    def remove_from(self, offset: int) -> None:
        """Remove all frames from an offset on."""
        at = bisect_left(self._firsts, offset)
        self._removed -= sum(1 for value in self._values[at:] if value == _REMOVED)
        del self._firsts[at:]
        del self._values[at:]

    def within(self, start: int, end: int) -> list[int]:
        """Return the first offsets of the frames that begin in a range."""
        first, last = bisect_left(self._firsts, start), bisect_left(self._firsts, end)
        return [self._firsts[at] for at in range(first, last) if self._values[at] != _REMOVED]


class FrameRanges:
    """The frames that one owner needs, as ranges of offsets that begin and end with a frame."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")

    def __bool__(self) -> bool:
        """Return whether there is any frame."""
        return bool(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges, in order."""
        return zip(self._starts, self._ends, strict=True)

    def load(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Take ranges that are in order, and may touch."""
        self.clear()
        for start, end in ranges:
            if self._ends and self._ends[-1] == start:
                self._ends[-1] = end
            else:
                self._starts.append(start)
                self._ends.append(end)

    def clear(self) -> None:
        """Remove everything."""
        self._starts = array("Q")
        self._ends = array("Q")

    def __contains__(self, offset: int) -> bool:
        """Return whether an offset lies in one of the frames."""
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, start: int, end: int) -> None:
        """Add a frame that is not there."""
        ends = self._ends
        if not ends or start > ends[-1]:
            self._starts.append(start)
            ends.append(end)
            return
        if start == ends[-1]:
            ends[-1] = end
            return
        at = bisect_left(self._starts, start)
        joins_before = at > 0 and ends[at - 1] == start
        joins_after = at < len(ends) and self._starts[at] == end
        if joins_before and joins_after:
            ends[at - 1] = ends[at]
            del self._starts[at], ends[at]
        elif joins_before:
            ends[at - 1] = end
        elif joins_after:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            ends.insert(at, end)

    def remove(self, start: int, end: int) -> None:
        """Remove a frame; one that is not there is no error."""
        at = bisect_right(self._starts, start) - 1
        if at < 0 or start >= self._ends[at]:
            return
        before, after = self._starts[at], self._ends[at]
        if before == start and after <= end:
            del self._starts[at], self._ends[at]
        elif before == start:
            self._starts[at] = end
        elif after <= end:
            self._ends[at] = start
        else:
            self._ends[at] = start
            self._starts.insert(at + 1, end)
            self._ends.insert(at + 1, after)

    def remove_from(self, offset: int) -> None:
        """Remove everything from an offset on, at which a frame begins."""
        at = bisect_left(self._starts, offset)
        del self._starts[at:], self._ends[at:]
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset

    def following(self, offset: int) -> int | None:
        """Return the first offset from this one on that lies in one of the frames."""
        at = bisect_right(self._ends, offset)
        return max(offset, self._starts[at]) if at < len(self._ends) else None

    def reach(self, offset: int, gap: int) -> int:
        """Return the end of the frames from an offset in one of them on, passing by no more than ``gap`` offsets."""
        at = bisect_right(self._ends, offset)
        while at + 1 < len(self._ends) and self._starts[at + 1] - self._ends[at] <= gap:
            gap -= self._starts[at + 1] - self._ends[at]
            at += 1
        return self._ends[at]
