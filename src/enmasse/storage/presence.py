"""Checks that a journal is where it was: a disk that is not mounted must not pass for a new journal.

Rules:
1. A node keeps a *marker* outside of its own directory, made once its journal is on disk and before anything is
   accepted. Where there is a marker, a data file that is missing or empty is a loss, and no beginning.
2. A crash between journal and marker leaves a journal without a marker, which gets it at the next start, as those do
   that are older than markers.
3. A data file that is in use is known by device and inode. Once another one, or none, has its name, what is
   written to it would be gone with its last user.
"""

from __future__ import annotations

import os
from contextlib import suppress

from enmasse.storage.errors import JournalMissingError

# ruff: noqa: PTH100, PTH103, PTH110, PTH116, PTH118, PTH120
# pathlib would double the start time of the journal process

FileId = tuple[int, int]
"""Device and inode."""


def marker_path(data: str | os.PathLike[str], node: str) -> str:
    """Return the path of the marker of a node's journal: beside ``nodes``, which may be a disk of its own."""
    return os.path.join(data, "journals", node)


def _data_path(directory: str) -> str:
    return os.path.join(directory, "data.mdb")


def file_id(directory: str) -> FileId:
    """The identity of the data file that has the name now.

    Raises:
        OSError: there is none.
    """
    found = os.stat(_data_path(directory))
    return found.st_dev, found.st_ino


def explain_loss(directory: str, used: FileId) -> str:
    """The reason why the data file in use is not the journal any more; empty if it still is.

    Args:
        directory: the directory of the journal.
        used: the file in use.
    """
    path = _data_path(directory)
    try:
        if file_id(directory) == used:
            return ""
        what = f"another file has taken the place of {path}"
    except (FileNotFoundError, NotADirectoryError):
        what = f"{path} was deleted or moved away"
    except OSError as error:
        what = f"{path} cannot be found any more ({error.strerror})"
    return (
        f"{what} while the node uses it, so nothing more is accepted. "
        "Before the node is stopped, what it stored can still be saved: see `When the journal is gone` in "
        "docs/howto/back-up-and-repair.md"
    )


def require_journal(directory: str, marker: str) -> None:
    """Check that a journal is there if there ever was one.

    Args:
        directory: the directory in which it should be.
        marker: the file that shows that there was one.

    Raises:
        JournalMissingError: there was one, and its data file is missing or empty.
    """
    if not os.path.exists(marker):
        return
    path = _data_path(directory)
    try:
        if os.stat(path).st_size:
            return
        what = f"{path} is empty"
    except (FileNotFoundError, NotADirectoryError):
        what = f"there is no {path}"
    except OSError as error:
        what = f"{path} cannot be looked at ({error.strerror})"
    raise JournalMissingError(
        f"the journal in {directory} is gone: {what}, but {marker} tells that the node had one. Nothing was changed. "
        f"If it lies on a disk that is not mounted, mount that; "
        f"`enmasse journal restore BACKUP --directory {directory}` puts a backup in its place; "
        f"`enmasse journal init {directory}` begins anew, without anything that was stored"
    )


def write_marker(directory: str, marker: str) -> None:
    """Remember on disk that there is a journal, unless that is remembered already.

    Args:
        directory: the directory of the journal, whose data file is on disk.
        marker: the file to make.

    Raises:
        OSError: it cannot be made.
    """
    if os.path.exists(marker):
        return
    directory = os.path.abspath(directory)
    markers = os.path.dirname(os.path.abspath(marker))
    os.makedirs(markers, mode=0o700, exist_ok=True)
    # The way to the journal first: a marker without it would refuse a start.
    top = os.path.commonpath((directory, markers))
    way = directory
    while len(way) > len(top):
        way = os.path.dirname(way)
        _sync(way)
    with suppress(OSError):  # the data directory's own name, where that may be read
        _sync(os.path.dirname(top))
    fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The name is what counts, and the text is for people: a full disk may leave it out.
        with suppress(OSError):
            os.write(fd, f"There is a journal in {directory}; see docs/reference/journal.md.\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    _sync(markers)
    _sync(os.path.dirname(markers))


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
