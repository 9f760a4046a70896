"""The fields of a message that a selector can name [AMQP JMS Mapping 1.0, 3.2].

``JMS...`` names are header fields of JMS, ``amqp....`` names are fields of the header and the
properties as AMQP calls them, any other is an application property.

Single values are found without decoding what stands before them, in whatever encoding: a selector is applied to
every message for every receiver, and mostly asks for one or two values. So to find one takes a step for each
property or annotation before it, and what a sender puts into those costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from enmasse.message.codec import decode, skip
from enmasse.message.errors import DecodeError
from enmasse.message.section_kinds import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    Header,
)
from enmasse.message.sections import begins_section, section_start
from enmasse.messaging.errors import SelectorError
from enmasse.messaging.facts import DELIVERY_TIME

_U32 = struct.Struct(">I")
_UNUSUAL = -2
_MISSING = -1

_WIDTHS = tuple({4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(code >> 4, 0) for code in range(256))
"""Bytes of a value of fixed width with that code, 0 of others."""

_SHORT_TEXTS, _LONG_TEXTS = (0xA1, 0xA3), (0xB1, 0xB3)
"""Codes of strings and symbols."""

LEAST_ENTRY_BYTES = 3
"""Bytes of the smallest entry of a map: an empty key and a null."""

_EMPTY_LIST = 0x45

COMPOUND = object()
"""A list, map, array or described value, which AMQP allows no property to be: it is there, and equals nothing."""


def key_of(name: str) -> bytes:
    """Return a name as the key of a map in its usual encoding; empty if it is too long for that."""
    content = name.encode()
    return bytes((0xA1, len(content))) + content if len(content) < 256 else b""


_KINDS: Final = range(9)
"""As many sections as there are kinds of them: what has more is out of order, or has a body of several."""


def _value_of(payload: bytes, wanted: int) -> int:
    """Return where the value of a section starts, ``_MISSING`` or ``_UNUSUAL``."""
    at = 0
    size = len(payload)
    for _ in _KINDS:
        if at >= size:
            break
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


def _section(payload: bytes, wanted: int) -> int:
    """Return where the value of a section starts, in any encoding, or ``_MISSING``."""
    at = _value_of(payload, wanted)
    if at != _UNUSUAL:
        return at
    at = last = 0
    size = len(payload)
    while at < size:
        if not begins_section(payload[at : at + 2]):
            raise DecodeError("a message is not made of sections")
        code, at = section_start(payload, at, size)
        if code <= last:
            raise DecodeError(f"a message's sections are out of order: {code:#04x} after {last:#04x}")
        if code >= wanted:
            return at if code == wanted else _MISSING
        last = code
        at = skip(payload, at, size)
    return _MISSING


def _after(payload: bytes, at: int, end: int) -> int:
    """Return where the value that starts there ends."""
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


def map_value(payload: bytes, section: int, name: str, key: bytes) -> Any:
    """Return an annotation or application property; ``None`` if the message has none of that name.

    Args:
        payload: the message.
        section: ``MESSAGE_ANNOTATIONS`` or ``APPLICATION_PROPERTIES``.
        name: the name.
        key: the name as it is mostly encoded there; empty if it is too long for that.

    Raises:
        DecodeError: the message is malformed on the way there.
    """
    try:
        at = _section(payload, section)
        if at == _MISSING:
            return None
        if payload[at] not in (0xC1, 0xD1):
            raise DecodeError("a section is no map")
        at, end, count = _content(payload, at)
        if end > len(payload) or count & 1:
            raise DecodeError("a map is cut short")
        left = count >> 1
        size = len(key)
        usual = key[0] if key else 0
        while left and payload[at] == usual:
            if payload[at : at + size] == key:
                return _plain(payload, at + size, end)
            at = _after(payload, _after(payload, at, end), end)
            left -= 1
        return _looked_for(payload, at, end, left, name.encode())
    except (IndexError, struct.error):
        raise DecodeError("a section is cut short") from None


def _looked_for(payload: bytes, at: int, end: int, left: int, name: bytes) -> Any:
    """Return the value of a key in any encoding among the entries that are left of a map."""
    for _ in range(left):
        value_at = skip(payload, at, end)
        code = payload[at]
        at += 2 if code in _SHORT_TEXTS else 5 if code in _LONG_TEXTS else value_at
        if value_at - at == len(name) and payload[at:value_at] == name:
            return _plain(payload, value_at, end)
        at = skip(payload, value_at, end)
    if at != end:
        raise DecodeError("a map is cut short")
    return None


def _plain(payload: bytes, at: int, end: int) -> Any:
    code = payload[at]
    if 0 < code < 0xC0 and code != _EMPTY_LIST:
        return decode(payload, at, end)[0]
    skip(payload, at, end)
    return COMPOUND


def entries_of(payload: bytes, section: int) -> int:
    """Return the entries that a map has, or says that it has, if it could; 0 if it is none."""
    try:
        at = _section(payload, section)
        if at == _MISSING or payload[at] not in (0xC1, 0xD1):
            return 0
        at, end, count = _content(payload, at)
    except (DecodeError, IndexError, struct.error):
        return 0
    return min(count >> 1, max(0, min(end, len(payload)) - at) // LEAST_ENTRY_BYTES)


def list_field(payload: bytes, section: int, index: int, kind: Any, name: str) -> Any:
    """Return a field of the header or of the properties; ``None`` if the message does not say it.

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
        at = _section(payload, section)
        if at == _MISSING or payload[at] == _EMPTY_LIST:
            return None
        if payload[at] in (0xC0, 0xD0):
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
    raise DecodeError("a section is no list")


