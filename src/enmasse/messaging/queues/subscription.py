"""Subscriptions: what one subscriber of a topic still has to be given.

A durable subscription is an owner of the topic's log: a message is written once for all of them. A
volatile one keeps its messages in memory; what it does not take in time is dropped for it alone, holds
back the topic's senders, or waits on disk, as its topic's policy says.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Self
from weakref import proxy

from enmasse.message.outcomes import ACCEPTED, AmqpError
from enmasse.messaging.address import AttachOptions, Declaration
from enmasse.messaging.delivery import SMALL_BYTES, Consumer, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import Facts, known_facts
from enmasse.messaging.limits import NO_FOOTPRINT, Footprint
from enmasse.messaging.log.entry import OUT, Entry, FrameRef, settled_rows
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import FRAME_BYTES, by_frame, log_key, log_range
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.log.shared_log import SHARED_PARTITION
from enmasse.messaging.patterns import Pattern, Wild, parse
from enmasse.messaging.queues.backlog import Backlog
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.queues.timing import Timing
from enmasse.messaging.storage import Operation, Table
from enmasse.model.kinds.address_settings import AddressSettings

if TYPE_CHECKING:
    from enmasse.messaging.address import AddressSpace, Origin
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import ConsumerPort
    from enmasse.messaging.queues.shares import Shares
    from enmasse.messaging.queues.topic import Topic
    from enmasse.messaging.retaining import Feed
    from enmasse.messaging.selectors.selector import Selector


ENDLESS_BYTES = 1 << 62
"""More than is ever stored."""

VOLATILE_BYTES = 8 << 20
"""Bytes that may wait for one volatile subscriber before its policy applies."""


class Subscription(Backlog):
    """A durable subscription.

    Args:
        core: the core whose turn it takes part in.
        name: the address, or the name under which its subscriber comes again.
        log_id: under which its account of the topic's log is kept.
        topic: the topic's address.
        pattern: the names below it that are wanted.
        options: the settings beyond storing.
        selector: the selector of messages that are wanted.
    """

    kind = "subscription"
    topic_name: str
    is_durable = True
    is_shared = True
    skips_volatile = False
    """True while it takes nothing that is not written."""
    holds_back = True
    """True if the topic's senders wait until it has room."""
    deleted_state: Any = ACCEPTED
    __slots__ = (
        "average_bytes", "feed", "footprint", "log_id", "origin", "pattern", "room_above", "room_below", "room_kind",
        "selector", "shares", "topic", "topic_name", "writes_all", "writes_durable",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        topic: str,
        pattern: Pattern,
        options: AddressSettings | None = None,
        selector: Selector | None = None,
    ) -> None:
        options = options or AddressSettings()
        self.topic: Topic | None = None
        self.topic_name = topic
        self.pattern = pattern
        self.shares: Shares | None = None
        """The shares of its receivers, once somebody may have a part of it alone."""
        self.selector = selector
        if selector is not None:
            # It has the selector.
            selector.tally = proxy(self)
        self.origin: Origin | None = None
        """The session whose own messages it is not given."""
        self.log_id = log_id
        self.footprint: Footprint = NO_FOOTPRINT
        """The cost to its space while a topic feeds it."""
        self.feed: Feed | None = None
        """Gives it retained values, while there are any left for it."""
        self.average_bytes = 1024
        """The mean size of a message when its room was last noted."""
        self.room_kind = -1
        """Its place among the subscriptions that hold senders back (``Windows``); below 0 nowhere."""
        self.room_above = -1
        """The bytes stored below which it has so much more room that it stands elsewhere."""
        self.room_below = ENDLESS_BYTES
        """The bytes stored from which on it has so much less."""
        self.writes_durable = options.storage != "memory"
        self.writes_all = options.storage == "durable"
        super().__init__(core, name, None, (log_id, SHARED_PARTITION), options)

    @property
    def patterns(self) -> Iterable[Pattern]:
        """The patterns of the names below its topic that it wants."""
        return (self.pattern,) if self.shares is None or self.shares.is_whole else self.shares.patterns

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the subscription that a declaration describes, to everything below its topic; see ``Address``."""
        topic = declaration.topic
        pattern = (*parse(topic), Wild.REST)
        made = cls(core, name, declaration.log_id, topic=topic, pattern=pattern, options=declaration.settings)
        made.limit(declaration.settings)
        return made

    def on_added(self, space: AddressSpace) -> None:
        """Subscribe to its topic, if that exists."""
        topic = space.addresses.get(self.topic_name)
        if topic is not None:
            topic.subscribe(self)

    def on_removed(self) -> None:
        """Unsubscribe from its topic."""
        if self.topic is not None:
            self.topic.unsubscribe(self)

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Refuse senders, as only its topic sends into a subscription.

        Raises:
            AttachError: always.
        """
        return self.make_producer(port, self.name)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Refuse senders, as only its topic sends into a subscription.

        Raises:
            AttachError: always.
        """
        raise AttachError("amqp:not-allowed", f"send to topic {self.topic_name!r}, not to {target!r}")

    def wants(self, payload: bytes) -> bool:
        """Return whether the selector takes a message."""
        return self.selector is None or self.selector.matches(payload)

    def take(self, payload: bytes, producer: Any, *, is_staged: bool = False) -> None:
        """Add a message for this subscription alone; ``producer`` is settled when it is stored, if it will be."""
        if self.topic is not None and self.log is not None:
            self.topic.store([self], payload, known_facts(payload), producer, 0, is_staged=is_staged)

    def receive(self, payload: bytes, facts: Facts) -> None:
        """Take a message for this subscription alone, for whose outcome nobody waits."""
        if self.topic is not None:
            self.topic.store([self], payload, facts, None, 0)

    def room_for(self, senders: int) -> int:
        """Return how many messages each of so many senders may send, by the room of the subscription alone."""
        free = self.max_bytes - self.bytes_stored
        return max(1, free // (senders * self.average_bytes)) if free > 0 else 0

    def configure(self, options: AddressSettings) -> None:
        """Change what it does beyond storing; how it stores stays as it is."""
        super().configure(options)
        if self.room_kind >= 0 and self.topic is not None:
            self.topic.windows.update(self)

    def load(self) -> None:
        """Load what an earlier version kept in a log of the subscription's own."""
        storage = self.core.storage
        settled = by_frame(storage, Table.SETTLED, self.log_id)
        log = MessageLog(self.core, self, self.log_id)
        at, last = log_range(self.log_id, 0)
        while found := storage.scan(Table.FRAME, at, last, FRAME_BYTES):
            for _, value in found:
                frame = Frame(value)
                ref = FrameRef(log, (self.log_id, 0), frame.first_offset, frame.rows)
                log.next_offset = log.visible = frame.next_offset
                gone = settled_rows(settled.get(frame.first_offset, b""))
                ref.settled = sorted(gone)
                ref.live -= len(gone)
                for row, payload in enumerate(frame.payloads()):
                    if row not in gone:
                        entry = self.timing.make_entry(payload, None, 0, known_facts(payload))
                        entry.frame = ref
                        entry.row = row
                        self.depth += 1
                        self.count_bytes(len(payload) + self.overhead)
                        self.add(entry)
            at = found[-1][0] + b"\0"

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a receiver, with its share."""
        super().remove_consumer(consumer)
        if self.shares is not None:
            self.shares.remove(self, consumer)

    def _is_more_coming(self) -> bool:
        """Return whether there is more to hand out than is in memory, retained values included."""
        return self.feed is not None or super()._is_more_coming()

    def abandon(self, condition: str, description: str) -> None:
        """Drop the messages, as the topic is deleted; another topic of its name may feed it again."""
        if self.topic is not None:
            self.topic.windows.remove(self)
        self.topic = None
        for consumer in list(self.consumers):
            consumer.port.detach(AmqpError(condition, description))
            consumer.on_detached()
        self.count_bytes(-self.bytes_stored)
        self.depth = self.resident_bytes = 0
        self.ready.clear()
        self.returned.clear()
        self.waiting.clear()
        self.frames.clear()
        pager = self.pager
        self.order = self.pager = self.log = self.share = self.inherited = None
        if pager is not None:
            pager.close()
        self.timing = Timing(self)
        self.is_spilling = False

    def on_turn(self, now: float) -> None:
        """Hand out; what became free lets the topic's senders go on."""
        if self.shares is not None:
            self.shares.settle(self)
        super().on_turn(now)
        topic = self.topic
        if self.feed is not None and (self.is_closed or topic is None or not self.feed.go_on()):
            self.feed = None
            if self._draining:
                self.due()
        if topic is not None:
            if self.room_kind >= 0 and not self.room_above <= self.bytes_stored < self.room_below:
                topic.windows.update(self)
            if topic.producers:
                topic.due()


