"""Streams: partitioned logs that every reader reads at its own offset.

Every message is stored, whatever its durable flag, and accepted after its commit; what a partition
promises is said in ``stream_log``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, RELEASED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame, FrameError
from enmasse.messaging.log import FRAME_BYTES
from enmasse.messaging.partition import partition_of
from enmasse.messaging.queue import MAX_CREDIT, UNSUPPORTED_FORMAT
from enmasse.messaging.stream_log import MAX_PRODUCER_BYTES, Partition
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import AmqpError, Rejected
from enmasse.wire.amqp.sections import Sections, key_and_subject

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["FRAMES_CAPABILITY", "FRAME_FORMAT", "OFFSETS_CAPABILITY", "Stream"]

FRAME_FORMAT = 0x454D4601
"""The message format of a transfer that carries a frame: "EMF" and a version."""

FRAMES_CAPABILITY = "enmasse:frames"
OFFSETS_CAPABILITY = "enmasse:offsets"
PARTITION_PROPERTY = "enmasse:partition"
PRODUCER_PROPERTY = "enmasse:producer"
SEQUENCE_ANNOTATION = "x-opt-sequence"

DEFAULT_MAX_BYTES = 16 << 30

FRAME_CREDIT = 16
"""Frames that a bulk sender may have on their way: up to 16 MiB, some commits' worth."""

IN_FLIGHT_BYTES = 32 << 20
"""What all senders of messages together may have on their way: a few commits at full rate."""

KNOWN_KEYS = 65_536
"""Keys whose partition is remembered: devices repeat themselves, and the hash takes microseconds."""


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
        stream.partition_for(key).append(key, payload, None if settled else (self, delivery_id))

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, whatever the credit."""
        if self.address.free_bytes > len(payload):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class IdempotentProducer(StreamProducer):
    """A sender that numbers its messages, so that one sent again is not stored again."""

    __slots__ = ("_id",)

    def __init__(self, address: Stream, port: ProducerPort, target: str, producer: bytes) -> None:
        super().__init__(address, port, target)
        self._id = producer

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Append to the partition of the message's key, unless it is there."""
        try:
            sequence = Sections(payload).message_annotations.get(SEQUENCE_ANNOTATION)
        except DecodeError:
            sequence = None
        if message_format or not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
            if not settled:
                problem = f"a link with {PRODUCER_PROPERTY} carries messages with {SEQUENCE_ANNOTATION}, a number"
                self.settle(delivery_id, Rejected(AmqpError("amqp:invalid-field", problem)))
            return
        key = key_of(payload)
        ack = None if settled else (self, delivery_id)
        # Without a key the sequence chooses, so that a message sent again meets its first copy.
        partitions = self.address.partitions
        partition = self.address.partition_for(key) if key else partitions[sequence % len(partitions)]
        partition.append_once(key, payload, ack, self._id, sequence)


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
            if self.port.credit > 0 and not self.is_blocked:
                self.pump()
            self.port.drained()
        else:
            self.address.advanced()

    def on_blocked(self, blocked: bool) -> None:
        """The connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.address.advanced()

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
    __slots__ = (
        "_keys",
        "_round",
        "average_bytes",
        "bytes_stored",
        "has_news",
        "log_id",
        "max_bytes",
        "partitions",
        "uid",
    )

    def __init__(
        self, core: Core, name: str, log_id: int, *, uid: str, partitions: int = 1, max_bytes: int = 0
    ) -> None:
        super().__init__(core, name)
        self.log_id = log_id
        self.uid = uid
        self.limit_bytes(max_bytes)
        self.bytes_stored = 0
        """What is stored or about to be."""
        self.average_bytes = 1_024
        """What a message takes, as far as the latest ones tell."""
        self.has_news = False
        """Whether some reader may have something to send since readers were last served."""
        self.partitions = [Partition(self, index) for index in range(max(1, partitions))]
        self._keys: dict[bytes, Partition] = {}
        self._round = 0

    def limit_bytes(self, max_bytes: int) -> None:
        """Change what may be stored; 0 is the default."""
        self.max_bytes = max_bytes or DEFAULT_MAX_BYTES
        self.due()

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
        if FRAMES_CAPABILITY in options.capabilities:
            index = options.properties.get(PARTITION_PROPERTY, 0)
            return self.add_producer(FrameProducer(self, port, target, self._partition(index)))
        identity = options.properties.get(PRODUCER_PROPERTY)
        if identity is None:
            return self.add_producer(self.make_producer(port, target))
        producer = identity.encode() if isinstance(identity, str) else identity
        if not isinstance(producer, bytes) or not 1 <= len(producer) <= MAX_PRODUCER_BYTES:
            raise AttachError(
                "amqp:invalid-field",
                f"link property {PRODUCER_PROPERTY} takes a name of 1 to {MAX_PRODUCER_BYTES} bytes",
            )
        return self.add_producer(IdempotentProducer(self, port, target, producer))

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

    def advanced(self) -> None:
        """Serve readers in this turn: something was committed, or one of them takes more."""
        self.has_news = True
        self.due()

    def on_turn(self, now: float) -> None:
        """Serve readers, then let senders have what there is room for."""
        readers = list(self.consumers) if self.has_news else []
        self.has_news = False
        for consumer in readers:
            if consumer.port.credit > 0 and not consumer.is_blocked:
                assert isinstance(consumer, StreamConsumer)
                consumer.pump()
        producers = self.producers
        if not producers:
            return
        share = min(self.free_bytes, IN_FLIGHT_BYTES) // (self.average_bytes * len(producers))
        if self.free_bytes > 0:
            share = max(1, share)
        if not share and self.core.is_pressed:
            self.core.hold(self)
        for producer in producers:
            most = FRAME_CREDIT if isinstance(producer, FrameProducer) else MAX_CREDIT
            window = max(0, min(most, share))
            port = producer.port
            credit = port.limit - port.received
            if 2 * credit <= window or credit > 2 * window:
                port.grant(window)

    def remove_consumer(self, consumer: Consumer) -> None:
        """A reader has gone; nothing depends on what it did not settle."""
        consumer.port.take_unsettled()
        super().remove_consumer(consumer)

    def close(self, condition: str, description: str) -> None:
        """The stream is deleted."""
        for partition in self.partitions:
            partition.close()
        super().close(condition, description)

    def load(self) -> None:
        """Take up what the journal holds."""
        for partition in self.partitions:
            partition.load()

    def counts(self) -> dict[str, int]:
        """With what is stored."""
        stored = sum(p.visible - p.low for p in self.partitions)
        return super().counts() | {"messagesStored": stored, "bytesStored": self.bytes_stored}
