"""How fast a declared Pipeline turns a stream of JSON into windows in a Delta table, beside the same job on Kafka.

    python -m benchmarks.spark_windows [--rows 10000000] [--rounds 2] [--no-peers]

A runner gets the Pipeline as its host gives it: a source with a schema and a watermark, SQL with windows of ten
seconds, a table. The same job on Spark's own source of Kafka is a program of its user: ``from_json``, the same
windows, the same kind of table. Both read the same rows in batches of equal size with ``availableNow``, in turns,
each in a process of its own with the same heap; a server that is not read from rests. Rates are by the clock, from
the start of the process, and of all batches but the first; CPU is what the server and everything of Spark used.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.accounting import cpu_seconds, descendants
from benchmarks.kafka import Kafka
from benchmarks.spark_place import Runner, fill, node_in_folder
from benchmarks.spark_source import as_json
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from benchmarks.node import Node

SCHEMA = "device STRING, temperature DOUBLE, ts LONG"
READINGS = "SELECT device, temperature, timestamp_millis(ts) AS at FROM readings"
WINDOWS = (
    "SELECT window.start AS start, device, avg(temperature) AS mean, stddev(temperature) AS deviation, count(*) AS n "
    "FROM timed GROUP BY window(at, '10 seconds'), device"
)
PARTITIONS = 2
HEAP = "1g"


class Run(NamedTuple):
    """What one job took."""

    seconds: float
    """From the start of its process to its end."""
    in_batches: float
    """Rows a second, of all batches but the first."""
    cpu_s: float
    """Of the server and everything of Spark."""
    table_rows: int
    """For both jobs must have come to the same."""


def through_the_resource(node: Node, folder: Path, batch_rows: int) -> Run:
    """The Pipeline, by a runner."""
    spec: dict[str, Any] = {
        "trigger": "availableNow",
        "sources": [
            {"name": "readings", "address": "json", "format": "json", "schema": SCHEMA, "maxRowsPerBatch": batch_rows}
        ],
        "steps": [{"name": "timed", "sql": READINGS}, {"name": "windows", "sql": WINDOWS}],
        "sinks": [{"input": "windows", "table": "windows", "mode": "complete"}],
    }
    before = cpu_seconds(node.pids)
    began = time.perf_counter()
    runner = Runner(node.url, folder, "--memory", HEAP)
    try:
        runner.put("windows", spec, "json")
        batches: dict[int, tuple[int, int]] = {}
        while True:
            status = runner.next_status()
            for query in status.get("queries", ()):
                if query.get("batch") is not None:
                    batches[query["batch"]] = (query["rows"], query.get("batchDurationMs") or 0)
            states = {query["state"] for query in status.get("queries", ())}
            assert "Failed" not in states, status
            if states == {"Finished"}:
                break
        seconds = time.perf_counter() - began
        own = [runner.process.pid, *descendants(runner.process.pid)]
        cpu = cpu_seconds(own) + cpu_seconds(node.pids) - before
    finally:
        runner.stop()
    first, *later = sorted(batches)
    counted = batches[later[-1]][0] - batches[first][0]
    return Run(seconds, counted / (sum(batches[n][1] for n in later) / 1000), cpu, count(folder / "lake" / "windows"))


def on_kafka(servers: str, folder: Path, batch_rows: int) -> None:
    """The program of a user of Kafka; it says in JSON how it went."""
    from enmasse.pipeline.lake.tables import open_table  # noqa: PLC0415  # in this process alone

    settings = {"spark.jars": Kafka.jars(), "spark.driver.memory": HEAP}
    spark = start_session("on Kafka", folder / "spark", settings=settings)
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "json")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS r").select("r.*").createTempView("readings")
    spark.sql(READINGS).createTempView("timed")
    windows = spark.sql(WINDOWS)
    table = open_table(folder / "lake" / "windows", mode="complete")
    checkpoint = folder / "checkpoint"
    table.prepare(windows.schema, owner="benchmark", checkpoint=checkpoint)
    query = (
        windows.writeStream.outputMode("complete")
        .foreachBatch(table.add)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
    seconds = sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000
    print(json.dumps({"rate": sum(progress["numInputRows"] for progress in batches) / seconds}), flush=True)
    sys.stdin.read()  # its CPU is read before it ends


def beside(kafka: Kafka, folder: Path, batch_rows: int) -> Run:
    """The program on Kafka, in a process of its own."""
    before = cpu_seconds([kafka.pid])
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.spark_windows", "--on-kafka", kafka.servers, str(folder)]
    process = subprocess.Popen(
        [*command, "--batch-rows", str(batch_rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        seconds = time.perf_counter() - began
        cpu = cpu_seconds([process.pid, *descendants(process.pid)]) + cpu_seconds([kafka.pid]) - before
    finally:
        process.communicate()
    return Run(seconds, said["rate"], cpu, count(folder / "lake" / "windows"))


def count(table: Path) -> int:
    from deltalake import DeltaTable  # noqa: PLC0415  # slow to load

    return int(DeltaTable(table).to_pyarrow_table().num_rows)


def copy(node: Node, kafka: Kafka, folder: Path) -> None:
    """Bring the very same rows to Kafka, in batches as large as it takes."""
    spark = start_session("copy", folder / "copy", settings={"spark.jars": Kafka.jars()})
    try:
        columns = spark.read.format("enmasse").options(url=node.url).load("json").select("partition", "key", "value")
        tuned = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "50"}
        where = {"kafka.bootstrap.servers": kafka.servers, "topic": "json"}
        columns.write.format("kafka").options(**where, **tuned).save()
    finally:
        spark.stop()


def say(what: str, run: Run, rows: int) -> None:
    print(
        f"{what:<24} {run.seconds:6.1f} s in all, {rows / run.seconds:9,.0f} rows/s; {run.in_batches:9,.0f} rows/s "
        f"in batches; {run.cpu_s / rows * 1e6:5.2f} us CPU a row; {run.table_rows:,} rows in the table",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true", help="without Kafka")
    parser.add_argument("--on-kafka", nargs=2, metavar=("SERVERS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.on_kafka:
        on_kafka(options.on_kafka[0], Path(options.on_kafka[1]), options.batch_rows)
        return
    with ExitStack() as stack:
        node, folder = stack.enter_context(node_in_folder())
        fill(node, "json", [range(options.rows // PARTITIONS)] * PARTITIONS, as_json)
        kafka = None
        if not options.no_peers and Kafka.is_installed():
            kafka = Kafka(folder, PARTITIONS)
            stack.callback(kafka.stop)
            copy(node, kafka, folder)
        elif not options.no_peers:
            print(f"Not here to compare with: {Kafka.INSTALL}", flush=True)
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(through_the_resource(node, Path(tempfile.mkdtemp(dir=folder)), options.batch_rows))
            say("EnMasse, a Pipeline", ours[-1], options.rows)
            if kafka is not None:
                theirs.append(beside(kafka, Path(tempfile.mkdtemp(dir=folder)), options.batch_rows))
                say(f"{kafka.name}, a program", theirs[-1], options.rows)
        if theirs:
            clock = min(run.seconds for run in theirs) / min(run.seconds for run in ours)
            steady = max(run.in_batches for run in ours) / max(run.in_batches for run in theirs)
            cpu = min(run.cpu_s for run in ours) / min(run.cpu_s for run in theirs)
            print(
                f"EnMasse : Kafka          {clock:.2f} by the clock, {steady:.2f} in batches, {cpu:.2f} times the CPU"
            )


if __name__ == "__main__":
    main()
