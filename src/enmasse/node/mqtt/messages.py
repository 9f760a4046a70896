"""Converts messages of MQTT to AMQP's sections, and back; the table is in docs/reference/mqtt.md.

Rules:
1. What a client of MQTT sent comes to another one as it was: each property has its place in a message of AMQP.
2. The body is one data section. Back, data, text and binary values are the payload as they are; whatever else an AMQP
   client sent becomes JSON, with its content type.
3. ``durable`` stands for QoS 1 and 2; an annotation tells QoS 1 from 2, which messages of AMQP may have.
4. An event of CloudEvents in MQTT's binary mode has its attributes as user properties of their own names.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from enmasse.errors import RemoteError
from enmasse.message.parts import Parts
from enmasse.message.sections import (
    DEFAULT_PRIORITY,
    PARTITION_KEY,
    RETAIN,
    RETAINED,
    TOPIC_NAME,
    Sections,
)
from enmasse.message.types import Symbol, UByte
from enmasse.node import cloudevents
from enmasse.node.plain_values import as_bytes, as_text
from enmasse.wire.mqtt.packets import PublishProperties

QOS: Final = Symbol("x-opt-mqtt-qos")
"""1 if a durable message came with QoS 1."""

_PAYLOAD_FORMAT: Final = Symbol("x-opt-mqtt-payload-format")
_CONTENT_TYPE: Final = Symbol("x-opt-mqtt-content-type")
_USER_PROPERTIES: Final = Symbol("x-opt-mqtt-user-properties")

_OURS = frozenset((TOPIC_NAME, RETAIN, RETAINED, QOS, _PAYLOAD_FORMAT, _CONTENT_TYPE, _USER_PROPERTIES))

_MAX_TTL_S: Final = 0xFFFFFFFF // 1000
"""The longest expiry that fits ``ttl``; a longer one is a time of day."""

_U32 = struct.Struct(">I")

_SHOWN = (
    ("message_id", "message-id"),
    ("subject", "subject"),
    ("content_encoding", "content-encoding"),
    ("group_id", "group-id"),
    ("group_sequence", "group-sequence"),
    ("creation_time", "creation-time"),
)
"""Properties that MQTT does not have, and the user properties that they become."""

MAX_TEXT_BYTES: Final = 0xFFFF
"""The longest text, and the most binary data, of a property of MQTT."""


LOST: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing": (
        "`first-acquirer`",
        "delivery annotations",
        "`user-id`",
        "`to`",
        "`reply-to-group-id`",
        "footer",
    ),
    "an application property of that name, a text": (
        "`priority`",
        "`delivery-count`",
        "texts as annotations `x-opt-...`",
        "numbers as annotations `x-opt-...`",
        "other values as annotations `x-opt-...`",
        "annotations of other names",
        "a text as `message-id`",
        "a number as `message-id`",
        "bytes as `message-id`",
        "a UUID as `message-id`",
        "`subject`",
        "`content-encoding`",
        "`creation-time`",
        "`group-id`",
        "`group-sequence`",
    ),
    "texts": (
        "numbers as application properties",
        "floats as application properties",
        "booleans as application properties",
        "nulls as application properties",
        "bytes as application properties",
        "symbols as application properties",
        "timestamps as application properties",
        "UUIDs as application properties",
    ),
    "bytes": ("a text as `correlation-id`", "a number as `correlation-id`", "a UUID as `correlation-id`"),
    "whole seconds": ("`ttl` with a part of a second",),
    "`ttl` with the time that is left, up to 49 days": ("`absolute-expiry-time`",),
    "one data section": (
        "body of several data sections",
        "body of a text",
        "body of another value",
        "body of a sequence",
    ),
}
"""The parts of a message that a client which gets it cannot send again as they were, by what becomes of them."""


def is_lasting(properties: PublishProperties | None) -> bool:
    """Return whether a head may serve for later messages: an expiry that is a time of day may not."""
    return properties is None or (properties.message_expiry_s or 0) <= _MAX_TTL_S


def to_sections(
    qos: int, is_retained: bool, properties: PublishProperties | None, now_ms: int, *, key: str = ""
) -> Parts:
    """Return the parts before the body of a message that a client publishes.

    Args:
        qos: the quality of service with which it came.
        is_retained: whether it is to be retained.
        properties: those of version 5; they have been checked.
        now_ms: the time of day in milliseconds since 1970 UTC.
        key: the key of a message to a stream, its partition key, unless a user property of that name says another.
    """
    parts = Parts(durable=qos > 0)
    annotations, fields, application = parts.annotations, parts.fields, parts.properties
    if is_retained:
        annotations[RETAIN] = True
    if qos == 1:
        annotations[QOS] = UByte(1)
    if key:
        named = () if properties is None else properties.user_properties
        annotations[PARTITION_KEY] = next((value for name, value in named if name == PARTITION_KEY), key)
    if properties is None:
        return parts
    expiry_s = properties.message_expiry_s
    if expiry_s is not None:
        if expiry_s <= _MAX_TTL_S:
            # In AMQP 0 is for ever, and here it is over at once.
            parts.header.ttl = expiry_s * 1000 or 1
        else:
            fields["absolute_expiry_time"] = now_ms + expiry_s * 1000
    if properties.payload_format is not None:
        annotations[_PAYLOAD_FORMAT] = UByte(properties.payload_format)
    if properties.content_type is not None:
        if properties.content_type.isascii():
            fields["content_type"] = properties.content_type
        else:
            annotations[_CONTENT_TYPE] = properties.content_type
    fields["reply_to"] = properties.response_topic
    fields["correlation_id"] = properties.correlation_data
    pairs = properties.user_properties
    for name, value in pairs:
        application.setdefault(name, value)
    is_renamed = cloudevents.PREFIX + "specversion" in application
    if "specversion" in application:
        _take_event(application, fields)
    if is_renamed or len(application) != len(pairs):
        annotations[_USER_PROPERTIES] = [text for pair in pairs for text in pair]
    return parts


def _take_event(application: dict[str, Any], fields: dict[str, Any]) -> None:
    """Turn user properties that are attributes into those of an event, if it is one [CloudEvents MQTT 3.1.3.1]."""
    if application["specversion"] != cloudevents.VERSION or not all(map(application.get, cloudevents.REQUIRED)):
        return
    pairs = list(application.items())
    application.clear()
    for name, value in pairs:
        if name == "datacontenttype" and value.isascii():
            # CloudEvents' own library says so beside the content type that stands for it.
            fields.setdefault("content_type", value)
        else:
            application[cloudevents.PREFIX + name if cloudevents.NAME.fullmatch(name) else name] = value


def find_body(payload: bytes) -> tuple[int, int]:
    """Return the place of a message's body section and of its content, if that is bytes or text to the end.

    Both are 0 for any other body, and for what cannot be read so quickly.
    """
    at = 0
    try:
        while True:
            if payload[at] or payload[at + 1] != 0x53:
                return 0, 0
            code = payload[at + 2]
            kind = payload[at + 3]
            if code > 0x74:
                if code == 0x75:
                    is_short, is_long = kind == 0xA0, kind == 0xB0
                else:
                    is_short, is_long = code == 0x77 and kind in (0xA0, 0xA1), code == 0x77 and kind in (0xB0, 0xB1)
                if is_short:
                    begin = at + 5
                    end = begin + payload[at + 4]
                elif is_long:
                    begin = at + 8
                    end = begin + _U32.unpack_from(payload, at + 4)[0]
                else:
                    return 0, 0
                return (at, begin) if end == len(payload) else (0, 0)
            if kind & 0xFE == 0xC0:
                at += 5 + payload[at + 4]
            elif kind & 0xFE == 0xD0:
                at += 8 + _U32.unpack_from(payload, at + 4)[0]
            elif kind == 0x45:
                at += 4
            else:
                return 0, 0
    except (IndexError, struct.error):
        return 0, 0


class Content:
    """The content of a PUBLISH to a client.

    Attributes:
        payload: its payload.
        topic: the name below a topic that it was sent to; None if it was sent to the address itself.
        qos: the highest quality of service with which it may be delivered.
        is_retain: whether it came to be retained.
        is_retained: whether it is a copy of a retained value.
        number: the number of the filter that asked for that, where it is one of several together; else 0.
        is_timed: whether the properties tell the time that is left until a time of day.
        properties: those of version 5.
    """

    __slots__ = ("is_retain", "is_retained", "is_timed", "number", "payload", "properties", "qos", "topic")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.topic: str | None = None
        self.qos = 0
        self.is_retain = False
        self.is_retained = False
        self.is_timed = False
        self.number = 0
        self.properties = PublishProperties()


def from_sections(payload: bytes, now_ms: int) -> Content:
    """Return the content for a PUBLISH; of a malformed message, its bytes and a property that says so.

    Args:
        payload: the sections of the message.
        now_ms: the time of day in milliseconds since 1970 UTC.
    """
    try:
        return _read(Sections(payload), now_ms)
    except RemoteError as error:
        content = Content(payload)
        content.properties.user_properties.append(("x-malformed", error.description))
        return content


def _read(sections: Sections, now_ms: int) -> Content:
    header, properties, annotations = sections.header, sections.properties, sections.message_annotations
    value = sections.body
    body, kind = as_bytes(value)
    content = Content(body)
    content.topic = _text(annotations.get(TOPIC_NAME))
    content.is_retain = annotations.get(RETAIN) is True
    asked = annotations.get(RETAINED)
    content.is_retained = bool(asked)
    content.number = int(asked) if isinstance(asked, int) and asked is not True else 0
    if header.durable:
        content.qos = 1 if annotations.get(QOS) == 1 else 2
    told = content.properties
    said = annotations.get(_PAYLOAD_FORMAT)
    if isinstance(said, UByte) and said <= 1:
        told.payload_format = int(said)
    elif isinstance(value, str):
        told.payload_format = 1
    if header.ttl is not None:
        told.message_expiry_s = (header.ttl + 500) // 1000
    elif properties.absolute_expiry_time:
        content.is_timed = True
        left_ms = properties.absolute_expiry_time - now_ms
        told.message_expiry_s = max(0, min(0xFFFFFFFF, (left_ms + 500) // 1000))
    told.content_type = _text(annotations.get(_CONTENT_TYPE)) or _text(properties.content_type)
    if told.content_type is None and kind and not isinstance(value, str):
        told.content_type = kind
    told.response_topic = _topic(properties.reply_to)
    told.correlation_data = _octets(properties.correlation_id)
    told.user_properties = _user_properties(sections)
    return content


def _user_properties(sections: Sections) -> list[tuple[str, str]]:
    annotations = sections.message_annotations
    found = annotations.get(_USER_PROPERTIES)
    if isinstance(found, list) and all(isinstance(text, str) for text in found):
        texts = [str(text) for text in found]
        pairs = list(zip(texts[::2], texts[1::2], strict=False))
    else:
        application = sections.application_properties
        is_event = bool(application and cloudevents.attributes_of(application))
        pairs = [
            (name[len(cloudevents.PREFIX) :], as_text(cloudevents.shown(value)))
            if is_event and isinstance(name, str) and name.startswith(cloudevents.PREFIXES)
            else (as_text(name), as_text(value))
            for name, value in application.items()
        ]
    header, properties = sections.header, sections.properties
    for field, name in _SHOWN:
        value = getattr(properties, field)
        if value is not None:
            pairs.append((name, as_text(value)))
    if header.priority != DEFAULT_PRIORITY:
        pairs.append(("priority", str(int(header.priority))))
    if header.delivery_count:
        pairs.append(("delivery-count", str(int(header.delivery_count))))
    pairs += [
        (str(name), as_text(value))
        for name, value in annotations.items()
        if isinstance(name, str) and name not in _OURS
    ]
    return [pair for pair in pairs if all(_text(text) is not None for text in pair)]


def _text(value: Any) -> str | None:
    """Return a text that MQTT can carry; None of anything else [MQTT-1.5.4-2]."""
    if not isinstance(value, str) or "\0" in value or len(value.encode(errors="replace")) > MAX_TEXT_BYTES:
        return None
    return str(value)


def _topic(value: Any) -> str | None:
    """Return a name that a client can publish to; None of anything else [MQTT-3.3.2-14]."""
    text = _text(value)
    return None if not text or "#" in text or "+" in text else text


def _octets(value: Any) -> bytes | None:
    if value is None:
        return None
    octets = value if isinstance(value, bytes) else as_text(value).encode(errors="replace")
    return octets if len(octets) <= MAX_TEXT_BYTES else None


def topic_of(content: Content) -> str | None:
    """Return the topic name of a message that was sent below a topic, if a client can be told it."""
    return _topic(content.topic)
