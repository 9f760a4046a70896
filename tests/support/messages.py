"""Nodes' messages for tests of the API without a node."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from enmasse.client import Message, Outcome
    from enmasse.control.ports import BrowsedMessage, Browsing, MessageChoice, MessagePage
    from enmasse.errors import EnmasseError


class NoMessages:
    """A node that nobody may ask."""

    async def purge(self, name: str, choice: MessageChoice) -> int:
        raise AssertionError(name)

    async def move(self, name: str, to: str, choice: MessageChoice) -> int:
        raise AssertionError(name)

    async def replay(self, name: str, choice: MessageChoice) -> int:
        raise AssertionError(name)

    async def browse(self, name: str, wanted: Browsing) -> MessagePage:
        raise AssertionError(name)

    @asynccontextmanager
    async def follow(self, name: str, wanted: Browsing) -> AsyncIterator[AsyncIterator[BrowsedMessage]]:
        if name:
            raise AssertionError(name)
        yield aiter(())  # type: ignore[arg-type]  # never

    async def receive(self, name: str, limit: int, wait_s: float) -> list[BrowsedMessage]:
        raise AssertionError(name)

    async def send(self, name: str, messages: Sequence[Message]) -> list[Outcome | EnmasseError]:
        raise AssertionError(name)
