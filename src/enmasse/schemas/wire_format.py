"""The wire format of Confluent's serializers: a zero byte, the schema's id in four bytes, and the content."""

from __future__ import annotations

import struct
from typing import Final

_HEADER: Final = struct.Struct(">bI")
HEADER_BYTES: Final = _HEADER.size
MAX_ID: Final = 0x7FFF_FFFF
"""Clients read the id as a signed number."""


def header(schema_id: int) -> bytes:
    """Return what stands before the content of a message."""
    return _HEADER.pack(0, schema_id)


def schema_id_of(message: bytes) -> int | None:
    """Return the id of a message's schema; None: it is not in the wire format."""
    if len(message) < HEADER_BYTES or message[0]:
        return None
    return int(_HEADER.unpack_from(message)[1])
