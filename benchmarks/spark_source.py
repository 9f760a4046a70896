"""How fast a stream address flows into Spark, beside Kafka and Spark's own source of it in the same run.

    python -m benchmarks.spark_source [--case TEXT] [--rows N] [--rounds N] [--frame-rows 4096] [--no-peers]

A node process is filled over AMQP with ready frames (100-byte bodies), then a streaming query reads it
all with Trigger.AvailableNow in batches of equal size. A first query warms each source up; of a measured
one the first batch is dropped. Rates are from the query's own progress (durations of its batches) and from
the wall clock. CPU is what the server and everything of Spark used for a row.

    noop    rows into the noop sink: ours, Kafka, ours, Kafka; Kafka holds the very same rows, copied
            from the stream by Spark
    heads   the same, with what precedes the body (includeProperties)
    frames  what small frames cost (--frame-rows 1,20,100,1000,4096)
    json    from_json, then mean and deviation per device in windows of 10 seconds
    memory  the most that Spark's processes hold while ten million rows of backlog are read
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions

from benchmarks.accounting import AnonymousPeak, anonymous_bytes, cpu_seconds, descendants
from benchmarks.kafka import Kafka
from benchmarks.spark_place import Columns, fill, spark_beside_node

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.node import Node

DEVICES = [b"device-%03d" % n for n in range(100)]
STARTED_MS = 1_769_860_800_000
ZYGOTE = b"enmasse.pipeline.workers.zygote"
"""In the command line of it and of its forks."""
CASES = ("noop", "heads", "json", "memory", "frames")


def plain(numbers: range) -> Columns:
    return Columns([0] * len(numbers), keys(numbers), [b"x" * 100] * len(numbers))


def as_json(numbers: range) -> Columns:
    """100 devices that each tell a temperature every 100 ms."""
    bodies = [
        (
            b'{"device": "device-%03d", "temperature": %d.%d, "ts": %d}'
            % (n % 100, 15 + n % 17, n % 10, STARTED_MS + n)
        )
        for n in numbers
    ]
    return Columns([0] * len(numbers), keys(numbers), [body.ljust(100) for body in bodies])


def keys(numbers: range) -> list[bytes]:
    """One for all that come at once."""
    return [DEVICES[numbers.start // len(numbers) % 100]] * len(numbers)


class Rates(NamedTuple):
    """What one query showed."""

    in_batches: float
    """Rows a second, of all batches but the first."""
    wall: float
    """Rows a second by the clock, with start and end."""
    cpu_us: float
    """Microseconds of the server and all of Spark for a row."""

    def __str__(self) -> str:
        return f"{self.in_batches:11,.0f} rows/s in batches {self.wall:11,.0f} wall {self.cpu_us:6.2f} us CPU a row"


class Bench:
    """One Spark session and what it reads.

    Args:
        spark: the session.
        folder: for checkpoints.
        node: which is filled.
    """

    def __init__(self, spark: SparkSession, folder: Path, node: Node) -> None:
        self.spark = spark
        self.node = node
        self._folder = folder
        self._queries = 0

    def stream(self, address: str, batch_rows: int, **more: str) -> DataFrame:
        """A stream of ours."""
        chosen = {"url": self.node.url, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch_rows)}
        return self.spark.readStream.format("enmasse").options(**chosen, **more).load(address)

    def topic(self, kafka: Kafka, name: str, batch_rows: int) -> DataFrame:
        """A topic of Kafka's, as Spark itself reads it."""
        chosen = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch_rows)}
        return self.spark.readStream.format("kafka").options(**kafka_at(kafka), **chosen).load()

    def run(self, rows: DataFrame, server: Callable[[], Iterable[int]], mode: str = "append") -> Rates:
        """Read it all into the noop sink."""
        self._queries += 1
        before = self._cpu(server())
        began = time.perf_counter()
        query = (
            rows.writeStream.format("noop")
            .outputMode(mode)
            .option("checkpointLocation", str(self._folder / f"query-{self._queries}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        wall = time.perf_counter() - began
        cpu = self._cpu(server()) - before
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        total = sum(progress["numInputRows"] for progress in batches)
        counted = sum(progress["numInputRows"] for progress in batches[1:])
        seconds = sum(progress["durationMs"]["triggerExecution"] for progress in batches[1:]) / 1000
        return Rates(counted / max(seconds, 1e-9), total / wall, cpu / max(1, total) * 1e6)

    def _cpu(self, server: Iterable[int]) -> float:
        """Of the server, and of Java and its Python workers that still run."""
        return cpu_seconds([*server, *self.processes()])

    def processes(self) -> list[int]:
        """Java and the Python processes that it has asked for."""
        return [*self.java(), *self.python()]

    def java(self) -> list[int]:
        """The driver, whose executor is in the same process."""
        gateway = self.spark.sparkContext._gateway  # nothing else tells
        assert gateway is not None
        return [gateway.proc.pid]

    def python(self) -> list[int]:
        """Planners and workers, and the process from which they are forked: it is ours, not Java's."""
        return [*descendants(self.java()[0]), *(pid for pid in descendants(os.getpid()) if _is_fork(pid))]

    def nodes(self) -> list[int]:
        """The node and its journal."""
        return self.node.pids


def _is_fork(pid: int) -> bool:
    with suppress(OSError):  # it has ended
        return ZYGOTE in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def kafka_at(kafka: Kafka) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.servers}


def say(what: str, text: object) -> None:
    print(f"{what:<28} {text}", flush=True)


def beside_kafka(bench: Bench, rows: int, batch_rows: int, partitions: int, rounds: int, kafka: Kafka | None) -> None:
    """The same rows from both, in turns."""
    fill(bench.node, "noop", [range(rows // partitions)] * partitions, plain)
    warm = max(1, batch_rows // 4)
    bench.run(bench.stream("noop", warm), bench.nodes)
    if kafka is not None:
        copied = bench.spark.read.format("enmasse").options(url=bench.node.url).load("noop")
        columns = copied.select("partition", "key", "value")
        # As large as a batch of Kafka's can be, so that reading is not slowed down by how it was written.
        tuned = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "50"}
        columns.write.format("kafka").options(**kafka_at(kafka), **tuned, topic="noop").save()
        bench.run(bench.topic(kafka, "noop", warm), lambda: [kafka.pid])
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(bench.run(bench.stream("noop", batch_rows), bench.nodes))
        say("noop, EnMasse", ours[-1])
        if kafka is not None:
            theirs.append(bench.run(bench.topic(kafka, "noop", batch_rows), lambda: [kafka.pid]))
            say(f"noop, {kafka.name}", theirs[-1])
    if theirs:
        best = max(rate.in_batches for rate in ours) / max(rate.in_batches for rate in theirs)
        cpu = min(rate.cpu_us for rate in ours) / min(rate.cpu_us for rate in theirs)
        say("EnMasse : Kafka", f"{best:.2f} times the rows a second, {cpu:.2f} times the CPU (best of {rounds} each)")


def with_heads(bench: Bench, rows: int, batch_rows: int, partitions: int, rounds: int) -> None:
    fill(bench.node, "heads", [range(rows // partitions)] * partitions, plain)
    for _ in range(rounds):
        say("heads", bench.run(bench.stream("heads", batch_rows, includeProperties="true"), bench.nodes))


def windows(bench: Bench, rows: int, batch_rows: int, partitions: int, rounds: int) -> None:
    """JSON of 100 bytes, parsed, and then mean and deviation per device."""
    fill(bench.node, "json", [range(rows // partitions)] * partitions, as_json)
    for _ in range(rounds):
        parsed = bench.stream("json", batch_rows).select(
            functions.from_json(functions.col("value").cast("string"), "device STRING, temperature DOUBLE, ts LONG")
        )
        readings = parsed.toDF("r").selectExpr("r.device", "r.temperature", "timestamp_millis(r.ts) AS at")
        say("json", bench.run(readings, bench.nodes))
        windowed = (
            readings.withWatermark("at", "10 seconds")
            .groupBy(functions.window("at", "10 seconds"), "device")
            .agg(functions.mean("temperature"), functions.stddev("temperature"), functions.count("*"))
        )
        say("json, 10 s window", bench.run(windowed, bench.nodes, "update"))


def memory(bench: Bench, rows: int, batch_rows: int, partitions: int) -> None:
    """What Java and its Python processes hold at most while a backlog is read, in one batch and in bounded ones."""
    fill(bench.node, "backlog", [range(rows // partitions)] * partitions, plain)
    for name, limit in (("bounded batches", batch_rows), ("one batch", rows)):
        before = [anonymous_bytes(pids) >> 20 for pids in (bench.java(), bench.python())]
        with AnonymousPeak(bench.java) as java, AnonymousPeak(bench.python) as python:
            rates = bench.run(bench.stream("backlog", limit), bench.nodes)
        say(f"{rows:,} rows, {name}", rates)
        say("", f"Java {before[0]} -> {java.bytes >> 20} MB, Python {before[1]} -> {python.bytes >> 20} MB at most")


def frames(bench: Bench, rows: int, batch_rows: int, partitions: int, sizes: list[int]) -> None:
    """What small frames cost; a few of them show it."""
    for size in sizes:
        share = min(rows, size * 10_000) // partitions
        name = f"rows-{size}"
        fill(bench.node, name, [range(share)] * partitions, plain, frame_rows=size)
        say(f"{size} rows a frame", bench.run(bench.stream(name, min(batch_rows, share // 3)), bench.nodes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="noop,frames", help=f"some of {', '.join(CASES)}, separated by commas")
    parser.add_argument("--rows", type=int, default=6_000_000, help="in all (memory: 10,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each source")
    parser.add_argument("--frame-rows", default="1,100,4096", help="rows of a frame; several, separated by commas")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch-rows", type=int, default=1_000_000, help="maxOffsetsPerTrigger")
    parser.add_argument("--no-peers", action="store_true", help="without Kafka")
    options = parser.parse_args()
    cases = options.case.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    with_kafka = "noop" in cases and not options.no_peers
    if with_kafka and not Kafka.is_installed():
        print(f"Not here to compare with: {Kafka.INSTALL}", flush=True)
        with_kafka = False
    # Whoever ends us this way, too, wants the servers stopped.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with ExitStack() as stack:
        jars = {"spark.jars": Kafka.jars()} if with_kafka else {}
        spark, node, folder = stack.enter_context(spark_beside_node(jars))
        bench = Bench(spark, folder, node)
        how = (options.rows, options.batch_rows, options.partitions)
        if "noop" in cases:
            kafka = Kafka(folder, options.partitions) if with_kafka else None
            if kafka is not None:
                stack.callback(kafka.stop)
            beside_kafka(bench, *how, options.rounds, kafka)
            if kafka is not None:
                kafka.stop()
        if "heads" in cases:
            with_heads(bench, *how, options.rounds)
        if "json" in cases:
            windows(bench, *how, options.rounds)
        if "memory" in cases:
            memory(bench, max(options.rows, 10_000_000), *how[1:])
        if "frames" in cases:
            frames(bench, *how, [int(size) for size in options.frame_rows.split(",")])


if __name__ == "__main__":
    main()
