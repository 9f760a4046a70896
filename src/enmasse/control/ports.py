"""What control asks of the engines that carry messages.

Entities are what a node is told: resources with all defaults and references
resolved, in the words of the node's management.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = [
    "ENTITY_TYPES",
    "Action",
    "AddressEntity",
    "AddressSettings",
    "Entity",
    "EntityType",
    "FiguresSource",
    "JournalOwner",
    "MessageAdmin",
    "NodeAdmin",
    "NodeFigures",
    "NodeRevision",
    "NodeState",
    "SessionAdmin",
    "Sighting",
    "SpaceEntity",
    "SpaceLimitSettings",
]

Action = Literal["create", "update", "delete"]
EntityType = Literal["space", "address"]

ENTITY_TYPES: tuple[EntityType, ...] = ("space", "address")
"""In the order in which a node is told of them."""


@dataclass(frozen=True, slots=True)
class SpaceLimitSettings:
    """What a node lets a whole space have; 0 is without limit.

    Attributes:
        max_connections: connections at a time.
        max_devices: distinct container ids that are connected at a time.
        max_links: links at a time, over all connections.
        max_message_rate: messages that its senders send, per second.
        max_byte_rate: bytes of these, per second.
        max_message_size: bytes of one message.
        max_ttl: milliseconds that a stored message may wait.
    """

    max_connections: int = 0
    max_devices: int = 0
    max_links: int = 0
    max_message_rate: int = 0
    max_byte_rate: int = 0
    max_message_size: int = 0
    max_ttl: int = 0


@dataclass(frozen=True, slots=True)
class SpaceEntity:
    """A space as a node has it.

    Attributes:
        name: ``<namespace>/<space>``.
        space_type: ``standard`` or ``brokered``.
        authentication: the kind of authentication service.
        uid: of the AddressSpace.
        generation: of its spec, as the node knows it.
        max_bytes: what its queues, subscriptions and streams may store together; 0 is without limit.
        limits: what else bounds it.
        hosts: names beside ``<space>.<namespace>.<domain>`` that stand for it.
        port: where its clients need not name it; 0 for none of its own.
        oidc: what is agreed with the provider that knows its users; None where there is none.
    """

    entity_type: ClassVar[EntityType] = "space"

    name: str
    space_type: str
    authentication: str
    uid: str
    generation: int
    max_bytes: int = 0
    limits: SpaceLimitSettings = SpaceLimitSettings()
    hosts: tuple[str, ...] = ()
    port: int = 0
    oidc: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """What of an address can be changed while it runs; the defaults are the node's own.

    Attributes:
        max_bytes: what it may store; 0 leaves that to the node.
        max_consumers: receivers at a time; 0 is without limit.
        full_policy: what happens when ``max_bytes`` are stored: block, reject or drop-oldest.
        slow_policy: of a topic or multicast address, what happens to a receiver that falls behind; the
            default stands for either's own.
        distribution: of an anycast address, which receiver gets the next message.
        fallback: of a direct address, the queue for what nobody receives; empty: none.
        ttl_minimum: milliseconds that messages may wait at least; 0 is none.
        ttl_maximum: milliseconds that messages may wait at most; 0 is without limit.
        max_attempts: failed deliveries that make a dead letter; 0 is without limit.
        redelivery_delay: milliseconds before the first repetition.
        redelivery_multiplier: by how much each further delay is longer.
        max_redelivery_delay: milliseconds that no delay exceeds; 0 is without limit.
        dead_letter: where dead letters go; empty: nowhere.
        expiry: where messages go whose time is over; empty: nowhere.
        exclusive: whether one receiver gets everything.
        last_value_key: keep only the latest message of each key; empty: keep all.
        retention_bytes: how much of a stream is kept; 0 is without limit.
        retention_ms: for how long a stream is kept; 0 is without limit.
        max_links: senders and receivers at a time; 0 is without limit.
        max_senders: senders at a time; 0 is without limit.
        max_receivers: receivers at a time, of whatever type the address is; 0 is without limit.
        max_message_rate: messages per second that senders send to it; 0 is without limit.
        max_byte_rate: bytes of these; 0 is without limit.
        max_message_size: bytes of one message; 0 leaves that to the space.
    """

    max_bytes: int = 0
    max_consumers: int = 0
    full_policy: str = "block"
    slow_policy: str = "drop-oldest"
    ttl_minimum: int = 0
    ttl_maximum: int = 0
    max_attempts: int = 0
    redelivery_delay: int = 0
    redelivery_multiplier: float = 1.0
    max_redelivery_delay: int = 0
    dead_letter: str = ""
    expiry: str = ""
    exclusive: bool = False
    last_value_key: str = ""
    retention_bytes: int = 0
    retention_ms: int = 0
    distribution: str = "balanced"
    fallback: str = ""
    max_links: int = 0
    max_senders: int = 0
    max_receivers: int = 0
    max_message_rate: int = 0
    max_byte_rate: int = 0
    max_message_size: int = 0


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
        uid: of the Address.
        generation: of its spec, as the node knows it.
        storage: what survives a restart: message, memory or durable.
        settings: all that can be changed.
    """

    entity_type: ClassVar[EntityType] = "address"

    name: str
    space: str
    address: str
    address_type: str
    topic: str
    partitions: int
    uid: str
    generation: int
    storage: str = "message"
    settings: AddressSettings = AddressSettings()


