"""``enmasse journal salvage``, ``compact``, ``backup``, ``restore`` and ``init``: writing journals anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lmdb

from enmasse.messaging.log.numbers import LOG_RANGES, without_ranges
from enmasse.messaging.storage import Table
from enmasse.storage.checksums import FORMAT_KEY, has_checksums, with_checksum, without_checksum
from enmasse.storage.copying import fill, only_writer, replace_data, require_room_for, write_directory
from enmasse.storage.environment import WriteEnvironment
from enmasse.storage.errors import PageError, ToolError
from enmasse.storage.records import describe, explain_bad_record
from enmasse.storage.snapshot import DATA_NAME, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from enmasse.storage.pages import Node
    from enmasse.storage.progress import Progress

_RANGES = bytes([Table.ENTITY]) + LOG_RANGES


def _say(text: str) -> None:
    print(text)  # noqa: T201 - this is the result


class _Copy:
    """The records of a snapshot as they are; damaged ones are copied too, and named."""

    def __init__(self, snapshot: Snapshot, progress: Progress) -> None:
        self._snapshot = snapshot
        self._progress = progress
        self.damaged = 0

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Every record.

        Raises:
            PageError: a page is damaged.
        """
        snapshot = self._snapshot
        self._progress.expect(snapshot.entries)
        for node in snapshot.nodes():
            value = snapshot.file.value(node)
            problem = explain_bad_record(node.key, snapshot.value(node.key, value))
            if problem is not None:
                self.damaged += 1
                _say(f"damaged, copied as it is: {describe(node.key)} {problem}")
            self._progress.add(len(value))
            yield node.key, value


def _refusal(directory: Path, error: PageError) -> ToolError:
    return ToolError(
        f"the journal in {directory} is damaged: {error}. Nothing was written. "
        f"`enmasse journal salvage {directory} TARGET` keeps what can be read"
    )


def backup(directory: Path, target: Path, progress: Progress, may_go_on: Callable[[], bool] = lambda: True) -> int:
    """Copy the last commit into a fresh directory, also while the node runs; returns the exit code.

    Args:
        directory: the directory of the journal.
        target: absent or empty.
        progress: counts what is copied.
        may_go_on: called when the commit is fixed; False: nothing is to be copied.
    """
    require_room_for(target)
    try:
        with Snapshot(directory) as snapshot:
            if not may_go_on():
                return 0
            copy = _Copy(snapshot, progress)
            write_directory(target, lambda partial: fill(partial, copy.records()))
    except PageError as error:
        raise _refusal(directory, error) from error
    _say(f"{target}: {progress.records:,} records, {progress.bytes:,} bytes of {directory}")
    return 1 if copy.damaged else 0


def compact(directory: Path, progress: Progress) -> int:
    """Write a journal anew without its free pages; returns the exit code."""
    lock = only_writer(directory)
    try:
        with Snapshot(directory) as snapshot:
            before = snapshot.file.file_bytes
            copy = _Copy(snapshot, progress)
            replace_data(directory, lambda partial: fill(partial, copy.records()))
        after = (directory / DATA_NAME).stat().st_size
    except PageError as error:
        raise _refusal(directory, error) from error
    finally:
        lock.release()
    _say(f"{directory}: {before:,} bytes before, {after:,} now")
    return 1 if copy.damaged else 0


def restore(source: Path, directory: Path, progress: Progress, *, force: bool) -> int:
    """Make a backup the journal of a node; returns the exit code."""
    if _holds_data(directory) and not force:
        raise ToolError(f"{directory} holds a journal already: --force replaces it by the backup")
    with Snapshot(source) as snapshot:
        lock = only_writer(directory)
        try:
            copy = _Copy(snapshot, progress)
            replace_data(directory, lambda partial: fill(partial, _without_ranges(copy.records())))
        except PageError as error:
            raise _refusal(source, error) from error
        finally:
            lock.release()
    _say(f"{directory}: {progress.records:,} records, {progress.bytes:,} bytes of {source}")
    return 1 if copy.damaged else 0


