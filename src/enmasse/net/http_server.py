"""Runs uvicorn within a process that has other tasks: without signal handlers, and until an event is set.

What takes long for a client ends when the client has gone. What is passed on as it was written has no dot segments.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

T = TypeVar("T")


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_until(
    stop: asyncio.Event,
    config: uvicorn.Config,
    listener: socket.socket,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application on an open port until ``stop`` is set; closes the port.

    Args:
        stop: ends it; requests under way have ``config.timeout_graceful_shutdown`` seconds.
        config: the config of the application and its protocol.
        listener: the port.
        stopping: called when the server begins to stop.
    """
    server = _Server(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True
        stopping()

    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(end())
        try:
            await server.serve([listener])
        finally:
            ending.cancel()
            listener.close()


def has_dot_segments(target: str) -> bool:
    """Return whether the path of a request leads up or nowhere [RFC 3986 3.3], in whichever way it is written.

    Args:
        target: the target as the client wrote it, with or without its query.
    """
    return not {".", ".."}.isdisjoint(unquote(target.partition("?")[0]).replace("\\", "/").split("/"))


async def disconnected(receive: Receive) -> None:
    """Wait until a client has disconnected.

    Args:
        receive: of ASGI, of a request whose body has been read.
    """
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what some work returns; cancel it and return None when the client disconnects before.

    Args:
        receive: of ASGI, of a request whose body has been read.
        work: the work that is done for the client.
    """
    doing, going = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({doing, going}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, going):
            task.cancel()
        await asyncio.gather(doing, going, return_exceptions=True)
