"""A runner hands requests for Spark's pages on, to a server that asks for a key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from enmasse.pipeline.running import spark_ui
from enmasse.pipeline.running.spark_ui import UiKey, UiServer
from tests.support.polling import until

waiting, go_on = threading.Semaphore(0), threading.Event()


class Spark(BaseHTTPRequestHandler):
    """A server in the place of Spark's: it says what it was asked."""

    def do_GET(self) -> None:
        if self.path == "/held":
            waiting.release()
            go_on.wait(60)
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("location", "/jobs/")
            self.end_headers()
            return
        if self.path == "/broken":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegun\r\n9\r\nand")
            return
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", "a=b")
        self.end_headers()
        self.wfile.write(json.dumps([self.path, dict(self.headers)]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def key() -> UiKey:
    return UiKey()


@pytest.fixture
def http(tmp_path: Path, key: UiKey) -> Iterator[httpx.Client]:
    spark = ThreadingHTTPServer(("127.0.0.1", 0), Spark)
    threading.Thread(target=spark.serve_forever, daemon=True).start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen(8)
    server = UiServer(listener, f"http://127.0.0.1:{spark.server_port}", key)
    transport = httpx.HTTPTransport(uds=str(tmp_path / "s"))
    with httpx.Client(transport=transport, base_url="http://runner", trust_env=False) as client:
        yield client
    server.close()
    spark.shutdown()
    spark.server_close()


def test_a_page_is_asked_for_with_the_key_and_with_nothing_of_the_client_but_what_spark_needs(
    http: httpx.Client, key: UiKey
) -> None:
    headers = {"x-forwarded-context": "/spark/t", "cookie": "session=secret", "authorization": "Bearer mine"}
    answer = http.get("/SQL/execution/?id=1&b=%2F", headers=headers)
    path, sent = answer.json()
    assert path == "/SQL/execution/?id=1&b=%2F"
    named = {name.lower(): value for name, value in sent.items()}
    assert named["authorization"] == key.proof()
    assert named["x-forwarded-context"] == "/spark/t"
    assert "cookie" not in named
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"] == "application/json"


def test_redirections_come_back_and_nothing_but_get_is_passed_on(http: httpx.Client) -> None:
    moved = http.get("/moved")
    assert (moved.status_code, moved.headers["location"]) == (302, "/jobs/")
    assert {http.request(method, "/").status_code for method in ("POST", "PUT", "DELETE", "PATCH")} == {501}


def test_an_answer_that_breaks_off_ends_ours_and_leaves_nothing_open(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[BaseException | None] = []
    monkeypatch.setattr(spark_ui._Server, "handle_error", lambda *_: ended.append(sys.exception()))
    answers: list[HTTPResponse] = []
    get = HTTPConnection.getresponse

    def kept(connection: HTTPConnection) -> HTTPResponse:
        answers.append(get(connection))
        return answers[-1]

    monkeypatch.setattr(HTTPConnection, "getresponse", kept)
    assert http.get("/broken").status_code == 200
    assert ended == []
    (answer,) = answers
    until(answer.isclosed)


def test_the_proof_is_signed_with_the_key_that_spark_is_told(key: UiKey) -> None:
    (secret,) = key.settings().values()
    head, body, signature = key.proof().removeprefix("Bearer ").split(".")
    expected = hmac.digest(base64.urlsafe_b64decode(secret), f"{head}.{body}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64encode(expected).rstrip(b"=").decode() == signature
    assert UiKey().proof() != key.proof()


def test_who_comes_when_all_threads_answer_others_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(spark_ui, "MAX_AT_ONCE", 2)
    http: httpx.Client = request.getfixturevalue("http")
    go_on.clear()
    answers: list[int] = []
    others = [threading.Thread(target=lambda: answers.append(http.get("/held").status_code)) for _ in range(2)]
    for other in others:
        other.start()
    try:
        assert all(waiting.acquire(timeout=30) for _ in others)
        threads = threading.active_count()
        assert [http.get("/").status_code for _ in range(5)] == [503] * 5
        assert threading.active_count() == threads
    finally:
        go_on.set()
        for other in others:
            other.join()
    assert answers == [200, 200]
    until(lambda: http.get("/").status_code == 200)
