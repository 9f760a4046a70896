"""How fast the built-in pipeline ``anomalies`` looks at readings: rows/s with a state for each device.

    python -m benchmarks.spark_anomalies [--rows N] [--devices 10000] [--batch-rows 200000]

A node's stream is filled with messages of JSON, about 100 bytes each, from so many devices in turn; one
streaming query reads it with Trigger.AvailableNow and judges each reading by a band and by mean and
deviation of its device. Rates are from the query's progress; its first batches, which warm Spark up, are
left out. Session and size of batches are those of the runner. Alerts go to the noop sink: they are rare, and
sending is measured elsewhere.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from benchmarks.accounting import cpu_seconds
from benchmarks.spark_place import Columns, fill, spark_beside_node
from enmasse.model.kinds.pipelines.builtins import AnomaliesParameters
from enmasse.pipeline.builtin.anomalies import MAX_ROWS, alerts_of
from enmasse.pipeline.builtin.telemetry import readings_of
from enmasse.pipeline.running.command import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.node import Node

WARM_BATCHES = 3


def readings(numbers: range, devices: int) -> Columns:
    names = [f"device-{number % devices:05d}" for number in numbers]
    return Columns(
        [1_764_000_000_000_000 + number for number in numbers],
        [name.encode() for name in names],
        [body(name, number) for name, number in zip(names, numbers, strict=True)],
    )


def body(device: str, number: int) -> bytes:
    value = 20 + number * 7919 % 1000 / 100 + (40 if number % 10_007 == 0 else 0)
    text = {"device": device, "temperature": value, "ts": 1_764_000_000_000 + number}
    return json.dumps(text).encode().ljust(100)


def measure(spark: SparkSession, node: Node, address: str, batch_rows: int, checkpoint: Path) -> tuple[int, float]:
    """Rows and seconds of all batches but the first few."""
    stream = (
        spark.readStream.format("enmasse")
        .option("url", node.url)
        .option("address", address)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    wanted = AnomaliesParameters.model_validate(
        {"address": address, "alerts": "alerts", "bands": {"temperature": "10:35"}, "deviations": 4}
    )
    query = (
        alerts_of(readings_of(stream, wanted, ["temperature"]), wanted)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]][WARM_BATCHES:]
    counted = sum(progress["numInputRows"] for progress in batches)
    return counted, sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in all")
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=MAX_ROWS, help="maxOffsetsPerTrigger")
    options = parser.parse_args()
    with spark_beside_node(SETTINGS) as (spark, node, folder):
        # A device is always in the same partition.
        numbers = [range(partition, options.rows, options.partitions) for partition in range(options.partitions)]
        fill(node, "readings", numbers, lambda part: readings(part, options.devices))
        before = cpu_seconds(node.pids)
        counted, seconds = measure(spark, node, "readings", options.batch_rows, folder / "checkpoint")
        cpu = cpu_seconds(node.pids) - before
        print(
            f"{options.devices:,} devices  {counted:,} rows in {seconds:.1f} s of batches of {options.batch_rows:,}  "
            f"{counted / seconds:,.0f} rows/s  node {cpu / options.rows * 1e6:.2f} us/row",
            flush=True,
        )


if __name__ == "__main__":
    main()
