"""A storage in memory whose commits happen when the test says so."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING

from enmasse.errors import LocalError
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enmasse.messaging.storage import Operation, StorageListener

__all__ = ["MemoryStorage", "RecordingListener"]


class RecordingListener:
    """Remembers every answer; ``answers`` holds (number, reason or ``None``) in the order heard."""

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
        """The highest number heard as committed; 0 if there is none."""
        return max((number for number, reason in self.answers if reason is None), default=0)

    @property
    def failed(self) -> dict[int, str]:
        """Reasons by failed number."""
        return {number: reason for number, reason in self.answers if reason is not None}


class MemoryStorage:
    """The storage port with nothing behind it.

    What is submitted waits until the test calls ``commit``, ``fail`` or ``crash``. It needs no event
    loop; the listener is called from within ``commit`` and ``fail``.

    Args:
        listener: hears the fate of batches; may be given later by setting ``listener``.
    """

    def __init__(self, listener: StorageListener | None = None) -> None:
        self.listener = listener
        self._records: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self._keys: dict[Table, list[bytes]] = {table: [] for table in Table}
        self._pending: deque[tuple[int, list[Operation], int]] = deque()
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

    def operations(self, number: int) -> list[Operation]:
        """What a waiting batch would do.

        Raises:
            LocalError: no such batch waits.
        """
        for waiting, operations, _ in self._pending:
            if waiting == number:
                return list(operations)
        raise LocalError(f"batch {number} does not wait; waiting are {self.pending}")

    def commit(self, through: int | None = None) -> None:
        """Commit waiting batches up to and including ``through`` (all of them) and answer once.

        Batches that the listener submits meanwhile wait for the next call.
        """
        last = self._take(through)
        if last is not None and self.listener is not None:
            self.listener.on_committed(last)

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
        """What a node finds after its death: everything answered, and waiting batches up to ``through``.

        This storage answers nothing any more and refuses further batches.
        """
        self._take(through)
        self._pending.clear()
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
                self._write(table, key, value)
        return last

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
