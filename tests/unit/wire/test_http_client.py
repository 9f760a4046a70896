"""The client's end of HTTP/1.1, against the server's: each request and each answer arrive as they were given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.http.answers import head
from enmasse.wire.http.client import ClientConnection
from enmasse.wire.http.connection import Connection
from enmasse.wire.http.heads import MAX_HEAD_BYTES, Request

START = head(200, "text/plain", (("X-More", "1"),))


class Reader:
    """Keeps the answers."""

    def __init__(self) -> None:
        self.heads: list[tuple[bytes, int | None]] = []
        self.body = b""
        self.ends = 0
        self.has_ended = False

    def on_answer(self, start: bytes, length: int | None) -> None:
        self.heads.append((start, length))

    def on_answer_part(self, data: bytes) -> None:
        self.body += data

    def on_answer_end(self) -> None:
        self.ends += 1

    def on_ended(self) -> None:
        assert not self.has_ended
        self.has_ended = True


class Server:
    """A handler that keeps requests; tests answer them."""

    def __init__(self) -> None:
        self.seen: list[tuple[Request, bytes]] = []
        self.engine = Connection(self, now=0.0, date=lambda: b"Date: now\r\n")

    def on_head(self, request: Request) -> bool:
        return True

    def on_request(self, request: Request, body: bytes) -> None:
        self.seen.append((request, body))

    def on_http2(self, data: bytes) -> None:
        raise AssertionError("nobody asks for HTTP/2 here")

    def on_blocked(self, is_blocked: bool) -> None: ...

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None: ...


class Pair:
    """A client and a server without sockets."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.client = ClientConnection(self.reader)
        self.server = Server()

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[Request, bytes]:
        request = Request(method, target, {"host": "here", **headers}, is_http_10=False)
        self.client.ask(request, body)
        self.server.engine.receive(b"".join(self.client.pending_output()), 0.0)
        return self.server.seen[-1]

    def answer(self, size: int = 1 << 20) -> None:
        data = b"".join(self.server.engine.pending_output())
        for at in range(0, len(data), size):
            self.client.receive(data[at : at + size], 0.0)


@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "DELETE"]),
    asked=st.binary(max_size=300),
    parts=st.lists(st.binary(min_size=1, max_size=200), max_size=5),
    form=st.sampled_from(["whole", "chunks", "length"]),
    size=st.integers(1, 400),
)
def test_requests_and_answers_arrive_as_they_were_given(
    method: str, asked: bytes, parts: list[bytes], form: str, size: int
) -> None:
    pair = Pair()
    for number in (1, 2):
        request, body = pair.ask(method, "/a?b=c", asked, accept="x", connection="close", expect="100-continue")
        assert (request.method, request.target, body) == (method, "/a?b=c", asked)
        assert request.headers.keys() - {"content-length"} == {"host", "accept"}
        engine, whole = pair.server.engine, b"".join(parts)
        length = {"whole": len(whole), "chunks": None, "length": len(whole)}[form]
        if form == "whole":
            engine.answer(START, whole)
        elif engine.begin_stream(START, length):
            for part in parts:
                engine.put_part(part)
            engine.end_stream()
        pair.answer(size)
        if method == "HEAD":
            whole, length = b"", 0
        assert pair.reader.heads[-1] == (START, length)
        assert (pair.reader.body, pair.reader.ends) == (whole, number)
        assert not pair.client.is_asked
        assert not pair.client.closed
        pair.reader.body = b""


def test_a_connection_that_ends_is_told_once() -> None:
    pair = Pair()
    pair.ask("GET", "/")
    pair.client.lost()
    pair.client.lost()
    assert pair.reader.has_ended
    assert pair.client.closed
    assert not pair.client.is_asked


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"SSH-2.0\r\n\r\n", id="no-http"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + bytes(MAX_HEAD_BYTES).replace(b"\0", b"a"), id="long-head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no-chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", id="unasked"),
    ],
)
def test_what_is_no_answer_ends_the_connection(said: bytes) -> None:
    pair = Pair()
    pair.ask("GET", "/")
    pair.client.receive(said, 0.0)
    assert pair.client.closed
    assert pair.reader.has_ended


def test_nothing_is_read_that_was_not_asked_for() -> None:
    client: Any = ClientConnection(reader := Reader())
    client.receive(START, 0.0)
    assert client.closed
    assert reader.heads == []


def test_an_answer_waits_in_the_socket_while_it_cannot_be_passed_on() -> None:
    client = ClientConnection(Reader())
    woken: list[Any] = []
    client.wake = woken.append
    client.hold(True)
    held = [client.is_held]
    client.hold(False)
    assert [*held, client.is_held] == [True, False]
    assert len(woken) == 2
