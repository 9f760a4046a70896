"""One pipeline in a thread of its own: built, run, changed, paused, removed."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import EnmasseError
from enmasse.model.conditions import READY, Condition
from enmasse.model.durations import milliseconds
from enmasse.model.pipelines import AVAILABLE_NOW, DEFAULT_TRIGGER, Pipeline, PipelineStatus, QueryStatus
from enmasse.pipeline.errors import CheckpointMisfitError
from enmasse.pipeline.running.building import build_plans
from enmasse.pipeline.running.checkpoints import Checkpoints
from enmasse.pipeline.running.code import read_code
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.fingerprints import fingerprint_of, readings_of, reads_any
from enmasse.pipeline.running.job_life import JobLife
from enmasse.pipeline.running.plans import AddressFacts, JobPlan, Place, QueryPlan
from enmasse.pipeline.running.query_life import FIRST_PAUSE_S, LAST_PAUSE_S, QueryLife
from enmasse.pipeline.running.scene import CONSUMING, RunningScene
from enmasse.pipeline.running.shared_query import share_what_is_consumed
from enmasse.pipeline.running.start_gate import StartGate
from enmasse.pipeline.running.targets import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from enmasse.pipeline.running.guard import Guard

__all__ = ["Order", "PipelineLife"]

LOOK_S: Final = 1.0
"""Between two looks at the queries; a status is told no more often."""


@dataclass(frozen=True)
class Order:
    """A pipeline as it is to run."""

    pipeline: Pipeline
    credentials: str
    addresses: Mapping[str, AddressFacts]
    code: Mapping[str, str]

    def is_same(self, other: Order | None) -> bool:
        """Whether the running queries need no change."""
        return other is not None and (
            (self.pipeline.spec, self.credentials, self.addresses, self.code)
            == (other.pipeline.spec, other.credentials, other.addresses, other.code)
        )


class PipelineLife:
    """Keeps one pipeline running as it was last ordered.

    Args:
        name: ``shop.hot``.
        spark: the process's session; the pipeline gets one of its own from it.
        place: where things are.
        guard: judges SQL.
        gate: few start at a time.
        voice: is told events.
    """

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        place: Place,
        *,
        guard: Guard,
        gate: StartGate,
        voice: Callable[..., None],
    ) -> None:
        self.name = name
        self._spark = spark
        self._place = place
        self._guard = guard
        self._gate = gate
        self._voice = voice
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._order: Order | None = None
        self._lives: list[QueryLife | JobLife] = []
        self._warnings: tuple[str, ...] = ()
        self._problem: Exception | None = None
        self._build_pause_s = FIRST_PAUSE_S
        self._build_at: float | None = None
        self._checkpoints: Checkpoints | None = None
        self._told: dict[str, Any] = {}
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

    def unfinished(self) -> list[QueryLife]:
        """Its queries that are to run."""
        return [life for life in self._lives if isinstance(life, QueryLife) and life.state != "Finished"]

    def _live(self) -> None:
        # Each pipeline's jobs get their share, however many tasks another one has.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        while True:
            try:
                act = self._orders.get(timeout=LOOK_S)
            except queue.Empty:
                act = self._tend
            if act is None:
                break
            act()
            self._tell()
        self._stop_all()

    def _take(self, pipeline: Pipeline, credentials: str, addresses: Mapping[str, AddressFacts]) -> None:
        try:
            code = read_code(self._place.folder / "code" / self.name)
            order = Order(pipeline, credentials, addresses, code)
        except EnmasseError as error:
            order, self._problem = Order(pipeline, credentials, addresses, {}), error
        former, self._order = self._order, order
        if order.is_same(former) and self._problem is None:
            return
        self._stop_all()
        self._lives = []
        self._build_pause_s = FIRST_PAUSE_S
        self._build()

    def _build(self) -> None:
        assert self._order is not None
        self._problem, self._build_at = None, None
        if self._order.pipeline.spec.paused:
            return
        try:
            with self._gate.passing():
                self._lives = self._make(self._order)
        except Exception as error:  # noqa: BLE001  # whatever a declaration brings about, the neighbours go on
            self._problem = error
            self._build_at = time.monotonic() + self._build_pause_s
            self._build_pause_s = min(2 * self._build_pause_s, LAST_PAUSE_S)
            self._log(f"cannot run: {sentence_of(error)}")
            return
        self._tend()

    def _make(self, order: Order) -> list[QueryLife | JobLife]:
        spec = order.pipeline.spec
        checkpoints = self._checkpoints = Checkpoints(self._place.folder / "checkpoints" / self.name)
        if checkpoints.restart(spec.restart):
            self._log(f"restart {checkpoints.restarted_at}: generation {checkpoints.generation}")
        scene = RunningScene(
            spark=self._spark.newSession(),
            place=self._place,
            pipeline=self.name,
            addresses=order.addresses,
            credentials=order.credentials,
            checkpoint_of=checkpoints.path_of,
            spool=self._place.folder / "spool" / self.name / str(checkpoints.generation),
            start_from=checkpoints.start_from,
        )
        plans = share_what_is_consumed(build_plans(scene, order.pipeline, self._guard, order.code), scene.consumed)
        self._warnings = tuple(scene.warnings)
        trigger = spec.trigger or DEFAULT_TRIGGER
        trigger_s = None if trigger == AVAILABLE_NOW else milliseconds(trigger) / 1000
        return [self._life(scene, plan, checkpoints, trigger_s) for plan in plans]

    def _life(
        self, scene: RunningScene, plan: QueryPlan | JobPlan, checkpoints: Checkpoints, trigger_s: float | None
    ) -> QueryLife | JobLife:
        if isinstance(plan, JobPlan):
            return JobLife(plan, self._log)
        fingerprint = [*fingerprint_of(plan.frame), *plan.state]
        name = CONSUMING if reads_any(plan, scene.consumed) else plan.name
        checkpoint = checkpoints.path_of(name)
        checkpoints.fit(name, fingerprint)
        every_s = trigger_s if trigger_s is None or plan.trigger_s is None else plan.trigger_s

        def start() -> Any:
            checkpoints.fit(name, fingerprint)
            return start_query(scene, plan, checkpoint, every_s, adopt=checkpoints.generation > 1)

        return QueryLife(plan.name, start, self._log, self._gate, readings_of(plan.frame))

    def _tend(self) -> None:
        now = time.monotonic()
        if self._build_at is not None and now >= self._build_at:
            self._build()
        for life in self._lives:
            life.tend(now)

    def _stop_all(self) -> None:
        for life in self._lives:
            life.stop()

    def _remove(self, *, purge: bool) -> None:
        self._stop_all()
        self._lives = []
        self._order = None
        if purge:
            Checkpoints(self._place.folder / "checkpoints" / self.name).purge()
            shutil.rmtree(self._place.folder / "spool" / self.name, ignore_errors=True)
        self._voice("deleted", pipeline=self.name)

    def _log(self, line: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._voice("log", pipeline=self.name, line=f"{moment} {line}")

    def _tell(self) -> None:
        if self._order is None:
            return
        status = self._status(self._order.pipeline).to_dict()
        if status != self._told:
            self._told = status
            self._voice("status", pipeline=self.name, status=status)

    def _status(self, pipeline: Pipeline) -> PipelineStatus:
        now = datetime.now(UTC)
        queries = tuple(life.status() for life in self._lives)
        if pipeline.spec.paused:
            queries = tuple(query.model_copy(update={"state": "Paused"}) for query in queries)
        lags = [query.lag for query in queries if query.lag is not None]
        rates = [query.input_rows_per_second for query in queries if query.input_rows_per_second is not None]
        errors = [query.error for query in queries if query.error]
        status = PipelineStatus(
            observed_generation=pipeline.metadata.generation,
            queries=queries,
            rows=sum(query.rows for query in queries),
            rate=round(sum(rates), 1) if rates else None,
            lag=sum(lags) if lags else None,
            last_error=sentence_of(self._problem) if self._problem else errors[0] if errors else None,
            restarted_at=self._checkpoints.restarted_at if self._checkpoints else None,
            warnings=self._warnings,
        )
        condition = _condition(pipeline, queries, self._problem)
        return status.with_conditions([condition], now.strftime("%Y-%m-%dT%H:%M:%SZ"))


def _condition(pipeline: Pipeline, queries: tuple[QueryStatus, ...], problem: Exception | None) -> Condition:
    states = {query.state for query in queries}
    failed = next((query for query in queries if query.error), None)
    truth, reason, message = "True", "Running", ""
    if problem is not None:
        misfit = isinstance(problem, CheckpointMisfitError)
        truth, reason, message = "False", "CheckpointMisfit" if misfit else "CannotRun", sentence_of(problem)
    elif pipeline.spec.paused:
        reason, message = "Paused", "the pipeline rests and keeps its place"
    elif failed is not None:
        truth, reason, message = "False", "QueryFailed", f"query {failed.name}: {failed.error}"
    elif states == {"Finished"}:
        reason = "Finished"
    elif "Starting" in states or not states:
        truth, reason, message = "False", "Starting", "the queries start"
    return Condition.model_validate(
        {
            "type": READY,
            "status": truth,
            "reason": reason,
            "message": message,
            "observedGeneration": pipeline.metadata.generation,
        }
    )
