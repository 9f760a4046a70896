"""Files that are replaced whole, and directories, that nobody else can read for a moment either."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from enmasse.errors import ConfigError

__all__ = ["make_private", "replace_file"]


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put data in the place of a file, on disk when this returns; its directory is made if there is none.

    Args:
        path: the file.
        data: its new contents.
        mode: its permissions; by default its owner alone may read it.

    Raises:
        ConfigError: it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


def make_private(directory: Path) -> None:
    """Make a directory of our own; one that somebody else made before us could be a trap.

    Raises:
        ConfigError: it is somebody else's, or cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = directory.stat().st_uid
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be made ({error.strerror}): name a directory that you may write with --data"
        ) from None
    if owner != os.getuid():
        raise ConfigError(f"{directory} belongs to another user: remove it, or choose a shorter --data path")
