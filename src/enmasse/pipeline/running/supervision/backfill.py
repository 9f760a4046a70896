"""Backfills: a pipeline computes partitions of a table again from what its stream keeps, while its query goes on.

A query has read its stream up to some offset, and what it made of that is in the table. Both are read at one moment.
The messages before that offset are read once more, by the pipeline as it is declared now, and the rows that belong to
the partitions take the place of the files which these had at that moment. What comes behind the offset is the
query's, as before: neither its checkpoint nor its batches' numbers change.

So each row must come from messages alone, whatever was read before: that is checked first.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from enmasse.model.kinds.pipelines.backfills import Backfill, BackfillState, BackfillStatus, moment_of
from enmasse.model.kinds.pipelines.sources import is_several
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.batches import at_rest
from enmasse.pipeline.lake.constraints import meeting
from enmasse.pipeline.lake.mending import last_done
from enmasse.pipeline.lake.partitions import Partitions
from enmasse.pipeline.lake.replacing import Chosen, Replacement, choose
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.logical_plans import fingerprint_of, seconds_of_windows
from enmasse.pipeline.running.planning.plans import JobPlan, QueryPlan, TableTarget
from enmasse.pipeline.running.supervision.query_supervisor import FIRST_PAUSE_S, LAST_PAUSE_S
from enmasse.pipeline.session import activate
from enmasse.pipeline.source.frames_client import Connections
from enmasse.pipeline.source.offsets import Position
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.model.kinds.pipelines.sources import SourceSpec
    from enmasse.pipeline.running.planning.context import RunningContext

_GROUPED: Final = "Aggregate "
_RESTART: Final = "restart the pipeline from an earlier point instead, into another table"
_LOOK_S: Final = 60.0
"""So long the node may be away while the stream is looked at."""


class NotYetError(Exception):
    """Raised when a query has not done what a backfill builds upon."""


@dataclass(frozen=True)
class Running:
    """A pipeline as it runs.

    Attributes:
        name: the name of the pipeline.
        uid: the uid of the pipeline.
        spec: the spec as it is declared.
        context: the context that its queries were made with.
        plans: the plans of its queries.
        checkpoint_of: the folder of a query's checkpoint.
        once: returns the plan of a query that reads the only stream once, by options that say from where to where.
    """

    name: str
    uid: str
    spec: PipelineSpec
    context: RunningContext
    plans: Sequence[QueryPlan | JobPlan]
    checkpoint_of: Callable[[str], Path]
    once: Callable[[str, Mapping[str, str]], QueryPlan]


def planned(running: Running, wanted: Backfill) -> tuple[QueryPlan, TableTarget, SourceSpec]:
    """Return the query that writes the table, where it goes, and the only stream that it reads.

    Raises:
        PlanError: the table cannot be computed again so; the message says why, and what can be done.
    """
    writers = {
        plan.target.table: (plan, plan.target)
        for plan in running.plans
        if isinstance(plan, QueryPlan) and isinstance(plan.target, TableTarget)
    }
    if not writers:
        raise PlanError("the pipeline writes no table by a query of its own, so nothing can be computed again")
    if wanted.table is None and len(writers) > 1:
        raise PlanError(f"table: required: the pipeline writes {', '.join(writers)}")
    table = wanted.table or next(iter(writers))
    if table not in writers:
        raise PlanError(f"table: expected one that the pipeline writes ({', '.join(writers)}), got {table!r}")
    plan, target = writers[table]
    layout = target.layout
    if layout.mode != "append":
        raise PlanError(
            f"table {table} has mode {layout.mode}: what is in it depends on all that came before, and not on its "
            f"partitions; {_RESTART}"
        )
    if layout.format != "delta" or not layout.partition_by:
        raise PlanError(
            f"table {table} is not laid out by partitions that could be replaced: expected format delta and "
            "partitionBy, such as [day(ts)]"
        )
    if plan.per_batch is not None:
        raise PlanError(f"table {table}: a step with perBatch depends on how messages came together; {_RESTART}")
    lines = [*fingerprint_of(plan.frame), *plan.state]
    streams = [line for line in lines if line.startswith("source ")]
    source = next((one for one in running.spec.sources if f"source {one.address}" in streams), None)
    if source is None or len(streams) != 1 or is_several(source):
        raise PlanError(f"table {table}: expected a query that reads one stream, once, and it reads {_read(streams)}")
    if running.context.addresses[source.address or ""].type != "stream":
        raise PlanError(f"table {table}: {source.address} is no stream, so what was read from it is gone")
    if kept := next((line for line in lines if line not in streams and not line.startswith(_GROUPED)), None):
        raise PlanError(f"table {table}: {kept.partition(' ')[0]} keeps state from message to message; {_RESTART}")
    return plan, target, source


def _read(streams: Sequence[str]) -> str:
    return ", ".join(line.removeprefix("source ") for line in streams) or "none"


@dataclass(frozen=True)
class Reached:
    """The place that a query has reached.

    Attributes:
        position: the position where it goes on.
        watermark: the moment before which its windows are in the table.
    """

    position: Position
    watermark: datetime


def reached(checkpoint: Path, batch: int) -> Reached:
    """Return where a batch of a query with one source has ended.

    Raises:
        NotYetError: it has done none, or the checkpoint does not have it any more.
    """
    try:
        _, facts, *offsets = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except (OSError, ValueError):
        raise NotYetError("the query has done no batch yet that could be built upon") from None
    (offset,) = offsets
    milliseconds_ = int(json.loads(facts)["batchWatermarkMs"])
    return Reached(Position.from_json(json.loads(offset)), datetime.fromtimestamp(milliseconds_ / 1000, UTC))


def check_kept(options: Mapping[str, str], reached: Reached, since: datetime | None) -> Position:
    """Make sure that a stream has all messages of a time and later; return what it begins with.

    Args:
        options: the options of the reader of the stream.
        reached: up to where they are needed.
        since: the moment; None: since it was made.

    Raises:
        PlanError: it has not, or may not.
    """
    parsed = SourceOptions.parse(options, is_batch=True)
    connections = Connections()
    try:
        planner = Planner(parsed, lambda: connections.get(parsed.url, parsed), Backoff(_LOOK_S))
        oldest = planner.initial()
        if oldest.stream != reached.position.stream:
            raise PlanError(f"the stream {parsed.address} was made anew, so what the query has read is gone")
        first = None if since is None else planner.rows_since(int(since.timestamp() * 1_000_000))
    finally:
        connections.close()
    for partition, at in oldest.next.items():
        # A message from before tells that none from then on is gone.
        if at and (first is None or first.get(partition, 0) <= at):
            needed = "all messages that it ever had" if since is None else f"all messages since {_text(since)}"
            raise PlanError(
                f"the stream {parsed.address} does not keep what is needed: expected {needed}, but partition "
                f"{partition} begins with offset {at}, so older ones were dropped; choose a later time"
            )
    return oldest


def _offsets(position: Position) -> str:
    return json.dumps({str(number): at for number, at in position.next.items()})


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class BackfillSupervisor:
    """Does one backfill, and again when that fails.

    Args:
        running: the pipeline.
        wanted: the partitions to compute again.
        log: takes a line for each event.
    """

    def __init__(self, running: Running, wanted: Backfill, log: Callable[[str], None]) -> None:
        self._running = running
        self._wanted = wanted
        self._log = log
        self._group = f"backfill {running.name} {wanted.at}"
        self._status = BackfillStatus(at=wanted.at, table=wanted.table)
        self._thread: threading.Thread | None = None
        self._next = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._stopped = threading.Event()

    @property
    def _spark(self) -> SparkSession:
        return self._running.context.spark

    @property
    def is_busy(self) -> bool:
        """True if it is being done, or will be tried again."""
        return self._status.state == "Failed" or (self._thread is not None and self._thread.is_alive())

    def check(self, now: float) -> None:
        """Begin if it is time, and it was not done.

        Args:
            now: seconds that only grow.
        """
        is_over = self._status.state in ("Done", "Refused") or self._stopped.is_set()
        if is_over or now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        self._thread = threading.Thread(target=self._do, name=self._group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give it up; returns at once. What is not in the table by then does not come there any more."""
        self._stopped.set()
        if self._thread is not None and self._thread.is_alive():
            try:
                self._spark.sparkContext.cancelJobGroup(self._group)
            except (Py4JError, OSError):
                return  # Java has ended, and with it what it did

    def status(self) -> BackfillStatus:
        """Return how far it is."""
        if self._status.state != "Running":
            return self._status
        try:
            tasks, done = _tasks(self._spark, self._group)
        except (Py4JError, OSError):
            return self._status
        return self._status.model_copy(update={"tasks": tasks, "tasks_done": done}) if tasks else self._status

    def _become(self, state: BackfillState, message: str | None = None, **fields: Any) -> None:
        is_news = (state, message) != (self._status.state, self._status.message)
        self._status = self._status.model_copy(update={"state": state, "message": message, **fields})
        if is_news:
            self._log(f"backfill {self._wanted.at}: {state}" + (f": {message}" if message else ""))

    def _do(self) -> None:
        try:
            self._compute()
        except PlanError as error:
            self._become("Refused", sentence_of(error))
        except NotYetError as error:
            self._become("Waiting", str(error))
        except Exception as error:  # noqa: BLE001  # whatever it is, the queries go on and it is done again
            if not self._stopped.is_set():
                self._become("Failed", sentence_of(error))

    def _compute(self) -> None:
        running, wanted = self._running, self._wanted
        plan, target, source = planned(running, wanted)
        chosen = choose(
            target.layout.partition_by,
            wanted.partitions,
            None if wanted.start is None else moment_of(wanted.start),
            None if wanted.end is None else moment_of(wanted.end),
            plan.frame.columns,
        )
        self._status = self._status.model_copy(update={"table": target.table})
        path = running.context.place.lake / target.table
        checkpoint = running.checkpoint_of(plan.name)
        replacement = Replacement(path, chosen, f"enmasse-backfill:{running.uid or running.name}:{wanted.at}")
        if (before := replacement.done()) is not None:
            self._become("Done", **asdict(before))
            return
        with at_rest(path):
            batch = replacement.begin(lambda table: last_done(table, path, checkpoint))
            self._replace(replacement, reached(checkpoint, batch), chosen, plan, target, source)

    def _replace(
        self,
        replacement: Replacement,
        until: Reached,
        chosen: Chosen,
        plan: QueryPlan,
        target: TableTarget,
        source: SourceSpec,
    ) -> None:
        running, layout = self._running, target.layout
        since = chosen.start
        if any(line.startswith(_GROUPED) for line in fingerprint_of(plan.frame)):
            since = _check_windows(seconds_of_windows(plan.frame), until, chosen)
        begins = check_kept(running.context.options_of(source), until, since)
        self._become("Running")
        between = {"startingOffsets": _offsets(begins), "endingOffsets": _offsets(until.position)}
        again = running.once(plan.name, between)
        rows: DataFrame = chosen.rows(Partitions(layout.partition_by).on(again.frame))
        activate(rows.sparkSession)
        context = rows.sparkSession.sparkContext
        context.setLocalProperty("spark.scheduler.pool", running.name)
        context.setJobGroup(self._group, "backfill", interruptOnCancel=True)
        if self._stopped.is_set():
            return  # Jobs that had not begun were not cancelled
        done = replacement.finish(meeting(rows, target.table, layout.constraints), self._stopped.is_set)
        if done is None:
            return
        self._log(
            f"backfill {self._wanted.at}: {done.rows:,} rows replaced {done.rows_before:,} in {done.partitions:,} "
            f"partitions of table {target.table}"
        )
        self._become("Done", **asdict(done))


