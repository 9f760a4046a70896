"""Streams: partitioned logs that every reader reads at its own offset.

Rules:
1. Every message is stored, whatever its durable flag, and accepted after its commit.
2. What one turn wrote to a partition is one frame (more only where it would be too large); offsets are
   given when the frame is cut, so they are consecutive.
3. Readers see rows only after their commit.
4. A producer's (id, sequence) that was seen before is accepted and written nowhere.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, RELEASED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame, FrameError, encode_frame, restamp_frame, split_payload
from enmasse.messaging.log import FRAME_BYTES, FRAME_ROWS, log_key, log_range
from enmasse.messaging.partition import partition_of
from enmasse.messaging.queue import MAX_CREDIT, UNSUPPORTED_FORMAT
from enmasse.messaging.storage import Operation, Table
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import AmqpError, Rejected
from enmasse.wire.amqp.sections import key_and_subject

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["FRAMES_CAPABILITY", "FRAME_FORMAT", "OFFSETS_CAPABILITY", "Partition", "Stream"]

FRAME_FORMAT = 0x454D4601
"""The message format of a transfer that carries a frame: "EMF" and a version."""

FRAMES_CAPABILITY = "enmasse:frames"
OFFSETS_CAPABILITY = "enmasse:offsets"
PARTITION_PROPERTY = "enmasse:partition"

DEFAULT_MAX_BYTES = 16 << 30

FRAME_CREDIT = 16
"""Frames that a bulk sender may have on their way: up to 16 MiB, some commits' worth."""

TAIL_BYTES = 4 << 20
"""Committed frames that a partition keeps in memory for readers that keep up."""

KNOWN_KEYS = 65_536
"""Keys whose partition is remembered: devices repeat themselves, and the hash takes microseconds."""

_SEQUENCE = struct.Struct(">Q")


def key_of(payload: bytes) -> bytes:
    """A message's partition key: the annotation, else the subject, else nothing."""
    try:
        annotation, subject = key_and_subject(payload)
    except DecodeError:
        return b""
    key = subject if annotation is None else annotation
    if key is None:
        return b""
    return key if isinstance(key, bytes) else str(key).encode()


class _Rows:
    """Messages that no frame holds yet."""

    __slots__ = ("acks", "bodies", "bytes", "heads", "keys", "sequences", "whole")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.whole: list[int] = []
        self.acks: list[tuple[Producer, int]] = []
        self.sequences: dict[bytes, int] = {}
        self.bytes = 0


class _Ready:
    """A frame that a sender made; the node fills in offset and time."""

    __slots__ = ("ack", "frame")

    def __init__(self, frame: Frame, ack: tuple[Producer, int] | None) -> None:
        self.frame = frame
        self.ack = ack


class _Cut:
    """What one batch holds of a partition."""

    __slots__ = ("acks", "frames", "producers", "size")

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes, int]] = []
        """First offset, bytes, rows."""
        self.acks: list[tuple[Producer, int]] = []
        self.producers: dict[bytes, int | None] = {}
        """Producers whose sequence moved, and what it was before."""
        self.size = 0


