"""Spark's event log of a session, kept within bounds: what Spark's history server reads.

Layout, which is Spark's: ``events/eventlog_v2_<application>/`` with ``events_<number>_<application>.zstd``, a new one
after every ``FILE_BYTES``.

Rules:
1. A session keeps its newest ``MAX_FILES`` files. What says what the application is goes from older ones into a
   file that ends with ``.compact``, as Spark's own compaction names it: a reader begins there.
2. Of sessions that have ended the newest ``MAX_ENDED`` are kept, and no more than ``MAX_BYTES`` of them.
3. A session that runs touches its log at each look, whether its pipelines do something or not: so another session
   tells it from one that was killed.
4. What cannot be removed is left: a log is no reason for a session to end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

FOLDER: Final = "events"
FILE_BYTES: Final = 10 << 20
"""The least that Spark takes for the size of a file."""
MAX_FILES: Final = 5
MAX_ENDED: Final = 10
MAX_BYTES: Final = 100 << 20
LOOK_S: Final = 30.0
"""A session that runs ten pipelines fills a file in some minutes."""
_GONE_S: Final = 86_400.0
"""A session that has not touched its log for so long, and has not said that it ended, was killed."""

_QUERY_STARTED: Final = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent"
_KEPT: Final = (
    "SparkListenerLogStart",
    "SparkListenerResourceProfileAdded",
    "SparkListenerBlockManagerAdded",
    "SparkListenerEnvironmentUpdate",
    "SparkListenerApplicationStart",
    "SparkListenerExecutorAdded",
    _QUERY_STARTED,
)
"""Events without which a reader knows neither the application nor its queries."""
_MAX_KEPT: Final = 1_000
"""Of queries: one that fails every minute begins every minute."""
_NAME: Final = re.compile(r"events_(\d+)_.+")


def event_log_settings(folder: Path) -> dict[str, str]:
    """Return the settings with which a session writes its log.

    Args:
        folder: the folder of the space.
    """
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / FOLDER).as_uri(),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": str(FILE_BYTES),
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    }


class EventLogs:
    """The event logs of a space, of which a session that runs writes one.

    Args:
        folder: the folder of the space.
        application: the session's id.
    """

    def __init__(self, folder: Path, application: str) -> None:
        self._root = folder / FOLDER
        self._own = self._root / f"eventlog_v2_{application}"
        self._closed = threading.Event()

    def watch(self) -> None:
        """Keep the bounds from now on, until ``close``."""
        threading.Thread(target=self._watch, name="event logs", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        self.remove_ended()
        while not self._closed.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Say that the session runs, and keep its log within bounds."""
        with suppress(OSError, ValueError, pa.ArrowException):
            for path in self._own.glob("appstatus_*.inprogress"):
                os.utime(path)
            shorten(self._own)

    def remove_ended(self) -> None:
        """Remove the logs of sessions that have ended, from the oldest on, until the rest is within bounds."""
        ended: list[tuple[Path, int, float]] = []
        for path in self._root.glob("eventlog_v2_*"):
            with suppress(OSError):  # another session may be removing it
                size, touched_at = _size_and_time(path)
                if path != self._own and _has_ended(path, touched_at):
                    ended.append((path, size, touched_at))
        total = 0
        for number, (path, size, _) in enumerate(sorted(ended, key=lambda item: -item[2])):
            total += size
            if number >= MAX_ENDED or total > MAX_BYTES:
                shutil.rmtree(path, ignore_errors=True)


def _size_and_time(log: Path) -> tuple[int, float]:
    stats = [path.lstat() for path in log.iterdir()]
    return sum(stat.st_size for stat in stats), max((stat.st_mtime for stat in stats), default=0.0)


def _has_ended(log: Path, touched_at: float) -> bool:
    return not any(log.glob("appstatus_*.inprogress")) or time.time() - touched_at > _GONE_S


def shorten(log: Path, most_files: int = MAX_FILES) -> bool:
    """Put the oldest files of a log into one with what must stay; whether there were too many.

    Args:
        log: the folder of an application.
        most_files: the most files that it may have.
    """
    files = sorted((int(match[1]), path) for path in log.iterdir() if (match := _NAME.fullmatch(path.name)))
    # The one that must stay is one of them.
    old = files[: len(files) - most_files + 1]
    if len(files) <= most_files or len(old) < 2:
        return False
    kept: list[bytes] = []
    for _, path in old:
        kept += _lasting(path)
    last = old[-1][1]
    target = last.with_name(f"{last.name.removesuffix('.compact')}.compact")
    draft = log / "draft"
    with pa.output_stream(draft, compression="zstd") as file:
        file.write(b"".join(_without_repeated(kept)))
    draft.replace(target)
    for _, path in old:
        if path != target:
            path.unlink(missing_ok=True)
    return True


def _lasting(path: Path) -> list[bytes]:
    """Return the lines of a file that must stay; of one that was cut off those before that."""
    lines: list[bytes] = []
    with suppress(OSError, pa.ArrowException), pa.input_stream(path, compression="zstd") as file:
        rest = b""
        while part := file.read(1 << 20):
            *whole, rest = (rest + part).split(b"\n")
            lines += [line + b"\n" for line in whole if line.startswith(_BEGINNINGS)]
    return lines


_BEGINNINGS: Final = tuple(f'{{"Event":"{name}"'.encode() for name in _KEPT)


def _without_repeated(lines: list[bytes]) -> list[bytes]:
    """Return the lines with each first one that a log has once, and the newest of queries that began."""
    first: dict[str, bytes] = {}
    others: list[bytes] = []
    queries: list[bytes] = []
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        if event["Event"] in ("SparkListenerLogStart", "SparkListenerApplicationStart"):
            first.setdefault(event["Event"], line)
        elif event["Event"] == _QUERY_STARTED:
            queries.append(line)
        else:
            others.append(line)
    return [*first.values(), *others, *queries[-_MAX_KEPT:]]
