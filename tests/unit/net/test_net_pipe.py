"""A pipe between a client and a home, over real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from enmasse.net import pipe as module
from enmasse.net.loop import Turn
from enmasse.net.pipe import PipeEnd, PipeProtocol
from enmasse.net.transport import EngineProtocol
from tests.support.polling import until_async

MORE_THAN_KERNELS_TAKE = 32 << 20
READ_BYTES = 256 << 10
"""The most that the loop reads at once."""


class Pipe:
    """A pipe, with the bare sockets of client and home at its ends.

    Attributes:
        ended: how often it was told that the pipe has ended.
    """

    def __init__(self) -> None:
        self.ended = 0
        self.near, self.far = PipeEnd(self._end), PipeEnd()
        self.near.join(self.far)
        turn = Turn(asyncio.get_running_loop())
        self.shells = (
            EngineProtocol(turn, lambda _shell: self.near),
            PipeProtocol(turn, lambda _: self.far, yields=False),
        )
        self.client, self._near = socket.socketpair()
        self.home, self._far = socket.socketpair()
        for each in (self.client, self.home, self._near, self._far):
            each.setblocking(False)

    def _end(self) -> None:
        self.ended += 1

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.shells[0], self._near)
        await loop.connect_accepted_socket(lambda: self.shells[1], self._far)
        self.shells[1].transport.set_write_buffer_limits(high=0, low=0)

    @property
    def waiting(self) -> int:
        """Bytes that the pipe keeps."""
        return sum(
            shell.transport.get_write_buffer_size() + len(shell._rest) + shell.engine.out_bytes
            for shell in self.shells
        )


@asynccontextmanager
async def piped() -> AsyncIterator[Pipe]:
    pipe = Pipe()
    await pipe.connect()
    try:
        async with asyncio.timeout(60):
            yield pipe
    finally:
        for shell in pipe.shells:
            shell.abort()
        for shell in pipe.shells:
            await shell.wait_closed()
        pipe.client.close()
        pipe.home.close()
    assert pipe.ended == 1


async def read(sock: socket.socket, size: int = 1 << 40) -> bytes:
    data = bytearray()
    while len(data) < size and (part := await asyncio.get_running_loop().sock_recv(sock, 1 << 20)):
        data += part
    return bytes(data)


async def send(sock: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def stalled(pipe: Pipe, sending: asyncio.Task[None]) -> None:
    """Wait until nothing moves any more, and see that the pipe keeps little."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(sum(shell.bytes_in for shell in pipe.shells))
        return len(seen) > 300 and len(set(seen[-300:])) == 1

    await until_async(is_still)
    assert not sending.done()


async def test_bytes_go_both_ways_as_they_are() -> None:
    chance = random.Random(1)
    up, down = chance.randbytes(3 << 20), chance.randbytes(5 << 20)
    async with piped() as pipe:
        sending = [asyncio.create_task(send(pipe.client, up)), asyncio.create_task(send(pipe.home, down))]
        came_up, came_down = await asyncio.gather(read(pipe.home, len(up)), read(pipe.client, len(down)))
        assert came_up == up
        assert came_down == down
        await asyncio.gather(*sending)


async def test_a_home_that_does_not_read_holds_the_client_back_and_still_speaks() -> None:
    async with piped() as pipe:
        sending = asyncio.create_task(send(pipe.client, bytes(MORE_THAN_KERNELS_TAKE)))
        await stalled(pipe, sending)
        assert pipe.waiting <= READ_BYTES
        await send(pipe.home, b"x" * 100_000)
        assert await read(pipe.client, 100_000) == b"x" * 100_000
        assert len(await read(pipe.home, MORE_THAN_KERNELS_TAKE)) == MORE_THAN_KERNELS_TAKE
        await sending


async def test_a_client_that_does_not_read_holds_the_home_back() -> None:
    async with piped() as pipe:
        sending = asyncio.create_task(send(pipe.home, bytes(MORE_THAN_KERNELS_TAKE)))
        await stalled(pipe, sending)
        assert pipe.waiting <= module.TURN_BYTES + READ_BYTES
        assert len(await read(pipe.client, MORE_THAN_KERNELS_TAKE)) == MORE_THAN_KERNELS_TAKE
        await sending


@pytest.mark.parametrize("is_clients", [True, False], ids=["the client", "the home"])
async def test_the_last_words_of_one_side_reach_the_other_and_then_it_ends(*, is_clients: bool) -> None:
    async with piped() as pipe:
        one, other = (pipe.client, pipe.home) if is_clients else (pipe.home, pipe.client)
        # A megabyte that nobody has read when it ends.
        sending = asyncio.create_task(send(one, b"y" * (1 << 20)))
        reading = asyncio.create_task(read(other))
        await sending
        one.close()
        assert await reading == b"y" * (1 << 20)
        other.close()
        await until_async(lambda: all(shell.is_lost for shell in pipe.shells))


async def test_a_side_that_is_cut_off_ends_the_other() -> None:
    async with piped() as pipe:
        pipe.shells[1].abort()
        assert await read(pipe.client) == b""
        await until_async(lambda: pipe.ended)


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_client_that_says_nothing_more_still_hears_its_answers(*, is_slow: bool) -> None:
    async with piped() as pipe:
        size = MORE_THAN_KERNELS_TAKE if is_slow else 100
        sending = asyncio.create_task(send(pipe.client, bytes(size)))
        if is_slow:
            await stalled(pipe, sending)
        reading = asyncio.create_task(read(pipe.home))
        await sending
        pipe.client.shutdown(socket.SHUT_WR)
        assert len(await reading) == size
        await send(pipe.home, b"an answer")
        pipe.home.close()
        assert await read(pipe.client) == b"an answer"
