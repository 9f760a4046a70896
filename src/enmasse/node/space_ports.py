"""Ports that belong to one space: who connects there need not name it.

They are opened and closed while the node runs. One that cannot be opened is tried again; meanwhile the space
tells why (``portProblem``). Clients that are connected stay when their port closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["SpacePorts"]

RETRY_S = 2.0
"""Whoever has a port now may leave it soon; looking costs next to nothing."""

Open = Callable[[str, int, str], Awaitable[asyncio.Server]]


class SpacePorts:
    """The ports of a node's spaces.

    Args:
        loop: where they are served.
        open_port: opens a port on an interface for connections to a space; raises ``OSError``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, open_port: Open) -> None:
        self._loop = loop
        self._open_port = open_port
        self._hosts: list[str] = []
        self._wanted: dict[str, int] = {}
        self._open: dict[str, tuple[int, list[asyncio.Server]]] = {}
        self._problems: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False

    def serve_on(self, host: str) -> None:
        """Open the spaces' ports on an interface, from now on."""
        if host not in self._hosts:
            self._hosts.append(host)
            self._reopen_all()

    def set(self, space: str, port: int) -> None:
        """Give a space this port, or none for 0."""
        if port:
            self._wanted[space] = port
        else:
            self._wanted.pop(space, None)
            self._problems.pop(space, None)
        self._look()

    def told(self, space: str) -> dict[str, Any]:
        """What is to be told of a space: why its port is not open, if it should be and is not."""
        problem = self._problems.get(space)
        return {} if problem is None else {"portProblem": problem}

    def close(self) -> None:
        """Take no more connections."""
        self._is_closed = True
        self._wanted.clear()
        if self._retry is not None:
            self._retry.cancel()
        for space in list(self._open):
            self._close(space)

    def _reopen_all(self) -> None:
        for space in list(self._open):
            self._close(space)
        self._look()

    def _close(self, space: str) -> None:
        for server in self._open.pop(space)[1]:
            server.close()

    def _look(self) -> None:
        """Bring what is open in line with what is wanted."""
        self._is_stale = True
        if self._hosts and not self._is_closed and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._converge())

    async def _converge(self) -> None:
        while self._is_stale and not self._is_closed:
            self._is_stale = False
            for space in [name for name, (port, _) in self._open.items() if self._wanted.get(name) != port]:
                self._close(space)
            for space, port in list(self._wanted.items()):
                if space not in self._open and self._wanted.get(space) == port:
                    await self._try(space, port)
        if self._problems and not self._is_closed:
            if self._retry is not None:
                self._retry.cancel()
            self._retry = self._loop.call_later(RETRY_S, self._look)

    async def _try(self, space: str, port: int) -> None:
        other = next((name for name, (taken, _) in self._open.items() if taken == port), None)
        if other is not None:
            self._problems[space] = f"port {port} belongs to space {other!r} already; choose another one"
            return
        servers: list[asyncio.Server] = []
        try:
            for host in self._hosts:
                servers.append(await self._open_port(host, port, space))  # noqa: PERF401  those opened before are closed
        except OSError as error:
            for server in servers:
                server.close()
            self._problems[space] = (
                f"port {port} cannot be opened ({error.strerror or error}); choose another one, or free it"
            )
            return
        self._problems.pop(space, None)
        self._open[space] = port, servers
        if self._is_closed:
            self._close(space)
