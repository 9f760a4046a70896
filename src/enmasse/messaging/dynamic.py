"""Dynamic addresses: made when a link asks for one, named by the node, deleted when their policy says [AMQP 3.5.9].

Rules:
1. A name is unguessable, and reaches only within the space of the connection that asked.
2. A dynamic address stores nothing on disk: a node that starts again has none.
3. Links are checked at once; whether the last message has gone is checked every quarter of a second,
   and only of addresses whose policy asks for it.
4. A reply within a transaction is handed out once the rest of its transaction is on disk.
5. Clients make them, so what they hold in memory is bounded for all of a space together: the more there
   are, the less each may hold.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from enmasse.messaging.delivery import Delivery, Producer, ProducerPort
from enmasse.messaging.direct.anycast import Anycast, AnycastProducer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.transaction import OutcomeLog, sender_of
from enmasse.model.kinds.address_settings import AddressSettings

# A space and its dynamic addresses know each other.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from enmasse.messaging.address import Address, AttachOptions
    from enmasse.messaging.core import Log
    from enmasse.messaging.delivery import Consumer, ConsumerPort
    from enmasse.messaging.space import Space
    from enmasse.messaging.transaction import Done


DYNAMIC_PREFIX = "$dynamic/"

MAX_DYNAMIC = 10_000
"""Dynamic addresses of one space: as many as a node has links, and a bound for those that are never deleted."""

QUEUE_BYTES = 16 << 20
"""Bytes that a temporary queue may hold, in memory, as long as there are few."""

ALL_QUEUES_BYTES = 512 << 20
"""Bytes that all temporary queues of a space may hold together."""

MAX_WAITING = 1_000
"""Replies that may wait until their receiver grants credit again: what a client asks for at once."""

WAITING_BYTES = 1 << 20
"""The same in bytes, as long as there are few that replies wait for."""

ALL_WAITING_BYTES = 256 << 20
"""Bytes that waiting replies of a space may take."""

CHECK_S = 0.25


class Lifetime(Enum):
    """The event that deletes a dynamic address; the values are the policies' descriptors."""

    CLOSE = 0x2B
    """The link that it was made for is detached."""
    NO_LINKS = 0x2C
    """No link is attached to it."""
    NO_MESSAGES = 0x2D
    """The link that it was made for is detached, and there are no messages."""
    NO_LINKS_OR_MESSAGES = 0x2E
    """There are neither links nor messages."""


class DynamicRequest(NamedTuple):
    """The dynamic address that a link requests.

    Attributes:
        kind: one of ``DYNAMIC_KINDS``.
        lifetime: the time at which it is deleted.
    """

    kind: str = Anycast.kind
    lifetime: Lifetime = Lifetime.CLOSE


class ReplyProducer(AnycastProducer):
    """A sender's end at an address for replies."""

    __slots__ = ()
    address: ReplyAddress

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Let a reply wait for its receiver, which may have taken in many and grants more in a moment."""
        address = self.address
        if address.has_room(len(payload)) and address.unpromised() <= 0:
            address.keep(Delivery(payload, self, delivery_id, settled, message_format))
        else:
            super().on_crossed(payload, delivery_id, settled, message_format)


class ReplyAddress(Anycast):
    """An anycast address whose senders mostly use the anonymous terminus, and so no credit of its own."""

    # Replies wait in memory, which others may have used by then.
    keeps_room = False
    __slots__ = ("enlisted_bytes", "is_closed", "nodes")

    def __init__(self, nodes: DynamicNodes, name: str) -> None:
        super().__init__(nodes.space.core, name)
        self.nodes = nodes
        self.is_closed = False
        self.enlisted_bytes = 0
        """Replies whose transactions are being committed."""

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return ReplyProducer(self, port, target)

    def close(self, condition: str, description: str) -> None:
        """Close the address."""
        self.is_closed = True
        super().close(condition, description)

    # Transactions

    def has_room(self, size: int) -> bool:
        """Return whether replies of so many bytes may wait for the receiver, or the only one can be sent at once."""
        if not self.consumers or len(self.backlog) >= MAX_WAITING:
            return False
        waiting = self.backlog_bytes + self.enlisted_bytes
        return waiting + size <= self.nodes.waiting_bytes or (not waiting and self.choose() is not None)

    def enlist_message(self, payload: bytes, target: str, done: Done) -> Log:
        """Have a reply handed out once the batch that the returned log takes part in is on disk.

        Args:
            payload: the reply.
            target: the address as its sender named it.
            done: called once; with a reason if the reply is lost.
        """
        self.enlisted_bytes += len(payload)

        def decided(reason: str | None) -> None:
            self.enlisted_bytes -= len(payload)
            if reason is None and not self.is_closed:
                self.keep(Delivery(payload, sender_of(_ignore_end), 0, False, 0))
            done(reason)

        return OutcomeLog(self.name, decided)


def _ignore_end(_reason: str | None) -> None:
    """Ignore the end: the reply's sender had its answer within the transaction."""


