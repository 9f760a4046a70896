"""What a queue holds: its messages, and the frames on disk that some of them lie in."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import Header, header_of, with_header

if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer

__all__ = ["ENTRY_OVERHEAD_BYTES", "Entry", "FrameRef", "settled_rows", "with_attempts"]

ENTRY_OVERHEAD_BYTES = 400
"""What a message in memory costs beside its payload, so that many small ones count for what they take."""

_RANGE = struct.Struct("<II")


def with_attempts(payload: bytes, attempts: int) -> bytes:
    """The message with the number of failed deliveries in its header [AMQP 3.2.1].

    One whose header cannot be read goes out as it came.
    """
    try:
        header = header_of(payload) or Header()
        header.delivery_count = min(header.delivery_count + attempts, 0xFFFFFFFF)
        return with_header(payload, header)
    except DecodeError:
        return payload


class FrameRef:
    """A frame on disk and which of its rows are settled."""

    __slots__ = ("first", "is_touched", "live", "settled")

    def __init__(self, first: int, rows: int) -> None:
        self.first = first
        self.live = rows
        self.settled: list[int] = []
        self.is_touched = False

    def ranges(self) -> bytes:
        """The settled rows as (first, count) pairs."""
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
    """One message in a queue."""

    __slots__ = (
        "attempts", "frame", "is_done", "is_refused", "payload", "producer", "producer_id", "row", "seq", "sink",
    )  # fmt: skip

    def __init__(self, payload: bytes, producer: Any, producer_id: int, seq: int) -> None:
        self.payload = payload
        self.producer = producer
        """Who waits to hear that the message is stored; ``None`` where nobody does (any more)."""
        self.producer_id = producer_id
        self.seq = seq
        self.frame: FrameRef | None = None
        self.row = 0
        self.attempts = 0
        """Deliveries that failed."""
        self.is_done = False
        self.is_refused = False
        """Its commit failed while a receiver had it: what the receiver gives back goes back to the sender."""
        self.sink: Consumer | None = None


def settled_rows(ranges: bytes) -> set[int]:
    """The rows that ``FrameRef.ranges`` gave."""
    rows: set[int] = set()
    for first, count in _RANGE.iter_unpack(ranges):
        rows.update(range(first, first + count))
    return rows
