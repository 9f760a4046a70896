"""The entries of queues: messages, and the frames on disk that some of them lie in."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, header_of, with_header

# A log and the references to its frames know each other.
if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.facts import Facts
    from enmasse.messaging.log.frame import Frame
    from enmasse.messaging.log.message_log import MessageLog


ENTRY_OVERHEAD_BYTES = 400
"""Bytes that a message in memory costs beside its payload, so that many small ones count for what they take."""

ROW_BYTES = 32
"""Bytes that a message on disk costs beside its payload."""


class EntryState(IntEnum):
    """State of a message at one queue or subscription."""

    READY = 0
    """Can be handed out."""
    OUT = 1
    """A receiver has it, or it is held back."""
    DONE = 2
    """Settled: no receiver needs it any more."""
    WAITING = 3
    """About to be written, and cannot be handed out before."""
    STAGED = 4
    """Part of a transaction that is about to be written."""
    MOVING = 5
    """On its way to another address."""


# Plain numbers, which the hot path finds and compares faster than members.
READY: Final[int] = EntryState.READY.value
OUT: Final[int] = EntryState.OUT.value
DONE: Final[int] = EntryState.DONE.value
WAITING: Final[int] = EntryState.WAITING.value
STAGED: Final[int] = EntryState.STAGED.value
MOVING: Final[int] = EntryState.MOVING.value

Payloads = Sequence[bytes] | Mapping[int, bytes]
"""A frame's messages by their rows."""

_RANGE = struct.Struct("<II")

_HANDED_OUT = 1 << 31
"""Marks, in a record of attempts, the first of a range of rows that receivers have; no frame has so many rows."""


def with_attempts(payload: bytes, attempts: int) -> bytes:
    """Return the message with the number of failed deliveries in its header [AMQP 3.2.1].

    One whose header cannot be read goes out as it came.
    """
    try:
        header = header_of(payload) or Header()
        header.delivery_count = min(header.delivery_count + attempts, 0xFFFFFFFF)
        header.first_acquirer = False
        return with_header(payload, header)
    except DecodeError:
        return payload


def with_ttl(payload: bytes, ttl_ms: int | None) -> bytes:
    """Return the message with the time that it has left in its header [AMQP 3.2.1]; ``None`` takes the limit away."""
    try:
        header = header_of(payload) or Header()
        header.ttl = ttl_ms
        return with_header(payload, header)
    except DecodeError:
        return payload


FRAME_HEAD_BYTES, FRAME_ROW_BYTES = 64, 20
"""Bytes of a frame beside its messages: itself with its padding, and for each row a time and three ends."""


def guessed_bytes(size: int, rows: int, live: int) -> int:
    """Return the bytes that the live rows of a frame are assumed to have before they are read."""
    if not rows:
        return 0
    payloads = max(0, size - FRAME_HEAD_BYTES - FRAME_ROW_BYTES * rows)
    return (payloads + ROW_BYTES * rows) * live // rows


