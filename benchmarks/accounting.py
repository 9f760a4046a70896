"""What processes and the machine have used, from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["AnonymousPeak", "Patience", "anonymous_bytes", "cpu_seconds", "descendants", "rss_bytes"]

PROBE_S = 0.3
"""How long the machine is watched before a run: a few times the tick in which it counts."""

SAMPLE_S = 0.1

QUIET_SHARE = 0.05
"""Others may use this part of the machine: the limit above which a run is thrown away."""


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes that still run, of all their threads, to the nanosecond."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
                total += int(task.read_text().split()[0])
    return total / 1e9


def rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids)


def anonymous_bytes(pids: Iterable[int]) -> int:
    """Memory of processes that still run, without the pages of files that they map."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
    return total


class AnonymousPeak:
    """Watches the anonymous memory of a server in a thread; a context manager.

    Args:
        pids: tells the server's processes.

    Attributes:
        bytes: the most that was seen.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self.bytes = 0
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.bytes = max(self.bytes, anonymous_bytes(self._pids()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous_bytes(self._pids()))


def descendants(pid: int) -> list[int]:
    """Every process that a process started, directly or not."""
    found = []
    # One that ends meanwhile has none any more.
    with suppress(FileNotFoundError, ProcessLookupError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


class Patience:
    """Waits until nobody else works on this machine, as long as the patience lasts.

    Args:
        seconds: what all waits together may take.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def wait(self) -> None:
        """Return once the machine is quiet, or the patience is used up."""
        while self.left > 0:
            began = time.monotonic()
            if _busy_share() <= QUIET_SHARE:
                return
            self.left -= time.monotonic() - began


def _busy_share() -> float:
    """The part of the machine that is in use, by whomever."""
    busy, total = _ticks()
    time.sleep(PROBE_S)
    busy_after, total_after = _ticks()
    return (busy_after - busy) / max(1, total_after - total)


def _ticks() -> tuple[int, int]:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)