class MessageFields:
    """A message as selectors see it; fields that one has looked up are kept for the next.

    Args:
        payload: the bytes of a message whose format is AMQP's own (0).
        attempts: its deliveries that failed at this address.
    """

    __slots__ = ("_head", "attempts", "found", "payload")

    def __init__(self, payload: bytes, attempts: int = 0) -> None:
        self.payload = payload
        self.attempts = attempts
        self.found: dict[str, Any] = {}
        """Application properties that were looked up."""
        self._head = -1

    @property
    def head(self) -> int:
        """The bytes before the content of the body, or of the whole message if that is not told at a glance."""
        if self._head < 0:
            try:
                at = _value_of(self.payload, DATA)
            except (IndexError, struct.error):
                at = _UNUSUAL
            self._head = at if at >= 0 else len(self.payload)
        return self._head


Field = Callable[[MessageFields], Any]
"""Finds a value in a message: ``None`` where there is none. Raises ``DecodeError`` if that is malformed."""


def _identity(value: Any) -> Any:
    """Return a message id as JMS shows it [AMQP JMS Mapping 1.0, 3.2.1.1]."""
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return f"ID:AMQP_ULONG:{value}" if isinstance(value, int) else value


def _header(name: str) -> Field:
    index, kind = _HEADER_PLACES[name]
    default = getattr(Header(), name)

    def find(fields: MessageFields) -> Any:
        value = list_field(fields.payload, HEADER, index, kind, name)
        return default if value is None else value

    return find


def _property(name: str, shown: Callable[[Any], Any] = lambda value: value) -> Field:
    index, kind = _PROPERTY_PLACES[name]
    return lambda fields: shown(list_field(fields.payload, PROPERTIES, index, kind, name))


def _uuid_text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _bytes_text(value: Any) -> Any:
    return None if value is None else value.decode(errors="replace")


def _delivery_count(fields: MessageFields) -> int:
    count: int = _counted(fields)
    return count + fields.attempts


def _delivery_time(fields: MessageFields) -> Any:
    return map_value(fields.payload, MESSAGE_ANNOTATIONS, DELIVERY_TIME, _DELIVERY_TIME_KEY)


_HEADER_PLACES = {name: (index, kind) for index, (name, kind) in enumerate(HEADER_FIELDS)}
_PROPERTY_PLACES = {name: (index, kind) for index, (name, kind) in enumerate(PROPERTY_FIELDS)}
_DELIVERY_TIME_KEY = bytes((0xA3, len(DELIVERY_TIME))) + DELIVERY_TIME.encode()
_counted = _header("delivery_count")
_durable = _header("durable")
_user = _property("user_id", _bytes_text)


_JMS: dict[str, Field] = {
    "JMSCorrelationID": _property("correlation_id", _identity),
    "JMSDeliveryMode": lambda fields: "PERSISTENT" if _durable(fields) else "NON_PERSISTENT",
    "JMSDeliveryTime": _delivery_time,
    "JMSDestination": _property("to"),
    "JMSExpiration": _property("absolute_expiry_time"),
    "JMSMessageID": _property("message_id", _identity),
    "JMSPriority": _header("priority"),
    "JMSRedelivered": lambda fields: _delivery_count(fields) > 0,
    "JMSReplyTo": _property("reply_to"),
    "JMSTimestamp": _property("creation_time"),
    "JMSType": _property("subject"),
    "JMSXDeliveryCount": lambda fields: _delivery_count(fields) + 1,
    "JMSXGroupID": _property("group_id"),
    "JMSXGroupSeq": _property("group_sequence"),
    "JMSXUserID": _user,
}
_AMQP: dict[str, Field] = {
    **{f"amqp.{name}": _header(name) for name, _ in HEADER_FIELDS},
    **{f"amqp.{name}": _property(name, _uuid_text) for name, _ in PROPERTY_FIELDS},
    "amqp.delivery_count": _delivery_count,
    "amqp.user_id": _user,
}
_FIELDS = _JMS | _AMQP
_OWN_PREFIXES = ("JMSX", "JMS_")
"""Names that JMS leaves to applications and providers as properties."""


def section_searched(name: str, *, is_quoted: bool) -> int:
    """Return the section whose entries are gone through for a name; 0 if its place is known."""
    if not is_quoted and name in _FIELDS:
        return MESSAGE_ANNOTATIONS if name == "JMSDeliveryTime" else 0
    return APPLICATION_PROPERTIES


def field_of(name: str, *, is_quoted: bool = False, position: int = 0) -> Field:
    """Return a function that finds the value of a name.

    Args:
        name: the name.
        is_quoted: whether it is the name of an application property in any case.
        position: its place in the selector, for errors.

    Raises:
        SelectorError: it has the form of a message's field, but there is none of that name.
    """
    if not is_quoted:
        found = _FIELDS.get(name)
        if found is not None:
            return found
        known: tuple[str, ...] = ()
        if name.startswith("amqp."):
            known = tuple(_AMQP)
        elif name.startswith("JMS") and not name.startswith(_OWN_PREFIXES):
            known = tuple(_JMS)
        if known:
            raise SelectorError(
                f"{name} is no field of a message; there are {', '.join(sorted(known))}. "
                f'An application property of that name is written "{name}"',
                position,
            )
    key = key_of(name)

    def find(fields: MessageFields) -> Any:
        found = fields.found
        if name in found:
            return found[name]
        value = found[name] = map_value(fields.payload, APPLICATION_PROPERTIES, name, key)
        return value

    return find
