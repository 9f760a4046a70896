"""Starts a pipeline's queries and jobs, watches them, and starts them again when they fail.

A job (training, compaction) is done from time to time in a thread of its own, so that queries are not kept waiting.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from enmasse.model.kinds.pipelines.status import JoinedTable, QueryState, QueryStatus
from enmasse.pipeline.errors import CheckpointMisfitError
from enmasse.pipeline.running.failures import is_of_expression, is_of_java, sentence_of
from enmasse.pipeline.running.planning.plans import JobPlan
from enmasse.pipeline.running.supervision.progress import Progress, sentence_about

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LONGEST_S: Final = 8.0
"""A start that takes longer waits for something else, as a node that is away, and lets others in."""
POLL_S: Final = 0.1


class StartLimiter:
    """Limits how many queries start at a time, until it is opened.

    Each start brings Python processes, and Spark gives those ten seconds to answer.

    Args:
        places: starts at a time.
    """

    def __init__(self, places: int) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._is_open = threading.Event()

    def open(self) -> None:
        """Stop limiting, because the process ends."""
        self._is_open.set()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the places; waits until one is free."""
        while not (has_place := self._places.acquire(timeout=POLL_S)):
            if self._is_open.is_set():
                break
        try:
            yield
        finally:
            if has_place:
                self._places.release()

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait until a start is done, or takes so long that others should begin.

        Args:
            is_done: whether the start is done.
        """
        deadline = time.monotonic() + LONGEST_S
        while not is_done() and time.monotonic() < deadline:
            if self._is_open.wait(POLL_S):
                return


FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0
SILENT_S: Final = 35.0
"""A query that has nothing to do asks the node for news for up to 30 s, and reports; one that is silent for longer is
doing a batch."""
PROCESSING: Final = "Processing new data"
"""The word of Spark while a query does a batch (``StreamingQueryStatus.message``)."""
PROGRESS_S: Final = 60.0
"""The time between two lines of the log about a query that does batches."""
MAX_CAUSES: Final = 20
MAX_JAVA_FAILURES: Final = 3
"""Starts in a row that end with an error of Java itself before it is taken for Java's state, which another start in
the same Java does not mend."""


class QuerySupervisor:
    """Keeps one streaming query running.

    Rules:
    1. A failure is followed by a pause, 1 s and twice as long each time, up to a minute; a batch that is
       done begins anew with 1 s.
    2. A query that read everything there was and was to end is finished and not started again.

    Args:
        name: within its pipeline.
        start: starts it, from its checkpoint.
        log: takes a line for each event.
        limiter: few queries start at a time.
        readings: its sources and how often it reads each.
        tables: returns the tables that it joins, and the versions of its last batch.
        on_first_batch: called once it has done a batch since it was started.
        has_order: returns whether its pipeline is to change, for which no start is waited for.
        progress: the counts of its former runs, where it runs again and again.
        sums: those of groups that it computes, for an error that does not say which one.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        log: Callable[[str], None],
        limiter: StartLimiter,
        readings: tuple[tuple[str, int], ...] = (),
        tables: Callable[[], Iterable[JoinedTable]] = tuple,
        on_first_batch: Callable[[], None] = lambda: None,
        has_order: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
        sums: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._start = start
        self._log = log
        self._limiter = limiter
        self._query: StreamingQuery | None = None
        self.progress = progress or Progress(readings)
        self._pause_s = FIRST_PAUSE_S
        self._not_before = 0.0
        self._restarts = -1
        self._java_failures = 0
        self._tables = tables
        self._on_first_batch = on_first_batch
        self._has_order = has_order
        self._sums = sums
        self._has_done_batch = False
        self._failure: BaseException | str | None = None
        self._reported_at = 0.0
        self._logged: int | None = None
        self._log_at = 0.0
        self.state: QueryState = "Starting"
        self.error: str | None = None
        self.long_since: datetime | None = None
        """The time of its last report, if it has been doing one batch for long."""

    @property
    def java_problem(self) -> str:
        """The error of Java itself that it fails with start after start; empty: there is none."""
        return self.error or "" if self._java_failures >= MAX_JAVA_FAILURES else ""

    def bad_share(self, source: str) -> float:
        """Return the share of a source's rows in the last batches that did not fit its schema."""
        return self.progress.bad_share(source)

    def failed_share(self, relation: str) -> float:
        """Return the share of a relation's rows in the last batches that an expression failed for."""
        return self.progress.failed_share(relation)

    @property
    def is_misfit(self) -> bool:
        """True if it does not fit its checkpoint, which no other start mends."""
        return self.error is not None and isinstance(self._failure, CheckpointMisfitError)

    def check(self, now: float) -> None:
        """Start the query if it is time, and read what it did since the last call.

        Args:
            now: seconds that only grow.
        """
        if self.state == "Finished":
            return
        if self._query is None:
            if now >= self._not_before:
                self._begin(now)
            return
        self._look(self._query, now)

    def _look(self, query: StreamingQuery, now: float) -> None:
        try:
            is_active = query.isActive
            former = self.progress.reported
            self._read_progress(query)
            if self.progress.reported != former:
                self._reported_at, self.long_since = now, None
                self._log_progress(now)
            silent_s = now - self._reported_at
            if not is_active:
                self._ended(query, now)
            elif self.state == "Starting" and query.status["message"].startswith("Waiting"):
                self.state = "Running"
            elif (
                self.state == "Running"
                and self.long_since is None
                and silent_s > SILENT_S
                and query.status["message"] == PROCESSING
            ):
                self.long_since = datetime.now(UTC) - timedelta(seconds=silent_s)
        except Py4JError as error:
            self._failed(error, now)

    def _log_progress(self, now: float) -> None:
        """Tell the log how far it is: after its first batch, and from then on once in a while."""
        batch = self.progress.batch
        if batch is None or batch == self._logged or (now < self._log_at and self._query is not None):
            return
        self._logged, self._log_at = batch, now + PROGRESS_S
        self._log(f"query {self.name}: {sentence_about(self.status())}")

    def _begin(self, now: float) -> None:
        self._restarts += 1
        self._reported_at = now
        try:
            with self._limiter.slot():
                self._query = query = self._start()
                self._limiter.wait_until(
                    lambda: not query.isActive or query._jsq.lastProgress() is not None or self._has_order()
                )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is tried again and the neighbours go on
            self._failed(error, now)
            return
        if self.error is None:
            # It runs once it has read, or waits for something to read.
            self.state = "Starting"
        self._look(query, now)

    def _read_progress(self, query: StreamingQuery) -> None:
        java = query._jsq  # the public way turns a hundred reports into JSON at each check
        newest = java.lastProgress()
        known = self.progress.reported
        if newest is None or (known is not None and known[2] == newest.timestamp()):
            return
        for report in _newer(java.recentProgress(), known[2] if known is not None else ""):
            if self.progress.take(report) and "addBatch" in report["durationMs"]:
                self._pause_s = FIRST_PAUSE_S
                self._java_failures = 0
                if not self._has_done_batch:
                    self._has_done_batch = True
                    self._on_first_batch()
        for line in self.progress.news:
            self._log(f"query {self.name}: {line}")
        self.progress.news.clear()
        self.state = "Running"
        self.error = None

    def _ended(self, query: StreamingQuery, now: float) -> None:
        found = query._jsq.exception()  # the public way loses Python's part of the story
        self._query = self.long_since = None
        if not found.isDefined():
            self.state = "Finished"
            self._log_progress(now)
            self._log(f"query {self.name}: finished")
            return
        self._failed(_story(found.get()), now, _batch_of(found.get()))

    def _failed(self, why: BaseException | str, now: float, batch: str = "") -> None:
        self._query = self.long_since = None
        self.state = "Failed"
        self._failure = why
        self.error = sentence = sentence_of(why, self._sums) + (batch if is_of_expression(why) else "")
        self._java_failures = self._java_failures + 1 if is_of_java(why) else 0
        self._not_before = now + self._pause_s
        self._log(f"query {self.name}: {sentence}; again in {self._pause_s:g} s")
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)

    def stop(self) -> None:
        """End it after the batch that runs is interrupted; what was not done is done again."""
        if self._query is not None:
            # Java may have been ended together with us, by a signal to the whole group.
            with suppress(Py4JError, PySparkException, OSError):
                self._read_progress(self._query)
                self._query.stop()
            self._query = None

    def status(self) -> QueryStatus:
        """Return what it did and how it is."""
        restarts = max(0, self._restarts)
        is_counted = self.state in ("Running", "Finished") and self.long_since is None
        status = self.progress.status(
            self.name, self.state, restarts=restarts, error=self.error, is_counted=is_counted
        )
        tables = tuple(self._tables())
        return status.model_copy(update={"tables": tables}) if tables else status


