"""The model of the journal keeps the contract of the journal, also while its process dies again and again."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from enmasse.testing.memory_storage import RecordingListener
from enmasse.testing.simulated_storage import SimulatedStorage
from enmasse.testing.storage_contract import STORAGE_CHECKS
from tests.support.faults import FaultRates, JournalFaults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.testing.storage_contract import StorageHarness


class SimulatedHarness:
    def __init__(self, rates: FaultRates) -> None:
        self.listener = RecordingListener()
        self.storage = SimulatedStorage(self.listener)
        self.faults = JournalFaults(Random(1), rates)

    async def settle(self) -> None:
        while not self.storage.is_idle:
            self.faults.step(self.storage)

    async def reopen(self) -> None:
        self.storage.settle()
        self.listener = RecordingListener()
        self.storage = self.storage.crash()
        self.storage.listener = self.listener


@pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("deaths", [0.0, 0.3], ids=["in_peace", "with_deaths"])
def test_the_simulated_storage_keeps_the_contract(
    check: Callable[[StorageHarness], Awaitable[None]], deaths: float
) -> None:
    async def run() -> None:
        await check(SimulatedHarness(FaultRates(journal_death=deaths, short_read=0.5)))

    asyncio.run(run())
