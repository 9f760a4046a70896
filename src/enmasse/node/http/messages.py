"""Converts messages of HTTP to AMQP's sections, and back; the tables are in docs/reference/http.md.

Rules:
1. In headers, ``X-...`` of a property's name is that property; ``X-Opt-...`` is a message annotation;
   ``X-Property-...`` is an application property, a string under its name in lower case; ``X-Properties`` is a JSON
   object of such properties, with their names and types as they are.
2. In JSON, a message is an object with the same properties in camel case.
3. The body is one data section. Back, data, text and binary values are the body as they are; whatever else an AMQP
   client sent becomes JSON.
4. A message is durable unless it says that it is not: what was answered as stored is to survive.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from enmasse.errors import LocalError, RemoteError
from enmasse.message.sections import DEFAULT_PRIORITY, RETAIN, Header, Properties, Sections, encode_message
from enmasse.node.plain_values import as_bytes, as_json, as_text
from enmasse.wire.http.answers import HttpError

INVALID: Final = "amqp:invalid-field"

_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"
_MAX_TTL_MS: Final = 0xFFFFFFFF
_MAX_MS: Final = (1 << 63) - 1
_MAX_WHOLE: Final = (1 << 63) - 1
_CONTROLS: Final = bytes(range(32))

MAX_JSON_LEVELS = 100
"""Lists and maps in each other; Python's parser and writer have a stack, of which a connection has used a part."""

_TOKEN = re.compile(r"x-opt-[0-9A-Za-z_-]+", re.ASCII)
_ANNOTATION = "x-opt-"
_PROPERTY = "x-property-"


def _invalid(name: str, wanted: str, value: Any) -> HttpError:
    return HttpError(400, f"{name} is {wanted}, not {value!r:.60}", INVALID)


class Whole:
    """Reads a whole number, of JSON or of a header.

    Args:
        least: the least that it may be.
        most: the most.
    """

    __slots__ = ("least", "most")

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def __call__(self, name: str, value: Any) -> int:
        """Return the number.

        Raises:
            HttpError: it is none, or out of bounds.
        """
        if isinstance(value, str):
            text = value.strip()
            value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise _invalid(name, f"a whole number from {self.least} to {self.most}", value)
        return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _invalid(name, "text", value)
    return value


def _octets(name: str, value: Any) -> bytes:
    return _text(name, value).encode()


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise _invalid(name, "true or false", value)
    return text == "true"


PROPERTIES: Final[Mapping[str, tuple[str, str, Callable[[str, Any], Any]]]] = {
    "message_id": ("x-message-id", "messageId", _text),
    "user_id": ("x-user-id", "userId", _octets),
    "to": ("x-to", "to", _text),
    "subject": ("x-subject", "subject", _text),
    "reply_to": ("x-reply-to", "replyTo", _text),
    "correlation_id": ("x-correlation-id", "correlationId", _text),
    "content_type": ("content-type", "contentType", _text),
    "content_encoding": ("content-encoding", "contentEncoding", _text),
    "absolute_expiry_time": ("x-expires", "expires", Whole(0, _MAX_MS)),
    "creation_time": ("x-creation-time", "creationTime", Whole(0, _MAX_MS)),
    "group_id": ("x-group-id", "groupId", _text),
    "group_sequence": ("x-group-sequence", "groupSequence", Whole(0, 0xFFFFFFFF)),
    "reply_to_group_id": ("x-reply-to-group-id", "replyToGroupId", _text),
}
"""The properties of AMQP, each with its header, its name in JSON, and the function that reads its value."""

PRIORITY: Final = Whole(0, 9)
TTL: Final = Whole(0, _MAX_TTL_MS)

_BY_HEADER: Final = {header: (field, read) for field, (header, _, read) in PROPERTIES.items()}
_BY_NAME: Final = {name: (field, read) for field, (_, name, read) in PROPERTIES.items()}


class Parts:
    """What precedes the body of a message.

    Attributes:
        header: of AMQP.
        fields: of AMQP's properties, by name.
        annotations: of the message.
        properties: of the application.
    """

    __slots__ = ("annotations", "fields", "header", "properties")

    def __init__(self) -> None:
        self.header = Header(durable=True)
        self.fields: dict[str, Any] = {}
        self.annotations: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}

    def encode(self, body: bytes = b"") -> bytes:
        """Return the message.

        Raises:
            HttpError: something cannot be said in AMQP.
        """
        try:
            return encode_message(
                body,
                header=self.header,
                message_annotations=self.annotations,
                properties=Properties(**self.fields),
                application_properties=self.properties,
            )
        except (LocalError, UnicodeError) as error:
            raise HttpError(400, str(error), INVALID) from None

    def encode_head(self) -> bytes:
        """Return the sections before the body. Raises as ``encode`` does."""
        return self.encode()[: -len(_EMPTY_DATA)]


# From headers


