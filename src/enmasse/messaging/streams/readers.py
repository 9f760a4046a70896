"""The readers of a stream: of messages one by one, of whole frames, and of offsets.

Conventions (docs/reference/conventions.md): source filters name partition and position, the desired
capability selects the kind of reader, and a name makes it a consumer whose offsets are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from enmasse.message.codec import encode
from enmasse.message.outcomes import ACCEPTED, Rejected
from enmasse.message.types import Described, Timestamp, ULong
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import SMALL_BYTES, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.streams.consumers import consumer_name
from enmasse.messaging.streams.partition_log import Partition
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.messaging.streams.reader import (
    PARTITION_FILTER,
    READ_BYTES,
    START_FILTER,
    Position,
    StreamConsumer,
    chosen_partitions,
    frame_at,
    number_filter,
    time_of,
)
from enmasse.messaging.streams.rows import Rows
from enmasse.messaging.transaction import Done as TransactionDone

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.streams.stream import Stream

LEAST_READ_BYTES = 64 << 10

CHUNK_ROWS = 256
"""Messages that are made ready at once, and come of one partition before the next has its turn."""


class _Place:
    """A position and the messages that are ready to go from there on."""

    __slots__ = ("at", "payloads", "position", "rows", "since_us", "unsettled", "wanted")

    def __init__(self, position: Position, since_us: int) -> None:
        self.position = position
        self.since_us = since_us
        """Rows before that time are left out."""
        self.rows: Rows | None = None
        self.payloads: list[bytes] = []
        self.at = 0
        """The number of them that were sent."""
        self.unsettled: deque[_Kept] = deque()
        """The unsettled rows of a named consumer, with those settled out of order."""
        self.wanted = 0
        """The size of the message for which there was no room; 0 if there was."""

    @property
    def waiting(self) -> int:
        """Messages from there on that have not gone."""
        partition = self.position.partition
        offset = max(self.position.offset if self.rows is None else self.rows.offset, partition.low)
        return max(0, partition.visible - offset) + max(0, len(self.payloads) - self.at)

    def fill(self, count: int) -> bool:
        """Make up to ``count`` messages ready; false if there are none."""
        position = self.position
        while True:
            rows = self.rows
            if rows is None:
                piece = position.piece()
                if piece is None:
                    return False
                stream = position.partition.stream
                rows = Rows(piece[2], position.partition.index, position.offset, self.since_us, stream.templates)
                self.rows = rows
            position.offset = rows.offset
            self.payloads = rows.take(count)
            if self.payloads:
                self.since_us = 0
                self.at = 0
                return True
            self.rows = None

    def read_ahead(self) -> int:
        """Return the bytes that were read and have not gone; what has gone is let go of."""
        position = self.position
        if self.at < len(self.payloads):
            return position.size + sum(map(len, self.payloads[self.at :]))
        self.payloads, self.at = [], 0
        rows = self.rows
        if rows is not None:
            position.offset = rows.offset
            if rows.is_over:
                self.rows = None
                position.leave_behind()
        return position.size

    def drop(self) -> None:
        """Drop what was read and has not gone."""
        # These follow from the offset on.
        self.position.offset += self.at
        self.rows, self.payloads, self.at = None, [], 0
        self.position.forget()


class MessageReader(StreamConsumer):
    """Messages one by one, of one partition or of all in turn."""

    __slots__ = ("_places",)

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        partitions = chosen_partitions(stream, options)
        limit = max(READ_BYTES // len(partitions), LEAST_READ_BYTES)
        self._places: deque[_Place] = deque()
        for partition in partitions:
            offset, since_us = self._start(partition, options.filters.get(START_FILTER))
            self._places.append(_Place(Position(partition, offset, limit), since_us))

    def _start(self, partition: Partition, start: Any) -> tuple[int, int]:
        """Return the offset to begin at, and the time before which rows are left out."""
        if start is None or start == "next":
            return partition.visible, 0
        if start == "first":
            return partition.low, 0
        if start == "last":
            return max(partition.low, partition.visible - 1), 0
        if isinstance(start, Timestamp):
            since_us = time_of(start)
            return frame_at(partition, since_us), since_us
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            return max(start, partition.low), 0
        raise AttachError(
            "amqp:not-implemented",
            f"filter {START_FILTER} takes first, last, next, an offset or a timestamp, not {start!r}",
        )

    def count_available(self) -> int | None:
        """Return the rows between where it is and the end, those that a time leaves out included."""
        return sum(place.waiting for place in self._places)

    @property
    def is_reading(self) -> bool:
        """True if there may be more once the disk has answered."""
        return any(place.position.is_reading for place in self._places)

    def read_ahead(self) -> int:
        """Return the bytes that it has read, and not sent."""
        return sum([place.read_ahead() for place in self._places])

    def drop(self) -> None:
        """Drop what it has read, and not sent: it is read again."""
        for place in self._places:
            place.drop()

    def pump(self) -> None:
        """Send one message for each credit, a run of each partition in turn."""
        places = self._places
        port = self.port
        idle = 0
        while port.credit > 0 and not self.is_blocked and idle < len(places):
            place = places[0]
            if place.wanted:
                if self.must_wait(place.wanted):
                    # To read it once more would be in vain.
                    return
                place.wanted = 0
            if place.at >= len(place.payloads) and not place.fill(min(CHUNK_ROWS, port.credit)):
                idle += 1
            else:
                idle = 0
                self.put(place)
            if place.at >= len(place.payloads):
                places.rotate(-1)

    def put(self, place: _Place) -> None:
        """Send what is ready of one partition."""
        send = self.send
        presettle = self.presettle
        port = self.port
        payloads = place.payloads
        start = at = place.at
        end = min(len(payloads), at + port.credit)
        while at < end and not self.is_blocked:
            payload = payloads[at]
            if len(payload) > SMALL_BYTES and self.must_wait(len(payload)):
                place.wanted = len(payload)
                break
            send(self, payload, presettle)
            at += 1
        place.at = at
        self.deliveries += at - start
        if not presettle:
            self.unsettled += at - start


class _Kept:
    """A row whose outcome moves a consumer's offset."""

    __slots__ = ("is_done", "is_staged", "is_written", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.is_done = False
        self.is_staged = False
        """True if a transaction that is about to be written has accepted it."""
        self.is_written = False
        """True if the offset that a transaction has written, or is about to, lies behind it."""


class _Delivery:
    """The delivery of such a row: it knows the reader, whose places know the row alone."""

    __slots__ = ("kept", "place", "sink")

    def __init__(self, sink: Consumer, place: _Place, kept: _Kept) -> None:
        self.sink = sink
        self.place = place
        self.kept = kept


class NamedReader(MessageReader):
    """A reader that goes on where it was; what it has accepted is kept under its name."""

    __slots__ = ("_consumer",)

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions, consumer: str) -> None:
        self._consumer = consumer
        if not all(partition.consumers.has_room(consumer) for partition in chosen_partitions(stream, options)):
            raise AttachError("amqp:resource-limit-exceeded", f"{stream.name!r} keeps no more consumers")
        super().__init__(stream, port, options)

    def _start(self, partition: Partition, start: Any) -> tuple[int, int]:
        if start is None:
            start = partition.consumers.reached.get(self._consumer)
        return super()._start(partition, start)

    def put(self, place: _Place) -> None:
        """Send what is ready of one partition, each as its own delivery."""
        if self.presettle:
            super().put(place)
            return
        payloads, at = place.payloads, place.at
        rows = place.rows
        assert rows is not None
        offset = rows.offset - len(payloads) + at
        end = min(len(payloads), at + self.port.credit)
        while at < end and not self.is_blocked:
            size = len(payloads[at])
            if size > SMALL_BYTES and self.must_wait(size):
                place.wanted = size
                break
            kept = _Kept(offset)
            place.unsettled.append(kept)
            self.deliveries += 1
            self.unsettled += 1
            self.send(_Delivery(self, place, kept), payloads[at], False)
            at += 1
            offset += 1
        place.at = at

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Note that an accepted or rejected row is done with; a released or modified one would be sent again."""
        super().on_outcome(delivery, state)
        if state is not ACCEPTED and not isinstance(state, Rejected):
            return
        self._advance(delivery)

    def _advance(self, delivery: _Delivery) -> None:
        delivery.kept.is_done = True
        place = delivery.place
        unsettled = place.unsettled
        offset = -1
        while unsettled and unsettled[0].is_done:
            kept = unsettled.popleft()
            offset = -1 if kept.is_written else kept.offset
        if offset >= 0:
            place.position.partition.advance_consumer(self._consumer, offset + 1)

    def enlist(self, delivery: Any, done: TransactionDone) -> Log | None:
        """Have the consumer's offset move with the next batch, as far as nothing before is missing."""
        accepted: _Kept = delivery.kept
        accepted.is_staged = True
        place: _Place = delivery.place

        def offset() -> int:
            following = -1
            for kept in place.unsettled:
                if not (kept.is_done or kept.is_staged):
                    break
                kept.is_written = True
                following = kept.offset + 1
            return following

        def decided(is_stored: bool) -> None:
            accepted.is_staged = False
            if is_stored:
                self.unsettled -= 1
                self._advance(delivery)
            else:
                for kept in place.unsettled:
                    kept.is_written = False
            done(None if is_stored else "a consumer's offset could not be written")

        partition = place.position.partition
        partition.stage_consumer(self._consumer, offset, decided)
        return partition


