"""The merging of small frames, the rows for a partition's next frames, and its part of a batch.

Rules:
1. Only frames that are committed take part, the latest first of all: what is large is left alone.
2. Up to 64 frames are merged at once; the result takes part in one further round, so that a row is
   rewritten twice at most.
3. Merging goes along with a batch that is written anyway. Nothing waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.messaging.delivery import Producer

if TYPE_CHECKING:
    from enmasse.messaging.log.frame import Frame
    from enmasse.messaging.streams.consumers import Done
    from enmasse.messaging.streams.stream import Stream

Ack = tuple[Producer, int]
"""A sender to settle once something is stored, and the id for that."""

Acks = dict[Producer, list[int]]
"""Several acks."""


def settle_all(acks: Acks, state: Any) -> None:
    """Settle deliveries with an outcome, in an order that makes few ranges of the ids."""
    for producer, ids in acks.items():
        ids.sort()
        settle = producer.settle
        for delivery_id in ids:
            settle(delivery_id, state)


class Rows:
    """Messages that no frame holds yet."""

    __slots__ = ("acks", "bodies", "bytes", "heads", "keys", "sequences", "whole")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.whole: list[int] = []
        self.acks: Acks = {}
        self.sequences: list[tuple[bytes, int]] = []
        self.bytes = 0


class Ready:
    """A frame that a sender made; the node fills in offset and time."""

    __slots__ = ("acks", "bytes", "frame")

    def __init__(self, frame: Frame, ack: Ack | None) -> None:
        self.frame = frame
        self.bytes = len(frame.data)
        self.acks: Acks = {} if ack is None else {ack[0]: [ack[1]]}


class Cut:
    """The part of one batch that belongs to a partition; it keeps the stream until that has heard of the outcome."""

    __slots__ = ("acks", "commits", "done", "frames", "low", "merged", "released", "sequences", "size", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.frames: list[tuple[int, int, bytes, int]] = []
        """First offset, end, bytes, and what they count for."""
        self.acks: Acks = {}
        self.sequences: dict[bytes, set[int]] = {}
        self.commits: dict[str, int | None] = {}
        self.done: list[Done] = []
        self.size = 0
        self.low = -1
        """The offset at which the log begins once this is on disk; -1 leaves it where it is."""
        self.released = 0
        self.merged: Span | None = None

    def add_acks(self, acks: Acks) -> None:
        """Settle these, too, with the outcome of the batch."""
        for producer, ids in acks.items():
            known = self.acks.get(producer)
            if known is None:
                self.acks[producer] = ids
            else:
                known += ids


LARGE_ROWS = 2_048
LARGE_BYTES = 128 << 10
"""A frame with either is left as it is: reading it costs little more than reading a larger one."""

FULL_ROWS = 4_096
FULL_BYTES = 256 << 10
"""A run with either is merged."""

RUN_FRAMES = 64
"""A run of so many frames is merged whatever they hold."""

MAX_CLOSED = 16
"""Runs that wait for a batch; where large and small frames alternate for long, the oldest are left as
they are."""


class Span(NamedTuple):
    """A committed frame."""

    first: int
    end: int
    size: int

    @property
    def is_large(self) -> bool:
        """True if it is not merged."""
        return self.end - self.first >= LARGE_ROWS or self.size >= LARGE_BYTES


class _Level:
    """Adjacent frames that wait to be merged."""

    __slots__ = ("rows", "size", "spans")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans: list[Span] = []
        self.rows = 0
        self.size = 0
        for span in spans:
            self.add(span)

    def add(self, span: Span) -> None:
        self.spans.append(span)
        self.rows += span.end - span.first
        self.size += span.size

    @property
    def is_full(self) -> bool:
        return len(self.spans) >= RUN_FRAMES or self.rows >= FULL_ROWS or self.size >= FULL_BYTES

    def run(self) -> list[Span]:
        """Return the oldest frames, until they are enough for one; none while there are too few."""
        if not self.is_full:
            return []
        taken = _Level()
        for span in self.spans:
            taken.add(span)
            if taken.is_full:
                break
        return taken.spans if len(taken.spans) > 1 else []

    def rest(self, end: int) -> _Level:
        """Return the spans that begin at ``end`` or behind it."""
        return _Level(span for span in self.spans if span.first >= end)


class Merging:
    """The small frames at a partition's end."""

    __slots__ = ("_closed", "_fresh", "_once")

    def __init__(self) -> None:
        self._once = _Level()
        """Frames that were merged once, before those of ``_fresh``."""
        self._fresh = _Level()
        self._closed: deque[list[Span]] = deque(maxlen=MAX_CLOSED)
        """Runs behind which a large frame stands."""

    def add(self, span: Span) -> None:
        """Add a frame that is committed, behind all others."""
        if span.is_large:
            self._close()
        else:
            self._fresh.add(span)

    def _close(self) -> None:
        run = self._once.spans + self._fresh.spans
        for at in range(0, len(run) - 1, RUN_FRAMES):
            part = run[at : at + RUN_FRAMES]
            if len(part) > 1:
                self._closed.append(part)
        self._once, self._fresh = _Level(), _Level()

    def run(self) -> Span | None:
        """Return the next frames to merge, as one; ``None`` if none are worth it yet."""
        spans = self._closed[0] if self._closed else self._once.run() or self._fresh.run()
        if not spans:
            return None
        return Span(spans[0].first, spans[-1].end, sum(span.size for span in spans))

    def merged(self, run: Span) -> None:
        """Note that the frames that ``run`` gave are one now."""
        if self._closed and self._closed[0][0].first == run.first:
            self._closed.popleft()
        elif self._once.spans and self._once.spans[0].first == run.first:
            self._once = self._once.rest(run.end)
        else:
            self._fresh = self._fresh.rest(run.end)
            if run.is_large:
                self._close_once()
            else:
                self._once.add(run)

    def _close_once(self) -> None:
        if len(self._once.spans) > 1:
            self._closed.append(self._once.spans[:RUN_FRAMES])
        self._once = _Level()

    def forget(self, low: int) -> None:
        """Forget what lies below ``low``, as it is deleted."""
        self._closed = deque((run for run in self._closed if run[0].first >= low), MAX_CLOSED)
        self._once = self._once.rest(low)
        self._fresh = self._fresh.rest(low)
