"""Queues: messages are owned, stored if durable, and given to competing receivers in order.

Rules:
1. A durable message is accepted when its commit has returned, or when a receiver has accepted it
   before: then it need never be written.
2. Messages are handed out before they are written; order is the order of arrival, and what comes back
   takes its old place.
3. What was written is tracked by frame: a frame whose rows are all settled is deleted, for others the
   settled rows are written as ranges with the next batch.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, FAILED, RELEASED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame, encode_frame, split_payload
from enmasse.messaging.log import FRAME_BYTES, FRAME_ROWS, log_key
from enmasse.messaging.queue_entry import ENTRY_OVERHEAD_BYTES, Entry, FrameRef, settled_rows, with_attempts
from enmasse.messaging.storage import Operation, Table
from enmasse.wire.amqp.performatives import AmqpError, Modified, Rejected
from enmasse.wire.amqp.sections import is_durable

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["Queue", "QueueConsumer", "QueueProducer"]

DEFAULT_MAX_BYTES = 128 << 20

MAX_CREDIT = 1_000
"""Enough to cover a commit at full rate; a producer that is held up sends no more than this."""

_SEQ = attrgetter("seq")

UNSUPPORTED_FORMAT = Rejected(AmqpError("amqp:not-implemented", "only messages of format 0 can be stored"))


_Cut = tuple[list[Entry], list[FrameRef]]
"""What was written for the first time, and the frames whose settled rows were written."""


class QueueProducer(Producer):
    """A sender's end at a queue."""

    __slots__ = ()
    address: Queue

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take ownership: at once in memory, or once it is stored."""
        if message_format:
            if not settled:
                self.settle(delivery_id, UNSUPPORTED_FORMAT)
            return
        queue = self.address
        if queue.is_durable and is_durable(payload):
            queue.enqueue(payload, None if settled else self, delivery_id, durable=True)
        else:
            queue.enqueue(payload, None, 0, durable=False)
            if not settled:
                self.settle(delivery_id, ACCEPTED)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, whatever the credit."""
        if self.address.free_bytes > len(payload):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class QueueConsumer(Consumer):
    """A receiver's end at a queue."""

    __slots__ = ()
    address: Queue

    def on_credit(self, gained: int, drain: bool) -> None:
        """Hand out more."""
        if drain:
            self.address.dispatch()
            self.port.drained()
        else:
            self.address.due()

    def on_outcome(self, delivery: Entry, state: Any) -> None:
        """The receiver settled a message."""
        self.unsettled -= 1
        delivery.sink = None
        if state is ACCEPTED:
            self.address.settle(delivery)
            return
        self.count(state)
        if isinstance(state, Rejected):
            self.address.settle(delivery)
        else:
            if isinstance(state, Modified) and state.delivery_failed:
                delivery.attempts += 1
            self.address.put_back(delivery)


