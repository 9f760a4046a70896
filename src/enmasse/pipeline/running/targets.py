"""Starts a query: from its plan to a running ``StreamingQuery`` with its target and its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.plans import AddressTarget, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from enmasse.pipeline.running.scene import RunningScene

__all__ = ["as_messages", "start_query"]

ANY: Final = "*"


def start_query(
    scene: RunningScene, plan: QueryPlan, checkpoint: Path, trigger_s: float | None, *, adopt: bool
) -> StreamingQuery:
    """Start a query, or go on with it where its checkpoint is.

    Args:
        scene: of its pipeline.
        plan: the query.
        checkpoint: its folder.
        trigger_s: seconds between two batches; None: read what is there and end.
        adopt: take a table over that was written under another checkpoint, as a restart was asked for.
    """
    plan.on_start()
    _activate(scene.spark)
    target = plan.target
    if isinstance(target, AddressTarget):
        writer = _to_address(scene, plan, target)
    else:
        writer = _to_table(scene, plan, target, checkpoint, adopt=adopt)
    writer = writer.queryName(f"{scene.pipeline}/{plan.name}").option("checkpointLocation", str(checkpoint))
    if trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()


def _activate(session: SparkSession) -> None:
    """Spark looks a Python data source up in the session that is the thread's active one, whatever the frame's."""
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]  # noqa: SLF001


def _to_address(scene: RunningScene, plan: QueryPlan, target: AddressTarget) -> DataStreamWriter:
    messages = as_messages(plan.frame, target.address)
    options = _sink_options(scene, target)
    if target.mode == "append":
        return messages.writeStream.format("enmasse").outputMode("append").options(**options)

    def send(rows: DataFrame, batch: int) -> None:
        session = rows.sparkSession
        _activate(session)
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None
        rows.write.format("enmasse").mode("append").options(**options, producer=query, sequence=batch).save()

    # Spark lets sinks written in Python append only.
    return messages.writeStream.outputMode(target.mode).foreachBatch(send)


def _sink_options(scene: RunningScene, target: AddressTarget) -> dict[str, str]:
    options = dict(scene.connection_options())
    if target.address != ANY:
        options["address"] = target.address
    if target.on_no_consumer != "fail":
        options["onNoConsumer"] = target.on_no_consumer
    if target.bad_records is not None:
        options["badRecords"] = target.bad_records
    if target.mode != "append":
        # What changed comes out of a shuffle, in another order when it comes again; what is appended keeps its order.
        options["order"] = "content"
    return options


def _to_table(
    scene: RunningScene, plan: QueryPlan, target: TableTarget, checkpoint: Path, *, adopt: bool
) -> DataStreamWriter:
    table = open_table(
        scene.place.lake / target.table,
        format=target.format,
        mode=target.mode,
        keys=target.keys,
        partition_by=target.partition_by,
    )
    table.prepare(plan.frame.schema, owner=f"{scene.pipeline}/{plan.name}", checkpoint=checkpoint, adopt=adopt)

    def add(rows: DataFrame, batch: int) -> None:
        table.add(rows, batch)

    return plan.frame.writeStream.outputMode(table.mode).foreachBatch(add)


def as_messages(frame: DataFrame, address: str) -> DataFrame:
    """Return rows that are messages: those without ``value`` become JSON of their columns.

    Args:
        frame: rows.
        address: the target; ``*``: the column ``address`` names it and is no content.
    """
    if "value" in frame.columns:
        return frame
    content = [name for name in frame.columns if not (address == ANY and name == "address")]
    kept = [F.col("address")] if address == ANY else []
    quoted = [F.col(f"`{name}`") for name in content]
    return frame.select(F.to_json(F.struct(*quoted)).alias("value"), *kept)
