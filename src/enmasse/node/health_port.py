"""Answers of a node's health by HTTP, and the only ones on a port for the control process."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from enmasse.net.origins import SAFE_METHODS
from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.connection import Connection
from enmasse.wire.http.handler import Handler

if TYPE_CHECKING:
    from enmasse.node.health import Answer
    from enmasse.wire.http.heads import Request


def health_answer(status: int, text: str) -> tuple[bytes, bytes]:
    """Return head and body of an answer."""
    return head(status, "text/plain; charset=utf-8"), text.encode()


class HealthHandler(Handler):
    """The handler of a connection that has one request, for the node's health.

    Args:
        now: the time in seconds.
        answer: returns the answer.
        refuse_host: returns why a request is refused for the host that it names; None if it is not.
    """

    def __init__(self, now: float, answer: Answer, refuse_host: Callable[[str | None], str | None]) -> None:
        self._answer = answer
        self._refuse_host = refuse_host
        self.engine = Connection(self, now=now, date=_date)

    def on_head(self, request: Request) -> bool:
        """Answer a request, whose body is not read."""
        self.engine.closes = True
        refusal = self._refuse_host(request.headers.get("host"))
        if refusal is not None:
            raise HttpError(403, refusal)
        if "origin" in request.headers and request.method not in SAFE_METHODS:
            raise HttpError(403, "web pages may only ask here")
        if request.path == "*":
            self.engine.answer(head(204, "", (("Allow", "GET, HEAD"),)))
            return False
        found = self._answer(request.target)
        if found is None:
            raise HttpError(404, "there is /healthz, /readyz, and WebSocket that carries AMQP")
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "GET or HEAD is expected", headers=(("Allow", "GET, HEAD"),))
        self.engine.answer(*health_answer(*found))
        return False

    def on_request(self, request: Request, body: bytes) -> None:
        """Do nothing: every request is answered by its head."""

    def on_http2(self, data: bytes) -> None:
        """Do nothing: the connection ends, as HTTP/1.1 alone is spoken here."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Do nothing: no answer has parts."""

    def on_written(self) -> None:
        """Do nothing: nothing depends on it."""

    def on_closed(self, error: Exception | None) -> None:
        """Do nothing: the connection holds nothing."""


def _date() -> bytes:
    return b"Date: %b\r\n" % formatdate(usegmt=True).encode()
