"""What control asks of the engines that carry messages.

Entities are what a node is told: resources with all defaults and references
resolved, in the words of the node's management.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["AddressEntity", "Entity", "NodeAdmin", "NodeState", "SpaceEntity"]


@dataclass(frozen=True, slots=True)
class SpaceEntity:
    """A space as a node has it.

    Attributes:
        name: ``<namespace>/<space>``.
        space_type: ``standard`` or ``brokered``.
        authentication: the kind of authentication service.
        uid: of the AddressSpace.
        generation: of its spec, as the node knows it.
    """

    name: str
    space_type: str
    authentication: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class AddressEntity:
    """An address as a node has it.

    Attributes:
        name: ``<namespace>/<object name>``.
        space: ``<namespace>/<space>``.
        address: what applications call it.
        address_type: one of the types of the model.
        topic: of a subscription, the address of its topic; else empty.
        partitions: of a stream; else 0.
        max_consumers: of a subscription; else 0, without limit.
        uid: of the Address.
        generation: of its spec, as the node knows it.
    """

    name: str
    space: str
    address: str
    address_type: str
    topic: str
    partitions: int
    max_consumers: int
    uid: str
    generation: int


Entity = SpaceEntity | AddressEntity


@dataclass(frozen=True, slots=True)
class NodeState:
    """All entities that a node has, by name."""

    spaces: dict[str, SpaceEntity] = field(default_factory=dict)
    addresses: dict[str, AddressEntity] = field(default_factory=dict)


class NodeAdmin(Protocol):
    """The way to tell one node what should be, and to see what is.

    Every method but ``connections`` raises ``NodeUnavailableError`` when the
    node cannot be reached, and ``NodeRefusedError`` when it says no.
    """

    @property
    def name(self) -> str:
        """The node's name."""

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    async def observe(self) -> NodeState:
        """Return all that the node has now."""

    async def create(self, entity: Entity) -> None:
        """Add an entity."""

    async def update(self, entity: Entity) -> None:
        """Give an entity new attributes, with its contents left as they are."""

    async def delete(self, entity: Entity) -> None:
        """Remove an entity and its contents; one that is not there is removed already."""
