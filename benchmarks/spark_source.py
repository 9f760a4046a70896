"""How fast a stream address flows into Spark: rows/s into the noop sink, and what the node pays.

    python benchmarks/spark_source.py [--rows N] [--frame-rows 4096] [--partitions 2] [--batch-rows N]

A node process is filled over AMQP with ready frames (100-byte bodies), then one streaming query reads
it all with Trigger.AvailableNow. A first query warms Spark up; of the measured one the first batch is
dropped. Rates are from the query's own progress (durations of its batches) and from the wall clock.
Frames of other lengths show what small frames cost: --frame-rows 1,20,100,1000,4096.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.client.blocking import connect
from enmasse.messaging.frame import encode_frame
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAME_FORMAT = 0x454D4601
BODY = b"x" * 100
HEAD = b"\0\x53\x75\xa0\x64"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Node:
    def __init__(self, folder: Path) -> None:
        command = ["node", "--data", str(folder), "--name", "node-0", "--listen", "127.0.0.1:0"]
        self._log = (folder / "node.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self._admin = f"amqp+unix://{folder}/nodes/node-0/admin.sock"
        with connect(self._admin) as connection:
            connection.management().create(
                "io.enmasse.space",
                "default/bench",
                {"spaceType": "standard", "authentication": "none", "uid": "bench", "generation": 1},
            )

    def create_stream(self, name: str, partitions: int) -> None:
        attributes = {
            "space": "default/bench",
            "address": name,
            "addressType": "stream",
            "partitions": partitions,
            "uid": name,
            "generation": 1,
        }
        with connect(self._admin) as connection:
            connection.management().create("io.enmasse.address", f"default/bench.{name}", attributes)

    def fill(self, name: str, partitions: int, rows: int, frame_rows: int) -> float:
        """Append so many rows to each partition; seconds taken."""
        began = time.perf_counter()
        with connect(self.url) as connection:
            for partition in range(partitions):
                properties = {"enmasse:partition": partition}
                with connection.sender(name, capabilities=("enmasse:frames",), properties=properties) as sender:
                    for sequence, first in enumerate(range(0, rows, frame_rows), 1):
                        count = min(frame_rows, rows - first)
                        frame = encode_frame(
                            0,
                            [0] * count,
                            [b"device-%03d" % (sequence % 100)] * count,
                            [HEAD] * count,
                            [BODY] * count,
                            producer=b"bench",
                            sequence=sequence,
                        )
                        outcome = sender.send_payload(frame, message_format=FRAME_FORMAT)
                        assert str(outcome) == "accepted", outcome
        return time.perf_counter() - began

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._log.close()


def read(spark: SparkSession, url: str, address: str, batch_rows: int, checkpoint: Path) -> tuple[int, float, float]:
    """Rows and seconds of all batches but the first, and seconds by the wall clock of the whole query."""
    rows = (
        spark.readStream.format("enmasse")
        .option("url", url)
        .option("address", address)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    began = time.perf_counter()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wall = time.perf_counter() - began
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
    counted = sum(progress["numInputRows"] for progress in batches)
    return counted, sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000, help="in all")
    parser.add_argument("--frame-rows", default="4096", help="rows of a frame; several, separated by commas")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=1_000_000, help="maxOffsetsPerTrigger")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    folder = Path(tempfile.mkdtemp(prefix="enmasse-spark-"))
    node = Node(folder)
    try:
        spark = start_session("benchmark", folder / "spark")
        frame_sizes = [int(size) for size in options.frame_rows.split(",")]
        warm = 200_000
        node.create_stream("warm", options.partitions)
        node.fill("warm", options.partitions, warm, 4096)
        read(spark, node.url, "warm", warm // 4, folder / "warm")
        for size in frame_sizes:
            # Small frames are slow, and a few of them show it.
            share = min(options.rows, size * 10_000) // options.partitions
            batch_rows = min(options.batch_rows, share * options.partitions // 6)
            name = f"rows-{size}"
            node.create_stream(name, options.partitions)
            filled = node.fill(name, options.partitions, share, size)
            before = cpu_seconds(node.process.pid)
            counted, seconds, wall = read(spark, node.url, name, batch_rows, folder / name)
            cpu = cpu_seconds(node.process.pid) - before
            total = share * options.partitions
            print(
                f"{size:5d} rows a frame  {total:9,d} rows  {counted / seconds:11,.0f} rows/s in batches  "
                f"{total / wall:11,.0f} rows/s wall  node {cpu / total * 1e6:6.3f} us/row  "
                f"filled at {total / filled:11,.0f} rows/s",
                flush=True,
            )
        spark.stop()
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
