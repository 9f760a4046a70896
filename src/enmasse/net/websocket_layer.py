"""AMQP over WebSocket, on any transport.

What is carried is a stream of bytes: how a peer cuts it into messages and fragments means nothing. Text is
refused; pings are answered; no extension is spoken, as AMQP's own bytes hardly shrink.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable
from urllib.parse import urlsplit

from websockets.exceptions import InvalidOrigin, NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from enmasse.net.layer import Layer

__all__ = ["SUBPROTOCOL", "WebSocketLayer"]

SUBPROTOCOL = Subprotocol("amqp")

MAX_FRAGMENT_BYTES = 1 << 20
"""A fragment is held whole before it is heard. Clients send AMQP frames of 64 KiB or less, each by itself."""

CHUNK_BYTES = 32 << 10
"""Some clients take messages of no more than 64 KiB."""

_quiet = logging.getLogger("enmasse.net.websocket")
_quiet.setLevel(logging.WARNING)


class WebSocketLayer(Layer, asyncio.Protocol):
    """One WebSocket on the server's side.

    Call ``begin`` once it is connected.

    Args:
        upper: who hears of the loss of the connection, should the handshake fail.
        origins: where web pages may come from, beside this machine; ``*`` is from everywhere.
    """

    __slots__ = ("_is_over", "_protocol")

    def __init__(self, upper: asyncio.Protocol, origins: Collection[str] = ()) -> None:
        super().__init__(upper)
        self._protocol: Protocol = _Protocol(origins)
        self._is_over = False

    def begin(self, request: bytes, make_upper: Callable[[], asyncio.Protocol]) -> None:
        """Answer a request.

        Args:
            request: its bytes.
            make_upper: makes what is carried, if the request is accepted.
        """
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        # What follows the head is of the WebSocket, and means nothing before there is one.
        head, end, rest = request.partition(b"\r\n\r\n")
        protocol.receive_data(head + end)
        events = protocol.events_received()
        if not events:
            self._is_over = True
            self._put_out()
            self.lower.close()
            return
        response = protocol.accept(events[0])  # type: ignore[arg-type]  # the first event is the request
        protocol.send_response(response)
        self._put_out()
        if protocol.state is not OPEN:
            self._is_over = True
            self.lower.close()
            return
        self.upper = make_upper()
        self.raise_upper()
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        """Unpack what has come."""
        self._protocol.receive_data(data)
        self._hear(self._protocol.events_received())

    def _hear(self, events: Iterable[object]) -> None:
        chunks: list[bytes] = []
        for event in events:
            if isinstance(event, Frame):
                if event.opcode in (Opcode.BINARY, Opcode.CONT):
                    chunks.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP is sent in binary messages")
                    break
        self._put_out()
        if chunks and not self._is_over:
            self.upper.data_received(b"".join(chunks))

    def _put_out(self) -> None:
        """Write what the protocol has to say; an empty chunk is its farewell."""
        chunks = self._protocol.data_to_send()
        if chunks:
            data = b"".join(chunks)
            if data:
                self.lower.write(data)
            if not chunks[-1]:
                self._is_over = True
                self.lower.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, in messages of moderate size."""
        protocol = self._protocol
        if protocol.state is not OPEN:
            return
        if len(data) <= CHUNK_BYTES:
            protocol.send_binary(data)
        else:
            view = memoryview(data)
            for at in range(0, len(data), CHUNK_BYTES):
                protocol.send_binary(view[at : at + CHUNK_BYTES])
        self._put_out()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several chunks."""
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        """Tell whether the connection is closed or about to be."""
        return self._is_over or self._protocol.state is not OPEN or self.lower.is_closing()

    def close(self) -> None:
        """Say farewell; the socket is closed when the peer has answered."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._put_out()
        elif self._is_over:
            self.lower.close()


class _Protocol(ServerProtocol):
    """The library's protocol, with our rule for origins."""

    def __init__(self, origins: Collection[str]) -> None:
        super().__init__(
            origins=None,
            subprotocols=[SUBPROTOCOL],
            select_subprotocol=_select,
            max_size=(None, MAX_FRAGMENT_BYTES),
            logger=_quiet,
        )
        self._allowed = origins

    def process_origin(self, headers: object) -> Origin | None:
        """Refuse web pages of strangers: a browser would lend them its place in the network."""
        origin = super().process_origin(headers)  # type: ignore[arg-type]
        if origin is None or "*" in self._allowed or origin in self._allowed or _is_of_this_machine(origin):
            return origin
        raise InvalidOrigin(origin)


def _select(_: ServerProtocol, offered: Iterable[str]) -> Subprotocol | None:
    """Choose ``amqp``; the handshake fails without it."""
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    raise NegotiationError("the sub-protocol 'amqp' is expected")


def _is_of_this_machine(origin: str) -> bool:
    host = urlsplit(origin).hostname
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
