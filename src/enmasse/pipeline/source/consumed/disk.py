"""The few things that a spool does to a disk, each durable when it returns."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """The machine's own disk.

    Every method raises ``OSError``.
    """

    def write(self, path: Path, data: bytes) -> None:
        """Make a file of these bytes; what was there is replaced."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, path: Path, name: str) -> None:
        """Give a file its final name in the same folder."""
        path.rename(path.with_name(name))
        self.sync(path.parent)

    def unlink(self, path: Path) -> None:
        """Take a file away; whether that survives a loss of power does not matter."""
        path.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        """Have a file's bytes, or a folder's names, survive a loss of power."""
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
