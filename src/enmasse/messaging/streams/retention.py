"""Retention: the low end of a stream's partitions, and when frames are deleted there.

Rules:
1. Whole frames go, oldest first, a bounded number with each batch; where the log begins moves in the same
   commit.
2. By age, a frame goes once its last row is too old. By bytes, the stream's oldest frame goes, whatever
   its partition, but never a partition's last one.
3. What lies at the low end is read from the time index elsewhere, so the node never waits for it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.messaging.log.frame import Frame, FrameError
from enmasse.messaging.log.layout import FRAME_BYTES, log_key
from enmasse.messaging.part import Part
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams.index import Entry, TimeIndex

if TYPE_CHECKING:
    from enmasse.messaging.streams.partition_log import Partition
    from enmasse.messaging.streams.stream import Stream


STEP = 64
"""Frames of a partition that one batch deletes: hundreds of megabytes at most, a few milliseconds."""

_ENTRY_BYTES = 8

NOTHING = 1 << 63
"""Later than any time."""

LEAST_PAUSE_S = 0.1
MAX_PAUSE_S = 60.0
"""The longest pause between searches for what is too old; a stream searches ten times within the age it keeps."""


class Retention(Part["Stream"]):
    """The amount that a stream keeps.

    Args:
        stream: the stream.
    """

    __slots__ = ("max_age_us", "max_bytes")

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.max_bytes = 0
        """0 keeps any number."""
        self.max_age_us = 0
        """0 keeps them for ever."""

    @property
    def is_active(self) -> bool:
        """True if anything is ever deleted."""
        return bool(self.max_bytes or self.max_age_us)

    @property
    def limit(self) -> int:
        """Above so many bytes the oldest go; only of a stream that deletes at all."""
        return min(self.max_bytes or self.whole.max_bytes, self.whole.max_bytes)

    @property
    def excess(self) -> int:
        """Bytes above the limit that are not on their way out."""
        return self.whole.bytes_stored - self.whole.leaving_bytes - self.limit

    @property
    def pause_s(self) -> float:
        """Return how long to wait between two age checks; 0 where age does not matter."""
        if not self.max_age_us:
            return 0.0
        return min(max(self.max_age_us / 10_000_000, LEAST_PAUSE_S), MAX_PAUSE_S)

    def elsewhere_us(self, partition: Partition) -> int:
        """Return the time of the oldest frame that another partition may give; 0 while that is not known."""
        others = [other.front_us for other in self.whole.partitions if other is not partition]
        return min(others, default=NOTHING)

    def choose(self) -> Partition | None:
        """Return the partition whose oldest frame is the stream's; ``None`` if none may give one, or not yet."""
        chosen = min(self.whole.partitions, key=lambda partition: partition.front_us)
        return chosen if 0 < chosen.front_us < NOTHING else None


