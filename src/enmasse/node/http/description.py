"""The OpenAPI description of HTTP at a node, made from the tables that requests are read by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from enmasse.node.http.cloudevents import BATCH_TYPE, EVENT_TYPE
from enmasse.node.http.events import MAX_WINDOW, WINDOW
from enmasse.node.http.messages import PRIORITY, PROPERTIES, TTL
from enmasse.node.http.receiving import LEASE_S, MAX_LEASE_S, MAX_MESSAGES, OUTCOMES
from enmasse.node.http.request_reply import ANSWER_S
from enmasse.node.http.routes import ACTIONS, PARAMETERS, PATH, STATUSES
from enmasse.node.http.sending import LINES_TYPE, MAX_WAIT_S, WAIT_S
from enmasse.node.http.values import MAX_IDENTITY, Whole, identity_of
from enmasse.version import __version__
from enmasse.wire.http.answers import PROBLEM_TYPE

DESCRIPTION_PATH: Final = "/v1/openapi.json"

Document = dict[str, Any]

_TEXT: Final[Document] = {"type": "string"}
_TRUTH: Final[Document] = {"type": "boolean"}
_BYTES: Final[Document] = {"type": "string", "contentEncoding": "base64"}
_OBJECT: Final[Document] = {"type": "object"}
_COUNT: Final[Document] = {"type": "integer", "minimum": 0}
_OFFSET: Final[Document] = {"type": "string", "pattern": "^(first|last|next|[0-9]{1,19})$"}

_SUMMARIES: Final = {
    ("messages", "POST"): "Send a message, or a batch of them",
    ("messages", "GET"): "Look at messages without taking them; read a stream",
    ("receive", "POST"): "Receive messages",
    ("events", "GET"): "Receive messages as Server-Sent Events",
    ("settle", "POST"): "Say what became of leased messages",
    ("renew", "POST"): "Keep leased messages longer",
    ("request", "POST"): "Send a message and be answered by another one",
}

_ERRORS: Final = frozenset(STATUSES.values()) | {400, 401, 408, 414, 417, 431, 505}
"""The statuses that any request may be refused with: by an address or space, or as no request that makes sense."""

_MORE_ERRORS: Final = {
    ("events", "GET"): frozenset((406,)),
    ("messages", "POST"): frozenset((422, 502)),
    ("request", "POST"): frozenset((422, 502, 504)),
}
"""The statuses that say what became of a message, or that none is taken."""


def _ref(name: str, kind: str = "schemas") -> Document:
    return {"$ref": f"#/components/{kind}/{name}"}


def _object(properties: Mapping[str, Document], *required: str, is_open: bool = False) -> Document:
    found: Document = {"type": "object", "properties": dict(properties), "additionalProperties": is_open}
    return found | ({"required": list(required)} if required else {})


def _whole(read: Whole) -> Document:
    return {"type": "integer", "minimum": read.least, "maximum": read.most}


def _schema_of(read: Callable[[str, Any], Any]) -> Document:
    """Return the schema of what a property's reader takes."""
    return _whole(read) if isinstance(read, Whole) else _TEXT


_IDENTITY: Final[Document] = {"type": ["string", "integer"], "minimum": 0, "maximum": MAX_IDENTITY}


# What is said in a request


def _seconds(default: float, most: float) -> Document:
    return {"type": "number", "minimum": 0, "maximum": most, "default": default, "multipleOf": 0.001}


def _number(default: int, most: int) -> Document:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


_LEASE: Final = _seconds(LEASE_S, MAX_LEASE_S)
_QUERY: Final[Mapping[str, Document]] = {
    "after": _TEXT,
    "auto": {**_TRUTH, "default": False},
    "lease": _LEASE,
    "offset": _OFFSET,
    "partition": _COUNT,
    "selector": _TEXT,
}
"""The parameters of queries, unless an action has its own."""

