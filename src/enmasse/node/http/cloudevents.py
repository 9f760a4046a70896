"""CloudEvents 1.0: from HTTP's modes to AMQP's binary mode, and back.

Rules:
1. However an event comes, in binary, structured or batched mode, it is kept in AMQP's binary mode
   (``node/cloudevents.py``).
2. Back, events that an AMQP client sent in structured mode, or with ``cloudEvents:`` before attributes, are
   understood, too. What is no event becomes one of the type ``io.enmasse.message``.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from enmasse.errors import RemoteError
from enmasse.message.parts import Parts
from enmasse.message.sections import Sections
from enmasse.node.cloudevents import NAME, PREFIX, REQUIRED, VERSION, attributes_of, shown
from enmasse.node.http.messages import utf8_of
from enmasse.node.http.values import INVALID, base64_of, is_json, parse_json, read_json
from enmasse.node.plain_values import as_bytes, as_text
from enmasse.wire.http.answers import HttpError

EVENT_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"

HEADER: Final = "ce-"
"""Before attributes in headers."""

PLAIN_TYPE: Final = "io.enmasse.message"
"""The type of what was sent as no event."""

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPED = re.compile(r"\\(.)")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_KEPT = "!#$&'()*+,/:;=?@[]~^`{|}<>-_."
"""Characters that need no encoding in a header [CloudEvents HTTP 3.1.3.2]."""


def from_headers(parts: Parts, headers: Mapping[str, str]) -> None:
    """Add the attributes of an event in binary mode, if the headers have any.

    Raises:
        HttpError: they are not those of an event.
    """
    attributes = {
        name.removeprefix(HEADER): unquote(_unquoted(utf8_of(value)))
        for name, value in headers.items()
        if name.startswith(HEADER)
    }
    if attributes:
        _add(parts, attributes)


def _unquoted(value: str) -> str:
    """Return a header's value without the quotes that it may stand in [CloudEvents HTTP 3.1.3.2]."""
    is_quoted = _QUOTED.fullmatch(value) is not None
    return _ESCAPED.sub(r"\1", value[1:-1]) if is_quoted else value


def _add(parts: Parts, attributes: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise HttpError(400, f"an event of CloudEvents has the attribute {name}, a text", INVALID)
    if attributes["specversion"] != VERSION:
        version = attributes["specversion"]
        raise HttpError(400, f"CloudEvents are of version {VERSION} here, not {version!r:.20}", INVALID)
    for name, value in attributes.items():
        if NAME.fullmatch(name) is None:
            raise HttpError(400, f"{name!r:.60} is no name of an attribute: small letters and digits", INVALID)
        if not isinstance(value, str | bool | int) or (isinstance(value, int) and not -(1 << 31) <= value < 1 << 31):
            raise HttpError(400, f"attribute {name} is a text, true, false or a number of 32 bits", INVALID)
        parts.properties[PREFIX + name] = value
    time = attributes.get("time")
    if time is not None and not _is_time(time):
        raise HttpError(400, f"the attribute time is as 2026-01-31T12:00:00Z, not {time!r:.60}", INVALID)


def _is_time(value: Any) -> bool:
    """Return whether a value is a time of RFC 3339."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    try:
        # A second that leaps is none of Python's.
        datetime.fromisoformat(f"{found[1]}T{found[2]}:{'59' if found[3] == '60' else found[3]}{found[4].upper()}")
    except ValueError:
        return False
    return True


def read_event(document: Any, parts: Parts) -> bytes:
    """Return the body of an event in structured mode, after adding its attributes.

    Raises:
        HttpError: this is no event.
    """
    if not isinstance(document, dict):
        raise HttpError(400, "an event is an object of JSON", INVALID)
    # A null is as good as nothing [CloudEvents JSON 2.2].
    attributes = {name: value for name, value in document.items() if value is not None}
    has_data, data = "data" in attributes, attributes.pop("data", None)
    coded = attributes.pop("data_base64", None)
    kind = attributes.pop("datacontenttype", None)
    if kind is not None and not isinstance(kind, str):
        raise HttpError(400, "datacontenttype is a text", INVALID)
    _add(parts, attributes)
    if coded is not None:
        if has_data:
            raise HttpError(400, "an event has data or data_base64, not both", INVALID)
        body = base64_of("data_base64", coded)
    elif not has_data:
        body = b""
    elif isinstance(data, str) and kind is not None and not is_json(kind):
        body = data.encode(errors="replace")
    else:
        kind = kind or "application/json"
        body = json.dumps(data, ensure_ascii=False).encode(errors="replace")
    parts.fields.pop("content_type", None)
    if kind is not None:
        parts.fields["content_type"] = kind
    return body


def read_batch(body: bytes) -> list[Any]:
    """Return the events of a batch, which were not looked at yet.

    Raises:
        HttpError: this is no batch.
    """
    found = read_json(body, "a batch of events")
    if not isinstance(found, list):
        raise HttpError(400, "a batch of events is an array of JSON", INVALID)
    return found


def to_headers(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of an event in binary mode."""
    return [(f"{HEADER}{name}", quote(as_text(shown(value)), safe=_KEPT)) for name, value in attributes.items()]


def event_of(payload: bytes, *, source: str, name: str) -> dict[str, Any]:
    """Return a message as an event in structured mode.

    Args:
        payload: the message.
        source: the source of what was sent as no event: its space and address.
        name: the id of such a message, if it has none itself.
    """
    try:
        sections = Sections(payload)
        properties = sections.properties
        body, kind = as_bytes(sections.body)
        content_type = as_text(properties.content_type) if properties.content_type is not None else kind
        attributes = attributes_of(sections.application_properties)
        name = name if properties.message_id is None else as_text(properties.message_id)
    except RemoteError:
        attributes, body, content_type = {}, payload, ""
    if not attributes and content_type.partition(";")[0].strip().lower() == EVENT_TYPE:
        try:
            document = parse_json(body)
        except ValueError:
            document = None
        if isinstance(document, dict) and all(document.get(required) for required in REQUIRED):
            return document
    found: dict[str, Any] = attributes or {"specversion": VERSION, "id": name, "source": source, "type": PLAIN_TYPE}
    found = {key: shown(value) for key, value in found.items()}
    if content_type:
        found["datacontenttype"] = content_type
    elif attributes and body:
        # As text it would be JSON, which nobody has said it is [CloudEvents JSON 3.1].
        found["data_base64"] = b64encode(body).decode()
        return found
    _show_data(found, body, content_type)
    return found


def _show_data(found: dict[str, Any], body: bytes, content_type: str) -> None:
    if not body:
        return
    try:
        text = body.decode()
        found["data"] = parse_json(text) if is_json(content_type) else text
        if not content_type:
            found["datacontenttype"] = "text/plain"
    except ValueError:
        found["data_base64"] = b64encode(body).decode()
