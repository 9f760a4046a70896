"""Senders to a stream: of messages, of numbered messages, of frames, and of consumers' offsets."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import Sections, check_order
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, AttachError
from enmasse.messaging.log.frame import Frame, FrameError
from enmasse.messaging.log.layout import FRAME_BYTES
from enmasse.messaging.log.sequences import NO_SEQUENCE, producer_name, sequence_of
from enmasse.messaging.streams.consumers import consumer_name
from enmasse.messaging.streams.heads import NO_HEAD, Head
from enmasse.messaging.streams.partition_log import Partition

if TYPE_CHECKING:
    from enmasse.messaging.streams.stream import Stream


FRAME_FORMAT = 0x454D4601
"""The message format of a transfer that carries a frame: "EMF" and a version."""

FRAMES_CAPABILITY = "enmasse:frames"
COMMITS_CAPABILITY = "enmasse:commits"
PARTITION_PROPERTY = "enmasse:partition"

FRAME_CREDIT = 16
"""Frames that a bulk sender may have on their way: up to 16 MiB, some commits' worth."""

COMMIT_CREDIT = 100


def make_producer(stream: Stream, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
    """Return the sender's end that the options ask for.

    Raises:
        AttachError: the partition named does not exist, or the producer's name is none.
    """
    if FRAMES_CAPABILITY in options.capabilities:
        index = options.properties.get(PARTITION_PROPERTY, 0)
        return FrameProducer(stream, port, target, stream.partition(index))
    if COMMITS_CAPABILITY in options.capabilities:
        return CommitProducer(stream, port, target)
    producer = producer_name(options)
    if producer is None:
        return MessageProducer(stream, port, target)
    return NumberedProducer(stream, port, target, producer)


class MessageProducer(Producer):
    """A sender of messages."""

    __slots__ = ("_head",)
    address: Stream

    max_credit = 0
    """The most that it is granted; 0 leaves that to the stream."""

    def __init__(self, address: Stream, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self._head = NO_HEAD
        """The head of the latest message."""

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Append to the partition of the message's key."""
        if message_format:
            if not settled:
                self.settle(delivery_id, UNSUPPORTED_FORMAT)
            return
        head = self._head
        if head.size != len(payload) or not payload.startswith(head.data):
            head = self.address.heads.of(payload, head)
            if not head.is_whole:
                self._head = head
            elif self.refuses(payload, delivery_id, settled):
                return
        partition = head.partition or self.address.next_partition()
        partition.append_parts(head, payload[head.body_at :], None if settled else self, delivery_id)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, whatever the credit."""
        if self.address.free_bytes > len(payload):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)

    def refuses(self, payload: bytes, delivery_id: int, settled: bool) -> bool:
        """Refuse a message whose sections are out of order; return whether it was."""
        try:
            check_order(payload)
        except DecodeError as error:
            self.reject(delivery_id, settled, "amqp:decode-error", str(error))
            return True
        return False

    def reject(self, delivery_id: int, settled: bool, condition: str, problem: str) -> None:
        """Reject a message that does not fit the link."""
        if settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, Rejected(AmqpError(condition, problem)))


class NumberedProducer(MessageProducer):
    """A sender that numbers its messages, so that one sent again is not stored again."""

    is_plain = False
    __slots__ = ("_id",)

    def __init__(self, address: Stream, port: ProducerPort, target: str, producer: bytes) -> None:
        super().__init__(address, port, target)
        self._id = producer

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Append to the partition of the message's key, unless it is already stored."""
        sequence = None if message_format else sequence_of(payload)
        if sequence is None:
            self.reject(delivery_id, settled, "amqp:invalid-field", NO_SEQUENCE)
            return
        head = self.address.heads.of(payload)
        if head.is_whole and self.refuses(payload, delivery_id, settled):
            return
        ack = None if settled else (self, delivery_id)
        self._partition(head, sequence).append_once(payload, ack, self._id, sequence)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, else remember that it is missing."""
        if self.address.free_bytes <= len(payload):
            sequence = None if message_format else sequence_of(payload)
            if sequence is not None:
                self._partition(self.address.heads.of(payload), sequence).miss(self._id, sequence)
        super().on_crossed(payload, delivery_id, settled, message_format)

    def _partition(self, head: Head, sequence: int) -> Partition:
        # Without a key the sequence chooses, so that a message sent again meets its first copy.
        partitions = self.address.partitions
        return head.partition or partitions[sequence % len(partitions)]


class FrameProducer(MessageProducer):
    """A sender of ready frames to one partition."""

    is_plain = False
    __slots__ = ("partition",)
    max_credit = FRAME_CREDIT

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
            self.reject(delivery_id, settled, "amqp:decode-error", problem)
            return
        self.partition.append_frame(frame, None if settled else (self, delivery_id))

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if there is room, else remember that its sequence is missing."""
        if self.address.free_bytes <= len(payload) and message_format == FRAME_FORMAT:
            with suppress(FrameError):
                frame = Frame(payload, verify=False)
                if frame.producer:
                    self.partition.miss(frame.producer, frame.sequence)
        super().on_crossed(payload, delivery_id, settled, message_format)


class _Commit:
    """A message about several partitions, accepted once every one has stored its part."""

    __slots__ = ("_delivery_id", "_is_good", "_left", "_producer")

    def __init__(self, producer: Producer, delivery_id: int | None, parts: int) -> None:
        self._producer = producer
        self._delivery_id = delivery_id
        self._left = parts
        self._is_good = True

    def done(self, is_stored: bool) -> None:
        """Note that one partition has stored its part, or has not."""
        self._left -= 1
        self._is_good = self._is_good and is_stored
        if not self._left and self._delivery_id is not None:
            self._producer.settle(self._delivery_id, ACCEPTED if self._is_good else RELEASED)


class CommitProducer(MessageProducer):
    """A sender of the offsets that named consumers have come to."""

    is_plain = False
    __slots__ = ()
    max_credit = COMMIT_CREDIT

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Keep a consumer's offsets."""
        try:
            name, offsets = self._read(payload, message_format)
        except AttachError as error:
            self.reject(delivery_id, settled, error.condition, error.description)
            return
        commit = _Commit(self, None if settled else delivery_id, len(offsets) or 1)
        for partition, offset in offsets:
            partition.commit_consumer(name, offset, commit.done)
        if not offsets:
            commit.done(True)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Keep them: they take no room."""
        self.on_message(payload, delivery_id, settled, message_format)

    def _read(self, payload: bytes, message_format: int) -> tuple[str, list[tuple[Partition, int | None]]]:
        condition = "amqp:invalid-field"
        try:
            body: Any = Sections(payload).body
        except DecodeError as error:
            raise AttachError("amqp:decode-error", str(error)) from None
        if message_format or not isinstance(body, dict) or not isinstance(body.get("offsets"), dict):
            raise AttachError(condition, 'offsets come as a map {"consumer": name, "offsets": {partition: next}}')
        name = consumer_name(body.get("consumer"), "consumer")
        found: list[tuple[Partition, int | None]] = []
        for index, offset in body["offsets"].items():
            partition = self.address.partition(index)
            if offset is not None:
                is_number = isinstance(offset, int) and not isinstance(offset, bool)
                if not is_number or not 0 <= offset <= partition.visible:
                    raise AttachError(
                        condition, f"partition {index} has offsets up to {partition.visible}, not {offset!r}"
                    )
                if not partition.consumers.has_room(name):
                    raise AttachError("amqp:resource-limit-exceeded", f"partition {index} keeps no more consumers")
            found.append((partition, offset))
        return name, found
