"""Readers of a stream: of messages one by one, of whole frames, and of offsets.

Conventions (docs/reference/conventions.md): source filters name partition and position, the desired
capability tells which kind of reader it is.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.frame import Frame
from enmasse.messaging.stream import (
    FRAME_FORMAT,
    FRAMES_CAPABILITY,
    OFFSETS_CAPABILITY,
    Stream,
    StreamConsumer,
)
from enmasse.messaging.stream_log import Partition
from enmasse.wire.amqp.codec import encode
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import with_message_annotations
from enmasse.wire.amqp.types import Described, Timestamp, ULong

__all__ = ["make_reader"]

PARTITION_FILTER = "enmasse:partition"
FROM_FILTER = "enmasse:from"
TO_FILTER = "enmasse:to"
START_FILTER = "enmasse:start"

READ_BYTES = 1 << 20
"""What a reader takes from the journal at once."""


def make_reader(stream: Stream, port: ConsumerPort, options: AttachOptions) -> StreamConsumer:
    """The reader that the options ask for.

    Raises:
        AttachError: a filter names what the stream does not have.
    """
    if OFFSETS_CAPABILITY in options.capabilities:
        return _OffsetsReader(stream, port, options)
    if FRAMES_CAPABILITY in options.capabilities:
        return _FrameReader(stream, port, options)
    return _MessageReader(stream, port, options)


def _number(filters: dict[str, Any], name: str, default: int | None) -> int | None:
    value = filters.get(name, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise AttachError("amqp:invalid-field", f"filter {name} takes a number from 0, not {value!r}")
    return value


def _partitions(stream: Stream, options: AttachOptions) -> list[Partition]:
    index = _number(options.filters, PARTITION_FILTER, None)
    if index is None:
        return stream.partitions
    if index >= len(stream.partitions):
        raise AttachError(
            "amqp:invalid-field", f"{stream.name!r} has partitions 0 to {len(stream.partitions) - 1}, not {index}"
        )
    return [stream.partitions[index]]


class _Position:
    """Where a reader is in one partition, and what it has fetched from there on."""

    __slots__ = ("fetched", "offset", "partition", "rows")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.fetched: deque[tuple[int, int, bytes]] = deque()
        self.rows: deque[tuple[int, int, bytes]] = deque()

    def next_frame(self) -> tuple[int, int, bytes] | None:
        """The frame that holds the offset, or the next one after it."""
        fetched = self.fetched
        while fetched and fetched[0][1] <= self.offset:
            fetched.popleft()
        if not fetched:
            fetched.extend(self.partition.read(self.offset, READ_BYTES))
        return fetched[0] if fetched else None


class _FrameReader(StreamConsumer):
    """Whole frames of one partition; credit counts frames."""

    __slots__ = ("_end", "_position")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        index = _number(options.filters, PARTITION_FILTER, 0)
        partition = _partitions(stream, AttachOptions(filters={PARTITION_FILTER: index}))[0]
        start = _number(options.filters, FROM_FILTER, None)
        self._end = _number(options.filters, TO_FILTER, None)
        self._position = _Position(partition, partition.visible if start is None else max(start, partition.low))

    def pump(self) -> None:
        """One frame for each credit; a link with an end is closed when it is reached."""
        position = self._position
        end = self._end
        while self.port.credit > 0 and not self.is_blocked and (end is None or position.offset < end):
            frame = position.next_frame()
            if frame is None:
                break
            if end is not None and frame[0] >= end:
                # The offsets in between were never given to a row; there is nothing to wait for.
                position.offset = end
                break
            position.fetched.popleft()
            position.offset = frame[1]
            self.put(frame[2], FRAME_FORMAT)
        if end is not None and position.offset >= end:
            self.port.detach()
            self.gone()


class _MessageReader(StreamConsumer):
    """Messages one by one, of one partition or of all in turn."""

    __slots__ = ("_positions",)

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, options.presettle)
        start = options.filters.get(START_FILTER, "next")
        self._positions = [
            _Position(partition, self._start(partition, start)) for partition in _partitions(stream, options)
        ]

    @staticmethod
    def _start(partition: Partition, start: Any) -> int:
        if start == "first":
            return partition.low
        if start == "next":
            return partition.visible
        if start == "last":
            return max(partition.low, partition.visible - 1)
        if isinstance(start, int) and not isinstance(start, bool | Timestamp) and start >= 0:
            return max(start, partition.low)
        raise AttachError(
            "amqp:not-implemented", f"filter {START_FILTER} takes first, last, next or an offset, not {start!r}"
        )

    def pump(self) -> None:
        """One message for each credit, partitions in turn."""
        positions = self._positions
        idle = 0
        while self.port.credit > 0 and not self.is_blocked and idle < len(positions):
            position = positions[0]
            if len(positions) > 1:
                positions.append(positions.pop(0))
            if not position.rows and not self._cut_rows(position):
                idle += 1
                continue
            idle = 0
            offset, timestamp, payload = position.rows.popleft()
            position.offset = offset + 1
            annotations = {
                "x-opt-offset": ULong(offset),
                "x-opt-partition": ULong(position.partition.index),
                "x-opt-enqueued-time": Timestamp(timestamp // 1000),
            }
            # What a sender garbled is for its reader to judge.
            with suppress(DecodeError):
                payload = with_message_annotations(payload, annotations)
            self.put(payload)

    @staticmethod
    def _cut_rows(position: _Position) -> bool:
        found = position.next_frame()
        if found is None:
            return False
        frame = Frame(found[2], verify=False)
        skip = max(0, position.offset - frame.first_offset)
        offsets = range(frame.first_offset, frame.next_offset)
        rows = list(zip(offsets, frame.timestamps(), frame.payloads(), strict=True))
        position.rows.extend(rows[skip:])
        return True


class _OffsetsReader(StreamConsumer):
    """Where each partition begins and ends, now and whenever that changes."""

    __slots__ = ("_told", "_url")

    def __init__(self, stream: Stream, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(stream, port, True)
        self._url = options.url
        self._told: list[tuple[int, int]] | None = None

    def pump(self) -> None:
        """One message for all that has changed since the last."""
        stream = self.address
        marks = [(partition.low, partition.visible) for partition in stream.partitions]
        if marks == self._told:
            return
        self._told = marks
        value = {
            "stream": stream.uid,
            "partitions": [
                [ULong(index), ULong(low), ULong(following), self._url]
                for index, (low, following) in enumerate(marks)
            ],
        }
        self.put(encode(Described(ULong(0x77), value)))
