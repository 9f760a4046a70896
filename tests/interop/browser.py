"""A real browser, without a window, that opens a page and reports what a client in it did."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.foreign_tools import require

__all__ = ["Site", "browse"]

PATIENCE_S = 60.0

PAGE = """<!doctype html>%s<script>
const tell = (report) => fetch("/report", {method: "POST", body: JSON.stringify(report)});
window.onerror = (message) => tell({received: [], errors: [String(message)]});
window.onunhandledrejection = (event) => tell({received: [], errors: [String(event.reason)]});
fetch("/asked").then((answer) => answer.json()).then((asked) => %s);
</script>"""


class Site(ThreadingHTTPServer):
    """Serves a page and its scripts, and takes the page's report; a context manager.

    Args:
        scripts: the files that the page loads, in this order, by name.
        start: what the page does: JavaScript that knows ``asked`` and calls ``tell`` with a report.

    Attributes:
        asked: what the page is to do.
        reports: what it reported.
    """

    asked: Any

    def __init__(self, scripts: Mapping[str, Path], start: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reports: Queue[dict[str, Any]] = Queue()
        tags = "".join(f'<script src="/{name}"></script>' for name in scripts)
        self.files = {"/": ("text/html", (PAGE % (tags, start)).encode())}
        self.files |= {f"/{name}": ("text/javascript", path.read_bytes()) for name, path in scripts.items()}
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join(10)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
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


def fingerprint(tls: Path) -> str:
    """By which a browser is told to trust one key."""
    key = x509.load_pem_x509_certificate((tls / "default.crt").read_bytes()).public_key()
    return base64.b64encode(
        sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    ).decode()


def browse(
    pages: Site,
    profile: Path,
    tls: Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    is_last: Callable[[dict[str, Any]], bool] = lambda _report: True,
) -> dict[str, Any]:
    """Have a browser open the page, and return what the page reports.

    The browser does not keep pages from this machine and its network by itself, as not all browsers do.

    Args:
        pages: where the page is, and what takes its report.
        profile: a directory of the browser's own.
        tls: where the certificate is that it is to trust.
        host: by which name it opens the page; names below ``example`` and ``enmasse.local`` are here, too.
        port: where it opens it; None: at the site itself.
        is_last: called with each report; true ends it.
    """
    require("chromium")
    log = profile.parent / "browser.log"
    trusts = [f"--ignore-certificate-errors-spki-list={fingerprint(tls)}"] if tls is not None else []
    with log.open("wb") as errors:
        browser = subprocess.Popen(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}", *trusts,
                "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
                "--host-resolver-rules=MAP *.example 127.0.0.1, MAP *.enmasse.local 127.0.0.1",
                f"http://{host}:{port or pages.server_address[1]}/",
            ],
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        return next(filter(is_last, iter(lambda: pages.reports.get(timeout=PATIENCE_S), None)))
    except Empty:
        raise AssertionError(log.read_text()) from None
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait(60)
