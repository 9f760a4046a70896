"""A store in memory, a registry with a counting clock, and a node in memory."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import (
    AddressEntity,
    Entity,
    EntityType,
    LogNumbers,
    NodeRevision,
    NodeState,
    ObservedEntity,
    SpaceEntity,
)
from enmasse.control.store.port import Store
from enmasse.control.store.registry import Registry
from enmasse.model.schema.objects import decode
from tests.support.memory_resources import MemoryResources
from tests.unit.control.stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from enmasse.control.ports import LogRange
    from enmasse.model.schema.resource import Resource


@pytest.fixture
def store() -> Store:
    return MemoryResources()


@pytest.fixture
def registry(store: Store) -> Registry:
    seconds, uids = itertools.count(), itertools.count(1)
    return Registry(
        store,
        now=lambda: f"2026-01-01T00:00:{next(seconds) % 60:02}Z",
        new_uid=lambda: f"uid-{next(uids)}",
    )


@pytest.fixture
def make_space() -> Callable[..., Resource]:
    def make(name: str = "shop", *, namespace: str = "default", **spec: Any) -> Resource:
        return decode(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "AddressSpace",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
        )

    return make


@pytest.fixture
def make_address() -> Callable[..., Resource]:
    def make(
        address: str = "orders", kind: str = "queue", *, space: str = "shop", name: str = "", **spec: Any
    ) -> Resource:
        return decode(
            {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "Address",
                "metadata": {"name": f"{space}.{name or address}", "namespace": "default"},
                "spec": {"address": address, "type": kind} | spec,
            }
        )

    return make


class MemoryNode:
    """A node that keeps entities in memory, and can be killed, cut off and made to refuse."""

    name = "node-0"

    def __init__(self) -> None:
        self.state = NodeState()
        self.calls: list[tuple[str, str]] = []
        self.refused: dict[str, tuple[int, str]] = {}
        self.problems: dict[str, str] = {}
        """The reasons why ports of spaces are not open."""
        self.connectors: dict[str, tuple[tuple[str, str], ...]] = {}
        """The last problem of each connector of spaces."""
        self.pending: dict[tuple[str, str], str] = {}
        """Space and address of what waits, with the reason that was told."""
        self.is_up = True
        self.questions = 0
        self.changes = 0
        self.instance = "first"
        self.journal_of = ""
        """The installation that its journal belongs to."""
        self.numbers = LogNumbers(1, None, 0)
        self.refused_lease: NodeRefusedError | None = None
        self._changed = asyncio.Event()

    def connect(self) -> None:
        self.is_up = True
        self._changed.set()

    def cut(self, *, lose: bool = False) -> None:
        self.is_up = False
        if lose:
            self.state = NodeState()
            self.pending = {}
            self.instance += " and another"
        self._changed.set()

    async def connections(self) -> AsyncIterator[bool]:
        while True:
            yield self.is_up
            await self._changed.wait()
            self._changed.clear()

    def digest(self, entity: Entity) -> str:
        return repr(entity)

    async def revision(self) -> NodeRevision:
        await self._turn()
        self.questions += 1
        return NodeRevision(self.instance, self.changes, self.journal_of)

    async def installation(self) -> str:
        await self._turn()
        return self.journal_of

    async def since(self) -> str:
        await self._turn()
        return ""

    async def join(self, installation: str) -> None:
        await self._turn()
        if self.journal_of not in ("", installation):
            raise NodeRefusedError(409, f"the journal belongs to {self.journal_of}")
        self.journal_of = installation

    async def take_over(self, former: str, installation: str) -> None:
        await self._turn()
        if self.journal_of != former:
            raise NodeRefusedError(409, f"the journal belongs to {self.journal_of}")
        self.journal_of = installation

    async def log_numbers(self) -> LogNumbers | None:
        await self._turn()
        return self.numbers

    async def lease_logs(self, installation: str, ranges: Sequence[LogRange], given: int) -> None:
        await self._turn()
        if installation != self.journal_of:
            raise NodeRefusedError(409, f"the journal belongs to {self.journal_of}")
        if self.refused_lease is not None:
            raise self.refused_lease
        held = sorted({*(self.numbers.ranges or ()), *ranges})
        self.numbers = LogNumbers(max(self.numbers.next, held[0][0]), held, max(given, self.numbers.given))

    async def find_space(self, name: str) -> SpaceEntity | None:
        await self._turn()
        return self.state.spaces.get(name)

    async def observe(self, kind: EntityType) -> AsyncIterator[list[ObservedEntity]]:
        await self._turn()
        for entity in list(self._tables()[kind].values()):
            yield [self._seen(entity)]

    async def find(self, kind: EntityType, name: str) -> ObservedEntity | None:
        await self._turn()
        entity = self._tables()[kind].get(name)
        return None if entity is None else self._seen(entity)

    async def find_address(self, name: str) -> AddressEntity | None:
        await self._turn()
        return self.state.addresses.get(name)

    async def set_pending(self, space: str, address: str, reason: str) -> None:
        await self._turn()
        self.pending.pop((space, address), None)
        if reason:
            self.pending[space, address] = reason

    async def create(self, entity: Entity) -> bool:
        await self._told("create", entity)
        if entity.name in self._table(entity):
            raise NodeRefusedError(409, f"{entity.name} exists already")
        if isinstance(entity, AddressEntity) and entity.space not in self.state.spaces:
            raise NodeRefusedError(404, f"there is no space {entity.space}")
        self._table(entity)[entity.name] = entity
        self.changes += 1
        return True

    async def update(self, entity: Entity) -> bool:
        await self._told("update", entity)
        if entity.name not in self._table(entity):
            raise NodeRefusedError(404, f"there is no {entity.name}")
        self._table(entity)[entity.name] = entity
        self.changes += 1
        return True

    async def delete(self, entity: Entity) -> bool:
        await self._told("delete", entity)
        present = self._table(entity).get(entity.name)
        if present is None:
            return False
        if present.uid != entity.uid:
            raise NodeRefusedError(409, f"{entity.name} has uid {present.uid}, not {entity.uid}")
        del self._table(entity)[entity.name]
        self.changes += 1
        return True

    def forget(self, name: str) -> None:
        """Lose an entity behind the controller's back."""
        self.state.spaces.pop(name, None)
        self.state.addresses.pop(name, None)
        self.changes += 1

    def generations(self) -> dict[str, int]:
        entities = (self.state.spaces | self.state.addresses).values()
        return {entity.name: entity.generation for entity in entities}

    async def _told(self, action: str, entity: Entity) -> None:
        await self._turn()
        self.calls.append((action, entity.name))
        if entity.name in self.refused:
            raise NodeRefusedError(*self.refused[entity.name])

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if not self.is_up:
            raise NodeUnavailableError("the node is down")

    def _tables(self) -> dict[EntityType, dict[str, Any]]:
        return {"space": self.state.spaces, "address": self.state.addresses}

    def _table(self, entity: Entity) -> dict[str, Any]:
        return self._tables()[entity.entity_type]

    def _seen(self, entity: Entity) -> ObservedEntity:
        name = entity.name
        problem, connectors = self.problems.get(name, ""), self.connectors.get(name, ())
        return ObservedEntity(name, entity.uid, self.digest(entity), problem, connectors)


@pytest.fixture
def memory_node() -> type[MemoryNode]:
    return MemoryNode


@pytest.fixture
def perform(registry: Registry, memory_node: Any) -> Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]:
    """Run a scene on a stage whose registry holds the default plans."""

    def run(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        async def body() -> None:
            registry.create_catalog()
            await scene(Stage(registry, memory_node()))

        asyncio.run(body())

    return run
