"""Several processes that accept from one socket: here several listeners of one loop, each with its own numbers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from enmasse.net import shared_listener
from enmasse.net.loop import run
from enmasse.net.shared_listener import AHEAD, SharedListener, Siblings, no_counts
from tests.support.polling import until_async


class Count:
    """Stands for a limiter: as many connections as the test says, and those that were accepted."""

    def __init__(self) -> None:
        self.others = 0
        self.accepted: list[asyncio.Transport] = []
        self.is_full = False

    def __len__(self) -> int:
        return self.others + len(self.accepted)


class Accepted(asyncio.Protocol):
    def __init__(self, count: Count) -> None:
        self._count = count

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._count.accepted.append(transport)  # type: ignore[arg-type]
        transport.write(b"hello")  # type: ignore[attr-defined]


@dataclass
class Scene:
    """Nodes that listen on one socket."""

    memory: int
    bound: socket.socket
    counts: list[Count]
    siblings: list[Siblings]
    listeners: list[SharedListener]
    clients: list[socket.socket]

    def tell(self, *, full: tuple[int, ...] = (), **others: int) -> None:
        for index, (count, siblings) in enumerate(zip(self.counts, self.siblings, strict=True)):
            count.others = others.get(f"of_{index}", count.others)
            count.is_full = index in full
            siblings.tell(None if count.is_full else len(count))

    def connect(self, number: int = 1) -> None:
        for _ in range(number):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(self.bound.getsockname())
            self.clients.append(client)

    async def accepted(self) -> list[int]:
        """Return how many connections each has accepted, once all have been."""
        await until_async(lambda: sum(len(count.accepted) for count in self.counts) == len(self.clients))
        return [len(count.accepted) for count in self.counts]


@asynccontextmanager
async def scene(nodes: int) -> AsyncIterator[Scene]:
    loop = asyncio.get_running_loop()
    memory = os.memfd_create("test")
    os.write(memory, no_counts(nodes))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        counts = [Count() for _ in range(nodes)]
        siblings = [Siblings(memory, index) for index in range(nodes)]
        found = Scene(memory, bound, counts, siblings, [], [])
        for count, each in zip(counts, siblings, strict=True):
            each.tell(0)
            found.listeners.append(
                SharedListener(loop, bound.dup(), 64, lambda count=count: Accepted(count), each, count)  # type: ignore[arg-type,misc]
            )
        try:
            yield found
        finally:
            os.close(memory)
            for listener in found.listeners:
                listener.close()
            for client in found.clients:
                client.close()
            for count in counts:
                for transport in count.accepted:
                    transport.abort()


def test_who_is_ahead_leaves_connections_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_listener, "YIELD_S", 600.0)  # the others may be busy

    async def story() -> None:
        async with scene(3) as nodes:
            nodes.tell(of_0=3 * AHEAD, of_1=AHEAD + 1)
            nodes.connect(20)
            assert await nodes.accepted() == [0, 0, 20]

    run(story())


def test_who_is_full_leaves_them_to_the_others_while_one_has_room_and_then_tells_the_clients_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with scene(2) as nodes:
            nodes.tell(full=(0,), of_1=1000)
            with monkeypatch.context() as patience:
                patience.setattr(shared_listener, "FULL_YIELD_S", 600.0)
                nodes.connect(3)
                assert await nodes.accepted() == [0, 3]
            nodes.tell(full=(0, 1))
            nodes.connect(3)
            assert sum(await nodes.accepted()) == 6

    run(story())


def test_what_others_leave_lying_is_taken_all_the_same_by_who_is_ahead() -> None:
    async def story() -> None:
        async with scene(2) as nodes:
            nodes.tell(of_0=3 * AHEAD, of_1=0)
            nodes.listeners[1].close()  # it hangs, and has not said so
            nodes.siblings[1].tell(0)
            nodes.connect(40)
            assert await nodes.accepted() == [40, 0]

    run(story())


def test_who_is_closed_or_has_yet_to_come_is_not_waited_for() -> None:
    async def story() -> None:
        async with scene(3) as nodes:
            nodes.tell(of_0=1000)
            nodes.siblings[1].tell(None)  # it stops
            Siblings(nodes.memory, 2)  # a new process of that number, which has yet to listen
            for listener in nodes.listeners[1:]:
                listener.close()
            assert nodes.siblings[0].least() is None
            nodes.connect(3)
            assert await nodes.accepted() == [3, 0, 0]
            assert nodes.listeners[0]._timer is None, "it has left nothing to others"

    run(story())
