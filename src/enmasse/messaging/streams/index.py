"""The time index of a stream's partition: one entry a frame, in time and offset order at once.

An entry says when a frame's first row came, its offset, and how many bytes were ever appended before it.
So where a frame ends, how large it is, and how old its last row may be are in the entry behind it,
whatever was merged in between: merging deletes the entries of the frames that are no more. Data written by
the first versions have no entries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from enmasse.messaging.log.layout import log_key, log_range
from enmasse.messaging.log.merge import time_key
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.storage import Storage


_BEFORE = struct.Struct(">Q")
_LARGEST = b"\xff" * 8


class Entry(NamedTuple):
    """The beginning of a frame."""

    first: int
    """The first row's offset."""
    ts_us: int
    """The first row's time."""
    before: int
    """Bytes appended before it."""
    is_indexed: bool = True
    """True if the index holds it; frames of the first versions are known by themselves alone."""


class TimeIndex:
    """Entries of one partition as they lie in the journal."""

    __slots__ = ("_index", "_log_id", "_storage")

    def __init__(self, storage: Storage, log_id: int, index: int) -> None:
        self._storage = storage
        self._log_id = log_id
        self._index = index

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """First and last key (exclusive)."""
        return log_range(self._log_id, self._index)

    def operation(self, entry: Entry, *, deletes: bool = False) -> Operation:
        """Write an entry, or delete it."""
        key = time_key(log_key(self._log_id, self._index, entry.first), entry.ts_us)
        return Operation(Table.TIME, key, None if deletes else _BEFORE.pack(entry.before))

    @staticmethod
    def entry(key: bytes, value: bytes) -> Entry:
        """Return the entry that a record holds."""
        return Entry(int.from_bytes(key[16:24], "big"), int.from_bytes(key[8:16], "big"), *_BEFORE.unpack(value))

    def before(self, ts_us: int) -> Entry | None:
        """Return the last entry of a time before ``ts_us``; ``None`` if none is known."""
        if ts_us <= 0:
            return None
        first, _ = self.bounds
        found = self._storage.floor(Table.TIME, first[:8] + (ts_us - 1).to_bytes(8, "big") + _LARGEST, first)
        return None if found is None else self.entry(*found)

    def holding(self, offset: int, latest_us: int) -> Entry | None:
        """Return the last entry of a frame that begins at or below ``offset``; ``None`` if none is known.

        Args:
            offset: a row's.
            latest_us: no entry is later than this.
        """
        first, _ = self.bounds
        floor = self._storage.floor
        low, high = 0, latest_us
        best: Entry | None = None
        while low <= high:
            middle = (low + high) // 2
            found = floor(Table.TIME, first[:8] + middle.to_bytes(8, "big") + _LARGEST, first)
            if found is None:
                low = middle + 1
                continue
            entry = self.entry(*found)
            if entry.first <= offset:
                best = entry
                low = middle + 1
                continue
            found = floor(Table.TIME, first[:8] + entry.ts_us.to_bytes(8, "big") + offset.to_bytes(8, "big"), first)
            if found is None:
                return None
            entry = self.entry(*found)
            if entry.first <= offset:
                return entry
            high = entry.ts_us
        return best

    def latest(self, count: int) -> list[Entry]:
        """Return the last entries, in order."""
        first, _ = self.bounds
        key = first[:8] + _LARGEST + _LARGEST
        found: list[Entry] = []
        while len(found) < count:
            record = self._storage.floor(Table.TIME, key, first)
            if record is None:
                break
            found.append(self.entry(*record))
            at = int.from_bytes(record[0][8:24], "big")
            if not at:
                break
            key = first[:8] + (at - 1).to_bytes(16, "big")
        return found[::-1]
