"""A session's filters and links, and what the connection that has a session does for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from enmasse.message.sections import TOPIC_NAME, Sections
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.limits import Footprint, filter_footprint
from enmasse.messaging.patterns import is_cut, is_within
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.sessions.filters import Filter
from enmasse.messaging.sessions.joint import NUMBER

# A session and its filters know each other.
if TYPE_CHECKING:
    from enmasse.errors import RemoteError
    from enmasse.messaging.address import Address
    from enmasse.messaging.queues.session_subscription import SessionSubscription
    from enmasse.messaging.sessions.groups import Group
    from enmasse.messaging.sessions.joint import Joint
    from enmasse.messaging.sessions.session import Session


class SessionPort(ConsumerPort, Protocol):
    """The receiving end of one link of a session's client."""

    is_limited: bool
    """True if it gives back what is too large for the client."""

    def publish(self, packet_id: int, payload: bytes, qos: int, is_duplicate: bool) -> None:
        """Put a message out under a packet id that it has already; that uses no credit."""


class SessionHolder(Protocol):
    """The connection that has a session at the moment."""

    def make_port(self, link: SessionLink) -> SessionPort:
        """Return the receiving end of a link.

        Raises:
            AttachError: the connection may have no more links, or the address.
        """

    def joined(self, link: SessionLink) -> None:
        """Give credit, as a link has its end at its address."""

    def left(self, link: SessionLink) -> None:
        """Forget a link, as it has left its address."""

    def changed(self, link: SessionLink) -> None:
        """Keep to the options of a link's filters, which have changed, or to others that have come or gone."""

    def taken_over(self) -> None:
        """Close, as another connection has the session now."""

    def deleted(self) -> None:
        """Close, as somebody who may manage the space has ended the session."""

    def filter_ended(self, text: str, error: RemoteError) -> None:
        """Note that a filter, or an address that it stood for, is not for this client any more."""

    def put_pubrel(self, packet_id: int) -> None:
        """Send PUBREL for what the client has had before."""


class SubscribeRequest(NamedTuple):
    """A filter and its options, as a client asks for them.

    Attributes:
        filter: the topic filter.
        qos: the highest QoS that messages are sent with.
        no_local: true if the client's own messages are not for it.
        retain_as_published: true if the retain flag is to be as the publisher had it.
        retain_handling: 0 sends retained values, 1 only for a new subscription, 2 none.
        identifier: the subscription identifier; 0 is none.
    """

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0


class SessionLink:
    """A receiving link: one address that a filter of a connected session reaches, or several together.

    Attributes:
        session: the session.
        filter: the filter; of several, the one that it was made for.
        joint: the filters that reach the address together; ``None`` if it is for one alone.
        users: the number of filters that it is for.
        address: the address that it reaches.
        source: the filter that it stands for there.
        port: the connection's end; ``DETACHED`` once that is gone.
        consumer: the address's end.
        rank: of several at a topic, whether they are those of QoS 1 and 2; else ``None``.
        is_kept: true if what is in flight on it stays with the session.
        is_open: true until it is detached.
    """

    __slots__ = (
        "address", "consumer", "filter", "is_kept", "is_open", "joint", "port", "rank", "session", "source", "users",
    )  # fmt: skip

    port: SessionPort
    consumer: Consumer

    def __init__(
        self,
        session: Session,
        filter_: SessionFilter,
        address: Address,
        source: str,
        *,
        joint: Joint | None = None,
        rank: bool | None = None,
    ) -> None:
        self.session = session
        self.filter = filter_
        self.joint = joint
        self.users = 1
        self.rank = rank
        self.address = address
        self.source = source
        self.is_kept = False
        self.is_open = True

    @property
    def number(self) -> int:
        """The number that what is in flight on it has on disk."""
        return self.filter.number if self.joint is None else NUMBER

    @property
    def is_numbered(self) -> bool:
        """True if some of its messages may have QoS 1 or 2."""
        if self.rank is not None:
            return self.rank
        return any(one.qos for one in ((self.filter,) if self.joint is None else self.joint.filters))

    def keeps(self, qos: int) -> bool:
        """Return true if a message in flight stays with the session while its client is away."""
        return self.is_kept or (qos == 2 and isinstance(self.consumer, BacklogConsumer))

    @property
    def is_cut(self) -> bool:
        """True if grants cover a part of its filters alone."""
        return is_cut(self.source) if self.joint is None else any(map(is_cut, self.joint.filters.values()))

    def may_have(self, payload: bytes) -> bool:
        """Return true if a message is for its filters, as far as grants cover them."""
        name = Sections(payload).message_annotations.get(TOPIC_NAME, self.address.name)
        return is_within(self.source, name) if self.joint is None else bool(self.joint.matching(name))

    def ended(self, error: RemoteError | None = None) -> None:
        """Note that the address has detached the connection's end."""
        if self.is_open:
            self.session.link_ended(self, error)


class SessionFilter:
    """A filter of a session, and the addresses that it reaches.

    Attributes:
        number: its number within the session.
        filter: the filter.
        links: while a client is connected, its links by the names of addresses.
        kept: its durable subscriptions by the names of topics.
        group: the group that shares it, if it is shared.
        shares: the part that the member of a group may receive at each topic, if the filter is shared.
    """

    __slots__ = (
        "filter", "group", "identifier", "kept", "links", "no_local", "number", "qos", "retain_as_published",
        "retain_handling", "session", "shares",
    )  # fmt: skip

    def __init__(self, session: Session, number: int, filter_: Filter) -> None:
        self.session = session
        self.number = number
        self.filter = filter_
        self.qos = 0
        self.no_local = False
        self.retain_as_published = False
        self.retain_handling = 0
        self.identifier = 0
        self.links: dict[str, SessionLink] = {}
        self.kept: dict[str, SessionSubscription] = {}
        self.group: Group | None = None
        self.shares: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The filter as the client wrote it."""
        return self.filter.text

    @property
    def footprint(self) -> Footprint:
        """The cost to its space, beside its parts at topics."""
        return filter_footprint(self.text)

    @property
    def is_durable(self) -> bool:
        """True if what it wants waits for the client."""
        return self.qos > 0 and self.session.is_lasting and self.group is None

    @property
    def reached(self) -> list[str]:
        """The names of the addresses that it reaches now."""
        return list(self.links or self.kept or self.shares)

    def apply(self, wish: SubscribeRequest) -> None:
        """Take the options of a request."""
        self.qos = wish.qos
        self.no_local = wish.no_local
        self.retain_as_published = wish.retain_as_published
        self.retain_handling = wish.retain_handling
        self.identifier = wish.identifier

    def record(self) -> dict[str, Any]:
        """Return what the journal keeps of it."""
        return {
            "filter": self.text,
            "qos": self.qos,
            "noLocal": self.no_local,
            "retainAsPublished": self.retain_as_published,
            "retainHandling": self.retain_handling,
            "identifier": self.identifier,
        }

    @classmethod
    def of(cls, session: Session, number: int, record: dict[str, Any]) -> SessionFilter:
        """Return the filter that a record describes."""
        made = cls(session, number, Filter(record["filter"]))
        made.qos = record["qos"]
        made.no_local = record["noLocal"]
        made.retain_as_published = record["retainAsPublished"]
        made.retain_handling = record["retainHandling"]
        made.identifier = record["identifier"]
        return made
