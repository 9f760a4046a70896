"""Runs a job's queries until told to stop, starts failed ones again, and reports on standard output.

Each report is one line of JSON: ``{"event": "progress", "query": "raw", "batch": 7, "rows": 120, ...}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.errors import StreamingQueryException

from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Reporter", "Stopping", "run_queries"]

POLL_S = 0.25
"""How often progress is looked at; a batch takes about as long."""
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 30.0


class Reporter:
    """Writes events as lines, whole even when several threads speak."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event; a reader that went away is no error here, its end is seen elsewhere."""
        line = json.dumps({"event": event, **fields}) + "\n"
        with self._lock:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:
                pass


class Stopping:
    """Set by SIGTERM, SIGINT and, when supervised, by the end of standard input."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def watch(self, *, supervised: bool) -> None:
        """Begin to listen; call it from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event.set())
        if supervised:
            threading.Thread(target=self._wait_for_end_of_input, daemon=True).start()

    def _wait_for_end_of_input(self) -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; whether to stop."""
        return self._event.wait(seconds)


class _Kept:
    """One query that is to run, with what is needed to start it again."""

    def __init__(self, name: str, start: Callable[[str], StreamingQuery], report: Reporter) -> None:
        self.name = name
        self._start = start
        self._report = report
        self._query: StreamingQuery | None = None
        self._pause_s = FIRST_PAUSE_S
        self._not_before = 0.0
        self._batch = -1
        self.has_run = False

    def tend(self) -> None:
        """Start it if it does not run, and report what it did since."""
        if self._query is not None:
            self._report_progress(self._query)
            if self._query.isActive:
                return
            self._failed(self._query.exception())
        elif time.monotonic() >= self._not_before:
            try:
                self._query = self._start(self.name)
            except (EnmasseError, StreamingQueryException) as error:
                self._failed(error)

    def _failed(self, error: Exception | None) -> None:
        self._query = None
        self._not_before = time.monotonic() + self._pause_s
        self._report("failed", query=self.name, error=str(error or "ended"), retry_s=self._pause_s)
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)

    def _report_progress(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            self.has_run = True
            if progress["batchId"] <= self._batch or not progress["durationMs"].get("addBatch"):
                continue
            self._batch = progress["batchId"]
            self._pause_s = FIRST_PAUSE_S
            self._report(
                "progress",
                query=self.name,
                batch=self._batch,
                rows=progress["numInputRows"],
                rate=round(progress["processedRowsPerSecond"] or 0.0, 1),
                duration_ms=progress["durationMs"]["triggerExecution"],
            )

    def stop(self) -> None:
        if self._query is None:
            return
        # Java may have been ended together with us, by a signal to the whole group.
        with suppress(Exception):
            self._query.stop()
            self._report_progress(self._query)


def run_queries(
    names: Sequence[str], start: Callable[[str], StreamingQuery], report: Reporter, stopping: Stopping
) -> None:
    """Keep these queries running until ``stopping``.

    Reports ``ready`` once each has looked at its source, ``progress`` for each batch, ``failed`` with
    the error for a query that ended, which is started again after a growing pause.
    """
    kept = [_Kept(name, start, report) for name in names]
    ready = False
    try:
        while not stopping.wait(POLL_S):
            for query in kept:
                query.tend()
            if not ready and all(query.has_run for query in kept):
                ready = True
                report("ready")
    finally:
        for query in kept:
            query.stop()
