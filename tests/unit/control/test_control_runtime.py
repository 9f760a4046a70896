"""The runtime of controllers: changes become keys, keys are reconciled, and nothing holds up the rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.runtime.controller import Controller, Runtime
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.port import Change, Store
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]


class Names(Controller):
    """Turns each change into the name of its object, and notes what it reconciles."""

    name = "names"

    def __init__(self, jitter: float = 1.0) -> None:
        super().__init__(jitter=lambda: jitter)
        self.seen: list[str] = []

    def load(self, store: Store) -> None:
        for document in store.select("AddressSpace"):
            self.enqueue(document["metadata"]["name"])

    def apply(self, change: Change) -> None:
        if change.document["kind"] == "AddressSpace":
            self.enqueue(change.document["metadata"]["name"])

    async def reconcile(self, key: str) -> bool:
        self.seen.append(key)
        if key == "long":
            await asyncio.Event().wait()
        if key == "broken" and self.seen.count(key) == 1:
            raise RuntimeError("the first time fails")
        return key != "unsettled" or self.seen.count(key) > 1


def test_what_is_there_and_what_comes_is_reconciled(registry: Registry, make_space: Make) -> None:
    async def body() -> None:
        names = Names()
        runtime = Runtime(registry.store)
        runtime.add(names)
        registry.create(make_space("before"))
        task = asyncio.create_task(runtime.run())
        await until_async(lambda: names.seen == ["before"])
        registry.create(make_space("after"))
        await until_async(lambda: names.seen == ["before", "after"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())


def test_a_key_that_fails_comes_again_and_one_that_takes_long_holds_up_nobody() -> None:
    async def body() -> None:
        names = Names(jitter=0.01)
        for key in ("long", "broken", "unsettled", "good"):
            names.enqueue(key)
        names.enqueue("background", background=True)
        task = asyncio.create_task(names.run())
        expected = sorted(["long", *["broken"] * 2, *["unsettled"] * 2, "good", "background"])
        await until_async(lambda: sorted(names.seen) == expected)
        assert len(names) == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())
