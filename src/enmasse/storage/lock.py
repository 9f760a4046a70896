"""The lock that makes one process the only writer of a journal directory.

``flock`` belongs to the open file: it ends with the process that holds it, however that dies, and
the journal process starts no other that could inherit it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

LOCK_NAME = "writer.lock"


class DirectoryLock:
    """An exclusive lock on a directory, which must exist; not held until ``acquire`` says so."""

    __slots__ = ("_fd",)

    def __init__(self, directory: str) -> None:
        self._fd = os.open(os.path.join(directory, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # noqa: PTH118 - pathlib would double this process's start time

    def acquire(self) -> bool:
        """Take the lock if it is free, without waiting."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # The name is for people: on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        return True

    def holder(self) -> str:
        """The process id that the holder wrote, for a message to a person."""
        return os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"

    def release(self) -> None:
        """Give the lock up; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
