"""The stage that takes out the rows that come too late for a query with state, and sends them to an address.

Spark leaves out such rows inside its stateful operators, and tells only how many they were. The stage is before them.

Rules:
1. A row is late if the moment of its event is not after the watermark by which Spark leaves out late rows in this
   batch: that of the batch before, which Spark's checkpoint has. So Spark finds none any more.
2. A task has its late rows accepted before it ends, numbered: a batch that is repeated has the same, and adds none.
3. A query reads a source through one such stage at most, or each would send them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.naming import by_any_name
from enmasse.pipeline.running.logical_plans import observations_of
from enmasse.pipeline.sink.identity import Identity, of_streaming_task
from enmasse.pipeline.sink.json_rows import json_of, values_of
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.writers import sink_task
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE: Final = "late rows of "
"""Prefix of the observations that count the rows before and after the stage; source and query follow."""

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class LateRows:
    """The function for ``mapInArrow``.

    Attributes:
        query: the query as Spark calls it.
        source: the relation.
        column: the moment of the event.
        checkpoint: the checkpoint of the query.
        options: the options of the sink that late rows go to.
        origin: the address that the rows came from; None: they came from none, or from several.
    """

    query: str
    source: str
    column: str
    checkpoint: Path
    options: Mapping[str, str]
    origin: str | None = None

    @property
    def name(self) -> str:
        """The name by which the stage is found in plans and reports."""
        return f"{LATE}{self.source} for {self.query}"

    def on_time(self, frame: DataFrame) -> DataFrame:
        """Return the rows that are not late."""
        count = F.count(F.lit(1))
        before = frame.observe(f"{self.name}, {BEFORE}", count.alias(BEFORE))
        return by_any_name(before).mapInArrow(self, frame.schema).observe(f"{self.name}, {AFTER}", count.alias(AFTER))

    def is_in(self, frame: DataFrame) -> bool:
        """Return whether the rows of a frame come through the stage.

        Raises:
            PlanError: they do so more than once.
        """
        if (count := observations_of(frame).count(f"{self.name}, {AFTER}")) > 1:
            raise PlanError(
                f"source {self.source}: watermark.late needs a source that each query reads once, and {self.query} "
                f"reads it {count} times: its late rows would be sent as often"
            )
        return count == 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give back the rows that are not late; the others are accepted by the address when it ends."""
        settle()
        task = of_streaming_task()
        watermark_ms = watermark_for_late_rows(self.checkpoint, task.batch)
        producer = str(uuid.uuid5(uuid.UUID(task.query), self.name))
        identity = Identity(producer, task.batch, task.task)
        with sink_task(SinkOptions.parse(self.options), identity) as sink:
            for batch in batches:
                late = is_late(batch.column(self.column), watermark_ms)
                if late.true_count:
                    sink.take(self._messages(batch.filter(late), watermark_ms))
                    batch = batch.filter(pc.invert(late))  # noqa: PLW2901  # what is left of it
                if batch.num_rows:
                    yield batch
            sink.finish()

    def _messages(self, rows: pa.RecordBatch, watermark_ms: int) -> pa.RecordBatch:
        known = {
            "reason": f"{self.column} is behind the watermark",
            "relation": self.source,
            "query": self.query,
            "watermark": _as_text(watermark_ms),
        }
        if self.origin is not None:
            known["address"] = self.origin
        there = rows.schema.names
        content = [name for name in there if not name.startswith("_")]
        values = zip(*(values_of(rows.column(name)) for name in content), strict=True)
        properties = [dict(known) for _ in range(rows.num_rows)]
        for name in ("address", "partition", "offset"):
            if f"_{name}" in there:
                for one, place in zip(properties, rows.column(f"_{name}").to_pylist(), strict=True):
                    one[name] = str(place)
        columns: dict[str, Any] = {
            "value": pa.array([json_of(dict(zip(content, row, strict=True))) for row in values], pa.string()),
            "properties": pa.array([list(one.items()) for one in properties], pa.map_(pa.string(), pa.string())),
        }
        if "_key" in there:
            columns["key"] = rows.column("_key")
        return pa.RecordBatch.from_pydict(columns)


def _as_text(watermark_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(watermark_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{watermark_ms} ms"  # a clock may be off by millennia
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_late(moments: pa.Array, watermark_ms: int) -> pa.BooleanArray:
    """Return which rows Spark would take for late; those without a moment are not.

    Args:
        moments: the moments of their events, microseconds.
        watermark_ms: milliseconds since 1970.
    """
    behind = pc.less_equal(moments.cast(pa.int64()), pa.scalar(watermark_ms * 1000, pa.int64()))
    return pc.fill_null(behind, False)


def watermark_for_late_rows(checkpoint: Path, batch: int) -> int:
    """Return the watermark behind which Spark leaves out rows in a batch, in milliseconds since 1970.

    Args:
        checkpoint: the checkpoint of the query.
        batch: its number.

    Raises:
        PlanError: this machine does not have the checkpoint.
    """
    if batch == 0:
        return 0
    path = checkpoint / "offsets" / str(batch - 1)
    try:
        metadata = json.loads(path.read_text().splitlines()[1])
    except OSError as error:
        raise PlanError(
            f"watermark.late: cannot read the watermark from {path}: {error.strerror}; all machines of a cluster "
            "need the folder of the space's pipelines"
        ) from None
    return int(metadata["batchWatermarkMs"])
