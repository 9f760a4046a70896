"""The seal of the last commit: what it changed, kept with it, so that a start can see that all of it is there.

A disk that loses or reorders writes can leave a meta page without some of the pages it counts on: an old
page in the place of a new one looks sound by itself. The seal names the transaction, and for every record
that was written its length, for every deleted one that it is gone.

A seal, little-endian: transaction u64, crc32 u32 of all but itself, then for each batch: count u32, tables
u8[count], key lengths u16[count], value lengths u32[count] (all ones: deleted), keys. Groups with
instructions to merge, and those above ``MAX_SEAL_BYTES`` or ``MAX_SEAL_BATCHES``, are sealed without their records.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING
from zlib import crc32

from enmasse.storage.batch import DELETED, TABLE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.storage.batch import Batch

__all__ = ["MAX_SEAL_BYTES", "SEAL_KEY", "encode_seal", "explain_broken_seal", "sealed_keys"]

MAX_SEAL_BYTES = 1 << 16
MAX_SEAL_BATCHES = 32
"""Larger groups are those that must not take longer: the seal stays a few per cent of a commit."""

_TRANSACTION = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_START_BYTES = _TRANSACTION.size + _CRC.size
_COUNT = struct.Struct("<I")

SEAL_KEY = TABLE_PREFIX[0] + b"seal"


def encode_seal(transaction: int, batches: Sequence[Batch] = (), *, has_merges: bool = False) -> bytes:
    """The seal of a group of batches that one transaction writes."""
    parts: list[bytes | memoryview] = []
    if not has_merges and len(batches) <= MAX_SEAL_BATCHES:
        size = 0
        for batch in batches:
            front = batch.front
            size += len(front)
            parts += (_COUNT.pack(batch.count), front)
        if size > MAX_SEAL_BYTES:
            parts = []
    start = _TRANSACTION.pack(transaction)
    records = b"".join(parts)
    return b"".join((start, _CRC.pack(crc32(records, crc32(start))), records))


def explain_broken_seal(
    seal: bytes, transaction: int, get: Callable[[bytes], bytes | memoryview | None]
) -> str | None:
    """What is missing of the last commit; ``None`` if all is there.

    Frames that are damaged inside are not looked for: whoever reads them leaves them out and names them.

    Args:
        seal: as stored.
        transaction: that the meta page names.
        get: reads a record by its stored key.
    """
    if not _is_whole(seal):
        return "the seal of its last commit is damaged"
    (sealed,) = _TRANSACTION.unpack_from(seal)
    if sealed != transaction:
        return f"its last commit is transaction {transaction}, but its records are those of {sealed}"
    for key, length in _sealed_records(seal).items():
        value = get(key)
        if (None if value is None else len(value)) != length:
            return f"record {key.hex()} is not as the last commit left it"
    return None


def sealed_keys(seal: bytes) -> list[bytes]:
    """The stored keys that a seal names."""
    return list(_sealed_records(seal)) if _is_whole(seal) else []


def _is_whole(seal: bytes) -> bool:
    if len(seal) < _START_BYTES:
        return False
    (crc,) = _CRC.unpack_from(seal, _TRANSACTION.size)
    return crc32(seal[_START_BYTES:], crc32(seal[: _TRANSACTION.size])) == int(crc)


def _sealed_records(seal: bytes) -> dict[bytes, int | None]:
    """Stored keys with the length of what was written last, ``None`` where it was deleted."""
    records: dict[bytes, int | None] = {}
    at = _START_BYTES
    while at < len(seal):
        (count,) = _COUNT.unpack_from(seal, at)
        at += _COUNT.size
        tables = seal[at : at + count]
        at += count
        key_lengths, lengths = array("H"), array("I")
        key_lengths.frombytes(seal[at : at + 2 * count])
        at += 2 * count
        lengths.frombytes(seal[at : at + 4 * count])
        at += 4 * count
        for table, key_length, length in zip(tables, key_lengths, lengths, strict=True):
            key = TABLE_PREFIX[table] + seal[at : at + key_length]
            at += key_length
            records[key] = None if length == DELETED else length
    return records
