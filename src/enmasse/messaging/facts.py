"""The facts of a message that a stored address needs, found in one pass.

Rules:
1. Nothing is decoded that does not bear on what is asked; what lies behind it is not checked.
2. Most messages are plain: for them the same two objects are given again and again, so that
   ``facts is PLAIN`` or ``facts.is_plain`` is all that a hot path has to test.
3. A message that was moved to an address for dead letters or for expired messages is done with times:
   it neither expires nor waits any more.
4. Times are bounded by the end of the year 9999, so that arithmetic on them fits 64 bits.
"""

from __future__ import annotations

import struct
from typing import Any

from enmasse.message.codec import decode, skip
from enmasse.message.errors import DecodeError
from enmasse.message.sections import DEFAULT_PRIORITY, RETAIN, Sections, header_of

DELIVERY_TIME = "x-opt-delivery-time"
DELIVERY_DELAY = "x-opt-delivery-delay"
MOVED = "x-opt-dead-letter-reason"

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, which some clients send to say never."""

MAX_HEADERS = 1_024
"""Headers whose facts are remembered; clients send a handful, unless their times to live vary."""

MAX_HEADER_BYTES = 64
"""Longer than any header in a usual encoding."""

_ANNOTATION_START = b"-opt-de"
_RETAIN = RETAIN.encode()
_DELIVERY = b"-opt-delivery-"
_MOVED = MOVED.encode()
_NEVER = (0, 0)
"""The times of a message that was moved."""

_EXPIRY = 8
"""Place of the first of four properties that are read: expiry, creation, group, its sequence."""

_U32 = struct.Struct(">I")


def _width(code: int) -> int:
    """Return the bytes of a value of fixed width with its code, 0 for others."""
    row = code >> 4
    return {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(row, 0)


_WIDTHS = tuple(_width(code) for code in range(256))


class Facts:
    """The requests of a message to the address that stores it; immutable.

    Attributes:
        durable: whether it is to survive a restart.
        priority: 0 to 255, of which clients use 0 to 9; higher goes first.
        ttl_ms: the milliseconds that it may wait, from its arrival; 0 is for ever.
        expires_ms: the time at which it expires by its sender's clock, in milliseconds since 1970; 0 is never.
        group: messages of the same group go to the same receiver.
        group_sequence: the place in the group.
        delivery_time_ms: not to be delivered before, in milliseconds since 1970; 0 is at once.
        delivery_delay_ms: not to be delivered before so long after its arrival; 0 is at once.
        retain: whether a topic keeps it as the retained value of its name.
        is_plain: whether all of it but ``durable`` and ``retain`` is as in a message that says nothing.
    """

    __slots__ = (
        "delivery_delay_ms", "delivery_time_ms", "durable", "expires_ms", "group", "group_sequence", "is_plain",
        "priority", "retain", "ttl_ms",
    )  # fmt: skip

    def __init__(
        self,
        *,
        durable: bool = False,
        priority: int = DEFAULT_PRIORITY,
        ttl_ms: int = 0,
        expires_ms: int = 0,
        group: str | None = None,
        group_sequence: int | None = None,
        delivery_time_ms: int = 0,
        delivery_delay_ms: int = 0,
        retain: bool = False,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms
        self.expires_ms = expires_ms
        self.group = group
        self.group_sequence = group_sequence
        self.delivery_time_ms = delivery_time_ms
        self.delivery_delay_ms = delivery_delay_ms
        self.retain = retain
        self.is_plain = (
            priority == DEFAULT_PRIORITY
            and group is None
            and group_sequence is None
            and not (ttl_ms or expires_ms or delivery_time_ms or delivery_delay_ms)
        )

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.__slots__))
        return f"Facts({values})"


PLAIN = Facts()
"""The facts of a message that is not durable and says nothing else."""

PLAIN_DURABLE = Facts(durable=True)
"""The facts of a message that is durable and says nothing else."""

_RETAINED = {False: Facts(retain=True), True: Facts(durable=True, retain=True)}
"""The facts of a retained message that says nothing else, by whether it is durable."""

_by_header: dict[bytes, Facts] = {}
_by_annotations: dict[bytes, bool] = {}
"""True for message annotations that ask to retain the message; for some that mention it."""


def facts_of(payload: bytes) -> Facts:
    """Return the facts of a message that a stored address needs.

    Args:
        payload: the bytes of a message whose format is AMQP's own (0).

    Raises:
        DecodeError: a part that had to be read is malformed, or no such time can be.
    """
    facts = PLAIN
    late: Any = None
    at = 0
    # Numbers instead of names: a name of the module costs as much as the comparison.
    try:
        while True:
            if payload[at] or payload[at + 1] != 0x53:
                return _facts_slowly(payload)
            code = payload[at + 2]
            if code > 0x73:
                if code > 0x78:
                    return _facts_slowly(payload)
                break
            kind = payload[at + 3]
            if kind & 0xFE == 0xC0:
                stop = at + 5 + payload[at + 4]
            elif kind == 0x45:
                stop = at + 4
            elif kind & 0xFE == 0xD0:
                stop = at + 8 + _U32.unpack_from(payload, at + 4)[0]
            else:
                return _facts_slowly(payload)
            if code == 0x73:
                if stop > len(payload):
                    raise DecodeError("the properties are cut short")
                if kind == 0xC0:
                    if payload[at + 5] > 8:
                        return _with_properties(payload, at + 6, stop, payload[at + 5], facts, late)
                elif kind == 0xD0:
                    (count,) = _U32.unpack_from(payload, at + 8)
                    if count > 8:
                        return _with_properties(payload, at + 12, stop, count, facts, late)
                elif kind != 0x45:
                    raise DecodeError("the properties are not a list")
                break
            if code == 0x70:
                if at:
                    return _facts_slowly(payload)
                found = _by_header.get(payload[:stop])
                facts = _of_header(payload, stop) if found is None else found
            elif code == 0x72:
                if payload.find(_ANNOTATION_START, at, stop) >= 0 and (
                    payload.find(_DELIVERY, at, stop) >= 0 or payload.find(_MOVED, at, stop) >= 0
                ):
                    late = _delivery(Sections(payload[:stop]).message_annotations)
                if payload.find(_RETAIN, at, stop) >= 0 and asks_to_retain(payload[at:stop]):
                    facts = _retaining(facts)
            elif code < 0x70:
                return _facts_slowly(payload)
            at = stop
    except (IndexError, struct.error):
        return _facts_slowly(payload)
    return facts if late is None else _joined(facts, late)


def _of_header(payload: bytes, stop: int) -> Facts:
    """Return the facts of a header that ends there, to be remembered for the next of the same bytes."""
    header = header_of(payload)
    facts = PLAIN
    if header is not None:
        facts = Facts(durable=header.durable, priority=header.priority, ttl_ms=header.ttl or 0)
        if facts.is_plain:
            facts = PLAIN_DURABLE if header.durable else PLAIN
    if stop <= MAX_HEADER_BYTES:
        if len(_by_header) >= MAX_HEADERS:
            _by_header.clear()
        _by_header[payload[:stop]] = facts
    return facts


def asks_to_retain(section: bytes) -> bool:
    """Return whether message annotations ask to retain their message; remembered for the next of the same bytes.

    Raises:
        DecodeError: they cannot be read.
    """
    found = _by_annotations.get(section)
    if found is None:
        found = Sections(section).message_annotations.get(RETAIN) is True
        if len(section) <= MAX_HEADER_BYTES:
            if len(_by_annotations) >= MAX_HEADERS:
                _by_annotations.clear()
            _by_annotations[section] = found
    return found


def _retaining(facts: Facts) -> Facts:
    """Return the facts of a header with the wish that its message is retained."""
    if facts.is_plain:
        return _RETAINED[facts.durable]
    return Facts(durable=facts.durable, priority=facts.priority, ttl_ms=facts.ttl_ms, retain=True)


def _with_properties(
    payload: bytes, at: int, stop: int, count: int, facts: Facts, late: tuple[int, int] | None
) -> Facts:
    """Return the facts with the expiry and the group of properties whose fields start at ``at``."""
    for index in range(count):
        if index == _EXPIRY:
            break
        if at >= stop:
            raise DecodeError("the properties are cut short")
        code = payload[at]
        width = _WIDTHS[code]
        if width:
            at += width
        elif code in (0xA0, 0xA1, 0xA3):
            at += 2 + payload[at + 1]
        else:
            at = skip(payload, at, stop)
    if count < _EXPIRY + 3 and at < stop and payload[at] == 0x40:
        # The creation time alone, which many clients set.
        return facts if late is None else _joined(facts, late)
    values: list[Any] = [None, None, None, None]
    for index in range(min(count - _EXPIRY, 4)):
        if at < stop and payload[at] == 0x40:
            at += 1
        else:
            values[index], at = decode(payload, at, stop)
    expires, _, group, sequence = values
    if expires is None and group is None and sequence is None:
        return facts if late is None else _joined(facts, late)
    return _joined(facts, late, _expiry(expires), _group(group), _integer(sequence, "group-sequence"))


def _integer(value: Any, what: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise DecodeError(f"{value!r:.60} is no {what}")
    return value


def _expiry(value: Any) -> int:
    expires = _integer(value, "absolute-expiry-time") or 0
    if expires < 0:
        raise DecodeError(f"an absolute-expiry-time of {expires}, before 1970")
    return 0 if expires >= LAST_MS else expires


def _group(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise DecodeError(f"{value!r:.60} is no group-id")
    return value or None


def _delivery(annotations: dict[Any, Any]) -> tuple[int, int] | None:
    """Return the time and the delay of the delivery; ones that have passed are left out."""
    if MOVED in annotations:
        return _NEVER
    times = []
    for name in (DELIVERY_TIME, DELIVERY_DELAY):
        value = _integer(annotations.get(name), name) or 0
        if value > LAST_MS:
            raise DecodeError(f"{name} of {value} ms, which is after the year 9999")
        times.append(max(0, value))
    return (times[0], times[1]) if any(times) else None


def _joined(
    facts: Facts,
    late: tuple[int, int] | None,
    expires_ms: int = 0,
    group: str | None = None,
    group_sequence: int | None = None,
) -> Facts:
    time, delay = late or (0, 0)
    if late is _NEVER:
        expires_ms = 0
    found = Facts(
        durable=facts.durable,
        priority=facts.priority,
        ttl_ms=facts.ttl_ms,
        expires_ms=expires_ms,
        group=group,
        group_sequence=group_sequence,
        delivery_time_ms=time,
        delivery_delay_ms=delay,
        retain=facts.retain,
    )
    return facts if found.is_plain else found


def _facts_slowly(payload: bytes) -> Facts:
    """Return the facts of a message in an unusual encoding, or of a malformed one."""
    sections = Sections(payload)
    properties = sections.properties
    header = sections.header
    found = Facts(durable=header.durable, priority=header.priority, ttl_ms=header.ttl or 0)
    if found.is_plain:
        found = PLAIN_DURABLE if found.durable else PLAIN
    annotations = sections.message_annotations
    if annotations.get(RETAIN) is True:
        found = _retaining(found)
    return _joined(
        found,
        _delivery(annotations),
        _expiry(properties.absolute_expiry_time),
        _group(properties.group_id),
        properties.group_sequence,
    )


def known_facts(payload: bytes) -> Facts:
    """Return the facts of a stored message; one that cannot be read has none."""
    try:
        return facts_of(payload)
    except DecodeError:
        return PLAIN
