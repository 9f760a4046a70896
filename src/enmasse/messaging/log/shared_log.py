"""The frames of a topic: each is written once, for all the subscriptions that want something of it.

Rules:
1. Whatever is done concerns the owners (subscriptions) that have rows of the frames concerned, and costs nothing for
   the others, however many there are.
2. A frame without a record is for all owners that had begun when it was written, with all its rows. Any other has
   one that names its owners and their rows (``holders``).
3. An owner that is done with a frame says so by its settled rows. Once as many have as are left, the record is
   written anew for those who are left, and what the others said is deleted: it takes no more room than the record.
4. The owners that need a frame are counted; with the last one the frame is deleted, in the same batch.
5. The mark of an owner's beginning is written before or with the first rows for it.
6. What one batch has for more owners than one turn bears is placed with them in turns, ahead of its cut, and in turns
   they learn that it is written. Meanwhile nothing else of the log is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import LocalError
from enmasse.messaging.log.entry import DONE, Entry, FrameRef
from enmasse.messaging.log.frame_sets import FrameCounts
from enmasse.messaging.log.holders import Holders, Rows, encode_holders
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.message_log import Cut, MessageLog, Row
from enmasse.messaging.log.shared_start import SharedStart
from enmasse.messaging.storage import Operation, Table

# A log and its owners know each other.
if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.log.message_log import Home
    from enmasse.messaging.queues.log_share import LogShare


SHARED_PARTITION = 1
"""Beside its own log, in which earlier versions kept its messages, a subscription has an account of its
topic's log."""


_END = 1 << 63
"""Above all offsets."""

BATCH_UNITS: Final = 6_000
"""The most work with owners that are given something for which one turn cuts a batch."""

OWNER_UNITS: Final = 6
"""The cost of an owner in a batch."""

ROW_UNITS: Final = 2
"""The cost of each of its messages there."""

PART_UNITS: Final = 300
"""The work of a part where a batch is more."""


class SharedCut(Cut):
    """The part of one batch that belongs to a log which several owners share."""

    __slots__ = ("begun", "gone", "rewritten")

    def __init__(self, begun: dict[LogShare, None]) -> None:
        super().__init__()
        self.begun = begun
        """Owners whose marks were written."""
        self.gone: dict[int, None] = {}
        """Frames that were deleted."""
        self.rewritten: dict[int, set[int]] = {}
        """Frames whose record was written anew, with the owners whose settled rows were deleted."""


class _Ahead:
    """The part of a cut that is done ahead of it."""

    __slots__ = ("cut", "is_done", "operations", "parts")

    def __init__(self, operations: list[Operation], cut: SharedCut) -> None:
        self.operations = operations
        self.cut = cut
        self.parts: list[Iterator[int]] = []
        """The work that places each of its frames."""
        self.is_done = False


