"""The merging of small frames of a queue without receivers into larger ones.

Rules:
1. Only whole frames are merged, of which nothing is in memory and nothing was settled, and without receivers.
2. The journal does it, in a step of bounded size; nothing is read from these frames meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.log.layout import log_key
from enmasse.messaging.part import Part
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.log.entry import FrameRef
    from enmasse.messaging.log.message_log import MessageLog
    from enmasse.messaging.queues.backlog import Backlog


FRAMES = 64
"""Merged at once."""

SMALL_BYTES = 16 << 10
"""A frame of this size is read as quickly as a larger one."""


class Merging(Part["Backlog"]):
    """The run of small frames at the end of one queue."""

    __slots__ = ("_following", "_frames", "_log", "is_under_way")

    def __init__(self, backlog: Backlog, log: MessageLog) -> None:
        super().__init__(backlog)
        self._log = log
        self._frames: list[int] = []
        """First offsets, one frame after the other."""
        self._following = 0
        self.is_under_way = False
        """True if frames are being merged, and so cannot be read."""

    def left_memory(self, frame: FrameRef, size: int) -> None:
        """Note that a frame is on disk, and nothing of it is in memory any more.

        Args:
            frame: the frame.
            size: bytes of its messages.
        """
        if size > SMALL_BYTES or frame.first != self._following:
            self._frames.clear()
        if size > SMALL_BYTES:
            return
        self._frames.append(frame.first)
        self._following = frame.first + frame.rows
        if len(self._frames) >= FRAMES and not self.is_under_way:
            self._merge()

    def _merge(self) -> None:
        frames, self._frames = self._frames, []
        backlog = self.whole
        pager = backlog.pager
        is_read = backlog.consumers or backlog.browsers or pager is None or pager.is_reading or pager.sweeps
        if is_read or not self._log.is_owned_by(backlog.share) or any(first in backlog.frames for first in frames):
            return
        self.is_under_way = True
        key = log_key(self._log.log_id, 0, frames[0])
        merge = Operation(Table.MERGE, key, self._following.to_bytes(8, "big"))

        def merged(_reason: str | None) -> None:
            # If it was not possible, the frames stay as they are.
            self.is_under_way = False
            backlog.due()

        backlog.core.store([merge], merged)
