"""Messages on disk that may not be handed out for a while: the page passes them by, and they are fetched when due.

In memory is a bit for each of them, and the time of the first one of each frame.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from enmasse.messaging.frame import Frame
from enmasse.messaging.log import log_key
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from enmasse.messaging.paging import Pager, Take, Wanted
    from enmasse.messaging.queue_entry import FrameRef

__all__ = ["SOON_US", "Scheduled"]

SOON_US = 1_000_000
"""What is due within a second is not worth another read."""


class Scheduled:
    """The rows of one queue that wait on disk for their time.

    Args:
        pager: the part of the queue that is on disk.
    """

    __slots__ = ("_dues", "_pager", "_rows")

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._rows: dict[int, int] = {}
        """By the frame's first offset, a bit for each row."""
        self._dues: list[tuple[int, int]] = []
        """When, and in which frame."""

    @property
    def due_us(self) -> int:
        """When the next one is due, in microseconds since 1970 UTC; 0 is never."""
        return self._dues[0][0] if self._dues else 0

    def leave(self, ref: FrameRef, row: int, due_us: int) -> None:
        """A row stays on disk until its time."""
        rows = self._rows.get(ref.first, 0)
        self._rows[ref.first] = rows | 1 << row
        heappush(self._dues, (due_us, ref.first))

    def forget(self, first: int) -> None:
        """A frame is gone."""
        self._rows.pop(first, None)

    def take_due(self, wall_us: int) -> None:
        """Fetch what is due, a frame at a time."""
        pager = self._pager
        if pager.is_reading or not self._dues or self._dues[0][0] > wall_us:
            return
        _, first = heappop(self._dues)

        def is_due(payload: bytes, _attempts: int, since_us: int) -> bool:
            due_us = pager.due_of(payload, since_us)
            if due_us <= wall_us + SOON_US:
                return True
            heappush(self._dues, (due_us, first))
            return False

        if first in self._rows:
            self._pick(first, is_due, pager.bring, pager.go_on_later)

    def sweep(self, is_wanted: Wanted, take: Take, done: Callable[[], None]) -> None:
        """Take every row that is wanted, whatever its time."""
        frames = list(self._rows)

        def following() -> None:
            pager = self._pager
            if not frames:
                done()
            elif pager.is_reading:
                pager.call_soon(following)
            else:
                self._pick(frames.pop(), is_wanted, take, following)

        following()

    def _pick(self, first: int, is_wanted: Wanted, take: Take, done: Callable[[], None]) -> None:
        pager = self._pager

        def fetched(records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
            pager.is_reading = False
            rows = self._rows.pop(first, 0)
            for key in damaged:
                pager.lose(key)
            for _, value in records:
                frame = Frame(value, verify=False)
                times = frame.timestamps()
                ref = pager.ref_of(frame)
                for row, payload in enumerate(frame.payloads()):
                    if rows >> row & 1 and is_wanted(payload, pager.attempts_of(ref, row), times[row]):
                        rows &= ~(1 << row)
                        take(pager.make(ref, row, payload, times[row]))
                if rows:
                    self._rows[first] = rows
            done()

        pager.fetch(Table.FRAME, log_key(pager.log_id, 0, first), log_key(pager.log_id, 0, first + 1), fetched)
