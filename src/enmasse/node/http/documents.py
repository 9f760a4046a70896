"""Converts messages of HTTP in JSON to AMQP's sections, and back; the table is in docs/reference/http.md.

Rules:
1. A message is an object with the properties of headers in camel case.
2. The body is one data section. Back, data, text and binary values are the body as they are; whatever else an AMQP
   client sent becomes JSON.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from enmasse.errors import RemoteError
from enmasse.message.sections import DEFAULT_PRIORITY, Sections
from enmasse.node.http.messages import ANNOTATION, PRIORITY, PROPERTIES, TTL, HttpParts
from enmasse.node.http.values import INVALID, base64_of, is_json, parse_json, plain_of, read_json, truth_of
from enmasse.node.plain_values import as_bytes, as_json, as_text
from enmasse.wire.http.answers import HttpError

_BY_NAME = {name: (field, read) for field, (_, name, read) in PROPERTIES.items()}


LOST: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing": ("`first-acquirer`", "`delivery-count`", "delivery annotations", "footer"),
    "durable": ("not `durable`",),
    "refused": ("other values as annotations `x-opt-...`", "annotations of other names"),
    "a text": (
        "bytes as `message-id`",
        "a UUID as `message-id`",
        "bytes as `correlation-id`",
        "a UUID as `correlation-id`",
    ),
    "texts": (
        "bytes as application properties",
        "symbols as application properties",
        "UUIDs as application properties",
    ),
    "numbers": ("timestamps as application properties",),
    "`text/plain`, or what the body became": ("no `content-type`",),
    "the same value, written anew": ("body of JSON",),
    "one data section": (
        "body of several data sections",
        "body of a text",
        "body of another value",
        "body of a sequence",
    ),
}
"""The parts of a message that a client which gets it cannot send again as they were, by what becomes of them."""


def to_sections(
    text: str | bytes, annotations: Mapping[str, Any] | None = None, properties: Mapping[str, Any] | None = None
) -> bytes:
    """Return the message that a JSON object describes.

    Args:
        text: the object.
        annotations: further annotations of the message.
        properties: application properties that it has if the object says nothing else of them.

    Raises:
        HttpError: it describes none.
    """
    document = read_json(text, "a message")
    if not isinstance(document, dict):
        raise HttpError(400, 'a message is an object of JSON, such as {"body": "text"}', INVALID)
    parts = HttpParts()
    parts.properties |= properties or {}
    body: Any = None
    data: bytes | None = None
    for name, value in document.items():
        known = _BY_NAME.get(name)
        if known is not None:
            field, read = known
            parts.fields[field] = read(name, value)
        elif name == "durable":
            parts.header.durable = truth_of(name, value)
        elif name == "priority":
            parts.header.priority = PRIORITY(name, value)
        elif name == "ttl":
            parts.header.ttl = TTL(name, value) or None
        elif name == "properties":
            parts.properties |= plain_of(name, value)
        elif name == "annotations":
            parts.annotations |= _annotations(value)
        elif name == "body":
            body = value
        elif name == "bodyBase64":
            data = base64_of(name, value)
        else:
            raise HttpError(400, f"a message has no {name!r:.60}", INVALID)
    parts.annotations |= annotations or {}
    if data is None:
        data = _body_bytes(parts, body)
    elif body is not None:
        raise HttpError(400, "a message has body or bodyBase64, not both", INVALID)
    return parts.encode(data)


def _annotations(value: Any) -> dict[str, Any]:
    found = plain_of("annotations", value)
    for name in found:
        if not name.startswith(ANNOTATION):
            raise HttpError(400, f"annotations begin with {ANNOTATION}, not {name!r:.60}", INVALID)
    return found


def _body_bytes(parts: HttpParts, body: Any) -> bytes:
    kind = parts.fields.get("content_type")
    if body is None and kind is None:
        return b""
    if isinstance(body, str) and not (kind is not None and is_json(kind)):
        if kind is None:
            parts.fields["content_type"] = "text/plain"
        return body.encode(errors="replace")
    if kind is None:
        parts.fields["content_type"] = "application/json"
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


def from_sections(payload: bytes) -> dict[str, Any]:
    """Return a message as an object for JSON; of a malformed one, its bytes and the reason."""
    try:
        return _read(Sections(payload))
    except RemoteError as error:
        return {"malformed": error.description, "bodyBase64": b64encode(payload).decode()}


def _read(sections: Sections) -> dict[str, Any]:
    found: dict[str, Any] = {}
    header, properties = sections.header, sections.properties
    body, kind = as_bytes(sections.body)
    for field, (_, name, _) in PROPERTIES.items():
        value = getattr(properties, field)
        if value is not None:
            found[name] = int(value) if isinstance(value, int) else as_text(value)
    if kind and "contentType" not in found:
        found["contentType"] = kind
    if header.durable:
        found["durable"] = True
    if header.priority != DEFAULT_PRIORITY:
        found["priority"] = int(header.priority)
    if header.ttl is not None:
        found["ttl"] = int(header.ttl)
    if header.delivery_count:
        found["deliveryCount"] = int(header.delivery_count)
    annotations = sections.message_annotations
    if annotations:
        found["annotations"] = {as_text(name): as_json(value) for name, value in annotations.items()}
    if sections.application_properties:
        found["properties"] = as_json(sections.application_properties)
    _show_body(found, body)
    return found


def _show_body(found: dict[str, Any], body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        found["bodyBase64"] = b64encode(body).decode()
        return
    if is_json(found.get("contentType", "")):
        try:
            found["body"] = parse_json(text)
        except ValueError:
            found["bodyBase64"] = b64encode(body).decode()
        return
    found["body"] = text
