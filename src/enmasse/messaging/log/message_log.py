"""The frames of a queue, or of a topic for all its subscriptions (``shared_log``): written once, deleted when done.

Rules:
1. What one turn brought is one frame (more where it would be too large, or where messages that a restart
   forgets follow others). Offsets are given when a frame is cut and taken back if its commit fails.
2. A row is what the journal keeps of a message: ``payload``, and the sender that waits for its commit.
3. An owner (queue, subscription) has an account of settled rows. A frame is deleted in the same batch that finds
   its owner done with it, or the last of its owners.
4. A settlement of a transaction is undone if its batch fails; any other is a fact and is written again.
5. A numbered message is written with its producer's sequence in one batch, and handed out only then.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.message.outcomes import ACCEPTED
from enmasse.messaging.log.entry import DONE, Entry, FrameRef, encode_attempts, settled_rows
from enmasse.messaging.log.frame import FLAG_VOLATILE, encode_frame, frame_head, split_payload
from enmasse.messaging.log.layout import FRAME_BYTES, FRAME_ROWS, by_frame, by_name, log_key, log_range
from enmasse.messaging.log.sequences import Sequences
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.log.frame import Frame


_EMPTY = b""
_IS_DURABLE = attrgetter("is_durable")

Done = Callable[[str | None], None]


class Row(Protocol):
    """A message that is to be written: an entry of a queue, or what several subscriptions share."""

    payload: bytes
    body_at: int

    @property
    def state(self) -> int:
        """``DONE`` once it need not be handed out any more."""

    @property
    def is_durable(self) -> bool:
        """True if it is to survive a restart."""

    def stored(self) -> None:
        """Note that it is on disk."""


class Home(Protocol):
    """The address to which a log belongs."""

    name: str

    def lose(self, row: Any) -> bool:
        """Undo the storing of a row that could not be written; return whether the log is to write it again."""


class Owner(Protocol):
    """An owner of rows in a log: a queue, or one of a topic's subscriptions."""

    owner: tuple[int, int]

    def placed(self, first: int, rows: Sequence[Row]) -> FrameRef | None:
        """Take note of a frame with these rows that is about to be written; return what the owner keeps of it."""

    def finished(self, ref: FrameRef) -> None:
        """Forget a frame of which all is settled on disk."""

    def reopened(self, ref: FrameRef) -> None:
        """Keep a frame of which a row is settled no more, as its transaction failed."""

    def written(self) -> None:
        """Note that the frames of the last batch are on disk."""

    def unwritten(self) -> None:
        """Note that the frames of the last batch are not on disk; offsets are as before it."""

    def lost(self) -> None:
        """Forget what was given back to senders, as it is not on disk."""

    def found(self, rows: int, live: int, size: int) -> None:
        """Count the rows that are left of a frame which is on disk when the node starts."""


class Cut:
    """The part of one batch that belongs to a log."""

    __slots__ = ("dones", "frames", "home", "owners", "rows", "sequences", "settled")

    def __init__(self) -> None:
        self.home: Any = None
        """The address: what comes of the batch concerns it, whoever else has left it meanwhile."""
        self.rows: list[Row] = []
        self.owners: dict[Any, None] = {}
        """Those who have rows in the frames that were cut."""
        self.frames: list[FrameRef] = []
        """The frames whose settled rows were written."""
        self.settled: list[tuple[Entry, Done]] = []
        self.dones: list[Done] = []
        self.sequences: dict[bytes, set[int]] | None = None


