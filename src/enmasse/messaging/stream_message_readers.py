"""Readers of a stream's messages one by one, without a name or as a named consumer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import ACCEPTED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.stream_log import Partition
from enmasse.messaging.stream_position import Position
from enmasse.messaging.stream_reader import (
    READ_BYTES,
    START_FILTER,
    Sent,
    StreamConsumer,
    chosen_partitions,
    frame_at,
    time_of,
)
from enmasse.messaging.stream_rows import Rows
from enmasse.messaging.transaction import Done as Told
from enmasse.wire.amqp.performatives import Rejected
from enmasse.wire.amqp.types import Timestamp

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.stream import Stream

__all__ = ["MessageReader", "NamedReader"]

LEAST_READ_BYTES = 64 << 10

CHUNK_ROWS = 256
"""Messages that are made ready at once, and come of one partition before the next has its turn."""


class _Place:
    """A position and the messages that are ready to go from there on."""

    __slots__ = ("at", "payloads", "position", "rows", "since_us", "unsettled")

    def __init__(self, position: Position, since_us: int) -> None:
        self.position = position
        self.since_us = since_us
        """Rows before that time are left out."""
        self.rows: Rows | None = None
        self.payloads: list[bytes] = []
        self.at = 0
        """How many of them have gone."""
        self.unsettled: deque[_Kept] = deque()
        """What a named consumer has and did not settle, with what it settled out of order."""

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


class MessageReader(StreamConsumer):
    """Messages one by one, of one partition or of all in turn."""

    __slots__ = ("_places", "_sent")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        partitions = chosen_partitions(stream, options)
        limit = max(READ_BYTES // len(partitions), LEAST_READ_BYTES)
        self._places: deque[_Place] = deque()
        for partition in partitions:
            offset, since_us = self._start(partition, options.filters.get(START_FILTER))
            self._places.append(_Place(Position(partition, offset, limit), since_us))
        self._sent = Sent(self)

    def _start(self, partition: Partition, start: Any) -> tuple[int, int]:
        """The offset to begin at, and the time before which rows are left out."""
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
        """The rows between where it is and the end, those that a time leaves out included."""
        return sum(place.waiting for place in self._places)

    @property
    def is_reading(self) -> bool:
        """Whether there may be more once the disk has answered."""
        return any(place.position.is_reading for place in self._places)

    def pump(self) -> None:
        """One message for each credit, a run of each partition in turn."""
        places = self._places
        port = self.port
        idle = 0
        while port.credit > 0 and not self.is_blocked and idle < len(places):
            place = places[0]
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
        sent = self._sent
        port = self.port
        payloads = place.payloads
        start = at = place.at
        end = min(len(payloads), at + port.credit)
        while at < end and not self.is_blocked:
            send(sent, payloads[at], presettle)
            at += 1
        place.at = at
        self.deliveries += at - start
        if not presettle:
            self.unsettled += at - start


class _Kept:
    """A delivery whose outcome moves a consumer's offset."""

    __slots__ = ("is_done", "is_staged", "is_written", "offset", "place", "sink")

    def __init__(self, sink: Consumer, place: _Place, offset: int) -> None:
        self.sink = sink
        self.place = place
        self.offset = offset
        self.is_done = False
        self.is_staged = False
        """Whether a transaction that is about to be written has accepted it."""
        self.is_written = False
        """Whether the offset that a transaction has written, or is about to, lies behind it."""


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
            start = partition.consumers.told.get(self._consumer)
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
            kept = _Kept(self, place, offset)
            place.unsettled.append(kept)
            self.deliveries += 1
            self.unsettled += 1
            self.send(kept, payloads[at], False)
            at += 1
            offset += 1
        place.at = at

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """What was accepted or rejected is done with; released or modified it would come again."""
        super().on_outcome(delivery, state)
        if state is not ACCEPTED and not isinstance(state, Rejected):
            return
        self._advance(delivery)

    def _advance(self, delivery: _Kept) -> None:
        delivery.is_done = True
        place = delivery.place
        unsettled = place.unsettled
        offset = -1
        while unsettled and unsettled[0].is_done:
            kept = unsettled.popleft()
            offset = -1 if kept.is_written else kept.offset
        if offset >= 0:
            place.position.partition.advance_consumer(self._consumer, offset + 1)

    def enlist(self, delivery: Any, done: Told) -> Log | None:
        """Have the consumer's offset move with the next batch, as far as nothing before is missing."""
        delivery.is_staged = True
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
            delivery.is_staged = False
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