def _without_ranges(records: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over records, that of leased log numbers without any: some were used since the backup."""
    is_checked = False
    for key, stored in records:
        if key == FORMAT_KEY:
            is_checked = has_checksums(stored)
        value = without_checksum(key, stored) if key == _RANGES and is_checked else stored
        if key == _RANGES and value is not None:
            value = without_ranges(value)
            yield key, with_checksum(key, value) if is_checked else value
        else:
            yield key, stored


def init(directory: Path) -> int:
    """Begin a journal anew where there is none, or an empty file; returns the exit code."""
    if _holds_data(directory):
        raise ToolError(
            f"{directory} holds a journal already, and nothing was changed: a node starts with it as it is, and "
            f"`enmasse journal check {directory}` tells what is in it"
        )
    lock = only_writer(directory)
    try:
        WriteEnvironment(str(directory)).close()
    except (OSError, lmdb.Error) as error:
        raise ToolError(f"{directory} cannot be written: {error}") from error
    finally:
        lock.release()
    _say(f"{directory}: a journal without anything in it")
    return 0


def _holds_data(directory: Path) -> bool:
    """True if there is a data file with anything in it: an empty one is what a crash or a lost disk leaves."""
    path = directory / DATA_NAME
    return path.exists() and path.stat().st_size > 0


class _Salvage:
    """The records of a damaged journal that can be read."""

    def __init__(self, snapshot: Snapshot, progress: Progress) -> None:
        self._snapshot = snapshot
        self._progress = progress
        self._used: set[int] = set()
        self.lost = 0

    def _lose(self, what: str) -> None:
        self.lost += 1
        _say(f"lost: {what}")

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Every record that is sound, those that the trees lead to first."""
        snapshot = self._snapshot
        self._progress.expect(snapshot.entries)
        for problem in snapshot.file.bad_metas:
            self._lose(f"{problem}; what is kept is the other state, perhaps that of the commit before")
        pages: list[PageError] = []
        for node in snapshot.nodes(pages.append, self._used):
            self._use(node)
            yield from self._sound(node)
        if pages:
            yield from self._strays(pages)

    def _use(self, node: Node) -> None:
        if node.inline is None:
            try:
                count = self._snapshot.file.overflow_pages(node)
            except PageError:
                count = 1
            self._used.update(range(node.overflow, node.overflow + count))

    def _sound(self, node: Node) -> Iterator[tuple[bytes, bytes]]:
        try:
            value = self._snapshot.file.value(node)
        except PageError as error:
            self._lose(f"{describe(node.key)}: {error}")
            return
        problem = explain_bad_record(node.key, self._snapshot.value(node.key, value))
        if problem is not None:
            self._lose(f"{describe(node.key)} {problem}")
            return
        self._progress.add(len(value))
        yield node.key, value

    def _strays(self, pages: list[PageError]) -> Iterator[tuple[bytes, bytes]]:
        for problem in pages:
            self._lose(str(problem))
        before = self._progress.records
        try:
            for node in self._snapshot.strays(self._used):
                yield from self._sound(node)
        except PageError as error:
            self._lose(f"{error}, so records that no page leads to cannot be told from old ones")
        found = self._progress.records - before
        _say(f"found without the lost pages: {found:,} records")
        missing = self._snapshot.entries - self._progress.records
        if missing > 0:
            _say(f"missing: {missing:,} of {self._snapshot.entries:,} records")


def salvage(directory: Path, target: Path, progress: Progress) -> int:
    """Copy what can be read into a fresh directory and name what is lost; returns the exit code."""
    require_room_for(target)
    try:
        with Snapshot(directory) as snapshot:
            found = _Salvage(snapshot, progress)
            write_directory(target, lambda partial: fill(partial, found.records()))
    except PageError as error:
        raise ToolError(f"nothing can be read of the journal in {directory}: {error}") from error
    _say(f"{target}: {progress.records:,} records, {progress.bytes:,} bytes were kept, {found.lost} losses")
    return 1 if found.lost else 0
