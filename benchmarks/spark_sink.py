"""How fast Spark writes into addresses: rows/s, and what the node and the workers pay.

    python benchmarks/spark_sink.py [--rows N] [--partitions 2] [--tasks 2] [--keys 1000] [--queue-rows N]

A batch write of generated rows (100-byte values, a key each) goes into a stream and into a queue; then a
stream that was filled is carried into another one by a streaming query. The noop sink with the same rows
says what making them costs. A first write warms Spark up. Seconds are of the wall clock, CPU is of the node
with its journal, and of Java with its workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.node import Node
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def spent(node: Node) -> tuple[float, float]:
    """CPU seconds of the node with its journal, and of everything else that this process has started."""
    of_node = [pid for pids in node.processes.values() for pid in pids]
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
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    folder = Path(tempfile.mkdtemp(prefix="enmasse-spark-"))
    node = Node(folder)
    try:
        spark = start_session("benchmark", folder / "spark")

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
        spark.stop()
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