Entity = SpaceEntity | AddressEntity


@dataclass(frozen=True, slots=True)
class NodeState:
    """All entities that a node has, by name."""

    spaces: dict[str, SpaceEntity] = field(default_factory=dict)
    addresses: dict[str, AddressEntity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What identifies an entity of a node, and everything that it was told of it.

    Attributes:
        name: the entity's name.
        uid: of the resource that it was made for.
        digest: the same for entities whose attributes are the same.
    """

    name: str
    uid: str
    digest: str


@dataclass(frozen=True, slots=True)
class NodeRevision:
    """How often a node's entities have changed.

    Attributes:
        instance: another one whenever the node was started.
        changes: to its entities since then.
        installation: the id of the installation that its journal belongs to; empty: to none yet.
    """

    instance: str
    changes: int
    installation: str = ""

    def next(self) -> NodeRevision:
        """Return the revision after one more change."""
        return NodeRevision(self.instance, self.changes + 1, self.installation)


class JournalOwner(Protocol):
    """The way to ask to which installation the journal of a node belongs; errors are those of ``NodeAdmin``."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def installation(self) -> str:
        """Return the id of its installation; empty: it belongs to none yet."""

    async def since(self) -> str:
        """Return since when it belongs to that, RFC 3339; empty: it belongs to none."""

    async def join(self, installation: str) -> None:
        """Have it belong to an installation, unless it belongs to another one."""

    async def take_over(self, former: str, installation: str) -> None:
        """Have it belong to an installation instead of another one, which it belongs to now."""


class NodeAdmin(JournalOwner, Protocol):
    """The way to tell one node what should be, and to see what is.

    Every method but ``connections`` raises ``NodeUnavailableError`` when the
    node cannot be reached, and ``NodeRefusedError`` when it says no.
    """

    @property
    def name(self) -> str:
        """The node's name."""

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    def digest(self, entity: Entity) -> str:
        """Return the digest of the entity that a node has once it was told of this one."""

    async def revision(self) -> NodeRevision:
        """Return how often the node's entities have changed."""

    def observe(self, kind: EntityType) -> AsyncIterator[list[Sighting]]:
        """Yield all entities of a kind that the node has, in pages."""

    async def find(self, kind: EntityType, name: str) -> Sighting | None:
        """Return what the node has under a name, or None."""

    async def find_address(self, name: str) -> AddressEntity | None:
        """Return an address with all that the node knows of it, or None."""

    async def find_space(self, name: str) -> SpaceEntity | None:
        """Return a space with all that the node knows of it but secrets, or None."""

    async def create(self, entity: Entity) -> bool:
        """Add an entity; whether the node changed for it."""

    async def update(self, entity: Entity) -> bool:
        """Give an entity new attributes, with its contents left as they are; whether the node changed for it."""

    async def delete(self, entity: Entity) -> bool:
        """Remove an entity of this name and uid with its contents; False: there is nothing of the name."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What a node says of itself, in the words of its management.

    Attributes:
        statistics: of the node as a whole.
        health: whether it is ready, and its problems.
        spaces: its spaces.
        addresses: its addresses with their counters.
    """

    statistics: dict[str, Any]
    health: dict[str, Any]
    spaces: list[dict[str, Any]]
    addresses: list[dict[str, Any]]


class FiguresSource(Protocol):
    """The way to the figures of one node; errors are those of ``NodeAdmin``."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def figures(self) -> NodeFigures:
        """Return what the node says of itself now."""

    async def ping(self) -> None:
        """Send a message through the node and wait until it has come back."""


class SessionAdmin(Protocol):
    """The way to who is connected to one node; errors are those of ``NodeAdmin``."""

    async def connections_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's connections, in the words of the node, and whether there are more."""

    async def links_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's links, in the words of the node, and whether there are more."""

    async def close_connection(self, space: str, connection: str) -> bool:
        """Close a connection of a space; whether there was one."""


class MessageAdmin(Protocol):
    """The way to what the addresses of one node store; errors are those of ``NodeAdmin``."""

    async def purge(self, name: str, selector: str | None) -> int:
        """Delete what an address stores, or what of it a selector chooses; how many messages."""

    async def move(self, name: str, to: str, selector: str | None) -> int:
        """Move messages of an address to another address of its space; how many."""

    async def replay(self, name: str, selector: str | None) -> int:
        """Send dead letters back to the addresses that they came from; how many."""
