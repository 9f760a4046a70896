"""A lock on a directory, so that only one process of a kind works in it.

The operating system holds the lock: it ends with the process, however that
ends. The file stays, and tells the process id of its last owner.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from enmasse.control.errors import DirectoryInUseError
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """An exclusive lock on a directory, which is made if it does not exist.

    Args:
        directory: the directory.
        name: the lock file's name in it.

    Raises:
        DirectoryInUseError: on entering, when another process holds the lock.
        ConfigError: on entering, when the directory cannot be made or written.
    """

    def __init__(self, directory: Path, name: str = "lock") -> None:
        self._directory = directory
        self._path = directory / name
        self._file: int | None = None

    def is_held(self) -> bool:
        """Tell whether any process, this one included, holds the lock now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def __enter__(self) -> Self:
        try:
            for directory in (self._directory.parent, self._directory):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Python opens files without inheritance, so no child can keep the lock alive.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{error.filename or self._path} cannot be written ({error.strerror}): "
                "name a directory that you may write with --data, or see to it that you may write this one"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            pid = int(owner) if owner.isdigit() else None
            raise DirectoryInUseError(self._directory, pid) from None
        # The name is for people: on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        self._file = descriptor
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
