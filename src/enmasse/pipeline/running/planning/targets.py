"""Starts a query: from its plan to a running ``StreamingQuery`` with its target and its checkpoint.

Plans that read a consumed address (a queue, a subscription) become one query: each message is given once, so one
query alone may read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.sinks import TableMaintenance
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.backup.locks import wait_for_backup
from enmasse.pipeline.errors import PlanError, TableSchemaError
from enmasse.pipeline.lake.compaction import KEEP_H
from enmasse.pipeline.lake.maintenance import Maintenance, Upkeep
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.logical_plans import goes_by_clock, has_fixed_order, is_stateful, reads_any
from enmasse.pipeline.running.planning.plans import AddressTarget, DatabaseTarget, JobPlan, QueryPlan, SharedTarget
from enmasse.pipeline.session import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from enmasse.model.kinds.pipelines.sinks import OutputMode
    from enmasse.pipeline.running.planning.context import RunningContext

    Add = Callable[[DataFrame, int], None]

_PART: Final = "part"


def share_what_is_consumed(
    plans: Sequence[QueryPlan | JobPlan], consumed: Collection[str]
) -> list[QueryPlan | JobPlan]:
    """Return the plans with those made one that read what is consumed; the rest as it is.

    Args:
        plans: the plans of one pipeline.
        consumed: the addresses that give each message once.

    Raises:
        PlanError: their targets take rows in ways that one query cannot have both.
    """
    readers = [plan for plan in plans if isinstance(plan, QueryPlan) and reads_any(plan.frame, consumed)]
    if len(readers) < 2:
        return list(plans)
    rest = [plan for plan in plans if all(plan is not reader for reader in readers)]
    return [_share(readers), *rest]


def _share(plans: Sequence[QueryPlan]) -> QueryPlan:
    """Return one plan whose rows are those of all plans, each with its part's number and columns."""
    frames = [_part_of(plan.frame, index) for index, plan in enumerate(plans)]
    every = [plan.trigger_s for plan in plans if plan.trigger_s is not None]

    def on_start() -> None:
        for plan in plans:
            plan.on_start()

    return QueryPlan(
        " + ".join(plan.name for plan in plans),
        reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames),
        SharedTarget(tuple(plans), _mode_of(plans)),
        state=tuple(line for plan in plans for line in plan.state),
        trigger_s=min(every) if every else None,
        on_start=on_start,
    )


def _part_of(frame: DataFrame, index: int) -> DataFrame:
    columns = F.struct(*[F.col(quote_identifier(name)) for name in frame.columns])
    return frame.select(F.lit(index).alias(_PART), columns.alias(f"of{index}"))


def rows_of_part(rows: DataFrame, index: int) -> DataFrame:
    """Return the rows of one plan, with its columns, of a batch of a shared query."""
    return rows.where(F.col(_PART) == index).select(f"of{index}.*")


def _mode_of(plans: Sequence[QueryPlan]) -> OutputMode:
    modes = {plan.target.mode for plan in plans}
    if modes == {"append", "update"}:
        # What has no state gives the same rows either way.
        modes = {plan.target.mode for plan in plans if is_stateful(plan.frame)} or {"append"}
    if len(modes) > 1:
        listed = ", ".join(f"{plan.name}: {plan.target.mode}" for plan in plans)
        raise PlanError(
            f"what is consumed is read by one query, and all its sinks with state need the same mode ({listed}); "
            "bring the messages into a stream, and read that one"
        )
    return modes.pop()


ANY: Final = "*"


def start_query(
    context: RunningContext, plan: QueryPlan, checkpoint: Path, trigger_s: float | None, *, adopt: bool
) -> StreamingQuery:
    """Start a query, or go on with it where its checkpoint is.

    Args:
        context: the context of its pipeline.
        plan: the query.
        checkpoint: its folder.
        trigger_s: seconds between two batches; None: read what is there and end.
        adopt: take a table over that was written under another checkpoint, as a restart was asked for.
    """
    plan.on_start()
    activate(context.spark)
    target = plan.target
    if isinstance(target, AddressTarget) and target.mode == "append" and plan.per_batch is None:
        messages = as_messages(plan.frame, target)
        writer = (
            messages.writeStream.format("enmasse")
            .outputMode("append")
            .options(**sink_options(context, plan.frame, target))
        )
    else:
        # Spark lets sinks written in Python append only.
        add = _adding(context, plan, checkpoint, adopt=adopt)
        writer = plan.frame.writeStream.outputMode(target.mode).foreachBatch(add)
    writer = writer.queryName(f"{context.pipeline}/{plan.name}").option("checkpointLocation", str(checkpoint))
    if trigger_s is None:
        with _ending(context.spark, plan):
            return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()


@contextmanager
def _ending(spark: SparkSession, plan: QueryPlan) -> Iterator[None]:
    """Have a query that starts end where timers go by the clock: Spark would make batches without rows for ever."""
    if not goes_by_clock(plan.frame):
        yield
        return
    spark.conf.set(_WITHOUT_ROWS, "false")  # a query takes what the session has when it starts
    try:
        yield
    finally:
        spark.conf.unset(_WITHOUT_ROWS)


_WITHOUT_ROWS: Final = "spark.sql.streaming.noDataMicroBatches.enabled"


