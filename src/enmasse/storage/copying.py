"""Writing a fresh data file from the records of another journal.

Records go in by the order of keys, so that pages are full. Nothing has the target's name before all of it
is on disk.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

import lmdb

from enmasse.storage.checksums import FORMAT_KEY, has_checksums, with_checksum, without_checksum
from enmasse.storage.environment import DEFAULT_MAP_BYTES
from enmasse.storage.errors import JournalLockedError, ToolError
from enmasse.storage.lock import DirectoryLock
from enmasse.storage.seal import LAST_KEY, SEAL_KEY, encode_seal
from enmasse.storage.snapshot import DATA_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Records = Iterable[tuple[bytes, bytes]]

_STEP_BYTES = 64 << 20
"""One transaction of the target: its pages are in memory until its end."""


def require_room_for(target: Path) -> None:
    """See that a directory is absent or empty.

    Raises:
        ToolError: it is neither.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ToolError(f"{target} exists and is not an empty directory: name another one")


def write_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Make a directory that is there whole or not at all.

    Args:
        target: absent or empty.
        write: fills the directory that it is given.

    Raises:
        ToolError: it cannot be written.
    """
    require_room_for(target)
    partial = target.parent / f".{target.name}.partial"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=stat.S_IRWXU)
        try:
            write(partial)
            partial.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, lmdb.Error) as error:
        raise ToolError(f"{target} could not be written, and nothing is left of it: {error}") from error


def only_writer(directory: Path) -> DirectoryLock:
    """The lock of a journal's directory, which is made if it is missing.

    Raises:
        JournalLockedError: a node uses it.
        ToolError: the directory cannot be written.
    """
    try:
        directory.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        lock = DirectoryLock(str(directory))
    except OSError as error:
        raise ToolError(f"{directory} cannot be written: {error}") from error
    if not lock.acquire():
        holder = lock.holder()
        lock.release()
        raise JournalLockedError(f"process {holder} writes the journal in {directory}: stop the node first")
    return lock


def replace_data(directory: Path, write: Callable[[Path], None]) -> None:
    """Put another data file in the place of a journal's, at once or not at all.

    Args:
        directory: the directory whose lock is held.
        write: fills the directory that it is given.

    Raises:
        ToolError: it could not be written; the journal is as it was.
    """
    partial = directory / "partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=stat.S_IRWXU)
        try:
            write(partial)
            (partial / DATA_NAME).replace(directory / DATA_NAME)
            _sync(directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, lmdb.Error) as error:
        raise ToolError(f"{directory} could not be written and is as it was: {error}") from error


def fill(directory: Path, records: Records) -> None:
    """Write records into a fresh data file and see them on disk.

    Args:
        directory: exists and is empty.
        records: stored keys and values, best in the order of keys; the seal is written anew.

    Raises:
        lmdb.Error: they could not be written.
    """
    environment = lmdb.open(
        str(directory), map_size=DEFAULT_MAP_BYTES, max_dbs=0, sync=False, metasync=False, lock=False, mode=0o600
    )
    try:
        last = b""
        for step in _steps(records):
            with environment.begin(write=True) as transaction:
                for key, value in step:
                    transaction.put(key, value, overwrite=False, append=key > last)
                    last = max(last, key)
        with environment.begin(write=True) as transaction:
            is_checked = has_checksums(transaction.get(FORMAT_KEY, b""))
            stored = transaction.get(LAST_KEY)
            last_numbers = without_checksum(LAST_KEY, stored) if stored is not None and is_checked else stored
            seal = encode_seal(transaction.id(), {LAST_KEY: last_numbers})
            transaction.put(SEAL_KEY, with_checksum(SEAL_KEY, seal) if is_checked else seal)
        environment.sync(True)
    finally:
        environment.close()
    _sync(directory)


def _steps(records: Records) -> Iterator[list[tuple[bytes, bytes]]]:
    step: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in records:
        if key == SEAL_KEY:
            continue
        step.append((key, value))
        size += len(value)
        if size >= _STEP_BYTES:
            yield step
            step, size = [], 0
    yield step


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
