"""Serves every protocol on one port: the first bytes that a peer sends choose it.

A ``ProtocolDetector`` takes a connection's first bytes, in the clear or inside TLS, and hands connection and bytes
to the protocol that they belong to; from then on it is not involved. Where thousands come at once, each waits for its
turn (``HandshakeLane``). A port is given a table of the protocols that it accepts, each with the function that makes
its engines: the same table in the clear, inside TLS and inside WebSocket.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, cast

from enmasse.net.connection_limiter import ConnectionLimiter, Slot
from enmasse.net.first_bytes import HTTP, TLS, ProtocolSignature, asks_for_websocket, recognise
from enmasse.net.loop import Turn
from enmasse.net.origins import RefuseHost
from enmasse.net.tls_layer import TlsLayer
from enmasse.net.transport import Engine, EngineProtocol

if TYPE_CHECKING:
    from enmasse.net.proxy_layer import Proxied, Proxies

MAX_RECORD_BYTES = 16384

_log = logging.getLogger(__name__)

MakeEngine = Callable[[EngineProtocol], Engine]
"""Makes the engine of a connection whose socket is connected; it refuses the peer if ``shell.refusal`` says so."""


class Port:
    """One port, the protocols that it accepts, and the functions that make their engines.

    Args:
        turn: the turn of the loop.
        protocols: the functions that make engines, by protocol; the first protocol gets peers that none recognises.
        limiter: counts and limits the connections.
        refuse_host: checks the host that a request for WebSocket names.
        context: returns the TLS context for a client's first record; None if TLS is not accepted.
        origins: origins of web pages that may open a WebSocket, beside those of this machine.
        is_tls_only: accept nothing in the clear.
        proxies: the load balancers that tell who their clients are, and the port for their own connections; None:
            there are none.
    """

    def __init__(
        self,
        turn: Turn,
        protocols: Mapping[ProtocolSignature, MakeEngine],
        limiter: ConnectionLimiter,
        refuse_host: RefuseHost,
        context: Callable[[bytes], ssl.SSLContext] | None = None,
        origins: Collection[str] = (),
        *,
        is_tls_only: bool = False,
        proxies: tuple[Proxies, Port] | None = None,
    ) -> None:
        self.proxies = proxies
        self.turn = turn
        self.protocols = protocols
        self.limiter = limiter
        self.refuse_host = refuse_host
        self.context = context
        self.origins = origins
        self.upgrades: dict[ProtocolSignature, ProtocolSignature] = {}
        """Headers that ask for TLS, each with the protocol that follows inside."""
        inside = [signature for signature in protocols if signature.over_tls]
        self.inside_tls = (*inside, HTTP)
        """The protocols that are accepted inside TLS; anything unknown goes to the first."""
        self.carried = {name: signature for signature in protocols for name in signature.subprotocols}
        """The protocols that WebSocket carries, by its sub-protocols."""
        self.default = next(iter(protocols))
        self.web = next((signature for signature in protocols if signature.answers_http), self.default)
        """The protocol that answers requests of HTTP."""
        if is_tls_only:
            self.accepted: tuple[ProtocolSignature, ...] = (TLS,)
            return
        self.accepted = (*protocols, HTTP)
        if context is not None:
            self.upgrades = {
                ProtocolSignature(f"{signature.name}-tls", (signature.tls_header,)): signature
                for signature in inside
                if signature.tls_header
            }
            self.accepted += (TLS, *self.upgrades)

    def make_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection; the protocol factory of ``create_server``."""
        if self.proxies is None:
            return self.make_detector()
        # Most ports have no balancers before them.
        from enmasse.net.proxy_layer import ProxyLayer  # noqa: PLC0415

        proxies, own = self.proxies
        return ProxyLayer(proxies, self.make_detector, own.make_detector)

    def make_detector(self) -> ProtocolDetector:
        """Return the detector for a new connection whose client is known."""
        return ProtocolDetector(self, self.accepted, self.default)


