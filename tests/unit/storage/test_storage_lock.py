"""One writer for a directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from enmasse.storage.lock import DirectoryLock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first, second = DirectoryLock(str(tmp_path)), DirectoryLock(str(tmp_path))
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() == str(os.getpid())
    first.release()
    assert second.acquire()
    second.release()
    second.release()


def test_locks_of_two_directories_do_not_meet(tmp_path: Path) -> None:
    locks = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        locks.append(DirectoryLock(str(tmp_path / name)))
    assert [lock.acquire() for lock in locks] == [True, True]
    for lock in locks:
        lock.release()


def test_the_descriptor_is_not_inherited(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    assert not os.get_inheritable(lock._fd)
    lock.release()
