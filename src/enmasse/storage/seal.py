"""The seal of the last commit: what it changed, kept with it, so that a start can see that all of it is there.

A disk that loses or reorders writes can leave a meta page without some of the pages it counts on: an old
page in the place of a new one looks sound by itself. The seal names the transaction, every record that was
written with its length, every deleted one, and has a checksum of the values; frames have their own.

A seal, little-endian: transaction u64, crc32 u32 of all but itself, crc32 u32 of the values, then for each
batch: count u32, tables u8[count], key lengths u16[count], value lengths u32[count] (all ones: deleted),
keys. The values are that of ``last``, then those of each named record but frames and times, in the order in
which they were first named. Groups above ``MAX_SEAL_BYTES`` or ``MAX_SEAL_BATCHES`` are sealed without their
records; of a log's partition that is merged in the same group, frames and their times are not checked.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING
from zlib import crc32

from enmasse.storage.batch import DELETED, MERGE_TABLE, TABLE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.storage.batch import Batch

MAX_SEAL_BYTES = 1 << 15
MAX_SEAL_BATCHES = 16
"""Larger groups are those that must not take longer: the seal stays a few per cent of a commit."""

_TRANSACTION = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_RECORDS_AT = _TRANSACTION.size + 2 * _CRC.size
_COUNT = struct.Struct("<I")
_FRAME, _TIME = 2, 7
_NOT_VALUES = (_FRAME, _TIME, MERGE_TABLE)
"""Frames have a checksum of their own, and merging changes both."""
_OFFSET_AT = 9
"""Before it, keys of these tables name the table, a log and its partition."""

SEAL_KEY = TABLE_PREFIX[0] + b"seal"
LAST_KEY = TABLE_PREFIX[0] + b"last"

SealedValues = dict[bytes, "bytes | memoryview | None"]
"""Stored keys, ``last`` the first, with what was written last; ``None`` where it was deleted."""


def names_records(batches: Sequence[Batch]) -> bool:
    """Return true if a group is small enough that its seal names its records."""
    return len(batches) <= MAX_SEAL_BATCHES and sum([batch.value_at for batch in batches]) <= MAX_SEAL_BYTES


def gather_values(values: SealedValues, operations: list[tuple[bytes, memoryview | None]]) -> None:
    """Take up what a batch does to records that are neither frames nor their times."""
    values.update({key: value for key, value in operations if key[0] not in _NOT_VALUES})


def encode_seal(transaction: int, values: SealedValues, batches: Sequence[Batch] = ()) -> bytes:
    """The seal of what one transaction writes.

    Args:
        transaction: its number.
        values: the values that are written, as ``gather_values`` took it up.
        batches: those whose records are named.
    """
    parts: list[bytes | memoryview] = [_CRC.pack(crc32(b"".join(filter(None, values.values()))))]
    for batch in batches:
        parts += (_COUNT.pack(batch.count), batch.front)
    start = _TRANSACTION.pack(transaction)
    rest = b"".join(parts)
    return b"".join((start, _CRC.pack(crc32(rest, crc32(start))), rest))


def explain_broken_seal(
    seal: bytes, transaction: int, get: Callable[[bytes], bytes | memoryview | None]
) -> str | None:
    """Return what is missing of the last commit; ``None`` if all is there.

    Frames that are damaged inside are not looked for: readers leave them out and name them.

    Args:
        seal: the seal as stored.
        transaction: the transaction that the meta page names.
        get: reads a record by its stored key.
    """
    if not _is_whole(seal):
        return "the seal of its last commit is damaged"
    (sealed,) = _TRANSACTION.unpack_from(seal)
    if sealed != transaction:
        return f"its last commit is transaction {transaction}, but its records are those of {sealed}"
    records = _sealed_records(seal)
    merged = {key[1:_OFFSET_AT] for key in records if key[0] == MERGE_TABLE}
    values = [get(LAST_KEY) or b""]
    for key, length in records.items():
        if key[0] == MERGE_TABLE or (key[0] in (_FRAME, _TIME) and key[1:_OFFSET_AT] in merged):
            continue
        value = get(key)
        if (None if value is None else len(value)) != length:
            return f"record {key.hex()} is not as the last commit left it"
        if value is not None and key[0] not in _NOT_VALUES:
            values.append(value)
    if crc32(b"".join(values)) != _CRC.unpack_from(seal, _RECORDS_AT - _CRC.size)[0]:
        return "some records are not as the last commit left them"
    return None


def sealed_keys(seal: bytes) -> list[bytes]:
    """The stored keys that a seal is about."""
    return [LAST_KEY, *_sealed_records(seal)] if _is_whole(seal) else [LAST_KEY]


def _is_whole(seal: bytes) -> bool:
    if len(seal) < _RECORDS_AT:
        return False
    (crc,) = _CRC.unpack_from(seal, _TRANSACTION.size)
    return crc32(seal[_TRANSACTION.size + _CRC.size :], crc32(seal[: _TRANSACTION.size])) == int(crc)


def _sealed_records(seal: bytes) -> dict[bytes, int | None]:
    """Stored keys with the length of what was written last, ``None`` where it was deleted."""
    records: dict[bytes, int | None] = {}
    at = _RECORDS_AT
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
