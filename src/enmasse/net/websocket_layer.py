"""Carries clients' protocols over WebSocket, on any transport; the sub-protocol selects one, or the first bytes do.

The content is a stream of bytes: how a peer cuts it into messages and fragments has no meaning. Text is refused
unless the protocol takes it; pings are answered; extensions are not supported, as AMQP's bytes hardly compress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from websockets.datastructures import Headers
from websockets.exceptions import InvalidOrigin, NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from enmasse.net.first_bytes import ProtocolSignature, recognise
from enmasse.net.layer import Layer
from enmasse.net.origins import SECURITY_HEADERS, is_loopback_name, page_host_of
from enmasse.wire.http.answers import HttpError, answer_of
from enmasse.wire.http.heads import read_head

if TYPE_CHECKING:
    from enmasse.net.origins import RefuseHost


VERSION = "13"
"""The version of WebSocket that is spoken, which each refusal names [RFC 6455 4.4]."""

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
        refuse_host: checks the host that a request names.
        origins: origins of web pages that may connect, beside those of this machine; ``*`` is all.
    """

    __slots__ = (
        "_carried", "_first", "_is_over", "_make_upper", "_origins", "_protocol", "_refuse_host", "_signature",
    )  # fmt: skip
    _make_upper: Callable[[ProtocolSignature], asyncio.Protocol]

    def __init__(
        self,
        upper: asyncio.Protocol,
        carried: Mapping[str, ProtocolSignature],
        refuse_host: RefuseHost,
        origins: Collection[str] = (),
    ) -> None:
        super().__init__(upper)
        self._carried = carried
        self._refuse_host = refuse_host
        self._origins = origins
        self._protocol = Protocol(SERVER, state=OPEN, max_size=(None, MAX_FRAGMENT_BYTES), logger=_quiet)
        self._is_over = False
        self._signature: ProtocolSignature | None = None
        self._first = b""
        """What has come for a protocol that is not known yet."""

    def begin(self, request: bytes, make_upper: Callable[[ProtocolSignature], asyncio.Protocol]) -> None:
        """Answer a request.

        Args:
            request: the bytes of the request.
            make_upper: makes the carried protocol, if the request is accepted.
        """
        # What follows the head is of the WebSocket, and means nothing before there is one.
        head, end, rest = request.partition(b"\r\n\r\n")
        handshake = _Handshake(tuple(self._carried), self._origins)
        try:
            response = handshake.accept(self._read(head + end))
        except HttpError as error:
            self._is_over = True
            start, body = answer_of(error)
            self.lower.write(b"%bContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (start, len(body), body))
            self.lower.close()
            return
        for name, value in SECURITY_HEADERS:
            response.headers[name] = value
        if handshake.handshake_exc is not None:
            response.headers["Sec-WebSocket-Version"] = VERSION
        self.lower.write(response.serialize())
        if handshake.handshake_exc is not None:
            self._is_over = True
            self.lower.close()
            return
        self._make_upper = make_upper
        if handshake.subprotocol is not None:
            self._carry(self._carried[handshake.subprotocol])
        if rest:
            self.data_received(rest)

    def _carry(self, signature: ProtocolSignature) -> None:
        self._signature = signature
        self.upper = self._make_upper(signature)
        self.raise_upper()

    def _recognise(self, data: bytes) -> bytes:
        """Return what is for the protocol, which is known by its first bytes: nothing before that."""
        self._first += data
        among = tuple(self._carried.values())
        signature = recognise(self._first, among, among[0])
        if signature is None:
            return b""
        first, self._first = self._first, b""
        self._carry(signature)
        return first

    def _read(self, head: bytes) -> Request:
        """Return a request as its library has it.

        Raises:
            HttpError: it is no such request, or names a host that is not served.
        """
        request, _ = read_head(head)
        refusal = self._refuse_host(request.headers.get("host"), self.lower)
        if refusal is not None:
            raise HttpError(403, refusal)
        if request.is_http_10 or request.length:
            raise HttpError(400, "a request for WebSocket is one of HTTP/1.1, and has no body")
        version = request.headers.get("sec-websocket-version", "")
        if version != VERSION:
            headers = (("Sec-WebSocket-Version", VERSION), ("Upgrade", "websocket"))
            raise HttpError(426, f"WebSocket is spoken in version {VERSION}, not {version!r:.20}", headers=headers)
        return Request(request.target, Headers(request.headers))

    def data_received(self, data: bytes) -> None:
        """Unpack received bytes."""
        self._protocol.receive_data(data)
        self._handle(self._protocol.events_received())

    def _handle(self, events: Iterable[object]) -> None:
        chunks: list[bytes] = []
        for event in events:
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                data = bytes(event.data)
                if self._signature is None:
                    data = self._recognise(data)
                if event.opcode is Opcode.TEXT and self._signature is not None and not self._signature.takes_text:
                    reason = f"{self._signature.name.upper()} is sent in binary messages"
                    self._protocol.fail(CloseCode.UNSUPPORTED_DATA, reason)
                    break
                chunks.append(data)
        self._put_out()
        if chunks and not self._is_over and self._signature is not None:
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

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the layers below know, and that there is a WebSocket."""
        return True if name == "websocket" else self.lower.get_extra_info(name, default)

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


class _Handshake(ServerProtocol):
    """The library's checks of a request, with a rule of its own for origins. The bytes are parsed by ``wire/http``.

    Args:
        expected: sub-protocols, one of which has to be among those offered.
        origins: the origins of web pages that may come.
    """

    def __init__(self, expected: Collection[str], origins: Collection[str]) -> None:
        super().__init__(
            origins=None,
            subprotocols=[Subprotocol(name) for name in expected],
            logger=_quiet,
        )
        self._allowed = origins

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Return the first sub-protocol offered that the port knows, or None if none is offered.

        Raises:
            NegotiationError: none of those offered is known, and the handshake fails.
        """
        known = self.available_subprotocols or ()
        if known and not subprotocols:
            return None
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
