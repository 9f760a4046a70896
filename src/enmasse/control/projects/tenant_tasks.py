"""Tasks of tenants: what one of them has to wait for holds up its own work alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)


class TenantTasks(Generic[ItemT]):
    """Work for tenants, each of which has tasks of its own while there is some.

    Args:
        name: the name of the tasks, in front of the tenant's.
        do: does one item of a tenant.
        most: the most tasks that a tenant has; with 1 its items are done one after the other, in the order in which
            they came.
    """

    def __init__(self, name: str, do: Callable[[str, ItemT], Awaitable[None]], most: int = 1) -> None:
        self._name = name
        self._do = do
        self._most = most
        self._waiting: dict[str, dict[ItemT, None]] = {}
        """By tenants, the items that no task has begun."""
        self._count = 0
        self._running: Counter[str] = Counter()
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """The number of items that wait, of all tenants."""
        return self._count

    def add(self, tenant: str, item: ItemT) -> None:
        """Have an item done, unless it waits already."""
        waiting = self._waiting.setdefault(tenant, {})
        if item not in waiting:
            waiting[item] = None
            self._count += 1
            self._start(tenant)

    def give_up(self) -> tuple[str, ItemT]:
        """Take out the newest item of the tenant that has the most, as there are too many, and return both."""
        tenant = max(self._waiting, key=lambda each: len(self._waiting[each]))
        item, _ = self._waiting[tenant].popitem()
        self._count -= 1
        return tenant, item

    async def run(self) -> None:
        """Do what there is and what comes, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for tenant in list(self._waiting):
                    self._start(tenant)
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def _start(self, tenant: str) -> None:
        if self._tasks is not None and self._running[tenant] < self._most:
            self._running[tenant] += 1
            self._tasks.create_task(self._work(tenant), name=f"{self._name} of {tenant}")

    async def _work(self, tenant: str) -> None:
        try:
            waiting = self._waiting[tenant]
            while waiting:
                item = next(iter(waiting))
                del waiting[item]
                self._count -= 1
                if waiting:
                    self._start(tenant)
                await self._do(tenant, item)
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
                if not self._waiting[tenant]:
                    del self._waiting[tenant]
