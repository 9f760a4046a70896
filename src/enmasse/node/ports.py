"""A node's ports: what is spoken on all of them, who may come in, and which certificates are shown."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.net.door import Door, DoorLimits
from enmasse.net.listener import Port

if TYPE_CHECKING:
    from enmasse.net.certificates import CertificateStore
    from enmasse.net.loop import Turn
    from enmasse.net.transport import Engine, EngineProtocol
    from enmasse.net.web import Answer
    from enmasse.node.binding import Binding
    from enmasse.node.connections import Connections

__all__ = ["Admitting", "PortOptions", "Ports"]

OTHER_FILES = 256
"""Descriptors that are not connections: the journal, management, libraries."""

BACKLOG = 1024
"""Connections that the kernel accepts before we do."""


@dataclass(frozen=True, slots=True)
class PortOptions:
    """What the operator decides on the ports."""

    tls: Path | None = None
    """Directory of certificates; without it TLS is not spoken."""

    limits: DoorLimits = field(default_factory=DoorLimits)
    """Who may come in."""

    origins: tuple[str, ...] = ()
    """Where web pages may come from that open a WebSocket, beside this machine; ``*`` is from everywhere."""


class Ports:
    """The ports of one node.

    Args:
        turn: of the loop.
        options: the operator's.
        answer: what HTTP requests get.

    Attributes:
        door: the account of all connections.

    Raises:
        ConfigError: the certificates cannot be used.
    """

    def __init__(self, turn: Turn, options: PortOptions, answer: Answer) -> None:
        self.door = Door(turn.loop, _fit(options.limits))
        self._turn = turn
        self._origins = options.origins
        self._answer = answer
        self._certificates: CertificateStore | None = None
        if options.tls is not None:
            from enmasse.net.certificates import CertificateStore  # noqa: PLC0415  loads much, for TLS alone

            self._certificates = CertificateStore(options.tls)
            self._certificates.watch()

    @property
    def speaks_tls(self) -> bool:
        """Whether clients may come by TLS."""
        return self._certificates is not None

    async def open(self, host: str, port: int, make_engine: Callable[[EngineProtocol], Engine]) -> asyncio.Server:
        """Open one port.

        Raises:
            OSError: it cannot be opened.
        """
        store = self._certificates
        served = Port(
            self._turn,
            make_engine,
            self.door,
            self._answer,
            context=None if store is None else store.context,
            origins=self._origins,
        )
        return await self._turn.loop.create_server(served.greet, host, port, backlog=BACKLOG)

    def reload(self) -> None:
        """Read the certificates again."""
        if self._certificates is not None:
            self._certificates.reload()

    def close(self) -> None:
        """End what has not become a connection yet."""
        self.door.shut()
        if self._certificates is not None:
            self._certificates.close()


class Admitting:
    """Tells the door of connections that are open.

    Args:
        connections: the node's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def on_connected(self, binding: Binding, number: int) -> None:
        """It has its place since before."""

    def on_opened(self, binding: Binding, number: int) -> None:
        """Its time for the handshake ends."""
        ticket = self._connections.shells[binding].ticket
        if ticket is not None:
            ticket.admit()

    def on_closed(self, binding: Binding) -> None:
        """Its shell tells the door."""


def _fit(limits: DoorLimits) -> DoorLimits:
    """Take as many descriptors as we are given, and admit no more connections than there are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = max(1, hard - OTHER_FILES)
    handshakes = min(limits.max_handshakes, max(1, room // 4))
    return replace(
        limits, max_handshakes=handshakes, max_connections=max(1, min(limits.max_connections, room - handshakes))
    )
