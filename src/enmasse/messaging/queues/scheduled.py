"""Messages on disk that may not be handed out for a while: the page passes them by, and they are fetched when due.

In memory is a bit for each of them, and the time of the first one of each frame.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from enmasse.messaging.facts import known_facts
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.part import Part
from enmasse.messaging.queues.jobs import PIECE_UNITS, TAKE_UNITS, Job, Search
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.log.entry import FrameRef
    from enmasse.messaging.queues.paging import Pager


SOON_US = 1_000_000
"""Microseconds for which another read is not worth it."""


class Scheduled(Part["Pager"]):
    """The rows of one queue that wait on disk for their time.

    Args:
        pager: the part of the queue that is on disk.
        core: the core, whose clocks count.
        is_dated: whether they wait for a time of day, or for a time since their arrival.
    """

    __slots__ = ("_core", "_dues", "_heap", "_is_dated", "_rows")

    def __init__(self, pager: Pager, core: Core, *, is_dated: bool) -> None:
        super().__init__(pager)
        self._core = core
        self._is_dated = is_dated
        self._rows: dict[int, int] = {}
        """By the frame's first offset, a bit for each row."""
        self._dues: dict[int, int] = {}
        """By the same, when the first of these rows is due."""
        self._heap: list[tuple[int, int]] = []
        """Times and frames; an entry that the above does not confirm is skipped."""

    @property
    def _clock_us(self) -> int:
        return self._core.wall_us if self._is_dated else self._core.steady_us

    def _due_of(self, payload: bytes, since_us: int) -> int:
        """Return when a message that arrived then may be handed out, by the clock that counts; 0 is at once."""
        facts = known_facts(payload)
        if facts.delivery_delay_ms:
            return 0 if self._is_dated else since_us + facts.delivery_delay_ms * 1_000
        return facts.delivery_time_ms * 1_000 if self._is_dated else 0

    def leave(self, ref: FrameRef, row: int, payload: bytes, since_us: int) -> bool:
        """Leave a row on disk until its time; false if that has come, or is not for us to say."""
        due_us = self._due_of(payload, since_us)
        if due_us <= self._clock_us + SOON_US:
            return False
        self._keep(ref.first, row, due_us)
        return True

    def _keep(self, first: int, row: int, due_us: int) -> None:
        self._rows[first] = self._rows.get(first, 0) | 1 << row
        before = self._dues.get(first)
        if before is None or due_us < before:
            self._dues[first] = due_us
            heappush(self._heap, (due_us, first))

    def forget(self, first: int) -> None:
        """Forget a frame that was deleted."""
        self._rows.pop(first, None)
        self._dues.pop(first, None)

    def take_due(self) -> int:
        """Fetch what is due, a frame at a time.

        Returns:
            In how many microseconds something is due; 0 is never, or after what is being read.
        """
        heap = self._heap
        while heap and self._dues.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if not heap:
            return 0
        due_us, first = heap[0]
        wait_us = due_us - self._clock_us
        if wait_us <= 0 and not self.whole.is_reading:
            self._pick(first, Search(self._is_due, self.whole.bring), lambda: None)
        return max(0, wait_us)

    def _is_due(self, payload: bytes, _attempts: int, since_us: int, _offset: int) -> bool:
        return self._due_of(payload, since_us) <= self._clock_us + SOON_US

    def sweep(self, search: Search, done: Callable[[], None]) -> None:
        """Take every row that is chosen, whatever its time."""
        self._sweep_on(list(self._rows), search, done)

    def _sweep_on(self, frames: list[int], search: Search, done: Callable[[], None]) -> None:
        pager = self.whole
        if frames and not pager.is_closed and search.is_wanted():
            first = frames.pop()
            self._pick(first, search, lambda: pager.wait(lambda: self._sweep_on(frames, search, done)))
        else:
            done()

    def _pick(self, first: int, search: Search, done: Callable[[], None]) -> None:
        pager = self.whole

        def page(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> Job:
            rows = 0 if pager.is_closed else self._rows.get(first, 0)
            self.forget(first)
            for key in damaged:
                pager.lose(key)
            for _, value in records:
                frame = Frame(value, verify=False)
                times = pager.times_of(frame)
                ref = pager.ref_of(frame)
                payloads = ref.payloads(frame)
                spent = 0
                for row in range(frame.rows) if ref.own is None else ref.own:
                    if not rows >> row & 1:
                        continue
                    if spent >= PIECE_UNITS:
                        yield spent
                        spent = 0
                        if pager.is_closed:
                            return
                    payload = payloads[row]
                    if search.chooses(payload, pager.attempts_of(ref, row), times[row], frame.first_offset + row):
                        search.take(pager.make(ref, row, payload, times[row]))
                        spent += TAKE_UNITS
                    else:
                        self._keep(first, row, self._due_of(payload, times[row]))
                    spent += search.cost(payload)
                yield spent

        keys = log_key(pager.log_id, 0, first), log_key(pager.log_id, 0, first + 1)
        pager.fetch(Table.FRAME, *keys, page, done)
