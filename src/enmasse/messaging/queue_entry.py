"""What a queue has on hand: messages, and the frames on disk that some of them lie in."""

from __future__ import annotations

import struct
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
        "attempts", "first", "has_attempts", "has_record", "is_exact", "is_touched", "live", "log", "owner", "rows",
        "settled", "taken",
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
        self.is_touched = False
        self.has_record = False
        """Whether settled ranges of it are on disk."""
        self.has_attempts = False
        self.is_exact = True
        """Whether the bytes of its rows were counted, not guessed."""

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
        since_us: when it arrived, in microseconds since 1970 UTC; 0 is in this turn.
        expires_us: when it expires; 0 is never.
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


def encode_attempts(attempts: dict[int, int]) -> bytes:
    """Failed deliveries by row, as they are kept on disk."""
    return b"".join(_RANGE.pack(row, min(count, 0xFFFFFFFF)) for row, count in sorted(attempts.items()))


def attempts_of(record: bytes) -> dict[int, int]:
    """What ``encode_attempts`` gave."""
    return dict(_RANGE.iter_unpack(record))
