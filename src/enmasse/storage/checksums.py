"""The checksum of a record: four bytes, little-endian, before the value that is stored.

LMDB has none of its own, so a bit that a disk has changed would be taken for what was written.

Rules:
1. Of a record that is no frame it covers key and value.
2. Of a frame it covers the key alone: a frame has its own inside, of all else. What was stored before there
   were checksums has none, and is told apart by where its magic stands.
3. The record that tells the format has its checksum behind its value, so that older versions read the number.
"""

from __future__ import annotations

import struct
from typing import overload
from zlib import crc32

CHECKSUM_BYTES = 4
FORMAT_KEY = b"\0format"

_CRC = struct.Struct("<I")
_FRAME = 2
_MAGIC = b"EMF"
_SIZE_AT = 12
"""In a frame, where its size stands."""


def with_checksum(key: bytes, value: bytes | memoryview) -> bytes:
    """Return what is stored for a value.

    Args:
        key: with the table's byte.
        value: the value of the record.
    """
    is_frame = key[0] == _FRAME and value[: len(_MAGIC)] == _MAGIC
    return b"".join((_CRC.pack(crc32(key) if is_frame else crc32(value, crc32(key))), value))


@overload
def without_checksum(key: bytes, stored: bytes) -> bytes | None: ...
@overload
def without_checksum(key: bytes, stored: memoryview) -> memoryview | None: ...
def without_checksum(key: bytes, stored: bytes | memoryview) -> bytes | memoryview | None:
    """Return the value of what is stored; ``None`` if it, or its key, is not what was written."""
    value = stored[CHECKSUM_BYTES:]
    if key[0] != _FRAME:
        expected = crc32(value, crc32(key))
    elif value[: len(_MAGIC)] == _MAGIC:
        expected = crc32(key)
    elif stored[: len(_MAGIC)] == _MAGIC:
        return stored
    else:
        expected = crc32(value, crc32(key))
    is_right = len(stored) >= CHECKSUM_BYTES and _CRC.unpack_from(stored)[0] == expected
    return value if is_right else None


def encode_format(version: int) -> bytes:
    """Return the value of the record that tells the format, of one that has checksums."""
    number = _CRC.pack(version)
    return number + _CRC.pack(crc32(number, crc32(FORMAT_KEY)))


def decode_format(value: bytes) -> int | None:
    """Return the format that a journal is of; ``None`` if its checksum is wrong."""
    number = value[:CHECKSUM_BYTES]
    if has_checksums(value) and _CRC.pack(crc32(number, crc32(FORMAT_KEY))) != value[CHECKSUM_BYTES:]:
        return None
    return int.from_bytes(number, "little")


def has_checksums(value: bytes) -> bool:
    """Return true if the record that tells the format is of one whose records have checksums: from 5 on."""
    return len(value) > CHECKSUM_BYTES


def is_sound(key: bytes, stored: bytes) -> bool:
    """Return true if what is stored, of a format with checksums, has the right one."""
    if key == FORMAT_KEY:
        return has_checksums(stored) and decode_format(stored) is not None
    return without_checksum(key, stored) is not None


def begins_frame(start: bytes) -> bool:
    """Return true if what is stored among frames begins as one, with a checksum or without."""
    return _MAGIC in (start[: len(_MAGIC)], start[CHECKSUM_BYTES : CHECKSUM_BYTES + len(_MAGIC)])


def is_sound_start(key: bytes, start: bytes, size: int) -> bool:
    """Return true if a frame, as it is stored, begins as it should.

    Args:
        key: with the table's byte.
        start: its first page.
        size: the size of all that is stored.
    """
    value = without_checksum(key, start)
    return value is not None and _CRC.unpack_from(value, _SIZE_AT)[0] == size - len(start) + len(value)
