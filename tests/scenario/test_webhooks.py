"""Webhooks at a real HTTP server: what is taken, tried again and given up, and who is not reached."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import ssl
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import Message, connect
from enmasse.control.webhooks.request import key_of, signature
from enmasse.drivers.authority import Authority
from tests.scenario.howto_page import play
from tests.support.installation import Installation
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "Bearer of-the-receiver"
SECRET = f"""
apiVersion: v1
kind: Secret
metadata: {{name: signing}}
stringData: {{key: {KEY}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: proof}}
stringData: {{Authorization: {TOKEN}}}
"""


class Listener:
    """A server that answers as it is told, and notes what it was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.answers: list[tuple[int, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers = outer.answers.pop(0) if outer.answers else (204, {})
                outer.asked.put(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            # A handshake that fails is the handler's, and not the end of the server.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def heard(self) -> tuple[dict[str, str], bytes]:
        return self.asked.get(timeout=60)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = Installation(tmp_path_factory.mktemp("webhooks") / "d")
    found.start("--no-pipelines", "--webhook-network", "127.0.0.1/32")
    try:
        found.ok("create", "space", "shop", "--wait", "60")
        found.ok("create", "address", "missed", "--type", "deadletter", "--space", "shop", "--wait", "60")
        found.ok("apply", "-f", "-", stdin=SECRET)
        yield found
    finally:
        code = found.stop() if found.is_running else 0
    assert code == 0


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


@pytest.fixture
def hook(place: Installation, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Makes a queue of the test's own, and a webhook that pushes it somewhere."""
    name = f"q{abs(hash(request.node.name)) % 10**9}"

    def make(url: str, **spec: Any) -> str:
        queue = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Address",
            "metadata": {"name": f"shop.{name}"},
            "spec": {
                "address": name,
                "type": "queue",
                "deadletter": "missed",
                "messageRedelivery": {"rejectPolicy": "deadletter"},
            },
        }
        place.ok("apply", "-f", "-", stdin=json.dumps(queue))
        document = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Webhook",
            "metadata": {"name": f"shop.{name}"},
            "spec": {"address": name, "url": url, "retry": {"delay": "50ms"}} | spec,
        }
        place.ok("apply", "-f", "-", stdin=json.dumps(document))
        place.ok("wait", "webhook", f"shop.{name}", "--timeout", "60")
        return name

    yield make
    place.ok("delete", "webhook", f"shop.{name}", "--ignore-not-found")


def send(place: Installation, address: str, *messages: Message) -> None:
    with connect(place.url("amqp"), hostname="shop.default") as connection:
        sender = connection.sender(address)
        for message in messages:
            message.durable = True
            sender.send(message)


def seen(place: Installation, name: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(place.ok("get", "webhook", f"shop.{name}", "-o", "json"))["status"]
    return status


def test_a_message_is_posted_signed_and_taken(
    place: Installation, hook: Callable[..., str], listener: Listener
) -> None:
    name = hook(
        f"http://127.0.0.1:{listener.port}/x?y=1",
        signingSecret="signing",
        headersSecret="proof",
        headers={"X-Shop": "corner"},
    )
    send(place, name, Message(b"two loaves", message_id="m-1", subject="bought", properties={"region": "north"}))
    headers, body = listener.heard()
    assert body == b"two loaves"
    said = ("webhook-id", "x-subject", "x-property-region", "x-shop", "x-address", "authorization", "host")
    expected = ["m-1", "bought", "north", "corner", name, TOKEN, f"127.0.0.1:{listener.port}"]
    assert [headers[key] for key in said] == expected
    at = int(headers["webhook-timestamp"])
    assert abs(at - time.time()) < 300
    assert headers["webhook-signature"] == signature(key_of(KEY.encode()), "m-1", at, body)
    until(lambda: seen(place, name).get("delivered") == 1)
    # What is secret is nowhere to be seen.
    told = place.ok("get", "webhook", f"shop.{name}", "-o", "yaml") + place.log.read_text()
    assert KEY not in told
    assert TOKEN not in told


def test_what_is_not_taken_comes_again_and_what_never_will_be_is_a_dead_letter(
    place: Installation, hook: Callable[..., str], listener: Listener
) -> None:
    name = hook(f"http://127.0.0.1:{listener.port}/", concurrency=1)
    listener.answers = [(503, {"retry-after": "0"}), (302, {"location": "http://169.254.169.254/"}), (204, {})]
    send(place, name, Message("first", message_id="m-2"))
    counts = [listener.heard()[0]["x-delivery-count"] for _ in range(3)]
    assert counts == ["0", "1", "2"]
    listener.answers = [(410, {})]
    send(place, name, Message("withdrawn", message_id="m-3"))
    with connect(place.url("amqp"), hostname="shop.default") as connection:
        delivery = connection.receiver("missed").receive(timeout=60)
        assert delivery is not None
        assert delivery.message.message_id == "m-3"
        delivery.accept()
    until(lambda: (seen(place, name)["delivered"], seen(place, name)["rejected"]) == (1, 1))
    status = seen(place, name)
    assert status["failed"] == 3
    assert status["lastError"].startswith("410")


def test_nothing_is_lost_when_control_and_node_are_killed(
    place: Installation, hook: Callable[..., str], listener: Listener
) -> None:
    name = hook(f"http://127.0.0.1:{listener.port}/")
    listener.answers = [(500, {})] * 8
    send(place, name, *(Message(f"{number}", message_id=f"k-{number}") for number in range(20)))
    listener.heard()
    for kind in ("control", "node"):
        os.kill(place.pid(kind), signal.SIGKILL)
        place.ok("status", "--wait", "150")
    ids: set[str] = set()
    while len(ids) < 20:
        ids.add(listener.heard()[0]["webhook-id"])
    assert ids == {f"k-{number}" for number in range(20)}


def test_a_host_proves_its_name_by_an_authority_that_is_trusted(
    place: Installation, hook: Callable[..., str], tmp_path: Path
) -> None:
    ours = Authority(tmp_path / "ours")
    ours.keep_server_certificate("right", ["localhost"], tmp_path)
    ours.keep_server_certificate("wrong", ["elsewhere.example"], tmp_path)
    past = Authority(tmp_path / "ours", datetime.now(UTC) - timedelta(days=2000))
    past.keep_server_certificate("expired", ["localhost"], tmp_path)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ours"}}
    place.ok("apply", "-f", "-", stdin=json.dumps(secret | {"stringData": {"ca.crt": ours.path.read_text()}}))

    def context(name: str) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        return found

    listener = Listener(context("right"))
    with closing(listener):
        name = hook(f"https://localhost:{listener.port}/", caSecret="ours")
        send(place, name, Message(b"sealed", message_id="tls"))
        assert listener.heard()[1] == b"sealed"
    for case, tls, why in (
        ({"caSecret": "ours"}, context("wrong"), "Hostname mismatch"),
        ({"caSecret": "ours"}, context("expired"), "expired"),
        ({}, context("right"), "self-signed certificate in certificate chain|unable to get local issuer"),
    ):
        listener = Listener(tls)
        with closing(listener):
            hook(f"https://localhost:{listener.port}/", **case)
            send(place, name, Message(b"sealed"))
            found = until(
                lambda why=why: re.search(why, seen(place, name).get("lastError") or ""),  # type: ignore[misc]
                lambda: seen(place, name),
            )
            assert found
            assert listener.asked.empty()


def test_a_message_without_an_id_has_the_same_one_at_each_attempt_also_after_the_node_died(
    place: Installation, hook: Callable[..., str], listener: Listener
) -> None:
    name = hook(f"http://127.0.0.1:{listener.port}/", concurrency=1)
    listener.answers = [(503, {})] * 1000
    send(place, name, Message(b"same"), Message(b"same"))
    first = {listener.heard()[0]["webhook-id"] for _ in range(4)}
    os.kill(place.pid("node"), signal.SIGKILL)
    place.ok("status", "--wait", "150")
    listener.answers = []
    taken: list[str] = []
    until(lambda: seen(place, name).get("delivered") == 2, lambda: seen(place, name))
    while not listener.asked.empty():
        taken.append(listener.heard()[0]["webhook-id"])
    assert len(set(taken)) == 2
    assert first <= set(taken)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.2:1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:1/", "http://0:1/"]
)
def test_inner_hosts_are_not_reached(place: Installation, hook: Callable[..., str], url: str) -> None:
    name = hook(url)
    send(place, name, Message("x"))
    until(lambda: "not public" in (seen(place, name).get("lastError") or ""), lambda: seen(place, name))


def test_what_a_webhook_waits_for_is_said(place: Installation) -> None:
    place.ok("create", "address", "news", "--type", "topic", "--space", "shop", "--wait", "60")
    for name, key in (("empty", "whsec_"), ("short", "s3cret")):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"key": key}}
        place.ok("apply", "-f", "-", stdin=json.dumps(secret))
    for name, spec, reason in (
        ("nothing", {"address": "nothing"}, "AddressMissing"),
        ("topic", {"address": "news"}, "WrongAddress"),
        ("secret", {"address": "missed", "signingSecret": "none"}, "SecretMissing"),
        ("empty", {"address": "missed", "signingSecret": "empty"}, "SecretUnusable"),
        ("short", {"address": "missed", "signingSecret": "short"}, "SecretUnusable"),
    ):
        document = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Webhook",
            "metadata": {"name": f"shop.{name}"},
            "spec": {"url": "https://example.com/"} | spec,
        }
        place.ok("apply", "-f", "-", stdin=json.dumps(document))

        def ready(name: str = name) -> str:
            return next((it["reason"] for it in seen(place, name).get("conditions", []) if it["type"] == "Ready"), "")

        until(lambda reason=reason, ready=ready: ready() == reason)  # type: ignore[misc]
        place.ok("delete", "webhook", f"shop.{name}")


def test_every_command_does_what_the_howto_says(place: Installation, tmp_path: Path) -> None:
    play("webhooks.md", place, tmp_path)
