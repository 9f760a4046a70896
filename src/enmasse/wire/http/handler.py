"""The interface that ``connection.Connection`` calls with a client's requests."""

from __future__ import annotations

from typing import Any, Protocol

from enmasse.wire.http.heads import Request


class Handler(Protocol):
    """Handles a client's requests, one after the other; an ``HttpError`` that it raises becomes the answer."""

    def on_head(self, request: Request) -> bool:
        """Check a request whose head is known, before its body is read.

        Returns:
            True if the body may be read; false if the connection's ``go_on`` or ``fail`` will be called later.

        Raises:
            HttpError: the request is refused; its body is not read.
        """

    def on_request(self, request: Request, body: bytes) -> None:
        """Handle a whole request, which is answered by the connection's ``answer`` or ``fail``, now or later."""

    def on_http2(self, data: bytes) -> None:
        """Serve the client by HTTP/2 from here on, as ``data``, its first bytes, ask for that."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume writing parts of an answer."""

    def on_written(self) -> None:
        """Called when the output is being written."""

    def on_closed(self, error: Exception | None) -> None:
        """Called when the connection ends; ``error`` is the reason if the server closed it."""


class _Nobody(Handler):
    """Takes the place of the handler of a connection that has ended, which knows its engine, and hears no more."""


NOBODY: Any = _Nobody()  # type: ignore[abstract]  # nothing is read any more
