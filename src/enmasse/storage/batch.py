"""Batches and answers as they cross the socket pair between a node and its journal process.

Rules:
1. Pure: bytes in, values out; both processes use this module and nothing else for the pair.
2. A batch is complete or it is no batch. What a dying writer left behind is recognised by length.
3. The checksum covers header, index and keys. A socket pair neither loses nor changes bytes, so it
   guards against losing step; values carry their own checksum (frames do) and are not read here.

A batch, little-endian:

    header   magic "EMB1", size u32, epoch u64, number u64, acknowledged u64, count u32, crc32 u32
    index    table u8[count], key length u16[count], value length u32[count] (all ones: delete)
    keys     one after the other
    values   one after the other

``size`` is that of the whole batch. ``acknowledged`` is the highest number whose result the node knows.

An answer: kind u8, reserved u8[3], extra length u32, epoch u64, number u64, extra.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from enmasse.storage.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.messaging.storage import Operation

MAX_KEY_BYTES = 400
"""The longest key that the storage port promises; LMDB itself takes 511 with the table byte."""

MAX_BATCH_BYTES = 1 << 30
"""Both processes hold a batch in memory, so a larger size is a mistake."""

TABLE_PREFIX = tuple(bytes((table,)) for table in range(256))
"""The first byte of every stored key, by table."""

MERGE_TABLE = 250
"""``Table.MERGE``: an instruction, not a record."""

DELETED = 0xFFFFFFFF

_MAGIC = b"EMB1"
_HEADER = struct.Struct("<4sIQQQI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_INDEX_ROW_BYTES = 1 + 2 + 4

assert sys.byteorder == "little", "batches are written with the machine's own integers"
assert array("H").itemsize == 2
assert array("I").itemsize == 4


def encode_batch(epoch: int, number: int, acknowledged: int, operations: Sequence[Operation]) -> bytes:
    """One batch as it goes over the socket pair.

    Args:
        epoch: the node's start.
        number: this batch's number, above all earlier ones of the epoch.
        acknowledged: the highest number whose result the node knows.
        operations: the changes, in order; none is allowed.

    Raises:
        BatchError: a key or the whole batch is too large.
    """
    count = len(operations)
    tables: Sequence[int]
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    tables, keys, values = zip(*operations, strict=True) if operations else ((), (), ())
    try:
        key_lengths = array("H", map(len, keys))
        value_lengths = array("I", [DELETED if value is None else len(value) for value in values])
    except OverflowError:
        raise BatchError("a key or value is too long for a batch") from None
    if count and max(key_lengths) > MAX_KEY_BYTES:
        raise BatchError(f"a key of {max(key_lengths)} bytes is above the limit of {MAX_KEY_BYTES}")
    front = b"".join((bytes(tables), key_lengths.tobytes(), value_lengths.tobytes(), *keys))
    contents = list(filter(None, values))
    size = HEADER_BYTES + len(front) + sum(map(len, contents))
    if size > MAX_BATCH_BYTES:
        raise BatchError(f"a batch of {size} bytes is above the limit of {MAX_BATCH_BYTES}; submit less at once")
    header = _HEADER.pack(_MAGIC, size, epoch, number, acknowledged, count)
    return b"".join((header, _CRC.pack(crc32(front, crc32(header))), front, *contents))


class Batch:
    """One complete batch, still lying in the buffer it was received in."""

    __slots__ = ("_data", "acknowledged", "count", "epoch", "number", "value_at")

    def __init__(
        self, data: memoryview, epoch: int, number: int, acknowledged: int, count: int, value_at: int
    ) -> None:
        self._data = data
        self.value_at = value_at
        self.count = count
        self.epoch = epoch
        self.number = number
        self.acknowledged = acknowledged

    @property
    def front(self) -> memoryview:
        """Index and keys: all but header and values."""
        return self._data[HEADER_BYTES : self.value_at]

    @property
    def has_merges(self) -> bool:
        """True if any operation is an instruction to merge."""
        return TABLE_PREFIX[MERGE_TABLE] in bytes(self._data[HEADER_BYTES : HEADER_BYTES + self.count])

    def operations(self) -> list[tuple[bytes, memoryview | None]]:
        """Stored keys (table byte and key) with their new value, ``None`` to delete.

        Values are views into the receive buffer and live as long as that is left alone.
        """
        count, data = self.count, self._data
        at = HEADER_BYTES
        prefixes = [TABLE_PREFIX[table] for table in data[at : at + count]]
        at += count
        key_lengths = array("H")
        key_lengths.frombytes(data[at : at + 2 * count])
        at += 2 * count
        value_lengths = array("I")
        value_lengths.frombytes(data[at : at + 4 * count])
        at += 4 * count
        keys = bytes(data[at : at + sum(key_lengths)])
        value_at = at + len(keys)
        key_at = 0
        result: list[tuple[bytes, memoryview | None]] = []
        append = result.append
        for prefix, key_length, value_length in zip(prefixes, key_lengths, value_lengths, strict=True):
            key = prefix + keys[key_at : key_at + key_length]
            key_at += key_length
            if value_length == DELETED:
                append((key, None))
            else:
                append((key, data[value_at : value_at + value_length]))
                value_at += value_length
        return result


def split_batches(data: memoryview) -> tuple[list[Batch], int, int]:
    """Cut complete batches off the front of what was received.

    Returns:
        The batches, the bytes they take, and the size of the next, torn one (0: not known yet).

    Raises:
        BatchError: the bytes are no batches.
    """
    batches: list[Batch] = []
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        magic, size, epoch, number, acknowledged, count = _HEADER.unpack_from(data, at)
        if magic != _MAGIC or not HEADER_BYTES + _INDEX_ROW_BYTES * count <= size <= MAX_BATCH_BYTES:
            raise BatchError(f"not a batch after number {batches[-1].number if batches else 'none'}")
        if end - at < size:
            return batches, at, size
        value_at = _check(data[at : at + size], count)
        batches.append(Batch(data[at : at + size], epoch, number, acknowledged, count, value_at))
        at += size
    return batches, at, 0


def _check(data: memoryview, count: int) -> int:
    """See that header, index and keys are the ones that were sent; returns where values begin."""
    key_at = HEADER_BYTES + _INDEX_ROW_BYTES * count
    lengths = array("H")
    lengths.frombytes(data[HEADER_BYTES + count : HEADER_BYTES + 3 * count])
    value_lengths = array("I")
    value_lengths.frombytes(data[HEADER_BYTES + 3 * count : key_at])
    value_at = key_at + sum(lengths)
    size = value_at + sum(value_lengths) - DELETED * value_lengths.count(DELETED)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if size != len(data) or crc32(data[HEADER_BYTES:value_at], crc32(data[: _HEADER.size])) != crc:
        raise BatchError("a batch has a wrong checksum")
    return value_at


class AnswerKind:
    """Kinds of the journal process's answers; plain integers, as they are compared in the hot path."""

    HELLO = 1
    """Has the lock; epoch and number of the last commit; extra: numbers of failed batches, u64 each."""
    COMMITTED = 2
    """Everything up to ``number`` that was not reported failed is on disk."""
    FAILED = 3
    """Batch ``number`` was not written; extra: the reason as UTF-8."""
    LOCKED = 4
    """Another process holds the directory; extra: which, as UTF-8. The process ends."""
    REFUSED = 5
    """The directory cannot be opened; extra: why, as UTF-8. The process ends."""
    LOST = 6
    """The data file is not in its place any more, so that every batch fails; extra: why, as UTF-8.
    Empty: it is back."""


_ANSWER = struct.Struct("<B3xIQQ")


class Answer(NamedTuple):
    """One thing the journal process said."""

    kind: int
    epoch: int
    number: int
    extra: bytes

    @property
    def text(self) -> str:
        """The reason of a failure."""
        return self.extra.decode("utf-8", "replace")

    @property
    def numbers(self) -> list[int]:
        """The failed batches that a hello names, in order."""
        numbers = array("Q")
        numbers.frombytes(self.extra)
        return numbers.tolist()


def encode_answer(kind: int, epoch: int, number: int, extra: bytes = b"") -> bytes:
    """One answer as it goes over the socket pair."""
    return _ANSWER.pack(kind, len(extra), epoch, number) + extra


def split_answers(data: bytes) -> tuple[list[Answer], bytes]:
    """Cut complete answers off the front of what was received; also returns the rest."""
    answers: list[Answer] = []
    at, end = 0, len(data)
    while end - at >= _ANSWER.size:
        kind, length, epoch, number = _ANSWER.unpack_from(data, at)
        if end - at < _ANSWER.size + length:
            break
        at += _ANSWER.size
        answers.append(Answer(kind, epoch, number, data[at : at + length]))
        at += length
    return answers, data[at:]