class Queue(Address):
    """A stored address whose messages go to one receiver each.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        log_id: under which its frames are kept.
        max_bytes: what may be stored; senders get credit as long as there is room. 0 is the default.
        max_consumers: receivers at the same time; 0 is without limit.
        is_durable: whether durable messages are written to the journal at all.
    """

    kind = "queue"
    deleted_state: Any = RELEASED
    """What senders hear of messages that a deletion kept from being stored."""

    __slots__ = (
        "_fresh", "_is_closed", "_touched", "average_bytes", "bytes_stored", "depth", "is_durable", "log_id",
        "max_bytes", "max_consumers", "next_offset", "ready", "returned", "seq",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        max_bytes: int = 0,
        max_consumers: int = 0,
        is_durable: bool = True,
    ) -> None:
        super().__init__(core, name)
        self.log_id = log_id
        self.limit_bytes(max_bytes)
        self.max_consumers = max_consumers
        self.is_durable = is_durable
        self.depth = 0
        self.bytes_stored = 0
        self.average_bytes = 1024
        self.next_offset = 0
        self.seq = 0
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """What came back, by its old place."""
        self._fresh: list[Entry] = []
        """Durable messages that no frame holds yet."""
        self._touched: list[FrameRef] = []
        """Frames whose settled rows are not written yet."""
        self._is_closed = False

    def limit_bytes(self, max_bytes: int) -> None:
        """Change what may be stored; 0 is the default."""
        self.max_bytes = max_bytes or DEFAULT_MAX_BYTES
        self.due()

    # Links

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins."""
        return self.add_producer(self.make_producer(port, target))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return QueueProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A receiver joins.

        Raises:
            AttachError: there are as many receivers as the address allows.
        """
        if self.max_consumers and len(self.consumers) >= self.max_consumers:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"{self.kind} {self.name!r} has {len(self.consumers)} receivers, its limit",
            )
        return self.add_consumer(QueueConsumer(self, port, options.presettle))

    def remove_consumer(self, consumer: Consumer) -> None:
        """A receiver has gone: what it had goes back, as a failed attempt."""
        for entry in consumer.port.take_unsettled():
            consumer.on_outcome(entry, FAILED)
        super().remove_consumer(consumer)

    # Messages

    @property
    def free_bytes(self) -> int:
        """What may still be stored."""
        return 0 if self.core.is_pressed else self.max_bytes - self.bytes_stored

    def enqueue(self, payload: bytes, producer: Any, producer_id: int, *, durable: bool) -> None:
        """Add a message at the end.

        Args:
            payload: the message.
            producer: has a ``settle(id, state)`` that is to be told when a durable message is stored.
            producer_id: the id for that call.
            durable: whether to write it.
        """
        self.seq += 1
        entry = Entry(payload, producer, producer_id, self.seq)
        self.depth += 1
        self.bytes_stored += len(payload) + ENTRY_OVERHEAD_BYTES
        self.ready.append(entry)
        if durable:
            if not self._fresh:
                self.core.write(self)
            self._fresh.append(entry)
            self.core.gathered_bytes += len(payload)
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def settle(self, entry: Entry) -> None:
        """A message is finished with."""
        entry.is_done = True
        self.depth -= 1
        self.bytes_stored -= len(entry.payload) + ENTRY_OVERHEAD_BYTES
        if entry.producer is not None:
            entry.producer.settle(entry.producer_id, ACCEPTED)
            entry.producer = None
        frame = entry.frame
        if frame is not None:
            frame.live -= 1
            frame.settled.append(entry.row)
            if not frame.is_touched:
                frame.is_touched = True
                self._touched.append(frame)
                self.core.write(self)
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def put_back(self, entry: Entry) -> None:
        """A message was not processed: it takes its old place."""
        if entry.is_refused:
            self._refuse(entry)
            return
        insort(self.returned, entry, key=_SEQ)
        self.due()

    def next_entry(self) -> Entry | None:
        """Take the oldest message that waits."""
        ready, returned = self.ready, self.returned
        if returned and (not ready or returned[0].seq < ready[0].seq):
            return returned.pop(0)
        return ready.popleft() if ready else None

    def dispatch(self) -> None:
        """Hand out what waits, oldest first, as far as receivers take it."""
        while self.ready or self.returned:
            consumer = self.choose()
            if consumer is None:
                return
            entry = self.next_entry()
            assert entry is not None
            self.deliver(entry, consumer)

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        """Send one message to one receiver."""
        consumer.deliveries += 1
        payload = with_attempts(entry.payload, entry.attempts) if entry.attempts else entry.payload
        if consumer.presettle:
            consumer.send(None, payload, True)
            self.settle(entry)
        else:
            consumer.unsettled += 1
            entry.sink = consumer
            consumer.send(entry, payload, False)

    def on_turn(self, now: float) -> None:
        """Hand out, then let senders have what there is room for."""
        if self.consumers:
            self.dispatch()
        self.grant()

    def grant(self) -> None:
        """Give every sender credit for its part of what is free."""
        producers = self.producers
        if not producers:
            return
        self.average_bytes = self.mean_bytes()
        window = min(MAX_CREDIT, self.window(len(producers)))
        if not window and self.core.is_pressed:
            self.core.hold(self)
        for producer in producers:
            port = producer.port
            credit = port.limit - port.received
            if 2 * credit <= window or credit > 2 * window:
                port.grant(window)

    def window(self, senders: int) -> int:
        """Messages that each of so many senders may send now."""
        free = self.free_bytes
        return max(1, free // (senders * self.average_bytes)) if free > 0 else 0

    def mean_bytes(self) -> int:
        """What a message takes, as far as is known."""
        return self.bytes_stored // self.depth if self.depth else self.average_bytes

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], _Cut | None]:
        """Frames of what is new, and settled ranges of what was written before."""
        operations: list[Operation] = []
        written: list[Entry] = []
        fresh, self._fresh = self._fresh, []
        rows: list[Entry] = []
        size = 0
        for entry in fresh:
            taken = len(entry.payload)
            self.core.gathered_bytes -= taken
            if entry.is_done:
                continue
            rows.append(entry)
            size += taken
            if size >= FRAME_BYTES or len(rows) >= FRAME_ROWS:
                operations.append(self._frame(rows, wall_us))
                written += rows
                rows = []
                size = 0
        if rows:
            operations.append(self._frame(rows, wall_us))
            written += rows
        for frame in self._touched:
            frame.is_touched = False
            key = log_key(self.log_id, 0, frame.first)
            if frame.live:
                operations.append(Operation(Table.SETTLED, key, frame.ranges()))
            else:
                operations.append(Operation(Table.FRAME, key, None))
                operations.append(Operation(Table.SETTLED, key, None))
        touched, self._touched = self._touched, []
        return operations, (written, touched) if operations else None

    def _frame(self, rows: list[Entry], wall_us: int) -> Operation:
        first = self.next_offset
        self.next_offset = first + len(rows)
        ref = FrameRef(first, len(rows))
        heads, bodies, whole = [], [], []
        for index, entry in enumerate(rows):
            head, body, is_whole = split_payload(entry.payload)
            heads.append(head)
            bodies.append(body)
            if is_whole:
                whole.append(index)
            entry.frame = ref
            entry.row = index
        count = len(rows)
        frame = encode_frame(first, [wall_us] * count, [b""] * count, heads, bodies, whole=whole)
        return Operation(Table.FRAME, log_key(self.log_id, 0, first), frame)

    def committed(self, token: _Cut) -> None:
        """What was cut is on disk: its senders may forget it."""
        for entry in token[0]:
            producer = entry.producer
            if producer is not None:
                entry.producer = None
                producer.settle(entry.producer_id, ACCEPTED)

    def failed(self, token: _Cut, reason: str) -> None:
        """What was cut is not on disk: give back what no receiver has, keep the rest in memory."""
        entries, frames = token
        # Rows that were settled meanwhile are rows of a frame that does not exist.
        lost = {entry.frame for entry in entries}
        touched = [frame for frame in self._touched if frame not in lost]
        self._touched = touched + [frame for frame in frames if not frame.is_touched]
        for frame in frames:
            frame.is_touched = True
        if self._touched and not self._is_closed:
            self.core.write(self)
        for entry in entries:
            entry.frame = None
            if entry.sink is not None:
                entry.is_refused = entry.producer is not None
            elif not entry.is_done and entry.producer is not None:
                self._refuse(entry)
        self.ready = deque(entry for entry in self.ready if not entry.is_done)
        self.returned = [entry for entry in self.returned if not entry.is_done]
        self.due()

    def _refuse(self, entry: Entry) -> None:
        """Give a message back to its sender."""
        entry.is_done = True
        self.depth -= 1
        self.bytes_stored -= len(entry.payload) + ENTRY_OVERHEAD_BYTES
        entry.producer.settle(entry.producer_id, self.deleted_state if self._is_closed else RELEASED)
        entry.producer = None
        self.due()

    def close(self, condition: str, description: str) -> None:
        """The queue is deleted: what is not on its way to the journal is not written any more."""
        self._is_closed = True
        fresh, self._fresh = self._fresh, []
        for entry in fresh:
            self.core.gathered_bytes -= len(entry.payload)
            if entry.producer is not None:
                self._refuse(entry)
        super().close(condition, description)
        self._touched = []

    def load(self, frames: Iterable[tuple[Frame, bytes | None]]) -> None:
        """Take up what the journal holds.

        Args:
            frames: this log's frames in order, each with its settled ranges if it has some.
        """
        for frame, settled in frames:
            ref = FrameRef(frame.first_offset, frame.rows)
            done = settled_rows(settled or b"")
            ref.settled = sorted(done)
            ref.live -= len(done)
            self.next_offset = max(self.next_offset, frame.next_offset)
            for row, payload in enumerate(frame.payloads()):
                if row in done:
                    continue
                self.seq += 1
                entry = Entry(payload, None, 0, self.seq)
                entry.frame = ref
                entry.row = row
                self.ready.append(entry)
                self.depth += 1
                self.bytes_stored += len(payload) + ENTRY_OVERHEAD_BYTES

    def counts(self) -> dict[str, int]:
        """With what is stored."""
        return super().counts() | {"messagesStored": self.depth, "bytesStored": self.bytes_stored}
