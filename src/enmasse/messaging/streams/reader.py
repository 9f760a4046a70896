"""The base of a stream's readers: filters, serving, and a reader's position in a partition.

Rules:
1. Memory serves readers that keep up. What is older is fetched, one request at a time, which waits
   elsewhere; the next is asked for before the last is used up.
2. What was read and not sent is counted (``read_ahead``), and may have to be dropped and read again.
3. A frame that is damaged is left out: its rows' offsets are missing from what comes, and nothing else is
   changed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.types import Timestamp
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.frame import Frame, FrameError
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.storage import Table
from enmasse.messaging.streams.partition_log import Partition, Piece
from enmasse.messaging.transaction import Done as TransactionDone

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.streams.stream import Stream

PARTITION_FILTER = "enmasse:partition"
START_FILTER = "enmasse:start"

READ_BYTES = 1 << 20
"""Bytes that a reader takes from the journal at once, all its partitions together."""


def number_filter(filters: dict[str, Any], name: str, default: int | None) -> int | None:
    """Return the value of a filter that takes a number from 0.

    Raises:
        AttachError: it has another value.
    """
    value = filters.get(name, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise AttachError("amqp:invalid-field", f"filter {name} takes a number from 0, not {value!r}")
    return value


def time_of(start: Timestamp) -> int:
    """Return the microseconds of the moment from which on messages are wanted."""
    return max(0, start * 1_000)


def frame_at(partition: Partition, since_us: int) -> int:
    """Return the start of the last frame that may hold rows before a moment; the rows sought follow there."""
    entry = partition.index_of_time.before(since_us)
    return partition.low if entry is None else max(entry.first, partition.low)


def chosen_partitions(stream: Stream, options: AttachOptions) -> list[Partition]:
    """Return the partition that a reader names, or all.

    Raises:
        AttachError: there is no such partition.
    """
    index = number_filter(options.filters, PARTITION_FILTER, None)
    return stream.partitions if index is None else [stream.partition(index)]


class StreamConsumer(Consumer):
    """The base of readers of all kinds: they are served in the stream's turn."""

    __slots__ = ("_expects", "_is_draining")
    address: Stream

    def __init__(self, address: Stream, port: ConsumerPort, presettle: bool) -> None:
        super().__init__(address, port, presettle)
        self._is_draining = False
        self._expects = False
        """True if the disk was to bring something when it was served last."""

    @property
    def sink(self) -> Self:
        """Itself: it is the delivery of all that it sends, as nothing depends on what is settled of it."""
        return self

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what there is for the credit; a drain ends when nothing is left to come from the disk."""
        if drain:
            self._is_draining = True
            self.serve()
        else:
            self.address.advanced()

    def on_blocked(self, blocked: bool) -> None:
        """Note that the connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.address.advanced()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Count the outcome; reading does not consume."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)

    def enlist(self, delivery: Any, done: TransactionDone) -> Log | None:
        """Have a delivery accepted by a transaction; see ``GivesMessages``."""
        return None

    def serve(self) -> None:
        """Send what there is, as far as credit goes."""
        if self.port.credit > 0 and not self.is_blocked:
            self.pump()
            self._expects = self.is_reading
            self.address.core.read_ahead.keep(self, self.read_ahead())
        elif self._expects:
            self._expects = self.is_reading
            self.address.core.read_ahead.keep(self, self.read_ahead())
        if self._is_draining and not self.is_blocked and not self.is_reading:
            self._is_draining = False
            self.port.drained()

    @property
    def is_reading(self) -> bool:
        """True if there may be more once the disk has answered."""
        return False

    def pump(self) -> None:
        """Send what there is, as far as credit goes."""
        raise NotImplementedError

    def read_ahead(self) -> int:
        """Return the bytes that it has read, and not sent."""
        return 0

    def drop(self) -> None:
        """Drop what it has read, and not sent: it is read again."""

    def on_detached(self, *, closed: bool = False) -> None:
        """Leave the stream, and what was read: as garbage it could stay for long."""
        super().on_detached(closed=closed)
        self.drop()
        self.address.core.read_ahead.keep(self, 0)


