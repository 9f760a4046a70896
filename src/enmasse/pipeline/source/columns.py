"""Frames as Arrow record batches, without touching a row.

A frame's columns lie as Arrow lays them out, so an array is three numbers and two slices of the
frame's bytes. Only rows whose message is no plain body are decoded, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enmasse.messaging.frame import Column, Frame, FrameError
from enmasse.pipeline.source.heads import PROPERTY_DDL, PROPERTY_FIELDS, property_columns

__all__ = [
    "FULL_SCHEMA",
    "FULL_SCHEMA_DDL",
    "SCHEMA",
    "SCHEMA_DDL",
    "Decoder",
    "frame_to_batch",
    "join_batches",
]

Decoder = Callable[[bytes], bytes]
"""Gives the value of a message that lies whole in its head."""

SCHEMA_DDL = "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)

FULL_SCHEMA_DDL = f"{SCHEMA_DDL}, {PROPERTY_DDL}"
FULL_SCHEMA = pa.schema([*SCHEMA, *PROPERTY_FIELDS])
"""With what precedes the body, which costs work for each head that differs."""

JOIN_ROWS = 10_000
"""Spark's own batch size; beyond it a larger batch gains nothing."""
JOIN_BYTES = 4 << 20
"""Bounds a worker's memory when bodies are large."""


def frame_to_batch(
    frame: Frame, partition: int, start: int, end: int, decode: Decoder, *, properties_of: str = ""
) -> pa.RecordBatch:
    """The rows of a frame whose offsets lie in ``start <= offset < end``.

    Args:
        frame: kept alive by the batch, which points into its bytes.
        partition: the stream's partition it came from.
        start: first offset wanted.
        end: one above the last offset wanted.
        decode: gives the value of a message that lies whole in its head.
        properties_of: the stream's address, if the columns of ``FULL_SCHEMA`` are wanted.

    Raises:
        FrameError: the frame's columns are inconsistent.
    """
    rows, first = frame.rows, frame.first_offset
    buffer = pa.py_buffer(frame.data)
    value = _binary(buffer, frame.bodies, rows)
    key = _binary(buffer, frame.keys, rows)
    _check(frame, key, value)
    columns = [
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(np.arange(first, first + rows)),
        pa.Array.from_buffers(SCHEMA.types[2], rows, [None, buffer.slice(frame.ts_at, 8 * rows)]),
        key,
        value,
    ]
    if frame.has_whole or properties_of:
        heads = _binary(buffer, frame.heads, rows)
        _check(frame, heads)
        if frame.has_whole:
            columns[-1] = _with_whole(buffer, frame, value, heads, decode)
        if properties_of:
            columns += property_columns(heads, properties_of)
    batch = pa.RecordBatch.from_arrays(columns, schema=FULL_SCHEMA if properties_of else SCHEMA)
    if start > first or end < first + rows:
        begin = max(0, start - first)
        batch = batch.slice(begin, max(0, min(rows, end - first) - begin))
    return batch


def _binary(buffer: pa.Buffer, column: Column, rows: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(),
        rows,
        [
            None,
            buffer.slice(column.offsets_at, 4 * (rows + 1)),
            buffer.slice(column.data_at, column.data_end - column.data_at),
        ],
    )


def _check(frame: Frame, *columns: pa.Array) -> None:
    try:
        for column in columns:
            column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FrameError(f"the frame at offset {frame.first_offset} has wrong columns: {error}") from error


def _with_whole(buffer: pa.Buffer, frame: Frame, value: pa.Array, heads: pa.Array, decode: Decoder) -> pa.Array:
    rows = frame.rows
    bitmap = buffer.slice(frame.whole_at, (rows + 7) >> 3)
    mask = pa.Array.from_buffers(pa.bool_(), rows, [None, bitmap])
    decoded = [decode(message) for message in heads.filter(mask).to_pylist()]
    return pc.replace_with_mask(value, mask, pa.array(decoded, pa.binary()))


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: small frames are slow for Spark, one by one."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > JOIN_ROWS or size + batch.nbytes > JOIN_BYTES):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= JOIN_ROWS or size >= JOIN_BYTES:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
