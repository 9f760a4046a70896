"""Work for tenants, each of which has tasks of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from enmasse.control.projects.tenant_tasks import TenantTasks
from tests.support.polling import PATIENCE_S


@pytest.mark.parametrize("most", [1, 2])
def test_a_tenant_has_so_many_tasks_and_holds_up_no_other(most: int) -> None:
    begun: list[tuple[str, str]] = []
    done: list[tuple[str, str]] = []

    async def story() -> None:
        gate, changed = asyncio.Event(), asyncio.Event()

        async def do(tenant: str, item: str) -> None:
            begun.append((tenant, item))
            changed.set()
            if tenant == "slow":
                await gate.wait()
            done.append((tenant, item))
            changed.set()

        async def until_done(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while len(done) < count:
                    changed.clear()
                    await changed.wait()

        tasks = TenantTasks("tests", do, most)
        for item in "abca":
            tasks.add("slow", item)
        running = asyncio.create_task(tasks.run())
        await asyncio.sleep(0)
        for item in "de":
            tasks.add("quick", item)
        await until_done(2)
        assert done == [("quick", "d"), ("quick", "e")]
        assert [item for tenant, item in begun if tenant == "slow"] == list("abc"[:most])
        # One that has begun may be asked for again.
        tasks.add("slow", "a")
        assert len(tasks) == 4 - most
        assert tasks.give_up() == ("slow", "a")
        gate.set()
        await until_done(5)
        assert [item for tenant, item in begun if tenant == "slow"] == list("abc")
        assert len(tasks) == 0
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())


def test_what_is_too_much_is_given_up_by_who_has_the_most() -> None:
    async def do(_tenant: str, _item: str) -> None:
        raise AssertionError("it is not run")

    tasks = TenantTasks("tests", do)
    for item in "abc":
        tasks.add("many", item)
    tasks.add("few", "d")
    assert [tasks.give_up() for _ in range(2)] == [("many", "c"), ("many", "b")]
    assert len(tasks) == 2
