"""Sending by HTTP: one message, or several in a batch, and their outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from enmasse.message.sections import data_start
from enmasse.message.types import ULong
from enmasse.messaging.log.sequences import SEQUENCE_ANNOTATION
from enmasse.node.http import documents
from enmasse.node.http.cloudevents import BATCH_TYPE, EVENT_TYPE, from_headers, read_batch, read_event
from enmasse.node.http.links import Post
from enmasse.node.http.messages import HttpParts, to_sections
from enmasse.node.http.routes import Route, check_query, seconds, unknown_parameters
from enmasse.node.http.values import read_json
from enmasse.wire.http.answers import HttpError, head, problem

if TYPE_CHECKING:
    from enmasse.node.http.connection import HttpConnection
    from enmasse.node.http.links import Sender
    from enmasse.wire.http.heads import Request


LINES_TYPE: Final = "application/x-ndjson"

MAX_BATCH: Final = 1_000
"""The most messages of a batch: more of them are sent quicker as several batches."""

MAX_WAIT_S: Final = 60.0
"""The longest that a request waits; proxies give up soon after."""

WAIT_S: Final = 1.0
"""The time that a message waits for a receiver or for room if its request says nothing."""

_OUTCOME: Final = b'{"outcome": "accepted"}\n'
_ACCEPTED: Final = {status: head(status, "application/json") for status in (200, 202)}


class _Single:
    """The way in which messages of requests with the same head are sent.

    Args:
        route: the route of the requests.
        headers: the headers of the requests.
        said: the properties that the query says.
    """

    __slots__ = ("_start", "_start_size", "head", "key", "wait_s")

    def __init__(self, route: Route, headers: Mapping[str, str], said: Mapping[str, str]) -> None:
        self.wait_s = _wait_of(route)
        self.key = headers.get("idempotency-key", "")
        parts = _parts(headers, said)
        from_headers(parts, headers)
        if self.key:
            parts.annotations[SEQUENCE_ANNOTATION] = ULong(_number_of(self.key))
        self.head = parts.encode_head()
        self._start = b""
        self._start_size = -1

    def payload(self, body: bytes) -> bytes:
        """Return the message with a body."""
        size = len(body)
        if size != self._start_size:
            self._start_size = size
            self._start = self.head + data_start(size)
        return self._start + body


def _parts(headers: Mapping[str, str], said: Mapping[str, str]) -> HttpParts:
    """Return the parts of a message before its body; headers count before what the query says."""
    parts = to_sections(headers)
    parts.properties = {**said, **parts.properties}
    return parts


def _query_properties(connection: HttpConnection, route: Route) -> Mapping[str, str]:
    """Return the properties that a query says, of which there are some only where the space takes them.

    Raises:
        HttpError: there is a parameter that nobody knows.
    """
    if connection.open_space.takes_query_properties:
        return unknown_parameters(route, "POST")
    check_query(route, "POST")
    return {}


def _wait_of(route: Route) -> float:
    return seconds(route.query, "wait", WAIT_S, MAX_WAIT_S)


def _number_of(key: str) -> int:
    """Return the number of a message with an idempotency key; it spreads over the partitions of a stream."""
    return int.from_bytes(sha256(key.encode("latin-1", "replace")).digest()[:4], "big")


def post_messages(connection: HttpConnection, request: Request, body: bytes) -> None:
    """Send what a request brings, and answer it with the outcome.

    Raises:
        HttpError: it is not sent.
    """
    route: Route = request.route
    single = route.made
    if single is None:
        said = _query_properties(connection, route)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in (LINES_TYPE, BATCH_TYPE):
            _post_batch(connection, request, body, said, is_events=kind == BATCH_TYPE)
            return
        if kind == EVENT_TYPE:
            _post_event(connection, request, body, said)
            return
        single = _Single(route, request.headers, said)
        if not said:
            # What the query says counts as long as the space takes it.
            route.made = single
    sender = connection.sender(route.address, single.key)
    payload = single.payload(body)
    if len(payload) > sender.most_bytes:
        sender.check(len(payload))
    connection.begin(_Sending(connection, sender, payload, single.wait_s))


def _post_event(connection: HttpConnection, request: Request, body: bytes, said: Mapping[str, str]) -> None:
    """Send an event in structured mode."""
    route: Route = request.route
    wait_s, key = _wait_of(route), request.headers.get("idempotency-key", "")
    parts = _parts(request.headers, said)
    data = read_event(read_json(body, "an event"), parts)
    if key:
        parts.annotations[SEQUENCE_ANNOTATION] = ULong(_number_of(key))
    payload = parts.encode(data)
    sender = connection.sender(route.address, key)
    sender.check(len(payload))
    connection.begin(_Sending(connection, sender, payload, wait_s))


class _Sending:
    """A request with one message."""

    __slots__ = ("_connection", "_payload", "_post", "_sender", "_wait_s")

    def __init__(self, connection: HttpConnection, sender: Sender, payload: bytes, wait_s: float) -> None:
        self._connection = connection
        self._sender = sender
        self._payload = payload
        self._wait_s = wait_s
        self._post: Post | None = None
        """The message, until it is done or given up: it knows this request."""

    def start(self) -> None:
        """Send the message."""
        self._post = post = Post(self._payload, self._wait_s, self._done)
        self._sender.send(post)

    def _done(self, error: HttpError | None) -> None:
        self._post = None
        self._sender.finish()
        if error is None:
            self._connection.finish(_ACCEPTED[self._sender.status], _OUTCOME)
        else:
            self._connection.finish_with(error)

    def cancel(self) -> None:
        """Leave the message unsent, if it is: the client is gone."""
        post, self._post = self._post, None
        if post is not None:
            post.is_given_up = True
        self._sender.forget_given_up()


def _post_batch(
    connection: HttpConnection, request: Request, body: bytes, said: Mapping[str, str], *, is_events: bool
) -> None:
    """Send a batch, and answer it with a line for each message."""
    route: Route = request.route
    wait_s, key = _wait_of(route), request.headers.get("idempotency-key", "")
    items: Sequence[Any] = read_batch(body) if is_events else [line for line in body.split(b"\n") if line.strip()]
    if is_events and not items:
        connection.finish(head(200, LINES_TYPE))  # it is a batch [CloudEvents JSON 4.1]
        return
    if not items:
        raise HttpError(400, "a batch has a message in each line, and this one has none")
    if len(items) > MAX_BATCH:
        raise HttpError(413, f"a batch has up to {MAX_BATCH} messages: send more of them in several")
    sender = connection.sender(route.address, key)
    first = _number_of(key)
    payloads: list[bytes | HttpError] = []
    for at, item in enumerate(items):
        numbered = {SEQUENCE_ANNOTATION: ULong(first + at)} if key else {}
        try:
            payload = _event(item, numbered, said) if is_events else documents.to_sections(item, numbered, said)
            sender.check(len(payload))
            payloads.append(payload)
        except HttpError as error:
            payloads.append(error)
    connection.begin(Batch(connection, sender, payloads, wait_s))


def _event(document: Any, annotations: Mapping[str, Any], properties: Mapping[str, str]) -> bytes:
    parts = HttpParts()
    parts.properties |= properties
    data = read_event(document, parts)
    parts.annotations |= annotations
    return parts.encode(data)


class Batch:
    """A request with several messages, each with an outcome of its own.

    Args:
        connection: the client's.
        sender: takes the messages.
        payloads: the messages; an error in the place of one that is none.
        wait_s: the seconds for which each may wait for credit.
    """

    __slots__ = ("_connection", "_left", "_outcomes", "_payloads", "_posts", "_sender", "_wait_s")

    def __init__(
        self, connection: HttpConnection, sender: Sender, payloads: list[bytes | HttpError], wait_s: float
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._payloads = payloads
        self._wait_s = wait_s
        self._posts: list[Post] = []
        self._outcomes: list[dict[str, Any]] = [{}] * len(payloads)
        self._left = len(payloads)

    def start(self) -> None:
        """Send the messages."""
        payloads, self._payloads = self._payloads, []
        for at, payload in enumerate(payloads):
            if isinstance(payload, HttpError):
                self._done(at, payload)
                continue
            post = Post(payload, self._wait_s, lambda error, at=at: self._done(at, error))  # type: ignore[misc]
            self._posts.append(post)
            if self._sender.is_detach_sent:
                self._done(at, HttpError(410, f"{self._sender.target!r:.200} was deleted", "amqp:resource-deleted"))
            else:
                self._sender.send(post)

    def _done(self, at: int, error: HttpError | None) -> None:
        if error is None:
            self._outcomes[at] = {"status": self._sender.status, "outcome": "accepted"}
        else:
            self._outcomes[at] = problem(error)
        self._left -= 1
        if not self._left:
            # They know this request.
            self._posts.clear()
            self._sender.finish()
            lines = b"".join(json.dumps(outcome).encode() + b"\n" for outcome in self._outcomes)
            self._connection.finish(head(200, LINES_TYPE), lines)

    def cancel(self) -> None:
        """Leave unsent what is: the client is gone."""
        for post in self._posts:
            post.is_given_up = True
        self._posts.clear()
        self._sender.forget_given_up()
