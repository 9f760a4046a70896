"""Carries clients' protocols over WebSocket, on any transport; the sub-protocol selects one.

The content is a stream of bytes: how a peer cuts it into messages and fragments has no meaning. Text is refused
unless the protocol takes it; pings are answered; extensions are not supported, as AMQP's bytes hardly compress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from websockets.exceptions import InvalidOrigin, NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from enmasse.net.layer import Layer
from enmasse.net.origins import SECURITY_HEADERS, is_loopback_name, page_host_of

if TYPE_CHECKING:
    from enmasse.net.first_bytes import ProtocolSignature


MAX_FRAGMENT_BYTES = 1 << 20
"""The largest fragment, as it is held whole. Clients send AMQP frames of 64 KiB or less, each by itself."""

CHUNK_BYTES = 32 << 10
"""The largest message that is sent, as some clients take no more than 64 KiB."""

_quiet = logging.getLogger("enmasse.net.websocket")
_quiet.setLevel(logging.WARNING)


class WebSocketLayer(Layer, asyncio.Protocol):
    """One WebSocket on the server's side.

    Call ``begin`` once it is connected.

    Args:
        upper: the protocol whose ``connection_lost`` is called if the handshake fails.
        carried: the protocols that it may carry, by sub-protocol.
        origins: origins of web pages that may connect, beside those of this machine; ``*`` is all.
    """

    __slots__ = ("_carried", "_is_over", "_protocol", "_signature")
    _signature: ProtocolSignature

    def __init__(
        self, upper: asyncio.Protocol, carried: Mapping[str, ProtocolSignature], origins: Collection[str] = ()
    ) -> None:
        super().__init__(upper)
        self._carried = carried
        self._protocol: Protocol = _Protocol(tuple(carried), origins)
        self._is_over = False

    def begin(self, request: bytes, make_upper: Callable[[ProtocolSignature], asyncio.Protocol]) -> None:
        """Answer a request.

        Args:
            request: the bytes of the request.
            make_upper: makes the carried protocol, if the request is accepted.
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
        for name, value in SECURITY_HEADERS:
            response.headers[name] = value
        protocol.send_response(response)
        self._put_out()
        if protocol.state is not OPEN:
            self._is_over = True
            self.lower.close()
            return
        self._signature = self._carried[str(protocol.subprotocol)]
        self.upper = make_upper(self._signature)
        self.raise_upper()
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        """Unpack received bytes."""
        self._protocol.receive_data(data)
        self._handle(self._protocol.events_received())

    def _handle(self, events: Iterable[object]) -> None:
        chunks: list[bytes] = []
        for event in events:
            if isinstance(event, Frame):
                if event.opcode is Opcode.TEXT and not self._signature.takes_text:
                    reason = f"{self._signature.name.upper()} is sent in binary messages"
                    self._protocol.fail(CloseCode.UNSUPPORTED_DATA, reason)
                    break
                if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    chunks.append(bytes(event.data))
        self._put_out()
        if chunks and not self._is_over:
            self.upper.data_received(b"".join(chunks))

    def _put_out(self) -> None:
        """Write the protocol's output; an empty chunk asks to close the socket."""
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
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several chunks, in one write."""
        protocol = self._protocol
        if protocol.state is not OPEN:
            return
        for data in list_of_data:
            if len(data) <= CHUNK_BYTES:
                protocol.send_binary(data)
            else:
                view = memoryview(data)
                for at in range(0, len(data), CHUNK_BYTES):
                    protocol.send_binary(view[at : at + CHUNK_BYTES])
        self._put_out()

    def is_closing(self) -> bool:
        """Return true if the connection is closed or about to be."""
        return self._is_over or self._protocol.state is not OPEN or self.lower.is_closing()

    def close(self) -> None:
        """Send a close frame; the socket is closed when the peer has answered."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._put_out()
        elif self._is_over:
            self.lower.close()


class _Protocol(ServerProtocol):
    """The library's protocol, with a rule of its own for origins.

    Args:
        expected: sub-protocols, one of which has to be offered.
        origins: where web pages may come from.
    """

    def __init__(self, expected: Collection[str], origins: Collection[str]) -> None:
        super().__init__(
            origins=None,
            subprotocols=[Subprotocol(name) for name in expected],
            max_size=(None, MAX_FRAGMENT_BYTES),
            logger=_quiet,
        )
        self._allowed = origins

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Return the first sub-protocol offered that the port knows; without one the handshake fails."""
        known = self.available_subprotocols or ()
        for name in subprotocols:
            if name in known:
                return name
        raise NegotiationError(f"the sub-protocol {' or '.join(map(repr, known))} is expected")

    def process_origin(self, headers: object) -> Origin | None:
        """Refuse web pages of other origins, which would use the browser's place in the network."""
        origin = super().process_origin(headers)  # type: ignore[arg-type]
        if origin is None or "*" in self._allowed or origin in self._allowed or _is_of_this_machine(origin):
            return origin
        raise InvalidOrigin(origin)


def _is_of_this_machine(origin: str) -> bool:
    host = page_host_of(origin)
    return host is not None and is_loopback_name(host[0])
