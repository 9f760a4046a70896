"""The locks by which a backup has the pipelines of a space rest while it copies them.

    <space>/batches.lock      held for moments: no query begins another batch
    <space>/deletions.lock    held as long as files are copied: nothing deletes what tables and queries may need

A backup holds them alone; whoever writes shares them. The kernel takes them back with the process that has them,
however that ends. Nothing waits for ever: a batch goes on after ``LONGEST_REST_S``, and what is deleted is deleted
another time. Where there are no such files, as in Spark programs of users' own, nobody waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from enmasse.pipeline.credentials import FOLDER_VARIABLE

BATCHES: Final = "batches.lock"
DELETIONS: Final = "deletions.lock"
LOCKS: Final = (BATCHES, DELETIONS)

LONGEST_REST_S: Final = 120.0
"""So long a batch waits for a backup: it looks through all that a space has, and does not copy it meanwhile."""
_POLL_S: Final = 0.02


def make_locks(folder: Path, group: int | None = None) -> None:
    """Make the files of the locks, if need be.

    Args:
        folder: the folder of the space, in which nobody else can make anything.
        group: the space's, which shares them; None: we are the space's user ourselves.

    Raises:
        OSError: they cannot be made.
    """
    for name in LOCKS:
        number = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if group is not None:
                os.fchown(number, -1, group)
                os.fchmod(number, 0o640)
        finally:
            os.close(number)


def wait_for_backup(longest_s: float = LONGEST_REST_S) -> None:
    """Wait while a backup looks how far the queries of this process's space are."""
    with _opened(BATCHES) as number:
        until = time.monotonic() + longest_s
        while number is not None and not lock(number, fcntl.LOCK_SH) and time.monotonic() < until:
            time.sleep(_POLL_S)


@contextmanager
def deletion() -> Iterator[bool]:
    """Keep backups from beginning while files are deleted; False: one is copying them, so they are to stay."""
    with _opened(DELETIONS) as number:
        yield number is None or lock(number, fcntl.LOCK_SH)


def lock(number: int, kind: int) -> bool:
    """Take the lock of an open file without waiting; whether it was free."""
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(name: str) -> Iterator[int | None]:
    credentials = os.environ.get(FOLDER_VARIABLE)
    try:
        number = None if not credentials else os.open(Path(credentials).parent / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        number = None
    try:
        yield number
    finally:
        if number is not None:
            os.close(number)
