"""The base of every address: links, counters, and turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from enmasse.message.outcomes import AmqpError
from enmasse.messaging.chores import ENDING_UNITS, MAX_UNITS
from enmasse.messaging.delivery import DETACHED, add_end, remove_end
from enmasse.messaging.errors import AttachError
from enmasse.messaging.metering import Meter
from enmasse.model.kinds.address_settings import DEFAULTS, AddressSettings

if TYPE_CHECKING:
    # An address and its links know each other.
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import Consumer, ConsumerPort, Producer, ProducerPort
    from enmasse.messaging.limits import Usage
    from enmasse.messaging.owners import Grants, Holding, Owners
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.retained import Retained


MAX_LOOKS = 20_000
"""Receivers that are looked at in one turn to choose who gets an address's messages: some milliseconds."""

LOOKS_OF_UNIT = 10
"""Receivers that are looked at in a unit of work (``core``)."""

FEW_LINKS = 32
"""Links of an address that are detached as it is closed; more are detached before, in turns."""

NO_COUNTS: Mapping[str, int] = MappingProxyType(
    {"in": 0, "out": 0, "accepted": 0, "rejected": 0, "released": 0, "modified": 0}
)
"""The counters of detached links where there was none."""


class AttachOptions:
    """The wishes of a receiver in the address layer's words; every protocol maps onto it.

    Attributes:
        presettle: whether messages are to come settled.
        filters: a filter's descriptor to its value, from the source's filter set.
        capabilities: the link's and the source's desired capabilities.
        properties: link properties.
        name: the link's name, and with ``container`` the identity of a durable subscription.
        container: the container id of the peer.
        owner: the owner of that which outlives the link; empty: nobody, or the first who comes.
        user: the user's name; empty where no login is needed.
        may_manage: whether that user may take what belongs to others.
        source: the address as the receiver named it.
        url: the URL of the node, for answers that name it.
        is_dynamic: whether the link has an address made for it over there, by who is behind a connector; ``source``
            then names the connector, and what leads on from there.
        browse: read messages without taking them (distribution mode ``copy``).
        origin: the session that a sender belongs to, for filters that do not want its messages.
        is_part: whether the receiver has a subscription elsewhere that this one is a part of, and counts for it.
        is_durable: whether the source is to outlive the link (terminus durability).
        expiry_policy: the event that starts the time that it lasts then: ``link-detach``, ``session-end``,
            ``connection-close`` or ``never``.
        expiry_timeout_s: that time in seconds.
        attach: the attach as it came, where the protocol has one, for who passes it on to others; addresses of
            this node do not look at it.
        connection: the client's connection, for whoever keeps its links together; None: the link is its only one.
    """

    __slots__ = ("attach", "browse", "capabilities", "connection", "container", "expiry_policy", "expiry_timeout_s",
                 "filters", "is_durable", "is_dynamic", "is_part", "may_manage", "name", "origin", "owner",
                 "presettle", "properties", "source", "url", "user")  # fmt: skip

    def __init__(
        self,
        *,
        presettle: bool = False,
        filters: dict[str, Any] | None = None,
        capabilities: tuple[str, ...] = (),
        properties: dict[str, Any] | None = None,
        name: str = "",
        container: str = "",
        owner: str = "",
        user: str = "",
        may_manage: bool = True,
        source: str = "",
        url: str = "",
        is_dynamic: bool = False,
        is_part: bool = False,
        browse: bool = False,
        is_durable: bool = False,
        expiry_policy: str = "session-end",
        expiry_timeout_s: int = 0,
        connection: object = None,
        origin: Origin | None = None,
        attach: Any = None,
    ) -> None:
        self.presettle = presettle
        self.filters = filters or {}
        self.capabilities = capabilities
        self.properties = properties or {}
        self.name = name
        self.container = container
        self.owner = owner
        self.user = user
        self.may_manage = may_manage
        self.source = source
        self.url = url
        self.is_dynamic = is_dynamic
        self.browse = browse
        self.is_part = is_part
        self.is_durable = is_durable
        self.expiry_policy = expiry_policy
        self.expiry_timeout_s = expiry_timeout_s
        self.connection = connection
        self.origin = origin
        self.attach = attach