class ProtocolDetector(asyncio.Protocol):
    """Reads the first bytes of a connection and hands it to the protocol that they belong to.

    Args:
        port: the port of the connection.
        accepted: the protocols that are accepted here.
        default: the protocol of a peer that none recognises.
        slot: the connection's slot, if it has one already.
    """

    __slots__ = (
        "_accepted", "_default", "_given", "_is_input_over", "_is_lost", "_is_waiting", "_port", "_slot",
        "_transport",
    )  # fmt: skip

    def __init__(
        self,
        port: Port,
        accepted: Collection[ProtocolSignature],
        default: ProtocolSignature,
        slot: Slot | None = None,
    ) -> None:
        self._port = port
        self._accepted = accepted
        self._default = default
        self._slot = slot
        self._given = b""
        self._is_waiting = self._is_lost = self._is_input_over = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the limiter for a slot, and abort the connection without one."""
        # uvloop's transports implement the interface without inheriting it.
        self._transport = cast("asyncio.Transport", transport)
        if self._slot is None:
            self._slot = self._port.limiter.enter(self._transport)
            if self._slot is None:
                transport.abort()  # type: ignore[attr-defined]
            return
        proxied: Proxied | None = transport.get_extra_info("proxied")
        if proxied is not None and proxied.names_two_hosts(transport.get_extra_info("ssl_object")):
            proxied.log_refusal("the client has named one host for TLS, and another one as the balancer says")
            self._slot.drop()

    def data_received(self, data: bytes) -> None:
        """Collect bytes until they identify the protocol."""
        slot = self._slot
        if slot is None:
            return
        self._given += data
        self._port.turn.begin()
        if slot.lane.is_full():
            self._wait(slot)
        else:
            self._take(slot)

    def _wait(self, slot: Slot) -> None:
        """Leave further bytes in the socket, and go on in a later turn."""
        if not self._is_waiting:
            self._is_waiting = True
            self._transport.pause_reading()
            slot.lane.enqueue(lambda: self._go_on(slot))

    def _go_on(self, slot: Slot) -> None:
        self._is_waiting = False
        if self._is_lost or self._transport.is_closing():
            return
        try:
            self._transport.resume_reading()
            self._take(slot)
            if self._is_input_over and not self._next().eof_received():
                self._transport.close()
        except Exception:  # noqa: BLE001  whatever it is, only this connection may suffer
            _log.exception("a connection failed at its first bytes")
            slot.drop()

    def eof_received(self) -> bool:
        """Close the connection, as its protocol is not known; unless what has come waits for its turn."""
        self._is_input_over = self._is_waiting
        return self._is_input_over

    def _next(self) -> asyncio.Protocol:
        """Return the protocol that has the connection now."""
        return cast("asyncio.Protocol", self._transport.get_protocol())

    def _take(self, slot: Slot) -> None:
        """Give the bytes to their protocol once they identify it; the time that this takes is the lane's."""
        began = perf_counter()
        protocol = self._protocol_of(slot)
        slot.lane.charge(perf_counter() - began)
        if protocol is not None:
            given, self._given = self._given, b""
            if given:
                protocol.data_received(given)

    def _protocol_of(self, slot: Slot) -> asyncio.Protocol | None:
        """Return the protocol that is to have the bytes; None if it is not known yet, or has taken them."""
        signature = recognise(self._given, self._accepted, self._default)
        if signature is None or (signature is TLS and not _is_record(self._given)):
            return None
        if signature not in self._accepted:  # in the clear, where only TLS is accepted
            slot.drop()
            return None
        upgraded = self._port.upgrades.get(signature)
        if upgraded is not None or signature is TLS:
            given, self._given = self._given, b""
            if upgraded is None:
                self._secure(self._port.inside_tls, slot, given)
            else:
                self._transport.write(upgraded.tls_header)
                self._secure((upgraded,), slot, given[len(upgraded.tls_header) :])
            return None
        if signature is HTTP:
            is_websocket = asks_for_websocket(self._given)
            if is_websocket is None:
                return None
            if is_websocket:
                self._open_websocket(slot)
                return None
            signature = self._port.web
        protocol = self._make_shell(signature, slot)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        return protocol

    def _secure(self, inside: Collection[ProtocolSignature], slot: Slot, given: bytes) -> None:
        """Begin TLS, with another detector for the protocol inside."""
        port, transport = self._port, self._transport
        assert port.context is not None
        layer = TlsLayer(ProtocolDetector(port, inside, next(iter(inside)), slot), port.context(given))
        transport.set_protocol(layer)
        # uvloop heeds what kind of protocol it reads for when it begins to read.
        transport.pause_reading()
        transport.resume_reading()
        layer.connection_made(transport)
        layer.take(given)

    def _open_websocket(self, slot: Slot) -> None:
        # Many nodes never get such a request, and its library takes time to load.
        from enmasse.net.websocket_layer import WebSocketLayer  # noqa: PLC0415

        port, transport = self._port, self._transport
        layer = WebSocketLayer(self, port.carried, port.refuse_host, port.origins)
        given, self._given = self._given, b""
        transport.set_protocol(layer)
        layer.connection_made(transport)
        layer.begin(given, lambda carried: self._make_shell(carried, slot))

    def _make_shell(self, signature: ProtocolSignature, slot: Slot) -> EngineProtocol:
        return EngineProtocol(self._port.turn, self._port.protocols[signature], slot=slot)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back: the peer left before its protocol was known."""
        self._is_lost = True
        if self._slot is not None:
            self._slot.leave()


def _is_record(data: bytes) -> bool:
    """Return true if a TLS record is complete, or longer than any may be [RFC 8446 5.1]."""
    length = int.from_bytes(data[3:5], "big")
    return len(data) >= 5 and (len(data) >= 5 + length or length > MAX_RECORD_BYTES)
