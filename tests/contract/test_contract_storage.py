"""One contract, two storages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.storage.link import JournalLink
from enmasse.testing.memory_storage import MemoryStorage, RecordingListener
from enmasse.testing.storage_contract import STORAGE_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.testing.storage_contract import StorageHarness


class MemoryHarness:
    def __init__(self) -> None:
        self.listener = RecordingListener()
        self.storage = MemoryStorage(self.listener)

    async def settle(self) -> None:
        self.storage.commit()

    async def reopen(self) -> None:
        self.listener = RecordingListener()
        self.storage = self.storage.crash()
        self.storage.listener = self.listener


class JournalHarness:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.listener = RecordingListener()
        self.storage = JournalLink(directory)

    async def start(self) -> None:
        self.listener = RecordingListener()
        self.storage = JournalLink(self.directory)
        await self.storage.start(self.listener)

    async def settle(self) -> None:
        deadline = time.monotonic() + 30
        while self.storage.unconfirmed_bytes or self.storage.waiting_reads:
            assert time.monotonic() < deadline, "batches or reads were not answered"
            await asyncio.sleep(0.001)

    async def reopen(self) -> None:
        await self.storage.stop()
        await self.start()


@pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_memory_storage_keeps_the_contract(check: Callable[[StorageHarness], Awaitable[None]]) -> None:
    async def run() -> None:
        await check(MemoryHarness())

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_journal_keeps_the_contract(check: Callable[[StorageHarness], Awaitable[None]], tmp_path: Path) -> None:
    async def run() -> None:
        harness = JournalHarness(tmp_path / "journal")
        await harness.start()
        try:
            await check(harness)
        finally:
            await harness.storage.stop()

    asyncio.run(run())
