"""A driver that brings rows into two tables and compacts them, until it is killed; no test itself."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.pipeline.lake.batches import Table
from enmasse.pipeline.lake.compaction import compact
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPACT_EVERY_S = 0.5
ROWS = 100
DEVICES = 7


def told(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def telling(table: Table) -> Callable[[DataFrame, int], None]:
    """Add, and say so: before, so that a kill may come at any moment of it, and after."""

    def add(frame: DataFrame, batch: int) -> None:
        told(json.dumps({"table": table.path.name, "batch": batch, "added": False}))
        table.add(frame, batch)
        told(json.dumps({"table": table.path.name, "batch": batch, "added": True}))

    return add


def main(folder: Path) -> None:
    """Run two queries over rows that are the same however often they are read."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    spark = start_session("lake", folder / "spark", quick=True)
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .load()
    )
    readings = numbers.selectExpr(
        f"concat('device-', value % {DEVICES}) AS device",
        "value AS n",
        "timestamp_seconds(1769860800 - 86400 * (value % 3)) AS ts",
    )
    lake = folder / "lake"
    queries = [
        (open_table(lake / "readings", partition_by=["day"]), readings),
        (open_table(lake / "last", mode="update", keys=["device"], order_by="n"), readings.select("device", "n")),
    ]
    for table, frame in queries:
        checkpoint = folder / f"{table.path.name}-checkpoint"
        table.prepare(frame.schema, owner=f"test/{table.path.name}", checkpoint=checkpoint)
        writer = frame.writeStream.outputMode(table.mode).option("checkpointLocation", str(checkpoint))
        writer.foreachBatch(telling(table)).start()

    def compacting() -> None:
        while True:
            time.sleep(COMPACT_EVERY_S)
            for table, _ in queries:
                compact(table.path)

    threading.Thread(target=compacting, daemon=True).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