_OWN: Final[Mapping[tuple[str, str], Mapping[str, Document]]] = {
    ("messages", "POST"): {"wait": _seconds(WAIT_S, MAX_WAIT_S)},
    ("messages", "GET"): {"max": _number(10, MAX_MESSAGES), "wait": _seconds(0, MAX_WAIT_S)},
    ("receive", "POST"): {"max": _number(1, MAX_MESSAGES), "wait": _seconds(0, MAX_WAIT_S)},
    ("events", "GET"): {"max": _number(WINDOW, MAX_WINDOW)},
    ("request", "POST"): {"wait": _seconds(ANSWER_S, MAX_WAIT_S)},
}


def _parameter(place: str, name: str, schema: Document, description: str = "") -> Document:
    found: Document = {"name": name, "in": place, "schema": schema, "required": place == "path"}
    return found | ({"description": description} if description else {})


def _message_headers() -> list[Document]:
    found = [
        _parameter("header", header.title(), _schema_of(read), f"the property {field.replace('_', '-')}")
        for field, (header, _, read) in PROPERTIES.items()
        if header != "content-type"
    ]
    return [
        *found,
        _parameter("header", "X-Durable", _TRUTH, "false: it is gone after a crash"),
        _parameter("header", "X-Priority", _whole(PRIORITY)),
        _parameter("header", "X-Ttl", _whole(TTL), "in ms"),
        _parameter("header", "X-Opt-Retain", _TRUTH, "one of the headers X-Opt-..., each a message annotation"),
        _parameter(
            "header",
            "X-Properties",
            {"type": "string", "contentMediaType": "application/json"},
            "an object of application properties; X-Property-NAME is a single one, a text",
        ),
        _parameter("header", "Ce-Id", _TEXT, "Ce-... are the attributes of an event of CloudEvents"),
    ]


def _headers_of(action: tuple[str, str]) -> list[Document]:
    if action == ("messages", "POST"):
        key = _parameter("header", "Idempotency-Key", _TEXT, "a request that is sent again has no effect again")
        return [*_message_headers(), key]
    if action == ("request", "POST"):
        return _message_headers()
    if action == ("events", "GET"):
        # Accept is said by the type of the answer, and must not be a parameter.
        return [_parameter("header", "Last-Event-ID", _OFFSET, "of a stream: the offset of the last event")]
    return []


_ANY_BODY: Final[Document] = {"application/octet-stream": {}, "text/plain": {"schema": _TEXT}, "*/*": {}}
_BODIES: Final[Mapping[tuple[str, str], Document]] = {
    ("messages", "POST"): {
        **_ANY_BODY,
        LINES_TYPE: {"schema": {**_TEXT, "description": "a Message in each line"}},
        EVENT_TYPE: {"schema": _ref("Event")},
        BATCH_TYPE: {"schema": {"type": "array", "items": _ref("Event"), "maxItems": MAX_MESSAGES}},
    },
    ("settle", "POST"): {"application/json": {"schema": _ref("Settlement")}},
    ("renew", "POST"): {"application/json": {"schema": _ref("Renewal")}},
    ("request", "POST"): _ANY_BODY,
}


# What is said in an answer


def _answer(description: str, content: Document, headers: Mapping[str, Document] | None = None) -> Document:
    found: Document = {"description": description}
    if content:
        found["content"] = content
    return found | ({"headers": dict(headers)} if headers else {})


def _json(schema: Document) -> Document:
    return {"application/json": {"schema": schema}}


_OUTCOME: Final = _json(_object({"outcome": {"const": "accepted"}}, "outcome"))
_MESSAGES: Final = {"type": "array", "items": _ref("ReceivedMessage")}
_EVENTS: Final = {BATCH_TYPE: {"schema": {"type": "array", "items": _ref("Event")}}}
_EVENT: Final = _object(
    {
        "event": {"const": "message"},
        "id": {**_TEXT, "description": "the lease; of a stream, the offset"},
        "data": {**_TEXT, "contentMediaType": "application/json", "contentSchema": _ref("ReceivedMessage")},
    },
    "event",
    "data",
)
"""One of the events of a stream of them."""

