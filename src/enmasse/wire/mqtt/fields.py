"""Reads the fields of packets: numbers, text, binary data, and the properties of version 5.

Whatever does not fit its packet or its type is a malformed packet; what fits and is not allowed is a protocol error
[MQTT-4.13.1-1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from enmasse.wire.mqtt.packets import (
    MAX_USER_PROPERTIES,
    PacketError,
    Reason,
    UserProperties,
    malformed,
    protocol_error,
)

MAX_VARIABLE_BYTES = 4
"""The most bytes of a variable byte integer [MQTT 5.0, 1.5.5]."""


class Cursor:
    """A place in the bytes of a packet, which moves on as fields are read.

    Attributes:
        at: the next byte.
        stop: the end of what may be read.
    """

    __slots__ = ("at", "data", "stop")

    def __init__(self, data: bytes, at: int, stop: int) -> None:
        self.data = data
        self.at = at
        self.stop = stop

    def is_at_end(self) -> bool:
        """Return true if nothing is left."""
        return self.at >= self.stop

    def _take(self, size: int) -> int:
        at = self.at
        if at + size > self.stop:
            raise malformed("the packet ends within a field")
        self.at = at + size
        return at

    def byte(self) -> int:
        """Read one byte."""
        return self.data[self._take(1)]

    def two(self) -> int:
        """Read a number of two bytes."""
        at = self._take(2)
        return self.data[at] << 8 | self.data[at + 1]

    def four(self) -> int:
        """Read a number of four bytes."""
        at = self._take(4)
        return int.from_bytes(self.data[at : at + 4], "big")

    def variable(self) -> int:
        """Read a variable byte integer, which has as few bytes as its value takes [MQTT-1.5.5-1]."""
        value = 0
        for shift in range(0, 7 * MAX_VARIABLE_BYTES, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                if not byte and shift:
                    raise malformed("a variable byte integer has more bytes than it takes")
                return value
        raise malformed("a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Read a length of two bytes and as many bytes."""
        size = self.two()
        at = self._take(size)
        return self.data[at : at + size]

    def text(self) -> str:
        """Read a length of two bytes and as many bytes of UTF-8, which must not hold U+0000 [MQTT-1.5.4-1, -2]."""
        data = self.binary()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise malformed(f"the text {data[:40].decode(errors='replace')!r} is not UTF-8") from None
        if "\0" in text:
            raise malformed("a text has the character U+0000")
        return text

    def pair(self) -> tuple[str, str]:
        """Read two texts."""
        return self.text(), self.text()

    def packet_id(self) -> int:
        """Read a packet identifier, which is not 0 [MQTT-2.2.1-3]."""
        number = self.two()
        if not number:
            raise protocol_error("a packet identifier is not 0")
        return number

    def end(self) -> None:
        """Require that nothing is left."""
        if self.at < self.stop:
            raise malformed(f"{self.stop - self.at} bytes are left after the last field")


class PropertyId(IntEnum):
    """A property of version 5, by its identifier [MQTT 5.0, 2.2.2.2]."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A

    @property
    def text(self) -> str:
        """The property's name in errors."""
        return self.name.replace("_", " ").lower()


class _Kind(NamedTuple):
    """A type of values: how it is read, and the values that are allowed if not all are."""

    read: Callable[[Cursor], Any]
    lowest: int = 0
    highest: int = 0xFFFF_FFFF


_FLAG = _Kind(Cursor.byte, 0, 1)
_TWO = _Kind(Cursor.two)
_FOUR = _Kind(Cursor.four)
_TEXT = _Kind(Cursor.text)
_BINARY = _Kind(Cursor.binary)

