"""A store on disk, a registry with a counting clock, and a node in memory."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import Entity, NodeState, SpaceEntity
from enmasse.control.registry import Registry
from enmasse.control.store import ResourceStore
from enmasse.model.kinds import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from enmasse.model.resource import Resource


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResourceStore]:
    with ResourceStore(tmp_path / "resources.db") as opened:
        yield opened


@pytest.fixture
def registry(store: ResourceStore) -> Registry:
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
        self.is_up = True
        self.questions = 0
        self._changed = asyncio.Event()

    def connect(self) -> None:
        self.is_up = True
        self._changed.set()

    def cut(self, *, lose: bool = False) -> None:
        self.is_up = False
        if lose:
            self.state = NodeState()
        self._changed.set()

    async def connections(self) -> AsyncIterator[bool]:
        while True:
            yield self.is_up
            await self._changed.wait()
            self._changed.clear()

    async def observe(self) -> NodeState:
        await self._turn()
        self.questions += 1
        return NodeState(dict(self.state.spaces), dict(self.state.addresses))

    async def create(self, entity: Entity) -> None:
        await self._told("create", entity)
        if entity.name in self._table(entity):
            raise NodeRefusedError(409, f"{entity.name} exists already")
        self._table(entity)[entity.name] = entity

    async def update(self, entity: Entity) -> None:
        await self._told("update", entity)
        if entity.name not in self._table(entity):
            raise NodeRefusedError(404, f"there is no {entity.name}")
        self._table(entity)[entity.name] = entity

    async def delete(self, entity: Entity) -> None:
        await self._told("delete", entity)
        self._table(entity).pop(entity.name, None)

    def forget(self, name: str) -> None:
        """Lose an entity behind the controller's back."""
        self.state.spaces.pop(name, None)
        self.state.addresses.pop(name, None)

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

    def _table(self, entity: Entity) -> Any:
        return self.state.spaces if isinstance(entity, SpaceEntity) else self.state.addresses


@pytest.fixture
def memory_node() -> type[MemoryNode]:
    return MemoryNode