@dataclass(frozen=True, slots=True)
class Declaration:
    """An address as it is declared; each type takes from it what it has a use for.

    Attributes:
        log_id: under which what it stores is kept.
        uid: distinguishes it from a former address of the same name.
        topic: the topic that feeds it.
        partitions: logs of a stream.
        settings: all else.
    """

    log_id: int = 0
    uid: str = ""
    topic: str = ""
    partitions: int = 1
    settings: AddressSettings = DEFAULTS


class DurableSource(NamedTuple):
    """A durable subscription that a container's link made, as its receiver named it.

    Attributes:
        source: the address or pattern.
        selector: the text of its selector, if it has one.
        policy: the event after which its time-out runs.
        timeout_s: seconds for which it outlives its last receiver.
        capabilities: those that a receiver asks for to join it.
    """

    source: str
    selector: str | None
    policy: str
    timeout_s: int
    capabilities: tuple[str, ...]


class Origin(Protocol):
    """The session of a sender, as addresses see it."""

    @property
    def has_no_local(self) -> bool:
        """True if some of its filters do not want what it sends itself."""

    def takes_own(self, subscription: Any, name: str) -> bool:
        """Return true if a subscription of its filters, some of which do not, is given what it sends to a name."""


class Account(Protocol):
    """The bound of what several addresses store together: of a space, or of a session for its subscriptions."""

    @property
    def max_bytes(self) -> int:
        """Bytes that may be stored in all; 0 is no limit."""

    bytes_stored: int

    def balance(self, address: Address) -> None:
        """Have an address wait while there is no room."""


class AddressSpace(Protocol):
    """The space of an address, as its addresses use it."""

    name: str
    max_bytes: int
    bytes_stored: int
    addresses: dict[str, Address]
    owners: Owners
    retained: Retained
    fallbacks: dict[str, dict[Address, None]]
    usage: Usage
    grants: Callable[[str, str], Grants | None]

    @property
    def max_session_bytes(self) -> int:
        """Bytes that may wait in one session."""

    def address(self, name: str) -> Address | None:
        """Return the address of a name, made now if it was not before."""

    def balance(self, address: Address) -> None:
        """Have an address wait while the space is full."""


