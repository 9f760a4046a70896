"""A model of the journal: its process, its disk, and the way between it and the node.

    storage = SimulatedStorage(listener)
    storage.submit([...])        # the node hands a batch over
    storage.commit()             # it is on the disk, and reads see it; the listener was not called yet
    storage.kill()               # the process dies: the answer is lost
    storage.revive()             # another one reports what was committed
    found = storage.crash(2)     # node and journal die; batches up to 2 still reached the disk

Rules:
1. Nothing happens by itself: each commit, failure, answer, death and finished read is a call.
2. A batch is on the disk whole or not at all, in the order of numbers, and is answered once.
3. What a dead process had reported to nobody, its successor reports, as a failure only where a later
   commit proves that the batch was given up; all else is tried again.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

from enmasse.errors import LocalError
from enmasse.messaging.log.frame import FrameError, check_frame
from enmasse.messaging.storage import Table
from enmasse.testing.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enmasse.messaging.storage import Fetched, Operation, StorageListener

__all__ = ["SimulatedStorage"]

MAX_KEY_BYTES = 400


class _State(Enum):
    OPEN = auto()
    COMMITTED = auto()
    FAILED = auto()


class _Batch:
    __slots__ = ("acknowledged", "number", "operations", "reason", "size", "state")

    def __init__(self, number: int, operations: list[Operation], acknowledged: int) -> None:
        self.number = number
        self.operations = operations
        self.acknowledged = acknowledged
        """The last number whose state the node knew when it submitted this one."""
        self.size = 40 + sum(8 + len(key) + len(value or b"") for _, key, value in operations)
        self.state = _State.OPEN
        self.reason = ""


class _Read:
    __slots__ = ("done", "end", "first", "last", "limit_bytes", "table")

    def __init__(self, table: Table, first: bytes, last: bytes, limit_bytes: int, done: Fetched) -> None:
        self.table = table
        self.first = first
        self.last = last
        self.limit_bytes = limit_bytes
        self.done = done
        self.end = first
        """Above the last key that there was when it was asked for."""


class SimulatedStorage:
    """The storage port, with everything that can happen to a journal under the caller's control.

    Args:
        listener: gets the results of batches; may be given later by setting ``listener``.
        disk: the storage of an earlier journal; a new one without.
    """

    def __init__(self, listener: StorageListener | None = None, disk: MemoryStorage | None = None) -> None:
        self.listener = listener
        self.is_alive = True
        """True if there is a journal process."""
        self.is_refusing = False
        """True if ``submit`` refuses every batch."""
        self.submitted = 0
        """The last number given."""
        self.acknowledged = 0
        """The last number whose state the node knows."""
        self.written_through = 0
        """All that the node wanted written when this was the last number given is on the disk, where it
        writes everything with the next batch it can."""
        self._disk = disk or MemoryStorage()
        self._batches: deque[_Batch] = deque()
        self._unconfirmed_bytes = 0
        self._failed: list[int] = []
        self._reads: list[_Read] = []
        self._is_dead = False

    # What the node calls

    def submit(self, operations: Sequence[Operation]) -> int:
        """Hand over one batch and return its number.

        Raises:
            LocalError: a key is too long, or this storage refuses, or it has crashed.
        """
        if self._is_dead:
            raise LocalError("this storage has crashed; use what crash() returned")
        if self.is_refusing:
            raise LocalError("the journal takes no batches now")
        for _, key, _ in operations:
            if len(key) > MAX_KEY_BYTES:
                raise LocalError(f"a key of {len(key)} bytes is above the limit of {MAX_KEY_BYTES}")
        self.submitted += 1
        batch = _Batch(self.submitted, list(operations), self.acknowledged)
        self._batches.append(batch)
        self._unconfirmed_bytes += batch.size
        return self.submitted

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes handed over and not yet answered."""
        return self._unconfirmed_bytes

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed value of one record."""
        return self._disk.get(table, key)

    def scan(self, table: Table, first: bytes, last: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Committed records with ``first <= key < last``, until their values reach ``limit_bytes``."""
        return self._disk.scan(table, first, last, limit_bytes)

    def fetch(self, table: Table, first: bytes, last: bytes, limit_bytes: int, done: Fetched) -> None:
        """Read like ``scan``; ``done`` is called by ``finish_read``."""
        read = _Read(table, first, last, limit_bytes, done)
        known = self.scan(table, first, last, limit_bytes)
        if known:
            read.end = known[-1][0] + b"\0"
        self._reads.append(read)

    def heads(self, table: Table, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, first 64 bytes and length of every committed record with ``first <= key < last``."""
        records = self.scan(table, first, last, 1 << 62)
        return iter([(key, value[:64], len(value)) for key, value in records])

    def floor(self, table: Table, key: bytes, first: bytes) -> tuple[bytes, bytes] | None:
        """The committed record with the greatest key at most ``key`` and at least ``first``."""
        return self._disk.floor(table, key, first)

    def scan_all(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Every committed record of a table in key order."""
        return self._disk.scan_all(table)

    # What happens to it

    @property
    def open(self) -> list[int]:
        """Numbers of the batches that the journal has not come to, in order."""
        return [batch.number for batch in self._batches if batch.state is _State.OPEN]

    @property
    def unanswered(self) -> list[int]:
        """Numbers of the batches whose state is decided and that the node does not know of, in order."""
        return [batch.number for batch in self._batches if batch.state is not _State.OPEN]

    @property
    def reads(self) -> int:
        """Fetches that wait for ``finish_read``."""
        return len(self._reads)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for anything."""
        return not self._batches and not self._reads

    def commit(self, count: int = 1) -> None:
        """Write the next ``count`` open batches to the disk, or as many as there are."""
        self._check_alive()
        for batch in [batch for batch in self._batches if batch.state is _State.OPEN][:count]:
            self._write(batch)

    def _write(self, batch: _Batch) -> None:
        self._disk.submit(batch.operations)
        self._disk.commit()
        batch.state = _State.COMMITTED
        # Something that a failed batch held may have been left out of this one: it is only written again
        # by a batch that was made after the node learned of the failure.
        if not any(batch.acknowledged < failed < batch.number for failed in self._failed):
            self.written_through = max(self.written_through, batch.acknowledged)

    def fail(self, reason: str = "the disk is full") -> None:
        """Give up the next open batch: it counts for nothing.

        Raises:
            LocalError: there is none.
        """
        self._check_alive()
        for batch in self._batches:
            if batch.state is _State.OPEN:
                batch.state = _State.FAILED
                batch.reason = reason
                self._failed.append(batch.number)
                return
        raise LocalError("no batch waits that could fail")

    def answer(self) -> None:
        """Report to the node the state of every batch that is decided, commits in a row at once."""
        self._check_alive()
        self._answer()

    def _answer(self) -> None:
        batches = self._batches
        while batches and batches[0].state is not _State.OPEN:
            batch = batches.popleft()
            self._unconfirmed_bytes -= batch.size
            while batch.state is _State.COMMITTED and batches and batches[0].state is _State.COMMITTED:
                batch = batches.popleft()
                self._unconfirmed_bytes -= batch.size
            self.acknowledged = batch.number
            if self.listener is None:
                continue
            if batch.state is _State.COMMITTED:
                self.listener.on_committed(batch.number)
            else:
                self.listener.on_failed(batch.number, batch.reason)

    def kill(self) -> None:
        """The journal process dies; what it decided and did not report is reported by the next one."""
        self._check_alive()
        self.is_alive = False
        self._forget_failures()

    def _forget_failures(self) -> None:
        """A failure is known to a later process by the commit after it."""
        for batch in reversed(self._batches):
            if batch.state is _State.COMMITTED:
                return
            if batch.state is _State.FAILED:
                batch.state = _State.OPEN
                self._failed.remove(batch.number)

    def revive(self) -> None:
        """Another journal process takes over and reports what the last one decided."""
        if self.is_alive:
            raise LocalError("the journal process lives")
        self.is_alive = True
        self._answer()

    def finish_read(self, *, is_short: bool = False) -> None:
        """Answer the oldest fetch, from what is committed now; damaged frames are left out and named.

        Args:
            is_short: whether it ends where it would have ended when it was asked for, as that is when
                another process looked how far to read; then it may find nothing where there is something now.
        """
        read = self._reads.pop(0)
        last = read.end if is_short else read.last
        records: list[tuple[bytes, bytes]] = []
        damaged: list[bytes] = []
        for key, value in self.scan(read.table, read.first, last, read.limit_bytes):
            if read.table is Table.FRAME and not _is_sound(key, value):
                damaged.append(key)
            else:
                records.append((key, value))
        read.done(records, damaged)

    def settle(self) -> None:
        """Have everything done as a journal without trouble does it, until nothing waits."""
        self.is_refusing = False
        if not self.is_alive:
            self.revive()
        while not self.is_idle:
            self.commit(len(self._batches))
            self._answer()
            while self._reads:
                self.finish_read()

    def copy(self) -> SimulatedStorage:
        """Another storage over what the disk holds now, as a node would find it that starts."""
        found = self._disk.crash()
        self._disk = self._disk.crash()
        return SimulatedStorage(disk=found)

    def crash(self, through: int = 0) -> SimulatedStorage:
        """Return what a node finds after its death.

        This storage answers nothing any more and refuses further batches.

        Args:
            through: the last batch that the journal still committed; 0 for none beyond those it had.
        """
        for batch in self._batches:
            if batch.state is _State.OPEN and batch.number <= through:
                self._write(batch)
        self._batches.clear()
        self._reads.clear()
        self._unconfirmed_bytes = 0
        self.listener = None
        self._is_dead = True
        return SimulatedStorage(disk=self._disk.crash())

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise LocalError("there is no journal process; revive() starts one")


def _is_sound(key: bytes, value: bytes) -> bool:
    """Return true if a record is the frame that was written under its key."""
    try:
        check_frame(value, int.from_bytes(key[-8:], "big"))
    except FrameError:
        return False
    return True
