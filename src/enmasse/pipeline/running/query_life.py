"""One streaming query: started, watched, and started again when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from enmasse.model.pipelines import QueryState, QueryStatus
from enmasse.pipeline.running.failures import is_of_java, sentence_of
from enmasse.pipeline.running.progress import Progress
from enmasse.pipeline.running.start_gate import StartGate

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryLife", "problem_of_all"]

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0
MOST_CAUSES: Final = 20
MOST_JAVA_FAILURES: Final = 3
"""Starts in a row that end with an error of Java itself before it is taken for Java's state, which another start in
the same Java does not mend."""


class QueryLife:
    """One query that is to run.

    Rules:
    1. A failure is followed by a pause, 1 s and twice as long each time, up to a minute; a batch that is
       done begins anew with 1 s.
    2. A query that read everything there was and was to end is finished and not started again.

    Args:
        name: within its pipeline.
        start: starts it, from its checkpoint.
        log: is told what happens, in lines.
        gate: few start at a time.
        readings: how often it reads each of its sources.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        log: Callable[[str], None],
        gate: StartGate,
        readings: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self._start = start
        self._log = log
        self._gate = gate
        self._query: StreamingQuery | None = None
        self._progress = Progress(readings)
        self._pause_s = FIRST_PAUSE_S
        self._not_before = 0.0
        self._restarts = -1
        self._java_failures = 0
        self.state: QueryState = "Starting"
        self.error: str | None = None

    @property
    def java_problem(self) -> str:
        """The error of Java itself that it fails with start after start; empty: there is none."""
        return self.error or "" if self._java_failures >= MOST_JAVA_FAILURES else ""

    def tend(self, now: float) -> None:
        """Start it if it is time, and look what it did.

        Args:
            now: seconds that only grow.
        """
        if self.state == "Finished":
            return
        if self._query is None:
            if now >= self._not_before:
                self._begin(now)
            return
        try:
            is_active = self._query.isActive
            self._look(self._query)
            if not is_active:
                self._ended(self._query, now)
        except Py4JError as error:
            self._failed(error, now)

    def _begin(self, now: float) -> None:
        self._restarts += 1
        try:
            with self._gate.passing():
                self._query = query = self._start()
                self._gate.wait_until(lambda: not query.isActive or query._jsq.lastProgress() is not None)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001  # whatever it is, it is tried again and the neighbours go on
            self._failed(error, now)
            return
        if self.error is None:
            self.state = "Running"

    def _look(self, query: StreamingQuery) -> None:
        java = query._jsq  # noqa: SLF001  # the public way turns a hundred reports into JSON at each look
        newest = java.lastProgress()
        known = self._progress.reported
        if newest is None or (known is not None and known[2] == newest.timestamp()):
            return
        for report in _newer(java.recentProgress(), known[2] if known is not None else ""):
            if self._progress.take(report) and "addBatch" in report["durationMs"]:
                self._pause_s = FIRST_PAUSE_S
                self._java_failures = 0
        self.state = "Running"
        self.error = None

    def _ended(self, query: StreamingQuery, now: float) -> None:
        found = query._jsq.exception()  # noqa: SLF001  # the public way loses Python's part of the story
        self._query = None
        if not found.isDefined():
            self.state = "Finished"
            self._log(f"query {self.name}: finished")
            return
        self._failed(_story(found.get()), now)

    def _failed(self, why: BaseException | str, now: float) -> None:
        self._query = None
        self.state = "Failed"
        self.error = sentence = sentence_of(why)
        self._java_failures = self._java_failures + 1 if is_of_java(why) else 0
        self._not_before = now + self._pause_s
        self._log(f"query {self.name}: {sentence}; again in {self._pause_s:g} s")
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)

    def stop(self) -> None:
        """End it after the batch that runs is interrupted; what was not done is done again."""
        if self._query is not None:
            # Java may have been ended together with us, by a signal to the whole group.
            with suppress(Py4JError, PySparkException, OSError):
                self._look(self._query)
                self._query.stop()
            self._query = None

    def status(self) -> QueryStatus:
        """What it did and how it is."""
        restarts = max(0, self._restarts)
        return self._progress.status(self.name, self.state, restarts=restarts, error=self.error)


def problem_of_all(queries: Sequence[QueryLife]) -> str:
    """Why another Java is needed: every query fails, and those that get so far by an error of Java; empty: none is.

    Args:
        queries: all that are to run in one Java.
    """
    problems = sorted(query.java_problem for query in queries)
    if not any(problems) or any(query.state != "Failed" for query in queries):
        return ""
    return f"every query fails in Java, and goes on with another one: {problems[-1]}"


def _newer(reports: Any, than: str) -> list[dict[str, Any]]:
    """The reports after a moment, in order."""
    found: list[dict[str, Any]] = []
    for index in range(len(reports) - 1, -1, -1):
        if reports[index].timestamp() == than:
            break
        found.append(json.loads(reports[index].json()))
    return found[::-1]


def _story(error: Any) -> str:
    """The messages of an exception of Java and its causes."""
    lines: list[str] = []
    while error is not None and len(lines) < MOST_CAUSES:
        lines.append(f"Caused by: {error.getClass().getName()}: {error.getMessage()}")
        error = error.getCause()
    return "\n".join(lines)
