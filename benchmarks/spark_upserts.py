"""How fast rows are merged into a table by key: rows/s of batches, and what a row costs.

    python -m benchmarks.spark_upserts [--devices 100000] [--rows 3000000] [--batch-rows 300000] [--rounds 2]

A node is filled with JSON of 100 bytes of so many devices, in the order of time. A query reads it with
Trigger.AvailableNow and keeps the newest row of each device (``keys`` and ``orderBy``), first into an empty table,
then anew into the table that has all of them. Of each round the first batch is dropped. CPU is Spark's and the
node's.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.spark_place import Columns, fill, spark_beside_node
from enmasse.pipeline.lake.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.node import Node

STARTED_MS = 1_769_860_800_000


def run(spark: SparkSession, node: Node, batch_rows: int, folder: Path, number: int) -> str:
    """Merge all rows under a checkpoint of their own."""
    rows = (
        spark.readStream.format("enmasse")
        .option("url", node.url)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load("rows")
        .selectExpr("from_json(CAST(value AS STRING), 'device STRING, temperature DOUBLE, ts LONG') AS r")
        .select("r.*")
    )
    table = open_table(folder / "lake" / "last", mode="update", keys=["device"], order_by="ts")
    checkpoint = folder / f"checkpoint-{number}"
    table.prepare(rows.schema, owner="benchmark", checkpoint=checkpoint, adopt=True)
    spent = -cpu_seconds([*node.pids, *descendants(os.getpid())])
    began = time.perf_counter()
    query = (
        rows.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(table.add)
        .start()
    )
    query.awaitTermination()
    wall = time.perf_counter() - began
    spent += cpu_seconds([*node.pids, *descendants(os.getpid())])
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    total = sum(progress["numInputRows"] for progress in batches)
    counted = sum(progress["numInputRows"] for progress in batches[1:])
    seconds = sum(progress["durationMs"]["triggerExecution"] for progress in batches[1:]) / 1000
    return (
        f"{counted / seconds:9,.0f} rows/s in batches of {batch_rows:,}, {total / wall:9,.0f} by the clock; "
        f"{spent / total * 1e6:5.2f} us CPU a row"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--batch-rows", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()

    def readings(numbers: range) -> Columns:
        bodies = [
            (
                b'{"device": "device-%06d", "temperature": %d.%d, "ts": %d}'
                % (n * 7919 % options.devices, 15 + n % 17, n % 10, STARTED_MS + n)
            ).ljust(100)
            for n in numbers
        ]
        return Columns([0] * len(numbers), [b"k"] * len(numbers), bodies)

    with spark_beside_node() as (spark, node, folder):
        share = options.rows // options.partitions
        fill(node, "rows", [range(share)] * options.partitions, readings)
        for number in range(options.rounds):
            what = "into an empty table" if number == 0 else "into all that are there"
            print(f"{what:24} {run(spark, node, options.batch_rows, folder, number)}", flush=True)


if __name__ == "__main__":
    main()
