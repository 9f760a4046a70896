"""Converts messages of STOMP to AMQP's sections, and back; the table is in docs/reference/stomp.md.

Rules:
1. A header that names a property of AMQP is that property; ``x-opt-...`` is a message annotation; every other one is
   an application property, a string. What a client sent comes back to a STOMP client under the same names.
2. The body is one data section. Back, data, text and binary values are the body as they are; whatever else an AMQP
   client sent becomes JSON.
3. What is a header of the protocol itself (``destination``, ``receipt`` ...) is not part of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from enmasse.errors import RemoteError
from enmasse.message.parts import Parts
from enmasse.message.sections import DEFAULT_PRIORITY, RETAIN, TOPIC_NAME, Sections
from enmasse.node.plain_values import as_bytes, as_text

USER_ID: Final = "user-id"
"""The header of the property of that name, and of nothing else: receivers believe it."""

_OF_THE_FRAME = frozenset(("destination", "receipt", "transaction", "content-length"))
_ANNOTATION = "x-opt-"

_MAX_TTL_MS = 0xFFFFFFFF
_MAX_MS = (1 << 63) - 1


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def number(name: str, value: str) -> int:
        text = value.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
            raise RemoteError(
                "amqp:invalid-field", f"{name} is a whole number from {least} to {most}, not {value!r:.60}"
            )
        return int(text)

    return number


def _text(_name: str, value: str) -> str:
    return value


def _octets(_name: str, value: str) -> bytes:
    return value.encode()


_PROPERTIES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "amqp-message-id": ("message_id", _text),
    "message-id": ("message_id", _text),
    USER_ID: ("user_id", _octets),
    "to": ("to", _text),
    "subject": ("subject", _text),
    "reply-to": ("reply_to", _text),
    "correlation-id": ("correlation_id", _text),
    "content-type": ("content_type", _text),
    "content-encoding": ("content_encoding", _text),
    "expires": ("absolute_expiry_time", _whole(0, _MAX_MS)),
    "creation-time": ("creation_time", _whole(0, _MAX_MS)),
    "group-id": ("group_id", _text),
    "group-sequence": ("group_sequence", _whole(0, 0xFFFFFFFF)),
    "reply-to-group-id": ("reply_to_group_id", _text),
}
"""The property of each header, and the function that parses its value."""

_SHOWN = tuple((field, header) for header, (field, _) in _PROPERTIES.items() if header != "message-id")

_PRIORITY = _whole(0, 9)
_TTL = _whole(0, _MAX_TTL_MS)


LOST: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing": ("`first-acquirer`", "delivery annotations", "footer"),
    "an application property of that name, a text": ("`delivery-count`", "annotations of other names"),
    "a text": (
        "a number as `message-id`",
        "bytes as `message-id`",
        "a UUID as `message-id`",
        "a number as `correlation-id`",
        "bytes as `correlation-id`",
        "a UUID as `correlation-id`",
    ),
    "texts": (
        "other values as annotations `x-opt-...`",
        "numbers as application properties",
        "floats as application properties",
        "booleans as application properties",
        "nulls as application properties",
        "bytes as application properties",
        "symbols as application properties",
        "timestamps as application properties",
        "UUIDs as application properties",
    ),
    "one data section": (
        "body of several data sections",
        "body of a text",
        "body of another value",
        "body of a sequence",
    ),
}
"""The parts of a message that a client which gets it cannot send again as they were, by what becomes of them."""


def to_sections(headers: Mapping[str, str]) -> Parts:
    """Return the parts before the body of a message with these headers.

    Raises:
        RemoteError: a header has a value that its property cannot have.
    """
    parts = Parts()
    header, fields, annotations = parts.header, parts.fields, parts.annotations
    for name, value in headers.items():
        if name in _OF_THE_FRAME:
            continue
        known = _PROPERTIES.get(name)
        if known is not None:
            field, read = known
            if field not in fields:
                fields[field] = read(name, value)
        elif name == "persistent":
            header.durable = value.strip().lower() == "true"
        elif name == "priority":
            header.priority = _PRIORITY(name, value)
        elif name == "ttl":
            header.ttl = _TTL(name, value) or None
        elif name == RETAIN:
            annotations[name] = value.strip().lower() == "true"
        elif name.startswith(_ANNOTATION):
            is_whole = value.isascii() and value.isdigit() and len(value) < 19
            annotations[name] = int(value) if is_whole else value
        else:
            parts.properties[name] = value
    if not fields.get("absolute_expiry_time", True):
        del fields["absolute_expiry_time"]  # 0 is never, for those who always say it
    return parts


class Content:
    """The content of a ``MESSAGE`` frame.

    Attributes:
        headers: the headers that do not depend on the receiver.
        body: the body.
        body_at: the place of the body in the payload, up to its end; 0 if it was converted.
        topic_name: the name below the topic that it was sent to, if that is known.
    """

    __slots__ = ("body", "body_at", "headers", "topic_name")

    def __init__(self, headers: list[tuple[str, str]], body: bytes, body_at: int, topic_name: str | None) -> None:
        self.headers = headers
        self.body = body
        self.body_at = body_at
        self.topic_name = topic_name


def from_sections(payload: bytes) -> Content:
    """Return the content for a ``MESSAGE``; of a malformed message, its bytes and a header that says so.

    Args:
        payload: the sections of the message.
    """
    try:
        return _read(Sections(payload))
    except RemoteError as error:
        headers = [("content-type", "application/octet-stream"), ("x-malformed", error.description)]
        return Content(headers, payload, 0, None)


def _read(sections: Sections) -> Content:
    payload = sections.payload
    header, properties, annotations = sections.header, sections.properties, sections.message_annotations
    headers = []
    if header.durable:
        headers.append(("persistent", "true"))
    if header.priority != DEFAULT_PRIORITY:
        headers.append(("priority", str(int(header.priority))))
    if header.ttl is not None:
        headers.append(("ttl", str(int(header.ttl))))
    if header.delivery_count:
        headers += (("redelivered", "true"), ("delivery-count", str(int(header.delivery_count))))
    body, kind = as_bytes(sections.body)
    is_typed = properties.content_type is not None
    for field, name in _SHOWN:
        value = getattr(properties, field)
        if value is not None:
            headers.append((name, as_text(value)))
    if kind and not is_typed:
        headers.append(("content-type", kind))
    topic_name = annotations.get(TOPIC_NAME)
    headers += [
        (str(name), as_text(value))
        for name, value in annotations.items()
        if name not in (TOPIC_NAME, USER_ID) and isinstance(name, str)
    ]
    headers += [
        (str(name), as_text(value)) for name, value in sections.application_properties.items() if name != USER_ID
    ]
    start, stop = sections.body_range
    at = stop - len(body)
    is_there = stop == len(payload) and at > start and payload[at:] == body
    return Content(headers, body, at if is_there else 0, topic_name if isinstance(topic_name, str) else None)
