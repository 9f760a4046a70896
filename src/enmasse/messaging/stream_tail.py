"""The latest frames of a partition, kept in memory for readers that keep up."""

from __future__ import annotations

from collections import deque

__all__ = ["Piece", "Tail"]

Piece = tuple[int, int, bytes]
"""A frame: its first row's offset, one above its last row's, and its bytes."""


class Tail:
    """Committed frames without a gap, up to the partition's end.

    Args:
        limit: bytes to keep; the latest frame is kept whatever its size.
    """

    __slots__ = ("_frames", "_limit", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[Piece] = deque()
        self._size = 0

    def add(self, first: int, end: int, data: bytes) -> None:
        """A frame was committed."""
        frames = self._frames
        frames.append((first, end, data))
        self._size += len(data)
        while self._size > self._limit and len(frames) > 1:
            self._size -= len(frames.popleft()[2])

    def forget(self, low: int) -> None:
        """What lies below ``low`` is deleted."""
        frames = self._frames
        while frames and frames[0][1] <= low:
            self._size -= len(frames.popleft()[2])

    @property
    def first(self) -> int | None:
        """The first offset that is kept; ``None`` where nothing is."""
        return self._frames[0][0] if self._frames else None

    def read(self, offset: int, limit: int) -> list[Piece]:
        """Frames that hold ``offset`` or come behind it, until they reach ``limit`` bytes."""
        found: list[Piece] = []
        size = 0
        for piece in reversed(self._frames):
            if piece[1] <= offset:
                break
            found.append(piece)
        found.reverse()
        for number, piece in enumerate(found):
            size += len(piece[2])
            if size >= limit:
                return found[: number + 1]
        return found
