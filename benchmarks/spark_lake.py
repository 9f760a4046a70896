"""How fast a stream flows into a table of the lake: rows/s, and beside it the noop sink in the same run.

    python -m benchmarks.spark_lake [--rows N] [--partitions 2] [--batch-rows N] [--tables delta,parquet] [--rounds 3]

A node process is filled over AMQP with ready frames whose bodies are 100 bytes of JSON, no two the same. Then one
streaming query after another reads it all with Trigger.AvailableNow, in rounds: into nothing, and into each kind of
table. A first query of each kind warms Spark up; of the measured ones the first batch is dropped. Rates are
from the query's own progress. The ratio to noop is what a busy machine leaves comparable.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.spark_place import Columns, fill, spark_beside_node
from enmasse.pipeline.lake.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT_US = 1_769_860_800_000_000


def body(number: int) -> bytes:
    """100 bytes as a device sends them."""
    text = b'{"device":"device-%05d","n":%d,"temperature":%d.%03d,"state":"' % (
        number % 10_000,
        number,
        number % 40,
        number * 7919 % 1000,
    )
    return text + b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"[: 98 - len(text)] + b'"}'


def readings(numbers: range) -> Columns:
    return Columns(
        [MOMENT_US + number for number in numbers],
        [b"device-%05d" % (number % 10_000) for number in numbers],
        [body(number) for number in numbers],
    )


def run(spark: SparkSession, url: str, address: str, batch_rows: int, kind: str, folder: Path) -> tuple[int, float]:
    """Rows and seconds of all batches but the first."""
    rows = (
        spark.readStream.format("enmasse")
        .option("url", url)
        .option("address", address)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    checkpoint = folder / "checkpoint"
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if kind == "noop":
        writer = writer.format("noop")
    else:
        daily = kind.endswith("-by-day")
        table = open_table(
            folder / "table",
            format="parquet" if kind.startswith("parquet") else "delta",
            partition_by=["day"] if daily else [],
        )
        table.prepare(rows.schema, owner="benchmark", checkpoint=checkpoint)
        writer = writer.foreachBatch(table.add)
    query = writer.start()
    query.awaitTermination()
    # Without a sink of ours Spark does not know the rows that came in; offsets do.
    batches = [progress for progress in query.recentProgress if progress["durationMs"].get("addBatch")][1:]
    counted = sum(progress["numInputRows"] for progress in batches)
    shutil.rmtree(folder, ignore_errors=True)
    return counted, sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000, help="in all")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=500_000, help="maxOffsetsPerTrigger")
    parser.add_argument("--tables", default="delta,delta-by-day,parquet", help="kinds, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with spark_beside_node() as (spark, node, folder):
        for name, rows in (("warm", 200_000), ("rows", options.rows)):
            fill(node, name, [range(rows // options.partitions)] * options.partitions, readings)
        rates: dict[str, list[float]] = {}
        kinds = ["noop", *options.tables.split(",")]
        for kind in kinds:
            run(spark, node.url, "warm", 50_000, kind, folder / "out")
        for kind in kinds * options.rounds:
            counted, seconds = run(spark, node.url, "rows", options.batch_rows, kind, folder / "out")
            rates.setdefault(kind, []).append(counted / seconds)
            print(f"{kind:13} {counted:,} rows in {seconds:.1f} s  {counted / seconds:,.0f} rows/s", flush=True)
        noop = median(rates["noop"])
        for kind in kinds:
            middle = median(rates[kind])
            print(f"{kind:13} median {middle:,.0f} rows/s, {middle / noop:.2f} of noop")


if __name__ == "__main__":
    main()
