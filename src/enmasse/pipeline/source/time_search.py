"""The first row of a moment or later, found in the frames around it.

The node's index knows frames; a frame's own timestamps tell the row. Times never go back within a
partition, so the first frame that holds such a row decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from enmasse.messaging.frame import Frame

__all__ = ["first_row_since"]


def first_row_since(frames: Iterable[bytes], since_us: int, end: int) -> int:
    """The offset of the first row of that time or later.

    Args:
        frames: in order; not more of them are taken than it needs.
        since_us: microseconds since 1970 UTC.
        end: the answer when no row is that young.

    Raises:
        FrameError: a frame is damaged.
    """
    for data in frames:
        frame = Frame(data)
        row = bisect_left(frame.timestamps(), since_us)
        if row < frame.rows:
            return min(frame.first_offset + row, end)
    return end