class Partition:
    """One log of a stream."""

    __slots__ = (
        "_groups", "_tail", "_tail_bytes", "bytes_stored", "index", "low", "next_offset", "pending", "sequences",
        "stream", "visible",
    )  # fmt: skip

    def __init__(self, stream: Stream, index: int) -> None:
        self.stream = stream
        self.index = index
        self.low = 0
        """The first offset that is kept."""
        self.next_offset = 0
        """The offset that the next row is given."""
        self.visible = 0
        """The offset up to which readers see rows."""
        self.bytes_stored = 0
        self.pending = 0
        """Bytes that are not committed yet."""
        self.sequences: dict[bytes, int] = {}
        """The last sequence of every idempotent producer."""
        self._groups: list[_Rows | _Ready] = []
        self._tail: deque[tuple[int, int, bytes]] = deque()
        """First offset, next offset and bytes of the latest frames."""
        self._tail_bytes = 0

    def append(
        self, key: bytes, payload: bytes, ack: tuple[Producer, int] | None, identity: tuple[bytes, int] | None
    ) -> None:
        """Add one message; ``ack`` hears when it is stored."""
        groups = self._groups
        if identity is not None and self._is_duplicate(*identity):
            self._acknowledge_later(ack)
            return
        if not groups:
            self.stream.core.write(self)
        rows = groups[-1] if groups else None
        if not isinstance(rows, _Rows) or rows.bytes >= FRAME_BYTES or len(rows.keys) >= FRAME_ROWS:
            rows = _Rows()
            groups.append(rows)
        head, body, whole = split_payload(payload)
        if whole:
            rows.whole.append(len(rows.keys))
        rows.keys.append(key)
        rows.heads.append(head)
        rows.bodies.append(body)
        size = len(payload) + len(key) + 20
        rows.bytes += size
        self.pending += size
        if ack is not None:
            rows.acks.append(ack)
        if identity is not None:
            rows.sequences[identity[0]] = identity[1]

    def append_frame(self, frame: Frame, ack: tuple[Producer, int] | None) -> None:
        """Add a ready frame; ``ack`` hears when it is stored."""
        if frame.producer and self._is_duplicate(frame.producer, frame.sequence):
            self._acknowledge_later(ack)
            return
        if not self._groups:
            self.stream.core.write(self)
        self._groups.append(_Ready(frame, ack))
        self.pending += len(frame.data)

    def _is_duplicate(self, producer: bytes, sequence: int) -> bool:
        last = self.sequences.get(producer, -1)
        for group in self._groups:
            if isinstance(group, _Ready):
                if group.frame.producer == producer:
                    last = max(last, group.frame.sequence)
            else:
                last = max(last, group.sequences.get(producer, -1))
        return sequence <= last

    def _acknowledge_later(self, ack: tuple[Producer, int] | None) -> None:
        """Answer a duplicate with the next batch: the first one may not be on disk yet."""
        if ack is None:
            return
        if not self._groups:
            self.stream.core.write(self)
        rows = _Rows()
        rows.acks.append(ack)
        self._groups.append(rows)

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], _Cut | None]:
        """Frames of what gathered."""
        groups, self._groups = self._groups, []
        if not groups:
            return [], None
        operations: list[Operation] = []
        cut = _Cut()
        for group in groups:
            first = self.next_offset
            if isinstance(group, _Ready):
                count = group.frame.rows
                data = restamp_frame(group.frame, first, wall_us)
                if group.ack is not None:
                    cut.acks.append(group.ack)
                if group.frame.producer:
                    self._move_sequence(cut, group.frame.producer, group.frame.sequence)
                cut.size += len(group.frame.data)
            else:
                count = len(group.keys)
                cut.acks += group.acks
                cut.size += group.bytes
                for producer, sequence in group.sequences.items():
                    self._move_sequence(cut, producer, sequence)
                if not count:
                    continue
                data = encode_frame(
                    first, [wall_us] * count, group.keys, group.heads, group.bodies, whole=group.whole
                )
            self.next_offset = first + count
            cut.frames.append((first, data, count))
            operations.append(Operation(Table.FRAME, log_key(self.stream.log_id, self.index, first), data))
        for producer in cut.producers:
            key = log_key(self.stream.log_id, self.index, 0) + producer
            operations.append(Operation(Table.PRODUCER, key, _SEQUENCE.pack(self.sequences[producer])))
        return operations, cut

    def _move_sequence(self, cut: _Cut, producer: bytes, sequence: int) -> None:
        cut.producers.setdefault(producer, self.sequences.get(producer))
        self.sequences[producer] = sequence

    def _add(self, first: int, data: bytes, count: int) -> None:
        self.visible = first + count
        self.bytes_stored += len(data)
        self._tail.append((first, first + count, data))
        self._tail_bytes += len(data)
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft()[2])

    def committed(self, token: _Cut) -> None:
        """What was cut is on disk: tell senders and readers."""
        for first, data, count in token.frames:
            self._add(first, data, count)
        self.pending -= token.size
        for producer, delivery_id in token.acks:
            producer.settle(delivery_id, ACCEPTED)
        self.stream.advanced()

    def failed(self, token: _Cut, reason: str) -> None:
        """What was cut is not on disk: its senders are to send again.

        A later batch may be on its way with higher offsets; the gap that this leaves holds no rows,
        and readers step over it.
        """
        self.pending -= token.size
        for producer, before in token.producers.items():
            if before is None:
                self.sequences.pop(producer, None)
            else:
                self.sequences[producer] = before
        for sender, delivery_id in token.acks:
            sender.settle(delivery_id, RELEASED)
        self.stream.advanced()

    def load(self) -> None:
        """Take up what the journal holds."""
        storage = self.stream.core.storage
        first, last = log_range(self.stream.log_id, self.index)
        lowest = storage.scan(Table.FRAME, first, last, 1)
        if lowest:
            self.low = int.from_bytes(lowest[0][0][-8:], "big")
            found = storage.floor(Table.FRAME, last, first)
            if found is not None:
                frame = Frame(found[1])
                self.next_offset = self.visible = frame.next_offset
        for key, value in storage.scan(Table.PRODUCER, first, last, 1 << 30):
            self.sequences[key[16:]] = _SEQUENCE.unpack(value)[0]

    # Reading

    def read(self, offset: int, limit_bytes: int) -> list[tuple[int, int, bytes]]:
        """Committed frames from the one that holds ``offset`` on: first offset, next offset, bytes.

        Memory answers readers that keep up; the journal answers the others.
        """
        if offset >= self.visible:
            return []
        tail = self._tail
        if tail and offset >= tail[0][0]:
            found = []
            size = 0
            for item in tail:
                if item[1] > offset:
                    found.append(item)
                    size += len(item[2])
                    if size >= limit_bytes:
                        break
            return found
        storage = self.stream.core.storage
        low, last = log_range(self.stream.log_id, self.index)
        key = log_key(self.stream.log_id, self.index, offset)
        start = storage.floor(Table.FRAME, key, low)
        records = storage.scan(Table.FRAME, start[0] if start else key, last, limit_bytes)
        found = []
        for record_key, data in records:
            frame_first = int.from_bytes(record_key[-8:], "big")
            frame_next = frame_first + Frame(data, verify=False).rows
            if frame_next > offset and frame_next <= self.visible:
                found.append((frame_first, frame_next, data))
        return found


