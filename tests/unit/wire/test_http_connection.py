"""The server's end of HTTP/1.1: what is understood, what is refused, and in which order it is answered."""

from __future__ import annotations

import json

import pytest

from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import (
    BODY_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    LINGER_S,
    PIPELINED_BYTES,
    Connection,
)
from enmasse.wire.http.heads import MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES, Request

OK = head(200, "text/plain")


class Client:
    """A client, and a handler that answers at once unless it is told to wait."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.refuses: HttpError | None = None
        self.is_slow = False
        self.admits = True
        self.is_gone = False
        self.engine = Connection(self, now=0.0, date=lambda: b"Date: now\r\n")

    def on_head(self, request: Request) -> bool:
        if self.refuses is not None:
            raise self.refuses
        return self.admits

    def on_request(self, request: Request, body: bytes) -> None:
        self.seen.append((request.method, request.path, body))
        if not self.is_slow:
            self.engine.answer(OK, request.path.encode())

    def on_http2(self, data: bytes) -> None:
        raise AssertionError("nobody asks for HTTP/2 here")

    def on_blocked(self, is_blocked: bool) -> None: ...

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_gone
        self.is_gone = True

    def say(self, data: bytes, now: float = 0.0) -> bytes:
        self.engine.receive(data, now)
        while self.engine.has_more:
            self.engine.receive(b"", now)
        return self.told()

    def told(self) -> bytes:
        return b"".join(self.engine.pending_output())

    def status(self, data: bytes, now: float = 0.0) -> int:
        """The status of the only answer, whose body tells it, too."""
        answer = self.say(data, now)
        start, _, body = answer.partition(b"\r\n\r\n")
        assert b"application/problem+json" in start, answer
        assert b"X-Content-Type-Options: nosniff" in start
        problem = json.loads(body)
        assert int(start.split()[1]) == problem["status"]
        assert problem["detail"]
        return int(problem["status"])


def post(path: str, body: bytes = b"", *more: bytes) -> bytes:
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: here", b"Content-Length: %d" % len(body), *more]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def bodies(answers: bytes) -> list[str]:
    return [part.rpartition(b"\r\n\r\n")[2].decode() for part in answers.split(b"HTTP/1.1 200 OK\r\n")[1:]]


def test_requests_that_are_pipelined_are_answered_in_their_order() -> None:
    client = Client()
    data = post("/1", b"one") + b"\r\n" + post("/2", b"two") + b"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n"
    assert bodies(client.say(data)) == ["/1", "/2", "/3"]
    assert client.seen == [("POST", "/1", b"one"), ("POST", "/2", b"two"), ("GET", "/3", b"")]
    assert client.engine.is_idle
    assert not client.engine.closed


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_request_means_the_same_however_it_is_cut(size: int) -> None:
    client = Client()
    chunked = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = (
        post("/1", b"one") + chunked + b"4\r\n\r\n\r\n\r\n2;x=y\r\nab\r\n0\r\nTrailer: t\r\n\r\n" + post("/1", b"2")
    )
    told = b"".join(client.say(data[at : at + size]) for at in range(0, len(data), size))
    assert bodies(told) == ["/1", "/c", "/1"]
    assert [body for _, _, body in client.seen] == [b"one", b"\r\n\r\nab", b"2"]


def test_a_request_waits_until_the_one_before_is_answered() -> None:
    client = Client()
    client.is_slow = True
    assert client.say(post("/1") + post("/2")) == b""
    assert len(client.seen) == 1
    client.engine.answer(OK, b"late")
    assert bodies(client.say(b"")) == ["late"]
    assert len(client.seen) == 2
    client.say(bytes(PIPELINED_BYTES + 1))
    assert client.engine.is_held, "who sends on and on is not read"


SMUGGLED = {
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n": 501,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n": 400,
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nX: a\nContent-Length: 4\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\n\r\n": 400,
    b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"POST here HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"nonsense\r\n\r\n": 400,
    b"POST / HTTP/2.0\r\nHost: a\r\n\r\n": 505,
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n": 501,
    b"POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n": 417,
}


@pytest.mark.parametrize("data", SMUGGLED)
def test_what_two_readers_could_understand_differently_is_refused(data: bytes) -> None:
    client = Client()
    assert client.status(data + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n") == SMUGGLED[data]
    assert client.seen == []
    assert client.say(post("/")) == b"", "nothing is answered after that"
    client.engine.handle_deadline(LINGER_S)
    assert client.engine.closed
    assert client.is_gone


@pytest.mark.parametrize(
    "chunks", [b"x\r\n", b"-1\r\n", b"0x1\r\na\r\n", b"2\r\nabc\r\n", b"1\na\r\n", b"f" * 17 + b"\r\n"]
)
def test_bad_chunks_are_refused(chunks: bytes) -> None:
    client = Client()
    assert client.status(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) == 400
    assert client.seen == []


def test_a_head_whose_lines_end_otherwise_is_refused_at_once() -> None:
    told = Client().say(b"GET / HTTP/1.1\nHost: a\n\n")
    assert told.startswith(b"HTTP/1.1 400 "), "it never ends as a head does, so nothing else is waited for"
    assert b"CR and LF" in told


def test_everything_has_a_bound() -> None:
    start = b"POST / HTTP/1.1\r\nHost: a\r\n"
    assert Client().status(b"POST /" + b"x" * (MAX_TARGET_BYTES + 100)) == 414
    assert Client().status(b"POST /" + b"x" * MAX_TARGET_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n") == 414
    assert Client().status(start + b"X: " + b"x" * MAX_HEAD_BYTES) == 431
    assert Client().status(start + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\nof a body\n\n") == 431
    assert Client().status(start + b"X: y\r\n" * MAX_HEADERS + b"\r\n") == 431
    assert Client().status(start + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)) == 413
    chunked = Client()
    chunked.say(start + b"Transfer-Encoding: chunked\r\n\r\n")
    assert chunked.status(b"%x\r\n" % (MAX_BODY_BYTES + 1) + bytes(MAX_BODY_BYTES + 1)) == 413
    wasteful = Client()
    wasteful.say(start + b"Transfer-Encoding: chunked\r\n\r\n")
    assert wasteful.status((b"1;" + b"x" * 1_000 + b"\r\na\r\n") * 100) == 400
    full = Client()
    full.engine.more_room = lambda size: size == 0
    assert full.status(start + b"Content-Length: 9000\r\n\r\n" + bytes(8000)) == 503


def test_who_is_slow_is_not_waited_for() -> None:
    client = Client()
    client.say(b"POST / HT")
    client.engine.handle_deadline(HEAD_TIMEOUT_S - 1)
    assert not client.told()
    client.engine.handle_deadline(HEAD_TIMEOUT_S)
    assert client.status(b"") == 408
    client = Client()
    client.say(post("/", b"whole body")[:-5])
    client.engine.handle_deadline(BODY_TIMEOUT_S + 1)
    assert client.status(b"", BODY_TIMEOUT_S + 1) == 408
    client = Client()
    client.say(post("/"), 1.0)
    client.engine.handle_deadline(IDLE_TIMEOUT_S + 1)
    assert client.engine.closed
    assert not client.told(), "nothing was asked"


def test_a_client_that_waits_for_leave_to_send_gets_it_or_the_reason() -> None:
    data = post("/", b"body", b"Expect: 100-continue")
    client = Client()
    assert client.say(data[:-4]) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert bodies(client.say(data[-4:])) == ["/"]
    client.refuses = HttpError(403, "not you")
    answer = client.say(data[:-4])
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"Connection: close" in answer
    assert client.say(b"body") == b""


def test_a_refusal_of_a_whole_request_keeps_the_connection() -> None:
    client = Client()
    client.refuses = HttpError(404, "nothing")
    assert client.say(post("/", b"body")).startswith(b"HTTP/1.1 404")
    client.refuses = None
    assert bodies(client.say(post("/1", b"body"))) == ["/1"]


def test_a_head_may_be_judged_later() -> None:
    client = Client()
    client.admits = False
    assert client.say(post("/1", b"body") + post("/2")) == b""
    assert client.seen == []
    client.admits = True
    client.engine.go_on()
    assert bodies(client.say(b"")) == ["/1", "/2"]


def test_connections_end_as_the_client_says() -> None:
    client = Client()
    assert b"Connection: close" in client.say(post("/", b"", b"Connection: close"))
    assert client.engine.closed
    client = Client()
    assert b"Connection: close" in client.say(b"GET / HTTP/1.0\r\n\r\n")
    client = Client()
    assert b"Connection: keep-alive" in client.say(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert not client.engine.closed
    answer = client.say(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length" not in answer


def test_an_answer_may_come_in_parts() -> None:
    client = Client()
    client.is_slow = True
    client.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.engine.begin_stream(head(200, "text/event-stream"))
    client.engine.put_part(b"hello")
    client.engine.end_stream()
    start, _, parts = client.told().partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in start
    assert parts == b"5\r\nhello\r\n0\r\n\r\n"
    client.is_slow = False
    assert bodies(client.say(post("/next"))) == ["/next"]


def test_no_header_of_an_answer_can_be_made_two() -> None:
    made = head(200, "", (("X-Subject", "a\r\nSet-Cookie: b"),))
    assert b"\r\nSet-Cookie" not in made


def test_white_space_may_stand_before_the_extension_of_a_chunk() -> None:
    client = Client()
    client.say(b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2 ;a=b\r\nhi\r\n0\r\n\r\n")
    assert client.seen == [("POST", "/a", b"hi")]


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nHost: x\n", b"GET / HTTP/1.1\rH"])
def test_a_bare_line_end_is_refused_at_once(begun: bytes) -> None:
    for size in (1, len(begun)):
        client, said = Client(), b""
        for at in range(0, len(begun), size):
            said += client.say(begun[at : at + size])
        assert said.startswith(b"HTTP/1.1 400 ")


def test_who_says_nothing_more_hears_the_answers_to_whole_requests() -> None:
    client = Client()
    client.is_slow = True
    client.engine.hears_out = lambda: True
    client.say(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c HTT")
    assert client.engine.end_input()
    client.engine.answer(OK, b"a")
    assert client.say(b"").endswith(b"a")
    assert [path for _, path, _ in client.seen] == ["/a", "/b"]
    client.engine.answer(OK, b"b")
    assert client.say(b"").endswith(b"b")
    assert client.engine.closed, "what is not whole never will be"
    assert client.is_gone


def test_who_says_nothing_more_before_a_body_is_whole_is_gone() -> None:
    client = Client()
    client.engine.hears_out = lambda: True
    client.say(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    assert not client.engine.end_input()
