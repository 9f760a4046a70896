"""Streams: partitioned logs that every reader reads at its own offset.

Every message is stored, whatever its durable flag, and accepted after its commit; what a partition
promises is said in ``stream_log``, what is kept how long in ``stream_retention``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self

from enmasse.errors import EnmasseError
from enmasse.message.outcomes import ACCEPTED
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queues.queue import MAX_CREDIT
from enmasse.messaging.streams.heads import Heads
from enmasse.messaging.streams.merging import Acks, settle_all
from enmasse.messaging.streams.partition_log import Partition
from enmasse.messaging.streams.producers import (
    CommitProducer,
    MessageProducer,
    make_producer,
)
from enmasse.messaging.streams.reader import StreamConsumer
from enmasse.messaging.streams.readers import known_filters, make_reader
from enmasse.messaging.streams.retention import Retention
from enmasse.messaging.streams.rows import Templates
from enmasse.messaging.transaction import Done, sender_of

# A stream, its partitions, senders and readers know each other.
if TYPE_CHECKING:
    from enmasse.messaging.address import AddressSpace, Declaration
    from enmasse.messaging.core import Core, Log


DEFAULT_MAX_BYTES = 16 << 30

IN_FLIGHT_BYTES = 32 << 20
"""Bytes that all senders of messages together may have on their way: a few commits at full rate."""

TAIL_BYTES = 8 << 20
"""Committed frames that a stream keeps in memory for readers that keep up, all partitions together."""

LEAST_TAIL_BYTES = 64 << 10


class StreamError(EnmasseError):
    """Something stored in a stream cannot be read."""


def _ignore(_is_on_disk: bool) -> None:
    """Ignore the outcome: nobody waits for it."""


class Stream(Address):
    """A stored address whose messages are read, not consumed.

    Args:
        core: the core whose turn and journal it takes part in.
        name: the address.
        log_id: under which its frames are kept.
        uid: distinguishes this stream from a former one of the same name.
        partitions: the logs; their number is fixed for ever.
        max_bytes: the most bytes that may be stored; 0 is the default.
        retention_bytes: above it the oldest frames are deleted; 0 keeps them until ``max_bytes``.
        retention_ms: after it frames are deleted; 0 keeps them for ever. With either, ``max_bytes``
            too makes the oldest go; with neither, a full stream takes no more.
    """

    kind = "stream"
    is_read_by_offset = True
    partitions: list[Partition]
    __slots__ = (
        "__weakref__",
        "_accepted",
        "_budget",
        "_counted",
        "_damaged",
        "_round",
        "average_bytes",
        "bytes_stored",
        "damaged",
        "has_news",
        "heads",
        "is_closed",
        "leaving_bytes",
        "log_id",
        "max_bytes",
        "next_search",
        "partitions",
        "retention",
        "templates",
        "uid",
    )

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        uid: str,
        partitions: int = 1,
        max_bytes: int = 0,
        retention_bytes: int = 0,
        retention_ms: int = 0,
    ) -> None:
        super().__init__(core, name)
        self.log_id = log_id
        self.uid = uid
        self.bytes_stored = 0
        """Bytes that are stored or about to be."""
        self.leaving_bytes = 0
        """Bytes of these that a batch on its way deletes."""
        self.average_bytes = 1_024
        """The mean size of a message, as far as the latest ones show."""
        self.has_news = False
        """True if some reader may have something to send since readers were last served."""
        self.is_closed = False
        """True if it is deleted."""
        self.damaged = 0
        """Frames that could not be read."""
        self._damaged: set[tuple[int, int]] = set()
        self.retention = Retention(self)
        self.next_search = 0.0
        """The time of the next search for what is too old."""
        self.templates = Templates()
        count = max(1, partitions)
        tail_bytes = max(TAIL_BYTES // count, min(TAIL_BYTES, LEAST_TAIL_BYTES))
        self.partitions = [Partition(self, index, tail_bytes) for index in range(count)]
        self.heads = Heads(self.partitions)
        self._round = 0
        self._budget: AddressSpace | None = None
        """The space, if it has a limit of its own."""
        self._counted = 0
        """Bytes that the space counts for this stream."""
        self._accepted: Acks = {}
        """Senders that are settled in this turn, as something is stored."""
        self.configure(max_bytes=max_bytes, retention_bytes=retention_bytes, retention_ms=retention_ms)

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the stream that a declaration describes; see ``Address``."""
        made = cls(core, name, declaration.log_id, uid=declaration.uid, partitions=declaration.partitions)
        made.apply(declaration)
        return made

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration; more may be kept than the default limit if it says so."""
        super().apply(declaration)
        kept = declaration.settings.retention_bytes
        self.configure(
            max_bytes=declaration.settings.max_bytes or kept,
            retention_bytes=kept,
            retention_ms=declaration.settings.retention_ms,
        )

    def configure(self, *, max_bytes: int = 0, retention_bytes: int = 0, retention_ms: int = 0) -> None:
        """Change what may be stored and what is kept; all are as at first."""
        self.retention.max_bytes = retention_bytes
        self.retention.max_age_us = retention_ms * 1_000
        self.next_search = 0.0
        self.limit_bytes(max_bytes)

    def limit_bytes(self, max_bytes: int) -> None:
        """Change what may be stored; 0 is the default."""
        self.max_bytes = max_bytes or DEFAULT_MAX_BYTES
        self.due()

    # Partitions

    def partition(self, index: Any) -> Partition:
        """Return a partition by its number.

        Raises:
            AttachError: there is no such partition.
        """
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(self.partitions):
            raise AttachError(
                "amqp:invalid-field", f"{self.name!r} has partitions 0 to {len(self.partitions) - 1}, not {index!r}"
            )
        return self.partitions[index]

    def next_partition(self) -> Partition:
        """The partition of the next message without a key: they take turns."""
        partitions = self.partitions
        self._round = (self._round + 1) % len(partitions)
        return partitions[self._round]

    # Links

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; one with the frames capability names its partition.

        Raises:
            AttachError: the partition named does not exist.
        """
        return self.add_producer(make_producer(self, port, target, options))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return MessageProducer(self, port, target)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filters of the kind of reader that the options ask for; see ``Address``."""
        return known_filters(options)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a reader, of messages, of frames or of offsets.

        Raises:
            AttachError: its filters do not fit the stream.
        """
        return self.add_consumer(make_reader(self, port, options))

    def forget_consumer(self, name: str) -> None:
        """Forget how far a named consumer has come."""
        for partition in self.partitions:
            if name in partition.consumers.reached:
                partition.commit_consumer(name, None, _ignore)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a reader; nothing depends on what it did not settle."""
        consumer.port.take_unsettled()
        super().remove_consumer(consumer)

    # The turn

    def join(self, space: AddressSpace) -> None:
        """Join a space, whose limits count."""
        self._budget = space if space.max_bytes else None
        self._counted = 0
        self._count()

    def _count(self) -> None:
        """Have the space know what is stored here by now."""
        if self._budget is not None:
            self._budget.bytes_stored += self.bytes_stored - self._counted
            self._counted = self.bytes_stored

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be stored."""
        if self.core.is_pressed:
            return 0
        free = self.max_bytes - self.bytes_stored
        if self.retention.is_active:
            # The oldest go, so this only waits for them where they go too slowly.
            free = self.retention.limit + 2 * IN_FLIGHT_BYTES - self.bytes_stored
        if self._budget is not None:
            free = min(free, self._budget.max_bytes - self._budget.bytes_stored)
        return free

    def accept(self, acks: Acks) -> None:
        """Settle these, as their messages are on disk; in this turn, all partitions together."""
        accepted = self._accepted
        for producer, ids in acks.items():
            if producer in accepted:
                accepted[producer] += ids
            else:
                accepted[producer] = ids
        self.due()

    def advanced(self) -> None:
        """Serve readers in this turn: something was committed, or one of them takes more."""
        self.has_news = True
        self.due()

    def on_turn(self, now: float) -> None:
        """Serve readers, see what is to go, then let senders have what there is room for."""
        self._settle_accepted()
        readers = list(self.consumers) if self.has_news else []
        self.has_news = False
        for consumer in readers:
            assert isinstance(consumer, StreamConsumer)
            consumer.serve()
        if self.retention.is_active and not self.is_closed:
            self._search(now)
        if self._budget is not None:
            self._count()
            self._budget.balance(self)
        producers = self.producers
        if not producers:
            return
        free = self.free_bytes
        share = min(free, IN_FLIGHT_BYTES) // (self.average_bytes * len(producers))
        if free > 0:
            share = max(1, share)
        if not share and self.core.is_pressed:
            self.core.hold(self)
        for producer in producers:
            if isinstance(producer, CommitProducer):
                window = producer.max_credit
            else:
                assert isinstance(producer, MessageProducer)
                window = max(0, min(producer.max_credit or MAX_CREDIT, share))
            port = producer.port
            credit = port.limit - port.received
            if 2 * credit <= window or credit > 2 * window:
                port.grant(window)

    def _settle_accepted(self) -> None:
        accepted, self._accepted = self._accepted, {}
        settle_all(accepted, ACCEPTED)

    def _search(self, now: float) -> None:
        """Have partitions written that something is to be deleted of."""
        pause = self.retention.pause_s
        is_time = bool(pause) and now >= self.next_search
        if is_time:
            self.next_search = now + pause
            self.core.schedule(self, self.next_search)
            for partition in self.partitions:
                if partition.is_expired(self.core.wall_us):
                    self.core.write(partition)
        if self.retention.excess > 0:
            chosen = self.retention.choose()
            if chosen is not None:
                self.core.write(chosen)

    def search_again(self) -> None:
        """Search for what is too old in the next turn, as more may be known by now."""
        self.next_search = 0.0
        self.due()

    def on_deadline(self, now: float) -> None:
        """Search for what is too old."""
        if now >= self.next_search:
            self.search_again()

    def found_damaged(self, partition: Partition, offset: int) -> None:
        """Report a frame that could not be read, once for each offset."""
        place = (partition.index, offset)
        if place not in self._damaged:
            self._damaged.add(place)
            self.damaged += 1
            problem = f"the frame at offset {offset} is damaged; its rows are left out"
            self.core.report(partition.name, StreamError(problem))

    # Transactions

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more could be stored now."""
        return size <= self.free_bytes

    def enlist_message(self, payload: bytes, target: str, done: Done) -> Log:
        """Append a message for a transaction; see ``TakesMessages``."""
        head = self.heads.of(payload)
        partition = head.partition or self.next_partition()
        partition.append_parts(head, payload[head.body_at :], sender_of(done), 0)
        return partition

    def enlist_settlement(self, entry: Any, done: Done) -> Log | None:
        """Have a reader's delivery accepted, which only a named consumer keeps; see ``GivesMessages``."""
        reader: StreamConsumer = entry.sink
        return reader.enlist(entry, done)

    # The stream as a whole

    def close(self, condition: str, description: str) -> None:
        """Close, as the stream is deleted."""
        self.is_closed = True
        for partition in self.partitions:
            partition.close()
        if self._budget is not None:
            self._budget.bytes_stored -= self._counted
            self._budget = None
        super().close(condition, description)

    def load(self) -> None:
        """Load what the journal holds."""
        for partition in self.partitions:
            partition.load()

    def counts(self) -> dict[str, Any]:
        """Return the counters: of what is stored, of the ends of partitions, and of named consumers."""
        consumers = [
            {
                "name": name,
                "partition": partition.index,
                "offset": offset,
                "lag": partition.visible - max(offset, partition.low),
            }
            for partition in self.partitions
            for name, offset in sorted(partition.consumers.stored.items())
        ]
        return super().counts() | {
            "messagesStored": sum(p.visible - p.low for p in self.partitions),
            "bytesStored": self.bytes_stored,
            "damaged": self.damaged,
            "partitionMarks": [[p.index, p.low, p.visible] for p in self.partitions],
            "consumers": consumers,
        }
