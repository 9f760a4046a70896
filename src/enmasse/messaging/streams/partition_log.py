"""The partitions of a stream: logs that are appended to, committed and kept.

Rules:
1. What one turn wrote is one frame (more only where it would be too large); offsets are given when the
   frame is cut, and taken back when its commit fails, so they are consecutive.
2. Times never go back within a partition, whatever the clock does.
3. Readers see rows only after their commit.
4. One batch carries it all: frames, their index entries, producers' sequences, consumers' offsets, what
   retention deletes, and where the log begins and ends.
5. The latest frames are kept in memory (``Tail``) for readers that keep up.
"""

from __future__ import annotations

import struct
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.message.outcomes import RELEASED
from enmasse.messaging.delivery import Producer
from enmasse.messaging.log.frame import Frame, FrameError, encode_frame, restamp_frame
from enmasse.messaging.log.layout import FRAME_BYTES, FRAME_ROWS, by_name, log_key, log_range
from enmasse.messaging.log.merge import merge_operation
from enmasse.messaging.log.sequences import Sequences
from enmasse.messaging.part import Part
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams.consumers import ConsumerOffsets, Done
from enmasse.messaging.streams.heads import Head
from enmasse.messaging.streams.index import Entry, TimeIndex
from enmasse.messaging.streams.merging import RUN_FRAMES, Ack, Cut, Merging, Ready, Rows, Span, settle_all
from enmasse.messaging.streams.retention import LowEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.messaging.streams.stream import Stream

Piece = tuple[int, int, bytes]
"""A frame: its first row's offset, one above its last row's, and its bytes."""