class StreamProducer(Producer):
    """A sender of messages."""

    __slots__ = ()
    address: Stream

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Append to the partition of the message's key."""
        if message_format:
            if not settled:
                self.settle(delivery_id, UNSUPPORTED_FORMAT)
            return
        stream = self.address
        key = key_of(payload)
        partition = stream.partition_for(key)
        partition.append(key, payload, None if settled else (self, delivery_id), None)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, whatever the credit."""
        if self.address.free_bytes > len(payload):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class FrameProducer(StreamProducer):
    """A sender of ready frames to one partition."""

    __slots__ = ("partition",)

    def __init__(self, address: Stream, port: ProducerPort, target: str, partition: Partition) -> None:
        super().__init__(address, port, target)
        self.partition = partition

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Append a frame."""
        problem = ""
        if message_format != FRAME_FORMAT:
            problem = f"a link with {FRAMES_CAPABILITY} carries messages of format {FRAME_FORMAT:#x}"
        elif len(payload) > 4 * FRAME_BYTES:
            problem = f"a frame of {len(payload)} bytes; {4 * FRAME_BYTES} are the most"
        else:
            try:
                frame = Frame(payload)
                frame.check_columns()
            except FrameError as error:
                problem = str(error)
        if problem:
            if not settled:
                self.settle(delivery_id, Rejected(AmqpError("amqp:decode-error", problem)))
            return
        self.partition.append_frame(frame, None if settled else (self, delivery_id))


class _Sent:
    """A delivery that a reader may settle; nothing depends on it."""

    __slots__ = ("sink",)

    def __init__(self, sink: Consumer) -> None:
        self.sink = sink


