"""One runner for one space: two that shared checkpoints would write every row twice.

Rules:
1. Who holds the lock of the file ``runner.lock`` runs the space's pipelines; everybody else is refused.
2. A runner marks its environment, which Java and the Python workers inherit. The next one ends what
   still lives of a former runner that was killed before it reads a checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
import uuid
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from enmasse.pipeline.errors import SpaceTakenError

_MARK: Final = "ENMASSE_RUNNER"
PATIENCE_S: Final = 10.0
"""A process that was killed is gone within milliseconds, unless the disk hangs."""


class SpaceLock:
    """Keeps other runners away from a space's folder, as a context manager.

    Args:
        folder: everything of the space's pipelines.
        session: the pipeline that has one of its own, and a lock of its own; empty: the others share one.
    """

    def __init__(self, folder: Path, session: str = "") -> None:
        # Where the folder itself is the host's, it has made the one; the other is ours to make.
        self._path = folder / "work" / f"{session}.lock" if session else folder / "runner.lock"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._mark = ""

    def __enter__(self) -> Self:
        """Take the lock, and end what is left of the former runner.

        Raises:
            SpaceTakenError: another runner lives, or something of a former one does not end.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SpaceTakenError(
                f"another runner works in {self._path.parent}: two with the same checkpoints would write "
                f"rows twice; end the other one, which holds {self._path}"
            ) from None
        former = os.pread(self._file, 200, 0).decode(errors="replace").strip()
        if former:
            _end_all_of(former, self._path.parent)
        self._mark = uuid.uuid4().hex
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, self._mark.encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        """End what still lives, as workers that wait for news, and let others in."""
        with suppress(SpaceTakenError):
            _end_all_of(self._mark, self._path.parent)
        os.close(self._file)

    def mark(self, environment: MutableMapping[str, str]) -> None:
        """Mark all processes that will be started with this environment."""
        environment[_MARK] = self._mark


def _end_all_of(mark: str, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while found := _marked(f"{_MARK}={mark}".encode()):
        if time.monotonic() > deadline:
            raise SpaceTakenError(
                f"processes {', '.join(map(str, found))} of a former runner in {folder} do not end: kill them"
            )
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _marked(mark: bytes) -> list[int]:
    """Living processes of this user with the mark in the environment that they were started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0") and not _is_dead(folder):
                found.append(int(folder.name))
    return found


def _is_dead(folder: Path) -> bool:
    # The name in parentheses may hold anything, so look behind its end.
    return (folder / "stat").read_text().rpartition(") ")[2][:1] in ("Z", "X")
