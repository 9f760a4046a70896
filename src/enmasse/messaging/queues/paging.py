"""The part of a queue or subscription that lies on disk only, and how it is read.

Rules:
1. On disk only is everything from one offset on; rows before it are in memory or settled. A few rows may
   have been taken ahead of their turn, for a selector or because they have expired.
2. Reading waits in another process (``Storage.fetch``), at most one read at a time: a page for receivers, then
   one for those who search all of it, so that neither waits for the other's end.
3. What is not known to be committed is never taken from disk.
   What was read is gone through from turn to turn (``jobs``), and the next read waits until that is done.
4. Of a log that is shared with others, only frames are read of which something is needed here, and little between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from enmasse.messaging.errors import DamagedFrameError
from enmasse.messaging.facts import known_facts
from enmasse.messaging.log.entry import (
    ENTRY_OVERHEAD_BYTES,
    OUT,
    ROW_BYTES,
    STAGED,
    WAITING,
    Entry,
    FrameRef,
    Payloads,
    attempts_of,
    guessed_bytes,
    settled_rows,
)
from enmasse.messaging.log.frame import FLAG_VOLATILE, Frame, frame_head
from enmasse.messaging.log.layout import log_key, log_range
from enmasse.messaging.log.shared_log import SharedLog
from enmasse.messaging.part import Part
from enmasse.messaging.queues.jobs import LOOK_UNITS, PIECE_UNITS, ROW_UNITS, TAKE_UNITS, Job, Search
from enmasse.messaging.queues.merging import Merging
from enmasse.messaging.queues.scheduled import Scheduled
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.log.message_log import MessageLog
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.selectors.selector import Selector


MAX_RESIDENT_BYTES = 64 << 20
"""Bytes of one address in memory, receivers' unsettled messages included, beyond which it reads no further."""

PAGE_BYTES = 1 << 20
"""Bytes that are read at once."""

GAP = 256
"""Offsets of messages for others that are read over, rather than read what lies behind them on its own."""

Page = Callable[[list[tuple[bytes, bytes]], list[bytes]], Job]
"""Goes through what was read: records by their keys, and keys of damaged ones."""


def nothing() -> None:
    """Do nothing: what was read was all that was to be done."""