class SharedLog(MessageLog):
    """A log of messages that several owners share.

    Args:
        core: the core whose batches it is written with.
        home: the topic.
        log_id: under which its frames are kept.
    """

    __slots__ = ("_ahead", "_beginning", "_counts", "_done", "_finished", "_gone", "_has_left", "_records", "owners")

    def __init__(self, core: Core, home: Home, log_id: int) -> None:
        super().__init__(core, home, log_id)
        self.owners: dict[int, LogShare] = {}
        """By the numbers of the logs under which they keep their accounts."""
        self._counts = FrameCounts()
        self._done: dict[int, set[int]] = {}
        """By frames' first offsets, the owners that are done with it and have said so on disk."""
        self._gone: dict[int, None] = {}
        """Frames that nobody needs any more, and which the next batch deletes."""
        self._finished: dict[int, list[FrameRef]] = {}
        """Frames with which owners are done, as found for the batch that is being cut."""
        self._records: dict[int, bytes] = {}
        """The records of frames that are being cut."""
        self._beginning: dict[LogShare, None] = {}
        """Owners that begin with the next batch."""
        self._ahead: _Ahead | None = None
        self._has_left = False
        """True if rows that are not written yet may be for owners that have left."""

    # Owners

    def adopt(self, owner: Any) -> None:
        """Take one more owner."""
        self.owners[owner.owner[0]] = owner

    def is_owned_by(self, owner: object) -> bool:
        """Return whether nobody else has messages here."""
        return len(self.owners) == 1 and owner in self.owners.values()

    def begin(self, share: LogShare) -> None:
        """Begin with an owner: new messages are for it, older ones are not."""
        share.begin(self.next_offset)
        self._beginning[share] = None
        self.core.write(self)

    def leave(self, share: LogShare) -> None:
        """Forget an owner, and delete what only it needed; its account is deleted by others."""
        if not self._has(share):
            return
        del self.owners[share.owner[0]]
        self._beginning.pop(share, None)
        self._has_left = True
        for start, end in share.held:
            for first in self._counts.within(start, end):
                if not self._counts.change(first, -1):
                    self._gone[first] = None
        share.held.clear()
        if self._gone and not self.is_closed:
            self.core.write(self)

    def _has(self, share: LogShare | None) -> bool:
        return share is not None and self.owners.get(share.owner[0]) is share

    def rows_of(self, share: LogShare, first: int) -> Rows | None:
        """Return the rows of a committed frame that are for one owner; ``None`` are all."""
        record = self.core.storage.get(Table.HOLDER, log_key(self.log_id, 0, first))
        return None if record is None else Holders(record).rows_of(share.owner[0])

    def load(self) -> tuple[int | None, list[Operation]]:
        """Load what the journal holds, before anything else is done; see ``MessageLog``.

        Owners without a mark on disk begin now, and the log goes on at or above all their beginnings.
        """
        storage = self.core.storage
        fresh = []
        begun = {}
        for owner, share in self.owners.items():
            mark = storage.get(Table.MARK, log_key(*share.owner, 0))
            if mark is None:
                fresh.append(share)
            else:
                share.begin(int.from_bytes(mark[:8], "big"))
                begun[owner] = share
        start = SharedStart(storage, self.log_id, begun)
        start.read()
        # An empty log goes on where its owners begin, or they would take what comes for what was before them.
        latest = max((share.begins for share in begun.values()), default=0)
        self.next_offset = self.visible = max(start.next_offset, latest)
        self._counts, self._done = start.counts, start.done
        for share in fresh:
            self.begin(share)
        self.load_sequences()
        return None, start.deleted

    def close(self) -> list[Row]:
        """Close the log, as the topic is deleted; see ``MessageLog``."""
        self.owners.clear()
        self._beginning.clear()
        self._gone.clear()
        ahead, self._ahead = self._ahead, None
        return [*(ahead.cut.rows if ahead is not None else ()), *super().close()]

    # The journal

    def cut_ahead(self, wall_us: int) -> Iterator[int] | None:
        """Return the parts of placing what is new with its owners; nothing if one turn bears that. See ``core``."""
        counts = [len(row.entries) for row in self._fresh]  # type: ignore[attr-defined]  # they are shared
        if not counts or OWNER_UNITS * max(counts) + ROW_UNITS * sum(counts) <= BATCH_UNITS:
            return None
        return self._place_ahead(wall_us)

    def _place_ahead(self, wall_us: int) -> Iterator[int]:
        operations: list[Operation] = []
        cut = self._new_cut(operations)
        cut.home = self._home()
        ahead = self._ahead = _Ahead(operations, cut)
        fresh, self._fresh = self._fresh, []
        self._cut_rows(fresh, wall_us, operations, cut)
        for parts in ahead.parts:
            yield from parts
        ahead.is_done = True

    def _new_cut(self, operations: list[Operation]) -> SharedCut:
        begun, self._beginning = self._beginning, {}
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            cut = SharedCut(begun)
            self._records = {}
            self._finished = {}
        else:
            if not ahead.is_done:
                message = "what one batch has for very many owners could not be placed"
                raise LocalError(message)
            cut = ahead.cut
            cut.begun |= begun
            operations += ahead.operations
        for share in begun:
            # Offsets that were given before may have been taken back meanwhile.
            share.begin(self.next_offset)
            mark = self.next_offset.to_bytes(8, "big")
            operations.append(Operation(Table.MARK, log_key(*share.owner, 0), mark))
        return cut

    def _written(self, rows: list[Row]) -> list[Row]:
        if not self._has_left:
            return rows
        self._has_left = False
        return [row for row in rows if any(self._wants(*pair) for pair in self._entries(row))]

    @staticmethod
    def _entries(row: Any) -> Any:
        return row.entries.items()

    def _wants(self, subscription: Any, entry: Entry) -> bool:
        return entry.state != DONE and self._has(subscription.share)

    def _place(self, first: int, rows: Sequence[Any], operations: list[Operation], cut: SharedCut) -> None:
        parts = self._place_in_parts(first, rows, operations, cut)
        if self._ahead is not None:
            self._ahead.parts.append(parts)
            return
        for _ in parts:
            pass

    def _place_in_parts(
        self, first: int, rows: Sequence[Any], operations: list[Operation], cut: SharedCut
    ) -> Iterator[int]:
        count = len(rows)
        is_durable = rows[0].is_durable
        placed: list[tuple[LogShare, FrameRef]] = []
        units = 0
        for subscription, pairs in _rows_by_subscription(rows):
            share = subscription.share
            if not self._has(share):
                continue
            cut.owners[share] = None
            share.depart()
            ref = share.placed_rows(first, count, pairs, is_durable=is_durable)
            units += OWNER_UNITS + ROW_UNITS * len(pairs)
            if ref is not None:
                placed.append((share, ref))
                if ref.has_news:
                    self.touch(ref)
            if units > PART_UNITS:
                yield units
                units = 0
        holders: dict[Rows, list[int]] = {}
        whole: list[int] = []
        number = 0
        for share, ref in placed:
            owner = share.owner[0]
            if self.owners.get(owner) is not share:
                continue  # it has left meanwhile
            number += 1
            if ref.own is None:
                whole.append(owner)
            else:
                holders.setdefault(ref.own, []).append(owner)
        is_whole = len(whole) == len(self.owners)
        if not is_whole:
            if whole:
                holders[tuple(range(count))] = whole
            record = self._records[first] = encode_holders(holders)
            operations.append(Operation(Table.HOLDER, log_key(self.log_id, 0, first), record))
        self._counts.append(first, number, has_record=not is_whole)
        if not number and not self.is_closed:
            self._gone[first] = None

    def _cut_settled(self, ref: FrameRef, operations: list[Operation]) -> None:
        # The account of one that has left is deleted.
        if ref.share is None or self._has(ref.share):
            super()._cut_settled(ref, operations)

    def _cut_done(self, ref: FrameRef, operations: list[Operation]) -> None:
        self._release(ref)
        if ref.has_attempts:
            operations.append(Operation(Table.ATTEMPTS, log_key(*ref.owner, ref.first), None))
        self._finished.setdefault(ref.first, []).append(ref)

    def _release(self, ref: FrameRef) -> None:
        """Count an owner no more among those who need a frame."""
        if not ref.is_released:
            ref.is_released = True
            following = ref.first + ref.rows
            ref.share.held.remove(ref.first, following)
            self._counts.release(ref.first, following)

    def _finish_cut(self, operations: list[Operation], cut: SharedCut) -> None:
        finished, self._finished = self._finished, {}
        for first, refs in finished.items():
            left = self._counts.get(first)
            done = self._done.get(first)
            if left and (len(done) if done else 0) + len(refs) < left:
                if done is None:
                    done = self._done[first] = set()
                for ref in refs:
                    ref.has_record = True
                    operations.append(Operation(Table.SETTLED, log_key(*ref.owner, first), ref.ranges()))
                    done.add(ref.owner[0])
                continue
            for ref in refs:
                if ref.has_record:
                    self._done.setdefault(first, set()).add(ref.owner[0])
            if left:
                self._rewrite(first, refs[0].rows, operations)
                cut.rewritten[first] = self._done.pop(first, set())
            else:
                self._gone[first] = None
        gone, self._gone = self._gone, {}
        for first in gone:
            key = log_key(self.log_id, 0, first)
            operations.append(Operation(Table.FRAME, key, None))
            if self._counts.has_record(first):
                operations.append(Operation(Table.HOLDER, key, None))
            self._delete_accounts(first, operations)
        cut.gone = gone

    def _delete_accounts(self, first: int, operations: list[Operation]) -> None:
        """Delete what owners that are done with a frame said of it."""
        done = self._done.get(first)
        if done:
            operations += [
                Operation(Table.SETTLED, log_key(owner, SHARED_PARTITION, first), None) for owner in sorted(done)
            ]

    def _rewrite(self, first: int, rows: int, operations: list[Operation]) -> None:
        """Name those who still need a frame, in place of those who do not."""
        record = self._records.get(first) or (
            self.core.storage.get(Table.HOLDER, log_key(self.log_id, 0, first))
            if self._counts.has_record(first)
            else None
        )
        holders: dict[Rows, list[int]] = {}
        if record is None:
            holders[tuple(range(rows))] = [owner for owner, share in self.owners.items() if first in share.held]
        else:
            for owner, mine in Holders(record).items():
                share = self.owners.get(owner)
                if share is not None and first in share.held:
                    holders.setdefault(mine, []).append(owner)
        operations.append(Operation(Table.HOLDER, log_key(self.log_id, 0, first), encode_holders(holders)))
        self._counts.note_record(first)
        self._delete_accounts(first, operations)

    def committed_in_parts(self, token: SharedCut) -> Iterator[int]:
        """Have senders and owners learn that a cut is on disk, part by part; ``committed`` is called at the end."""
        self.visible = self.next_offset
        rows, token.rows = token.rows, []
        for row in rows:
            row.stored()
            yield len(row.entries) // 10  # type: ignore[attr-defined]  # it is shared
        owners, token.owners = token.owners, {}
        for share in owners:
            if self._has(share):
                share.written()
                yield OWNER_UNITS + ROW_UNITS * len(rows)

    def committed(self, token: SharedCut) -> None:
        """Note that a cut is on disk: its senders may forget it."""
        token.owners = {share: None for share in token.owners if self._has(share)}
        super().committed(token)
        for first in token.gone:
            self._counts.remove(first)
            self._done.pop(first, None)

    def _forget_frame(self, ref: FrameRef) -> None:
        if self._has(ref.share):
            ref.share.finished(ref)

    def _reopen_frame(self, ref: FrameRef) -> None:
        if not self._has(ref.share):
            return
        ref.share.reopened(ref)
        if ref.is_released:
            ref.is_released = False
            ref.share.held.add(ref.first, ref.first + ref.rows)
            self._counts.change(ref.first, 1)
            self._done.get(ref.first, set()).discard(ref.owner[0])

    def _undo(self, token: SharedCut) -> None:
        visible = self.visible
        for first, done in token.rewritten.items():
            # What was settled in the batch alone is not done.
            still = {owner for owner in done if owner not in self.owners or first not in self.owners[owner].held}
            self._done.setdefault(first, set()).update(still)
        for first in self._counts.within(visible, _END):
            self._done.pop(first, None)
        self._counts.remove_from(visible)
        gone = [*token.gone, *self._gone]
        self._gone = {first: None for first in gone if first < visible and not self._counts.get(first)}
        begun = {share: None for share in token.begun if self._has(share)}
        self._beginning = begun | self._beginning
        token.owners = {share: None for share in token.owners if self._has(share)}
        if (self._gone or self._beginning) and not self.is_closed:
            self.core.write(self)


def _rows_by_subscription(rows: Sequence[Any]) -> Iterator[tuple[Any, list[tuple[int, Entry]]]]:
    """Iterate over subscriptions with the rows that are for each, and its messages there."""
    entries = [row.entries for row in rows]
    done = 0
    if len(set(map(len, entries))) == 1:
        # Most often all go to the same ones.
        with suppress(KeyError):
            for subscription in entries[0]:
                yield subscription, list(enumerate([one[subscription] for one in entries]))
                done += 1
            return
    own: dict[Any, list[tuple[int, Entry]]] = {}
    for index, one in enumerate(entries):
        for subscription, entry in one.items():
            pairs = own.get(subscription)
            if pairs is None:
                pairs = own[subscription] = []
            pairs.append((index, entry))
    for subscription in list(islice(entries[0], done)):
        del own[subscription]
    yield from own.items()
