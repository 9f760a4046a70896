"""Runs one pipeline in a thread of its own: builds, starts, changes, pauses and removes it."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import EnmasseError
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.flow import AVAILABLE_NOW
from enmasse.model.kinds.pipelines.pipeline import DEFAULT_TRIGGER, Pipeline, PipelineSpec, full_name
from enmasse.model.kinds.pipelines.row_errors import DEGRADED_ABOVE, RowErrors, row_errors
from enmasse.model.kinds.pipelines.schedules import next_run
from enmasse.model.kinds.pipelines.status import JoinedTable, PipelineStatus, QueryStatus
from enmasse.model.schema.conditions import READY, Condition
from enmasse.pipeline.errors import CheckpointMisfitError, ModelMissingError, TableEmptyError
from enmasse.pipeline.lake.reference import forget_pins, joined_tables
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.logical_plans import fingerprint_of, readings_of, reads_any, sums_in
from enmasse.pipeline.running.planning.building import build_once, build_plans
from enmasse.pipeline.running.planning.context import CONSUMING, RunningContext
from enmasse.pipeline.running.planning.plans import AddressFacts, JobPlan, Place, QueryPlan
from enmasse.pipeline.running.planning.targets import share_what_is_consumed, start_query
from enmasse.pipeline.running.steps.functions import read_code
from enmasse.pipeline.running.supervision.backfill import BackfillSupervisor, Running
from enmasse.pipeline.running.supervision.checkpoints import Checkpoints
from enmasse.pipeline.running.supervision.progress import Progress, sum_of_most
from enmasse.pipeline.running.supervision.query_supervisor import (
    FIRST_PAUSE_S,
    LAST_PAUSE_S,
    JobSupervisor,
    QuerySupervisor,
    StartLimiter,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from enmasse.pipeline.running.planning.guard import Guard

LOOK_S: Final = 1.0
"""Seconds between two checks of the queries; a status is reported no more often."""


@dataclass(frozen=True)
class Order:
    """A pipeline as it is to run."""

    pipeline: Pipeline
    credentials: str
    addresses: Mapping[str, AddressFacts]
    code: Mapping[str, str]

    def is_same(self, other: Order | None) -> bool:
        """Return whether the running queries need no change."""
        return other is not None and (
            (self.spec, self.credentials, self.addresses, self.code)
            == (other.spec, other.credentials, other.addresses, other.code)
        )

    @property
    def spec(self) -> PipelineSpec:
        """The spec that queries are made of: a backfill goes on beside them."""
        return self.pipeline.spec.model_copy(update={"backfill": None})


class PipelineSupervisor:
    """Keeps one pipeline running as it was last ordered.

    Args:
        name: ``shop.hot``.
        spark: the process's session; the pipeline gets one of its own from it.
        place: the places of lake, space and folders.
        guard: judges SQL.
        limiter: few queries start at a time.
        emit: called with each event.
        ended_at: returns when another pipeline of the space ended well, in the clock's seconds; 0: it has not.
    """

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        place: Place,
        *,
        guard: Guard,
        limiter: StartLimiter,
        emit: Callable[..., None],
        ended_at: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self.name = name
        self._spark = spark
        self._place = place
        self._guard = guard
        self._limiter = limiter
        self._emit = emit
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._order: Order | None = None
        self._queries: list[QuerySupervisor | JobSupervisor] = []
        self._backfill: BackfillSupervisor | None = None
        self._running: Running | None = None
        self._warnings: tuple[str, ...] = ()
        self._row_errors: Mapping[str, RowErrors] = {}
        self._problem: Exception | None = None
        self._said = ""
        """Why it cannot run, as it was last logged."""
        self._build_pause_s = FIRST_PAUSE_S
        self._build_at: float | None = None
        self._checkpoints: Checkpoints | None = None
        self._reported: dict[str, Any] = {}
        self._ended_at_of = ended_at
        self._began_at = 0.0
        self.ended_at = 0.0
        """The time at which all of its queries had ended well, in the clock's seconds; 0: they have not."""
        self._counted: dict[str, Progress] = {}
        """Rows and other progress of earlier runs, by query; empty unless a schedule or ``after`` runs it again."""
        self._last_run: datetime | None = None
        self._next_run: datetime | None = None
        self._thread = threading.Thread(target=self._live, name=f"pipeline {name}", daemon=True)
        self._thread.start()

    def put(self, pipeline: Pipeline, credentials: str, addresses: Mapping[str, AddressFacts]) -> None:
        """Run it so from now on."""
        self._orders.put(lambda: self._take(pipeline, credentials, addresses))

    def remove(self, *, purge: bool) -> None:
        """Stop it for good; returns at once.

        Args:
            purge: remove its checkpoints and what was spooled for it; tables stay.
        """
        self._orders.put(lambda: self._remove(purge=purge))
        self._orders.put(None)

    def close(self) -> None:
        """Stop it, keeping its place; returns at once."""
        self._orders.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait until it is stopped; whether it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def unfinished(self) -> list[QuerySupervisor]:
        """Its queries that are to run."""
        return [query for query in self._queries if isinstance(query, QuerySupervisor) and query.state != "Finished"]

    def _live(self) -> None:
        # Each pipeline's jobs get their share, however many tasks another one has.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        while True:
            try:
                act = self._orders.get(timeout=LOOK_S)
            except queue.Empty:
                act = self._check
            if act is None:
                break
            act()
            self._report_status()
        self._stop_all()

    def _take(self, pipeline: Pipeline, credentials: str, addresses: Mapping[str, AddressFacts]) -> None:
        try:
            code = read_code(self._place.folder / "code" / self.name)
            order = Order(pipeline, credentials, addresses, code)
        except EnmasseError as error:
            order, self._problem = Order(pipeline, credentials, addresses, {}), error
        former, self._order = self._order, order
        if order.is_same(former) and self._problem is None:
            if former is not None and former.pipeline.spec.backfill != pipeline.spec.backfill:
                self._begin_backfill()
                self._check()
            return
        self._stop_all()
        self._queries, self._counted = [], {}
        self._build_pause_s = FIRST_PAUSE_S
        self._build()

    def _build(self) -> None:
        assert self._order is not None
        self._problem, self._build_at = None, None
        spec = self._order.pipeline.spec
        if spec.paused or not self._may_begin(spec):
            return
        self._began_at, self.ended_at = time.monotonic(), 0.0
        self._next_run = next_run(spec.schedule, datetime.now(UTC)) if spec.schedule is not None else None
        try:
            with self._limiter.slot():
                self._queries = self._make(self._order)
        except Exception as error:  # noqa: BLE001  # whatever a declaration brings about, the neighbours go on
            if (sentence := sentence_of(error)) != self._said:
                self._said = sentence
                self._log(f"cannot run: {sentence}")
            self._problem = error
            self._build_at = time.monotonic() + self._build_pause_s
            if not isinstance(error, TableEmptyError | ModelMissingError):  # somebody brings it soon
                self._build_pause_s = min(2 * self._build_pause_s, LAST_PAUSE_S)
            return
        self._said = ""
        self._begin_backfill()
        self._check()

    def _begin_backfill(self) -> None:
        """Have done what is to be computed again of what runs now, and nothing else any more."""
        if self._backfill is not None:
            self._backfill.stop()
            self._backfill = None
        wanted = None if self._order is None else self._order.pipeline.spec.backfill
        if wanted is not None and self._running is not None:
            self._backfill = BackfillSupervisor(self._running, wanted, self._note_backfill)

    def _note_backfill(self, line: str) -> None:
        """Log a line of the backfill, and report the pipeline's status at once."""
        self._log(line)
        self._orders.put(self._check)

    def _make(self, order: Order) -> list[QuerySupervisor | JobSupervisor]:
        spec = order.pipeline.spec
        uid = order.pipeline.metadata.uid or ""
        checkpoints = self._checkpoints = Checkpoints(self._place.folder / "checkpoints" / self.name, uid)
        if checkpoints.is_new:
            # Another pipeline of the name may have left them.
            forget_pins(self._place.lake, self.name)
        if checkpoints.restart(spec.restart):
            self._log(f"restart {checkpoints.restarted_at}: generation {checkpoints.generation}")

        def context_of(between: Mapping[str, str] | None) -> RunningContext:
            return RunningContext(
                spark=self._spark.newSession(),
                place=self._place,
                pipeline=self.name,
                addresses=order.addresses,
                credentials=order.credentials,
                checkpoint_of=checkpoints.path_of,
                spool=self._place.folder / "spool" / self.name / str(checkpoints.generation),
                log=self._log,
                start_from=checkpoints.start_from,
                between=between,
            )

        context = context_of(None)
        plans = share_what_is_consumed(
            build_plans(context, order.pipeline, self._guard, order.code), context.consumed
        )
        self._warnings = tuple(context.warnings)
        self._row_errors = row_errors(spec) if spec.builtin is None else {}
        self._running = Running(
            self.name,
            uid,
            spec,
            context,
            plans,
            checkpoints.path_of,
            lambda name, between: build_once(context_of(between), order.pipeline, self._guard, order.code, name),
        )
        trigger = spec.trigger or DEFAULT_TRIGGER
        trigger_s = None if trigger == AVAILABLE_NOW else milliseconds(trigger) / 1000
        return [self._query_supervisor(context, plan, checkpoints, trigger_s) for plan in plans]

    def _query_supervisor(
        self, context: RunningContext, plan: QueryPlan | JobPlan, checkpoints: Checkpoints, trigger_s: float | None
    ) -> QuerySupervisor | JobSupervisor:
        if isinstance(plan, JobPlan):
            return JobSupervisor(plan, self._log, is_once=trigger_s is None)
        fingerprint = [*fingerprint_of(plan.frame), *plan.state]
        name = CONSUMING if reads_any(plan.frame, context.consumed) else plan.name
        checkpoint = checkpoints.path_of(name)
        every_s = trigger_s if trigger_s is None or plan.trigger_s is None else plan.trigger_s

        def start() -> Any:
            checkpoints.fit(name, fingerprint)
            return start_query(context, plan, checkpoint, every_s, adopt=checkpoints.generation > 1)

        return QuerySupervisor(
            plan.name,
            start,
            self._log,
            self._limiter,
            readings_of(plan.frame),
            lambda: _joined(checkpoint),
            lambda: self._note_begun(checkpoints, name),
            lambda: not self._orders.empty(),
            self._counted.get(plan.name),
            sums_in(fingerprint),
        )

    def _note_begun(self, checkpoints: Checkpoints, name: str) -> None:
        try:
            checkpoints.note_begun(name)
        except OSError as error:
            self._log(f"query {name}: it cannot be kept that it has done batches: {error}")

    def _may_begin(self, spec: PipelineSpec) -> bool:
        """Return whether all pipelines have ended well after which it runs."""
        space = self.name.partition(".")[0]
        return all(self._ended_at_of(full_name(name, space)) > self._began_at for name in spec.after)

    def _repeat(self) -> None:
        """Note that it has ended, and begin again once it is time."""
        order = self._order
        if order is None or order.pipeline.spec.paused or self._problem is not None:
            return
        queries = self._queries
        has_ended = bool(queries) and all(query.state == "Finished" for query in queries)
        if has_ended and not self.ended_at:
            self.ended_at, self._last_run = time.monotonic(), datetime.now(UTC)
        spec = order.pipeline.spec
        is_time = self._next_run is not None and datetime.now(UTC) >= self._next_run
        if (has_ended and is_time) or (spec.after and (has_ended or not queries) and self._may_begin(spec)):
            self._stop_all()
            self._counted |= {query.name: query.progress for query in queries if isinstance(query, QuerySupervisor)}
            self._queries = []
            self._build()

    def _check(self) -> None:
        now = time.monotonic()
        self._repeat()
        if self._build_at is not None and now >= self._build_at:
            self._build()
        for query in self._queries:
            if isinstance(query, JobSupervisor) and query.is_once and self.unfinished():
                continue  # it finds what they have written
            query.check(now)
            if query.state in ("Starting", "Failed"):
                self._report_status()  # the next one's start may take seconds
        if self._backfill is not None:
            self._backfill.check(now)

    def _stop_all(self) -> None:
        if self._backfill is not None:
            self._backfill.stop()
            self._backfill = None
        self._running = None
        for query in self._queries:
            query.stop()

    def _remove(self, *, purge: bool) -> None:
        self._stop_all()
        self._queries = []
        self._order = None
        if purge:
            Checkpoints(self._place.folder / "checkpoints" / self.name).purge()
            shutil.rmtree(self._place.folder / "spool" / self.name, ignore_errors=True)
            forget_pins(self._place.lake, self.name)
        self._emit("deleted", pipeline=self.name)

    def _log(self, line: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._emit("log", pipeline=self.name, line=f"{moment} {line}")

    def _report_status(self) -> None:
        if self._order is None:
            return
        status = self._status(self._order.pipeline).to_dict()
        if status != self._reported:
            self._reported = status
            self._emit("status", pipeline=self.name, status=status)

    def _status(self, pipeline: Pipeline) -> PipelineStatus:
        now = datetime.now(UTC)
        queries = tuple(query.status() for query in self._queries)
        if pipeline.spec.paused:
            queries = tuple(query.model_copy(update={"state": "Paused"}) for query in queries)
        errors = [query.error for query in queries if query.error]
        status = PipelineStatus(
            observed_generation=pipeline.metadata.generation,
            queries=queries,
            rows=int(sum_of_most(queries, "rows") or 0),
            rate=sum_of_most(queries, "input_rows_per_second"),
            lag=None if (lag := sum_of_most(queries, "lag")) is None else int(lag),
            last_error=sentence_of(self._problem) if self._problem else errors[0] if errors else None,
            last_run=_text(self._last_run),
            next_run=_text(self._next_run),
            restarted_at=self._checkpoints.restarted_at if self._checkpoints else None,
            backfill=None if self._backfill is None else self._backfill.status(),
            warnings=self._warnings,
        )
        misfits = {query.name for query in self._queries if isinstance(query, QuerySupervisor) and query.is_misfit}
        is_busy = self._backfill is not None and self._backfill.is_busy
        degraded = self._degraded(pipeline)
        long = self._long_batch()
        condition = _condition(pipeline, queries, self._problem, misfits, degraded, long, is_busy=is_busy)
        return status.with_conditions([condition], now.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def _degraded(self, pipeline: Pipeline) -> str:
        """Return of which source too many messages do not fit, or which relation's rows fail; empty: of none."""
        for source in pipeline.spec.sources:
            most = DEGRADED_ABOVE if source.degraded_above is None else source.degraded_above
            share = max((query.bad_share(source.name) for query in self.unfinished()), default=0.0)
            if share > most:
                return f"{share:.1%} of the latest messages of source {source.name} do not fit its schema"
        for name, errors in self._row_errors.items():
            share = max((query.failed_share(name) for query in self.unfinished()), default=0.0)
            if share > errors.degraded_above:
                return f"an expression fails for {share:.1%} of the latest rows of {name}"
        return ""

    def _long_batch(self) -> str:
        """Return which query has been doing a batch for long; empty: none."""
        for query in self.unfinished():
            if query.long_since is not None:
                return f"query {query.name} has been doing a batch since {_text(query.long_since)}"
        return ""


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_REASONS: Final = {
    CheckpointMisfitError: "CheckpointMisfit",
    TableEmptyError: "TableEmpty",
    ModelMissingError: "ModelMissing",
}
"""Why a pipeline cannot run, by its error; of others it is ``CannotRun``."""


def _joined(checkpoint: Path) -> Iterator[JoinedTable]:
    for name, version in joined_tables(checkpoint):
        yield JoinedTable(name=name, version=version.name, at=version.at)


def _condition(
    pipeline: Pipeline,
    queries: tuple[QueryStatus, ...],
    problem: Exception | None,
    misfits: Collection[str] = (),
    degraded: str = "",
    long: str = "",
    *,
    is_busy: bool = False,
) -> Condition:
    states = {query.state for query in queries}
    # One that can go on after a change of the declaration alone is told first.
    failed = next((query for query in sorted(queries, key=lambda q: q.name not in misfits) if query.error), None)
    truth, reason, message = "True", "Running", ""
    if problem is not None:
        reason = next((name for kind, name in _REASONS.items() if isinstance(problem, kind)), "CannotRun")
        truth, message = "False", sentence_of(problem)
    elif pipeline.spec.paused:
        reason, message = "Paused", "the pipeline rests and keeps its place"
    elif failed is not None:
        reason = "CheckpointMisfit" if failed.name in misfits else "QueryFailed"
        truth, message = "False", f"query {failed.name}: {failed.error}"
    elif states == {"Finished"} and not is_busy:
        reason = "Finished"
    elif degraded:
        reason, message = "Degraded", degraded
    elif not states and pipeline.spec.after:
        truth, reason, message = "False", "Waiting", f"it runs after {', '.join(pipeline.spec.after)}"
    elif "Starting" in states or not states:
        truth, reason, message = "False", "Starting", "the queries start"
    elif long:
        reason, message = "LongBatch", long
    return Condition.model_validate(
        {
            "type": READY,
            "status": truth,
            "reason": reason,
            "message": message,
            "observedGeneration": pipeline.metadata.generation,
        }
    )
