"""Turns frames into Arrow record batches without touching a row.

The columns come from ``model/sql/message_columns``, as Spark's DDL and as Arrow's schema. A frame's columns lie as
Arrow lays them out, so an array is three numbers and two slices of the frame's bytes.

Heads: what precedes a message's body gives content type, properties, annotations and the address. Devices repeat
themselves: of many rows only few heads differ. So Arrow finds the distinct heads, each is decoded once, and those
decoded lately are cached by their bytes.

Values of messages that are no plain body (several data sections, sequences, structured values) are decoded each:
1. Data sections give their content, joined; an amqp-value of binary its bytes, of string its UTF-8.
2. Any other body gives JSON: binary inside as base64, timestamps as milliseconds, uuids as text.
3. What cannot be decoded is given as it came, for one odd message must not stop a query.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enmasse.errors import RemoteError
from enmasse.message.codec import decode_all, skip
from enmasse.message.errors import DecodeError
from enmasse.message.sections import APPLICATION_PROPERTIES, TOPIC_NAME, Sections
from enmasse.message.types import Array, Described
from enmasse.messaging.log.frame import Column as FrameColumn
from enmasse.messaging.log.frame import Frame, FrameError
from enmasse.model.sql.ddl import Column, ColumnType
from enmasse.model.sql.message_columns import raw_columns
from enmasse.pipeline.headers import headers_of

_ARROW: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


def arrow_type(of: ColumnType) -> pa.DataType:
    """Return the Arrow type that Spark takes for a column."""
    if of.name == "DECIMAL":
        return pa.decimal128(*of.arguments)
    if of.name == "ARRAY":
        return pa.list_(arrow_type(of.inner[0]))
    if of.name == "MAP":
        return pa.map_(arrow_type(of.inner[0]), arrow_type(of.inner[1]))
    if of.name == "STRUCT":
        return pa.struct([(field.name, arrow_type(field.type)) for field in of.fields])
    return _ARROW[of.name]


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


SCHEMA = _schema(raw_columns(with_properties=False))

FULL_SCHEMA = _schema(raw_columns(with_properties=True))
"""With what precedes the body, which costs work for each head that differs."""

_HEADERS = _schema(raw_columns(with_properties=False, with_headers=True)).field("headers")
_TOPIC_NAME = _schema(raw_columns(with_properties=False, with_topic_name=True)).field("topic_name")


_DATA = 0x75
_SEQUENCE = 0x76
_VALUE = 0x77


def value_of(payload: bytes) -> bytes:
    """Return what the column ``value`` holds for a message given as its AMQP sections."""
    try:
        sections = decode_all(payload)
    except RemoteError:
        return payload
    bodies = [s for s in sections if isinstance(s, Described) and s.descriptor in (_DATA, _SEQUENCE, _VALUE)]
    if not bodies:
        return b""
    kind = bodies[0].descriptor
    values = [body.value for body in bodies]
    if kind == _DATA and all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    if kind == _SEQUENCE and all(isinstance(value, list) for value in values):
        return _json([item for value in values for item in value])
    value = values[0]
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    return b"" if value is None else _json(value)


def text_of(value: Any) -> str | None:
    """Return a property as text: strings as they are, everything else as it stands in JSON."""
    if value is None or type(value) is str:
        return value
    plain = _plain(value)
    return str(plain) if isinstance(plain, str) else _json(plain).decode()


def _json(value: Any) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _plain(value: Any) -> Any:
    """Return the same value of types that JSON has."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Array):
        return [_plain(item) for item in value.values]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


KNOWN_HEADS = 4_096
KNOWN_HEAD_BYTES = 1_024
"""Longer heads are not cached: they are mostly their own kind."""


class Head(NamedTuple):
    """The decoded head of a message."""

    content_type: str | None
    properties: list[tuple[str, str | None]]
    """Application properties, by name."""
    annotations: list[tuple[str, str | None]]
    address: str | None
    """The address that the sender gave (``to``)."""


_NOTHING = Head(None, [], [], None)


def decode_head(head: bytes) -> Head:
    """Decode the sections before a body; nothing where they cannot be decoded.

    Args:
        head: a message, or its beginning.
    """
    front = _front(head)
    return _known(front) if len(front) <= KNOWN_HEAD_BYTES else _decode(front)


def _front(head: bytes) -> bytes:
    """Return the sections before the body; the body's own prefix holds its length, which differs from row to row."""
    at, end = 0, len(head)
    try:
        while at < end and head[at] == 0 and head[at + 1] == 0x53 and head[at + 2] <= APPLICATION_PROPERTIES:
            at = skip(head, at + 3, end)
    except (DecodeError, IndexError):
        return head
    return head[:at]