def _adding(context: RunningContext, plan: QueryPlan, checkpoint: Path, *, adopt: bool, shares: bool = False) -> Add:
    """Return what brings the rows of a batch to a plan's target; a batch that comes again adds nothing."""
    target = plan.target
    if isinstance(target, SharedTarget):
        adding = [_adding(context, part, checkpoint, adopt=adopt, shares=True) for part in target.parts]
        return _sharing(adding, is_whole=target.is_whole)
    if isinstance(target, AddressTarget):
        options = sink_options(context, plan.frame, target)
        if plan.per_batch is not None and not plan.per_batch.keeps_order:
            options["order"] = "content"  # as what it does may shuffle
        return _of_batch(plan, _sending(target, options, plan.name if shares else None))
    schema = plan.frame.schema if plan.per_batch is None else plan.per_batch.schema
    owner = f"{context.pipeline}/{plan.name}"
    if isinstance(target, DatabaseTarget):
        from enmasse.pipeline.database.writing import DatabaseTable  # noqa: PLC0415  # few pipelines need a driver

        written = DatabaseTable(target, owner, checkpoint)
        written.prepare(schema)
        return _of_batch(plan, written.add)
    table = open_table(context.place.lake / target.table, target.layout)
    table.prepare(schema, owner=owner, checkpoint=checkpoint, adopt=adopt)
    if target.layout.format == "parquet":
        return _of_batch(plan, table.add)
    upkeep = upkeep_of(target.table, target.maintenance or TableMaintenance(), schema)
    return _of_batch(plan, Maintenance(table.path, upkeep, context.log).after(table.add))


def _of_batch(plan: QueryPlan, add: Add) -> Add:
    """Return what does with a batch what its plan says, and adds what comes of it."""
    done = plan.per_batch

    def put(rows: DataFrame, batch: int) -> None:
        wait_for_backup()
        add(rows if done is None else done.rows_of(rows), batch)

    return put


def upkeep_of(table: str, declared: TableMaintenance, schema: StructType) -> Upkeep:
    """Return how a table with rows of a schema is kept.

    Raises:
        TableSchemaError: rows have no moment in the column by which they become too old.
    """
    kept, rows = declared.keep_versions, declared.keep_rows
    if rows is not None and rows.column in schema.names:
        kind = schema[rows.column].dataType
        if not isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
            raise TableSchemaError(
                f"the table {table}: maintenance.keepRows names {rows.column!r}, which is "
                f"{kind.simpleString().upper()}; expected a TIMESTAMP or a DATE"
            )
    return Upkeep(
        joins=declared.compact != "off",
        keep_h=KEEP_H if kept is None else -(-milliseconds(kept) // 3_600_000),
        rows_column="" if rows is None else rows.column,
        rows_s=0.0 if rows is None else milliseconds(rows.duration) / 1000,
        z_order_by=declared.z_order_by,
    )


def _sending(target: AddressTarget, options: dict[str, str], part: str | None) -> Add:
    def send(rows: DataFrame, batch: int) -> None:
        session = rows.sparkSession
        activate(session)
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None
        # Plans that share a query number their rows apart.
        producer = query if part is None else str(uuid.uuid5(uuid.UUID(query), part))
        writer = as_messages(rows, target).write.format("enmasse").mode("append")
        writer.options(**options, producer=producer, sequence=batch).save()

    return send


def _sharing(parts: Sequence[Add], *, is_whole: bool) -> Add:
    def share(rows: DataFrame, batch: int) -> None:
        rows.persist()
        try:
            for index, add in enumerate(parts):
                add(rows if is_whole else rows_of_part(rows, index), batch)
        finally:
            rows.unpersist()

    return share


def is_local(session: SparkSession) -> bool:
    """Return whether all tasks run in one process of Java."""
    return str(session.sparkContext.master).startswith("local")


def sink_options(context: RunningContext, frame: DataFrame, target: AddressTarget) -> dict[str, str]:
    """Return the options of the sink for an address, such that rows are numbered alike when they come again."""
    options = dict(context.connection_options())
    if target.address != ANY:
        options["address"] = target.address
    if target.on_no_consumer != "fail":
        options["onNoConsumer"] = target.on_no_consumer
    if target.bad_records is not None:
        options["badRecords"] = target.bad_records
    # What changed comes out of a shuffle, in another order when it comes again.
    if target.mode != "append" or not has_fixed_order(frame, on_one_machine=is_local(frame.sparkSession)):
        options["order"] = "content"
    return options


def as_messages(frame: DataFrame, target: AddressTarget) -> DataFrame:
    """Return rows that are messages: as the target encodes them; else those without ``value`` become JSON.

    Args:
        frame: rows.
        target: its address; ``*``: the column ``address`` names it and is no content.
    """
    address = target.address
    if target.encoding is not None:
        return target.encoding.encoded(frame, with_address=address == ANY)
    if "value" in frame.columns:
        return frame
    content = [name for name in frame.columns if not (address == ANY and name == "address")]
    kept = [F.col("address")] if address == ANY else []
    quoted = [F.col(quote_identifier(name)) for name in content]
    return frame.select(F.to_json(F.struct(*quoted)).alias("value"), *kept)
