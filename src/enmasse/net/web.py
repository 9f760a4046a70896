"""HTTP on a port of other protocols: short answers, and the way to WebSocket.

Each connection has one request. It is answered and closed, unless it asks for WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import h11

if TYPE_CHECKING:
    from enmasse.net.door import Ticket

__all__ = ["Answer", "WebProtocol"]

Answer = Callable[[str], tuple[int, str] | None]
"""Gives status and text for a request's target, None if there is nothing."""

MAX_HEAD_BYTES = 16 << 10
"""Browsers send a few KiB of headers at most."""


class WebProtocol(asyncio.Protocol):
    """One connection whose first bytes are HTTP.

    Args:
        ticket: its place.
        answer: what is answered.
        make_upper: makes what a WebSocket carries.
        origins: where web pages may come from that open a WebSocket, beside this machine.
    """

    def __init__(
        self,
        ticket: Ticket,
        answer: Answer,
        make_upper: Callable[[], asyncio.Protocol],
        origins: Collection[str],
    ) -> None:
        self._ticket = ticket
        self._answer = answer
        self._make_upper = make_upper
        self._origins = origins
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._given = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the request."""
        if self._transport.is_closing():
            return
        self._given += data
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._say(error.error_status_hint, f"this is no request that is understood here: {error}\n")
            return
        if isinstance(event, h11.Request):
            self._serve(event)

    def _serve(self, request: h11.Request) -> None:
        headers = {name.lower(): value.lower() for name, value in request.headers}
        if headers.get(b"upgrade") == b"websocket" and request.method == b"GET":
            # Its library takes time to load, and who asks for health asks for no more.
            from enmasse.net.websocket_layer import WebSocketLayer  # noqa: PLC0415

            layer = WebSocketLayer(self, self._origins)
            given, self._given = self._given, b""
            self._transport.set_protocol(layer)
            layer.connection_made(self._transport)
            layer.begin(given, self._make_upper)
            return
        found = self._answer(request.target.decode("ascii", "replace"))
        if found is None:
            self._say(404, "there is /healthz, /readyz, and WebSocket with the sub-protocol amqp\n")
        elif request.method not in (b"GET", b"HEAD"):
            self._say(405, "GET or HEAD is expected\n", (("Allow", "GET, HEAD"),))
        else:
            self._say(*found)

    def _say(self, status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> None:
        """Answer and close."""
        body = text.encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *more,
        ]
        response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        # What HEAD asks for has no body, and the library sees to that.
        said = [response, *([] if self._is_head() else [h11.Data(data=body)]), h11.EndOfMessage()]
        self._transport.write(b"".join(self._http.send(event) or b"" for event in said))
        self._transport.close()

    def _is_head(self) -> bool:
        return self._given.startswith(b"HEAD ")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._ticket.leave()
