"""A load balancer of a few lines: it comes from 127.0.0.2 and says of each connection what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["BALANCER", "balancer"]

BALANCER = "127.0.0.2"
"""Its address, which is of this machine."""


@asynccontextmanager
async def balancer(target: int, header: bytes) -> AsyncIterator[int]:
    """Pass the connections to a port on to another one, with a header before each; gives the port."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target, local_addr=(BALANCER, 0))
        back.write(header)
        writers.extend((writer, back))
        tasks.extend(asyncio.ensure_future(copy(*pair)) for pair in ((reader, back), (there, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
