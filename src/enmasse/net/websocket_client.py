"""The client's side of AMQP over WebSocket: the request, its answer, and then the same as the server's side."""

from __future__ import annotations

import asyncio
import logging

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from enmasse.errors import EnmasseError
from enmasse.net.first_bytes import ProtocolSignature
from enmasse.net.layer import Layer
from enmasse.net.websocket_layer import WebSocketLayer

SUBPROTOCOL = Subprotocol("amqp")

_AMQP = ProtocolSignature("amqp", (b"AMQP",), subprotocols=(SUBPROTOCOL,))

MAX_FRAGMENT_BYTES = 16 << 20
"""The largest fragment, as it is held whole; servers send whole AMQP frames, which may be as large."""

_quiet = logging.getLogger("enmasse.net.websocket")


class WebSocketClientLayer(WebSocketLayer):
    """One WebSocket on the client's side; the handshake begins when it is connected.

    Args:
        upper: the carried protocol, connected once the handshake is done.
        uri: ``ws://host:port/path``, or ``wss://`` on a transport with TLS.

    Attributes:
        opened: a future, done when the upper protocol is connected; it fails with the reason otherwise.
    """

    __slots__ = ("_is_answered", "_request", "opened")

    def __init__(self, upper: asyncio.Protocol, uri: str) -> None:
        Layer.__init__(self, upper)
        self._signature = _AMQP
        self._request = ClientProtocol(
            parse_uri(uri), subprotocols=[SUBPROTOCOL], max_size=(None, MAX_FRAGMENT_BYTES), logger=_quiet
        )
        self._protocol = self._request
        self._is_over = False
        self._is_answered = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request for a WebSocket."""
        super().connection_made(transport)
        self._request.send_request(self._request.connect())
        self._put_out()

    def data_received(self, data: bytes) -> None:
        """Unpack received bytes; before that, read the answer to the request."""
        if self._is_up:
            super().data_received(data)
            return
        self._is_answered = True
        protocol = self._request
        protocol.receive_data(data)
        events = protocol.events_received()
        if protocol.handshake_exc is not None:
            self._fail(protocol.handshake_exc)
        elif protocol.state is OPEN and not self._is_up:
            if protocol.subprotocol != SUBPROTOCOL:
                self._fail(InvalidHandshake("the server chose no sub-protocol"))
                return
            self.raise_upper()
            if not self.opened.done():
                self.opened.set_result(None)
            self._handle(events[1:])

    def _fail(self, error: Exception) -> None:
        self._is_over = True
        if not self.opened.done():
            refused = WebSocketRefusedError(_explain(error))
            refused.__cause__ = error
            self.opened.set_exception(refused)
            self.opened.exception()
        self.lower.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the loss of the connection to the upper protocol, or fail ``opened``."""
        if self._is_up:
            super().connection_lost(exc)
        elif not self.opened.done():
            self._request.receive_eof()
            if self._is_answered and self._request.handshake_exc is not None:
                self._fail(self._request.handshake_exc)
            else:
                self.opened.set_exception(exc or ConnectionResetError("the server hung up"))
                self.opened.exception()


class WebSocketRefusedError(EnmasseError):
    """Raised when the server refuses the WebSocket; the message has the reason."""


def _explain(error: BaseException) -> str:
    if isinstance(error, InvalidStatus):
        return f"it answered with HTTP {error.response.status_code}: is that the path of its WebSocket?"
    return f"it gave us no WebSocket for AMQP: {error}"
