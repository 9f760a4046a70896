"""What a queue has on hand: messages, and the frames on disk that some of them lie in."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import ACCEPTED
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import Header, header_of, with_header

if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.facts import Facts
    from enmasse.messaging.message_log import MessageLog

__all__ = [
    "DONE",
    "ENTRY_OVERHEAD_BYTES",
    "MOVING",
    "OUT",
    "READY",
    "ROW_BYTES",
    "STAGED",
    "WAITING",
    "Entry",
    "FrameRef",
    "SpecialEntry",
    "VolatileRow",
    "attempts_of",
    "encode_attempts",
    "settled_rows",
    "with_attempts",
    "with_ttl",
]

ENTRY_OVERHEAD_BYTES = 400
"""What a message in memory costs beside its payload, so that many small ones count for what they take."""

ROW_BYTES = 32
"""What a message on disk costs beside its payload."""

READY = 0
"""It can be handed out."""
OUT = 1
"""A receiver has it, or it is held back."""
DONE = 2
"""Nobody needs it any more."""
WAITING = 3
"""It is about to be written, and cannot be handed out before."""

MOVING = 5
"""It is on its way to another address."""
STAGED = 4
"""It is part of a transaction that is about to be written."""

_RANGE = struct.Struct("<II")

_HANDED_OUT = 1 << 31
"""Marks, in a record of attempts, the first of a range of rows that receivers have; no frame has so many rows."""


def with_attempts(payload: bytes, attempts: int) -> bytes:
    """The message with the number of failed deliveries in its header [AMQP 3.2.1].

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
    """The message with the time that it has left in its header [AMQP 3.2.1]; ``None`` takes the limit away."""
    try:
        header = header_of(payload) or Header()
        header.ttl = ttl_ms
        return with_header(payload, header)
    except DecodeError:
        return payload


class FrameRef:
    """How far one queue or subscription is done with one frame on disk.

    Args:
        log: whose frame it is.
        owner: under which the settled ranges are kept: (log id, partition).
        first: the frame's first offset.
        rows: how many it has.
    """

    __slots__ = (
        "attempts", "first", "has_attempts", "has_news", "has_record", "is_exact", "is_touched", "is_volatile",
        "live", "log", "out", "owner", "rows", "settled", "settled_cut", "taken",
    )  # fmt: skip

    def __init__(self, log: MessageLog, owner: tuple[int, int], first: int, rows: int) -> None:
        self.log = log
        self.owner = owner
        self.first = first
        self.rows = rows
        self.live = rows
        self.settled: list[int] = []
        self.taken: set[int] | None = None
        """Rows that were taken into memory ahead of the others."""
        self.attempts: dict[int, int] | None = None
        """Failed deliveries by row."""
        self.out: list[int] = []
        """Rows that were handed out and not given back, as the first and the end of each range, in order."""
        self.has_news = False
        """Whether either was changed since it was last written."""
        self.settled_cut = 0
        """How many settled rows were last written."""
        self.is_volatile = False
        """Whether a restart forgets its messages."""
        self.is_touched = False
        self.has_record = False
        """Whether settled ranges of it are on disk."""
        self.has_attempts = False
        self.is_exact = True
        """Whether the bytes of its rows were counted, not guessed."""

    def note_attempts(self, row: int, attempts: int) -> None:
        """Have the failed deliveries of a row survive a restart."""
        if self.attempts is None:
            self.attempts = {}
        self.attempts[row] = attempts
        self.has_news = True

    def hand_out(self, row: int) -> None:
        """A receiver is about to have a row: if the node dies, that counts as a failed delivery."""
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
        """Whether a row was handed out and not given back."""
        return bool(bisect_right(self.out, row) & 1)

    def give_back(self, row: int) -> None:
        """A receiver no longer has a row."""
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
        """Note which rows receivers have already, as the frame is cut; ``None`` is nobody."""
        if all(sinks):
            self.out = [0, self.rows]
        else:
            self.out = _ranges_of([row for row, sink in enumerate(sinks) if sink is not None])
        self.has_news = self.has_news or bool(self.out)

    def ranges(self) -> bytes:
        """The settled rows as (first, count) pairs."""
        if len(self.settled) == self.rows:
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
    """One message of a queue or subscription."""

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
        """Where its body's content begins, if that is known (``frame.split_payload``)."""
        self.producer = producer
        """Who waits to hear that the message is stored; ``None`` where nobody does (any more)."""
        self.producer_id = producer_id
        self.seq = 0
        """Its place in the order."""
        self.frame: FrameRef | None = None
        self.row = 0
        self.attempts = 0
        """Deliveries that failed."""
        self.state = READY
        self.is_resident = True
        """Whether it counts as held in memory; if not, it is let go once it is written."""
        self.is_refused = False
        """Its commit failed while a receiver had it: what the receiver gives back goes back to the sender."""
        self.sink: Consumer | None = None

    def stored(self) -> None:
        """It is on disk: its sender may forget it."""
        producer = self.producer
        if producer is not None:
            self.producer = None
            producer.settle(self.producer_id, ACCEPTED)


class SpecialEntry(Entry):
    """A message that asks for more than its turn.

    Attributes:
        priority: 0 to 9, 4 being normal.
        group: messages of one group go to one receiver.
        facts: what it asked for.
        since_us: when it arrived, by the core's steady clock; 0 is in this turn.
        expires_us: when its time to live is over, by the same clock; 0 is never.
        key: of the last-value option.
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
        """Nobody waits for that, unless it is part of a transaction."""
        self.entry.stored()


def settled_rows(ranges: bytes) -> set[int]:
    """The rows that ``FrameRef.ranges`` gave."""
    rows: set[int] = set()
    for first, count in _RANGE.iter_unpack(ranges):
        rows.update(range(first, first + count))
    return rows


def _ranges_of(rows: Sequence[int]) -> list[int]:
    """The first and the end of each range of rows that are in order."""
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