class FrameRef:
    """The settled rows of one frame on disk, for one queue or subscription.

    Args:
        log: the log of the frame.
        owner: under which the settled ranges are kept: (log id, partition).
        first: the frame's first offset.
        rows: the number of its rows.
        own: those which are for this queue or subscription, in order; ``None`` are all of them.
        share: the owner itself, in a log that several share.
    """

    __slots__ = (
        "attempts", "first", "has_attempts", "has_news", "has_record", "is_exact", "is_released", "is_touched",
        "is_volatile", "live", "log", "out", "own", "owner", "rows", "settled", "settled_cut", "share", "taken",
    )  # fmt: skip

    def __init__(
        self,
        log: MessageLog,
        owner: tuple[int, int],
        first: int,
        rows: int,
        own: tuple[int, ...] | None = None,
        share: Any = None,
    ) -> None:
        self.log = log
        self.owner = owner
        self.share = share
        self.first = first
        self.rows = rows
        self.own = own
        self.live = rows if own is None else len(own)
        self.settled: list[int] = []
        self.taken: set[int] | None = None
        """Rows that were taken into memory ahead of the others."""
        self.attempts: dict[int, int] | None = None
        """Failed deliveries by row."""
        self.out: list[int] = []
        """Rows that were handed out and not given back, as the first and the end of each range, in order."""
        self.has_news = False
        """True if either was changed since it was last written."""
        self.settled_cut = 0
        """The number of settled rows that were last written."""
        self.is_volatile = False
        """True if a restart forgets its messages."""
        self.is_touched = False
        self.is_released = False
        """True if its owner counts no more among those who need the frame."""
        self.has_record = False
        """True if settled ranges of it are on disk."""
        self.has_attempts = False
        self.is_exact = True
        """True if the bytes of its rows were counted, not guessed."""

    def note_attempts(self, row: int, attempts: int) -> None:
        """Have the failed deliveries of a row survive a restart."""
        if self.attempts is None:
            self.attempts = {}
        self.attempts[row] = attempts
        self.has_news = True

    def hand_out(self, row: int) -> None:
        """Note that a receiver is about to have a row: if the node dies, that counts as a failed delivery."""
        if self.is_volatile:
            return
        out = self.out
        if out and out[-1] == row:
            out[-1] = row + 1
        elif not out or out[-1] < row:
            out += (row, row + 1)
        elif self.is_out(row):
            return
        else:
            rows = set(_rows_of(out)) | {row}
            self.out = _ranges_of(sorted(rows))
        self.has_news = True
        if not self.is_touched:
            self.log.touch(self)

    def is_out(self, row: int) -> bool:
        """Return whether a row was handed out and not given back."""
        return bool(bisect_right(self.out, row) & 1)

    def give_back(self, row: int) -> None:
        """Note that a receiver no longer has a row."""
        out = self.out
        at = bisect_right(out, row)
        if not at & 1:
            return
        # The range that holds it is cut in two, of which either may be empty.
        out[at:at] = (row, row + 1)
        for index in (at + 1, at - 1):
            if out[index] == out[index + 1]:
                del out[index : index + 2]
        self.has_news = True
        if not self.is_touched:
            self.log.touch(self)

    def note_receivers(self, sinks: Sequence[Any]) -> None:
        """Note which rows receivers have already, as the frame is cut; ``None`` is no receiver."""
        if all(sinks):
            self.note_out([0, self.rows])
        else:
            self.note_out(_ranges_of([row for row, sink in enumerate(sinks) if sink is not None]))

    def note_rows_out(self, rows: Sequence[int]) -> None:
        """Note which rows receivers have already, as the frame is cut; they are in order."""
        self.note_out(_ranges_of(rows))

    def note_out(self, ranges: list[int]) -> None:
        """Note the ranges of rows that receivers have already."""
        self.out = ranges
        self.has_news = self.has_news or bool(ranges)

    def payloads(self, frame: Frame) -> Payloads:
        """Return the messages of the frame, as far as they are for this queue or subscription."""
        return frame.payloads() if self.own is None else {row: frame.payload(row) for row in self.own}

    def rows_left(self, start: int = 0) -> list[int]:
        """Return the rows from one on that are neither settled nor taken ahead of the others."""
        own = range(start, self.rows) if self.own is None else [row for row in self.own if row >= start]
        if not self.settled and not self.taken:
            return list(own)
        gone = set(self.settled).union(self.taken or ())
        return [row for row in own if row not in gone]

    def ranges(self) -> bytes:
        """The settled rows as (first, count) pairs."""
        if self.own is None and len(self.settled) == self.rows:
            return _RANGE.pack(0, self.rows)
        self.settled.sort()
        out = []
        first = previous = self.settled[0]
        for row in self.settled[1:]:
            if row != previous + 1:
                out.append(_RANGE.pack(first, previous - first + 1))
                first = row
            previous = row
        out.append(_RANGE.pack(first, previous - first + 1))
        return b"".join(out)


