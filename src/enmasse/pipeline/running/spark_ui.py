"""Spark's pages of a session, served on a socket that the host has made.

Spark itself serves them on a port of the loopback interface. There they answer only to who knows a key, which this
process makes anew each time: a port is open to others where the runner has no network of its own.

Only what is read gets through. What the pages say is the tenant's: the API decides how a browser may take them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import secrets
import socket
import socketserver
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlsplit

MAX_AT_ONCE: Final = 64
"""Threads that answer: a page brings some ten files, and several people may look. Others are told to come again."""
ANSWER_S: Final = 30.0
_PART: Final = 1 << 16
_FILTER: Final = "org.apache.spark.ui.JWSFilter"
_PASSED_ON: Final = ("accept", "x-forwarded-context")
_ANSWERED: Final = ("content-type", "location")
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

UI_SETTINGS: Final = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.filters": _FILTER,
    "spark.ui.killEnabled": "false",
    # It would start another Java beside this one.
    "spark.ui.heapHistogramEnabled": "false",
    # The heap is small; each of a thousand, as is the default, holds some kilobytes.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "10000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.sql.streaming.ui.retainedQueries": "50",
}
"""The settings of a session whose pages are shown."""


class UiKey:
    """The key that Spark's pages ask for."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def settings(self) -> dict[str, str]:
        """Return the settings that tell Spark; secret."""
        return {f"spark.{_FILTER}.param.secretKey": base64.urlsafe_b64encode(self._key).decode()}

    def proof(self) -> str:
        """Return the header ``Authorization`` of who knows it: a signed JSON Web Token [RFC 7515]."""
        signed = b".".join(map(_part, (b'{"alg":"HS256"}', b'{"sub":"enmasse"}')))
        return f"Bearer {(signed + b'.' + _part(hmac.digest(self._key, signed, hashlib.sha256))).decode()}"


def _part(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


class UiServer:
    """Answers requests for Spark's pages.

    Args:
        listener: the socket at which requests come in.
        url: the url of Spark's own server.
        key: the key that it asks for.
    """

    def __init__(self, listener: socket.socket, url: str, key: UiKey) -> None:
        self._server = _Server(listener, urlsplit(url).netloc, key.proof())
        threading.Thread(target=self._server.serve_forever, name="spark pages", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, place: str, proof: str) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.place, self.proof = place, proof
        self._room = threading.Semaphore(MAX_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if there is room for one."""
        if not self._room.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(_FULL)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it, in that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        """Wait no longer for a client than for Spark."""
        self.request.settimeout(ANSWER_S)
        super().setup()

    def do_GET(self) -> None:  # Python's name
        """Pass a request on, and its answer back."""
        place = self.server.place
        # An answer that breaks off ends ours, as a client does that goes away.
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection(place, timeout=ANSWER_S)) as connection,
        ):
            try:
                given = {name: value for name in _PASSED_ON if (value := self.headers.get(name))}
                connection.request("GET", self.path, headers={**given, "authorization": self.server.proof})
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException, ValueError):
                self.send_error(502)
                return
            with answer:
                self.send_response_only(answer.status)
                for name in _ANSWERED:
                    if value := answer.getheader(name):
                        self.send_header(name, value)
                self.end_headers()
                while part := answer.read(_PART):
                    self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Log nothing: what is asked for is no business of the log's."""