@cache
def _bounded(max_bytes: int) -> AddressSettings:
    """Return the settings that all volatile subscriptions with this bound share."""
    return AddressSettings(max_bytes=max_bytes)


class VolatileSubscription(Subscription):
    """A volatile subscription: the messages for attached subscribers, one or several that share it.

    Args:
        policy: the policy that bounds it: ``drop-oldest``, ``block`` or ``spill``.
    """

    is_durable = False
    is_lasting = False
    __slots__ = ("is_blocking",)

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        topic: str,
        pattern: Pattern,
        policy: str = "drop-oldest",
        selector: Selector | None = None,
    ) -> None:
        options = _bounded(0 if policy == "spill" else VOLATILE_BYTES)
        super().__init__(core, name, log_id, topic=topic, pattern=pattern, options=options, selector=selector)
        self.is_blocking = policy == "block"
        """True if the topic's senders wait until it has room."""
        if policy == "spill":
            self.owner = (log_id, 0)
            self.bind(MessageLog(core, self, log_id))
            self.configure(options)

    def entry_of(self, row: Any) -> Any:
        """Return the entry of a row of its own log."""
        return row.entry

    @property
    def holds_back(self) -> bool:  # type: ignore[override]  # others never change
        """True if the topic's senders wait until it has room."""
        return self.is_blocking

    def receive(self, payload: bytes, facts: Facts) -> None:
        """Take a message for this subscription alone, for whose outcome nobody waits."""
        if self.selector is None or self.selector.matches(payload):
            self.offer(payload, facts)

    def offer(self, payload: bytes, facts: Facts) -> None:
        """Take a message; the oldest ones make room, if that is the policy."""
        stored = self.bytes_stored + len(payload) + self.overhead
        if stored > self.max_bytes and not self.is_blocking:
            if not self._make_room(len(payload) + self.overhead):
                self.dropped += 1
                return
            stored = self.bytes_stored + len(payload) + self.overhead
        if stored >= self.room_below and self.topic is not None:
            self.topic.windows.update(self)
        if not facts.is_plain or self.order is not None or self.log is not None or self.timing.is_wanted:
            self.enqueue(payload, None, 0, durable=False, facts=facts)
            return
        consumer = self.consumers[0] if len(self.consumers) == 1 and not (self.ready or self.returned) else None
        if consumer is not None and (
            consumer.port.credit <= 0
            or consumer.is_blocked
            or (len(payload) > SMALL_BYTES and consumer.must_wait(len(payload)))
        ):
            consumer = None
        if consumer is not None and consumer.presettle:
            consumer.deliveries += 1
            consumer.send(None, payload, True)
            return
        entry = Entry(payload, None, 0)
        self.depth += 1
        self.bytes_stored = self.resident_bytes = stored
        if self.budget is not None:
            self.budget.bytes_stored += len(payload) + self.overhead
        self.seq = entry.seq = self.seq + 1
        if consumer is not None:
            entry.state = OUT
            entry.sink = consumer
            consumer.deliveries += 1
            consumer.unsettled += 1
            consumer.send(entry, payload, False)
            return
        self.line_up(entry)
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def _make_room(self, needed: int) -> bool:
        while self.bytes_stored + needed > self.max_bytes:
            entry = self.next_entry()
            if entry is None:
                return False
            self.settle(entry)
            self.dropped += 1
        return True

    def abandon(self, condition: str, description: str) -> None:
        """Close, as the topic is deleted."""
        self.close(condition, description)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a subscriber; its selector is the subscription's."""
        return self.add_consumer(BacklogConsumer(self, port, options.presettle, None, options.capabilities))

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a subscriber; with the last one the subscription ends."""
        super().remove_consumer(consumer)
        if not self.consumers and self.topic is not None:
            self.topic.end_volatile(self)
            self.forget()

    def forget(self) -> None:
        """Delete everything, on disk too."""
        self.is_closed = True
        self.count_bytes(-self.bytes_stored)
        if self.log is not None:
            if self.pager is not None:
                self.pager.close()
            self.log.close()
            self._delete()
        if self.jobs is not None:
            self.jobs.end()

    def _delete(self) -> None:
        core, log_id = self.core, self.log_id
        # What is on its way to the disk is committed before or with this batch, and found then.
        core.store_in_time([Operation(Table.MARK, log_key(log_id, 0, 0), None)], lambda: core.clear(log_id))
