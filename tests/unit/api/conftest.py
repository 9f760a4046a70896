"""The API over a store in a temporary directory, called without a socket."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from enmasse.api.app import create_app
from enmasse.control.registry import Registry
from enmasse.control.store import ResourceStore
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

T = TypeVar("T")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    uids = itertools.count(1)
    with ResourceStore(tmp_path / "resources.db", history=50) as store:
        yield Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")


class MemoryMessages:
    """A node that has 3 messages wherever it is asked, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, ...]] = []
        self.error: EnmasseError | None = None

    async def purge(self, name: str, selector: str | None) -> int:
        return self._answer("purge", name, selector)

    async def move(self, name: str, to: str, selector: str | None) -> int:
        return self._answer("move", name, to, selector)

    async def replay(self, name: str, selector: str | None) -> int:
        return self._answer("replay", name, selector)

    def _answer(self, *call: str | None) -> int:
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        return 3


class Api:
    """Sends requests to one application, all in one loop."""

    def __init__(self, registry: Registry, runner: asyncio.Runner) -> None:
        self.registry = registry
        self.messages = MemoryMessages()
        self.app = create_app(registry, asyncio.Event(), self.messages)
        self._runner = runner

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def body(client: httpx.AsyncClient) -> httpx.Response:
            return await client.request(method, path, **options)

        return self.talk(body)

    def talk(self, conversation: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """Have somebody send what they like, and return what they return."""

        async def body() -> T:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await conversation(client)

        return self._runner.run(body())


@pytest.fixture
def api(registry: Registry) -> Iterator[Api]:
    with asyncio.Runner() as runner:
        yield Api(registry, runner)
