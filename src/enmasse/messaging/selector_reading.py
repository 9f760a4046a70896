"""Single values of a message, found without decoding what stands before them.

A selector is applied to every message for every receiver, and mostly asks for one or two values. Messages in
an encoding that nobody uses are read the careful way, by ``Sections``.
"""

from __future__ import annotations

import struct
from typing import Any

from enmasse.wire.amqp.codec import decode, skip
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import APPLICATION_PROPERTIES, HEADER, Sections

__all__ = ["application_property", "key_of", "list_field"]

_U32 = struct.Struct(">I")
_UNUSUAL = -2
_MISSING = -1

_WIDTHS = tuple({4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(code >> 4, 0) for code in range(256))
"""Bytes of a value of fixed width with that code, 0 of others."""


def key_of(name: str) -> bytes:
    """A name as the key of a map in its usual encoding; empty if it is too long for that."""
    content = name.encode()
    return bytes((0xA1, len(content))) + content if len(content) < 256 else b""


def _value_of(payload: bytes, wanted: int) -> int:
    """Where the value of a section starts, ``_MISSING`` or ``_UNUSUAL``."""
    at = 0
    size = len(payload)
    while at < size:
        if payload[at] or payload[at + 1] != 0x53:
            return _UNUSUAL
        code = payload[at + 2]
        if code >= wanted:
            return at + 3 if code == wanted else _MISSING
        kind = payload[at + 3]
        if kind & 0xFE == 0xC0:
            at += 5 + payload[at + 4]
        elif kind == 0x45:
            at += 4
        elif kind & 0xFE == 0xD0:
            at += 8 + _U32.unpack_from(payload, at + 4)[0]
        else:
            return _UNUSUAL
    return _MISSING if at == size else _UNUSUAL


def _after(payload: bytes, at: int, end: int) -> int:
    """Where the value that starts there ends."""
    code = payload[at]
    width = _WIDTHS[code]
    if width:
        return at + width
    if code in (0xA0, 0xA1, 0xA3):
        return at + 2 + payload[at + 1]
    return skip(payload, at, end)


def _content(payload: bytes, at: int) -> tuple[int, int, int]:
    """Start, end and number of the elements of a compound value."""
    if payload[at] & 0x10:
        return at + 9, at + 5 + _U32.unpack_from(payload, at + 1)[0], _U32.unpack_from(payload, at + 5)[0]
    return at + 3, at + 2 + payload[at + 1], payload[at + 2]


def application_property(payload: bytes, name: str, key: bytes) -> Any:
    """An application property; ``None`` if the message has none of that name.

    Args:
        payload: the message.
        name: the name.
        key: what ``key_of`` gave for it.

    Raises:
        DecodeError: the message is malformed on the way there.
    """
    try:
        at = _value_of(payload, APPLICATION_PROPERTIES)
        if at == _MISSING:
            return None
        if at != _UNUSUAL and key and payload[at] in (0xC1, 0xD1):
            at, end, count = _content(payload, at)
            if end > len(payload) or count & 1:
                raise DecodeError("the application properties are cut short")
            size = len(key)
            for _ in range(0, count, 2):
                if payload[at] != 0xA1:
                    break
                if payload[at : at + size] == key:
                    return decode(payload, at + size, end)[0]
                at = _after(payload, _after(payload, at, end), end)
            else:
                if at != end:
                    raise DecodeError("the application properties are not a map")
                return None
    except (IndexError, struct.error):
        raise DecodeError("a section is cut short") from None
    return Sections(payload).application_properties.get(name)


def list_field(payload: bytes, section: int, index: int, kind: Any, name: str) -> Any:
    """A field of the header or of the properties; ``None`` if the message does not say it.

    Args:
        payload: the message.
        section: ``HEADER`` or ``PROPERTIES``.
        index: the field's place.
        kind: the type or types that it may have.
        name: the field's, as ``Header`` or ``Properties`` call it.

    Raises:
        DecodeError: the message is malformed on the way there, or the field has another type.
    """
    try:
        at = _value_of(payload, section)
        if at == _MISSING or (at != _UNUSUAL and payload[at] == 0x45):
            return None
        if at != _UNUSUAL and payload[at] in (0xC0, 0xD0):
            at, end, count = _content(payload, at)
            if end > len(payload):
                raise DecodeError("a section is cut short")
            if index >= count:
                return None
            for _ in range(index):
                at = _after(payload, at, end)
            value = decode(payload, at, end)[0]
            if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
                raise DecodeError(f"{value!r:.60} is no {name}")
            return value
    except (IndexError, struct.error):
        raise DecodeError("a section is cut short") from None
    sections = Sections(payload)
    return getattr(sections.header if section == HEADER else sections.properties, name)