_KINDS: dict[int, _Kind] = {
    PropertyId.PAYLOAD_FORMAT_INDICATOR: _FLAG,
    PropertyId.MESSAGE_EXPIRY_INTERVAL: _FOUR,
    PropertyId.CONTENT_TYPE: _TEXT,
    PropertyId.RESPONSE_TOPIC: _TEXT,
    PropertyId.CORRELATION_DATA: _BINARY,
    PropertyId.SUBSCRIPTION_IDENTIFIER: _Kind(Cursor.variable, lowest=1),
    PropertyId.SESSION_EXPIRY_INTERVAL: _FOUR,
    PropertyId.ASSIGNED_CLIENT_IDENTIFIER: _TEXT,
    PropertyId.SERVER_KEEP_ALIVE: _TWO,
    PropertyId.AUTHENTICATION_METHOD: _TEXT,
    PropertyId.AUTHENTICATION_DATA: _BINARY,
    PropertyId.REQUEST_PROBLEM_INFORMATION: _FLAG,
    PropertyId.WILL_DELAY_INTERVAL: _FOUR,
    PropertyId.REQUEST_RESPONSE_INFORMATION: _FLAG,
    PropertyId.RESPONSE_INFORMATION: _TEXT,
    PropertyId.SERVER_REFERENCE: _TEXT,
    PropertyId.REASON_STRING: _TEXT,
    PropertyId.RECEIVE_MAXIMUM: _Kind(Cursor.two, lowest=1),
    PropertyId.TOPIC_ALIAS_MAXIMUM: _TWO,
    PropertyId.TOPIC_ALIAS: _TWO,
    PropertyId.MAXIMUM_QOS: _FLAG,
    PropertyId.RETAIN_AVAILABLE: _FLAG,
    PropertyId.USER_PROPERTY: _Kind(Cursor.pair),
    PropertyId.MAXIMUM_PACKET_SIZE: _Kind(Cursor.four, lowest=1),
    PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE: _FLAG,
    PropertyId.SUBSCRIPTION_IDENTIFIER_AVAILABLE: _FLAG,
    PropertyId.SHARED_SUBSCRIPTION_AVAILABLE: _FLAG,
}

_REPEATED = frozenset((PropertyId.USER_PROPERTY, PropertyId.SUBSCRIPTION_IDENTIFIER))


class Properties(dict[int, Any]):
    """The properties of a packet by their identifiers; those that may come again are lists."""

    def user(self) -> UserProperties:
        """Return the user properties in order."""
        found: UserProperties = self.get(PropertyId.USER_PROPERTY, [])
        return found


def allowed(*identifiers: PropertyId) -> frozenset[int]:
    """Return the properties that a packet may have; all may have user properties."""
    return frozenset((*identifiers, PropertyId.USER_PROPERTY))


def read_properties(cursor: Cursor, permitted: frozenset[int], once: Iterable[int] = ()) -> Properties:
    """Read a packet's properties and their length.

    Args:
        cursor: stands at the length.
        permitted: the properties that the packet may have.
        once: the properties that it may not have twice although others may.

    Raises:
        PacketError: they are not properties, or not those of this packet.
    """
    size = cursor.variable()
    found = Properties()
    if not size:
        return found
    stop = cursor.at + size
    if stop > cursor.stop:
        raise malformed("the properties are longer than their packet")
    inner = Cursor(cursor.data, cursor.at, stop)
    while inner.at < stop:
        number = inner.variable()
        kind = _KINDS.get(number)
        if kind is None:
            raise malformed(f"there is no property {number:#04x}")
        if number not in permitted:
            raise malformed(f"the property {PropertyId(number).text} does not belong to this packet")
        value = kind.read(inner)
        if isinstance(value, int) and not kind.lowest <= value <= kind.highest:
            raise protocol_error(f"the property {PropertyId(number).text} may not be {value}")
        if number in _REPEATED and number not in once:
            values = found.setdefault(number, [])
            if len(values) >= MAX_USER_PROPERTIES:
                raise PacketError(
                    Reason.QUOTA_EXCEEDED, f"a packet has up to {MAX_USER_PROPERTIES} of a property that comes again"
                )
            values.append(value)
        elif number in found:
            raise protocol_error(f"the property {PropertyId(number).text} comes twice")
        else:
            found[number] = value
    cursor.at = stop
    return found