def _decode(front: bytes) -> Head:
    sections = Sections(front)
    try:
        properties = sections.properties
        return Head(
            properties.content_type,
            _texts(sections.application_properties),
            _texts(sections.message_annotations),
            properties.to,
        )
    except DecodeError:
        return _NOTHING


_known = lru_cache(KNOWN_HEADS)(_decode)


def _texts(values: Mapping[Any, Any]) -> list[tuple[str, str | None]]:
    return list({str(text_of(key)): text_of(value) for key, value in values.items()}.items())


def property_columns(heads: pa.Array, address: str) -> list[pa.Array]:
    """Return the columns of properties for an array of heads.

    Args:
        heads: the heads of the rows, as binary.
        address: the stream's, for messages that name none.
    """
    encoded = heads.dictionary_encode()
    known = [decode_head(head) for head in encoded.dictionary.to_pylist()]
    distinct = [
        pa.array([head.content_type for head in known], FULL_SCHEMA.field("content_type").type),
        pa.array([head.properties for head in known], FULL_SCHEMA.field("properties").type),
        pa.array([head.annotations for head in known], FULL_SCHEMA.field("annotations").type),
        pa.array([head.address or address for head in known], FULL_SCHEMA.field("address").type),
    ]
    return [column.take(encoded.indices) for column in distinct]


def _headers(front: bytes) -> list[dict[str, Any]]:
    try:
        return [header._asdict() for header in headers_of(Sections(front))]
    except DecodeError:
        return []


_known_headers = lru_cache(KNOWN_HEADS)(_headers)


def header_column(heads: pa.Array) -> pa.Array:
    """Return the column ``headers`` for an array of heads; nothing where they cannot be decoded."""
    encoded = heads.dictionary_encode()
    fronts = map(_front, encoded.dictionary.to_pylist())
    found = [_known_headers(front) if len(front) <= KNOWN_HEAD_BYTES else _headers(front) for front in fronts]
    return pa.array(found, _HEADERS.type).take(encoded.indices)


def topic_column(heads: pa.Array, topic: str) -> pa.Array:
    """Return the column ``topic_name`` for an array of heads.

    Args:
        heads: the heads of the rows, as binary.
        topic: the topic, whose name its own messages do not carry; empty where that is not known.
    """
    encoded = heads.dictionary_encode()
    annotations = (dict(decode_head(head).annotations) for head in encoded.dictionary.to_pylist())
    found = [one.get(TOPIC_NAME, topic or None) for one in annotations]
    return pa.array(found, _TOPIC_NAME.type).take(encoded.indices)


Decoder = Callable[[bytes], bytes]
"""Gives the value of a message that lies whole in its head."""

JOIN_ROWS = 10_000
"""Spark's own batch size; beyond it a larger batch gains nothing."""
JOIN_BYTES = 4 << 20
"""Bounds a worker's memory when bodies are large."""


def frame_to_batch(
    frame: Frame,
    partition: int,
    start: int,
    end: int,
    decode: Decoder,
    *,
    properties_of: str = "",
    with_headers: bool = False,
    topic: str | None = None,
) -> pa.RecordBatch:
    """Return the rows of a frame whose offsets lie in ``start <= offset < end``.

    Args:
        frame: kept alive by the batch, which points into its bytes.
        partition: the stream's partition it came from.
        start: first offset wanted.
        end: one above the last offset wanted.
        decode: gives the value of a message that lies whole in its head.
        properties_of: the stream's address, if the columns of ``FULL_SCHEMA`` are wanted.
        with_headers: whether the column ``headers`` is wanted.
        topic: not None, if the column ``topic_name`` is wanted: the topic that is read, empty for another address.

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
    schema = FULL_SCHEMA if properties_of else SCHEMA
    if frame.has_whole or properties_of or with_headers or topic is not None:
        heads = _binary(buffer, frame.heads, rows)
        _check(frame, heads)
        if frame.has_whole:
            columns[-1] = _with_whole(buffer, frame, value, heads, decode)
        if properties_of:
            columns += property_columns(heads, properties_of)
        if with_headers:
            columns.append(header_column(heads))
            schema = schema.append(_HEADERS)
        if topic is not None:
            columns.append(topic_column(heads, topic))
            schema = schema.append(_TOPIC_NAME)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if start > first or end < first + rows:
        begin = max(0, start - first)
        batch = batch.slice(begin, max(0, min(rows, end - first) - begin))
    return batch


def _binary(buffer: pa.Buffer, column: FrameColumn, rows: int) -> pa.Array:
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
    """Yield the same rows in fewer batches: small frames are slow for Spark, one by one."""
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
