"""CBOR [RFC 8949]: one item, nothing after it, no deeper than the library's bound of 400."""

from __future__ import annotations

import io
from typing import Any

import cbor2

from enmasse.pipeline.decoding.shaping import RecordProblem


def read_cbor(content: bytes) -> Any:
    """Return the item that a message holds.

    Raises:
        RecordProblem: it is not CBOR, or more than one item.
    """
    file = io.BytesIO(content)
    try:
        item = cbor2.CBORDecoder(file).decode()
    except cbor2.CBORDecodeError as error:
        raise RecordProblem(f"not CBOR: {error}") from error
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise RecordProblem(f"not CBOR: {type(error).__name__}") from error
    if file.tell() != len(content):
        raise RecordProblem(f"expected one CBOR item, got {len(content) - file.tell()} more bytes")
    return item