def parts_of(headers: Mapping[str, str]) -> Parts:
    """Return what precedes the body of a message with these headers.

    Raises:
        HttpError: a header has a value that its property cannot have.
    """
    parts = Parts()
    for name, raw in headers.items():
        known = _BY_HEADER.get(name)
        if known is None and not name.startswith("x-"):
            continue
        value = _utf8(raw)
        if known is not None:
            field, read = known
            parts.fields[field] = read(name, value)
        elif name == "x-durable":
            parts.header.durable = _truth(name, value)
        elif name == "x-priority":
            parts.header.priority = PRIORITY(name, value)
        elif name == "x-ttl":
            parts.header.ttl = TTL(name, value) or None
        elif name == RETAIN:
            parts.annotations[name] = _truth(name, value)
        elif name.startswith(_ANNOTATION):
            is_whole = value.isascii() and value.isdigit() and len(value) < 19
            parts.annotations[name] = int(value) if is_whole else value
        elif name.startswith(_PROPERTY) and len(name) > len(_PROPERTY):
            parts.properties[name.removeprefix(_PROPERTY)] = value
        elif name == "x-properties":
            parts.properties |= _object(name, value)
    return parts


def _utf8(value: str) -> str:
    """Return a header's value, which may be UTF-8, as everything else is here."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def parse_json(text: str | bytes) -> Any:
    """Return a value of JSON, which can be written as a part of a document.

    Raises:
        ValueError: this is none, or it nests too deep.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    opened = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opened <= MAX_JSON_LEVELS:
        return found
    level = [found]
    for _ in range(MAX_JSON_LEVELS + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return found
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    raise ValueError(f"it nests more than {MAX_JSON_LEVELS} levels deep")


def read_json(text: str | bytes, what: str) -> Any:
    """Return a value of JSON.

    Raises:
        HttpError: this is none.
    """
    try:
        return parse_json(text)
    except ValueError:
        problem = f"{what} is not JSON, or nests more than {MAX_JSON_LEVELS} levels deep"
        raise HttpError(400, problem, INVALID) from None


def _object(name: str, text: str) -> dict[str, Any]:
    return _plain(name, read_json(text, name))


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _plain(name: str, value: Any) -> dict[str, Any]:
    """Return an object of plain values: those of application properties have no structure [AMQP 3.2.5]."""
    if not isinstance(value, dict):
        raise _invalid(name, "an object of JSON", value)
    for key, each in value.items():
        if not (each is None or isinstance(each, str | int | float)):
            raise _invalid(f"{name}.{key:.60}", "a text, a number, true, false or null", each)
        if isinstance(each, float) and each - each != 0:
            raise _invalid(f"{name}.{key:.60}", "a number that ends", each)
        if isinstance(each, int) and not -_MAX_WHOLE - 1 <= each <= _MAX_WHOLE:
            raise _invalid(f"{name}.{key:.60}", "a number of 64 bits", each)
    return value


# From JSON


def read_document(text: str | bytes, annotations: Mapping[str, Any] | None = None) -> bytes:
    """Return the message that a JSON object describes.

    Args:
        text: the object.
        annotations: further annotations of the message.

    Raises:
        HttpError: it describes none.
    """
    document = read_json(text, "a message")
    if not isinstance(document, dict):
        raise HttpError(400, 'a message is an object of JSON, such as {"body": "text"}', INVALID)
    parts = Parts()
    body: Any = None
    data: bytes | None = None
    for name, value in document.items():
        known = _BY_NAME.get(name)
        if known is not None:
            field, read = known
            parts.fields[field] = read(name, value)
        elif name == "durable":
            parts.header.durable = _truth(name, value)
        elif name == "priority":
            parts.header.priority = PRIORITY(name, value)
        elif name == "ttl":
            parts.header.ttl = TTL(name, value) or None
        elif name == "properties":
            parts.properties |= _plain(name, value)
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
    found = _plain("annotations", value)
    for name in found:
        if not name.startswith(_ANNOTATION):
            raise HttpError(400, f"annotations begin with {_ANNOTATION}, not {name!r:.60}", INVALID)
    return found


def base64_of(name: str, value: Any) -> bytes:
    """Return the bytes of a base64 text.

    Raises:
        HttpError: this is none.
    """
    try:
        return b64decode(_text(name, value), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(name, "base64", value) from None


def _body_bytes(parts: Parts, body: Any) -> bytes:
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


def is_json(content_type: str) -> bool:
    """Return true if a content type says that the content is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


# To headers


def headers_of(sections: Sections) -> tuple[str, tuple[tuple[str, str], ...], bytes]:
    """Return content type, further headers and body of a message.

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
    annotations = sections.message_annotations
    found += [(str(name).title(), as_text(value)) for name, value in annotations.items() if _is_token(name)]
    if sections.application_properties:
        found.append(("X-Properties", json.dumps(as_json(sections.application_properties))))
    # Bytes of UTF-8 in a header are what they are.
    plain = tuple((name, value.encode(errors="replace").decode("latin-1")) for name, value in found)
    content_type = as_text(properties.content_type) if properties.content_type is not None else kind
    return content_type or "application/octet-stream", plain, body


def _is_token(name: Any) -> bool:
    """Return true if a name can be that of a header."""
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None


# To JSON


def document_of(payload: bytes) -> dict[str, Any]:
    """Return a message as an object for JSON; of a malformed one, its bytes and the reason."""
    try:
        return _document(Sections(payload))
    except RemoteError as error:
        return {"malformed": error.description, "bodyBase64": b64encode(payload).decode()}


def _document(sections: Sections) -> dict[str, Any]:
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


def size_of(payload: bytes) -> int:
    """Return the bytes that a message takes as text in an answer, where a control character is written as six."""
    return 6 * len(payload) - 5 * len(payload.translate(None, _CONTROLS))


def dumped(document: Any) -> bytes:
    """Return a line of JSON."""
    return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"
