"""One port for every protocol: who a peer is, is told by its first bytes.

The greeter takes a connection's first bytes, in the clear or inside TLS, and hands both connection and bytes to
whoever speaks that protocol. From then on it is not in the way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from enmasse.net.door import Door, Ticket
from enmasse.net.first_bytes import Speech, recognise
from enmasse.net.loop import Turn
from enmasse.net.tls_layer import TlsLayer
from enmasse.net.transport import Engine, EngineProtocol

if TYPE_CHECKING:
    from enmasse.net.web import Answer

__all__ = ["Greeter", "Port"]

MAX_RECORD_BYTES = 16384

AMQP_TLS_HEADER = b"AMQP\x02\x01\x00\x00"


@dataclass(frozen=True, slots=True)
class Port:
    """What is spoken on a port, and by whom.

    Attributes:
        turn: of the loop.
        make_engine: makes an AMQP engine for a shell; ``shell.ticket`` tells whether to refuse it.
        door: who may come in.
        context: gives what a TLS handshake begins with, from the client's first record; None if TLS is not spoken.
        answer: what HTTP requests get.
        origins: where web pages may come from that open a WebSocket, beside this machine.
    """

    turn: Turn
    make_engine: Callable[[EngineProtocol], Engine]
    door: Door
    answer: Answer
    context: Callable[[bytes], ssl.SSLContext] | None = None
    origins: Collection[str] = ()
    is_tls_only: bool = False
    """Whether nothing is spoken in the clear."""

    def greet(self) -> Greeter:
        """Make the protocol of a connection that is accepted; the factory of ``create_server``."""
        if self.is_tls_only:
            return Greeter(self, {Speech.TLS})
        spoken = {Speech.AMQP, Speech.HTTP}
        if self.context is not None:
            spoken |= {Speech.TLS, Speech.AMQP_TLS}
        return Greeter(self, spoken)


class Greeter(asyncio.Protocol):
    """Takes the first bytes of a connection.

    Args:
        port: where it is.
        spoken: what may be spoken here.
        ticket: the connection's place, if it has one already.
    """

    __slots__ = ("_given", "_port", "_spoken", "_ticket", "_transport")

    def __init__(self, port: Port, spoken: Collection[Speech], ticket: Ticket | None = None) -> None:
        self._port = port
        self._spoken = spoken
        self._ticket = ticket
        self._given = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection its place."""
        # uvloop's transports implement the interface without inheriting it.
        self._transport = cast("asyncio.Transport", transport)
        if self._ticket is None:
            self._ticket = self._port.door.enter(self._transport)
            if self._ticket is None:
                transport.abort()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Take bytes until they tell what is spoken."""
        ticket = self._ticket
        if ticket is None:
            return
        self._given += data
        speech = recognise(self._given, self._spoken)
        if speech is None or (speech is Speech.TLS and not _is_record(self._given)):
            return
        if speech not in self._spoken:  # what is not recognised counts as AMQP, which is not spoken everywhere
            ticket.drop()
            return
        given, self._given = self._given, b""
        if speech is Speech.AMQP_TLS:
            self._transport.write(AMQP_TLS_HEADER)
            given = given[len(AMQP_TLS_HEADER) :]
        if speech in (Speech.TLS, Speech.AMQP_TLS):
            self._secure(speech, ticket, given)
            return
        protocol = self._choose(speech, ticket)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if given:
            protocol.data_received(given)

    def _secure(self, speech: Speech, ticket: Ticket, given: bytes) -> None:
        """Have TLS spoken from now on, and another greeter ask what is spoken inside."""
        port, transport = self._port, self._transport
        assert port.context is not None
        # After AMQP's own header for TLS nothing but AMQP follows [AMQP 5.2.1].
        inside = {Speech.AMQP} if speech is Speech.AMQP_TLS else {Speech.AMQP, Speech.HTTP}
        layer = TlsLayer(Greeter(port, inside, ticket), port.context(given))
        transport.set_protocol(layer)
        # uvloop heeds what kind of protocol it reads for when it begins to read.
        transport.pause_reading()
        transport.resume_reading()
        layer.connection_made(transport)
        layer.take(given)

    def _choose(self, speech: Speech, ticket: Ticket) -> asyncio.Protocol:
        """Make whoever speaks that in the clear, or inside TLS."""
        port = self._port
        if speech is Speech.HTTP:
            # Many nodes are never asked, and its libraries take time to load.
            from enmasse.net.web import WebProtocol  # noqa: PLC0415

            return WebProtocol(ticket, port.answer, lambda: self._make_shell(ticket), port.origins)
        return self._make_shell(ticket)

    def _make_shell(self, ticket: Ticket) -> EngineProtocol:
        return EngineProtocol(self._port.turn, self._port.make_engine, ticket=ticket)

    def connection_lost(self, exc: Exception | None) -> None:
        """It was gone before it had said what it speaks."""
        if self._ticket is not None:
            self._ticket.leave()


def _is_record(data: bytes) -> bool:
    """Tell whether a TLS record is complete, or longer than any may be [RFC 8446 5.1]."""
    length = int.from_bytes(data[3:5], "big")
    return len(data) >= 5 and (len(data) >= 5 + length or length > MAX_RECORD_BYTES)
