"""The runtime of controllers: changes become keys, keys become looks, and nothing holds up the rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.runtime import Controller, Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.registry import Registry
    from enmasse.control.store import Change, ResourceStore
    from enmasse.model.resource import Resource

    Make = Callable[..., Resource]


class Names:
    """Turns each change into the name of its object."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def load(self, store: ResourceStore) -> None:
        for document in store.select("AddressSpace"):
            self._controller.look_at(document["metadata"]["name"])

    def apply(self, change: Change) -> None:
        self._controller.look_at(change.document["metadata"]["name"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def test_what_is_there_and_what_comes_is_looked_at(registry: Registry, make_space: Make) -> None:
    seen: list[str] = []

    async def look(key: str) -> bool:
        seen.append(key)
        return True

    async def body() -> None:
        controller = Controller("names", look, jitter=lambda: 1.0)
        runtime = Runtime(registry.store)
        runtime.add(controller)
        runtime.listen(Names(controller))
        registry.create(make_space("before"))
        task = asyncio.create_task(runtime.run())
        await until(lambda: seen == ["before"])
        registry.create(make_space("after"))
        await until(lambda: seen == ["before", "after"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())


def test_a_look_that_fails_comes_again_and_one_that_takes_long_holds_up_nobody() -> None:
    seen: list[str] = []

    async def look(key: str) -> bool:
        seen.append(key)
        if key == "long":
            await asyncio.Event().wait()
        if key == "broken" and seen.count(key) == 1:
            raise RuntimeError("the first look fails")
        return key != "unsettled" or seen.count(key) > 1

    async def body() -> None:
        controller = Controller("names", look, jitter=lambda: 0.01)
        for key in ("long", "broken", "unsettled", "good"):
            controller.look_at(key)
        controller.look_at("background", background=True)
        task = asyncio.create_task(controller.run())
        await until(
            lambda: sorted(seen) == sorted(["long", *["broken"] * 2, *["unsettled"] * 2, "good", "background"])
        )
        assert len(controller) == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())
