"""The API over a store in a temporary directory, called without a socket."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.errors import EnmasseError
from tests.support.empty_databases import copied
from tests.support.messages import NoMessages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from enmasse.control.ports import MessageChoice

T = TypeVar("T")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutines as tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    uids = itertools.count(1)
    with ResourceStore(copied(ResourceStore, tmp_path / "resources.db"), history=50) as store:
        yield Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"uid-{next(uids)}")


class MemoryMessages(NoMessages):
    """A node that has 3 messages wherever it is asked, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.error: EnmasseError | None = None

    async def purge(self, name: str, choice: MessageChoice) -> int:
        return self._answer("purge", name, choice)

    async def move(self, name: str, to: str, choice: MessageChoice) -> int:
        return self._answer("move", name, to, choice)

    async def replay(self, name: str, choice: MessageChoice) -> int:
        return self._answer("replay", name, choice)

    def _answer(self, *call: object) -> int:
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        return 3


class Api:
    """Sends requests to one application, all in one loop."""

    def __init__(self, registry: Registry, runner: asyncio.Runner) -> None:
        self.registry = registry
        self.messages = MemoryMessages()
        self.app = create_app(
            ApiParts(registry=registry, stop=asyncio.Event(), nodes={"node-0": NodeAccess(messages=self.messages)})
        )
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
