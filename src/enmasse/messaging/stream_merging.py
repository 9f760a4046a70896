"""Which small frames of a partition to make one of.

Rules:
1. Only frames that are committed take part, the latest first of all: what is large is left alone.
2. Up to 64 frames are merged at once; the result takes part in one further round, so that a row is
   rewritten twice at most.
3. Merging goes along with a batch that is written anyway. Nothing waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["LARGE_BYTES", "LARGE_ROWS", "Merging", "Span"]

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
        """Whether it is left alone."""
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
        """The oldest frames, until they are enough for one; none while there are too few."""
        if not self.is_full:
            return []
        taken = _Level()
        for span in self.spans:
            taken.add(span)
            if taken.is_full:
                break
        return taken.spans if len(taken.spans) > 1 else []

    def rest(self, end: int) -> _Level:
        """What begins at ``end`` or behind it."""
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
        """A frame is committed, behind all others."""
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
        """The next frames to merge, as one; ``None`` if none are worth it yet."""
        spans = self._closed[0] if self._closed else self._once.run() or self._fresh.run()
        if not spans:
            return None
        return Span(spans[0].first, spans[-1].end, sum(span.size for span in spans))

    def merged(self, run: Span) -> None:
        """The frames that ``run`` gave are one now."""
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
        """What lies below ``low`` is deleted."""
        self._closed = deque((run for run in self._closed if run[0].first >= low), MAX_CLOSED)
        self._once = self._once.rest(low)
        self._fresh = self._fresh.rest(low)
