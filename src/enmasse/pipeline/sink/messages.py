"""Rows as AMQP messages: what precedes the body's content, kept for rows that differ in the content alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from enmasse.message.sections import Header, Properties, encode_message
from enmasse.pipeline.headers import USER_PROPERTIES, known_properties
from enmasse.pipeline.sink.columns import Row

PARTITION_KEY = "x-opt-partition-key"
SEQUENCE = "x-opt-sequence"

MAX_TTL_MS = (1 << 32) - 1
"""The largest ttl of a header [AMQP 3.2.1]: some 49 days."""

KNOWN_HEADS = 4_096
"""Heads that are remembered; rows of a device mostly differ in their content alone."""

_EMPTY_BODY_BYTES = len(b"\x00\x53\x75\xa0\x00")
_SHORT = b"\x00\x53\x75\xa0"
_LONG = b"\x00\x53\x75\xb0"
_U32 = struct.Struct(">I")
_PREFIXES = [_SHORT + bytes((size,)) for size in range(256)]


def data_prefix(size: int) -> bytes:
    """Return what precedes the content of a data section."""
    return _PREFIXES[size] if size < 256 else _LONG + _U32.pack(size)


def key_bytes(row: Row) -> bytes:
    """Return what decides on the row's partition: its key, else its subject, else nothing."""
    key = row.subject if row.key is None else row.key
    if key is None:
        return b""
    return key if isinstance(key, bytes) else key.encode()


class Encoder:
    """Makes messages of rows.

    Args:
        durable: for rows that have no such column.
    """

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._known: dict[Any, bytes] = {}

    def head(self, row: Row) -> bytes:
        """Return the sections before the body of a row."""
        what = row[1:-1]  # all but content and partition
        found = self._known.get(what)
        if found is None:
            found = self._encode(row, row.message_id, None, None)
            if len(self._known) >= KNOWN_HEADS:
                self._known.clear()
            self._known[what] = found
        return found

    def message(
        self,
        row: Row,
        *,
        message_id: str,
        sequence: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return a row's whole message.

        Args:
            row: the row.
            message_id: for a row that has none of its own.
            sequence: its number among its producer's.
            extra: application properties besides the row's.
        """
        value = row.value or b""
        head = self._encode(row, row.message_id or message_id, sequence, extra)
        return b"".join((head, data_prefix(len(value)), value))

    def _encode(
        self, row: Row, message_id: str | None, sequence: int | None, extra: Mapping[str, Any] | None
    ) -> bytes:
        annotations: dict[str, Any] = {}
        if row.key is not None:
            annotations[PARTITION_KEY] = row.key
        if sequence is not None:
            annotations[SEQUENCE] = sequence
        properties = None
        if message_id is not None or row.subject is not None or row.content_type is not None:
            properties = Properties(message_id=message_id, subject=row.subject, content_type=row.content_type)
        application = dict(row.properties or ())
        if row.headers:
            found = known_properties(row.headers)
            application |= found.application
            if found.pairs is not None:
                annotations[USER_PROPERTIES] = found.pairs
        message = encode_message(
            b"",
            header=Header(self._durable if row.durable is None else row.durable, ttl=row.ttl or None),
            message_annotations=annotations,
            properties=properties,
            application_properties={**application, **(extra or {})},
        )
        return message[:-_EMPTY_BODY_BYTES]