class Position:
    """A reader's place in a partition.

    Args:
        partition: the partition.
        offset: the next row it wants.
        limit: bytes to fetch at once.
    """

    __slots__ = (
        "_begun_at", "_is_boundary", "_limit", "_ready", "_times_forgotten", "is_reading", "offset", "partition",
        "size",
    )  # fmt: skip

    def __init__(self, partition: Partition, offset: int, limit: int) -> None:
        self.partition = partition
        self.offset = offset
        self.is_reading = False
        """True if a request is on its way."""
        self._limit = limit
        self._ready: deque[Piece] = deque()
        self.size = 0
        """The bytes of what is here."""
        self._times_forgotten = 0
        self._is_boundary = offset == partition.low
        """True if a frame is known to begin where the next request starts."""
        self._begun_at = offset
        """The start of the frame that holds the first offset of the request on its way."""

    def piece(self) -> Piece | None:
        """Return the frame that holds the offset, or the next one behind it; ``None`` while it is not here."""
        self.leave_behind()
        ready = self._ready
        offset = self.offset
        if ready:
            if not self.is_reading and self.size * 2 < self._limit:
                self._read(ready[-1][1])
            return ready[0]
        partition = self.partition
        if offset >= partition.visible or self.is_reading:
            return None
        first = partition.tail.first
        if first is None or offset < first:
            self._read(offset)
            return None
        self._take(partition.tail.read(offset, self._limit))
        return ready[0] if ready else None

    def leave_behind(self) -> None:
        """Let go of the frames that lie before the offset."""
        ready = self._ready
        while ready and ready[0][1] <= self.offset:
            self.size -= len(ready.popleft()[2])

    def forget(self) -> None:
        """Let go of all that is here or on its way: it is read again from the offset on."""
        self._ready.clear()
        self.size = 0
        self.is_reading = False
        self._times_forgotten += 1
        self._is_boundary = self.offset == self.partition.low

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._ready.append(piece)
            self.size += len(piece[2])

    # The journal

    def _read(self, offset: int) -> None:
        """Ask for what lies from ``offset`` on and is not in memory."""
        partition = self.partition
        end = partition.tail.first
        if end is None or end > partition.visible:
            end = partition.visible
        if offset >= end:
            return
        self._begun_at = offset if self._is_boundary else self._begin(offset)
        self._fetch(offset, self._begun_at, end)

    def _begin(self, offset: int) -> int:
        """Return the start of the frame that holds an offset."""
        partition = self.partition
        self._is_boundary = True
        entry = partition.index_of_time.holding(offset, partition.last_us)
        if entry is not None:
            return entry.first
        # Data of the first versions: only the frames themselves show it.
        key = log_key(partition.stream.log_id, partition.index, offset)
        found = partition.stream.core.storage.floor(Table.FRAME, key, key[:8] + bytes(8))
        return offset if found is None else int.from_bytes(found[0][8:16], "big")

    def _fetch(self, offset: int, begin: int, end: int) -> None:
        partition = self.partition
        self.is_reading = True
        log_id, index = partition.stream.log_id, partition.index
        times_forgotten = self._times_forgotten

        def done(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
            if partition.is_closed:
                return
            if times_forgotten == self._times_forgotten:
                self.is_reading = False
                self._fetched(offset, begin, end, records, damaged)
            else:
                # Its reader waits for it nevertheless, and asks again.
                partition.stream.advanced()

        first, last = log_key(log_id, index, begin), log_key(log_id, index, end)
        partition.stream.core.storage.fetch(Table.FRAME, first, last, self._limit, done)

    def _fetched(
        self, offset: int, begin: int, end: int, records: list[tuple[bytes, bytes]], damaged: list[bytes]
    ) -> None:
        partition = self.partition
        pieces = []
        read_to = begin
        for key, data in records:
            first = int.from_bytes(key[8:16], "big")
            try:
                following = Frame(data, verify=False).next_offset
            except FrameError:
                damaged.append(key)
                continue
            if following > offset:
                pieces.append((first, following, data))
            read_to = max(read_to, following)
        for key in damaged:
            first = int.from_bytes(key[8:16], "big")
            partition.stream.found_damaged(partition, first)
            read_to = max(read_to, first + 1)
        is_late = not pieces or pieces[0][0] > offset
        if is_late and offset > partition.low:
            # Frames may have been merged meanwhile; then one that begins elsewhere holds the offset.
            before = self._begin(offset)
            if before != self._begun_at:
                self._begun_at = before
                self._fetch(offset, before, end)
                return
        self._take(pieces)
        if not pieces and begin < read_to < end:
            self._fetch(offset, read_to, end)
            return
        if not self._ready:
            # Nothing lies there: it was deleted meanwhile, or is damaged.
            self.offset = max(offset, end)
        partition.stream.advanced()