OFFSETS_CAPABILITY = "enmasse:offsets"
CONSUMER = "enmasse:consumer"
"""Filter or link property: the name under which a reader's offsets are kept."""

FROM_FILTER = "enmasse:from"
TO_FILTER = "enmasse:to"


def known_filters(options: AttachOptions) -> Collection[str]:
    """Return the filters of the kind of reader that the options ask for."""
    if OFFSETS_CAPABILITY in options.capabilities:
        return (START_FILTER,)
    if FRAMES_CAPABILITY in options.capabilities:
        return (PARTITION_FILTER, FROM_FILTER, TO_FILTER)
    return (START_FILTER, PARTITION_FILTER, CONSUMER)


def make_reader(stream: Stream, port: ConsumerPort, options: AttachOptions) -> StreamConsumer:
    """Return the reader that the options ask for.

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

    __slots__ = ("_end", "_position", "_wanted")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        partition = stream.partition(number_filter(options.filters, PARTITION_FILTER, 0))
        start = number_filter(options.filters, FROM_FILTER, None)
        self._end = number_filter(options.filters, TO_FILTER, None)
        start = partition.visible if start is None else max(start, partition.low)
        self._position = Position(partition, start, READ_BYTES)
        self._wanted = 0
        """The size of the frame for which there was no room; 0 if there was."""

    @property
    def is_reading(self) -> bool:
        """True if there may be more once the disk has answered."""
        return self._position.is_reading

    def read_ahead(self) -> int:
        """Return the bytes that it has read, and not sent."""
        self._position.leave_behind()
        return self._position.size

    def drop(self) -> None:
        """Drop what it has read, and not sent: it is read again."""
        self._position.forget()

    def pump(self) -> None:
        """Send one frame for each credit; a link with an end is closed when it is reached."""
        position = self._position
        end = self._end
        port = self.port
        while port.credit > 0 and not self.is_blocked and (end is None or position.offset < end):
            if self._wanted:
                if self.must_wait(self._wanted):
                    # To read it once more would be in vain.
                    break
                self._wanted = 0
            piece = position.piece()
            if piece is None:
                break
            if end is not None and piece[0] >= end:
                # What was in between is deleted or damaged; there is nothing to wait for.
                position.offset = end
                break
            size = len(piece[2])
            if size > SMALL_BYTES and self.must_wait(size):
                self._wanted = size
                break
            position.offset = piece[1]
            self.deliveries += 1
            self.unsettled += not self.presettle
            self.send(self, piece[2], self.presettle, FRAME_FORMAT)
        if end is not None and position.offset >= end:
            self.port.detach()
            self.on_detached()


class OffsetsReader(StreamConsumer):
    """A reader of each partition's begin and end, whenever they change; on request of a moment's place."""

    __slots__ = ("_sent", "_starts", "_url")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, True)
        self._url = options.url
        self._sent: list[tuple[int, int]] | None = None
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
        """Send one message for all that has changed since the last."""
        stream = self.address
        partitions = stream.partitions
        marks = [(partition.low, partition.visible) for partition in partitions]
        if marks == self._sent:
            return
        self._sent = marks
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
