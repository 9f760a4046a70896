"""Where a reader is in one partition, and what was fetched for it from there on.

Rules:
1. Memory serves readers that keep up. What is older is fetched, one request at a time, which waits
   elsewhere; the next is asked for before the last is used up.
2. A frame that is damaged is left out: its rows' offsets are missing from what comes, and nothing else is
   changed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from enmasse.messaging.frame import Frame, FrameError
from enmasse.messaging.log import log_key
from enmasse.messaging.storage import Table
from enmasse.messaging.stream_tail import Piece

if TYPE_CHECKING:
    from enmasse.messaging.stream_log import Partition

__all__ = ["Position"]


class Position:
    """A reader's place in a partition.

    Args:
        partition: which.
        offset: the next row it wants.
        limit: bytes to fetch at once.
    """

    __slots__ = ("_begun_at", "_is_boundary", "_limit", "_ready", "_size", "is_reading", "offset", "partition")

    def __init__(self, partition: Partition, offset: int, limit: int) -> None:
        self.partition = partition
        self.offset = offset
        self.is_reading = False
        """Whether a request is on its way."""
        self._limit = limit
        self._ready: deque[Piece] = deque()
        self._size = 0
        self._is_boundary = offset == partition.low
        """Whether a frame is known to begin where the next request starts."""
        self._begun_at = offset
        """Where the frame begins that holds the first offset of the request on its way."""

    def piece(self) -> Piece | None:
        """The frame that holds the offset, or the next one behind it; ``None`` while it is not here."""
        ready = self._ready
        offset = self.offset
        while ready and ready[0][1] <= offset:
            self._size -= len(ready.popleft()[2])
        if ready:
            if not self.is_reading and self._size * 2 < self._limit:
                self._read(ready[-1][1])
            return ready[0]
        partition = self.partition
        if offset >= partition.visible or self.is_reading:
            return None
        first = partition.tail.first
        if first is None or offset < first:
            self._read(offset)
            return None
        self._take(partition.tail.read(offset, self._limit))
        return ready[0] if ready else None

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._ready.append(piece)
            self._size += len(piece[2])

    # The journal

    def _read(self, offset: int) -> None:
        """Ask for what lies from ``offset`` on and is not in memory."""
        partition = self.partition
        end = partition.tail.first
        if end is None or end > partition.visible:
            end = partition.visible
        if offset >= end:
            return
        self._begun_at = offset if self._is_boundary else self._begin(offset)
        self._fetch(offset, self._begun_at, end)

    def _begin(self, offset: int) -> int:
        """Where the frame begins that holds an offset."""
        partition = self.partition
        self._is_boundary = True
        entry = partition.index_of_time.holding(offset, partition.last_us)
        if entry is not None:
            return entry.first
        # Data of the first versions: there only the frames themselves tell.
        key = log_key(partition.stream.log_id, partition.index, offset)
        found = partition.stream.core.storage.floor(Table.FRAME, key, key[:8] + bytes(8))
        return offset if found is None else int.from_bytes(found[0][8:16], "big")

    def _fetch(self, offset: int, begin: int, end: int) -> None:
        partition = self.partition
        self.is_reading = True
        log_id, index = partition.stream.log_id, partition.index

        def done(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
            self.is_reading = False
            if not partition.is_closed:
                self._fetched(offset, begin, end, records, damaged)

        first, last = log_key(log_id, index, begin), log_key(log_id, index, end)
        partition.stream.core.storage.fetch(Table.FRAME, first, last, self._limit, done)

    def _fetched(
        self, offset: int, begin: int, end: int, records: list[tuple[bytes, bytes]], damaged: list[bytes]
    ) -> None:
        partition = self.partition
        pieces = []
        read_to = begin
        for key, data in records:
            first = int.from_bytes(key[8:16], "big")
            try:
                following = Frame(data, verify=False).next_offset
            except FrameError:
                damaged.append(key)
                continue
            if following > offset:
                pieces.append((first, following, data))
            read_to = max(read_to, following)
        for key in damaged:
            first = int.from_bytes(key[8:16], "big")
            partition.stream.found_damaged(partition, first)
            read_to = max(read_to, first + 1)
        is_late = not pieces or pieces[0][0] > offset
        if is_late and offset > partition.low:
            # Frames may have been merged meanwhile; then one that begins elsewhere holds the offset.
            before = self._begin(offset)
            if before != self._begun_at:
                self._begun_at = before
                self._fetch(offset, before, end)
                return
        self._take(pieces)
        if not pieces and begin < read_to < end:
            self._fetch(offset, read_to, end)
            return
        if not self._ready:
            # Nothing lies there: it was deleted meanwhile, or is damaged.
            self.offset = max(offset, end)
        partition.stream.advanced()
