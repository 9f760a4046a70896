"""A proxy on the event loop of a node: the sockets, reads and writes of a front, with nothing of ours between.

``python -m benchmarks.bare_proxy SOCKET HEADER`` prints its port. Who connects there speaks to the socket by which
other nodes reach a node, which is sent the file's header first; the one byte of its answer is kept back.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from enmasse.net.loop import run
from enmasse.net.transport import HIGH_WATER, LOW_WATER


class Side(asyncio.Protocol):
    """One side of a connection."""

    transport: asyncio.Transport
    other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class Far(Side):
    """The side at the home."""

    def __init__(self, near: Near, first: bytes) -> None:
        self.near = near
        self.first = first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self.first)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            if data[:1] != b"\0":
                raise RuntimeError(f"the home refuses the connection: {data[:100]!r}")
            self.other, self.near.other = self.near, self
            data = data[1:]
        if data:
            self.other.transport.write(data)


class Near(Side):
    """The client's side; a client says nothing more before it is answered."""

    def __init__(self, place: str, header: bytes) -> None:
        self.place = place
        self.header = header
        self.dialling: asyncio.Task[object] | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
            return
        loop = asyncio.get_running_loop()
        far = Far(self, self.header + data)
        self.dialling = loop.create_task(loop.create_unix_connection(lambda: far, self.place))


async def serve(place: str, header: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Near(place, header), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    run(serve(sys.argv[1], Path(sys.argv[2]).read_bytes()))
