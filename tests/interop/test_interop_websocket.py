"""AMQP over WebSocket with rhea, in Node.js and in a real browser."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enmasse.engines.authority import Authority
from enmasse.testing.node_process import NodeProcess
from tests.foreign_tools import require
from tests.interop.conftest import HERE, TOOLS, Addresses

pytestmark = pytest.mark.slow

COUNT = 50
LARGE = 300_000
WHOLE = ["small", LARGE, *(f"message {number}" for number in range(COUNT))]
BROWSER = "chromium"

PAGE = """<!doctype html><script src="/rhea.js"></script><script src="/play.js"></script><script>
const tell = (report) => fetch("/report", {method: "POST", body: JSON.stringify(report)});
window.onerror = (message) => tell({received: [], errors: [String(message)]});
window.onunhandledrejection = (event) => tell({received: [], errors: [String(event.reason)]});
fetch("/asked").then((answer) => answer.json()).then((asked) => play(rheaUmd, WebSocket, asked, tell));
</script>"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Path]]:
    """A node with TLS, and where its certificates are."""
    tls = tmp_path_factory.mktemp("tls")
    Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1"))
    with NodeProcess(tmp_path_factory.mktemp("node"), "--tls", str(tls)) as process:
        addresses = Addresses(process)
        addresses.make_space()
        for number in range(4):
            addresses.declare("queue", f"web-{number}")
        addresses.close()
        yield process, tls
        assert "Traceback" not in process.log, process.log


def check(report: dict[str, Any]) -> None:
    assert report["received"] == WHOLE, report["errors"]
    assert report["outcomes"] == ["accepted"] * len(WHOLE)
    assert report["errors"] == []


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_rhea_in_node_sends_and_receives(secure: tuple[NodeProcess, Path], scheme: str) -> None:
    require("rhea")
    node, tls = secure
    asked = {
        "url": f"{scheme}://localhost:{node.port}",
        "address": "web-0" if scheme == "ws" else "web-1",
        "count": COUNT,
        "large": LARGE,
    }
    done = subprocess.run(
        ["node", str(HERE / "rhea_websocket.js"), json.dumps(asked)],
        env={
            **os.environ,
            "NODE_PATH": str(TOOLS / "node_modules"),
            "NODE_EXTRA_CA_CERTS": str(tls / "authority" / "ca.crt"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}{done.stdout}"
    check(json.loads(done.stdout))


class Site(ThreadingHTTPServer):
    """Serves the page, and takes its report."""

    asked: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reports: Queue[dict[str, Any]] = Queue()
        self.files = {
            "/": ("text/html", PAGE.encode()),
            "/rhea.js": ("text/javascript", (TOOLS / "node_modules" / "rhea" / "dist" / "rhea-umd.js").read_bytes()),
            "/play.js": ("text/javascript", (HERE / "rhea_websocket.js").read_bytes()),
        }


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.path == "/asked":
            self._answer(200, "application/json", json.dumps(self.server.asked).encode())
        elif self.path in self.server.files:
            self._answer(200, *self.server.files[self.path])
        else:
            self._answer(404, "text/plain", b"")

    def do_POST(self) -> None:
        self.server.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(200, "text/plain", b"")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def pages() -> Iterator[Site]:
    require("rhea")
    with Site() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join(10)


def fingerprint(tls: Path) -> str:
    """By which a browser is told to trust one key."""
    key = x509.load_pem_x509_certificate((tls / "default.crt").read_bytes()).public_key()
    return base64.b64encode(
        sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    ).decode()


def browse(pages: Site, tls: Path, profile: Path, host: str = "127.0.0.1") -> dict[str, Any]:
    """Have a browser open the page, and return what the page reports."""
    require("chromium")
    log = profile.parent / "browser.log"
    with log.open("wb") as errors:
        browser = subprocess.Popen(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                f"--ignore-certificate-errors-spki-list={fingerprint(tls)}",
                "--host-resolver-rules=MAP shop.example 127.0.0.1",
                f"http://{host}:{pages.server_address[1]}/",
            ],
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        return pages.reports.get(timeout=20)
    except Empty:
        raise AssertionError(log.read_text()) from None
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait(20)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_rhea_in_a_browser_sends_and_receives(
    secure: tuple[NodeProcess, Path], pages: Site, tmp_path: Path, scheme: str
) -> None:
    node, tls = secure
    pages.asked = {
        "url": f"{scheme}://localhost:{node.port}",
        "address": "web-2" if scheme == "ws" else "web-3",
        "count": COUNT,
        "large": LARGE,
    }
    check(browse(pages, tls, tmp_path / "profile"))


def test_a_strangers_page_is_refused_by_its_origin(
    secure: tuple[NodeProcess, Path], pages: Site, tmp_path: Path
) -> None:
    node, tls = secure
    pages.asked = {"url": f"ws://localhost:{node.port}", "address": "web-2", "count": 1, "large": 1}
    report = browse(pages, tls, tmp_path / "profile", "shop.example")
    assert report["received"] == []
    assert report["errors"]
