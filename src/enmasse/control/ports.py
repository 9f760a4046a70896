"""The ports of the control plane: what it needs from nodes, from a Keycloak and from a store of certificates.

Entities are resources as they are sent to a node: with all defaults and references resolved, in the words of the
node's management.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from enmasse.errors import ConfigError, EnmasseError
from enmasse.model.kinds.address_settings import DEFAULTS, AddressSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from enmasse.client import Message, Outcome

Action = Literal["create", "update", "delete"]
EntityType = Literal["space", "address"]

ENTITY_TYPES: tuple[EntityType, ...] = ("space", "address")
"""The types in the order in which they are sent to a node."""


@dataclass(frozen=True, slots=True)
class SpaceLimitSettings:
    """The limits of a whole space on a node; 0 is without limit, or the node's own.

    Attributes:
        max_connections: connections at a time.
        max_devices: distinct container ids that are connected at a time.
        max_links: links at a time, over all connections.
        max_message_rate: messages that its senders send, per second.
        max_byte_rate: bytes of these, per second.
        max_message_size: bytes of one message.
        max_ttl: milliseconds that a stored message may wait.
        max_retained: retained values.
        max_retained_bytes: bytes of these.
        max_sessions: sessions that outlive their connections.
        max_session_bytes: bytes of messages that wait in one session.
        max_session_expiry: milliseconds that a session is kept without its client.
        will_grace: milliseconds that a will waits if the node has ended that its client had reached.
        max_filter_addresses: addresses that one filter with wildcards may stand for.
        max_subscriptions: filters of sessions, and subscriptions that receivers make at topics.
        max_subscription_bytes: bytes of memory of these, with sessions and wills.
        max_connector_connections: connections to other containers.
        max_connector_sessions: sessions on these.
        max_connector_unsettled: messages of one sender that another container has not decided about.
        max_connector_bytes: bytes that wait at connectors.
    """

    max_connections: int = 0
    max_devices: int = 0
    max_links: int = 0
    max_message_rate: int = 0
    max_byte_rate: int = 0
    max_message_size: int = 0
    max_ttl: int = 0
    max_retained: int = 0
    max_retained_bytes: int = 0
    max_sessions: int = 0
    max_session_bytes: int = 0
    max_session_expiry: int = 0
    will_grace: int = 0
    max_filter_addresses: int = 0
    max_subscriptions: int = 0
    max_subscription_bytes: int = 0
    max_connector_connections: int = 0
    max_connector_sessions: int = 0
    max_connector_unsettled: int = 0
    max_connector_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorServer:
    """A server of a connector, with all that a node needs to connect to it.

    Attributes:
        host: its name or address.
        port: its port.
        is_tls: whether the connection is protected by TLS.
        secrets: authorities, our certificate and its key, all in PEM, user and password, by the entries of secrets
            that they are by default; those that are missing are not given.
        idle_timeout_s: seconds of its silence after which the connection counts as lost; None: the node's own.
        max_frame_size: the most bytes of a frame; None: the node's own.
    """

    host: str
    port: int
    is_tls: bool
    secrets: Mapping[str, str] = field(repr=False)
    idle_timeout_s: int | None
    max_frame_size: int | None


@dataclass(frozen=True, slots=True)
class ConnectorEntity:
    """A connector of a space as a node has it.

    Attributes:
        name: the first word of the names that lead to it.
        servers: its servers, the preferred one first; all are reached in the same way.
        patterns: the addresses there that may be reached.
        origins: the Secret and its entry of which each of its secrets is, by the entry that it is by default. As a
            node has it, all that it has are named, those of no known Secret with an empty name.
    """

    name: str
    servers: tuple[ConnectorServer, ...]
    patterns: tuple[str, ...]
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MqttBounds:
    """The bounds of the MQTT clients of a space; 0 is the node's own.

    Attributes:
        packet_bytes: the bytes of a packet that a client sends.
        receive_maximum: the messages of QoS 1 and 2 that a client sends without their answers.
        keep_alive_s: the longest keep-alive, in seconds.
        inflight: the messages of QoS 1 and 2 that a client is sent without its answers.
    """

    packet_bytes: int = 0
    receive_maximum: int = 0
    keep_alive_s: int = 0
    inflight: int = 0


@dataclass(frozen=True, slots=True)
class SpaceEntity:
    """A space as a node has it.

    Attributes:
        name: ``<namespace>/<space>``.
        space_type: ``standard`` or ``brokered``.
        authentication: the kind of authentication service.
        uid: the uid of the AddressSpace.
        generation: the generation of its spec, as the node knows it.
        home: the name of the node that has its addresses; empty: it is at home wherever it is.
        home_generation: the number of homes that it has had; 0 without one.
        max_bytes: the most bytes that its queues, subscriptions and streams may store together; 0 is without limit.
        limits: the other limits.
        hosts: names beside ``<space>.<namespace>.<domain>`` that stand for it.
        port: the port at which its clients need not name it; 0 for none of its own.
        oidc: the agreement with the provider that knows its users; None where there is none.
        acknowledges_undeliverable: whether clients of MQTT 3.1.1 have messages acknowledged that lead nowhere.
        copies_overlapping: whether sessions of MQTT have a copy of a message for each of their filters that match.
        takes_dollar_names: whether the topic ``#`` has names that begin with ``$``.
        takes_query_properties: whether parameters of HTTP that nobody knows are properties of what is sent.
        mqtt: the bounds of clients of MQTT that differ from the node's own.
        connectors: the other containers that its names lead to.
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
    acknowledges_undeliverable: bool = False
    copies_overlapping: bool = False
    takes_dollar_names: bool = False
    takes_query_properties: bool = False
    mqtt: MqttBounds = MqttBounds()
    connectors: tuple[ConnectorEntity, ...] = ()
    home: str = ""
    home_generation: int = 0


