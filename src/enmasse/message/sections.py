"""Messages as their sections: read as far as someone asks, changed without copying a body [AMQP 3.2].

Rules:
1. A payload is the bytes of the sections in their order; nothing here changes it in place.
2. Reading stops at the section that is asked for. What lies behind is not checked.
3. Whatever is asked of malformed bytes raises ``DecodeError`` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from enmasse.message.codec import decode, encode, skip
from enmasse.message.errors import DecodeError
from enmasse.message.section_kinds import (
    APPLICATION_PROPERTIES,
    DATA,
    DEFAULT_PRIORITY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    HEADER_FIELDS,
    INTEGER_RANGES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    SECTION_CODES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
)
from enmasse.message.section_writer import data_start, encode_header, encode_message
from enmasse.message.types import Described, Symbol, ULong

__all__ = [
    "APPLICATION_PROPERTIES",
    "DEFAULT_PRIORITY",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
    "PARTITION_KEY",
    "PROPERTIES",
    "RETAIN",
    "RETAINED",
    "TOPIC_NAME",
    "Header",
    "Properties",
    "Sections",
    "UserIdShape",
    "bare_message",
    "begins_section",
    "check_order",
    "data_start",
    "decode_message",
    "encode_header",
    "encode_message",
    "header_of",
    "is_durable",
    "key_and_subject",
    "section_start",
    "to_of",
    "user_id_in",
    "user_id_of",
    "user_id_shape",
    "with_header",
    "with_message_annotations",
    "without_message_annotations",
]

PARTITION_KEY = Symbol("x-opt-partition-key")
TOPIC_NAME = Symbol("x-opt-topic-name")
"""The annotation with the name below a topic to which a message was sent."""

RETAIN = Symbol("x-opt-retain")
"""The annotation with which a sender asks that a topic keeps its message as the value of the name it is sent to."""
RETAINED = Symbol("x-opt-retained")
"""The annotation of a copy of such a value, for a receiver that came later."""

_PARTITION_KEY = PARTITION_KEY.encode()
_HEADER_START = b"\x00\x53\x70"
_TO, _SUBJECT = 2, 3
"""Places among the properties."""

_DESCRIPTOR_ROWS = (0x4, 0x5, 0x6, 0x7, 0x8, 0xA, 0xB)
"""The upper halves of the constructors of numbers and texts."""

_ID_BYTES = {0x40: 1, 0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17}
"""Bytes of a message-id of fixed width, by its code."""

_U32 = struct.Struct(">I")

MAX_SECTIONS = 4_096
"""The most sections of a message: wherever they are walked through each costs a microsecond or more, however small it
is. Who sends a body in several sections cuts it into kilobytes, or more."""


def section_start(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return which section starts at ``at``, and where its value does.

    Raises:
        DecodeError: none starts there, or it is cut short.
    """
    try:
        if data[at] == 0 and data[at + 1] == 0x53:
            code = data[at + 2]
            at += 3
        elif data[at] == 0:
            descriptor, at = decode(data, at + 1, end)
            known = isinstance(descriptor, int | str)
            code = SECTION_CODES.get(descriptor, descriptor if isinstance(descriptor, int) else 0) if known else 0
        else:
            code = 0
    except IndexError:
        raise DecodeError("a section is cut short") from None
    if not HEADER <= code <= FOOTER:
        raise DecodeError("a message is not made of sections")
    return code, at


