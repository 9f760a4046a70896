"""Converts messages of HTTP to AMQP's sections, and back; the table is in docs/reference/http.md.

Rules:
1. In headers, ``X-...`` of a property's name is that property; ``X-Opt-...`` is a message annotation;
   ``X-Property-...`` is an application property, a string under its name in lower case; ``X-Properties`` is a JSON
   object of such properties, with their names and types as they are.
2. The body is one data section. Back, data, text and binary values are the body as they are; whatever else an AMQP
   client sent becomes JSON.
3. A message is durable unless it says that it is not: what was answered as stored is to survive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from enmasse.errors import RemoteError
from enmasse.message.parts import Parts
from enmasse.message.sections import DEFAULT_PRIORITY, RETAIN, Sections
from enmasse.node.http.values import Whole, identity_of, octets_of, plain_of, read_json, text_of, truth_of
from enmasse.node.plain_values import as_bytes, as_json, as_text
from enmasse.wire.http.answers import HttpError

ANNOTATION: Final = "x-opt-"
"""Before the names of annotations."""

_TOKEN = re.compile(r"x-opt-[0-9A-Za-z_-]+", re.ASCII)
_PROPERTY = "x-property-"

_MAX_TTL_MS: Final = 0xFFFFFFFF
_MAX_MS: Final = (1 << 63) - 1

PROPERTIES: Final[Mapping[str, tuple[str, str, Callable[[str, Any], Any]]]] = {
    "message_id": ("x-message-id", "messageId", identity_of),
    "user_id": ("x-user-id", "userId", octets_of),
    "to": ("x-to", "to", text_of),
    "subject": ("x-subject", "subject", text_of),
    "reply_to": ("x-reply-to", "replyTo", text_of),
    "correlation_id": ("x-correlation-id", "correlationId", identity_of),
    "content_type": ("content-type", "contentType", text_of),
    "content_encoding": ("content-encoding", "contentEncoding", text_of),
    "absolute_expiry_time": ("x-expires", "expires", Whole(0, _MAX_MS)),
    "creation_time": ("x-creation-time", "creationTime", Whole(0, _MAX_MS)),
    "group_id": ("x-group-id", "groupId", text_of),
    "group_sequence": ("x-group-sequence", "groupSequence", Whole(0, 0xFFFFFFFF)),
    "reply_to_group_id": ("x-reply-to-group-id", "replyToGroupId", text_of),
}
"""The properties of AMQP, each with its header, its name in JSON, and the function that reads its value."""

PRIORITY: Final = Whole(0, 9)
TTL: Final = Whole(0, _MAX_TTL_MS)

_BY_HEADER: Final = {header: (field, read) for field, (header, _, read) in PROPERTIES.items()}


LOST: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing": (
        "`first-acquirer`",
        "`delivery-count`",
        "delivery annotations",
        "annotations of other names",
        "footer",
    ),
    "durable": ("not `durable`",),
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
        "bytes as application properties",
        "symbols as application properties",
        "UUIDs as application properties",
    ),
    "numbers": ("timestamps as application properties",),
    "`application/octet-stream`, or what the body became": ("no `content-type`",),
    "one data section": (
        "body of several data sections",
        "body of a text",
        "body of another value",
        "body of a sequence",
    ),
}
"""The parts of a message that a client which gets it cannot send again as they were, by what becomes of them."""


class HttpParts(Parts):
    """The parts of a message before its body; an answer of HTTP says what is wrong with them."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(durable=True)

    def encode(self, body: bytes = b"") -> bytes:
        """Return the message with a body of one data section.

        Raises:
            HttpError: AMQP has no such value.
        """
        try:
            return super().encode(body)
        except RemoteError as error:
            raise HttpError(400, error.description, error.condition) from None


def to_sections(headers: Mapping[str, str]) -> HttpParts:
    """Return the parts before the body of a message with these headers.

    Raises:
        HttpError: a header has a value that its property cannot have.
    """
    parts = HttpParts()
    for name, raw in headers.items():
        known = _BY_HEADER.get(name)
        if known is None and not name.startswith("x-"):
            continue
        value = utf8_of(raw)
        if known is not None:
            field, read = known
            parts.fields[field] = read(name, value)
        elif name == "x-durable":
            parts.header.durable = truth_of(name, value)
        elif name == "x-priority":
            parts.header.priority = PRIORITY(name, value)
        elif name == "x-ttl":
            parts.header.ttl = TTL(name, value) or None
        elif name == RETAIN:
            parts.annotations[name] = truth_of(name, value)
        elif name.startswith(ANNOTATION):
            is_whole = value.isascii() and value.isdigit() and len(value) < 19
            parts.annotations[name] = int(value) if is_whole else value
        elif name.startswith(_PROPERTY) and len(name) > len(_PROPERTY):
            parts.properties[name.removeprefix(_PROPERTY)] = value
        elif name == "x-properties":
            parts.properties |= plain_of(name, read_json(value, name))
    return parts


def utf8_of(value: str) -> str:
    """Return a header's value, which may be UTF-8, as everything else is here."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


class Content(NamedTuple):
    """The content of an answer with a message.

    Attributes:
        content_type: its content type.
        headers: further headers.
        body: its body.
    """

    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def from_sections(sections: Sections) -> Content:
    """Return the content for an answer with a message.

    Raises:
        RemoteError: the message is malformed.
    """
    properties, header = sections.properties, sections.header
    body, kind = as_bytes(sections.body)
    found: list[tuple[str, str]] = []
    for field, (name, _, _) in PROPERTIES.items():
        value = getattr(properties, field)
        if value is not None and field != "content_type":
            found.append((name.title(), as_text(value)))
    if header.durable:
        found.append(("X-Durable", "true"))
    if header.priority != DEFAULT_PRIORITY:
        found.append(("X-Priority", str(int(header.priority))))
    if header.ttl is not None:
        found.append(("X-Ttl", str(int(header.ttl))))
    annotations = sections.message_annotations
    found += [(str(name).title(), as_text(value)) for name, value in annotations.items() if _is_token(name)]
    if sections.application_properties:
        found.append(("X-Properties", json.dumps(as_json(sections.application_properties))))
    # Bytes of UTF-8 in a header are what they are.
    plain = tuple((name, value.encode(errors="replace").decode("latin-1")) for name, value in found)
    content_type = as_text(properties.content_type) if properties.content_type is not None else kind
    return Content(content_type or "application/octet-stream", plain, body)


def _is_token(name: Any) -> bool:
    """Return true if a name can be that of a header."""
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None