@dataclass(frozen=True, slots=True)
class AddressEntity:
    """An address as a node has it.

    Attributes:
        name: ``<namespace>/<object name>``.
        space: ``<namespace>/<space>``.
        address: the name for applications.
        address_type: one of the types of the model.
        topic: of a subscription, the address of its topic; else empty.
        partitions: the partitions of a stream; else 0.
        uid: the uid of the Address.
        generation: the generation of its spec, as the node knows it.
        settings: the settings beyond its type.
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
    settings: AddressSettings = DEFAULTS


Entity = SpaceEntity | AddressEntity


@dataclass(frozen=True, slots=True)
class NodeState:
    """All entities that a node has, by name."""

    spaces: dict[str, SpaceEntity] = field(default_factory=dict)
    addresses: dict[str, AddressEntity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedEntity:
    """The identity of an entity of a node, and a digest of its attributes.

    Attributes:
        name: the entity's name.
        uid: the uid of the resource that it was made for.
        digest: the same for entities whose attributes are the same.
        problem: the reason why the port of a space is not open; empty if it is, or there is none.
        connectors: of a space, the names of its connectors with the last problem of each; empty for none.
    """

    name: str
    uid: str
    digest: str
    problem: str = ""
    connectors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRevision:
    """A counter of the changes of a node's entities.

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


LogRange = tuple[int, int]
"""The first of some log numbers, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The log numbers of a node.

    Attributes:
        next: the next one that it uses.
        ranges: those that it may use, in order; None: it counts by itself.
        given: a number beyond all that it knows to be leased to any node.
    """

    next: int
    ranges: list[LogRange] | None
    given: int


