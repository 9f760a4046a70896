"""Streams: partitioned logs that every reader reads at its own offset.

Every message is stored, whatever its durable flag, and accepted after its commit; what a partition
promises is said in ``stream_log``, what is kept how long in ``stream_retention``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from enmasse.errors import EnmasseError
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queue import MAX_CREDIT
from enmasse.messaging.stream_gathered import Acks, settle_all
from enmasse.messaging.stream_heads import Heads
from enmasse.messaging.stream_log import Partition
from enmasse.messaging.stream_producers import (
    COMMITS_CAPABILITY,
    FRAME_CREDIT,
    FRAME_FORMAT,
    FRAMES_CAPABILITY,
    CommitProducer,
    MessageProducer,
    make_producer,
)
from enmasse.messaging.stream_reader import StreamConsumer
from enmasse.messaging.stream_readers import OFFSETS_CAPABILITY, known_filters, make_reader
from enmasse.messaging.stream_retention import Retention
from enmasse.messaging.stream_rows import Templates
from enmasse.messaging.transaction import Done, sender_of

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.space import Space

__all__ = [
    "COMMITS_CAPABILITY",
    "DEFAULT_MAX_BYTES",
    "FRAMES_CAPABILITY",
    "FRAME_CREDIT",
    "FRAME_FORMAT",
    "IN_FLIGHT_BYTES",
    "OFFSETS_CAPABILITY",
    "Stream",
]

DEFAULT_MAX_BYTES = 16 << 30

IN_FLIGHT_BYTES = 32 << 20
"""What all senders of messages together may have on their way: a few commits at full rate."""

TAIL_BYTES = 8 << 20
"""Committed frames that a stream keeps in memory for readers that keep up, all partitions together."""

LEAST_TAIL_BYTES = 64 << 10


class StreamError(EnmasseError):
    """Something stored in a stream cannot be read."""


class Stream(Address):
    """A stored address whose messages are read, not consumed.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        log_id: under which its frames are kept.
        uid: what tells this stream from another that had its name before.
        partitions: how many logs; fixed for ever.
        max_bytes: what may be stored; 0 is the default.
        retention_bytes: above it the oldest frames are deleted; 0 keeps them until ``max_bytes``.
        retention_ms: after it frames are deleted; 0 keeps them for ever. With either, ``max_bytes``
            too makes the oldest go; with neither, a full stream takes no more.
    """

    kind = "stream"
    __slots__ = (
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
        "looks_at",
        "max_bytes",
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
        """What is stored or about to be."""
        self.leaving_bytes = 0
        """What of it a batch on its way deletes."""
        self.average_bytes = 1_024
        """What a message takes, as far as the latest ones tell."""
        self.has_news = False
        """Whether some reader may have something to send since readers were last served."""
        self.is_closed = False
        """Whether it is deleted."""
        self.damaged = 0
        """Frames that could not be read."""
        self._damaged: set[tuple[int, int]] = set()
        self.retention = Retention(self)
        self.looks_at = 0.0
        """When to look for what is too old."""
        self.templates = Templates()
        count = max(1, partitions)
        tail_bytes = max(TAIL_BYTES // count, min(TAIL_BYTES, LEAST_TAIL_BYTES))
        self.partitions = [Partition(self, index, tail_bytes) for index in range(count)]
        self.heads = Heads(self.partitions)
        self._round = 0
        self._budget: Space | None = None
        """The space, if it has a limit of its own."""
        self._counted = 0
        """What the space knows to be stored here."""
        self._accepted: Acks = {}
        """Who hears in this turn that something is stored."""
        self.configure(max_bytes=max_bytes, retention_bytes=retention_bytes, retention_ms=retention_ms)

    def configure(self, *, max_bytes: int = 0, retention_bytes: int = 0, retention_ms: int = 0) -> None:
        """Change what may be stored and what is kept; all are as at first."""
        self.retention.max_bytes = retention_bytes
        self.retention.max_age_us = retention_ms * 1_000
        self.looks_at = 0.0
        self.limit_bytes(max_bytes)

    def limit_bytes(self, max_bytes: int) -> None:
        """Change what may be stored; 0 is the default."""
        self.max_bytes = max_bytes or DEFAULT_MAX_BYTES
        self.due()

    # Partitions

    def partition(self, index: Any) -> Partition:
        """A partition by its number.

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
        """A sender joins; one with the frames capability names its partition.

        Raises:
            AttachError: the partition named does not exist.
        """
        return self.add_producer(make_producer(self, port, target, options))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return MessageProducer(self, port, target)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Those of the kind of reader that the options ask for; see ``Address``."""
        return known_filters(options)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A reader joins, of messages, of frames or of offsets.

        Raises:
            AttachError: its filters do not fit the stream.
        """
        return self.add_consumer(make_reader(self, port, options))

    def remove_consumer(self, consumer: Consumer) -> None:
        """A reader has gone; nothing depends on what it did not settle."""
        consumer.port.take_unsettled()
        super().remove_consumer(consumer)

    # The turn

    def join(self, space: Space) -> None:
        """Be one of a space's addresses, whose limits count."""
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
        """What may still be stored."""
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
        """What these wait for is on disk; they hear in this turn, all partitions together."""
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
        self._tell_accepted()
        readers = list(self.consumers) if self.has_news else []
        self.has_news = False
        for consumer in readers:
            assert isinstance(consumer, StreamConsumer)
            consumer.serve()
        if self.retention.is_active and not self.is_closed:
            self._look(now)
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

    def _tell_accepted(self) -> None:
        accepted, self._accepted = self._accepted, {}
        settle_all(accepted, ACCEPTED)

    def _look(self, now: float) -> None:
        """Have partitions written that something is to be deleted of."""
        pause = self.retention.pause_s
        is_time = bool(pause) and now >= self.looks_at
        if is_time:
            self.looks_at = now + pause
            self.core.schedule(self, self.looks_at)
            for partition in self.partitions:
                if partition.is_expired(self.core.wall_us):
                    self.core.write(partition)
        if self.retention.excess > 0:
            chosen = self.retention.choose()
            if chosen is not None:
                self.core.write(chosen)

    def look_again(self) -> None:
        """What is too old may be known by now."""
        self.looks_at = 0.0
        self.due()

    def on_deadline(self, now: float) -> None:
        """It is time to look for what is too old."""
        if now >= self.looks_at:
            self.look_again()

    def found_damaged(self, partition: Partition, offset: int) -> None:
        """A frame that begins at an offset could not be read; told once."""
        place = (partition.index, offset)
        if place not in self._damaged:
            self._damaged.add(place)
            self.damaged += 1
            problem = f"the frame at offset {offset} is damaged; its rows are left out"
            self.core.report(partition.name, StreamError(problem))

    # Transactions

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more could be stored now."""
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
        """The stream is deleted."""
        self.is_closed = True
        for partition in self.partitions:
            partition.close()
        if self._budget is not None:
            self._budget.bytes_stored -= self._counted
            self._budget = None
        super().close(condition, description)

    def load(self) -> None:
        """Take up what the journal holds."""
        for partition in self.partitions:
            partition.load()

    def counts(self) -> dict[str, Any]:
        """With what is stored, where partitions begin and end, and how far named consumers are."""
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