_NEXT: Final = {"X-Next": {"description": "of a batch of events: from where to go on", "schema": _TEXT}}
_RETRY: Final = {"Retry-After": {"description": "seconds", "schema": _COUNT}}
_CHALLENGE: Final = {"WWW-Authenticate": {"schema": _TEXT}}
_ALLOW: Final = {"Allow": {"description": "the methods", "schema": _TEXT, "required": True}}


def _names(of: str) -> Document:
    return _json(_object({of: _COUNT, "unknown": {"type": "array", "items": _TEXT}}, of, "unknown"))


_SUCCESSES: Final[Mapping[tuple[str, str], Mapping[int, Document]]] = {
    ("messages", "POST"): {
        200: _answer(
            "a receiver has accepted it; of a batch: an outcome in each line",
            {**_OUTCOME, LINES_TYPE: {"schema": _TEXT}},
        ),
        202: _answer("it is stored", _OUTCOME),
    },
    ("messages", "GET"): {
        200: _answer(
            "copies of messages, and from where to go on",
            {
                **_json(
                    _object(
                        {
                            "messages": _MESSAGES,
                            "next": {
                                "type": ["string", "object"],
                                "description": "the id of a message; of a stream, offsets by partition",
                            },
                        },
                        "messages",
                    )
                ),
                **_EVENTS,
            },
            _NEXT,
        )
    },
    ("receive", "POST"): {
        200: _answer("messages, or none in time", {**_json(_object({"messages": _MESSAGES}, "messages")), **_EVENTS})
    },
    ("events", "GET"): {200: _answer("events that do not end", {"text/event-stream": {"schema": _EVENT}})},
    ("settle", "POST"): {200: _answer("it is on disk", _names("settled"))},
    ("renew", "POST"): {200: _answer("they end later", _names("renewed"))},
    ("request", "POST"): {200: _answer("the message that answers: its body as it is", {"*/*": {}})},
}


def _errors(key: tuple[str, str]) -> dict[str, Document]:
    statuses = sorted(_ERRORS | _MORE_ERRORS.get(key, frozenset()))
    return {str(status): _ref(_name_of(status), "responses") for status in statuses}


def _name_of(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "").replace("-", "")


def _error(status: int) -> Document:
    headers = _RETRY if status in (429, 503) else _CHALLENGE if status == 401 else None
    return _answer(HTTPStatus(status).phrase, {PROBLEM_TYPE: {"schema": _ref("Problem")}}, headers)


# Schemas


def _message(*, is_received: bool) -> Document:
    properties: dict[str, Document] = {
        "body": {"description": "a text; with a contentType of JSON, or without a contentType, any value"},
        "bodyBase64": {**_BYTES, "description": "instead of body: any bytes"},
        "durable": {**_TRUTH, "default": not is_received},
        "priority": _whole(PRIORITY),
        "ttl": _whole(TTL),
        "properties": {**_OBJECT, "description": "of the application"},
        "annotations": {**_OBJECT, "description": "of the message; sent ones have names that begin with x-opt-"},
    }
    for _, name, read in PROPERTIES.values():
        # Clients of other protocols send numbers with other bounds.
        properties[name] = {"type": "integer"} if is_received and isinstance(read, Whole) else _schema_of(read)
    properties |= {name: _IDENTITY for _, name, read in PROPERTIES.values() if read is identity_of}
    if is_received:
        properties |= {
            "priority": {"type": "integer"},
            "lease": {**_TEXT, "description": "names it to settle and renew"},
            "id": {**_TEXT, "description": "names it to GET .../messages?after="},
            "deliveryCount": {**_COUNT, "description": "how many attempts have failed"},
            "malformed": {**_TEXT, "description": "why it could not be read; bodyBase64 has all of it"},
        }
    return _object(properties)