class JournalOwner(Protocol):
    """The port to the owner of a journal: the installation that it belongs to; errors are those of ``NodeAdmin``."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def installation(self) -> str:
        """Return the id of its installation; empty: it belongs to none yet."""

    async def since(self) -> str:
        """Return since when it belongs to that, RFC 3339; empty: it belongs to none."""

    async def join(self, installation: str) -> None:
        """Make it belong to an installation, unless it belongs to another one."""

    async def take_over(self, former: str, installation: str) -> None:
        """Make it belong to an installation instead of another one, which it belongs to now."""


class NodeAdmin(JournalOwner, Protocol):
    """The port to the entities of one node.

    Every method but ``connections`` raises ``NodeUnavailableError`` when the
    node cannot be reached, and ``NodeRefusedError`` when it says no.
    """

    @property
    def name(self) -> str:
        """The node's name."""

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    def digest(self, entity: Entity) -> str:
        """Return the digest that a node has of an entity that is as this one."""

    async def revision(self) -> NodeRevision:
        """Return how often the node's entities have changed."""

    async def log_numbers(self) -> LogNumbers | None:
        """Return its log numbers; None: it is of an older version, which knows no leases."""

    async def lease_logs(self, installation: str, ranges: Sequence[LogRange], given: int) -> None:
        """Give it more log numbers, and tell it a number beyond all that are leased."""

    def observe(self, kind: EntityType) -> AsyncIterator[list[ObservedEntity]]:
        """Yield all entities of a kind that the node has, in pages."""

    async def find(self, kind: EntityType, name: str) -> ObservedEntity | None:
        """Return what the node has under a name, or None."""

    async def find_address(self, name: str) -> AddressEntity | None:
        """Return an address with all that the node knows of it, or None."""

    async def find_space(self, name: str) -> SpaceEntity | None:
        """Return a space with all that the node knows of it but secrets, or None."""

    async def set_pending(self, space: str, address: str, reason: str) -> None:
        """Set the reason why an address is not there yet, for its clients; an empty one clears it."""

    async def create(self, entity: Entity) -> bool:
        """Add an entity; return whether the node changed for it."""

    async def update(self, entity: Entity) -> bool:
        """Give an entity new attributes, and keep its contents; return whether the node changed for it."""

    async def delete(self, entity: Entity) -> bool:
        """Remove an entity of this name and uid with its contents; False: there is nothing of the name."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The description of a node, in the words of its management.

    Attributes:
        statistics: the statistics of the node as a whole.
        health: whether it is ready, and its problems.
        spaces: its spaces.
        addresses: its addresses with their counters; of very many the first.
        has_more: whether it has more addresses than these.
    """

    statistics: dict[str, Any]
    health: dict[str, Any]
    spaces: list[dict[str, Any]]
    addresses: list[dict[str, Any]]
    has_more: bool = False


