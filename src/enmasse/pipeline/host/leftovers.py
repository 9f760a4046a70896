"""Processes of runners whose host was killed: remembered, and ended before another runner starts."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from enmasse.engines.private_files import replace_file
from enmasse.pipeline.host.supervise import end_session

__all__ = ["Leftovers", "end_user"]

_PATIENCE_S = 10.0


class Leftovers:
    """Remembers which runners there are.

    Args:
        root: the folder of the host.
    """

    def __init__(self, root: Path) -> None:
        self._file = root / "runners.json"
        self._known: dict[str, tuple[int, str]] = {}

    def note(self, runner: Iterable[str], pid: int | None) -> None:
        """Remember the process of a runner; None: it has none any more."""
        name = " ".join(filter(None, runner))
        found = None if pid is None else (pid, _started(pid))
        if self._known.get(name) == found:
            return
        if found is None:
            self._known.pop(name)
        else:
            self._known[name] = found
        replace_file(self._file, json.dumps(self._known).encode())

    def end(self, users: Iterable[int]) -> None:
        """End what a former host left.

        Args:
            users: numbers that only runners run as.
        """
        try:
            former = json.loads(self._file.read_text())
            processes = [(int(pid), str(started)) for pid, started in former.values()]
        except (OSError, ValueError, TypeError, AttributeError):
            processes = []
        for pid, started in processes:
            # A number is not given to others while a session has it; a leader that began at another time is another.
            if _started(pid) in ("", started):
                end_session(pid)
        for user in users:
            end_user(user)


def end_user(user: int) -> bool:
    """Kill every process of a user who only has processes that we started; whether nothing is left."""
    deadline = time.monotonic() + _PATIENCE_S
    while found := _processes_of(user):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _processes_of(user: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        except (OSError, ValueError):
            continue
        if str(user) in lines.get("Uid", "").split() and lines.get("State", "").strip()[:1] not in ("Z", "X"):
            found.append(int(folder.name))
    return found


def _started(pid: int) -> str:
    """When a process began, in the kernel's count; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        return ""
