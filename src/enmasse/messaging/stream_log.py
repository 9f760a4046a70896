"""One partition of a stream: a log that is appended to, committed and read.

Rules:
1. What one turn wrote is one frame (more only where it would be too large); offsets are given when the
   frame is cut, and taken back when its commit fails, so they are consecutive.
2. Readers see rows only after their commit.
3. A producer's (id, sequence) that is committed is accepted and written nowhere; one that is on its way is
   released, so that its sender asks again once the answer is known. One whose commit failed is missing
   until it comes again, whatever came after it.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import ACCEPTED, RELEASED, Producer
from enmasse.messaging.frame import Frame, encode_frame, restamp_frame, split_payload
from enmasse.messaging.log import FRAME_BYTES, FRAME_ROWS, log_key, log_range
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.stream import Stream

__all__ = ["Ack", "Partition"]

TAIL_BYTES = 4 << 20
"""Committed frames that a partition keeps in memory for readers that keep up."""

MAX_PRODUCER_BYTES = 255

MAX_MISSING = 4_096
"""Sequences of one producer that failed and are waited for; a sender that never sends them again is not
to fill the memory."""

_MARK = struct.Struct(">QQQ")

Ack = tuple[Producer, int]
"""Who hears that a message is stored, and the id for that."""


class _Rows:
    """Messages that no frame holds yet."""

    __slots__ = ("acks", "bodies", "bytes", "heads", "keys", "sequences", "whole")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.whole: list[int] = []
        self.acks: list[Ack] = []
        self.sequences: list[tuple[bytes, int]] = []
        self.bytes = 0


class _Ready:
    """A frame that a sender made; the node fills in offset and time."""

    __slots__ = ("ack", "frame")

    def __init__(self, frame: Frame, ack: Ack | None) -> None:
        self.frame = frame
        self.ack = ack


class _Cut:
    """What one batch holds of a partition."""

    __slots__ = ("acks", "frames", "sequences", "size")

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes, int]] = []
        """First offset, bytes, rows."""
        self.acks: list[Ack] = []
        self.sequences: dict[bytes, set[int]] = {}
        self.size = 0


class _Numbers:
    """What a partition knows of an idempotent producer's sequences."""

    __slots__ = ("coming", "last", "missing")

    def __init__(self) -> None:
        self.last = -1
        """The highest that is committed."""
        self.missing: set[int] = set()
        """Those that failed and did not come again."""
        self.coming: set[int] = set()
        """Those on their way to the disk."""

    def record(self, stored: set[int]) -> bytes:
        """What to keep once these are stored: the highest, and what is missing below it."""
        last = max(self.last, *stored)
        missing = sorted(number for number in self.missing - stored if number < last)
        return struct.pack(f">{1 + len(missing)}Q", last, *missing)

    def load(self, record: bytes) -> None:
        """Take up a record."""
        self.last, *missing = struct.unpack(f">{len(record) // 8}Q", record)
        self.missing = set(missing)

    def stored(self, numbers: set[int]) -> None:
        """These are on disk."""
        self.last = max(self.last, *numbers)
        self.coming -= numbers
        self.missing -= numbers

    def failed(self, numbers: set[int]) -> None:
        """These are not."""
        self.coming -= numbers
        self.missing |= numbers
        if len(self.missing) > MAX_MISSING:
            self.missing = set(sorted(self.missing)[-MAX_MISSING:])


