"""Messages into bytes [AMQP 3.2]; ``sections`` is the way back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from enmasse.errors import LocalError
from enmasse.message.codec import encode, encode_into
from enmasse.message.section_kinds import (
    DEFAULT_PRIORITY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTY_FIELDS,
    Header,
    Properties,
)
from enmasse.message.types import Described, Symbol, Timestamp, UByte, UInt, ULong

_DATA_SHORT = b"\x00\x53\x75\xa0"
_DATA_LONG = b"\x00\x53\x75\xb0"
_U32 = struct.Struct(">I")


def _text(value: Any) -> bytes:
    content: bytes = value.encode()
    size = len(content)
    return _TEXT_STARTS[size] + content if size < 256 else b"\xb1" + _U32.pack(size) + content


def _typed(kind: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    return lambda value: encode(kind(value))


def _binary(value: Any) -> bytes:
    # bytes(5) would be five zeros.
    return encode(bytes(memoryview(value)))


def _identity(value: Any) -> bytes:
    """A message-id, an integer being of the only kind that it may be [AMQP 3.2.11]."""
    if isinstance(value, str):
        return _text(value)
    return encode(ULong(value) if isinstance(value, int) else value)


_TEXT_STARTS = [bytes((0xA1, size)) for size in range(256)]
_symbol, _timestamp, _uint = _typed(Symbol), _typed(Timestamp), _typed(UInt)
_PROPERTY_WRITERS: tuple[Callable[[Any], bytes], ...] = (
    _identity, _binary, _text, _text, _text, _identity, _symbol, _symbol, _timestamp, _timestamp, _text, _uint, _text,
)  # fmt: skip

_PROPERTY_GETTERS = [
    (attrgetter(name), write) for (name, _), write in zip(PROPERTY_FIELDS, _PROPERTY_WRITERS, strict=True)
]


def encode_header(header: Header) -> bytes:
    """The header section; nothing if all of it is default."""
    values = [
        header.durable,
        UByte(header.priority) if header.priority != DEFAULT_PRIORITY else None,
        UInt(header.ttl) if header.ttl is not None else None,
        header.first_acquirer or None,
        UInt(header.delivery_count) if header.delivery_count else None,
    ]
    if not header.durable:
        values[0] = None
    while values and values[-1] is None:
        values.pop()
    return encode(Described(ULong(HEADER), values)) if values else b""


def _annotations(out: bytearray, code: int, annotations: dict[Any, Any] | None) -> None:
    if annotations:
        keyed = {Symbol(k) if isinstance(k, str) else ULong(k): v for k, v in annotations.items()}
        out += bytes((0, 0x53, code))
        encode_into(out, keyed)


def _write_properties(out: bytearray, properties: Properties) -> None:
    fields = []
    keep = 0
    for get, write in _PROPERTY_GETTERS:
        value = get(properties)
        if value is None:
            fields.append(b"\x40")
            continue
        try:
            fields.append(write(value))
        except (AttributeError, TypeError, ValueError) as error:
            raise LocalError(f"{value!r:.60} is no value of a message's property: {error}") from None
        keep = len(fields)
    if not keep:
        return
    content = b"".join(fields[:keep])
    size = len(content)
    if size < 255:
        out += b"\x00\x53\x73\xc0" + bytes((size + 1, keep))
    else:
        out += b"\x00\x53\x73\xd0" + _U32.pack(size + 4) + _U32.pack(keep)
    out += content


def data_start(size: int) -> bytes:
    """Return the bytes of a data section before its content of so many bytes."""
    return _DATA_SHORT + bytes((size,)) if size < 256 else _DATA_LONG + _U32.pack(size)


def encode_message(
    body: Any,
    *,
    header: Header | None = None,
    delivery_annotations: dict[Any, Any] | None = None,
    message_annotations: dict[Any, Any] | None = None,
    properties: Properties | None = None,
    application_properties: dict[str, Any] | None = None,
    footer: dict[Any, Any] | None = None,
) -> bytes:
    """The bytes of a message; ``bytes`` become a data section, any other body an amqp-value.

    Raises:
        LocalError: something has no AMQP type, or is out of its type's range.
    """
    out = bytearray()
    if header is not None:
        out += encode_header(header)
    _annotations(out, DELIVERY_ANNOTATIONS, delivery_annotations)
    _annotations(out, MESSAGE_ANNOTATIONS, message_annotations)
    if properties is not None:
        _write_properties(out, properties)
    if application_properties:
        out += b"\x00\x53\x74"
        encode_into(out, application_properties)
    if isinstance(body, bytes | bytearray | memoryview):
        out += data_start(len(body))
        out += body
    else:
        out += b"\x00\x53\x77"
        encode_into(out, body)
    _annotations(out, FOOTER, footer)
    return bytes(out)