class Entry:
    """A message of a queue or subscription."""

    __slots__ = (
        "attempts", "body_at", "frame",
        "is_refused", "is_resident", "payload", "producer", "producer_id", "row", "seq", "sink",
        "state",
    )  # fmt: skip

    priority = 4
    group: str | None = None
    expires_us = 0
    key: Any = None
    is_special = False
    is_durable = True

    def __init__(self, payload: bytes, producer: Any, producer_id: int) -> None:
        self.payload = payload
        self.body_at = 0
        """The offset at which its body's content begins, if that is known (``frame.split_payload``)."""
        self.producer = producer
        """The producer to settle once the message is stored; ``None`` once that is done, or if there is none."""
        self.producer_id = producer_id
        self.seq = 0
        """Its place in the order."""
        self.frame: FrameRef | None = None
        self.row = 0
        self.attempts = 0
        """Deliveries that failed."""
        self.state = READY
        """An ``EntryState``, as a number."""
        self.is_resident = True
        """True if it counts as held in memory; if not, it leaves memory once it is written."""
        self.is_refused = False
        """Its commit failed while a receiver had it: what the receiver gives back goes back to the sender."""
        self.sink: Consumer | None = None

    def stored(self) -> None:
        """Note that it is on disk: its sender may forget it."""
        producer = self.producer
        if producer is not None:
            self.producer = None
            producer.settle(self.producer_id, ACCEPTED)


class SpecialEntry(Entry):
    """A message that asks for more than its turn.

    Attributes:
        priority: 0 to 9, 4 being normal.
        group: messages of one group go to one receiver.
        facts: the facts of the message.
        since_us: the time at which it arrived, by the core's steady clock; 0 is in this turn.
        expires_us: the end of its time to live, by the same clock; 0 is never.
        key: the key of the last-value option.
    """

    __slots__ = ("expires_us", "facts", "group", "key", "priority", "since_us")
    is_special = True

    def __init__(self, payload: bytes, producer: Any, producer_id: int, facts: Facts) -> None:
        super().__init__(payload, producer, producer_id)
        self.facts = facts
        self.priority = facts.priority
        self.group = facts.group
        self.expires_us = 0
        self.since_us = 0
        self.key = None


class VolatileRow:
    """A message that is on disk for want of memory only: a restart forgets it."""

    __slots__ = ("entry", "payload")
    is_durable = False
    body_at = 0

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.payload = entry.payload

    @property
    def state(self) -> int:
        """``DONE`` once it is finished with."""
        return self.entry.state

    def stored(self) -> None:
        """Ignore that it is written: no sender waits for that, except within a transaction."""
        self.entry.stored()


def settled_rows(ranges: bytes) -> set[int]:
    """Return the rows that ``FrameRef.ranges`` gave."""
    rows: set[int] = set()
    for first, count in _RANGE.iter_unpack(ranges):
        rows.update(range(first, first + count))
    return rows


def _ranges_of(rows: Sequence[int]) -> list[int]:
    """Return the first and the end of each range of rows that are in order."""
    ranges: list[int] = []
    for row in rows:
        if ranges and ranges[-1] == row:
            ranges[-1] = row + 1
        else:
            ranges += (row, row + 1)
    return ranges


def _rows_of(ranges: Sequence[int]) -> list[int]:
    return [row for first, end in zip(ranges[::2], ranges[1::2], strict=True) for row in range(first, end)]


def encode_attempts(attempts: dict[int, int], out: Sequence[int] = ()) -> bytes:
    """Failed deliveries by row, then the ranges of rows that receivers have, as they are kept on disk."""
    failed = [_RANGE.pack(row, min(count, 0xFFFFFFFF)) for row, count in sorted(attempts.items())]
    ends = zip(out[::2], out[1::2], strict=True)
    return b"".join(failed + [_RANGE.pack(first | _HANDED_OUT, end - first) for first, end in ends])


def attempts_of(record: bytes) -> dict[int, int]:
    """Failed deliveries by row, of what ``encode_attempts`` gave: what a receiver had then has failed by now."""
    attempts: dict[int, int] = {}
    for row, count in _RANGE.iter_unpack(record):
        if row & _HANDED_OUT:
            first = row ^ _HANDED_OUT
            for one in range(first, first + count):
                attempts[one] = attempts.get(one, 0) + 1
        else:
            attempts[row] = count
    return attempts
