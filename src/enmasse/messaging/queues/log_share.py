"""The rows of a log that are for one queue or subscription: what is written of them, and what a failure undoes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from enmasse.messaging.log.entry import (
    DONE,
    STAGED,
    Entry,
    FrameRef,
    VolatileRow,
    guessed_bytes,
)
from enmasse.messaging.log.frame_sets import FrameRanges
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.part import Part

if TYPE_CHECKING:
    from enmasse.messaging.queues.backlog import Backlog


class LogShare(Part["Backlog"]):
    """A queue or subscription as an owner of rows in a log.

    Args:
        backlog: the queue or subscription.
        log: the log.
    """

    __slots__ = ("_flying", "_log", "_staying", "held", "owner")

    def __init__(self, backlog: Backlog, log: MessageLog) -> None:
        super().__init__(backlog)
        self._log = log
        self.owner = backlog.owner
        self._flying: list[Entry] = []
        """Messages in a frame that is on its way to the disk, which leave memory once it is written."""
        self._staying: list[Entry] = []
        """Messages in such a frame that stay in memory."""
        self.held = FrameRanges()
        """The frames of a log shared with others of which something is needed, in memory or on disk."""

    @property
    def is_flying(self) -> bool:
        """True while messages that left memory are on their way to the disk."""
        return bool(self._flying)

    def placed(self, first: int, rows: Sequence[Any]) -> FrameRef | None:
        """Take note of a frame with these rows that is about to be written."""
        backlog = self.whole
        ref = FrameRef(self._log, self.owner, first, len(rows))
        if not (backlog.is_shared or backlog.is_spilling or backlog.waiting) and type(rows[0]) is not VolatileRow:
            for index, entry in enumerate(rows):
                entry.frame = ref
                entry.row = index
                if entry.attempts:
                    ref.note_attempts(index, entry.attempts)
            ref.note_receivers([entry.sink for entry in rows])
            backlog.frames[first] = ref
            return ref
        ref.is_volatile = not rows[0].is_durable
        entries = [(index, backlog.entry_of(row)) for index, row in enumerate(rows)]
        left = self._place(ref, entries)
        if left != len(rows):
            ref.settled = [index for index, entry in entries if entry.state == DONE]
            ref.live = left
        self.depart()
        return ref

    def placed_rows(
        self, first: int, rows: int, entries: Sequence[tuple[int, Entry]], *, is_durable: bool
    ) -> FrameRef | None:
        """Take note of a frame of a shared log that is about to be written.

        Args:
            first: its first offset.
            rows: the number of its rows.
            entries: those that were meant for this subscription, with their messages.
            is_durable: whether it is to survive a restart.

        Returns:
            What is kept of the frame; ``None`` if all that was meant for it is done with.
        """
        ref = FrameRef(self._log, self.owner, first, rows, share=self)
        ref.is_volatile = not is_durable
        left = self._place(ref, entries)
        if not left:
            return None
        if left != rows:
            ref.own = tuple([index for index, entry in entries if entry.state != DONE])
            ref.live = left
        self.held.add(first, first + rows)
        return ref

    def _place(self, ref: FrameRef, entries: Sequence[tuple[int, Entry]]) -> int:
        """Note in messages which rows of a frame they are; return how many are not done with."""
        backlog = self.whole
        first = ref.first
        out: list[int] = []
        left = 0
        is_needed = False
        pager = backlog.pager
        for index, entry in entries:
            if entry.state == DONE:
                continue
            left += 1
            entry.frame = ref
            entry.row = index
            if entry.sink is not None:
                out.append(index)
            if entry.attempts:
                ref.note_attempts(index, entry.attempts)
            if entry.is_resident:
                is_needed = True
                if pager is not None and pager.at is not None:
                    # Among rows that leave memory, this one is not read from disk again.
                    ref.taken = ref.taken or set()
                    ref.taken.add(index)
            elif backlog.is_spilling and pager is not None:
                pager.placed(first, index)
        if out and not ref.is_volatile:
            if len(out) == ref.rows:
                ref.note_out([0, ref.rows])
            else:
                ref.note_rows_out(out)
        # Of a shared log nothing is kept where nothing is left.
        if is_needed or (not backlog.is_spilling and (left or ref.share is None)):
            backlog.frames[first] = ref
        return left

    def depart(self) -> None:
        """Note that the messages which wait for the disk are on their way to it."""
        backlog = self.whole
        if backlog.waiting:
            flying = self._flying if backlog.is_spilling else self._staying
            flying += backlog.waiting
            backlog.waiting = []

    # The start

    @property
    def begins(self) -> int:
        """The offset in the log at which its messages begin."""
        return self.whole.first_offset

    def begin(self, offset: int) -> None:
        """Begin with an offset of the log: what is below is not for it."""
        self.whole.first_offset = offset

    def found(self, rows: int, live: int, size: int) -> None:
        """Count the rows that are left of a frame which is on disk when the node starts."""
        self.found_messages(live, guessed_bytes(size, rows, live))

    def found_messages(self, count: int, size: int) -> None:
        """Count messages that are on disk when the node starts."""
        self.whole.depth += count
        self.whole.count_bytes(size)

    # Commits

    def finished(self, ref: FrameRef) -> None:
        """Forget a frame of which all is settled on disk."""
        backlog = self.whole
        if backlog.pager is not None:
            backlog.pager.forget(ref.first)
        # One that was finished ahead of its page is remembered until that page's turn; in a log that is shared, it
        # counts no more among those that are read.
        if ref.share is not None or backlog.pager is None or not backlog.pager.is_ahead(ref.first + ref.rows):
            backlog.frames.pop(ref.first, None)

    def reopened(self, ref: FrameRef) -> None:
        """Keep a frame of which a row is settled no more; it may have been taken for done with meanwhile."""
        self.whole.frames[ref.first] = ref

    def written(self) -> None:
        """Note that a cut is on disk: what waited for that can be handed out, or leaves memory."""
        backlog = self.whole
        if self._staying:
            staying, self._staying = self._staying, []
            for entry in staying:
                if entry.state == STAGED:
                    backlog.add(entry)
            if (
                backlog.pager is not None
                and backlog.resident_bytes > backlog.window
                and not backlog.options.last_value_key
            ):
                backlog.is_spilling = True
            backlog.due()
        if self._flying:
            flying, self._flying = self._flying, []
            assert backlog.pager is not None
            backlog.pager.written(flying)
            backlog.due()

    def unwritten(self) -> None:
        """Note that a cut is not on disk."""
        backlog = self.whole
        first = self._log.visible
        self.held.remove_from(first)
        for offset in [offset for offset in backlog.frames if offset >= first]:
            del backlog.frames[offset]
        backlog.waiting = self._staying + self._flying + backlog.waiting
        self._staying = []
        self._flying = []
        if backlog.pager is not None:
            backlog.pager.unwritten(first)

    def lost(self) -> None:
        """Forget what was given back to senders, as it is not on disk."""
        backlog = self.whole
        if backlog.waiting:
            backlog.waiting = [entry for entry in backlog.waiting if entry.state != DONE]