class Pager(Part["Backlog"]):
    """The part on disk of one queue or subscription.

    Args:
        backlog: the part in memory.
        log: the log of the frames.
    """

    __slots__ = (
        "__weakref__",
        "_asked",
        "_estimated_below",
        "_is_receivers_turn",
        "_log",
        "_scan_at",
        "_sought",
        "at",
        "frame_at",
        "is_reading",
        "merging",
        "scheduled",
        "sweeps",
        "waiting",
    )

    def __init__(self, backlog: Backlog, log: MessageLog) -> None:
        super().__init__(backlog)
        self._log = log
        self.merging = Merging(backlog, log)
        self.scheduled = (Scheduled(self, backlog.core, is_dated=False), Scheduled(self, backlog.core, is_dated=True))
        self.at: int | None = None
        """The first offset that is on disk only; ``None`` where nothing is."""
        self.frame_at = 0
        """The frame in which it lies, or that follows."""
        self.is_reading = False
        self.sweeps = 0
        """Searches of the whole part on disk that are under way."""
        self.waiting: list[Callable[[], None]] = []
        """Callbacks that continue these, once it is their turn to read."""
        self._is_receivers_turn = False
        self._asked = 0
        """The first offset that was not known to be committed when the read that is under way was requested."""
        self._estimated_below = 0
        """Frames below have their bytes counted by guess."""
        self._sought: dict[str, Selector] = {}
        """The selectors for which the part on disk was searched, by their texts."""
        self._scan_at = 0
        """The offset up to which rows for receivers with selectors were searched."""

    @property
    def is_behind(self) -> bool:
        """True if messages that can be handed out have yet to come from disk."""
        if self.at is None:
            return False
        following = self._following(self.at)
        return following is not None and following < self._log.visible

    def _following(self, offset: int) -> int | None:
        """Return the first offset from this one on that may be needed."""
        share = self.whole.share
        if share is None or not isinstance(self._log, SharedLog):
            return offset
        return share.held.following(offset)

    def _skip(self) -> None:
        """Pass by what lies next on disk and is for others."""
        if self.at is None:
            return
        following = self._following(self.at)
        if following is None:
            following = self._log.visible
        if following > self.at:
            self.at = self.frame_at = following

    def span(self, first: int) -> tuple[int, int]:
        """Return from where to where to read a page that begins at an offset or behind it."""
        end = 1 << 63
        share = self.whole.share
        if share is None or not isinstance(self._log, SharedLog):
            return first, end
        start = share.held.following(first)
        return (first, first) if start is None else (start, share.held.reach(start, GAP))

    def is_for_others(self, frame: Frame) -> bool:
        """Return whether nothing of a frame is needed here."""
        share = self.whole.share
        return share is not None and isinstance(self._log, SharedLog) and frame.first_offset not in share.held

    def is_ahead(self, following: int) -> bool:
        """Return whether rows below an offset have yet to come from disk."""
        return self.at is not None and following > self.at

    # While messages are written

    def placed(self, first: int, row: int) -> None:
        """Note a row that is about to be written and not to stay in memory."""
        if self.at is None:
            self.at = first + row
            self.frame_at = first

    def written(self, flying: list[Entry]) -> None:
        """Note that rows that waited for it are on disk: with nothing older there they stay in memory."""
        backlog = self.whole
        waiting = [entry for entry in flying if entry.state in (WAITING, STAGED)]
        if not waiting:
            return
        frame = waiting[0].frame
        assert frame is not None
        self._skip()
        is_next = self.at is None or self.at >= frame.first
        if is_next and self._has_room() and not self.is_reading:
            for entry in waiting:
                assert entry.frame is not None
                backlog.frames.setdefault(entry.frame.first, entry.frame)
                backlog.add(entry)
            self._caught_up()
            return
        sizes: dict[FrameRef, int] = {}
        for entry in waiting:
            if entry.frame is not None:
                sizes[entry.frame] = sizes.get(entry.frame, 0) + len(entry.payload)
        for ref, size in sizes.items():
            if ref.first not in backlog.frames and ref.live == ref.rows:
                self.merging.left_memory(ref, size)

    def unwritten(self, visible: int) -> None:
        """Note that a cut is not on disk."""
        if self.at is not None and self.at >= visible:
            self.at = None

    def _caught_up(self) -> None:
        """Note that nothing is on disk only any more: new messages stay in memory, as long as there is room."""
        backlog = self.whole
        self.at = None
        backlog.is_spilling = False
        waiting, backlog.waiting = backlog.waiting, []
        for index, entry in enumerate(waiting):
            if entry.state == STAGED:
                backlog.waiting.append(entry)
            elif entry.state == WAITING:
                backlog.add(entry)
                if backlog.resident_bytes > backlog.window:
                    backlog.is_spilling = True
                    backlog.waiting += waiting[index + 1 :]
                    return

    # Coming back

    def load(self, first: int) -> None:
        """Start after a restart: everything from this offset on is on disk."""
        self.at = self.frame_at = first
        self._estimated_below = self._log.visible
        self.whole.is_spilling = True

    def _has_room(self) -> bool:
        backlog = self.whole
        return bool(backlog.options.last_value_key) or 2 * backlog.resident_bytes <= backlog.window

    def go_on(self) -> None:
        """Read a page, unless a read is under way: for receivers and for searches by turns."""
        if self.is_reading or self.merging.is_under_way:
            return
        self._is_receivers_turn = not self._is_receivers_turn
        if self.waiting and not self._is_receivers_turn:
            self.waiting.pop(0)()
        if not self.is_reading:
            self._read_on()
        if self.waiting and not self.is_reading:
            self.waiting.pop(0)()

    def _read_on(self) -> None:
        """Read on if there is room, or a receiver that nothing in memory suits."""
        if self.at is None:
            return
        backlog = self.whole
        self._skip()
        if self.at >= self._log.visible:
            if not backlog.is_flying:
                self._caught_up()
            return
        if backlog.options.last_value_key or backlog.is_trimming or (backlog.consumers and self._has_room()):
            self._fetch(self.frame_at, self._take_page)
            return
        starving = [c for c in backlog.consumers if c.port.credit > 0 and not c.is_blocked]
        if starving and backlog.resident_bytes < MAX_RESIDENT_BYTES and not self._seek(starving):
            self._fetch(self.frame_at, self._take_page)

    def _fetch(self, first: int, page: Page, done: Callable[[], None] = nothing) -> None:
        start, end = self.span(first)
        self.fetch(Table.FRAME, log_key(self.log_id, 0, start), log_key(self.log_id, 0, end), page, done)

    def fetch(self, table: Table, first: bytes, last: bytes, page: Page, done: Callable[[], None] = nothing) -> None:
        """Read a page; ``is_reading`` holds until all of it is gone through, and the address has its turn afterwards.

        Args:
            table: the table of the records.
            first: the first key.
            last: the key behind the last one.
            page: goes through what was read.
            done: called after that.
        """
        self.is_reading = True
        self._asked = self._log.visible
        backlog = self.whole
        limit = max(4_096, min(PAGE_BYTES, backlog.window // 4))

        def go_through(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> Job:
            try:
                yield from page(records, damaged)
            finally:
                self.is_reading = False
                # Whatever was read, others may have waited for their turn to read.
                backlog.due()
            done()

        def fetched(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
            backlog.do(go_through(records, damaged))

        backlog.core.storage.fetch(table, first, last, limit, fetched)

    @property
    def log_id(self) -> int:
        """The number of the log."""
        return self._log.log_id

    def wait(self, read: Callable[[], None]) -> None:
        """Call back when no read is under way, and receivers have had their turn."""
        if self.is_closed:
            read()
            return
        self.waiting.append(read)
        self.whole.due()

    @property
    def is_closed(self) -> bool:
        """True if the address was deleted, or what it had on disk."""
        return self.whole.is_closed or self.whole.pager is not self

    def close(self) -> None:
        """Close, as the address or its messages on disk were deleted: searches end."""
        waiting, self.waiting = self.waiting, []
        for read in waiting:
            read()

    def forget(self, first: int) -> None:
        """Forget a frame that was deleted."""
        for scheduled in self.scheduled:
            scheduled.forget(first)

    def times_of(self, frame: Frame) -> Sequence[int]:
        """Return the arrival times of a frame's messages, by the core's steady clock."""
        return self._log.times(frame)

    def bring(self, entry: Entry) -> None:
        """Bring a message that was left on disk into memory."""
        self.whole.add(entry)

    @staticmethod
    def attempts_of(ref: FrameRef, row: int) -> int:
        """Return the failed deliveries of a row."""
        return ref.attempts.get(row, 0) if ref.attempts else 0

    def _take_page(self, records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> Job:
        """Bring what was read into memory."""
        backlog = self.whole
        if not self._is_open() or self.at is None:
            return
        reached = self.at if records or damaged else self._next_frame(self.frame_at)
        for key in damaged:
            reached = max(reached, self.lose(key))
        for _, value in records:
            frame = Frame(value, verify=False)
            if frame.first_offset >= self._log.visible:
                break
            yield from self._take(frame)
            if not self._is_open():
                return
            reached = max(reached, frame.next_offset)
        self.at = self.frame_at = max(self.at, reached)
        for first in [first for first, ref in backlog.frames.items() if not ref.live and first < self.at]:
            del backlog.frames[first]

    def _is_open(self) -> bool:
        """Return whether there still is a part on disk: it may have ended since a job was last here."""
        return not self.is_closed and self.at is not None

    def _next_frame(self, first: int) -> int:
        """Return where the next frame on disk begins, after a page that held nothing.

        What filled the page when it was asked for may have been deleted since, and more may follow.
        """
        keys = log_key(self.log_id, 0, first), log_range(self.log_id, 0)[1]
        for key, _, _ in self.whole.core.storage.heads(Table.FRAME, *keys):
            return int.from_bytes(key[-8:], "big")
        return self._asked

    def _take(self, frame: Frame) -> Job:
        """Bring a frame's rows into memory."""
        backlog = self.whole
        if self.is_forgotten(frame) or self.is_for_others(frame):
            return
        ref = self.ref_of(frame)
        if ref.live:
            backlog.frames[ref.first] = ref
        payloads = ref.payloads(frame)
        self._correct(frame, ref, payloads)
        times = self._log.times(frame)
        # A row's head says what it asks for, and most ask for nothing.
        heads = frame.cells(frame.heads)
        plain = {head for head in set(heads) if known_facts(head).is_plain}
        while rows := ref.rows_left(max(0, (self.at or 0) - frame.first_offset)):
            piece = rows[: PIECE_UNITS // ROW_UNITS]
            is_special = (
                backlog.timing.is_wanted or backlog.order is not None or bool(ref.attempts) or ref.own is not None
            )
            for row in piece:
                if is_special or heads[row] not in plain:
                    self._take_row(ref, row, payloads[row], times[row])
                else:
                    self._take_plain(ref, row, payloads[row])
            self.at, self.frame_at = frame.first_offset + piece[-1] + 1, frame.first_offset
            yield len(piece) * ROW_UNITS
            if self.is_closed or self.at is None:
                return
        ref.taken = None
        if not ref.live:
            self._log.touch(ref)

    def _take_plain(self, ref: FrameRef, row: int, payload: bytes) -> None:
        """Bring a row into memory that asks for nothing."""
        backlog = self.whole
        entry = Entry(payload, None, 0)
        entry.frame = ref
        entry.row = row
        backlog.seq = entry.seq = backlog.seq + 1
        backlog.resident_bytes += len(payload) + ENTRY_OVERHEAD_BYTES
        backlog.line_up(entry)

    def _take_row(self, ref: FrameRef, row: int, payload: bytes, since_us: int) -> None:
        """Bring a row into memory, unless its time is far away."""
        if any(scheduled.leave(ref, row, payload, since_us) for scheduled in self.scheduled):
            self.whole.timing.is_wanted = True
        else:
            self.whole.add(self.make(ref, row, payload, since_us))

    def make(self, ref: FrameRef, row: int, payload: bytes, since_us: int) -> Entry:
        """Make an entry for a row; it is not in memory yet."""
        backlog = self.whole
        facts = known_facts(payload)
        if facts.is_plain and not backlog.timing.is_wanted:
            entry = Entry(payload, None, 0)
        else:
            entry = backlog.timing.make_entry(payload, None, 0, facts, since_us)
        entry.frame = ref
        entry.row = row
        if ref.attempts:
            entry.attempts = ref.attempts.get(row, 0)
        return entry

    def is_forgotten(self, frame: Frame) -> bool:
        """Return whether a frame's messages ended with an earlier start of the node; it is about to be deleted."""
        return frame.is_volatile and frame.first_offset < self._estimated_below

    def ref_of(self, frame: Frame) -> FrameRef:
        """Return what is settled of a frame, as far as this process or the journal knows."""
        return self._ref_at(frame.first_offset, frame.rows, is_volatile=frame.is_volatile)

    def _ref_at(self, first: int, rows: int, *, is_volatile: bool) -> FrameRef:
        backlog = self.whole
        known = backlog.frames.get(first)
        if known is not None:
            return known
        log = self._log
        if isinstance(log, SharedLog) and backlog.share is not None:
            own = log.rows_of(backlog.share, first)
            if own is not None and len(own) == rows:
                own = None
            ref = FrameRef(log, backlog.owner, first, rows, own, backlog.share)
        else:
            ref = FrameRef(log, backlog.owner, first, rows)
        ref.is_exact = ref.first >= self._estimated_below
        ref.is_volatile = is_volatile
        key = log_key(*backlog.owner, ref.first)
        storage = backlog.core.storage
        settled = storage.get(Table.SETTLED, key)
        if settled:
            gone = settled_rows(settled)
            ref.settled = sorted(gone if ref.own is None else gone.intersection(ref.own))
            ref.live -= len(ref.settled)
            ref.settled_cut = len(ref.settled)
            ref.has_record = True
        attempts = storage.get(Table.ATTEMPTS, key)
        if attempts:
            gone = set(ref.settled)
            ref.attempts = {row: count for row, count in attempts_of(attempts).items() if row not in gone}
            ref.has_attempts = True
        return ref

    def _correct(self, frame: Frame, ref: FrameRef, payloads: Payloads) -> None:
        """Count the bytes of a frame that were guessed when the node started."""
        if ref.is_exact:
            return
        ref.is_exact = True
        gone = set(ref.settled)
        rows = range(ref.rows) if ref.own is None else ref.own
        exact = sum(len(payloads[row]) + ROW_BYTES for row in rows if row not in gone)
        self.whole.count_bytes(exact - guessed_bytes(len(frame.data), frame.rows, ref.live))

    def lose(self, key: bytes) -> int:
        """Lose the messages of a damaged frame, and return the next offset."""
        backlog = self.whole
        first = int.from_bytes(key[-8:], "big")
        for _, head, size in backlog.core.storage.heads(Table.FRAME, key, key + b"\0"):
            _, rows, _, _ = frame_head(head)
            ref = backlog.frames.get(first)
            live = self._live_rows(first, rows) if ref is None else ref.live
            if not live:
                return first + rows
            backlog.depth -= live
            backlog.damaged += live
            if first < self._estimated_below:
                backlog.count_bytes(-guessed_bytes(size, rows, live))
            backlog.core.report(
                backlog.name,
                DamagedFrameError(f"{live} messages of {backlog.name!r} in the frame at offset {first} are damaged"),
            )
            return first + rows
        return first + 1

    def _live_rows(self, first: int, rows: int) -> int:
        """Return how many rows are needed of a frame that cannot be read."""
        share, log = self.whole.share, self._log
        if share is None or not isinstance(log, SharedLog):
            return rows
        if first not in share.held:
            return 0
        own = log.rows_of(share, first)
        settled = settled_rows(self.whole.core.storage.get(Table.SETTLED, log_key(*share.owner, first)) or b"")
        return rows - len(settled) if own is None else len(set(own) - settled)

    # Taking rows ahead of their turn

    def _seek(self, starving: list[Consumer]) -> bool:
        """Search on disk for what receivers with selectors want; false if one of them takes anything."""
        selectors = [getattr(consumer, "selector", None) for consumer in starving]
        wanted = {selector.text: selector for selector in selectors if selector is not None}
        if None in selectors:
            return False
        attached = {selector.text for c in self.whole.consumers if (selector := getattr(c, "selector", None))}
        self._sought = {text: selector for text, selector in self._sought.items() if text in attached}
        if not wanted.keys() <= self._sought.keys():
            # What was passed by for others may be what these want.
            self._scan_at = 0
            self._sought |= wanted
        chosen = tuple(self._sought.values())

        def chooses(payload: bytes, attempts: int, _since_us: int, _offset: int) -> bool:
            return any(selector.matches(payload, attempts) for selector in chosen)

        def cost(payload: bytes) -> int:
            return LOOK_UNITS + sum(selector.cost(payload) for selector in chosen)

        def found(position: int) -> None:
            self._scan_at = position
            self.whole.due()

        self._scan_at = max(self._scan_at, self.frame_at)
        if self._scan_at < self._log.visible:
            self._pick(self._scan_at, Search(chooses, self.whole.add, cost), found)
        return True

    def sweep(self, search: Search, done: Callable[[], None]) -> None:
        """Take every row that is chosen from the part on disk, a page at a time.

        Args:
            search: the choice of messages; no receiver can be given what it takes.
            done: called when everything was searched, or nobody needs the rest.
        """

        def take(entry: Entry) -> None:
            assert entry.frame is not None
            entry.state = OUT
            # One that is given back has its place before all that is in memory.
            entry.seq = entry.frame.first + entry.row - (1 << 62)
            self.whole.resident_bytes += len(entry.payload) + ENTRY_OVERHEAD_BYTES
            search.take(entry)

        def ended() -> None:
            self.sweeps -= 1
            done()

        self.sweeps += 1
        own = search._replace(take=take)
        self.wait(lambda: self._sweep_on(self.frame_at, own, ended))

    def _sweep_on(self, position: int, search: Search, done: Callable[[], None]) -> None:
        """Search on from an offset."""
        if self.is_closed or not search.is_wanted():
            done()
        elif self.at is None or position >= self._log.visible:
            delayed, dated = self.scheduled
            delayed.sweep(search, lambda: dated.sweep(search, done))
        else:
            # Others read meanwhile; what they bring into memory is searched there.
            self._pick(
                max(position, self.frame_at), search, lambda at: self.wait(lambda: self._sweep_on(at, search, done))
            )

    def _pick(self, first: int, search: Search, done: Callable[[int], None]) -> None:
        """Take the chosen rows of one page; ``done`` is called with the start of the next page."""
        following = self._following(first)
        if following is None or following >= self._log.visible:
            done(self._log.visible)
            return
        position = following

        def page(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> Job:
            nonlocal position
            if not (records or damaged):
                position = self._next_frame(following)
            for key in damaged:
                position = max(position, int.from_bytes(key[-8:], "big") + 1)
            for _, value in records:
                frame = Frame(value, verify=False)
                if self.is_closed or self.at is None or frame.first_offset >= self._log.visible:
                    position = self._log.visible
                    break
                yield from self._pick_rows(frame, search)
                position = max(position, frame.next_offset)

        self._fetch(following, page, lambda: done(position))

    def _pick_rows(self, frame: Frame, search: Search) -> Job:
        if self.is_forgotten(frame) or self.is_for_others(frame):
            return
        times, payloads = self._log.times(frame), self.ref_of(frame).payloads(frame)
        following, is_all = frame.first_offset, False
        while not (is_all or self.is_closed or self.at is None) and search.is_wanted():
            # What is settled of it may have changed.
            ref = self.ref_of(frame)
            spent, is_all = 0, True
            for row in ref.rows_left(max(self.at, following) - frame.first_offset):
                if spent >= PIECE_UNITS:
                    is_all = False
                    break
                payload, following = payloads[row], frame.first_offset + row + 1
                if search.chooses(payload, self.attempts_of(ref, row), times[row], following - 1):
                    self._correct(frame, ref, payloads)
                    if ref.taken is None:
                        ref.taken = set()
                    ref.taken.add(row)
                    self.whole.frames[ref.first] = ref
                    search.take(self.make(ref, row, payload, times[row]))
                    spent += TAKE_UNITS
                spent += search.cost(payload)
            yield spent

    # Rows that a client has, and which it is sent again when it comes back

    def reserve(self, first: int, row: int) -> bool:
        """Keep a row on disk from being handed out in its turn.

        Args:
            first: the first offset of its frame.
            row: its row there.

        Returns:
            False if it is settled, or in memory.
        """
        key = log_key(self.log_id, 0, first)
        for _, head, _ in self.whole.core.storage.heads(Table.FRAME, key, key + b"\0"):
            _, rows, _, flags = frame_head(head)
            ref = self._ref_at(first, rows, is_volatile=bool(flags & FLAG_VOLATILE))
            if ref.is_volatile or self.at is None or first + row < self.at or row not in ref.rows_left():
                return False
            if ref.taken is None:
                ref.taken = set()
            ref.taken.add(row)
            self.whole.frames[first] = ref
            return True
        return False

    def recall(
        self, rows: dict[int, set[int]], take: Callable[[int, int, Entry], None], done: Callable[[], None]
    ) -> None:
        """Read rows that were reserved.

        Args:
            rows: those of each frame, by its first offset.
            take: called with each: the first offset, the row, and the message, which is out as if handed out.
            done: called when all were read; one that is settled meanwhile, or cannot be read, is left out.
        """
        self._recall_on(sorted(rows, reverse=True), rows, take, done)

    def _recall_on(
        self,
        firsts: list[int],
        rows: dict[int, set[int]],
        take: Callable[[int, int, Entry], None],
        done: Callable[[], None],
    ) -> None:
        """Read on with the last of the frames that are left."""
        if not firsts or self.is_closed:
            done()
            return
        first = firsts.pop()

        def read_on() -> None:
            self._recall_on(firsts, rows, take, done)

        self.wait(lambda: self._recall(first, rows[first], take, read_on))

    def _recall(
        self, first: int, rows: set[int], take: Callable[[int, int, Entry], None], done: Callable[[], None]
    ) -> None:
        if self.is_closed:
            done()
            return
        key = log_key(self.log_id, 0, first)

        def page(records: list[tuple[bytes, bytes]], _damaged: list[bytes]) -> Job:
            for _, value in () if self.is_closed else records:
                frame = Frame(value, verify=False)
                ref = self.ref_of(frame)
                times = self._log.times(frame)
                payloads = ref.payloads(frame)
                self._correct(frame, ref, payloads)
                self.whole.frames[first] = ref
                for row in sorted(rows.difference(ref.settled)):
                    entry = self.make(ref, row, payloads[row], times[row])
                    entry.state = OUT
                    # Its place is before all that was read in turn.
                    entry.seq = first + row - (1 << 62)
                    self.whole.resident_bytes += len(entry.payload) + ENTRY_OVERHEAD_BYTES
                    take(first, row, entry)
                yield frame.rows

        self.fetch(Table.FRAME, key, key + b"\0", page, done)

    def leave(self, entry: Entry) -> None:
        """Forget a row that was recalled: it stays reserved, on disk."""
        self.whole.resident_bytes -= len(entry.payload) + ENTRY_OVERHEAD_BYTES
