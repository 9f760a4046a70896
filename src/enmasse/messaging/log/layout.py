"""The layout of stored addresses' frames in the journal."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from enmasse.messaging.storage import Operation, Storage, Table

if TYPE_CHECKING:
    from collections.abc import Iterator


FRAME_ROWS = 4_096
FRAME_BYTES = 1 << 20
"""A frame is closed at either: large enough that its overhead vanishes, small enough to be one transfer."""

TABLES_OF_LOGS = (
    Table.SETTLED,
    Table.ATTEMPTS,
    Table.HOLDER,
    Table.MARK,
    Table.PRODUCER,
    Table.TIME,
    Table.OFFSET,
    Table.SUBSCRIPTION,
    Table.RETAINED,
    Table.SESSION,
    Table.FRAME,
)
"""The tables whose keys begin with the number of a log."""

_KEY = struct.Struct(">IIQ")


def log_key(log_id: int, partition: int, offset: int) -> bytes:
    """Return the key of a frame by its first offset, or of what belongs to that frame."""
    return _KEY.pack(log_id, partition, offset)


def log_range(log_id: int, partition: int | None = None) -> tuple[bytes, bytes]:
    """Return first and last key (exclusive) of a log, or of one of its partitions."""
    if partition is None:
        return _KEY.pack(log_id, 0, 0), _KEY.pack(log_id + 1, 0, 0)
    return _KEY.pack(log_id, partition, 0), _KEY.pack(log_id, partition + 1, 0)


def by_frame(storage: Storage, table: Table, log_id: int, partition: int = 0) -> dict[int, bytes]:
    """Return a table's records of each frame of a log, by the frame's first offset; for loading."""
    at, last = log_range(log_id, partition)
    records: dict[int, bytes] = {}
    while found := storage.scan(table, at, last, FRAME_BYTES):
        for key, value in found:
            records[int.from_bytes(key[-8:], "big")] = value
        at = found[-1][0] + b"\0"
    return records


def by_name(storage: Storage, table: Table, log_id: int, partition: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Return a table's names and values of a partition, where it is kept by name; for loading."""
    first, last = log_range(log_id, partition)
    at = first
    while found := storage.scan(table, at, last, FRAME_BYTES):
        for key, value in found:
            yield key[len(first) :], value
        at = found[-1][0] + b"\0"


def delete_log(storage: Storage, log_id: int) -> Iterator[Operation]:
    """Return the operations that delete a committed log."""
    first, last = log_range(log_id)
    for table in TABLES_OF_LOGS:
        at = first
        while found := storage.scan(table, at, last, FRAME_BYTES):
            for key, _ in found:
                yield Operation(table, key, None)
            at = found[-1][0] + b"\0"
