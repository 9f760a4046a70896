"""Serving the API: without TLS on a loopback interface alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn

from enmasse.api.tls import PeerProtocol
from enmasse.control.loopback import require_loopback
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from enmasse.api.tls import ApiCertificate

__all__ = ["open_listener", "serve_http"]

_LISTENER_BACKLOG = 128
_GRACE_S = 2  # for requests under way when the server stops; watches end by themselves


def open_listener(host: str, port: int, *, is_protected: bool = False) -> socket.socket:
    """Open a port.

    Args:
        host: the interface, a loopback one unless the port is protected.
        port: 0 takes any that is free.
        is_protected: whether TLS is spoken there, and everybody is asked for a proof.

    Raises:
        ConfigError: when the interface is another, or the port is taken.
    """
    if not is_protected:
        require_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off, which costs 40 ms per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_LISTENER_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"port {port} on {host} cannot be opened: {error.strerror}") from None
    return listener


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(
    app: FastAPI, listener: socket.socket, stop: asyncio.Event, certificate: ApiCertificate | None = None
) -> None:
    """Serve an application on a port until ``stop`` is set; closes the port.

    Args:
        app: the application.
        listener: the port.
        stop: ends it.
        certificate: TLS is spoken with this one; None: it is not spoken.
    """
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,  # or whoever reaches us from this machine could say that they are elsewhere
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(end())
        try:
            await server.serve([listener])
        finally:
            ending.cancel()
            listener.close()
