"""Rows of the spool, and messages that were looked at, as the columns that streams have too."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from enmasse.messaging.frame import Frame, encode_frame, split_payload
from enmasse.pipeline.source.columns import frame_to_batch
from enmasse.pipeline.source.consumed.batch_file import Row
from enmasse.pipeline.source.values import value_of
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import key_and_subject

__all__ = ["PARTITION", "rows_to_batch"]

PARTITION = 0
"""There is one only."""


def rows_to_batch(first: int, rows: Sequence[Row], properties_of: str = "") -> pa.RecordBatch:
    """The rows as Spark takes them.

    Args:
        first: the offset of the first one.
        rows: at least one.
        properties_of: the address, if what precedes the body is wanted as columns.
    """
    heads, bodies, whole = [], [], []
    for index, row in enumerate(rows):
        head, body, is_whole = split_payload(row.message)
        heads.append(head)
        bodies.append(body)
        if is_whole:
            whole.append(index)
    keys = [_key_of(row.message) for row in rows]
    frame = Frame(encode_frame(first, [row.timestamp_us for row in rows], keys, heads, bodies, whole=whole))
    return frame_to_batch(frame, PARTITION, first, first + len(rows), value_of, properties_of=properties_of)


def _key_of(message: bytes) -> bytes:
    """What would be its key in a stream."""
    try:
        key, subject = key_and_subject(message)
    except DecodeError:
        return b""
    found = subject if key is None else key
    return found.encode() if isinstance(found, str) else found if isinstance(found, bytes) else b""