def _schemas() -> Document:
    leases = {"type": "array", "items": _TEXT, "maxItems": MAX_MESSAGES}
    settlement: dict[str, Document] = {
        "leases": leases,
        "outcome": {"enum": list(OUTCOMES), "default": "accept"},
        "condition": {**_TEXT, "minLength": 1, "description": "of reject"},
        "description": {**_TEXT, "description": "of reject"},
        "failed": {**_TRUTH, "default": True, "description": "of modify"},
        "undeliverableHere": {**_TRUTH, "default": False, "description": "of modify"},
    }
    event = {name: {**_TEXT, "minLength": 1} for name in ("id", "source", "type")}
    problem: dict[str, Document] = {
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": {**_TEXT, "description": "what is wrong, what was expected, and what to do"},
        "condition": {**_TEXT, "description": "of AMQP"},
        "outcome": {"enum": ["rejected", "modified", "released"], "description": "of a message"},
        "reason": {**_TEXT, "description": "why a message was not taken"},
    }
    return {
        "Message": _message(is_received=False),
        "ReceivedMessage": _message(is_received=True),
        "Settlement": _object(settlement, "leases", is_open=True),
        "Renewal": _object({"leases": leases, "lease": _LEASE}, "leases", is_open=True),
        "Event": _object(
            {"specversion": {"const": "1.0"}, **event, "data": {}, "data_base64": _BYTES},
            *("specversion", "id", "source", "type"),
            is_open=True,
        ),
        "Problem": _object(problem, "title", "status", "detail"),
    }


# The whole


def _operation(action: str, method: str) -> Document:
    if method == "OPTIONS":
        answers = {"204": _answer("the methods", {}, _ALLOW), **_errors((action, method))}
        return {"summary": "Name the methods", "security": [], "responses": answers}
    # HEAD is GET whose answer has no body.
    key = action, "GET" if method == "HEAD" else method
    own = _OWN.get(key, {})
    query = [_parameter("query", name, own.get(name) or _QUERY[name]) for name in PARAMETERS[key]]
    answers = {str(status): answer for status, answer in _SUCCESSES[key].items()} | _errors(key)
    if method == "HEAD":
        answers = {status: {"description": HTTPStatus(int(status)).phrase} for status in answers}
    found: Document = {
        "operationId": f"{method.lower()}_{action}",
        "summary": _SUMMARIES[key],
        "parameters": query + _headers_of(key),
        "responses": answers,
    }
    if key in _BODIES:
        found["requestBody"] = {"content": _BODIES[key], "required": action in ("settle", "renew")}
    return found


def document() -> Document:
    """Return the description."""
    label = {"type": "string", "pattern": "^[A-Za-z0-9-]+$"}
    place = [
        _parameter("path", "space", label),
        _parameter("path", "namespace", label),
        _parameter("path", "address", {"type": "string", "minLength": 1}, "slashes in it may stay as they are"),
    ]
    paths = {}
    for action, methods in ACTIONS.items():
        operations = {method.lower(): _operation(action, method) for method in (*methods, "OPTIONS")}
        paths[PATH.replace("{action}", action)] = {"parameters": place, **operations}
    return {
        "openapi": "3.1.0",
        "info": {"title": "EnMasse messaging", "version": __version__},
        "servers": [{"url": "/"}],
        "paths": paths,
        "security": [{"basic": []}, {"bearer": []}, {"certificate": []}, {}],
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "a user of the space"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "a token of the space's provider"},
                "certificate": {"type": "mutualTLS", "description": "a client's certificate"},
            },
            "schemas": _schemas(),
            "responses": {
                _name_of(status): _error(status) for status in sorted(_ERRORS.union(*_MORE_ERRORS.values()))
            },
        },
    }


@cache
def description() -> bytes:
    """Return the description in JSON."""
    return json.dumps(document(), separators=(",", ":")).encode() + b"\n"
