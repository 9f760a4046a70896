"""Readers of a stream: of messages one by one, of whole frames, and of offsets.

Conventions (docs/reference/conventions.md): source filters name partition and position, the desired
capability tells which kind of reader it is, and a name makes it a consumer whose offsets are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.stream_consumers import consumer_name
from enmasse.messaging.stream_message_readers import MessageReader, NamedReader
from enmasse.messaging.stream_position import Position
from enmasse.messaging.stream_producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.messaging.stream_reader import (
    PARTITION_FILTER,
    READ_BYTES,
    START_FILTER,
    Sent,
    StreamConsumer,
    frame_at,
    number_filter,
    time_of,
)
from enmasse.wire.amqp.codec import encode
from enmasse.wire.amqp.types import Described, Timestamp, ULong

if TYPE_CHECKING:
    from enmasse.messaging.stream import Stream

__all__ = ["CONSUMER", "OFFSETS_CAPABILITY", "known_filters", "make_reader"]

OFFSETS_CAPABILITY = "enmasse:offsets"
CONSUMER = "enmasse:consumer"
"""Filter or link property: the name under which a reader's offsets are kept."""

FROM_FILTER = "enmasse:from"
TO_FILTER = "enmasse:to"


def known_filters(options: AttachOptions) -> Collection[str]:
    """The filters that mean something to the reader that the options ask for."""
    if OFFSETS_CAPABILITY in options.capabilities:
        return (START_FILTER,)
    if FRAMES_CAPABILITY in options.capabilities:
        return (PARTITION_FILTER, FROM_FILTER, TO_FILTER)
    return (START_FILTER, PARTITION_FILTER, CONSUMER)


def make_reader(stream: Stream, port: ConsumerPort, options: AttachOptions) -> StreamConsumer:
    """The reader that the options ask for.

    Raises:
        AttachError: a filter names what the stream does not have.
    """
    if OFFSETS_CAPABILITY in options.capabilities:
        return OffsetsReader(stream, port, options)
    if FRAMES_CAPABILITY in options.capabilities:
        return FrameReader(stream, port, options)
    name = options.filters.get(CONSUMER, options.properties.get(CONSUMER))
    if name is not None:
        return NamedReader(stream, port, options, consumer_name(name, CONSUMER))
    return MessageReader(stream, port, options)


class FrameReader(StreamConsumer):
    """Whole frames of one partition; credit counts frames."""

    __slots__ = ("_end", "_position", "_sent")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        partition = stream.partition(number_filter(options.filters, PARTITION_FILTER, 0))
        start = number_filter(options.filters, FROM_FILTER, None)
        self._end = number_filter(options.filters, TO_FILTER, None)
        start = partition.visible if start is None else max(start, partition.low)
        self._position = Position(partition, start, READ_BYTES)
        self._sent = Sent(self)

    @property
    def is_reading(self) -> bool:
        """Whether there may be more once the disk has answered."""
        return self._position.is_reading

    def pump(self) -> None:
        """One frame for each credit; a link with an end is closed when it is reached."""
        position = self._position
        end = self._end
        port = self.port
        while port.credit > 0 and not self.is_blocked and (end is None or position.offset < end):
            piece = position.piece()
            if piece is None:
                break
            if end is not None and piece[0] >= end:
                # What was in between is deleted or damaged; there is nothing to wait for.
                position.offset = end
                break
            position.offset = piece[1]
            self.deliveries += 1
            self.unsettled += not self.presettle
            self.send(self._sent, piece[2], self.presettle, FRAME_FORMAT)
        if end is not None and position.offset >= end:
            self.port.detach()
            self.gone()


class OffsetsReader(StreamConsumer):
    """Where each partition begins and ends, now and whenever that changes; on request where a moment lies."""

    __slots__ = ("_starts", "_told", "_url")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, True)
        self._url = options.url
        self._told: list[tuple[int, int]] | None = None
        self._starts: list[ULong] | None = None
        start = options.filters.get(START_FILTER)
        if start is not None:
            if not isinstance(start, Timestamp):
                raise AttachError(
                    "amqp:not-implemented",
                    f"filter {START_FILTER} of a receiver of offsets takes a timestamp, not {start!r:.60}",
                )
            since_us = time_of(start)
            self._starts = [ULong(frame_at(partition, since_us)) for partition in stream.partitions]

    def pump(self) -> None:
        """One message for all that has changed since the last."""
        stream = self.address
        partitions = stream.partitions
        marks = [(partition.low, partition.visible) for partition in partitions]
        if marks == self._told:
            return
        self._told = marks
        value: dict[str, object] = {
            "stream": stream.uid,
            "partitions": [
                [ULong(index), ULong(low), ULong(following), self._url]
                for index, (low, following) in enumerate(marks)
            ],
            "bytes": [ULong(partition.bytes_stored) for partition in partitions],
        }
        if self._starts is not None:
            value["starts"] = self._starts
        self.deliveries += 1
        self.send(None, encode(Described(ULong(0x77), value)), True)
