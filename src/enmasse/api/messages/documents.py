"""Messages in the form of JSON, and the other way round."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from enmasse.api.kube.status import RequestError
from enmasse.api.messages.bodies import Declared, body_of, moment, plain, sparkplug_body
from enmasse.client import Message
from enmasse.errors import EnmasseError
from enmasse.message.sections import TOPIC_NAME
from enmasse.message.types import Timestamp
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from enmasse.client import Outcome
    from enmasse.control.ports import BrowsedMessage
    from enmasse.wire.sparkplug.edge_node import Reader

Document = dict[str, Any]

_PROPERTIES = {
    "messageId": "message_id",
    "userId": "user_id",
    "to": "to",
    "subject": "subject",
    "replyTo": "reply_to",
    "correlationId": "correlation_id",
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "groupId": "group_id",
    "groupSequence": "group_sequence",
}
"""The names of AMQP's properties here and at the client's messages."""

_REASON = ("x-opt-dead-letter-reason", "x-opt-dead-letter-condition", "x-opt-dead-letter-description")
_ORIGIN = "x-opt-original-address"
_ENQUEUED = "x-opt-enqueued-time"


def write_message(
    browsed: BrowsedMessage, address: str, declared: Declared, reader: Reader, most_bytes: int, *, with_body: bool
) -> Document:
    """Return a message as JSON.

    Args:
        browsed: the message.
        address: the name of the address that it is at.
        declared: the declared encoding of bodies there.
        reader: has read the messages before it.
        most_bytes: the most bytes of its body.
        with_body: whether its body is shown.
    """
    message = browsed.message
    found: Document = {"id": browsed.id} if browsed.id else {}
    found["bytes"] = browsed.size
    if message is None:
        body = body_of(browsed.payload, None, Declared(), most_bytes)
        return found | {"malformed": True} | ({"body": body} if with_body else {})
    annotations = message.annotations
    if "x-opt-offset" in annotations:
        found["offset"] = int(annotations["x-opt-offset"])
        found["partition"] = int(annotations.get("x-opt-partition", 0))
    if isinstance(enqueued := annotations.get(_ENQUEUED), Timestamp):
        found["time"] = moment(enqueued / 1000)
    found |= {"durable": message.durable, "priority": int(message.priority)}
    if message.ttl is not None:
        found["ttl"] = round(message.ttl * 1000)
    properties = {
        name: plain(value) for name, field in _PROPERTIES.items() if (value := getattr(message, field)) is not None
    }
    if message.creation_time is not None:
        properties["creationTime"] = moment(message.creation_time)
    found |= {
        "deliveryCount": int(message.delivery_count),
        "properties": properties,
        "applicationProperties": {str(key): plain(value) for key, value in message.properties.items()},
        "annotations": {str(key): plain(value) for key, value in annotations.items()},
    }
    if reasons := [str(annotations[name]) for name in _REASON if annotations.get(name)]:
        found["reason"] = ": ".join(reasons)
    if isinstance(origin := annotations.get(_ORIGIN), str):
        found["from"] = str(origin)
    if with_body:
        # Bad records of pipelines have the name that they were sent to as a property.
        sent_to = (
            annotations.get(TOPIC_NAME),
            annotations.get(_ORIGIN),
            message.to,
            message.properties.get("address"),
            address,
        )
        names = [str(name) for name in sent_to if isinstance(name, str)]
        found["body"] = sparkplug_body(message.body, names, reader, most_bytes) or body_of(
            message.body, message.content_type, declared, most_bytes
        )
    return found


# To be sent

_TEXTS = ("subject", "to", "replyTo", "correlationId", "messageId", "contentType", "contentEncoding", "groupId")
_KNOWN = (*_TEXTS, "body", "hex", "base64", "durable", "ttl", "priority", "applicationProperties", "annotations")
_JSON = "application/json"


def read_message(found: Any, where: str) -> Message:
    """Return the message that a document describes.

    A body that is text is sent as text; a map, list, number, true or false as JSON; ``hex`` and ``base64`` as bytes.

    Raises:
        RequestError: the document describes none; the message names the field.
    """
    if not isinstance(found, dict):
        raise RequestError(400, f"{where}: expected a map, got {describe_value(found)}")
    for name in found:
        if name not in _KNOWN:
            raise RequestError(400, f"{where}.{name}: unknown; a message has {', '.join(_KNOWN)}")
    texts = {name: _typed(found, name, str, "a string", where) for name in _TEXTS}
    body, content_type = _body(found, where)
    ttl = _number(found, "ttl", 0, (1 << 32) - 1, where)
    return Message(
        body,
        subject=texts["subject"],
        to=texts["to"],
        reply_to=texts["replyTo"],
        correlation_id=texts["correlationId"],
        message_id=texts["messageId"],
        content_type=texts["contentType"] or content_type,
        content_encoding=texts["contentEncoding"],
        group_id=texts["groupId"],
        durable=bool(_typed(found, "durable", bool, "true or false", where)),
        ttl=None if ttl is None else ttl / 1000,
        priority=_number(found, "priority", 0, 9, where) if found.get("priority") is not None else 4,  # type: ignore[arg-type]  # not None
        properties=_simple(found, "applicationProperties", where),
        annotations=_simple(found, "annotations", where),
    )


def _typed(found: Document, name: str, kind: type, said: str, where: str) -> Any:
    value = found.get(name)
    if value is not None and not isinstance(value, kind):
        raise RequestError(400, f"{where}.{name}: expected {said}, got {describe_value(value)}")
    return value


def _number(found: Document, name: str, least: int, most: int, where: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError(
            400, f"{where}.{name}: expected a number from {least} to {most}, got {describe_value(value)}"
        )
    return value


def _body(found: Document, where: str) -> tuple[Any, str | None]:
    """Return the body, and the content type that goes with it."""
    given = [name for name in ("body", "hex", "base64") if found.get(name) is not None]
    if len(given) > 1:
        raise RequestError(400, f"{where}: either body, hex or base64")
    if not given or given == ["body"]:
        body = found.get("body")
        if body is None or isinstance(body, str):
            return body, None
        try:
            return json.dumps(body, ensure_ascii=False, allow_nan=False).encode(), _JSON
        except (ValueError, TypeError):
            raise RequestError(400, f"{where}.body: expected what JSON can express") from None
    text = _typed(found, given[0], str, "a string", where)
    try:
        return (bytes.fromhex(text) if given == ["hex"] else base64.b64decode(text, validate=True)), None
    except (ValueError, binascii.Error):
        raise RequestError(400, f"{where}.{given[0]}: expected bytes in that encoding") from None


def _simple(found: Document, name: str, where: str) -> dict[str, Any]:
    values = _typed(found, name, dict, "a map", where) or {}
    for key, value in values.items():
        is_simple = value is None or isinstance(value, str | int | float)
        if not isinstance(key, str) or not is_simple or (isinstance(value, int) and abs(value) >= 1 << 63):
            raise RequestError(
                400, f"{where}.{name}: expected strings, numbers, true or false by name, got {describe_value(value)}"
            )
    return dict(values)


def write_outcome(result: Outcome | EnmasseError) -> Document:
    """Return what became of a message that was sent."""
    if isinstance(result, EnmasseError):
        return {"outcome": "failed", "description": str(result)}
    found: Document = {"outcome": result.name}
    if result.condition:
        found["condition"] = result.condition
    if result.description:
        found["description"] = result.description
    return found
