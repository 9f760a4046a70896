"""Logs of runners and pipelines: bounded, and nobody's but ours."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

__all__ = ["BoundedLog"]

MAX_BYTES = 1024 * 1024
"""Of each of the two files that a log has at most: some ten thousand lines."""
LONGEST_LINE = 8 * 1024


class BoundedLog:
    """A file of lines; when it is full it is put aside, in place of the one put aside before.

    Args:
        path: the file; made with the first line, for its owner alone.
        max_bytes: how large it becomes.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._former = path.with_name(path.name + ".1")
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """Where the newest lines are."""
        return self._path

    def append(self, line: str) -> None:
        """Add a line; what cannot be written is left out, as a full disk is told of elsewhere."""
        data = line.replace("\r", "").replace("\n", "\\n")[:LONGEST_LINE].encode("utf-8", "replace") + b"\n"
        with self._lock:
            try:
                # No link is followed: whoever could make one would have us write elsewhere.
                number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
                with os.fdopen(number, "ab") as file:
                    file.write(data)
                    size = file.tell()
                if size >= self._max_bytes:
                    self._path.replace(self._former)
            except OSError:
                pass

    def tail(self, count: int) -> list[str]:
        """Return the last lines, oldest first."""
        last: deque[str] = deque(maxlen=max(count, 0))
        for path in (self._former, self._path):
            last.extend(_lines(path))
        return list(last)

    def position(self) -> tuple[int, int]:
        """Where its end is now, for ``since``."""
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_size

    def since(self, position: tuple[int, int]) -> tuple[list[str], tuple[int, int]]:
        """Return the whole lines that came after a position, and the new one."""
        inode, offset = position
        lines: list[str] = []
        now = self.position()
        if inode and inode != now[0]:
            lines, _ = _lines_from(self._former, offset)
            offset = 0
        more, offset = _lines_from(self._path, offset)
        return [*lines, *more], (now[0], offset)

    def remove(self) -> None:
        """Remove the files."""
        for path in (self._former, self._path):
            path.unlink(missing_ok=True)


def _lines(path: Path) -> list[str]:
    return _lines_from(path, 0)[0]


def _lines_from(path: Path, offset: int) -> tuple[list[str], int]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            file.seek(offset)
            data = file.read(2 * MAX_BYTES)
    except OSError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), offset + len(whole)