class StreamConsumer(Consumer):
    """What readers of all kinds share: they are served in the stream's turn."""

    __slots__ = ()
    address: Stream

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what there is for the credit."""
        if drain:
            self.pump()
            self.port.drained()
        else:
            self.address.due()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Reading does not consume: the outcome is only counted."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)

    def put(self, payload: bytes, message_format: int = 0) -> None:
        """Send one message for one credit."""
        self.deliveries += 1
        if self.presettle:
            self.send(None, payload, True, message_format)
        else:
            self.unsettled += 1
            self.send(_Sent(self), payload, False, message_format)

    def pump(self) -> None:
        """Send what there is, as far as credit goes."""
        raise NotImplementedError


class Stream(Address):
    """A stored address whose messages are read, not consumed.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        log_id: under which its frames are kept.
        uid: what tells this stream from another that had its name before.
        partitions: how many logs; fixed for ever.
        max_bytes: what may be stored; 0 is the default.
    """

    kind = "stream"
    __slots__ = ("_keys", "_round", "log_id", "max_bytes", "partitions", "uid")

    def __init__(
        self, core: Core, name: str, log_id: int, *, uid: str, partitions: int = 1, max_bytes: int = 0
    ) -> None:
        super().__init__(core, name)
        self.log_id = log_id
        self.uid = uid
        self.max_bytes = max_bytes or DEFAULT_MAX_BYTES
        self.partitions = [Partition(self, index) for index in range(max(1, partitions))]
        self._keys: dict[bytes, Partition] = {}
        self._round = 0

    def partition_for(self, key: bytes) -> Partition:
        """The partition of a key; those without one take turns."""
        partitions = self.partitions
        if len(partitions) == 1:
            return partitions[0]
        if not key:
            self._round = (self._round + 1) % len(partitions)
            return partitions[self._round]
        known = self._keys
        partition = known.get(key)
        if partition is None:
            if len(known) >= KNOWN_KEYS:
                known.clear()
            partition = known[key] = partitions[partition_of(key, len(partitions))]
        return partition

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins; one with the frames capability names its partition.

        Raises:
            AttachError: the partition named does not exist.
        """
        if FRAMES_CAPABILITY not in options.capabilities:
            return self.add_producer(self.make_producer(port, target))
        index = options.properties.get(PARTITION_PROPERTY, 0)
        return self.add_producer(FrameProducer(self, port, target, self._partition(index)))

    def _partition(self, index: Any) -> Partition:
        if not isinstance(index, int) or not 0 <= index < len(self.partitions):
            raise AttachError(
                "amqp:invalid-field", f"{self.name!r} has partitions 0 to {len(self.partitions) - 1}, not {index!r}"
            )
        return self.partitions[index]

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return StreamProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A reader joins, of messages, of frames or of offsets.

        Raises:
            AttachError: its filters do not fit the stream.
        """
        # Readers build on this module.
        from enmasse.messaging.stream_readers import make_reader  # noqa: PLC0415

        return self.add_consumer(make_reader(self, port, options))

    @property
    def free_bytes(self) -> int:
        """What may still be stored."""
        if self.core.is_pressed:
            return 0
        return self.max_bytes - self.bytes_stored

    @property
    def bytes_stored(self) -> int:
        """What is stored or about to be."""
        return sum(p.bytes_stored + p.pending for p in self.partitions)

    def advanced(self) -> None:
        """Something was committed: readers have news, senders may have room."""
        self.due()

    def on_turn(self, now: float) -> None:
        """Serve readers, then let senders have what there is room for."""
        for consumer in list(self.consumers):
            if consumer.port.credit > 0 and not consumer.is_blocked:
                assert isinstance(consumer, StreamConsumer)
                consumer.pump()
        producers = self.producers
        if not producers:
            return
        free = self.free_bytes
        share = free // (1024 * len(producers)) if free > 0 else 0
        for producer in producers:
            most = FRAME_CREDIT if isinstance(producer, FrameProducer) else MAX_CREDIT
            window = min(most, share)
            port = producer.port
            credit = port.limit - port.received
            if 2 * credit <= window or credit > 2 * window:
                port.grant(window)

    def load(self) -> None:
        """Take up what the journal holds."""
        for partition in self.partitions:
            partition.load()

    def counts(self) -> dict[str, int]:
        """With what is stored."""
        stored = sum(p.visible - p.low for p in self.partitions)
        return super().counts() | {"messagesStored": stored, "bytesStored": self.bytes_stored}
