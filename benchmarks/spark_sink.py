"""How fast Spark writes into addresses: rows/s, and what the node and the workers pay.

    python -m benchmarks.spark_sink [--rows N] [--partitions 2] [--tasks 2] [--keys 1000] [--queue-rows N]

A batch write of generated rows (100-byte values, a key each) goes into a stream and into a queue; then a
stream that was filled is carried into another one by a streaming query. The noop sink with the same rows
says what making them costs. A first write warms Spark up. Seconds are of the wall clock, CPU is of the node
with its journal, and of Java with its workers.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.node import Node
from benchmarks.spark_place import spark_beside_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def spent(node: Node) -> tuple[float, float]:
    """CPU seconds of the node with its journal, and of everything else that this process has started."""
    of_node = node.pids
    return cpu_seconds(of_node), cpu_seconds(set(descendants(os.getpid())) - set(of_node))


def measure(what: str, rows: int, node: Node, act: Callable[[], None]) -> None:
    before = spent(node)
    began = time.perf_counter()
    act()
    wall = time.perf_counter() - began
    node_us, spark_us = ((now - then) / rows * 1e6 for now, then in zip(spent(node), before, strict=True))
    print(
        f"{what:22s} {rows:9,d} rows  {rows / wall:11,.0f} rows/s  node {node_us:6.2f} us/row  "
        f"Spark {spark_us:6.2f} us/row",
        flush=True,
    )


def generated(spark: SparkSession, rows: int, tasks: int, keys: int) -> DataFrame:
    frame = spark.range(0, rows, 1, tasks)
    return frame.selectExpr("lpad(CAST(id AS STRING), 100, 'x') AS value", f"CAST(id % {keys} AS STRING) AS key")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="into a stream")
    parser.add_argument("--queue-rows", type=int, default=50_000, help="into a queue")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1_000)
    given = parser.parse_args()
    with spark_beside_node() as (spark, node, folder):

        def write(frame: DataFrame, address: str) -> None:
            frame.write.format("enmasse").mode("append").options(url=node.url, address=address).save()

        node.declare("warm", addressType="stream", partitions=given.partitions)
        write(generated(spark, 200_000, given.tasks, given.keys), "warm")
        rows = generated(spark, given.rows, given.tasks, given.keys)
        measure("noop", given.rows, node, lambda: rows.write.format("noop").mode("overwrite").save())
        node.declare("stream", addressType="stream", partitions=given.partitions)
        measure("into a stream", given.rows, node, lambda: write(rows, "stream"))
        node.declare("queue", addressType="queue")
        few = generated(spark, given.queue_rows, given.tasks, given.keys)
        measure("into a queue", given.queue_rows, node, lambda: write(few, "queue"))
        node.declare("copy", addressType="stream", partitions=given.partitions)

        def carry() -> None:
            options = {"url": node.url, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(given.rows // 5)}
            frame = spark.readStream.format("enmasse").options(address="stream", **options).load()
            query = (
                frame.selectExpr("key", "value")
                .writeStream.format("enmasse")
                .options(url=node.url, address="copy", checkpointLocation=str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        measure("from stream to stream", given.rows, node, carry)


if __name__ == "__main__":
    main()
