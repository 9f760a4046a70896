"""How a queue or subscription takes part in its log: what is written, what is settled, what a failure undoes.

A row is settled in the frame that holds it; a message that was finished with before its frame was cut is
never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.messaging.holding import Holding
from enmasse.messaging.message_log import MessageLog
from enmasse.messaging.paging import guessed_bytes
from enmasse.messaging.queue_entry import DONE, MOVING, STAGED, Entry, FrameRef, VolatileRow
from enmasse.messaging.transaction import Fate

if TYPE_CHECKING:
    from enmasse.messaging.core import Log

__all__ = ["Journaled"]


class Journaled(Holding):
    """What a queue or subscription holds, as an owner of rows in a log."""

    is_shared = False
    """Whether others have messages in its log."""
    __slots__ = ()

    @property
    def is_flying(self) -> bool:
        """Whether messages that left memory are on their way to the disk."""
        return bool(self._flying)

    def placed(self, first: int, rows: Sequence[Any]) -> FrameRef | None:
        """A frame with these rows is about to be written."""
        assert self.log is not None
        ref = FrameRef(self.log, self.owner, first, len(rows))
        if not (self.is_shared or self.is_spilling or self.waiting) and type(rows[0]) is not VolatileRow:
            for index, entry in enumerate(rows):
                entry.frame = ref
                entry.row = index
                if entry.attempts:
                    ref.note_attempts(index, entry.attempts)
            ref.note_receivers([entry.sink for entry in rows])
            self.frames[first] = ref
            return ref
        ref.is_volatile = not rows[0].is_durable
        sinks: list[Any] = [None] * len(rows)
        is_needed = False
        pager = self.pager
        for index, row in enumerate(rows):
            entry = self.entry_of(row)
            if entry is None or entry.state == DONE:
                ref.settled.append(index)
                ref.live -= 1
                continue
            entry.frame = ref
            entry.row = index
            sinks[index] = entry.sink
            if entry.attempts:
                ref.note_attempts(index, entry.attempts)
            if entry.is_resident:
                is_needed = True
                if pager is not None and pager.at is not None:
                    # Among rows that leave memory, this one does not come back from disk.
                    ref.taken = ref.taken or set()
                    ref.taken.add(index)
            elif self.is_spilling and pager is not None:
                pager.placed(first, index)
        if not ref.is_volatile:
            ref.note_receivers(sinks)
        if is_needed or not self.is_spilling:
            self.frames[first] = ref
        if self.waiting:
            flying = self._flying if self.is_spilling else self._staying
            flying += self.waiting
            self.waiting = []
        return ref

    def entry_of(self, row: Any) -> Entry | None:
        """This address's entry for a row of its log."""
        entry: Entry = row.entry if type(row) is VolatileRow else row
        return entry

    def found(self, first: int, rows: int, live: int, size: int) -> bool:
        """A frame is on disk when the node starts; returns whether anything of it is needed."""
        if not live:
            return False
        self.depth += live
        self.count_bytes(guessed_bytes(size, rows, live))
        return True

    def is_done_with(self, first: int, following: int) -> bool:
        """Whether nothing of a frame is needed any more."""
        ref = self.frames.get(first)
        if ref is not None:
            return ref.live == 0
        return self.pager is None or not self.pager.is_ahead(following)

    def finished(self, ref: FrameRef) -> None:
        """All of a frame is settled, and that is on disk."""
        if self.pager is not None:
            self.pager.forget(ref.first)
        # One that was finished ahead of its page is remembered until that page's turn.
        if self.pager is None or not self.pager.is_ahead(ref.first + ref.rows):
            self.frames.pop(ref.first, None)

    def reopened(self, ref: FrameRef) -> None:
        """A row of a frame that counted as settled is not; it may have been taken for done with meanwhile."""
        self.frames[ref.first] = ref

    def written(self) -> None:
        """What was cut is on disk: what waited for that can be handed out, or leaves memory."""
        if self._staying:
            staying, self._staying = self._staying, []
            for entry in staying:
                if entry.state == STAGED:
                    self.add(entry)
            if self.pager is not None and self.resident_bytes > self.window and not self.options.last_value_key:
                self.is_spilling = True
            self.due()
        if self._flying:
            flying, self._flying = self._flying, []
            assert self.pager is not None
            self.pager.written(flying)
            self.due()

    def unwritten(self) -> None:
        """What was cut is not on disk."""
        assert self.log is not None
        first = self.log.visible
        for offset in [offset for offset in self.frames if offset >= first]:
            del self.frames[offset]
        self.waiting = self._staying + self._flying + self.waiting
        self._staying = []
        self._flying = []
        if self.pager is not None:
            self.pager.unwritten(first)

    def lose(self, row: Any) -> bool:
        """A row is not on disk: its sender is to send again, unless it was told already that it need not."""
        entry = self.entry_of(row)
        if entry is None or entry.state == DONE:
            return False
        entry.frame = None
        if entry.producer is None:
            return True
        if entry.sink is not None or entry.state == MOVING:
            entry.is_refused = True
            return False
        self.refuse(entry)
        return False

    def memory_log(self) -> MessageLog:
        """What transactions of an address that writes nothing are decided with."""
        if self._memory_log is None:
            self._memory_log = MessageLog(self.core, self, 0)
        return self._memory_log

    def enlist_settlement(self, entry: Any, done: Callable[[str | None], None]) -> Log | None:
        """Have a message that a receiver has removed with the next batch, or left as it is if that fails.

        Args:
            entry: the message, or a browser's copy of it.
            done: told once that is decided.

        Returns:
            What is written; ``None`` for a copy, which is the browser's own.
        """
        if not isinstance(entry, Entry):
            return None
        log = entry.frame.log if entry.frame is not None else self.log or self.memory_log()
        if log.is_closed:
            # The topic was deleted, and what its subscriptions had of it.
            return Fate(self.name, done)

        def decided(problem: str | None) -> None:
            if problem is not None and log.is_closed:
                done(None)
                return
            if problem is None:
                if entry.sink is not None:
                    entry.sink.unsettled -= 1
                    entry.sink = None
                self.settle(entry)
            done(problem)

        log.stage_settlement(entry, decided)
        return log
