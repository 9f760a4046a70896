"""Starts a query: from its plan to a running ``StreamingQuery`` with its target and its checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.plans import AddressTarget, QueryPlan, SharedTarget
from enmasse.pipeline.running.row_order import has_fixed_order
from enmasse.pipeline.running.shared_query import rows_of_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from enmasse.pipeline.running.scene import RunningScene

    Add = Callable[[DataFrame, int], None]

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
    if isinstance(target, AddressTarget) and target.mode == "append":
        messages = as_messages(plan.frame, target.address)
        writer = (
            messages.writeStream.format("enmasse")
            .outputMode("append")
            .options(**_sink_options(scene, plan.frame, target))
        )
    else:
        # Spark lets sinks written in Python append only.
        add = _adding(scene, plan, checkpoint, adopt=adopt)
        writer = plan.frame.writeStream.outputMode(target.mode).foreachBatch(add)
    writer = writer.queryName(f"{scene.pipeline}/{plan.name}").option("checkpointLocation", str(checkpoint))
    if trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()


def _activate(session: SparkSession) -> None:
    """Spark looks a Python data source up in the session that is the thread's active one, whatever the frame's."""
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]  # noqa: SLF001


def _adding(scene: RunningScene, plan: QueryPlan, checkpoint: Path, *, adopt: bool, shares: bool = False) -> Add:
    """What brings the rows of a batch to a plan's target; a batch that comes again adds nothing."""
    target = plan.target
    if isinstance(target, SharedTarget):
        return _sharing([_adding(scene, part, checkpoint, adopt=adopt, shares=True) for part in target.parts])
    if isinstance(target, AddressTarget):
        return _sending(target.address, _sink_options(scene, plan.frame, target), plan.name if shares else None)
    table = open_table(
        scene.place.lake / target.table,
        format=target.format,
        mode=target.mode,
        keys=target.keys,
        partition_by=target.partition_by,
    )
    table.prepare(plan.frame.schema, owner=f"{scene.pipeline}/{plan.name}", checkpoint=checkpoint, adopt=adopt)
    return table.add


def _sending(address: str, options: dict[str, str], part: str | None) -> Add:
    def send(rows: DataFrame, batch: int) -> None:
        session = rows.sparkSession
        _activate(session)
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None
        # Plans that share a query number their rows apart.
        producer = query if part is None else str(uuid.uuid5(uuid.UUID(query), part))
        writer = as_messages(rows, address).write.format("enmasse").mode("append")
        writer.options(**options, producer=producer, sequence=batch).save()

    return send


def _sharing(parts: Sequence[Add]) -> Add:
    def share(rows: DataFrame, batch: int) -> None:
        rows.persist()
        try:
            for index, add in enumerate(parts):
                add(rows_of_part(rows, index), batch)
        finally:
            rows.unpersist()

    return share


def _is_local(session: SparkSession) -> bool:
    return str(session.sparkContext.master).startswith("local")


def _sink_options(scene: RunningScene, frame: DataFrame, target: AddressTarget) -> dict[str, str]:
    options = dict(scene.connection_options())
    if target.address != ANY:
        options["address"] = target.address
    if target.on_no_consumer != "fail":
        options["onNoConsumer"] = target.on_no_consumer
    if target.bad_records is not None:
        options["badRecords"] = target.bad_records
    # What changed comes out of a shuffle, in another order when it comes again.
    if target.mode != "append" or not has_fixed_order(frame, on_one_machine=_is_local(frame.sparkSession)):
        options["order"] = "content"
    return options


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