class LowEnd(Part["Partition"]):
    """The oldest frames of a partition, as far as they were read."""

    __slots__ = ("_entries", "_generation", "_is_reading", "_known_to", "deletions")

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self._entries: deque[Entry] = deque()
        self._known_to = -1
        """The partition's end at a time when all up to it was read."""
        self._is_reading = False
        self._generation = 0
        self.deletions: list[Operation] = []
        """The operations for the latest result of ``take``."""

    @property
    def front_us(self) -> int:
        """The time of the oldest frame, if the partition can do without it; 0 while it is being read."""
        partition, entries = self.whole, self._entries
        if partition.low >= partition.visible:
            return NOTHING
        if not entries:
            self._read()
            return 0
        if len(entries) == 1 and self._known_to == partition.visible:
            return NOTHING
        return max(1, entries[0].ts_us)

    def is_due(self, wall_us: int) -> bool:
        """Return whether something is to be deleted; reads what must be known for that."""
        return self._end(wall_us) is not None

    def take(self, wall_us: int) -> Entry | None:
        """Return the offset where the log is to begin now; ``deletions`` lead there."""
        if not self.whole.stream.retention.is_active:
            return None
        end = self._end(wall_us)
        if end is None:
            return None
        partition = self.whole
        log_id, index = partition.stream.log_id, partition.index
        self.deletions = []
        for entry in self._entries:
            if entry.first >= end.first:
                break
            self.deletions.append(Operation(Table.FRAME, log_key(log_id, index, entry.first), None))
            if entry.is_indexed:
                self.deletions.append(partition.index_of_time.operation(entry, deletes=True))
        return end

    def _end(self, wall_us: int) -> Entry | None:
        partition = self.whole
        retention = partition.stream.retention
        if partition.low >= partition.visible:
            return None
        entries = self._entries
        if not entries:
            self._read()
            return None
        excess = retention.excess
        cutoff = wall_us - retention.max_age_us if retention.max_age_us else -1
        elsewhere_us = retention.elsewhere_us(partition) if excess > 0 else 0
        end: Entry | None = None
        for number, entry in enumerate(entries):
            if number + 1 < len(entries):
                following = entries[number + 1]
                is_last = False
            elif self._known_to == partition.visible:
                following = Entry(partition.visible, partition.last_us, partition.appended)
                is_last = True
            else:
                self._read_behind(number, entry)
                break
            is_old = following.ts_us < cutoff
            is_surplus = excess > 0 and not is_last and entry.ts_us <= elsewhere_us
            if number >= STEP or not (is_old or is_surplus):
                break
            excess -= following.before - entry.before
            end = following
        return end

    def passed(self) -> None:
        """Note that the partition begins higher now."""
        entries, low = self._entries, self.whole.low
        while entries and entries[0].first < low:
            entries.popleft()

    def forget(self) -> None:
        """Forget what was read, as frames are being merged, or were not deleted."""
        self._entries.clear()
        self._known_to = -1
        self._generation += 1

    # Reading

    def _read_behind(self, number: int, entry: Entry) -> None:
        """Find out what follows the last entry that is known."""
        if entry.is_indexed:
            self._read()
        elif not number:
            self.forget()
            self._read()

    def _read(self) -> None:
        if self._is_reading:
            return
        self._is_reading = True
        partition = self.whole
        first, last = partition.index_of_time.bounds
        entries = self._entries
        if entries:
            behind = entries[-1]
            first = partition.index_of_time.operation(behind).key + b"\0"
        generation, visible = self._generation, partition.visible

        def done(records: list[tuple[bytes, bytes]], _damaged: list[bytes]) -> None:
            self._is_reading = False
            if partition.is_closed:
                return
            if generation == self._generation:
                self._found([TimeIndex.entry(*record) for record in records], len(records) < STEP, visible)
            else:
                partition.stream.search_again()

        partition.stream.core.storage.fetch(Table.TIME, first, last, STEP * _ENTRY_BYTES, done)

    def _found(self, found: list[Entry], is_all: bool, visible: int) -> None:
        partition = self.whole
        found = [entry for entry in found if partition.low <= entry.first < visible]
        end = found[0] if found else Entry(visible, partition.last_us, partition.appended)
        if not self._entries and end.first > partition.low:
            self._read_frames(end, found, visible if is_all else -1)
            return
        self._entries += found
        if is_all:
            self._known_to = visible
        partition.stream.search_again()

    def _read_frames(self, end: Entry, behind: list[Entry], known_to: int) -> None:
        """Find the frames that the index does not hold by reading them."""
        partition = self.whole
        log_id, index = partition.stream.log_id, partition.index
        generation = self._generation
        self._is_reading = True

        def done(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
            self._is_reading = False
            if partition.is_closed:
                return
            if generation != self._generation:
                partition.stream.search_again()
                return
            entries = self._read_entries(records, damaged)
            if entries and sum(len(value) for _, value in records) >= FRAME_BYTES:
                # There may be more of them, which are found when these are deleted.
                self._entries += entries
                with suppress(FrameError):
                    frame = Frame(records[-1][1], verify=False)
                    before = entries[-1].before + len(frame.data)
                    self._entries.append(Entry(frame.next_offset, entries[-1].ts_us, before, False))
            else:
                if entries and entries[0].first > partition.low:
                    entries.insert(0, Entry(partition.low, 0, partition.appended - partition.bytes_stored, False))
                self._entries += entries or [Entry(partition.low, 0, end.before, False)]
                self._entries += behind
                self._known_to = known_to
            partition.stream.search_again()

        low = log_key(log_id, index, partition.low)
        partition.stream.core.storage.fetch(Table.FRAME, low, log_key(log_id, index, end.first), FRAME_BYTES, done)

    def _read_entries(self, records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> list[Entry]:
        partition = self.whole
        entries = []
        before = partition.appended - partition.bytes_stored
        ts_us = 0
        for key, data in sorted([*records, *((key, b"") for key in damaged)]):
            with suppress(FrameError):
                ts_us = max(ts_us, max(Frame(data, verify=False).timestamps(), default=0))
            entries.append(Entry(int.from_bytes(key[8:16], "big"), ts_us, before, False))
            before += len(data)
        return entries