class Address:
    """A named destination within one space.

    Args:
        core: the core whose turn it takes part in.
        name: the address.
    """

    kind: str = ""
    passes_large: bool = False
    """True if its producers take a message while it is still coming (``on_large``)."""
    owns_subtree: ClassVar[bool] = False
    """True if names below it that no address has reach it."""
    is_read_by_offset: ClassVar[bool] = False
    """True if receiving takes nothing away: each receiver reads from an offset of its own."""
    names_apart: ClassVar[bool] = False
    """True if each name below it has links of its own, with a credit of its own."""
    can_resume: ClassVar[bool] = False
    """True if deliveries that a receiver holds may be resumed on another link."""
    keeps_room: ClassVar[bool] = True
    """True if room that a transaction found is still there at its commit."""
    topic_name: str | None = None
    """The topic that feeds it, if one does."""
    depth: int | None = None
    """Messages that it has for its receivers, if it keeps any."""
    partitions: Sequence[Any] = ()
    """Its logs, if it has several."""

    __slots__ = (
        "_turn",
        "consumers",
        "core",
        "detached_counts",
        "dropped",
        "is_due",
        "is_for_users",
        "limits",
        "meter",
        "name",
        "producers",
    )  # fmt: skip

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.name = name
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.is_due = False
        self.dropped = 0
        """Messages dropped without an outcome for the sender: presettled ones without a receiver, or expired ones."""
        self.detached_counts: Mapping[str, int] = NO_COUNTS
        """The counters of links that were detached; changed by ``count_detached``."""
        self.is_for_users = False
        """True if a client that has not logged in may not use it, in a space that is open to everybody, either."""
        self.limits: AddressSettings | None = None
        """The limits of its links, if there are any."""
        self.meter: Meter | None = None
        """The bucket of its senders, if their rate is limited."""
        self._turn = 0

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the address that a declaration describes, empty and not yet part of a space."""
        made = cls(core, name)
        made.apply(declaration)
        return made

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration."""
        self.limit(declaration.settings)

    def load(self) -> None:
        """Load what the journal holds; all addresses of the space exist by then."""

    def extra_logs(self) -> Iterable[int]:
        """Return the logs that it made by itself, beside the one that it was declared with."""
        return ()

    # Its space

    def join(self, space: AddressSpace) -> None:
        """Join a space, whose limits count from now on; called anew when these change."""

    def on_added(self, space: AddressSpace) -> None:
        """Connect with the addresses of the space that it works with; called once it can be reached there."""

    def on_removed(self) -> None:
        """Leave the addresses that it works with; called once it cannot be reached any more."""

    def subscribe(self, subscription: Address) -> None:
        """Feed a subscription that names this address as its topic; only a topic does."""

    def holdings(self) -> Iterable[Holding]:
        """Return what clients have left behind here."""
        return ()

    def forget_consumer(self, name: str) -> None:
        """Forget how far a named consumer has come; only a stream knows that."""

    def lasting(self, container: str, link: str, owner: str, user: str, *, may_manage: bool) -> DurableSource | None:
        """Return the durable subscription that a container's link made here, if it is open to an owner of a name."""
        return None

    def stored(self) -> Backlog | None:
        """Return it as what keeps each message in this node until a receiver is done with it; most do not."""
        return None

    def receivers(self) -> list[Consumer]:
        """Return every receiver's end, browsers included."""
        return list(self.consumers)

    # Its links

    def limit(self, settings: AddressSettings) -> None:
        """Change what its links may have, and whose they may be; for those that are there only the rates change."""
        self.is_for_users = settings.users_only
        rates = settings.max_message_rate, settings.max_byte_rate
        bounds = settings.max_links, settings.max_senders, settings.max_receivers, settings.max_message_size, *rates
        self.limits = settings if any(bounds) else None
        if self.meter is not None:
            self.meter.configure(*rates)
        elif any(rates):
            self.meter = Meter(self.core, self.name, *rates)

    def due(self) -> None:
        """Have ``on_turn`` called once before the turn of the loop ends."""
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def on_turn(self, now: float) -> None:
        """Do the work that gathered in this turn: hand out, share credit."""

    def on_deadline(self, now: float) -> None:
        """Handle the time given to ``core.schedule``."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; its end may say that the answer comes later (``opening``).

        Raises:
            AttachError: this address takes no messages from senders.
        """
        raise AttachError("amqp:not-allowed", f"{self.kind} {self.name!r} takes no messages from senders")

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit.

        Raises:
            AttachError: this address takes no messages from senders.
        """
        raise AttachError("amqp:not-allowed", f"{target!r} takes no messages from senders")

    def annotate(self, payload: bytes, target: str) -> bytes:
        """Return the message with what the address itself writes into its annotations; most write nothing.

        Args:
            payload: the message, in AMQP's own format.
            target: the address as the sender named it.

        Raises:
            DecodeError: the message's annotations cannot be read.
        """
        return payload

    def copies(self, target: str) -> int:
        """Return for how many a message for a name is stored or handed out; most addresses store it once."""
        return 1

    def why_not_retained(self, payload: bytes, target: str) -> AmqpError | None:
        """Return why a message cannot be the retained value of its name; most addresses retain nothing.

        Args:
            payload: the message, which asks for that.
            target: the address as the sender named it.
        """
        return None

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filters that a receiver with these options may ask for, by their descriptors."""
        return ()

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver; its end may say that the answer comes later (``opening``).

        Raises:
            AttachError: this address gives no messages to receivers, or not in the way asked for.
        """
        raise AttachError("amqp:not-allowed", f"{self.kind} {self.name!r} gives no messages to receivers")

    def add_consumer(self, consumer: Consumer) -> Consumer:
        """Keep a receiver's end."""
        add_end(self.consumers, consumer)
        self.due()
        return consumer

    def add_producer(self, producer: Producer) -> Producer:
        """Keep a sender's end."""
        add_end(self.producers, producer)
        self.due()
        return producer

    def remove_producer(self, producer: Producer) -> None:
        """Remove a sender."""
        if remove_end(self.producers, producer):
            self.count_detached()["in"] += producer.port.received
            self.due()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a receiver; the address type deals with the deliveries that it left unsettled."""
        if remove_end(self.consumers, consumer):
            counts = self.count_detached()
            counts["out"] += consumer.deliveries
            counts["accepted"] += consumer.accepted
            counts["rejected"] += consumer.rejected
            counts["released"] += consumer.released
            counts["modified"] += consumer.modified
            self.due()

    def count_detached(self) -> dict[str, int]:
        """Return the counters of links that were detached, to be changed."""
        if not isinstance(self.detached_counts, dict):
            self.detached_counts = dict(self.detached_counts)
        return self.detached_counts

    def choose(self) -> Consumer | None:
        """Return the receiver with credit that has the fewest unsettled deliveries, in turn among equals."""
        consumers = self.consumers
        if len(consumers) == 1:
            only = consumers[0]
            return only if only.port.credit > 0 and not only.is_blocked else None
        best: Consumer | None = None
        fewest = 1 << 62
        count = len(consumers)
        turn = at = self._turn
        for index in range(turn, turn + count):
            consumer = consumers[index % count]
            if consumer.unsettled < fewest and consumer.port.credit > 0 and not consumer.is_blocked:
                best = consumer
                fewest = consumer.unsettled
                at = index
                if not fewest:
                    break
        if best is not None:
            self._turn = (at + 1) % count
        return best

    def regrant(self, user: str) -> Iterator[int]:
        """Return the parts in which what receivers left behind keeps to the grants of one user, or of all."""
        return iter(())

    def part(self, error: AmqpError) -> Iterator[int]:
        """Detach links of an address that is about to be closed, if they are many, part by part.

        Each part says the work that it was. Senders get outcomes: of what a receiver had as that goes, and of the
        rest in the turn after the last one.
        """
        consumers = self.receivers()
        if len(consumers) > FEW_LINKS:
            for consumer in consumers:
                # What others leave is not for those who are about to go.
                consumer.is_blocked = True
            yield len(consumers) // LOOKS_OF_UNIT
            yield from detach(consumers, error)
        if len(self.producers) > FEW_LINKS:
            yield MAX_UNITS
            yield from detach(list(self.producers), error)

    def close(self, condition: str, description: str) -> None:
        """Close the address: detach every link, receivers first, so that senders get outcomes."""
        error = AmqpError(condition, description)
        for consumer in list(self.consumers):
            consumer.port.detach(error)
            consumer.on_detached()
        for producer in list(self.producers):
            producer.port.detach(error)
            producer.on_detached()

    @property
    def is_unattended(self) -> bool:
        """True if nobody could take a message now: a direct address without a receiver or a queue in its place."""
        return False

    def traffic(self) -> tuple[int, int]:
        """Return how many messages came and went; counts no more than that, as addresses may be thousands."""
        gone = self.detached_counts
        came = gone["in"] + sum(producer.port.received for producer in self.producers)
        return came, gone["out"] + sum(consumer.deliveries for consumer in self.consumers)

    def counts(self) -> dict[str, int]:
        """Return the counters of the address, by their management names."""
        gone = self.detached_counts
        consumers = self.consumers
        return {
            "senders": len(self.producers),
            "receivers": len(consumers),
            "messagesIn": gone["in"] + sum(p.port.received for p in self.producers),
            "messagesOut": gone["out"] + sum(c.deliveries for c in consumers),
            "accepted": gone["accepted"] + sum(c.accepted for c in consumers),
            "rejected": gone["rejected"] + sum(c.rejected for c in consumers),
            "released": gone["released"] + sum(c.released for c in consumers),
            "modified": gone["modified"] + sum(c.modified for c in consumers),
            "dropped": self.dropped,
            "creditAsked": sum(c.port.credit for c in consumers),
            "creditGranted": sum(p.credit for p in self.producers),
            "unsettled": sum(c.unsettled for c in consumers),
            "messagesStored": 0,
            "bytesStored": 0,
        }


def detach(ends: Sequence[Consumer | Producer], error: AmqpError) -> Iterator[int]:
    """Detach links one by one; each part says the work that it was."""
    for end in ends:
        if end.port is not DETACHED:
            end.port.detach(error)
            end.on_detached()
            yield ENDING_UNITS
