"""What control knows of a node: told once, kept up by itself, asked for again only when there is a reason."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import NodeRefusedError
from enmasse.control.ports import AddressEntity, SpaceEntity
from enmasse.control.runtime.node_mirror import NodeMirror
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHOP = SpaceEntity("default/shop", "standard", "none", "uid-1", 1)
ORDERS = AddressEntity("default/shop.orders", "default/shop", "orders", "queue", "", 0, "uid-2", 1)
BILLS = AddressEntity("default/shop.bills", "default/shop", "bills", "queue", "", 0, "uid-3", 1)


class Heard:
    """A mirror, and what it told."""

    def __init__(self, node: Any, resync_s: float) -> None:
        self.node = node
        self.changed: list[tuple[str, str]] = []
        self.reached: list[bool] = []
        self.observed = 0
        self.mirror = NodeMirror(
            node,
            admit=self._admit,
            resync_s=resync_s,
            changed=lambda kind, name: self.changed.append((kind, name)),
            reached=self.reached.append,
            observed=self._observed,
        )

    async def _admit(self) -> None:
        await self.node.installation()

    def _observed(self) -> None:
        self.observed += 1


@asynccontextmanager
async def mirrored(node: Any, resync_s: float = 1000.0) -> AsyncIterator[Heard]:
    heard = Heard(node, resync_s)
    task = asyncio.create_task(heard.mirror.run())
    try:
        await until_async(lambda: heard.mirror.is_complete)
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_what_a_node_has_at_first_is_no_news_and_what_it_has_otherwise_is(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        await node.create(SHOP)
        await node.create(ORDERS)
        async with mirrored(node, resync_s=0.005) as heard:
            assert heard.changed == []
            assert heard.mirror.names_in("address", "default/shop") == ("default/shop.orders",)
            await heard.mirror.perform("create", BILLS)
            node.forget(ORDERS.name)
            await until_async(lambda: heard.changed == [("address", ORDERS.name)])
            assert await heard.mirror.find("address", ORDERS.name) is None
            assert heard.mirror.names("address") == (BILLS.name,)

    asyncio.run(body())


def test_a_port_that_a_node_cannot_open_is_news_that_a_change_of_the_space_does_not_lose(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        await node.create(SHOP)
        async with mirrored(node, resync_s=0.005) as heard:
            for problem in ("port 31007 is taken", ""):
                heard.changed.clear()
                node.problems[SHOP.name] = problem
                node.changes += 1
                await until_async(lambda: heard.changed == [("space", SHOP.name)])
                await heard.mirror.perform("update", SHOP)
                found = await heard.mirror.find("space", SHOP.name)
                assert found is not None
                assert found.problem == problem

    asyncio.run(body())


def test_nothing_is_asked_twice_while_nothing_drifts(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        async with mirrored(node, resync_s=0.002) as heard:
            await heard.mirror.perform("create", SHOP)
            await heard.mirror.perform("create", ORDERS)
            await heard.mirror.perform("update", ORDERS)
            await heard.mirror.perform("delete", ORDERS)
            questions = node.questions
            await until_async(lambda: node.questions > questions + 5)
            assert (heard.observed, heard.changed) == (1, [])

    asyncio.run(body())


def test_a_connection_that_was_lost_for_a_moment_changes_nothing(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        async with mirrored(node) as heard:
            await heard.mirror.perform("create", SHOP)
            node.connect()  # again, without a word of the loss
            await until_async(lambda: len(heard.reached) == 2)
            assert (heard.mirror.is_complete, heard.observed) == (True, 1)
            node.cut(lose=True)
            await until_async(lambda: heard.reached[-1] is False)
            node.connect()
            await until_async(lambda: heard.observed == 2)
            assert heard.changed == [("space", SHOP.name)]

    asyncio.run(body())


def test_what_is_done_while_a_node_tells_counts_more_than_what_it_told(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        await node.create(SHOP)
        await node.create(ORDERS)
        told, wait = asyncio.Event(), asyncio.Event()
        observe = node.observe

        async def slowly(kind: Any) -> AsyncIterator[Any]:
            pages = [page async for page in observe(kind)]
            told.set()
            await wait.wait()
            for page in pages:
                yield page

        node.observe = slowly
        heard = Heard(node, 1000.0)
        task = asyncio.create_task(heard.mirror.run())
        await told.wait()
        await heard.mirror.perform("delete", ORDERS)
        await heard.mirror.perform("create", BILLS)
        wait.set()
        await until_async(lambda: heard.mirror.is_complete)
        assert heard.mirror.names("address") == (BILLS.name,)
        assert await heard.mirror.find("address", ORDERS.name) is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())


def test_what_a_node_refuses_is_asked_for(memory_node: Any) -> None:
    async def body() -> None:
        node = memory_node()
        async with mirrored(node) as heard:
            await heard.mirror.perform("create", SHOP)
            await node.create(ORDERS)
            with pytest.raises(NodeRefusedError, match="exists already"):
                await heard.mirror.perform("create", ORDERS)
            found = await heard.mirror.find("address", ORDERS.name)
            assert found is not None
            assert found.uid == ORDERS.uid

    asyncio.run(body())


def test_what_a_node_had_before_it_was_lost_is_not_taken_for_granted(memory_node: Any) -> None:
    async def scene() -> None:
        node = memory_node()
        async with mirrored(node) as heard:
            for entity in (SHOP, ORDERS, BILLS):
                await heard.mirror.perform("create", entity)
            node.cut(lose=True)
            await until_async(lambda: heard.reached[-1] is False)
            told, observe = asyncio.Event(), node.observe

            async def observe_later(kind: str) -> AsyncIterator[Any]:
                await told.wait()
                async for page in observe(kind):
                    yield page

            node.observe = observe_later
            node.connect()
            await until_async(lambda: heard.reached[-1] is True)
            assert await heard.mirror.find("address", ORDERS.name) is None
            told.set()
            await until_async(lambda: heard.mirror.is_complete)
            assert await heard.mirror.find("address", BILLS.name) is None

    asyncio.run(scene())
