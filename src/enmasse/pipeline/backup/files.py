"""Copies trees of files that others may write to meanwhile.

Rules:
1. Whatever a space's processes can write may be a link: none is followed, and only regular files of theirs are read.
2. What has changed only in part is copied again only in that part.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_PASSES: Final = 5
"""A folder that is copied while files come is looked at again, until nothing has come."""
_SAY_S: Final = 2.0
_BLOCK: Final = 8 << 20
_STAGING: Final = "_staging"

Report = Callable[[str], None]


def files_below(top: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Yield a folder and all below it: the relative path, a descriptor, and the names of what is no folder."""
    try:
        number = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return
        raise
    try:
        yield from _walk("", number)
    finally:
        os.close(number)


def _walk(folder: str, number: int) -> Iterator[tuple[str, int, list[str]]]:
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(number) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    yield folder, number, files
    for name in folders:
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=number)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                continue  # it has gone, or something else has come
            raise
        try:
            yield from _walk(f"{folder}{name}/", inner)
        finally:
            os.close(inner)


def is_own_file(facts: os.stat_result, folder: int) -> bool:
    """Return whether an open file of an open folder is a regular one that nobody else has linked in."""
    is_of_another = facts.st_nlink > 1 and facts.st_uid != os.fstat(folder).st_uid
    return stat.S_ISREG(facts.st_mode) and not is_of_another


class FileCopier:
    """Copies trees, those again that have changed only in part.

    Args:
        report: called now and then with how much was copied.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._linked: dict[tuple[int, int], Path] = {}
        self._files = self._bytes = 0
        self._say_at = time.monotonic() + _SAY_S
        self.passed_over: set[str] = set()
        """Files that are links, devices or of others."""

    def mirror(self, source: Path, target: Path, is_wanted: Callable[[str], bool]) -> set[str]:
        """Make a tree like another one; return the files that are there.

        Args:
            source: need not be there.
            target: of which only files that are wanted are removed, if the other one has them no more.
            is_wanted: whether a file is copied, by its relative path.
        """
        for _ in range(_PASSES):
            seen: set[str] = set()
            has_changed = False
            for folder, number, names in files_below(source):
                if f"/{_STAGING}/" in f"/{folder}":
                    continue
                wanted = [name for name in names if is_wanted(folder + name)]
                seen.update(folder + name for name in names)
                for name in wanted:
                    has_changed |= self._copy(name, number, source / folder, target / folder)
            for folder, number, names in files_below(target):
                for name in names:
                    if folder + name not in seen and is_wanted(folder + name):
                        os.unlink(name, dir_fd=number)
                        has_changed = True
            if not has_changed:
                break
        return seen

    def copy_all(self, source: Path, target: Path, chosen: set[str]) -> None:
        """Copy the files that are chosen, as far as they are there."""
        for folder, number, names in files_below(source):
            for name in names:
                if folder + name in chosen:
                    self._copy(name, number, source / folder, target / folder)

    def _copy(self, name: str, folder: int, place: Path, target: Path) -> bool:
        """Copy a file unless it is there; whether it was not."""
        try:
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            self.passed_over.add(str(place / name))
            return False
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            if not is_own_file(facts, folder):
                self.passed_over.add(str(place / name))
                return False
            return self._copy_open(file.fileno(), facts, target / name)

    def _copy_open(self, number: int, facts: os.stat_result, target: Path) -> bool:
        if target.exists():
            there = target.stat()
            if (there.st_size, there.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
                return False
            target.unlink()
        _make(target.parent)
        key = facts.st_dev, facts.st_ino
        former = self._linked.get(key) if facts.st_nlink > 1 else None
        if former is not None and former.exists():
            os.link(former, target)
            return True
        to = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._bytes += _copy_bytes(number, to)
            os.utime(to, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        finally:
            os.close(to)
        if facts.st_nlink > 1:
            self._linked[key] = target
        self._files += 1
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_S
            self._report(f"copied {self._files:,} files of pipelines, {self._bytes >> 20:,} MiB")
        return True


def _make(folder: Path) -> None:
    """Make a folder and those above it that are missing, for us alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _copy_bytes(source: int, target: int) -> int:
    """Copy the rest of an open file, by reference where the file system has that; how many bytes."""
    total = 0
    try:
        while count := os.copy_file_range(source, target, _BLOCK):
            total += count
    except OSError as error:
        if total or error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF):
            raise
        while block := os.read(source, _BLOCK):
            view = memoryview(block)
            while view:
                view = view[os.write(target, view) :]
            total += len(block)
    return total
