"""A storage in memory whose commits happen when the test says so."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING

from enmasse.errors import LocalError
from enmasse.messaging.log.frame import FrameError, check_frame
from enmasse.messaging.log.merge import merge_range, plan_merge
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enmasse.messaging.storage import Fetched, Operation, StorageListener

__all__ = ["MemoryStorage", "RecordingListener"]

_HEAD_BYTES = 64


class RecordingListener:
    """Records every answer; ``answers`` holds (number, reason or ``None``) in their order."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str | None]] = []

    def on_committed(self, number: int) -> None:
        """Every batch up to and including ``number`` is on disk."""
        self.answers.append((number, None))

    def on_failed(self, number: int, reason: str) -> None:
        """Batch ``number`` was not written."""
        self.answers.append((number, reason))

    @property
    def committed(self) -> int:
        """The highest number committed; 0 if there is none."""
        return max((number for number, reason in self.answers if reason is None), default=0)

    @property
    def failed(self) -> dict[int, str]:
        """Reasons by failed number."""
        return {number: reason for number, reason in self.answers if reason is not None}


class MemoryStorage:
    """The storage port with nothing behind it.

    What is submitted waits until the test calls ``commit``, ``fail`` or ``crash``; what is fetched
    waits until ``commit`` or ``answer_reads``. It needs no event loop; the listener is called from
    within ``commit`` and ``fail``.

    Args:
        listener: gets the results of batches; may be given later by setting ``listener``.
    """

    def __init__(self, listener: StorageListener | None = None) -> None:
        self.listener = listener
        self._records: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self._keys: dict[Table, list[bytes]] = {table: [] for table in Table}
        self._pending: deque[tuple[int, list[Operation], int]] = deque()
        self._reads: deque[tuple[Table, bytes, bytes, int, Fetched]] = deque()
        self._number = 0
        self._unconfirmed_bytes = 0

    async def start(self, listener: StorageListener) -> None:
        """Set the listener, as the journal link does when it is started."""
        self.listener = listener

    async def stop(self) -> None:
        """Commit what is pending, as the journal link does when it is stopped."""
        self.commit()

    @property
    def pending(self) -> list[int]:
        """Numbers of the batches that wait, in order."""
        return [number for number, _, _ in self._pending]

    @property
    def waiting_reads(self) -> int:
        """The number of ``fetch`` calls without an answer yet."""
        return len(self._reads)

    def operations(self, number: int) -> list[Operation]:
        """Return the operations of a waiting batch.

        Raises:
            LocalError: no such batch waits.
        """
        for waiting, operations, _ in self._pending:
            if waiting == number:
                return list(operations)
        raise LocalError(f"batch {number} does not wait; waiting are {self.pending}")

    def commit(self, through: int | None = None) -> None:
        """Commit waiting batches up to and including ``through`` (all of them) and answer once.

        Answers the reads that waited before, too. Batches that the listener submits meanwhile, and
        reads that it asks for, wait for the next call.
        """
        reads = len(self._reads)
        last = self._take(through)
        if last is not None and self.listener is not None:
            self.listener.on_committed(last)
        self.answer_reads(reads)

    def answer_reads(self, count: int | None = None) -> int:
        """Answer the first ``count`` waiting ``fetch`` calls (all there are) from what is committed now; how many."""
        number = len(self._reads) if count is None else min(count, len(self._reads))
        for _ in range(number):
            table, first, last, limit_bytes, done = self._reads.popleft()
            records: list[tuple[bytes, bytes]] = []
            damaged: list[bytes] = []
            for key, value in self.scan(table, first, last, limit_bytes):
                if table is Table.FRAME and not _is_sound(key, value):
                    damaged.append(key)
                else:
                    records.append((key, value))
            done(records, damaged)
        return number

    def damage(self, table: Table, key: bytes, value: bytes) -> None:
        """Put something else under a committed key, as a failing disk would."""
        self._write(table, key, value)

    def fail(self, reason: str = "the disk is full") -> None:
        """Fail the oldest waiting batch: it counts for nothing.

        Raises:
            LocalError: none waits.
        """
        if not self._pending:
            raise LocalError("no batch waits that could fail")
        number, _, size = self._pending.popleft()
        self._unconfirmed_bytes -= size
        if self.listener is not None:
            self.listener.on_failed(number, reason)

    def crash(self, through: int = 0) -> MemoryStorage:
        """Return what a node finds after its death: everything answered, and waiting batches up to ``through``.

        This storage answers nothing any more and refuses further batches.
        """
        self._take(through)
        self._pending.clear()
        self._reads.clear()
        self._unconfirmed_bytes = 0
        self.listener = None
        successor = MemoryStorage()
        successor._records = {table: dict(records) for table, records in self._records.items()}
        successor._keys = {table: list(keys) for table, keys in self._keys.items()}
        self._number = -1
        return successor

    def _take(self, through: int | None) -> int | None:
        last = None
        while self._pending and (through is None or self._pending[0][0] <= through):
            last, operations, size = self._pending.popleft()
            self._unconfirmed_bytes -= size
            for table, key, value in operations:
                if table is Table.MERGE:
                    self._merge(key, value)
                else:
                    self._write(table, key, value)
        return last

    def _merge(self, key: bytes, value: bytes | None) -> None:
        found = merge_range(key, value)
        if found is None:
            return
        frames = self.scan(Table.FRAME, *found, 1 << 40)
        pointed = set().union(*(self._records[table] for table in (Table.SETTLED, Table.ATTEMPTS, Table.HOLDER)))
        for operation in plan_merge(frames, pointed.__contains__):
            self._write(*operation)

    def _write(self, table: Table, key: bytes, value: bytes | None) -> None:
        records, keys = self._records[table], self._keys[table]
        if value is None:
            if records.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
            return
        if key not in records:
            insort(keys, key)
        records[key] = bytes(value)

    def submit(self, operations: Sequence[Operation]) -> int:
        """Hand over one batch and return its number.

        Raises:
            LocalError: a key is too long, or this storage has crashed.
        """
        if self._number < 0:
            raise LocalError("this storage has crashed; use what crash() returned")
        for _, key, _ in operations:
            if len(key) > 400:
                raise LocalError(f"a key of {len(key)} bytes is above the limit of 400")
        self._number += 1
        size = 40 + sum(8 + len(key) + len(value or b"") for _, key, value in operations)
        self._pending.append((self._number, list(operations), size))
        self._unconfirmed_bytes += size
        return self._number

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes handed over and not yet answered."""
        return self._unconfirmed_bytes

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed value of one record."""
        return self._records[table].get(key)

    def fetch(self, table: Table, first: bytes, last: bytes, limit_bytes: int, done: Fetched) -> None:
        """Read like ``scan``; ``done`` is called by the next ``commit`` or ``answer_reads``."""
        self._reads.append((table, first, last, limit_bytes, done))

    def heads(self, table: Table, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, first 64 bytes and length of every committed record with ``first <= key < last``."""
        for key, value in self.scan(table, first, last, 1 << 62):
            yield key, value[:_HEAD_BYTES], len(value)

    def scan(self, table: Table, first: bytes, last: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Committed records with ``first <= key < last``, until their values reach ``limit_bytes``."""
        keys, records = self._keys[table], self._records[table]
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for key in keys[bisect_left(keys, first) : bisect_left(keys, last)]:
            value = records[key]
            found.append((key, value))
            size += len(value)
            if size >= limit_bytes:
                break
        return found

    def floor(self, table: Table, key: bytes, first: bytes) -> tuple[bytes, bytes] | None:
        """The committed record with the greatest key at most ``key`` and at least ``first``."""
        keys = self._keys[table]
        at = bisect_right(keys, key) - 1
        if at < 0 or keys[at] < first:
            return None
        return keys[at], self._records[table][keys[at]]

    def scan_all(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Every committed record of a table in key order."""
        records = self._records[table]
        return iter([(key, records[key]) for key in self._keys[table]])


def _is_sound(key: bytes, value: bytes) -> bool:
    try:
        check_frame(value, int.from_bytes(key[-8:], "big"))
    except FrameError:
        return False
    return True