def _walk(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Each section's code, start, start of the value and end; raises where one may not stand [AMQP 3.2]."""
    at = 0
    end = len(data)
    last = 0
    left = MAX_SECTIONS
    while at < end:
        if not left:
            raise DecodeError(f"a message has more than {MAX_SECTIONS} sections: make those of its body larger")
        left -= 1
        code, value_at = section_start(data, at, end)
        stop = skip(data, value_at, end)
        if code <= last:
            if code != last or code not in (DATA, SEQUENCE):
                raise DecodeError(f"a message's sections are out of order: {code:#04x} after {last:#04x}")
        elif code in (SEQUENCE, VALUE) and last >= DATA:
            raise DecodeError(f"a message has bodies of two kinds: {last:#04x} and {code:#04x}")
        yield code, at, value_at, stop
        last = code
        at = stop


def check_order(payload: bytes) -> None:
    """See that a message is sections to its end, in their order, none twice but for those of a body.

    Raises:
        DecodeError: it is not.
    """
    at = 0
    end = len(payload)
    last = 0x6F
    # Numbers and no calls, as every message with a body that is no text or bytes comes here.
    try:
        while at < end and payload[at] == 0 and payload[at + 1] == 0x53:
            code = payload[at + 2]
            if not last < code <= 0x78 or (last >= 0x75 and code != 0x78):
                break
            last = code
            kind = payload[at + 3]
            if kind & 0xFE == 0xC0:
                at += 5 + payload[at + 4]
            elif kind & 0xFE == 0xD0:
                at += 8 + _U32.unpack_from(payload, at + 4)[0]
            else:
                at = skip(payload, at + 3, end)
    except (IndexError, struct.error):
        raise DecodeError("a section is cut short") from None
    if at != end:
        # Rare, or wrong: several sections of a body, descriptors in another encoding.
        for _ in _walk(payload):
            pass


def begins_section(payload: bytes) -> bool:
    """Return whether bytes begin as a section does, with a number or text as descriptor; others are no message."""
    return len(payload) > 1 and payload[0] == 0 and payload[1] >> 4 in _DESCRIPTOR_ROWS


def user_id_of(payload: bytes, size: int = -1) -> bytes | None:
    """Return the user-id in the properties of a message, of which all sections are looked at.

    What a lenient receiver could read all the same, such as properties behind the body or twice, is an error.

    Args:
        payload: the bytes of the message, or those before the content of its body.
        size: the bytes of the whole message; -1: it is all there.

    Raises:
        DecodeError: it is not made of sections in their order, or its user-id is no binary.
    """
    at = 0
    end = len(payload) if size < 0 else size
    last = 0x6F
    found = None
    # Numbers and no calls, as in check_order: whoever numbers messages comes here with each of them.
    try:
        while at < end and payload[at] == 0 and payload[at + 1] == 0x53:
            code = payload[at + 2]
            if not last < code <= 0x78 or (last >= 0x75 and code != 0x78):
                break
            last = code
            row = payload[at + 3] >> 4
            if row in (0xC, 0xA):
                stop = at + 5 + payload[at + 4]
            elif row in (0xD, 0xB):
                stop = at + 8 + _U32.unpack_from(payload, at + 4)[0]
            else:
                stop = skip(payload, at + 3, end)
            if code == 0x73:
                found = _user_id(payload, at + 3, stop)
            at = stop
    except (IndexError, struct.error):
        raise DecodeError("a section is cut short") from None
    if at != end:
        for code, _, value_at, stop in _walk(payload):
            if code == PROPERTIES:
                found = user_id_in(payload[value_at:stop])
    return found


class UserIdShape:
    """The beginning of a message, and of others that differ in the message-id, by which a user-id is found.

    Attributes:
        lead: the bytes before the message-id; those before the next section if there are no properties.
        at: the place of the user-id.
        field: the bytes of the user-id, or of null; empty: there is no such field.
        end: the place of the section behind the properties.
    """

    __slots__ = ("at", "end", "field", "lead")

    def __init__(self, lead: bytes, at: int, field: bytes, end: int) -> None:
        self.lead = lead
        self.at = at
        self.field = field
        self.end = end

    def fits(self, payload: bytes, size: int) -> bool:
        """Return whether a message has the same user-id by the same beginning, and its sections are in order.

        Args:
            payload: the bytes of the message, or those before the content of its body.
            size: the bytes of the whole message.
        """
        if not (payload.startswith(self.lead) and payload.startswith(self.field, self.at)):
            return False
        at = self.end
        last = 0x73
        try:
            while at < size and payload[at] == 0 and payload[at + 1] == 0x53:
                code = payload[at + 2]
                if not last < code <= 0x78 or (last >= 0x75 and code != 0x78):
                    return False
                last = code
                row = payload[at + 3] >> 4
                if row in (0xC, 0xA):
                    at += 5 + payload[at + 4]
                elif row in (0xD, 0xB):
                    at += 8 + _U32.unpack_from(payload, at + 4)[0]
                else:
                    return False
        except (IndexError, struct.error):
            return False
        return at == size


MAX_LEAD_BYTES = 1_024
"""The longest beginning that is remembered of a message."""


def user_id_shape(payload: bytes) -> UserIdShape | None:
    """Return the beginning by which the user-id of a message is found; None for unusual encodings.

    Args:
        payload: the bytes of a message whose sections are in order.
    """
    at = 0
    try:
        while (code := payload[at + 2]) < 0x73:
            if payload[at : at + 2] != b"\x00\x53":
                return None
            row = payload[at + 3]
            if row & 0xFE == 0xC0:
                at += 5 + payload[at + 4]
            elif row & 0xFE == 0xD0:
                at += 8 + _U32.unpack_from(payload, at + 4)[0]
            else:
                return None
        if payload[at : at + 2] != b"\x00\x53" or at > MAX_LEAD_BYTES:
            return None
        if code > 0x73:
            return UserIdShape(payload[: at + 3], 0, b"", at)
        if payload[at + 3] != 0xC0:
            return None
        end = at + 5 + payload[at + 4]
        count, begin = payload[at + 5], at + 6
        if count < 2:
            return UserIdShape(payload[:begin], 0, b"", end)
        width = _ID_BYTES.get(payload[begin])
        if width is None and payload[begin] not in (0xA0, 0xA1):
            return None
        place = begin + (width or 2 + payload[begin + 1])
        lead = payload[: begin + (1 if width else 2)]
        if payload[place] == 0x40:
            return UserIdShape(lead, place, b"\x40", end)
        if payload[place] != 0xA0:
            return None
        return UserIdShape(lead, place, payload[place : place + 2 + payload[place + 1]], end)
    except (IndexError, struct.error):
        return None


def user_id_in(properties: bytes) -> bytes | None:
    """Return the user-id in the value of a section of properties.

    Raises:
        DecodeError: it is no list, or the user-id is no binary.
    """
    try:
        return _user_id(properties, 0, len(properties))
    except (IndexError, struct.error):
        raise DecodeError("the properties are cut short") from None


def _user_id(data: bytes, at: int, stop: int) -> bytes | None:
    kind = data[at]
    if kind == 0xC0:
        count = data[at + 2]
        at += 3
    elif kind == 0xD0:
        (count,) = _U32.unpack_from(data, at + 5)
        at += 9
    elif kind == 0x45:
        return None
    else:
        raise DecodeError("the properties are not a list")
    if count < 2:
        return None
    code = data[at]
    width = _ID_BYTES.get(code)
    if width is not None:
        at += width
    elif code in (0xA0, 0xA1):
        at += 2 + data[at + 1]
    else:
        at = skip(data, at, stop)
    if at >= stop:
        raise DecodeError("the properties are cut short")
    if data[at] == 0x40:
        return None
    value, _ = decode(data, at, stop)
    if not isinstance(value, bytes):
        raise DecodeError(f"{value!r:.60} is no user-id")
    return value


def _find(data: bytes, wanted: int) -> tuple[int, int, int]:
    """Start, start of the value and end of a section that comes before the body.

    Where there is none, all three are the place at which it would stand, so the first two are equal.
    """
    at = last = 0
    end = len(data)
    while at < end:
        code, value_at = section_start(data, at, end)
        if code <= last:
            raise DecodeError(f"a message's sections are out of order: {code:#04x} after {last:#04x}")
        last = code
        if code > wanted:
            break
        stop = skip(data, value_at, end)
        if code == wanted:
            return at, value_at, stop
        at = stop
    return at, at, at


def _fields(data: bytes, at: int, end: int, names: tuple[tuple[str, Any], ...], what: str) -> dict[str, Any]:
    values, _ = decode(data, at, end)
    if not isinstance(values, list) or len(values) > len(names):
        raise DecodeError(f"the {what} is not a list of up to {len(names)} fields")
    found = {}
    for (name, kind), value in zip(names, values, strict=False):
        if value is None:
            continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise DecodeError(f"{value!r:.60} is no {name} of the {what}")
        if name in INTEGER_RANGES and isinstance(value, int):
            least, most = INTEGER_RANGES[name]
            if isinstance(value, bool) or not least <= value <= most:
                raise DecodeError(f"{value!r:.60} is no {name} of the {what}")
        found[name] = value
    return found


def _string_field(data: bytes, at: int, end: int, index: int) -> str | None:
    """One field of a list at ``at``, the ones before it skipped."""
    code = data[at]
    if code == 0x45:
        return None
    try:
        if code == 0xC0:
            count = data[at + 2]
            at += 3
        elif code == 0xD0:
            (count,) = _U32.unpack_from(data, at + 5)
            at += 9
        else:
            raise DecodeError("the properties are not a list")
        if index >= count:
            return None
        for _ in range(index):
            at = skip(data, at, end)
        value, _ = decode(data, at, end)
    except (IndexError, struct.error):
        raise DecodeError("the properties are cut short") from None
    if value is not None and not isinstance(value, str):
        raise DecodeError(f"{value!r:.60} where a string was expected")
    return value


def _map(data: bytes, at: int, end: int) -> dict[Any, Any]:
    value, _ = decode(data, at, end)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{value!r:.60} where a map was expected")
    return value


def is_durable(payload: bytes) -> bool:
    """Return true if the message is to survive a restart; reads a dozen bytes."""
    if payload[:3] == _HEADER_START and len(payload) > 6:
        code = payload[3]
        if code == 0x45:
            return False
        if code == 0xC0:
            if payload[5] == 0:
                return False
            durable = payload[6]
            if durable in (0x41, 0x42, 0x40):
                return durable == 0x41
    elif payload[:2] == b"\x00\x53":
        return False
    header = header_of(payload)
    return header is not None and header.durable


def header_of(payload: bytes) -> Header | None:
    """The header, if the message has one.

    Raises:
        DecodeError: the message does not start with a section, or its header is malformed.
    """
    _, at, stop = _find(payload, HEADER)
    return Header(**_fields(payload, at, stop, HEADER_FIELDS, "header")) if at < stop else None


def bare_message(payload: bytes) -> bytes:
    """Return the bare message, which nobody may change: properties, application properties, body [AMQP 3.2].

    Raises:
        DecodeError: the sections before are malformed.
    """
    at, _, _ = _find(payload, PROPERTIES)
    return payload[at:]


def to_of(payload: bytes) -> str | None:
    """The address in the message's properties."""
    _, at, stop = _find(payload, PROPERTIES)
    return _string_field(payload, at, stop, _TO) if at < stop else None


def key_and_subject(payload: bytes) -> tuple[Any, str | None]:
    """The annotation ``x-opt-partition-key`` and the subject, each ``None`` where it is missing."""
    key = subject = None
    at = last = 0
    end = len(payload)
    while at < end:
        code, value_at = section_start(payload, at, end)
        if code <= last:
            raise DecodeError(f"a message's sections are out of order: {code:#04x} after {last:#04x}")
        last = code
        if code > PROPERTIES:
            break
        at = skip(payload, value_at, end)
        if code == PROPERTIES:
            subject = _string_field(payload, value_at, at, _SUBJECT)
            break
        if code == MESSAGE_ANNOTATIONS and payload.find(_PARTITION_KEY, value_at, at) >= 0:
            key = _map(payload, value_at, at).get(PARTITION_KEY)
    return key, subject


class Sections:
    """A payload whose sections are found and decoded when they are asked for.

    Every attribute raises ``DecodeError`` if what it needs is malformed.

    Args:
        payload: the bytes of a message whose format is AMQP's own (0).
    """

    __slots__ = ("_bodies", "_bounds", "_decoded", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self._bounds: dict[int, tuple[int, int, int]] | None = None
        self._bodies: list[tuple[int, int]] = []
        self._decoded: dict[int, Any] = {}

    def _scan(self) -> dict[int, tuple[int, int, int]]:
        """Find where each section starts, has its value, and ends; a repeated one as a whole."""
        if self._bounds is not None:
            return self._bounds
        data = self.payload
        bounds: dict[int, tuple[int, int, int]] = {}
        bodies: list[tuple[int, int]] = []
        for code, at, value_at, stop in _walk(data):
            first, first_value, _ = bounds.get(code, (at, value_at, stop))
            bounds[code] = first, first_value, stop
            if DATA <= code <= VALUE:
                bodies.append((value_at, stop))
        self._bodies = bodies
        self._bounds = bounds
        return bounds

    def has(self, code: int) -> bool:
        """Return true if there is a section of that code."""
        return code in self._scan()

    def _mapping(self, code: int) -> dict[Any, Any]:
        found: dict[Any, Any] | None = self._decoded.get(code)
        if found is None:
            bounds = self._scan().get(code)
            found = {} if bounds is None else _map(self.payload, bounds[1], bounds[2])
            self._decoded[code] = found
        return found

    @property
    def header(self) -> Header:
        """The header; its defaults where there is none."""
        found: Header | None = self._decoded.get(HEADER)
        if found is None:
            found = self._decoded[HEADER] = header_of(self.payload) or Header()
        return found

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        """Annotations of the last hop for this one."""
        return self._mapping(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[Any, Any]:
        """Annotations of the infrastructure, for the whole way."""
        return self._mapping(MESSAGE_ANNOTATIONS)

    @property
    def properties(self) -> Properties:
        """The standard properties, all ``None`` where there are none."""
        found: Properties | None = self._decoded.get(PROPERTIES)
        if found is None:
            bounds = self._scan().get(PROPERTIES)
            fields = {}
            if bounds is not None:
                fields = _fields(self.payload, bounds[1], bounds[2], PROPERTY_FIELDS, "properties")
            found = self._decoded[PROPERTIES] = Properties(**fields)
        return found

    @property
    def application_properties(self) -> dict[Any, Any]:
        """The application's own properties."""
        return self._mapping(APPLICATION_PROPERTIES)

    @property
    def footer(self) -> dict[Any, Any]:
        """Values computed over the whole message, such as hashes."""
        return self._mapping(FOOTER)

    @property
    def body_range(self) -> tuple[int, int]:
        """The start and end of the body's sections; equal where there is none."""
        bounds = self._scan()
        for code in (DATA, SEQUENCE, VALUE):
            if code in bounds:
                start, _, stop = bounds[code]
                return start, stop
        stop = bounds[FOOTER][0] if FOOTER in bounds else len(self.payload)
        return stop, stop

    @property
    def body(self) -> Any:
        """The body: bytes of data sections, joined; the list of sequences, joined; or the value.

        ``None`` where there is no body.
        """
        bounds = self._scan()
        if VALUE in bounds:
            _, at, stop = bounds[VALUE]
            return decode(self.payload, at, stop)[0]
        if DATA in bounds and len(self._bodies) == 1:
            at, stop = self._bodies[0]
            if self.payload[at] == 0xA0:
                return self.payload[at + 2 : stop]
        kind = bytes if DATA in bounds else list
        parts = [decode(self.payload, at, stop)[0] for at, stop in self._bodies]
        for part in parts:
            if type(part) is not kind:
                raise DecodeError("a body section of the wrong type")
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return None
        return b"".join(parts) if kind is bytes else [item for part in parts for item in part]


def decode_message(payload: bytes) -> Sections:
    """The sections of a message, each of which has been decoded and so can be read without error.

    Raises:
        DecodeError: something in the message is malformed.
    """
    sections = Sections(payload)
    for name in (
        "header", "delivery_annotations", "message_annotations", "properties", "application_properties",
        "body", "footer",
    ):  # fmt: skip
        getattr(sections, name)
    return sections


def with_header(payload: bytes, header: Header) -> bytes:
    """The message with another header; everything else stays as it is."""
    start, _, stop = _find(payload, HEADER)
    return payload[:start] + encode_header(header) + payload[stop:]


def with_message_annotations(payload: bytes, extra: dict[str, Any]) -> bytes:
    """The message with more annotations; one of the same name is replaced."""
    start, at, stop = _find(payload, MESSAGE_ANNOTATIONS)
    annotations = _map(payload, at, stop) if at < stop else {}
    for key, value in extra.items():
        annotations[Symbol(key)] = value
    section = encode(Described(ULong(MESSAGE_ANNOTATIONS), annotations))
    return payload[:start] + section + payload[stop:]


def without_message_annotations(payload: bytes, names: tuple[str, ...]) -> bytes:
    """The message without some of its annotations."""
    start, at, stop = _find(payload, MESSAGE_ANNOTATIONS)
    annotations = _map(payload, at, stop) if at < stop else {}
    kept = {key: value for key, value in annotations.items() if key not in names}
    if len(kept) == len(annotations):
        return payload
    section = encode(Described(ULong(MESSAGE_ANNOTATIONS), kept)) if kept else b""
    return payload[:start] + section + payload[stop:]
