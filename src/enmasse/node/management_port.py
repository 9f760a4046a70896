"""The port by which the control process on another machine manages a node.

Nothing is spoken there without TLS, and nobody is heard who has not shown the control process's certificate. Its
certificates are other files than those for clients: who may vouch for clients does not thereby vouch for control.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.net.certificates import CertificateStore
from enmasse.net.door import Door, DoorLimits
from enmasse.net.listener import Port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from enmasse.net.loop import Turn
    from enmasse.net.transport import Engine, EngineProtocol
    from enmasse.net.web import Answer

__all__ = ["ManagementPort"]

_LIMITS = DoorLimits(max_connections=64, max_handshakes=64)
"""A control process has two; strangers who never finish must not keep it out."""


class ManagementPort:
    """One port with certificates on both sides.

    Args:
        turn: of the loop.
        tls: the directory of certificates: ours, and ``clients-ca.crt``.
        answer: what HTTP requests get.

    Raises:
        ConfigError: the certificates cannot be used.
    """

    def __init__(self, turn: Turn, tls: Path, answer: Answer) -> None:
        self._turn = turn
        self._answer = answer
        self._door = Door(turn.loop, _LIMITS)
        self._certificates = CertificateStore(tls)
        self._certificates.watch()

    async def open(self, host: str, port: int, make_engine: Callable[[EngineProtocol], Engine]) -> asyncio.Server:
        """Open the port.

        Raises:
            OSError: it cannot be opened.
        """
        context = self._certificates.context
        served = Port(self._turn, make_engine, self._door, self._answer, context=context, is_tls_only=True)
        return await self._turn.loop.create_server(served.greet, host, port)

    def reload(self) -> None:
        """Read the certificates again."""
        self._certificates.reload()

    def close(self) -> None:
        """End what has not become a connection yet."""
        self._door.shut()
        self._certificates.close()