def _check_windows(windows_s: float, until: Reached, chosen: Chosen) -> datetime:
    """Make sure that the query has written all windows of some partitions; return since when messages belong to them.

    Args:
        windows_s: the length of windows; 0: there are none, infinity: they have no fixed size.
        until: the place that the query has reached.
        chosen: the partitions.

    Raises:
        PlanError: it has not, or that cannot be told.
    """
    if not 0 < windows_s < math.inf or chosen.start is None or chosen.end is None:
        raise PlanError(
            "rows are grouped: expected from and to, and windows of a fixed size in the SQL, such as "
            f"window(ts, '10 minutes'); else what the query still keeps in mind cannot be told apart; {_RESTART}"
        )
    longest = timedelta(seconds=windows_s)
    if chosen.end + longest > until.watermark:
        raise PlanError(
            f"to: windows of the last partition may still be open: expected a time before "
            f"{_text(until.watermark - longest)}, as the watermark is at {_text(until.watermark)} and a window takes "
            f"{longest}; the last partition ends at {_text(chosen.end)}"
        )
    return chosen.start - longest


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Return how many tasks of a group of jobs are known, and how many are done."""
    tracker = spark.sparkContext.statusTracker()
    known = done = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            if (facts := tracker.getStageInfo(stage)) is not None:
                known += facts.numTasks
                done += facts.numCompletedTasks
    return known, done