class FiguresSource(Protocol):
    """The port to the figures of one node; errors are those of ``NodeAdmin``."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def figures(self, counters: Sequence[str]) -> NodeFigures:
        """Return the present figures of the node, and of its addresses their identity and these counters."""

    async def health(self) -> Mapping[str, Any]:
        """Return what the node says of its health, as ``NodeFigures.health``."""

    async def ping(self) -> None:
        """Send a message through the node and wait until it has come back."""


class SessionAdmin(Protocol):
    """The port to the connections, sessions and wills of one node; errors are those of ``NodeAdmin``."""

    async def connections_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's connections, in the words of the node, and whether there are more."""

    async def links_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's links, in the words of the node, and whether there are more."""

    async def close_connection(self, space: str, connection: str) -> bool:
        """Close a connection of a space; return whether there was one."""

    async def mqtt_sessions_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's sessions of MQTT, in the words of the node, and whether there are more."""

    async def wills_of(self, space: str, offset: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of a space's wills, in the words of the node, and whether there are more."""

    async def end_session(self, space: str, client: str) -> bool:
        """End the session of a client; return whether there was one."""


@dataclass(frozen=True, slots=True)
class ConnectorStep:
    """A step of a connection to a connector's server.

    Attributes:
        step: DNS, TCP, TLS, SASL, open or attach.
        succeeded: whether it did.
        milliseconds: how long it took.
        message: what was found, or why it failed and what to do.
    """

    step: str
    succeeded: bool
    milliseconds: float
    message: str


class ConnectorTester(Protocol):
    """The port to the tests of connectors by a node, which connects from there; errors are those of ``NodeAdmin``."""

    async def test_connector(self, space: str, server: ConnectorServer, address: str) -> list[ConnectorStep]:
        """Connect to a server, attach to an address unless it is empty, and return the steps up to a failure."""


@dataclass(frozen=True, slots=True)
class MessageChoice:
    """The messages of an address that are meant; all of them unless something is said.

    Attributes:
        selector: the selector that they match.
        search: a text that is in them, as in what is browsed; empty: any.
        ids: the ids of single ones.
        is_dry: whether they are only counted.
    """

    selector: str | None = None
    search: str = ""
    ids: tuple[str, ...] | None = None
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message that an address stores, or has given out.

    Attributes:
        id: names it at its address; empty: it is no longer there.
        size: the size of the message in bytes.
        message: itself; None: it cannot be read as a message.
        payload: its bytes, where it cannot be read.
    """

    id: str
    size: int
    message: Message | None
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of the messages of an address.

    Attributes:
        messages: in order.
        after: the place behind which the next page begins; empty: there is none now.
    """

    messages: list[BrowsedMessage]
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Browsing:
    """The search among the messages of an address.

    Attributes:
        limit: the most messages of a page.
        after: of a former page.
        id: the id of the only one that is wanted.
        selector: the selector that they match, where the address has selectors.
        offset: the offset at which to begin in each partition of a stream.
        time_ms: the time at which to begin in a stream, since 1970.
        matches: chooses among the payloads that were read; None: all are wanted.
    """

    limit: int = 50
    after: str = ""
    id: str = ""
    selector: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    matches: Callable[[bytes], bool] | None = None


class MessageAdmin(Protocol):
    """The port to the messages of one node; errors are those of ``NodeAdmin``.

    Addresses are named by their entities, as in ``default/shop.orders``.
    """

    async def purge(self, name: str, choice: MessageChoice) -> int:
        """Delete stored messages of an address; return their number."""

    async def move(self, name: str, to: str, choice: MessageChoice) -> int:
        """Move messages of an address to another address of its space; return their number."""

    async def replay(self, name: str, choice: MessageChoice) -> int:
        """Send dead letters back to the addresses that they came from; return their number."""

    async def browse(self, name: str, wanted: Browsing) -> MessagePage:
        """Return a page of what an address stores, and take nothing away."""

    def follow(self, name: str, wanted: Browsing) -> AbstractAsyncContextManager[AsyncIterator[BrowsedMessage]]:
        """Yield for the time of a block what comes to an address, and take nothing away."""

    async def receive(self, name: str, limit: int, wait_s: float) -> list[BrowsedMessage]:
        """Take messages from an address; wait so long for the first."""

    async def send(self, name: str, messages: Sequence[Message]) -> list[Outcome | EnmasseError]:
        """Send messages to an address; return what became of each."""


@dataclass(frozen=True, slots=True)
class TracedFrame:
    """A frame of a connection.

    Attributes:
        time: the time at which it came or went, RFC 3339; empty: what follows is no frame, but a remark.
        is_outgoing: whether the node sent it.
        text: the frame in words, with what authenticates somebody masked.
        size: in bytes.
    """

    time: str
    is_outgoing: bool
    text: str
    size: int


class FrameTracer(Protocol):
    """The port to the frames of one node's connections; errors are those of ``NodeAdmin``."""

    def trace(
        self, space: str, connection: str, payload: int
    ) -> AbstractAsyncContextManager[AsyncIterator[TracedFrame]]:
        """Yield the frames of a connection of a space for the time of a block, with so many bytes of messages."""


class RetainedAdmin(Protocol):
    """The port to the retained values of one node's spaces; errors are those of ``NodeAdmin``."""

    async def retained_of(self, space: str, pattern: str, offset: int) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of the values whose names match, in the words of the node, and where the next one starts."""

    async def clear_retained(self, space: str, pattern: str) -> int:
        """Clear the values whose names match; return their number."""


@dataclass(frozen=True, slots=True)
class UserEntity:
    """A user as a node has it.

    Attributes:
        name: ``<namespace>/<space>.<username>``.
        space: ``<namespace>/<space>``.
        space_uid: the uid of the AddressSpace.
        username: the name with which it logs in.
        uid: the uid of the MessagingUser.
        generation: the generation of its spec.
        revision: the same if all of this is the same.
        certificates: names in client certificates that prove it.
        authorization: operations and patterns, in the node's grammar.
        scram: the keys of its password by mechanism.
        client_ids: the pattern of the names that its clients have for themselves; empty: any.
    """

    name: str
    space: str
    space_uid: str
    username: str
    uid: str
    generation: int
    revision: str
    certificates: tuple[str, ...] = ()
    authorization: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    scram: dict[str, Any] = field(default_factory=dict, repr=False)
    client_ids: str = ""


@dataclass(frozen=True, slots=True)
class ObservedUser:
    """The identity of a user of a node.

    Attributes:
        name: as of ``UserEntity``.
        uid: the uid of the MessagingUser that it was made for.
        revision: the revision of what the node has.
    """

    name: str
    uid: str
    revision: str


class UserAdmin(JournalOwner, Protocol):
    """The port to the users of one node.

    Every method but ``connections`` raises ``NodeUnavailableError`` when the
    node cannot be reached, and ``NodeRefusedError`` when it says no.
    """

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    def users_after(self, name: str) -> AsyncIterator[list[ObservedUser]]:
        """Yield all users in the order of their names, page by page, from beyond a name; empty: from the first."""

    async def find_user(self, name: str) -> ObservedUser | None:
        """Return what the node has under a name; None: nothing."""

    async def read_user(self, name: str) -> UserEntity | None:
        """Return a user with all that the node knows of it, the keys of its password too; None: there is none."""

    async def create_user(self, user: UserEntity) -> None:
        """Add a user."""

    async def update_user(self, user: UserEntity) -> None:
        """Give a user other attributes; its connections stay open as far as they are still allowed."""

    async def delete_user(self, name: str) -> None:
        """Remove a user; one that is not there is removed already."""


class UserJudge(Protocol):
    """The port to what one node lets its users do; errors are those of ``NodeAdmin``."""

    async def may(self, name: str, operation: str, address: str) -> tuple[bool, str]:
        """Return whether a user may do something, and by which permission or why not."""


class RealmUnavailableError(EnmasseError):
    """Raised when a Keycloak cannot be reached, or fails; another attempt may succeed."""


class RealmConflictError(EnmasseError):
    """Raised when a realm of that name is not ours."""


@dataclass(frozen=True, slots=True)
class RealmUser:
    """A messaging user as a realm has it.

    Attributes:
        username: the name with which it logs in.
        uid: the uid of the MessagingUser that it was made for.
        revision: the same if its password is the same.
        groups: the names of those that it is in.
        id: in the realm; empty for one that is not there yet.
    """

    username: str
    uid: str
    revision: str
    groups: frozenset[str] = frozenset()
    id: str = field(default="", compare=False)


class RealmAdmin(Protocol):
    """The port to one Keycloak.

    Methods raise ``RealmUnavailableError`` for what cannot be done now. Users that were not made through this port
    are not returned and not touched: a realm may have others, from a directory or from another provider.
    """

    async def realms(self, owner: str) -> dict[str, str]:
        """Return the realms of an owner: name to the uid of the space."""

    async def ensure_realm(self, name: str, owner: str, space_uid: str) -> None:
        """Ensure that there is a realm with a client that can get tokens, and with no other space's users.

        Raises:
            RealmConflictError: it is not the owner's.
        """

    async def delete_realm(self, name: str) -> None:
        """Remove a realm with all users; one that is not there is removed already."""

    async def users(self, realm: str) -> dict[str, RealmUser]:
        """Return all messaging users of a realm by name."""

    async def find_user(self, realm: str, username: str) -> RealmUser | None:
        """Return one messaging user of a realm."""

    async def put_user(
        self, realm: str, user: RealmUser, present: RealmUser | None, password: Mapping[str, Any] | None
    ) -> None:
        """Create a user, or update it to what it should be.

        Args:
            realm: the name of the realm.
            user: the user as it should be.
            present: the user as it is; None: it is not there.
            password: its hash, as ``identity.keycloak.hashed_password`` gives it; None: it has none.

        Raises:
            RealmConflictError: there is another user of that name, which was not made through this.
        """

    async def delete_user(self, realm: str, user: RealmUser) -> None:
        """Remove a user; one that is not there is removed already."""

    async def close(self) -> None:
        """Cancel what is under way, and close."""


ConnectRealmAdmin = Callable[[str, str, str, str], RealmAdmin]
"""Connects by URL, administrator's name, password and PEM of authorities (empty: the system's)."""


class UnusableCertificateError(ConfigError):
    """Raised when a certificate cannot be used.

    Attributes:
        reason: one CamelCase word, for programs.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """A certificate that nodes present.

    Attributes:
        certificate: PEM, with its chain.
        authority: the certificate of its issuer, PEM; empty if only its chain is known.
        days_left: until it ends.
    """

    certificate: str
    authority: str
    days_left: int


class Certificates(Protocol):
    """The port to the certificates that nodes present.

    All methods raise ``UnusableCertificateError``; messages hold no key.
    """

    def keep_issued(self, file: str, hosts: Sequence[str]) -> ServedCertificate:
        """Provide a certificate by the platform's authority for hosts, renewed when a third of its life is left."""

    def keep_given(self, file: str, hosts: Sequence[str], certificate: str, key: str) -> ServedCertificate:
        """Provide a given certificate for hosts; both may be PEM, or that in base64."""

    def keep_wildcard(self, file: str, hosts: Sequence[str]) -> ServedCertificate:
        """Provide the installation's own certificate for hosts."""

    def given_days_left(self) -> dict[str, int]:
        """Return the days left of the operator's own certificates, by file."""

    def withdraw(self, prefix: str, besides: Collection[str]) -> None:
        """Remove the certificates whose files begin with a prefix, except some."""
