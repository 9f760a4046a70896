"""HTTP on a port of other protocols: short answers, and the upgrade to WebSocket.

A connection has one request; it is closed with the answer, unless the request asks for WebSocket. What asks for
neither that nor the node's health is of the protocol that answers HTTP, if the port has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, cast

from enmasse.net.origins import SAFE_METHODS
from enmasse.wire.http.answers import HttpError, head
from enmasse.wire.http.heads import MAX_HEAD_BYTES, read_head

if TYPE_CHECKING:
    from enmasse.net.connection_limiter import Slot
    from enmasse.net.first_bytes import ProtocolSignature
    from enmasse.wire.http.heads import Request


Answer = Callable[[str], tuple[int, str] | None]
"""Returns status and text for a request's target; None if there is nothing."""

RefuseHost = Callable[[str | None, asyncio.Transport], str | None]
"""Returns why a request is refused for the host that it names; None if it is not: see ``origins.host_refusal``."""

_HEAD_END = b"\r\n\r\n"


class WebProtocol(asyncio.Protocol):
    """One connection whose first bytes are HTTP.

    Args:
        slot: the connection's slot.
        answer: returns the answer to a request.
        refuse_host: checks the host that a request names.
        carried: the protocols that WebSocket may carry, by sub-protocol.
        make_upper: makes a carried protocol.
        origins: origins of web pages that may open a WebSocket, beside those of this machine.
        make_other: makes the protocol of all other requests; without it they are answered here.
    """

    def __init__(
        self,
        slot: Slot,
        answer: Answer,
        refuse_host: RefuseHost,
        carried: Mapping[str, ProtocolSignature],
        make_upper: Callable[[ProtocolSignature], asyncio.Protocol],
        origins: Collection[str],
        make_other: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self._slot = slot
        self._answer = answer
        self._refuse_host = refuse_host
        self._carried = carried
        self._make_upper = make_upper
        self._origins = origins
        self._make_other = make_other
        self._given = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read the request."""
        if self._transport.is_closing():
            return
        self._given += data
        start, end, _ = self._given[:MAX_HEAD_BYTES].partition(_HEAD_END)
        if end:
            try:
                request, _ = read_head(start + end)
            except HttpError as error:
                self._refuse(error)
            else:
                self._serve(request)
        elif b"\n\n" in start:
            self._respond(400, "the lines of a head end with CR and LF\n")
        elif len(start) == MAX_HEAD_BYTES:
            self._refuse(HttpError(431, f"its head has more than {MAX_HEAD_BYTES} bytes"))

    def _refuse(self, error: HttpError) -> None:
        """Answer what is no request, or have the protocol of all other requests do so."""
        if not self._hand_over():
            self._respond(error.status, f"this is no request that is understood here: {error}\n")

    def _serve(self, request: Request) -> None:
        headers = request.headers
        # A host in the target would take the place of Host [RFC 9112 3.2.2]: that is for those who read it.
        is_websocket = headers.get("upgrade", "").lower() == "websocket" and self._given.startswith(b"GET /")
        target = f"{request.path}?{request.query}" if request.query else request.path
        found = None if is_websocket else self._answer(target)
        if found is None and not is_websocket and self._hand_over():
            return
        refusal = self._refuse_host(headers.get("host"), self._transport)
        if refusal is not None:
            self._respond(403, f"{refusal}\n")
        elif is_websocket:
            self._upgrade()
        elif "origin" in headers and request.method not in SAFE_METHODS:
            self._respond(403, "web pages may only ask here\n")
        elif found is None:
            self._respond(
                404, f"there is /healthz, /readyz, and WebSocket with the sub-protocol {' or '.join(self._carried)}\n"
            )
        elif request.method not in ("GET", "HEAD"):
            self._respond(405, "GET or HEAD is expected\n", (("Allow", "GET, HEAD"),))
        else:
            self._respond(*found)

    def _upgrade(self) -> None:
        # Its library takes time to load, and requests for health do not need it.
        from enmasse.net.websocket_layer import WebSocketLayer  # noqa: PLC0415

        layer = WebSocketLayer(self, self._carried, self._origins)
        given, self._given = self._given, b""
        self._transport.set_protocol(layer)
        layer.connection_made(self._transport)
        layer.begin(given, self._make_upper)

    def _hand_over(self) -> bool:
        """Give the connection to the protocol of all other requests, with what has come; false if there is none."""
        if self._make_other is None:
            return False
        other, given, self._given = self._make_other(), self._given, b""
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(given)
        return True

    def _respond(self, status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> None:
        """Send an answer and close."""
        body = text.encode()
        start = head(
            status, "text/plain; charset=utf-8", (("Content-Length", str(len(body))), ("Connection", "close"), *more)
        )
        self._transport.write(start + b"\r\n" + (b"" if self._given.startswith(b"HEAD ") else body))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back."""
        self._slot.leave()
