"""Clients that work until they are stopped or their node dies, and put down what they hear."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from enmasse.client import Connection, Message, Outcome, Sender, UnavailableError, connect
from tests.crash.crash_site import PATIENCE_S, WINDOW
from tests.support.ledger import Ledger, Name
from tests.support.polling import until_async

__all__ = ["Client", "Clients", "Flag", "OurClient"]


class Flag(Protocol):
    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...


class Client(Protocol):
    """At work until it is stopped or the node dies.

    Attributes:
        has_begun: set whenever something was done.
        is_stopping: set by whoever wants it to stop.
    """

    has_begun: Flag
    is_stopping: Flag

    async def run(self, url: str) -> None: ...


class OurClient:
    """Some links of one connection of our own client."""

    def __init__(self) -> None:
        self.has_begun: Flag = asyncio.Event()
        self.is_stopping: Flag = asyncio.Event()
        self.accepted: set[Name] = set()

    async def run(self, url: str) -> None:
        with contextlib.suppress(UnavailableError):
            async with connect(url, reconnect=False) as connection:
                await self.work(connection)

    async def work(self, connection: Connection) -> None:
        raise NotImplementedError

    async def produce(self, sender: Sender, messages: Iterator[tuple[Name, Message]], *ledgers: Ledger) -> None:
        """Keep some messages on their way, and put down what becomes of each."""

        def answer(name: Name, future: asyncio.Future[Outcome]) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            is_accepted = future.result() == Outcome.ACCEPTED
            for ledger in ledgers:
                (ledger.accepted if is_accepted else ledger.refused)(name)
            if is_accepted:
                self.accepted.add(name)
                self.has_begun.set()

        def send(name: Name, message: Message) -> asyncio.Future[Outcome]:
            for ledger in ledgers:
                ledger.offered(name)
            future = sender.send_nowait(message)
            future.add_done_callback(lambda future: answer(name, future))
            return future

        under_way: deque[asyncio.Future[Outcome]] = deque()
        for name, message in messages:
            under_way.append(send(name, message))
            if len(under_way) >= WINDOW:
                await under_way.popleft()
            if self.is_stopping.is_set():
                break
        while under_way:
            await under_way.popleft()


class Clients:
    """Clients that work side by side; see ``crash_site.Load``.

    Args:
        clients: who.
        url: the node's.
    """

    def __init__(self, clients: Sequence[Client], url: str) -> None:
        self.clients = clients
        self._tasks = [asyncio.create_task(client.run(url)) for client in clients]

    async def begun(self) -> None:
        ended: list[asyncio.Task[None]] = []

        def is_known() -> bool:
            ended.extend(task for task in self._tasks if task.done())
            return bool(ended) or all(client.has_begun.is_set() for client in self.clients)

        await until_async(is_known, "some client does not begin")
        for task in ended:
            task.result()
        assert not ended, "some client ended before anything was killed"

    async def moved(self) -> None:
        for client in self.clients:
            client.has_begun.clear()
        await self.begun()

    async def end(self) -> None:
        for client in self.clients:
            client.is_stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