class Partition:
    """One log of a stream."""

    __slots__ = (
        "_groups", "_numbers", "_tail", "_tail_bytes", "bytes_stored", "index", "low", "next_offset", "stream",
        "visible",
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
        self._numbers: dict[bytes, _Numbers] = {}
        """What is known of every idempotent producer."""
        self._groups: list[_Rows | _Ready] = []
        self._tail: deque[tuple[int, int, bytes]] = deque()
        """First offset, next offset and bytes of the latest frames."""
        self._tail_bytes = 0

    @property
    def name(self) -> str:
        """The stream's name and the partition's number."""
        return f"{self.stream.name}#{self.index}"

    # Appending

    def append(self, key: bytes, payload: bytes, ack: Ack | None) -> _Rows:
        """Add one message; ``ack`` hears when it is stored."""
        groups = self._groups
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
        self._take(size)
        if ack is not None:
            rows.acks.append(ack)
        return rows

    def append_once(self, key: bytes, payload: bytes, ack: Ack | None, producer: bytes, sequence: int) -> None:
        """Add one message of an idempotent producer, unless it was added before."""
        if not self._is_known(producer, sequence, ack):
            self.append(key, payload, ack).sequences.append((producer, sequence))

    def append_frame(self, frame: Frame, ack: Ack | None) -> None:
        """Add a ready frame, unless its producer has added it before; ``ack`` hears when it is stored."""
        if frame.producer and self._is_known(frame.producer, frame.sequence, ack):
            return
        if not self._groups:
            self.stream.core.write(self)
        self._groups.append(_Ready(frame, ack))
        self._take(len(frame.data))

    def _take(self, size: int) -> None:
        stream = self.stream
        stream.bytes_stored += size
        stream.core.gathered_bytes += size
        if not stream.is_due:
            stream.is_due = True
            stream.core.due(stream)

    def _is_known(self, producer: bytes, sequence: int, ack: Ack | None) -> bool:
        """Whether a sequence came before; its sender is answered then."""
        numbers = self._numbers.get(producer)
        if numbers is None:
            numbers = self._numbers[producer] = _Numbers()
        if sequence in numbers.coming:
            state: Any = RELEASED
        elif sequence <= numbers.last and sequence not in numbers.missing:
            state = ACCEPTED
        else:
            numbers.coming.add(sequence)
            return False
        if ack is not None:
            ack[0].settle(ack[1], state)
        return True

    # The journal

    def cut(self, wall_us: int) -> tuple[list[Operation], _Cut | None]:
        """Frames of what gathered."""
        groups, self._groups = self._groups, []
        if not groups:
            return [], None
        log_id, index = self.stream.log_id, self.index
        operations: list[Operation] = []
        cut = _Cut()
        size = 0
        for group in groups:
            first = self.next_offset
            if isinstance(group, _Ready):
                frame = group.frame
                count = frame.rows
                data = restamp_frame(frame, first, wall_us)
                if group.ack is not None:
                    cut.acks.append(group.ack)
                if frame.producer:
                    cut.sequences.setdefault(frame.producer, set()).add(frame.sequence)
                cut.size += len(frame.data)
            else:
                count = len(group.keys)
                cut.acks += group.acks
                for producer, sequence in group.sequences:
                    cut.sequences.setdefault(producer, set()).add(sequence)
                cut.size += group.bytes
                if count:
                    stream = self.stream
                    stream.average_bytes = (stream.average_bytes + group.bytes // count + 1) // 2
                times = [wall_us] * count
                data = encode_frame(first, times, group.keys, group.heads, group.bodies, whole=group.whole)
            if not count:
                continue
            self.next_offset = first + count
            size += len(data)
            cut.frames.append((first, data, count))
            operations.append(Operation(Table.FRAME, log_key(log_id, index, first), data))
        self.stream.core.gathered_bytes -= cut.size
        for producer, sequences in cut.sequences.items():
            record = self._numbers[producer].record(sequences)
            operations.append(Operation(Table.PRODUCER, log_key(log_id, index, 0) + producer, record))
        mark = _MARK.pack(self.low, self.next_offset, self.bytes_stored + size)
        operations.append(Operation(Table.MARK, log_key(log_id, index, 0), mark))
        return operations, cut

    def committed(self, token: _Cut) -> None:
        """What was cut is on disk: tell senders and readers."""
        for first, data, count in token.frames:
            self.visible = first + count
            self.bytes_stored += len(data)
            self._tail.append((first, first + count, data))
            self._tail_bytes += len(data)
            self.stream.bytes_stored += len(data)
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft()[2])
        self.stream.bytes_stored -= token.size
        for producer, sequences in token.sequences.items():
            self._numbers[producer].stored(sequences)
        for sender, delivery_id in token.acks:
            sender.settle(delivery_id, ACCEPTED)
        self.stream.advanced()

    def failed(self, token: _Cut, reason: str) -> None:
        """What was cut is not on disk: its senders are to send again."""
        self.stream.bytes_stored -= token.size
        # Of a log only one batch is on its way, so nothing was given offsets above these.
        self.next_offset = self.visible
        for producer, sequences in token.sequences.items():
            self._numbers[producer].failed(sequences)
        for sender, delivery_id in token.acks:
            sender.settle(delivery_id, RELEASED)
        self.stream.advanced()

    def close(self) -> None:
        """The stream is deleted: what is not on its way to the journal is not written any more."""
        groups, self._groups = self._groups, []
        for group in groups:
            acks = [group.ack] if isinstance(group, _Ready) else group.acks
            self.stream.core.gathered_bytes -= len(group.frame.data) if isinstance(group, _Ready) else group.bytes
            for ack in acks:
                if ack is not None:
                    ack[0].settle(ack[1], RELEASED)

    def load(self) -> None:
        """Take up what the journal holds."""
        storage = self.stream.core.storage
        first, last = log_range(self.stream.log_id, self.index)
        mark = storage.get(Table.MARK, first)
        if mark is not None:
            self.low, self.next_offset, self.bytes_stored = _MARK.unpack(mark)
            self.visible = self.next_offset
            self.stream.bytes_stored += self.bytes_stored
        at = first
        while found := storage.scan(Table.PRODUCER, at, last, FRAME_BYTES):
            for key, value in found:
                numbers = self._numbers[key[len(first) :]] = _Numbers()
                numbers.load(value)
            at = found[-1][0] + b"\0"

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
