"""Loads a log that several owners share when the node starts, in time proportional to what is stored.

Frames that are for all owners are summed up once; each owner then takes all of them from its beginning on, without
what it has settled. Of any other frame the record names those who have something of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from enmasse.messaging.log.entry import guessed_bytes, settled_rows
from enmasse.messaging.log.frame import FLAG_VOLATILE, frame_head
from enmasse.messaging.log.frame_sets import FrameCounts
from enmasse.messaging.log.holders import Holders
from enmasse.messaging.log.layout import FRAME_BYTES, by_frame, log_key, log_range
from enmasse.messaging.storage import Operation, Storage, Table

if TYPE_CHECKING:
    from enmasse.messaging.queues.log_share import LogShare


class SharedStart:
    """The frames of one log as they are on disk when the node starts.

    Args:
        storage: the journal.
        log_id: the number of the log.
        owners: those who have begun, by the numbers of their own logs.
    """

    def __init__(self, storage: Storage, log_id: int, owners: dict[int, LogShare]) -> None:
        self.next_offset = 0
        """The offset after the last frame."""
        self.counts = FrameCounts()
        """The frames that somebody needs."""
        self.done: dict[int, set[int]] = {}
        """By frame, owners that are done with it and have said so."""
        self.deleted: list[Operation] = []
        """The operations that delete messages that a restart forgets, and frames that nobody needs."""
        self._storage = storage
        self._log_id = log_id
        self._owners = owners
        self._settled = {owner: by_frame(storage, Table.SETTLED, *share.owner) for owner, share in owners.items()}
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        """The frames with a record of which an owner needs something."""
        # Frames for everybody: first offset, rows, size.
        self._common: list[tuple[int, int, int]] = []

    def read(self) -> None:
        """Read what there is, and give each owner its part."""
        found: dict[int, tuple[int, bool]] = {}
        """By first offset: how many need a frame, and whether there is a record of it."""
        records = self._records()
        record = next(records, None)
        for _, start, size in self._storage.heads(Table.FRAME, *log_range(self._log_id)):
            first, rows, _, flags = frame_head(start)
            self.next_offset = max(self.next_offset, first + rows)
            while record is not None and record[0] < first:
                # Of a frame that is not there.
                self._delete(Table.HOLDER, self._log_id, 0, record[0])
                record = next(records, None)
            holders = None
            if record is not None and record[0] == first:
                holders = Holders(record[1])
                record = next(records, None)
            if flags & FLAG_VOLATILE:
                self._forget(first, holders)
            elif holders is None:
                self._common.append((first, rows, size))
            else:
                found[first] = self._take(first, rows, size, holders), True
        while record is not None:
            self._delete(Table.HOLDER, self._log_id, 0, record[0])
            record = next(records, None)
        self._take_common(found)
        for first, (needed, has_record) in sorted(found.items()):
            if needed > 0:
                self.counts.append(first, needed, has_record=has_record)
                continue
            self._delete(Table.FRAME, self._log_id, 0, first)
            if has_record:
                self._delete(Table.HOLDER, self._log_id, 0, first)
            for owner in self.done.pop(first, ()):
                self._delete(Table.SETTLED, *self._owners[owner].owner, first)

    def _records(self) -> Iterator[tuple[int, bytes]]:
        at, last = log_range(self._log_id, 0)
        while records := self._storage.scan(Table.HOLDER, at, last, FRAME_BYTES):
            for key, value in records:
                yield int.from_bytes(key[-8:], "big"), value
            at = records[-1][0] + b"\0"

    def _delete(self, table: Table, log_id: int, partition: int, first: int) -> None:
        self.deleted.append(Operation(table, log_key(log_id, partition, first), None))

    def _forget(self, first: int, holders: Holders | None) -> None:
        """Delete a frame whose messages end with the node that wrote it."""
        self._delete(Table.FRAME, self._log_id, 0, first)
        if holders is not None:
            self._delete(Table.HOLDER, self._log_id, 0, first)
        owners = self._owners.keys() if holders is None else [owner for owner, _ in holders.items()]
        for owner in owners:
            share = self._owners.get(owner)
            if share is not None:
                self._delete(Table.SETTLED, *share.owner, first)
                self._delete(Table.ATTEMPTS, *share.owner, first)

    def _take(self, first: int, rows: int, size: int, holders: Holders) -> int:
        """Give their parts to those whom a record names; return how many need the frame."""
        needed = 0
        for owner, own in holders.items():
            share = self._owners.get(owner)
            if share is None or first + rows <= share.begins:
                # Of one that ended; its number is another's now if the node died before it was on disk.
                continue
            live = len(own) - len(settled_rows(self._settled[owner].get(first, b"")).intersection(own))
            if live:
                needed += 1
                share.found(rows, live, size)
                self._ranges.setdefault(owner, []).append((first, first + rows))
            else:
                self.done.setdefault(first, set()).add(owner)
        return needed

    def _take_common(self, found: dict[int, tuple[int, bool]]) -> None:
        """Give everybody the frames that are for all."""
        common = self._common
        beginnings = sorted(share.begins for share in self._owners.values())
        for first, rows, _ in common:
            found[first] = bisect_left(beginnings, first + rows), False
        ends = array("Q", [first + rows for first, rows, _ in common])
        messages = [0, *accumulate(rows for _, rows, _ in common)]
        sizes = [0, *accumulate(guessed_bytes(size, rows, rows) for _, rows, size in common)]
        runs = _runs(common)
        run_ends = [end for _, end in runs]
        for owner, share in self._owners.items():
            begins = share.begins
            at = bisect_right(ends, begins)
            share.found_messages(messages[-1] - messages[at], sizes[-1] - sizes[at])
            own = [(max(start, begins), end) for start, end in runs[bisect_right(run_ends, begins) :]]
            ranges = self._ranges.get(owner)
            share.held.load(sorted(own + ranges) if ranges else own)
            self._settle_common(owner, share, found, at)

    def _settle_common(self, owner: int, share: LogShare, found: dict[int, tuple[int, bool]], at: int) -> None:
        """Take away what an owner has settled of the frames that are for all, of those from one on."""
        for first, record in self._settled[owner].items():
            place = bisect_left(self._common, (first,), at)
            if place == len(self._common) or self._common[place][0] != first:
                continue
            _, rows, size = self._common[place]
            live = max(0, rows - len(settled_rows(record)))
            share.found_messages(live - rows, guessed_bytes(size, rows, live) - guessed_bytes(size, rows, rows))
            if not live:
                share.held.remove(first, first + rows)
                self.done.setdefault(first, set()).add(owner)
                found[first] = found[first][0] - 1, False


def _runs(frames: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of frames that follow one another."""
    runs: list[tuple[int, int]] = []
    for first, rows, _ in frames:
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], first + rows
        else:
            runs.append((first, first + rows))
    return runs
