"""The storage port: what the messaging core asks of a journal.

Rules:
1. Everything stored is a record (table, key, value). The core encodes records, the adapter keeps them.
2. A batch is committed whole or not at all, in the order of batch numbers.
3. Reads see what is committed and nothing else.
4. The adapter answers each batch exactly once, on the node's own thread and never from within
   ``submit``, through the listener given to it.
5. What may lie on pages that are not in memory is read by ``fetch``, which waits elsewhere.

Adapters: ``enmasse.storage`` (LMDB behind the journal process) and ``enmasse.testing`` (in memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol


class Table(IntEnum):
    """The first byte of every key; each table's key layout is owned by the module named."""

    META = 0
    """Format version and batch number; owned by the adapter."""
    ENTITY = 1
    """Declared spaces and addresses, the node's configuration snapshot; ``node.snapshot``."""
    FRAME = 2
    """Messages as frames, by (log, partition, first offset); ``messaging.log``."""
    SETTLED = 3
    """Settled ranges, by (log, partition, first offset of the frame); ``messaging.log``."""
    MARK = 4
    """Low-water mark and next offset, by (log, partition); ``messaging.log``."""
    PRODUCER = 5
    """Last sequence, by (log, partition, producer id); ``messaging.stream``."""
    SUBSCRIPTION = 6
    """Durable subscriptions, by (topic's log, name); ``messaging.subscriptions``."""
    TIME = 7
    """Nothing, by (log, partition, first timestamp in microseconds, first offset); ``messaging.streams.index``."""
    ATTEMPTS = 8
    """Failed deliveries and rows that receivers have, by (log, partition, first offset of the frame);
    ``messaging.queue_entry``."""
    OFFSET = 9
    """Offsets that named consumers committed, by (log, partition, name); ``messaging.stream``."""
    HOLDER = 10
    """The owners of a frame's rows where not all owners of its log share it, by (log, partition, first offset of the
    frame); ``messaging.log.holders``."""
    RETAINED = 11
    """Retained values, by (address's log, digest of the name); ``messaging.retained_log``."""
    SESSION = 12
    """Sessions, filters, what is in flight, and wills, by (log, kind, number); ``messaging.sessions.records``."""
    MERGE = 250
    """No table but an instruction, by (log, partition, first offset) with the end offset as a u64
    (big-endian): make one frame of the adjacent frames in between. See ``messaging.merge``."""


class Operation(NamedTuple):
    """A change to one record."""

    table: Table
    key: bytes
    """At most 400 bytes."""
    value: bytes | None
    """``None`` deletes the record; deleting what is not there is no error."""


Fetched = Callable[[list[tuple[bytes, bytes]], list[bytes]], None]
"""Called with what ``fetch`` found: the records, and the keys of those that are damaged and so left out."""


class StorageListener(Protocol):
    """Receives the outcomes of batches."""

    def on_committed(self, number: int) -> None:
        """Note that every batch up to and including ``number`` is on disk."""

    def on_failed(self, number: int, reason: str) -> None:
        """Note that batch ``number`` was not written (disk full, say) and counts for nothing."""


class Storage(Protocol):
    """A journal as the core sees it. Never blocks for a commit."""

    def submit(self, operations: Sequence[Operation]) -> int:
        """Hand over one batch and return its number, one above the last.

        A later operation on the same record wins.
        """

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes handed over and not yet answered; the core grants no stored credit above a bound."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the committed value of one record."""

    def scan(self, table: Table, first: bytes, last: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Return committed records with ``first <= key < last`` in key order.

        Stops after the record that brings the values to ``limit_bytes`` or more, so at least one
        record is returned where one exists.
        """

    def fetch(self, table: Table, first: bytes, last: bytes, limit_bytes: int, done: Fetched) -> None:
        """Read like ``scan``, without holding up the node where pages must come from the disk.

        What is found is as it is committed when ``done`` is called. What was committed since the read was asked
        for may be missing.

        Args:
            table: frames have their checksum verified on the way; other tables are only read.
            first: the first key.
            last: above the last key.
            limit_bytes: as of ``scan``.
            done: called once, on the node's own thread and never from within ``fetch``.
        """

    def heads(self, table: Table, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """Return key, first 64 bytes and length of committed records with ``first <= key < last``; for loading."""

    def floor(self, table: Table, key: bytes, first: bytes) -> tuple[bytes, bytes] | None:
        """Return the committed record with the greatest key at most ``key`` and at least ``first``."""

    def scan_all(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Return every committed record of a table in key order; for loading at start."""
