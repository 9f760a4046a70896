"""What precedes a message's body, as columns: content type, properties, annotations, and where it was sent.

Devices repeat themselves: of many rows only few heads differ. So heads are told apart by Arrow, each is
decoded once, and what was decoded lately is known by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from enmasse.pipeline.source.values import text_of
from enmasse.wire.amqp.codec import skip
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import APPLICATION_PROPERTIES, Sections

__all__ = ["PROPERTY_DDL", "PROPERTY_FIELDS", "Head", "decode_head", "property_columns"]

_MAP = pa.map_(pa.string(), pa.string())
PROPERTY_DDL = "content_type STRING, properties MAP<STRING, STRING>, annotations MAP<STRING, STRING>, address STRING"
PROPERTY_FIELDS = [
    ("content_type", pa.string()),
    ("properties", _MAP),
    ("annotations", _MAP),
    ("address", pa.string()),
]

KNOWN_HEADS = 4_096
KNOWN_HEAD_BYTES = 1_024
"""What the memory of heads is bounded by: such that long are mostly their own kind."""


class Head(NamedTuple):
    """What a message says before its body."""

    content_type: str | None
    properties: list[tuple[str, str | None]]
    """Application properties, by name."""
    annotations: list[tuple[str, str | None]]
    address: str | None
    """Where the sender says that it goes (``to``)."""


_NOTHING = Head(None, [], [], None)


def decode_head(head: bytes) -> Head:
    """What the sections before a body say; nothing where they cannot be decoded.

    Args:
        head: a message, or its beginning.
    """
    front = _front(head)
    return _known(front) if len(front) <= KNOWN_HEAD_BYTES else _decode(front)


def _front(head: bytes) -> bytes:
    """The sections before the body; the body's own prefix holds its length, which differs from row to row."""
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
    """The columns of ``PROPERTY_FIELDS`` for an array of heads.

    Args:
        heads: of the rows, as binary.
        address: the stream's, for messages that name none.
    """
    encoded = heads.dictionary_encode()
    known = [decode_head(head) for head in encoded.dictionary.to_pylist()]
    distinct = [
        pa.array([head.content_type for head in known], pa.string()),
        pa.array([head.properties for head in known], _MAP),
        pa.array([head.annotations for head in known], _MAP),
        pa.array([head.address or address for head in known], pa.string()),
    ]
    return [column.take(encoded.indices) for column in distinct]