class MessageLog:
    """A log of messages.

    Args:
        core: the core whose batches it is written with.
        home: the address.
        log_id: under which its frames are kept.
    """

    __slots__ = (
        "_coming", "_dones", "_fresh", "_fresh_bytes", "_home", "_settling", "_shifts", "_touched", "core",
        "is_closed", "log_id", "next_offset", "owner", "sequences", "visible",
    )  # fmt: skip

    def __init__(self, core: Core, home: Home, log_id: int) -> None:
        self.core = core
        # It has this log; that both are gone at once, this does not have it.
        self._home = weakref.ref(home)
        self.log_id = log_id
        self.owner: Owner | None = None
        """The owner of these messages; a log that several owners share has none."""
        self.next_offset = 0
        """The offset that the next row is given."""
        self.visible = 0
        """The offset below which everything is committed."""
        self.is_closed = False
        self.sequences: Sequences | None = None
        """The sequences of numbered producers, once there was one."""
        self._coming: dict[bytes, set[int]] | None = None
        """The sequences that the next batch brings."""
        self._fresh: list[Row] = []
        """Rows that no frame holds yet."""
        self._fresh_bytes = 0
        self._touched: list[FrameRef] = []
        """Frames whose settled rows are not written yet."""
        self._settling: list[tuple[Entry, Done]] = []
        """Settlements that stand or fall with the next batch."""
        self._dones: list[Done] = []
        self._shifts: list[tuple[int, int]] = [(0, 0)]
        """Offsets from which on messages were written after the wall clock had been set, and by how much."""

    @property
    def name(self) -> str:
        """The address's name."""
        home = self._home()
        return "an address that was deleted" if home is None else home.name

    def belongs_to(self, home: object) -> bool:
        """Return whether it is the log of an address, and not of its topic."""
        return self._home() is home

    def adopt(self, owner: Any) -> None:
        """Take the owner of the messages."""
        self.owner = owner

    def is_owned_by(self, owner: object) -> bool:
        """Return whether nobody else has messages here."""
        return self.owner is owner

    def load(self) -> tuple[int | None, list[Operation]]:
        """Load what the journal holds, before anything else is done; ``found`` of the owner is called for each frame.

        Returns:
            The first offset that the owner needs, and the operations that delete messages that a restart forgets,
            and frames that it does not need.
        """
        storage = self.core.storage
        owner = self.owner
        assert owner is not None
        settled = by_frame(storage, Table.SETTLED, *owner.owner)
        needed: int | None = None
        deleted: list[Operation] = []
        for key, start, _ in storage.heads(Table.FRAME, *log_range(self.log_id)):
            first, rows, size, flags = frame_head(start)
            self.next_offset = self.visible = max(self.next_offset, first + rows)
            live = rows - len(settled_rows(settled.get(first, b"")))
            if live and not flags & FLAG_VOLATILE:
                owner.found(rows, live, size)
                needed = first if needed is None else needed
            else:
                own = log_key(*owner.owner, first)
                deleted.append(Operation(Table.FRAME, key, None))
                deleted += [Operation(Table.SETTLED, own, None), Operation(Table.ATTEMPTS, own, None)]
        self.load_sequences()
        return needed, deleted

    def load_sequences(self) -> None:
        """Load the sequences of numbered producers."""
        known = list(by_name(self.core.storage, Table.PRODUCER, self.log_id))
        if known:
            self.sequences = Sequences()
            self.sequences.load(known)

    def add(self, row: Row) -> None:
        """Have a message written with the next batch."""
        if not self._fresh:
            self.core.write(self)
        self._fresh.append(row)
        self._fresh_bytes += len(row.payload)
        self.core.gathered_bytes += len(row.payload)

    def touch(self, ref: FrameRef) -> None:
        """Have what is settled of a frame written with the next batch."""
        if not ref.is_touched and not self.is_closed:
            ref.is_touched = True
            self._touched.append(ref)
            self.core.write(self)

    def stage_settlement(self, entry: Entry, done: Done) -> None:
        """Have an entry removed with the next batch, or left as it is if that fails."""
        self._settling.append((entry, done))
        self.core.write(self)

    def stage(self, done: Done) -> None:
        """Call ``done`` with the outcome of the next batch."""
        self._dones.append(done)
        self.core.write(self)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was settled by now is on disk."""

        def decided(problem: str | None) -> None:
            if problem is None or self.is_closed:
                done()
            else:
                self.confirm(done)

        self.stage(decided)

    def times(self, frame: Frame) -> Sequence[int]:
        """Return the arrival times of a frame's rows by the core's steady clock; frames bear the wall clock's."""
        times = frame.timestamps()
        if len(self._shifts) > 1:
            for row, time in enumerate(times):
                place = bisect_right(self._shifts, frame.first_offset + row, key=itemgetter(0))
                times[row] = time - self._shifts[place - 1][1]
        return times

    # Numbered messages

    def knows(self, producer: bytes, sequence: int) -> bool:
        """Return whether a numbered message came before."""
        return self.sequences is not None and self.sequences.knows(producer, sequence)

    def judge(self, producer: bytes, sequence: int) -> Any:
        """The outcome of a message that came before; ``None`` if it is new, and then it is added."""
        if self.sequences is None:
            self.sequences = Sequences()
        state = self.sequences.judge(producer, sequence)
        if state is None:
            if self._coming is None:
                self._coming = {}
            self._coming.setdefault(producer, set()).add(sequence)
        return state

    def miss(self, producer: bytes, sequence: int) -> None:
        """Note that a numbered message was not taken; see ``Sequences.miss``."""
        if self.sequences is None:
            self.sequences = Sequences()
        self.sequences.miss(producer, sequence)

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], Cut | None]:
        """Return frames of what is new, and settled rows of what was written before."""
        operations: list[Operation] = []
        cut = self._new_cut(operations)
        cut.home = self._home()
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._cut_rows(fresh, wall_us, operations, cut)
        if self._settling:
            cut.settled, self._settling = self._settling, []
            for entry, _ in cut.settled:
                ref = entry.frame
                if ref is not None:
                    ref.live -= 1
                    ref.settled.append(entry.row)
                    self.touch(ref)
        if self._dones:
            cut.dones, self._dones = self._dones, []
        if self._coming:
            self._cut_sequences(self._coming, wall_us, operations, cut)
        touched, self._touched = self._touched, []
        for ref in touched:
            ref.is_touched = False
            self._cut_settled(ref, operations)
        cut.frames = touched
        self._finish_cut(operations, cut)
        return operations, cut if operations or cut.rows or cut.settled or cut.dones else None

    def _new_cut(self, operations: list[Operation]) -> Any:
        """Return what is to be known of the part of a batch that is about to be cut."""
        return Cut()

    def _finish_cut(self, operations: list[Operation], cut: Any) -> None:
        """Add what is written last."""

    def _cut_sequences(
        self, coming: dict[bytes, set[int]], wall_us: int, operations: list[Operation], cut: Cut
    ) -> None:
        assert self.sequences is not None
        self._coming = None
        cut.sequences = coming
        prefix = log_key(self.log_id, 0, 0)
        records = [
            Operation(Table.PRODUCER, prefix + producer, record)
            for producer, record in self.sequences.cut(coming, wall_us // 1_000_000)
        ]
        # What is in memory alone is forgotten with the messages.
        if self.log_id:
            operations += records

    def _cut_rows(self, fresh: list[Row], wall_us: int, operations: list[Operation], cut: Cut) -> None:
        size = self._fresh_bytes
        self._forget_bytes()
        rows = [row for row in fresh if row.state != DONE]
        cut.rows += rows
        rows = self._written(rows)
        if size < FRAME_BYTES and len(rows) <= FRAME_ROWS and all(map(_IS_DURABLE, rows)):
            if rows:
                self._cut_frame(rows, True, wall_us, operations, cut)
            return
        at = size = 0
        for index, row in enumerate(rows):
            is_other = row.is_durable is not rows[at].is_durable
            if is_other or size >= FRAME_BYTES or index - at >= FRAME_ROWS:
                self._cut_frame(rows[at:index], rows[at].is_durable, wall_us, operations, cut)
                at, size = index, 0
            size += len(row.payload)
        if at < len(rows):
            self._cut_frame(rows[at:], rows[at].is_durable, wall_us, operations, cut)

    def _written(self, rows: list[Row]) -> list[Row]:
        """Return the rows that are to be on disk."""
        return rows

    def _forget_bytes(self) -> None:
        self.core.gathered_bytes -= self._fresh_bytes
        self._fresh_bytes = 0

    def _cut_frame(
        self, rows: list[Row], is_durable: bool, wall_us: int, operations: list[Operation], cut: Cut
    ) -> None:
        first = self.next_offset
        if self.core.shift_us != self._shifts[-1][1]:
            self._shifts.append((first, self.core.shift_us))
        count = len(rows)
        self.next_offset = first + count
        heads, bodies, whole = [], [], []
        for index, row in enumerate(rows):
            payload, body_at = row.payload, row.body_at
            if body_at:
                heads.append(payload[:body_at])
                bodies.append(payload[body_at:])
                continue
            head, body, is_whole = split_payload(payload)
            heads.append(head)
            bodies.append(body)
            if is_whole:
                whole.append(index)
        self._place(first, rows, operations, cut)
        frame = encode_frame(
            first, [wall_us] * count, [_EMPTY] * count, heads, bodies, whole=whole, volatile=not is_durable
        )
        operations.append(Operation(Table.FRAME, log_key(self.log_id, 0, first), frame))

    def _place(self, first: int, rows: Sequence[Any], operations: list[Operation], cut: Any) -> None:
        """Have owners take note of a frame with these rows that is about to be written."""
        owner = self.owner
        if owner is not None:
            cut.owners[owner] = None
            ref = owner.placed(first, rows)
            if ref is not None and (ref.settled or ref.has_news):
                self.touch(ref)

    def _cut_settled(self, ref: FrameRef, operations: list[Operation]) -> None:
        key = log_key(*ref.owner, ref.first)
        if not ref.live:
            self._cut_done(ref, operations)
            return
        if ref.settled and len(ref.settled) != ref.settled_cut:
            ref.has_record = True
            ref.settled_cut = len(ref.settled)
            operations.append(Operation(Table.SETTLED, key, ref.ranges()))
        if ref.has_news:
            ref.has_news = False
            record = encode_attempts(ref.attempts or {}, ref.out)
            if record or ref.has_attempts:
                operations.append(Operation(Table.ATTEMPTS, key, record or None))
            ref.has_attempts = bool(record)

    def _cut_done(self, ref: FrameRef, operations: list[Operation]) -> None:
        """Delete a frame with which its owner is done."""
        key = log_key(*ref.owner, ref.first)
        operations.append(Operation(Table.FRAME, log_key(self.log_id, 0, ref.first), None))
        if ref.has_record:
            operations.append(Operation(Table.SETTLED, key, None))
        if ref.has_attempts:
            operations.append(Operation(Table.ATTEMPTS, key, None))

    def committed(self, token: Any) -> None:
        """Note that a cut is on disk: its senders may forget it."""
        self.visible = self.next_offset
        if token.sequences is not None and self.sequences is not None:
            self.sequences.stored(token.sequences)
        for row in token.rows:
            if type(row) is Entry:
                producer = row.producer
                if producer is not None:
                    row.producer = None
                    producer.settle(row.producer_id, ACCEPTED)
            else:
                row.stored()
        for owner in token.owners:
            owner.written()
        for ref in token.frames:
            # One that was settled since the cut is on disk until the next.
            if not (ref.live or ref.is_touched):
                self._forget_frame(ref)
        for entry, done in token.settled:
            if entry.frame is not None:
                # The row is counted as settled already.
                entry.frame = None
            done(None)
        for done in token.dones:
            done(None)

    def _forget_frame(self, ref: FrameRef) -> None:
        """Forget a frame of which all is settled on disk."""
        if self.owner is not None:
            self.owner.finished(ref)

    def _reopen_frame(self, ref: FrameRef) -> None:
        """Keep a frame of which a row is settled no more."""
        if self.owner is not None:
            self.owner.reopened(ref)

    def _undo(self, token: Any) -> None:
        """Undo what else was noted of a cut that is not on disk."""
        if self.owner is not None and token.home is not None:
            token.owners[self.owner] = None

    def failed(self, token: Any, reason: str) -> None:
        """Undo a cut that is not on disk: give back what no receiver has, keep the rest in memory."""
        first = self.visible
        # Of a log only one batch is on its way, so nothing was given offsets above these.
        self.next_offset = first
        if token.sequences is not None and self.sequences is not None:
            self.sequences.failed(token.sequences)
        for entry, done in token.settled:
            ref = entry.frame
            if ref is not None and entry.row in ref.settled:
                ref.settled.remove(entry.row)
                ref.live += 1
                self._reopen_frame(ref)
            done(reason)
        # Rows that were settled meanwhile are rows of a frame that does not exist.
        touched, self._touched = self._touched, []
        for ref in touched:
            ref.is_touched = False
        for ref in (*token.frames, *touched):
            if ref.first < first and not self.is_closed:
                ref.settled_cut = -1
                ref.has_news = ref.has_attempts = True
                self.touch(ref)
        self._undo(token)
        for owner in token.owners:
            owner.unwritten()
        again = [row for row in token.rows if token.home.lose(row)]
        for owner in token.owners:
            owner.lost()
        if again and not self.is_closed:
            if not self._fresh:
                self.core.write(self)
            self._fresh = again + self._fresh
            size = sum(len(row.payload) for row in again)
            self._fresh_bytes += size
            self.core.gathered_bytes += size
        for done in token.dones:
            done(reason)

    def close(self) -> list[Row]:
        """Close the log, as its address is deleted: what is not on its way to the journal is not written any more.

        Returns:
            The rows that will not be written.
        """
        self.is_closed = True
        # It has this log; what becomes of frames concerns nobody any more.
        self.owner = None
        fresh, self._fresh = self._fresh, []
        self._touched = []
        self._forget_bytes()
        settling, self._settling = self._settling, []
        dones, self._dones = self._dones, []
        for _, done in settling:
            done("the address was deleted")
        for done in dones:
            done("the address was deleted")
        return fresh
