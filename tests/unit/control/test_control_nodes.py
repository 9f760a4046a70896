"""Several nodes: all know a space, one has its addresses, and a node that is away holds up no other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.context import Context
from enmasse.control.control_plane import ControlPlane
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.store.writes import finish_here
from enmasse.control.users.passwords import UserPasswords
from tests.support.polling import until_async
from tests.unit.control.memory_users import MemoryUsers
from tests.unit.control.stage import Stage
from tests.unit.control.test_control_users import STANDARD, make_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]

NORTH, SOUTH = "node-0", "node-1"


PLACED = {"default/shop": NORTH, "default/hall": SOUTH}


class Pair(Stage):
    """Two nodes with their users, and the control plane before them."""

    def __init__(self, registry: Registry, make: type[Any]) -> None:
        super().__init__(registry, make())
        self.south = make()
        self.south.name = SOUTH
        self.users = MemoryUsers(), MemoryUsers()
        self.users[1].name = SOUTH
        registry.add_admission(UserPasswords())
        registry.create_catalog()

    @asynccontextmanager
    async def controlled(self, resync_s: float = 1000.0, **parts: Any) -> AsyncIterator[ControlPlane]:
        context = Context(
            self.registry,
            [self.node, self.south],
            now=lambda: "2026-01-01T00:00:00Z",
            jitter=lambda: 0.01,
            resync_s=resync_s,
            grace_s=0,
        )
        plane = ControlPlane(context, users=self.users, **parts)
        task = asyncio.create_task(plane.run())
        try:
            yield plane
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def declare_space(self, space: Resource) -> None:
        """Declare a space that has its home already, in one step."""
        with self.registry.store.transaction():
            document = self.registry.create(space)
            home = {"home": PLACED[space.key], "homeGeneration": 1}
            self.registry.store.replace(document | {"status": (document.get("status") or {}) | home})

    def entities(self) -> tuple[set[str], set[str]]:
        return set(self.node.generations()), set(self.south.generations())

    def user_names(self) -> tuple[set[str], set[str]]:
        north, south = (set(users.users) for users in self.users)
        return north, south

    def ready(self, kind: str, name: str) -> tuple[str, str, str]:
        return self.condition(kind, name, "Ready")


@pytest.fixture
def pair(registry: Registry, memory_node: type[Any]) -> Pair:
    return Pair(registry, memory_node)


def test_spaces_and_users_are_on_all_nodes_and_addresses_where_their_space_is_placed(
    pair: Pair, make_space: Make, make_address: Make
) -> None:
    async def scene() -> None:
        async with pair.controlled() as plane:
            for space in ("shop", "hall"):
                pair.declare_space(make_space(space, **STANDARD))
                pair.registry.create(make_address(space=space))
            finish_here(lambda: pair.registry.create(make_user()))
            await until_async(lambda: pair.status("Address", "hall.orders").get("isReady", False))
            await pair.settled(plane)
            assert pair.entities() == (
                {"default/shop", "default/hall", "default/shop.orders"},
                {"default/shop", "default/hall", "default/hall.orders"},
            )
            assert pair.user_names() == ({"default/shop.jo"}, {"default/shop.jo"})
            assert pair.ready("AddressSpace", "shop")[:2] == ("True", "Served")
            (broker,) = pair.status("Address", "hall.orders")["brokerStatuses"]
            assert broker["clusterId"] == SOUTH
            for space in ("shop", "hall"):
                pair.registry.delete("AddressSpace", "default", space)
            await until_async(lambda: pair.entities() == (set(), set()) and pair.user_names() == (set(), set()))
            await until_async(lambda: pair.registry.store.find("AddressSpace", "default", "shop") is None)

    asyncio.run(scene())


def test_a_node_that_is_away_holds_up_no_other_and_has_everything_when_it_is_back(
    pair: Pair, make_space: Make, make_address: Make
) -> None:
    async def scene() -> None:
        pair.south.cut()
        pair.users[1].switch(False)
        async with pair.controlled() as plane:
            for space in ("shop", "hall"):
                pair.declare_space(make_space(space, **STANDARD))
                pair.registry.create(make_address(space=space))
            finish_here(lambda: pair.registry.create(make_user()))
            await until_async(lambda: pair.status("Address", "shop.orders").get("isReady", False))
            await until_async(lambda: pair.user_names() == ({"default/shop.jo"}, set()))
            unavailable = ("False", "NodeUnavailable", "the node cannot be reached")
            await until_async(lambda: pair.ready("AddressSpace", "hall") == unavailable)
            await until_async(lambda: pair.reason("Address", "hall.orders") == "NodeUnavailable")
            await until_async(lambda: pair.ready("AddressSpace", "shop")[0] == "True")
            pair.registry.delete("Address", "default", "shop.orders")
            await until_async(lambda: pair.entities() == ({"default/shop", "default/hall"}, set()))
            pair.south.connect()
            pair.users[1].switch(True)
            await until_async(lambda: pair.status("Address", "hall.orders").get("isReady", False))
            await until_async(lambda: pair.user_names()[1] == {"default/shop.jo"})
            await until_async(lambda: pair.ready("AddressSpace", "hall")[0] == "True")
            await pair.settled(plane)

    asyncio.run(scene())


def test_a_space_stays_until_the_node_that_is_away_has_deleted_it_too(
    pair: Pair, make_space: Make, make_address: Make
) -> None:
    async def scene() -> None:
        async with pair.controlled() as plane:
            pair.declare_space(make_space("hall"))
            pair.registry.create(make_address(space="hall"))
            await until_async(lambda: pair.status("Address", "hall.orders").get("isReady", False))
            await pair.settled(plane)
            pair.south.cut()
            await until_async(lambda: plane.context.nodes[SOUTH].mirror.is_reachable is False)
            pair.registry.delete("AddressSpace", "default", "hall")
            await until_async(lambda: pair.entities() == (set(), {"default/hall", "default/hall.orders"}))
            assert pair.registry.store.find("AddressSpace", "default", "hall") is not None
            pair.south.connect()
            await until_async(lambda: pair.entities() == (set(), set()))
            await until_async(lambda: pair.registry.store.find("AddressSpace", "default", "hall") is None)

    asyncio.run(scene())


def test_a_node_of_another_installation_is_left_alone_while_the_other_is_served(
    pair: Pair, make_space: Make, make_address: Make
) -> None:
    async def scene() -> None:
        pair.south.journal_of = pair.users[1].journal_of = "another"
        async with pair.controlled() as plane:
            pair.declare_space(make_space())
            pair.registry.create(make_address())
            await until_async(lambda: pair.status("Address", "shop.orders").get("isReady", False))
            nodes = plane.context.nodes
            await until_async(lambda: bool(nodes[SOUTH].problems()))
            assert nodes[NORTH].problems() == []
            nodes[NORTH].expect("default/shop.orders")
            with pytest.raises(NodeUnavailableError, match="another"):
                nodes[SOUTH].expect("default/hall.orders")
            assert pair.south.calls == []
            with pytest.raises(NodeRefusedError):
                await nodes[SOUTH].take_in("what-somebody-was-shown-before")
            await nodes[SOUTH].take_in("another")
            await until_async(lambda: pair.entities()[1] == {"default/shop"})

    asyncio.run(scene())