class Tail:
    """Committed frames without a gap, up to the partition's end.

    Args:
        limit: bytes to keep; the latest frame is kept whatever its size.
    """

    __slots__ = ("_frames", "_limit", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[Piece] = deque()
        self._size = 0

    def add(self, first: int, end: int, data: bytes) -> None:
        """Add a frame that was committed."""
        frames = self._frames
        frames.append((first, end, data))
        self._size += len(data)
        while self._size > self._limit and len(frames) > 1:
            self._size -= len(frames.popleft()[2])

    def forget(self, low: int) -> None:
        """Forget what lies below ``low``, as it is deleted."""
        frames = self._frames
        while frames and frames[0][1] <= low:
            self._size -= len(frames.popleft()[2])

    @property
    def first(self) -> int | None:
        """The first offset that is kept; ``None`` where nothing is."""
        return self._frames[0][0] if self._frames else None

    def read(self, offset: int, limit: int) -> list[Piece]:
        """Return frames that hold ``offset`` or come behind it, until they reach ``limit`` bytes."""
        found: list[Piece] = []
        size = 0
        for piece in reversed(self._frames):
            if piece[1] <= offset:
                break
            found.append(piece)
        found.reverse()
        for number, piece in enumerate(found):
            size += len(piece[2])
            if size >= limit:
                return found[: number + 1]
        return found


ROW_BYTES = 20
"""Bytes of a row in a frame beside its message and key: its time and its place in three columns."""

_MARK = struct.Struct(">QQQQQ")
_FIRST_MARK = struct.Struct(">QQQ")
"""Without what was appended in all and the latest time: of data written by the first versions."""


class Partition(Part["Stream"]):
    """A partition of a stream, with its log."""

    __slots__ = (
        "__weakref__", "_groups", "_low_end", "_merging", "_open", "_sequences", "appended", "bytes_stored",
        "consumers", "index", "index_of_time", "is_closed", "last_us", "low", "next_offset", "tail", "visible",
    )  # fmt: skip

    def __init__(self, stream: Stream, index: int, tail_bytes: int) -> None:
        super().__init__(stream)
        self.index = index
        self.low = 0
        """The first offset that is kept."""
        self.next_offset = 0
        """The offset that the next row is given."""
        self.visible = 0
        """The offset up to which readers see rows."""
        self.bytes_stored = 0
        self.appended = 0
        """Bytes that were ever stored."""
        self.last_us = 0
        """The latest row's time."""
        self.is_closed = False
        self.tail = Tail(tail_bytes)
        """The latest frames."""
        self.consumers = ConsumerOffsets()
        self.index_of_time = TimeIndex(stream.core.storage, stream.log_id, index)
        self._sequences = Sequences()
        self._groups: list[Rows | Ready] = []
        self._open: Rows | None = None
        """The last of them, while one more row may be added."""
        self._merging = Merging()
        self._low_end = LowEnd(self)

    @property
    def stream(self) -> Stream:
        """The stream."""
        return self.whole

    @property
    def name(self) -> str:
        """The stream's name and the partition's number."""
        return f"{self.stream.name}#{self.index}"

    # Appending

    def append(self, payload: bytes, ack: Ack | None) -> None:
        """Add one message, whatever its key says; ``ack`` is settled when it is stored."""
        head = self.stream.heads.of(payload)
        producer, delivery_id = ack or (None, 0)
        self.append_parts(head, payload[head.body_at :], producer, delivery_id)

    def append_parts(self, head: Head, body: bytes, producer: Producer | None, delivery_id: int) -> Rows:
        """Add one message by its head and the content of its body; its producer is settled when it is stored."""
        stream = self.stream
        rows = self._open
        if rows is None:
            if not self._groups:
                stream.core.write(self)
            rows = self._open = Rows()
            self._groups.append(rows)
        key = head.key
        if head.is_whole:
            rows.whole.append(len(rows.keys))
        rows.keys.append(key)
        rows.heads.append(head.data)
        rows.bodies.append(body)
        if producer is not None:
            acks = rows.acks
            if producer in acks:
                acks[producer].append(delivery_id)
            else:
                acks[producer] = [delivery_id]
        size = head.size + len(key) + ROW_BYTES
        rows.bytes += size
        if rows.bytes >= FRAME_BYTES or len(rows.keys) >= FRAME_ROWS:
            self._open = None
        stream.bytes_stored += size
        stream.core.gathered_bytes += size
        if not stream.is_due:
            stream.due()
        return rows

    def append_once(self, payload: bytes, ack: Ack | None, producer: bytes, sequence: int) -> None:
        """Add one message of an idempotent producer, unless it was added before."""
        if not self._is_known(producer, sequence, ack):
            head = self.stream.heads.of(payload)
            sender, delivery_id = ack or (None, 0)
            rows = self.append_parts(head, payload[head.body_at :], sender, delivery_id)
            rows.sequences.append((producer, sequence))

    def append_frame(self, frame: Frame, ack: Ack | None) -> None:
        """Add a ready frame, unless its producer has added it before; ``ack`` is settled when it is stored."""
        if frame.producer and self._is_known(frame.producer, frame.sequence, ack):
            return
        if not self._groups:
            self.stream.core.write(self)
        self._groups.append(Ready(frame, ack))
        self._open = None
        size = len(frame.data)
        self.stream.bytes_stored += size
        self.stream.core.gathered_bytes += size
        self.stream.due()

    def miss(self, producer: bytes, sequence: int) -> None:
        """Note that a message of an idempotent producer was not taken; see ``Sequences.miss``."""
        self._sequences.miss(producer, sequence)

    def _is_known(self, producer: bytes, sequence: int, ack: Ack | None) -> bool:
        """Return whether a sequence came before; its sender is answered then."""
        state = self._sequences.judge(producer, sequence)
        if state is None:
            return False
        if ack is not None:
            ack[0].settle(ack[1], state)
        return True

    # Consumers and upkeep

    def advance_consumer(self, name: str, offset: int) -> None:
        """Note that a named consumer has got through everything below ``offset``; written with the next batch."""
        self.consumers.advance(name, offset)
        self.stream.core.write(self)

    def commit_consumer(self, name: str, offset: int | None, done: Done) -> None:
        """Commit a consumer's offset; ``done`` is called with whether that is on disk."""
        self.consumers.commit(name, offset, done)
        self.stream.core.write(self)

    def stage_consumer(self, name: str, offset: Callable[[], int], done: Done) -> None:
        """Move a consumer forward for a transaction; see ``ConsumerOffsets.stage``."""
        self.consumers.stage(name, offset, done)
        self.stream.core.write(self)

    def is_expired(self, wall_us: int) -> bool:
        """Return whether retention has something to delete here now."""
        return self._low_end.is_due(wall_us)

    @property
    def front_us(self) -> int:
        """The time of the oldest frame; see ``LowEnd``."""
        return self._low_end.front_us

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], Cut | None]:
        """Return the operations to write for this partition."""
        if self.is_closed:
            return [], None
        cut = Cut(self.stream)
        operations = self._cut_groups(cut, max(wall_us, self.last_us)) if self._groups else []
        log_id, index = self.stream.log_id, self.index
        if cut.sequences:
            prefix = log_key(log_id, index, 0)
            for producer, record in self._sequences.cut(cut.sequences, wall_us // 1_000_000):
                operations.append(Operation(Table.PRODUCER, prefix + producer, record))
        if self.consumers.is_due:
            prefix = log_key(log_id, index, 0)
            cut.commits, cut.done = self.consumers.cut()
            for name, record in self.consumers.records(cut.commits):
                operations.append(Operation(Table.OFFSET, prefix + name, record))
        end = self._low_end.take(wall_us)
        if end is not None:
            operations += self._low_end.deletions
            cut.low = end.first
            cut.released = max(0, self.bytes_stored - (self.appended - end.before))
            self.stream.leaving_bytes += cut.released
        if operations:
            run = self._merging.run()
            if run is not None and run.first >= max(self.low, cut.low):
                operations.append(merge_operation(log_key(log_id, index, run.first), run.end))
                cut.merged = run
                self._low_end.forget()
        if cut.frames or cut.acks or cut.low >= 0:
            low = self.low if cut.low < 0 else cut.low
            stored = self.bytes_stored + cut.size - cut.released
            mark = _MARK.pack(low, self.next_offset, stored, self.appended + cut.size, self.last_us)
            operations.append(Operation(Table.MARK, log_key(log_id, index, 0), mark))
        return operations, cut if operations or cut.done else None

    def _cut_groups(self, cut: Cut, wall_us: int) -> list[Operation]:
        """Return the frames of what gathered."""
        groups, self._groups, self._open = self._groups, [], None
        stream, index = self.stream, self.index
        operations: list[Operation] = []
        for group in groups:
            first = self.next_offset
            size = group.bytes
            cut.add_acks(group.acks)
            if isinstance(group, Ready):
                frame = group.frame
                count = frame.rows
                data = restamp_frame(frame, first, wall_us)
                if frame.producer:
                    cut.sequences.setdefault(frame.producer, set()).add(frame.sequence)
            else:
                count = len(group.keys)
                for producer, sequence in group.sequences:
                    cut.sequences.setdefault(producer, set()).add(sequence)
                if count:
                    stream.average_bytes = (stream.average_bytes + size // count + 1) // 2
                times = [wall_us] * count
                data = encode_frame(first, times, group.keys, group.heads, group.bodies, whole=group.whole)
            stream.core.gathered_bytes -= size
            if not count:
                stream.bytes_stored -= size
                continue
            self.next_offset = first + count
            cut.frames.append((first, self.next_offset, data, size))
            operations.append(Operation(Table.FRAME, log_key(stream.log_id, index, first), data))
            operations.append(self.index_of_time.operation(Entry(first, wall_us, self.appended + cut.size)))
            cut.size += size
        self.last_us = wall_us
        return operations

    def committed(self, token: Cut) -> None:
        """Note that a cut is on disk: settle senders, serve readers."""
        stream = token.stream
        if token.merged is not None:
            self._merging.merged(token.merged)
            self._low_end.forget()
        for first, end, data, size in token.frames:
            self.visible = end
            self.tail.add(first, end, data)
            self._merging.add(Span(first, end, size))
        self.bytes_stored += token.size
        self.appended += token.size
        if token.low >= 0:
            self._release(token)
        if token.sequences:
            self._sequences.stored(token.sequences)
        self.consumers.written(token.commits, token.done)
        stream.accept(token.acks)
        if token.frames or token.low >= 0:
            stream.advanced()

    def _release(self, token: Cut) -> None:
        """Note that what retention deleted is off the disk."""
        stream = token.stream
        self.low = token.low
        self.bytes_stored -= token.released
        stream.bytes_stored -= token.released
        stream.leaving_bytes -= token.released
        self.tail.forget(token.low)
        self._merging.forget(token.low)
        self._low_end.passed()

    def failed(self, token: Cut, reason: str) -> None:
        """Note that a cut is not on disk: its senders are to send again."""
        stream = token.stream
        stream.bytes_stored -= token.size
        stream.leaving_bytes -= token.released
        # Of a log only one batch is on its way, so nothing was given offsets above these.
        self.next_offset = self.visible
        if token.sequences:
            self._sequences.failed(token.sequences)
        self._low_end.forget()
        self.consumers.failed(token.commits, token.done)
        if token.commits and not self.is_closed:
            stream.core.write(self)
        settle_all(token.acks, RELEASED)
        stream.advanced()

    def close(self) -> None:
        """Close, as the stream is deleted: what is not on its way to the journal is not written any more."""
        self.is_closed = True
        groups, self._groups, self._open = self._groups, [], None
        for group in groups:
            self.stream.core.gathered_bytes -= group.bytes
            settle_all(group.acks, RELEASED)
        self.consumers.failed(*self.consumers.cut())

    def load(self) -> None:
        """Load what the journal holds."""
        storage = self.stream.core.storage
        mark = storage.get(Table.MARK, log_key(self.stream.log_id, self.index, 0))
        if mark is not None:
            if len(mark) == _MARK.size:
                self.low, self.next_offset, self.bytes_stored, self.appended, self.last_us = _MARK.unpack(mark)
            else:
                self.low, self.next_offset, self.bytes_stored = _FIRST_MARK.unpack(mark)
                self.appended = self.bytes_stored
                self.last_us = self._time_of_last_row()
            self.visible = self.next_offset
            self.stream.bytes_stored += self.bytes_stored
        self._sequences.load(by_name(storage, Table.PRODUCER, self.stream.log_id, self.index))
        self.consumers.load(by_name(storage, Table.OFFSET, self.stream.log_id, self.index))
        self._load_end()

    def _time_of_last_row(self) -> int:
        """Return the time of the last row, from the last frame."""
        first, last = log_range(self.stream.log_id, self.index)
        found = self.stream.core.storage.floor(Table.FRAME, last, first)
        with suppress(FrameError):
            if found is not None:
                return max(Frame(found[1]).timestamps(), default=0)
        return 0

    def _load_end(self) -> None:
        """Find out which of the latest frames are small."""
        entries = self.index_of_time.latest(RUN_FRAMES)
        following = Entry(self.visible, self.last_us, self.appended)
        spans: list[Span] = []
        for entry in reversed(entries):
            span = Span(entry.first, following.first, following.before - entry.before)
            if span.is_large:
                break
            spans.append(span)
            following = entry
        for span in reversed(spans):
            self._merging.add(span)
