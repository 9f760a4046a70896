"""Carries a runner's connections out of its own network, to the places that it may reach and no others.

It is a process beside the runner, outside its network. What starts the runner makes sockets that listen inside,
and hands them over: who connects to one of them in there is accepted out here. It only copies bytes.
It ends with the runner, and the runner with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # what asyncio loads late, when it may not be readable any more
import os
import socket
import sys
from contextlib import suppress

from enmasse.pipeline.host.reach import MAX_PLACES, Place, Reach, may_lead_to

MAX_CONNECTIONS = 1_000
"""At a time; the next one waits."""
CONNECT_S = 10.0
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
)
"""The probes of connections: those of a runner are heard by this side alone, so a lost place is noticed here."""
_PART = 1 << 16


def carry(runner: socket.socket, reach: Reach) -> None:
    """Wait for the sockets, then carry connections until the runner is gone.

    Args:
        runner: the socket over which sockets come; closed when the runner ends.
        reach: the places that connections may lead to.
    """
    word, numbers, _, _ = socket.recv_fds(runner, 1, 2 * MAX_PLACES)
    if word:
        asyncio.run(_carry(runner, [socket.socket(fileno=number) for number in numbers], reach))


async def _carry(runner: socket.socket, listening: list[socket.socket], reach: Reach) -> None:
    room = asyncio.Semaphore(MAX_CONNECTIONS)
    runner.setblocking(False)
    tasks = [asyncio.create_task(_accept(item, reach, room)) for item in listening]
    with suppress(OSError):
        await asyncio.get_running_loop().sock_recv(runner, 1)
    # Nothing is to be brought to an end: there is nobody for whom.
    del tasks
    sys.stderr.flush()
    os._exit(0)


async def _accept(listening: socket.socket, reach: Reach, room: asyncio.Semaphore) -> None:
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    carried = set()
    while True:
        await room.acquire()
        try:
            inside, _ = await loop.sock_accept(listening)
        except OSError:
            room.release()
            await asyncio.sleep(0.1)
            continue
        task = asyncio.create_task(_connect(inside, reach))
        carried.add(task)
        task.add_done_callback(carried.discard)
        task.add_done_callback(lambda _: room.release())


async def _connect(inside: socket.socket, reach: Reach) -> None:
    with inside:
        inside.setblocking(False)
        host, port = inside.getsockname()[:2]
        found = reach.target(host, port)
        outside = None if found is None else await _reached(*found)
        if outside is None:
            _refuse(inside)
            return
        with outside:
            for item in (inside, outside):
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in _KEEPALIVE:
                outside.setsockopt(*option)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_copy(inside, outside))
                    tasks.create_task(_copy(outside, inside))
            except* OSError:
                pass


async def _reached(place: Place, host: str) -> socket.socket | None:
    loop = asyncio.get_running_loop()
    problem: object = "it leads to no address that a name may lead to"
    try:
        async with asyncio.timeout(CONNECT_S):
            # As bytes: what Python would make of a name is loaded late, too.
            for family, kind, protocol, _, address in await loop.run_in_executor(
                None, socket.getaddrinfo, host.encode(), place.port, 0, socket.SOCK_STREAM
            ):
                if not may_lead_to(place, str(address[0])):
                    continue
                outside = socket.socket(family, kind, protocol)
                outside.setblocking(False)
                try:
                    await loop.sock_connect(outside, address)
                except OSError as error:
                    outside.close()
                    problem = error.strerror
                except BaseException:
                    outside.close()
                    raise
                else:
                    return outside
    except TimeoutError:
        problem = f"no answer within {CONNECT_S:g} s"
    except OSError as error:
        problem = error.strerror
    print(f"{host} port {place.port} cannot be reached: {problem}", file=sys.stderr, flush=True)  # noqa: T201  # the runner's log
    return None


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    part = memoryview(bytearray(_PART))
    while count := await loop.sock_recv_into(source, part):
        await loop.sock_sendall(target, part[:count])
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _refuse(connection: socket.socket) -> None:
    """Reset a connection, so that nobody takes it for one that was closed in order."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
