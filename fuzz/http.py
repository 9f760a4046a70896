"""Targets of HTTP: a connection, whole and in pieces, which must mean the same; and a node behind one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from enmasse.node.http.connection import HttpConnection
from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import IDLE_TIMEOUT_S, LINGER_S, Connection
from enmasse.wire.http.heads import Request
from enmasse.wire.http.trace import Splitter, describe, mask, shorten
from fuzz.engines import cut, headed
from fuzz.node import World, converse
from fuzz.target import BrokenBoundError, Target, held_bytes, is_measured

__all__ = ["HTTP_NODE_TARGET", "HTTP_TARGET", "REQUESTS", "mutate_requests"]

HELD_AT_ALL = 64 << 10
HELD_PER_BYTE = 100

_PATH = b"/v1/spaces/space.fuzz/addresses/"


def _request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((line + b" HTTP/1.1", b"Host: here", *headers)) + b"\r\n\r\n" + body


REQUESTS = (
    b"",
    _request(b"POST " + _PATH + b"queue/messages", b"Content-Length: 4", b"X-Ttl: 5", b"X-Subject: s", body=b"text"),
    _request(b"POST " + _PATH + b"any/messages?wait=0", b"Content-Length: 0", b'X-Properties: {"a": 1}'),
    _request(b"POST " + _PATH + b"topic%2Fbelow/messages", b"Content-Length: 1", b"X-Opt-Retain: true", body=b"x"),
    _request(
        b"POST " + _PATH + b"stream/messages",
        b"Content-Type: application/x-ndjson",
        b"Transfer-Encoding: chunked",
        body=b'f\r\n{"body": "abc"}\r\n0\r\n\r\n',
    ),
    _request(b"POST " + _PATH + b"queue/messages", b"Authorization: Basic YTpi", b"Expect: 100-continue",
             b"Content-Length: 4", body=b"text"),
    _request(b"POST " + _PATH + b"queue/receive?max=2&lease=1", b"Content-Length: 0"),
    _request(b"POST " + _PATH + b"queue/receive?auto=true", b"Content-Length: 0"),
    _request(b"POST " + _PATH + b"queue/settle", b"Content-Length: 16", body=b'{"leases": ["a"]}'[:16]),
    _request(b"POST " + _PATH + b"any/request?wait=0", b"Content-Length: 1", b"ce-specversion: 1.0", body=b"x"),
    _request(b"GET " + _PATH + b"stream/messages?offset=0"),
    _request(b"GET " + _PATH + b"queue/events?max=1"),
    _request(b"POST " + _PATH + b"queue/messages", b"Idempotency-Key: k", b"Content-Length: 1", body=b"x"),
    _request(b"OPTIONS " + _PATH + b"queue/messages", b"Origin: http://evil.example"),
    _request(b"HEAD /healthz"),
    _request(b"GET http://here/"),
    b"POST " + _PATH + b"all/messages HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\r\n\r\n",
)  # fmt: skip
"""Words of a conversation."""

_PIECES = (
    b"\r\n", b"\n", b"\0", b":", b" ", b"%", b"0\r\n\r\n", b"\r\n ", b"Content-Length: 3\r\n", b"chunked",
    b"1\r\na\r\n", b"HTTP/1.1", b"\xff", b"X-Property-A: b\r\n",
)  # fmt: skip


def mutate_requests(data: bytes, most: int, chance: Random) -> bytes:
    """An input with requests added, taken away or changed."""
    first, rest = data[:1] or b"\0", data[1:]
    parts = [part + b"\r\n" for part in rest.split(b"\r\n")]
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(parts) + 1)
        match chance.randrange(5):
            case 0:
                parts.insert(at, chance.choice(REQUESTS))
            case 1 if at < len(parts):
                del parts[at]
            case 2 if at < len(parts):
                place = chance.randrange(len(parts[at]) + 1)
                parts[at] = parts[at][:place] + chance.choice(_PIECES) + parts[at][place:]
            case 3 if at < len(parts):
                place = chance.randrange(len(parts[at]) + 1)
                parts[at] = parts[at][:place] + parts[at][place + chance.randint(1, 4) :]
            case _:
                first = bytes((chance.randrange(256),))
    return (first + b"".join(parts))[:most]


class Application:
    """Notes what is asked; every fifth is refused."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.is_closed = False
        self.engine = Connection(self, now=0.0, date=lambda: b"Date: now\r\n")

    def on_head(self, request: Request) -> bool:
        self.heard.append((request.method, request.path, request.query, tuple(request.headers.items())))
        if len(self.heard) % 5 == 4:
            raise HttpError(403, "not today")
        return True

    def on_request(self, request: Request, body: bytes) -> None:
        self.heard.append((body,))
        self.engine.answer(head(200), b"yes")

    def on_http2(self, data: bytes) -> None: ...

    def on_blocked(self, is_blocked: bool) -> None: ...

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_closed, "an end that is told twice"
        self.is_closed = True


def check_answers(said: bytes, splitter: Splitter) -> list[bytes]:
    """The answers of an engine, which must be some; those that only give leave to go on are left out."""
    frames = splitter.feed(said)
    assert not splitter.is_lost, "what is no answer"
    for frame in frames:
        assert describe(mask(shorten(frame, 10)))
    return [frame.partition(b"\r\n")[0] for frame in frames if not frame.startswith(b"HTTP/1.1 100 ")]


def run_http(data: bytes) -> None:
    """However a stream is cut, it means the same; little is held, and the end is in order."""
    if not data:
        return
    results = []
    for pieces in sorted({0, data[0] & 7 or 1}):
        application = Application()
        engine = application.engine
        fed = 0
        for piece in cut(pieces, data[1:]):
            engine.receive(piece, 0.0)
            fed += len(piece)
        said = b"".join(engine.pending_output())
        if is_measured():
            held = held_bytes(engine, application)
            if held > HELD_AT_ALL + HELD_PER_BYTE * fed:
                raise BrokenBoundError(f"an engine holds {held} bytes after {fed} bytes of input")
        engine.handle_deadline(LINGER_S)
        engine.handle_deadline(IDLE_TIMEOUT_S)
        engine.lost()
        assert engine.closed
        assert engine.next_deadline() is None
        assert application.is_closed
        results.append((application.heard, check_answers(said, Splitter())))
    assert results[0] == results[-1], f"cut, a stream means something else: {results!r:.2000}"


def _seeds() -> Sequence[bytes]:
    return headed(REQUESTS, 0, 9)


def run_http_node(data: bytes) -> None:
    """A client may say anything: no address is at fault, and nothing stays behind when it is gone."""
    if data:
        splitter = Splitter()
        check = lambda engine: check_answers(b"".join(engine.pending_output()), splitter)  # noqa: E731
        converse(World(HttpConnection, check), data, REQUESTS[1])


HTTP_TARGET = Target("http", run_http, _seeds, 2048, mutate_requests)
HTTP_NODE_TARGET = Target("http-node", run_http_node, _seeds, 2048, mutate_requests)
