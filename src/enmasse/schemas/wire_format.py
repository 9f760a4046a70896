"""The wire format of Confluent's serializers: a zero byte, the schema's id in four bytes, and the content."""

from __future__ import annotations

import struct
from typing import Final

_HEADER: Final = struct.Struct(">bI")
HEADER_BYTES: Final = _HEADER.size
MAX_ID: Final = 0x7FFF_FFFF
"""Clients read the id as a signed number."""
_MAX_PATH: Final = 100
_MAX_SHIFT: Final = 35
"""Of numbers of 32 bits."""


def header(schema_id: int) -> bytes:
    """Return what stands before the content of a message."""
    return _HEADER.pack(0, schema_id)


def schema_id_of(message: bytes) -> int | None:
    """Return the id of a message's schema; None: it is not in the wire format."""
    if len(message) < HEADER_BYTES or message[0]:
        return None
    return int(_HEADER.unpack_from(message)[1])


def message_path_of(content: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a message in its file of Protobuf, and how many bytes before the message tell it.

    The place is the index of a message in the file, then of one within that, and so on: after their count, each as a
    varint in zigzag. A zero alone is the first message.

    Raises:
        ValueError: it is no such place.
    """
    count, used = _number_at(content, 0)
    if not 0 <= count <= _MAX_PATH:
        raise ValueError(f"expected the place of a message in its file, got {count} indexes")
    path = []
    for _ in range(count):
        index, used = _number_at(content, used)
        path.append(index)
    return tuple(path) or (0,), used


def _number_at(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _MAX_SHIFT, 7):
        if at + shift // 7 >= len(content):
            break
        byte = content[at + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + shift // 7 + 1
    raise ValueError("the place of a message in its file ends too soon")