class TemporaryTopic(Topic):
    """A topic without durable subscriptions."""

    __slots__ = ()

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a subscriber.

        Raises:
            AttachError: it asks for a subscription that outlives the topic, or for what does not fit.
        """
        if options.is_durable:
            raise AttachError("amqp:not-allowed", f"temporary topic {self.name!r} has no durable subscriptions")
        return super().attach_consumer(port, options)


class DynamicNode:
    """A dynamic address, what keeps it, and whose it is."""

    __slots__ = ("_nodes", "address", "has_creator", "lifetime", "owner", "user")

    def __init__(self, nodes: DynamicNodes, address: Address, lifetime: Lifetime, owner: str, user: str) -> None:
        self._nodes = nodes
        self.address = address
        self.lifetime = lifetime
        self.owner = owner
        self.user = user
        self.has_creator = True

    def disown(self) -> None:
        """Remove it, as its owner is gone."""
        space = self._nodes.space
        if space.addresses.get(self.address.name) is self.address:
            space.remove(self.address)

    @property
    def has_links(self) -> bool:
        """True if a link is attached."""
        counts = self.address.counts()
        return bool(counts["senders"] or counts["receivers"] or getattr(self.address, "browsers", None))

    @property
    def has_messages(self) -> bool:
        """True if it has messages, or some are under way."""
        counts = self.address.counts()
        return bool(counts["messagesStored"] or counts["unsettled"] or counts.get("backlog"))

    @property
    def awaits_links(self) -> bool:
        """True if a link keeps it."""
        if self.lifetime in (Lifetime.CLOSE, Lifetime.NO_MESSAGES):
            return self.has_creator
        return self.has_links

    @property
    def awaits_messages(self) -> bool:
        """True if a message keeps it."""
        return self.lifetime in (Lifetime.NO_MESSAGES, Lifetime.NO_LINKS_OR_MESSAGES) and self.has_messages


class DynamicNodes:
    """The dynamic addresses of one space.

    Args:
        space: to which they belong.
        new_id: gives unguessable names.
    """

    def __init__(self, space: Space, new_id: Callable[[], str]) -> None:
        self.space = space
        self.waiting_bytes = WAITING_BYTES
        """Bytes that may wait now for one address for replies."""
        self._queue_bytes = QUEUE_BYTES
        self._new_id = new_id
        self._nodes: dict[str, DynamicNode] = {}
        self._lingering: dict[str, None] = {}
        """Addresses that only messages keep."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[DynamicNode]:
        """Iterate over the addresses, each with its owner."""
        return iter(self._nodes.values())

    def owner_of(self, name: str) -> str | None:
        """Return whose an address is; ``None`` if there is no dynamic one of this name."""
        node = self._nodes.get(name)
        return None if node is None else node.owner

    def make(self, request: DynamicRequest, owner: str = "", user: str = "") -> Address:
        """Make an address for a link that is about to join it.

        Args:
            request: the wish of the link.
            owner: the owner of it: who may receive from it.
            user: the owner's name.

        Raises:
            AttachError: there are too many already.
        """
        if len(self._nodes) >= MAX_DYNAMIC:
            raise AttachError(
                "amqp:resource-limit-exceeded", f"space {self.space.name!r} has {MAX_DYNAMIC} dynamic addresses"
            )
        name = f"{DYNAMIC_PREFIX}{self._new_id()}"
        address = DYNAMIC_KINDS[request.kind](self, name)
        self._nodes[name] = DynamicNode(self, address, request.lifetime, owner, user)
        self.space.add(address)
        self._share_out()
        return address

    def make_queue(self, name: str) -> Address:
        """Make a queue in memory, with its share of what all may hold."""
        core = self.space.core
        return Queue(core, name, core.new_volatile_log(), options=self._queue_options())

    def make_topic(self, name: str) -> Address:
        """Make a topic without durable subscriptions."""
        core = self.space.core
        return TemporaryTopic(core, name, core.new_volatile_log(), options=AddressSettings(storage="memory"))

    def _queue_options(self) -> AddressSettings:
        return AddressSettings(storage="memory", max_bytes=self._queue_bytes)

    def _share_out(self) -> None:
        """Have each hold its share of what all may; shares are halved and doubled, so that it is rare."""
        shares = 1 << max(0, len(self._nodes) - 1).bit_length()
        self.waiting_bytes = min(WAITING_BYTES, ALL_WAITING_BYTES // shares)
        queue_bytes = min(QUEUE_BYTES, ALL_QUEUES_BYTES // shares)
        if queue_bytes == self._queue_bytes:
            return
        self._queue_bytes = queue_bytes
        options = self._queue_options()
        for node in self._nodes.values():
            if isinstance(node.address, Queue):
                node.address.configure(options)

    def left(self, name: str, *, is_creator: bool) -> None:
        """Note that a link was detached from an address, which may be a dynamic one.

        Args:
            name: the address.
            is_creator: whether the address was made for this link.
        """
        node = self._nodes.get(name)
        if node is None:
            return
        if is_creator:
            node.has_creator = False
        if node.awaits_links:
            return
        if not node.awaits_messages:
            self.space.remove(node.address)
            return
        if not self._lingering:
            self.space.core.call_later(CHECK_S, self._check)
        self._lingering[name] = None

    def forget(self, address: Address) -> None:
        """Forget an address of the space that is deleted."""
        self._lingering.pop(address.name, None)
        if self._nodes.pop(address.name, None) is not None:
            self._share_out()

    def _check(self) -> None:
        """Remove the addresses that nothing keeps any more."""
        for name in list(self._lingering):
            node = self._nodes.get(name)
            if node is None or node.awaits_links:
                # A link has come again; when it goes, ``left`` is called.
                self._lingering.pop(name, None)
            elif not node.awaits_messages:
                self.space.remove(node.address)
        if self._lingering:
            self.space.core.call_later(CHECK_S, self._check)


DYNAMIC_KINDS: dict[str, Callable[[DynamicNodes, str], Address]] = {
    Anycast.kind: ReplyAddress,
    Queue.kind: DynamicNodes.make_queue,
    Topic.kind: DynamicNodes.make_topic,
}
"""The kinds of addresses that are made for links, and what makes one of a name."""
