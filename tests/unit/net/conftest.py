"""Coroutines as tests, and an engine that does as it is told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from enmasse.net.loop import run
from tests.support.polling import until_async


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(_supervise(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})))
    return True


async def _supervise(test: Coroutine[Any, Any, None]) -> None:
    """Run a test, and see that it leaves no task behind."""
    async with asyncio.timeout(120):
        await test
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Script:
    """An engine that records its calls and answers as its attributes say."""

    def __init__(self) -> None:
        self.wake: Callable[[Any], None] = lambda _: None
        self.out_room = 1 << 20
        self.out_bytes = 0
        self.more_out: Callable[[int], bool] = lambda _: False
        self.admits: Callable[[int], bool] = lambda _: True
        self.is_paused = False
        self.is_blocked = False
        self.is_held = False
        self.has_more = False
        self.closed = False
        self.received = bytearray()
        self.receive_times: list[float] = []
        self.out: list[bytes | memoryview] = []
        self.calls: list[str] = []
        self.flushes = 0
        self.deadline: float | None = None
        self.deadlines: list[float] = []
        self.on_receive: Callable[[bytes], None] = lambda _: None

    def put(self, chunk: bytes) -> None:
        self.wake(self)
        self.out.append(chunk)

    def receive(self, data: bytes, now: float) -> None:
        self.received += data
        self.receive_times.append(now)
        self.on_receive(data)

    def pending_output(self) -> list[bytes | memoryview]:
        self.flushes += 1
        out, self.out = self.out, []
        return out

    def next_deadline(self) -> float | None:
        return self.deadline

    def handle_deadline(self, now: float) -> None:
        self.deadlines.append(now)
        self.deadline = None

    def block_output(self) -> None:
        self.is_blocked = True
        self.calls.append("block")

    def resume_output(self) -> None:
        self.is_blocked = False
        self.calls.append("resume")

    def lost(self) -> None:
        self.calls.append("lost")


@pytest.fixture(name="until")
def until_fixture() -> Any:
    return until_async


@pytest.fixture
def script() -> Callable[[], Script]:
    return Script