def problem_of_all(queries: Sequence[QuerySupervisor]) -> str:
    """Return why another Java is needed: all queries fail, those that begin by an error of Java; empty: none is.

    Args:
        queries: all that are to run in one Java.
    """
    problems = sorted(query.java_problem for query in queries)
    if not any(problems) or any(query.state != "Failed" for query in queries):
        return ""
    return f"every query fails in Java, and goes on with another one: {problems[-1]}"


def _newer(reports: Any, than: str) -> list[dict[str, Any]]:
    """Return the reports after a moment, in order."""
    found: list[dict[str, Any]] = []
    for index in range(len(reports) - 1, -1, -1):
        if reports[index].timestamp() == than:
            break
        found.append(json.loads(reports[index].json()))
    return found[::-1]


def _story(error: Any) -> str:
    """Return the messages of an exception of Java and its causes."""
    lines: list[str] = []
    while error is not None and len(lines) < MAX_CAUSES:
        lines.append(f"Caused by: {error.getClass().getName()}: {error.getMessage()}")
        error = error.getCause()
    return "\n".join(lines)


def _batch_of(error: Any) -> str:
    """Return the offsets of the batch that a query failed with, in words."""
    return f" (the batch from the offsets {error.startOffset()} to {error.endOffset()})"


class JobSupervisor:
    """One job that is to be done every so often, and again sooner when it fails.

    Args:
        plan: the job.
        log: called with lines for the pipeline's log.
        is_once: it is finished once it has been done.
    """

    def __init__(self, plan: JobPlan, log: Callable[[str], None], *, is_once: bool = False) -> None:
        self.name = plan.name
        self.is_once = is_once
        self._plan = plan
        self._log = log
        self._next = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._thread: threading.Thread | None = None
        self._failed = False
        self._runs = 0
        self._ended: str | None = None
        self.state: QueryState = "Waiting" if is_once else "Starting"
        self.error: str | None = None

    def check(self, now: float) -> None:
        """Do the job if it is time and it is not being done.

        Args:
            now: seconds that only grow.
        """
        if self.state == "Finished":
            return
        thread = self._thread
        if thread is not None:
            if thread.is_alive():
                return
            self._thread = None
            self._next = now + (self._pause_s if self._failed else self._plan.every_s)
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S) if self._failed else FIRST_PAUSE_S
            self.state = "Failed" if self._failed else "Finished" if self.is_once else "Waiting"
            if self.state == "Finished":
                return
        if now >= self._next:
            self.state = "Running"
            self._thread = threading.Thread(target=self._do, name=f"job {self.name}", daemon=True)
            self._thread.start()

    def _do(self) -> None:
        try:
            sentence = self._plan.run()
        except Exception as error:  # noqa: BLE001  # whatever it is, the neighbours go on and it is done again
            self._failed, self.error = True, sentence_of(error)
            self._log(f"job {self.name}: {self.error}")
            return
        self._failed, self.error = False, None
        self._runs += 1
        self._ended = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._log(f"job {self.name}: {sentence}")

    def stop(self) -> None:
        """Have it not done again; what runs ends with the process."""
        self._next = float("inf")

    def status(self) -> QueryStatus:
        """Return how it is."""
        return QueryStatus(
            name=self.name,
            state=self.state,
            batch=self._runs or None,
            last_progress=self._ended,
            error=self.error,
        )
