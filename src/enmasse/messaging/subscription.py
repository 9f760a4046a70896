"""Subscriptions: what one subscriber of a topic still has to be given.

A durable subscription is an owner of the topic's log: a message is written once for all of them. A
volatile one keeps its messages in memory; what it does not take in time is dropped for it alone, holds
back the topic's senders, or waits on disk, as its topic's policy says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.backlog import Backlog, BacklogConsumer
from enmasse.messaging.delivery import ACCEPTED, Consumer, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import Facts, known_facts
from enmasse.messaging.frame import Frame
from enmasse.messaging.log import FRAME_BYTES, by_frame, delete_log, log_key, log_range
from enmasse.messaging.message_log import MessageLog
from enmasse.messaging.options import StoredOptions
from enmasse.messaging.patterns import Pattern
from enmasse.messaging.queue_entry import OUT, Entry, FrameRef, settled_rows
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.timing import Timing
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import ConsumerPort
    from enmasse.messaging.selector import Selector
    from enmasse.messaging.topic import Topic

__all__ = ["VOLATILE_BYTES", "Subscription", "VolatileSubscription"]

VOLATILE_BYTES = 8 << 20
"""What may wait for one volatile subscriber before its policy takes hold."""

SHARED_PARTITION = 1
"""Beside its own log, in which earlier versions kept its messages, a subscription has an account of its
topic's log."""


class Subscription(Backlog):
    """A durable subscription.

    Args:
        core: whose turn it takes part in.
        name: the address, or the name under which its subscriber comes again.
        log_id: under which its account of the topic's log is kept.
        topic: the topic's address.
        pattern: which names below it are wanted.
        options: what it does beyond storing.
        selector: which messages are wanted.
    """

    kind = "subscription"
    is_durable = True
    is_shared = True
    deleted_state: Any = ACCEPTED
    __slots__ = (
        "average_bytes", "first_offset", "log_id", "pattern", "selector", "topic", "topic_name", "writes_all",
        "writes_durable",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        topic: str,
        pattern: Pattern,
        options: StoredOptions | None = None,
        selector: Selector | None = None,
    ) -> None:
        options = options or StoredOptions()
        self.topic: Topic | None = None
        self.topic_name = topic
        self.pattern = pattern
        self.selector = selector
        self.log_id = log_id
        self.average_bytes = 1024
        self.first_offset = 0
        """Where in the topic's log its messages begin."""
        self.writes_durable = options.storage != "memory"
        self.writes_all = options.storage == "durable"
        super().__init__(core, name, None, (log_id, SHARED_PARTITION), options)

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Nobody sends into a subscription but its topic.

        Raises:
            AttachError: always.
        """
        raise AttachError("amqp:not-allowed", f"send to topic {self.topic_name!r}, not to {self.name!r}")

    def wants(self, payload: bytes) -> bool:
        """Whether a message of a name that it wants is wanted itself."""
        return self.selector is None or self.selector.matches(payload)

    def take(self, payload: bytes, producer: Any, *, is_staged: bool = False) -> None:
        """Add a message for this subscription alone; ``producer`` is told when it is stored, if it will be."""
        if self.topic is not None and self.log is not None:
            self.topic.store([self], payload, known_facts(payload), producer, 0, is_staged=is_staged)

    def window_for(self, senders: int) -> int:
        """Messages that each of so many senders may send now."""
        free = self.free_bytes
        if self.depth:
            self.average_bytes = max(1, self.bytes_stored // self.depth)
        return max(1, free // (senders * self.average_bytes)) if free > 0 else 0

    def entry_of(self, row: Any) -> Any:
        """This subscription's entry for a row of its topic's log."""
        return row.entries.get(self)

    def found(self, first: int, rows: int, live: int, size: int) -> bool:
        """A frame is on disk when the node starts; those before the subscription are none of its."""
        if first + rows <= self.first_offset:
            return False
        return super().found(first, rows, live, size)

    def is_done_with(self, first: int, following: int) -> bool:
        """Whether nothing of a frame is needed any more."""
        return following <= self.first_offset or super().is_done_with(first, following)

    def load(self) -> None:
        """Take up what an earlier version kept in a log of the subscription's own."""
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

    def abandon(self, condition: str, description: str) -> None:
        """The topic is deleted, and the messages with it; another topic of its name may feed it again."""
        self.topic = None
        for consumer in list(self.consumers):
            consumer.port.detach(AmqpError(condition, description))
            consumer.gone()
        self.count_bytes(-self.bytes_stored)
        self.depth = self.resident_bytes = 0
        self.ready.clear()
        self.returned.clear()
        self.waiting.clear()
        self.frames.clear()
        pager = self.pager
        self.order = self.pager = self.log = None
        self.inherited_below = 0
        if pager is not None:
            pager.close()
        self.timing = Timing(self)
        self.is_spilling = False

    def on_turn(self, now: float) -> None:
        """Hand out; what became free lets the topic's senders go on."""
        super().on_turn(now)
        if self.topic is not None and self.topic.producers:
            self.topic.due()


class VolatileSubscription(Subscription):
    """What waits for a subscriber, or for several that share it, as long as one is attached.

    Args:
        policy: what bounds it: ``drop-oldest``, ``block`` or ``spill``.
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
        size = 0 if policy == "spill" else VOLATILE_BYTES
        options = StoredOptions(max_bytes=size)
        super().__init__(core, name, log_id, topic=topic, pattern=pattern, options=options, selector=selector)
        self.is_blocking = policy == "block"
        if policy == "spill":
            self.owner = (log_id, 0)
            self.bind(MessageLog(core, self, log_id))
            self.configure(options)

    def entry_of(self, row: Any) -> Any:
        """The entry of a row of its own log."""
        return row.entry

    def offer(self, payload: bytes, facts: Facts) -> None:
        """Take a message; the oldest ones make room, if that is the policy."""
        stored = self.bytes_stored + len(payload) + self.overhead
        if stored > self.max_bytes and not self.is_blocking:
            if not self._make_room(len(payload) + self.overhead):
                self.dropped += 1
                return
            stored = self.bytes_stored + len(payload) + self.overhead
        if not facts.is_plain or self.order is not None or self.log is not None or self.timing.is_wanted:
            self.enqueue(payload, None, 0, durable=False, facts=facts)
            return
        consumer = self.consumers[0] if len(self.consumers) == 1 and not (self.ready or self.returned) else None
        if consumer is not None and (consumer.port.credit <= 0 or consumer.is_blocked):
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
        self.ready.append(entry)
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

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A subscriber joins; its selector is the subscription's."""
        return self.add_consumer(BacklogConsumer(self, port, options.presettle, None))

    def remove_consumer(self, consumer: Consumer) -> None:
        """A subscriber has gone; with the last one the subscription ends."""
        super().remove_consumer(consumer)
        if not self.consumers and self.topic is not None:
            self.topic.end_volatile(self)
            self.forget()

    def forget(self) -> None:
        """Let go of everything, on disk too."""
        self.is_closed = True
        self.count_bytes(-self.bytes_stored)
        if self.log is not None:
            self.log.close()
            self._delete()

    def _delete(self) -> None:
        storage, log_id = self.core.storage, self.log_id

        def written() -> None:
            self.core.store_in_time(list(delete_log(storage, log_id)))

        # What is on its way to the disk is committed before or with this batch, and found then.
        self.core.store_in_time([Operation(Table.MARK, log_key(log_id, 0, 0), None)], written)
