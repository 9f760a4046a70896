"""The sections of a message, and the fields of those that are lists [AMQP 3.2]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from enmasse.message.types import UByte, UInt

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78

SECTION_CODES: dict[int | str, int] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
"""By the symbol that may stand for the code."""

DEFAULT_PRIORITY = 4


@dataclass(slots=True)
class Header:
    """The fields that matter on the way [AMQP 3.2.1]; ttl in milliseconds."""

    durable: bool = False
    priority: int = DEFAULT_PRIORITY
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@dataclass(slots=True)
class Properties:
    """The fields that the sender sets [AMQP 3.2.4]; times in milliseconds since 1970 UTC."""

    message_id: int | str | bytes | UUID | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: int | str | bytes | UUID | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


_IDENTITY = (int, str, bytes, UUID)
HEADER_FIELDS: tuple[tuple[str, Any], ...] = (
    ("durable", bool),
    ("priority", UByte),
    ("ttl", UInt),
    ("first_acquirer", bool),
    ("delivery_count", UInt),
)
PROPERTY_FIELDS: tuple[tuple[str, Any], ...] = (
    ("message_id", _IDENTITY),
    ("user_id", bytes),
    ("to", str),
    ("subject", str),
    ("reply_to", str),
    ("correlation_id", _IDENTITY),
    ("content_type", str),
    ("content_encoding", str),
    ("absolute_expiry_time", int),
    ("creation_time", int),
    ("group_id", str),
    ("group_sequence", int),
    ("reply_to_group_id", str),
)

_UNSIGNED_64 = (0, (1 << 64) - 1)
_SIGNED_64 = (-1 << 63, (1 << 63) - 1)
INTEGER_RANGES: dict[str, tuple[int, int]] = {
    "message_id": _UNSIGNED_64,
    "correlation_id": _UNSIGNED_64,
    "absolute_expiry_time": _SIGNED_64,
    "creation_time": _SIGNED_64,
    "group_sequence": (0, 0xFFFFFFFF),
}
"""The ranges of whole numbers there, whatever width they came in: another could not be sent on."""
