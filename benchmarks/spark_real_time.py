"""Spark's real-time mode beside micro-batches, with nothing of ours in it: how long from a row to whom it is written.

    python -m benchmarks.spark_real_time [--rate 50] [--seconds 30] [--warm-up 20] [--case filter]

Rows come from a source in Java's memory, one at a time at a steady rate, and are written by a ``ForeachWriter`` in
Java as datagrams to this process. A row's latency counts from the call that adds it. The real-time mode takes no
source in Python, so this is the floor of one in the JVM. ``refused`` tries the steps in Python, and prints what Spark
does with them. Needs a JDK (``javac``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_WRITER = """\
import java.net.*;
import org.apache.spark.sql.*;

public class Datagrams extends ForeachWriter<Row> {
  private final int port;
  private transient DatagramSocket socket;

  public Datagrams(int port) { this.port = port; }

  public boolean open(long partition, long epoch) {
    try { socket = new DatagramSocket(); } catch (SocketException error) { throw new RuntimeException(error); }
    return true;
  }

  public void process(Row row) {
    try {
      byte[] sent = row.getAs("sent").toString().getBytes();
      socket.send(new DatagramPacket(sent, sent.length, InetAddress.getLoopbackAddress(), port));
    } catch (java.io.IOException error) { throw new RuntimeException(error); }
  }

  public void close(Throwable error) { if (socket != null) socket.close(); }
}
"""
_SPARK = "org.apache.spark.sql.execution.streaming"
_SOURCES = {"real-time": f"{_SPARK}.sources.LowLatencyMemoryStream", "micro-batch": f"{_SPARK}.runtime.MemoryStream"}
_TRIGGERS: dict[str, dict[str, Any]] = {
    "real-time": {"realTime": "5 seconds"},
    "micro-batch": {"processingTime": "0 seconds"},
}


class _AsTheyAre(StatefulProcessor):
    """A program with state that gives its rows as they are."""

    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803  # names are Spark's
        yield from rows

    def close(self) -> None: ...


def _windows(rows: DataFrame) -> DataFrame:
    timed = rows.withColumn("at", functions.timestamp_micros("sent")).withWatermark("at", "10 seconds")
    grouped = timed.groupBy(functions.window("at", "5 seconds"), "device")
    return grouped.agg(functions.max("sent").alias("sent"), functions.max("value").alias("value"))


CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filter": lambda rows: rows.where("value > 0"),
    "aggregate": lambda rows: rows.groupBy("device").agg(functions.max("sent").alias("sent")),
    "window": _windows,
    "duplicates": lambda rows: rows.dropDuplicates(["sent"]),
}
IN_PYTHON: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a function for each value": lambda rows: rows.where(functions.udf(lambda value: value > 0, "boolean")("value")),
    "mapInArrow": lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
    "transformWithStateInPandas": lambda rows: rows.groupBy("device").transformWithStateInPandas(
        _AsTheyAre(), rows.schema, "update", "none"
    ),
}


def session(folder: Path) -> SparkSession:
    """Return a session that has the writer's class on its path, and RocksDB as state."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if shutil.which("javac") is None:
        raise SystemExit("this needs a JDK: apt-get install openjdk-17-jdk-headless")
    jars = Path(functions.__file__).parents[2] / "jars"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    source = folder / "Datagrams.java"
    source.write_text(_WRITER)
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", folder, source], check=True, stderr=subprocess.DEVNULL)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraClassPath": str(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": f"{_SPARK}.state.RocksDBStateStoreProvider",
    }
    # A real-time batch needs a slot for each of its tasks, those after a shuffle as well.
    return SparkSession.Builder().master("local[4]").config(map=settings).getOrCreate()


class Feed:
    """A source in Java's memory, and the query that reads it.

    Args:
        spark: the session.
        mode: ``real-time`` or ``micro-batch``.
        step: a case.
        port: where the rows are written to.
    """

    def __init__(self, spark: SparkSession, mode: str, step: Callable[[DataFrame], DataFrame], port: int) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        strings = jvm.org.apache.spark.sql.Encoders.STRING()
        source: Any = getattr(jvm, _SOURCES[mode])
        self._source = source.apply(spark._jsparkSession, 1, strings)
        fields = functions.split("value", ",")
        rows = DataFrame(self._source.toDF(), spark).select(
            fields[0].cast("long").alias("sent"), fields[1].cast("double").alias("value"), fields[2].alias("device")
        )
        writer: Any = step(rows).writeStream.outputMode("update").trigger(**_TRIGGERS[mode])
        # Python's foreach would put a worker between.
        writer._jwrite = writer._jwrite.foreach(jvm.Datagrams(port))  # noqa: SLF001
        self.query: StreamingQuery = writer.option("checkpointLocation", tempfile.mkdtemp()).start()

    def send(self) -> None:
        """Add one row, which has the moment in microseconds."""
        rows = self._jvm.java.util.ArrayList()
        rows.add(f"{time.time_ns() // 1000},30.5,pump")
        self._source.addData(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(rows).toSeq())

    def run(self, rate: float, seconds: float) -> None:
        """Add rows at a steady rate."""
        begin = time.monotonic()
        for number in range(round(rate * seconds)):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            self.send()


def measure(spark: SparkSession, mode: str, case: str, options: argparse.Namespace) -> None:
    """Print how long rows take in one case, by one mode."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.settimeout(10)
        feed = Feed(spark, mode, CASES[case], heard.getsockname()[1])
        sending = threading.Thread(target=feed.run, args=(options.rate, options.warm_up + options.seconds))
        sending.start()
        warm = time.time() + options.warm_up
        took: list[float] = []
        try:
            while sending.is_alive():
                sent = int(heard.recv(64))
                if sent / 1e6 > warm:
                    took.append(time.time_ns() / 1e6 - sent / 1e3)
        except TimeoutError:
            print(f"{case:12} {mode:12} {feed.query.exception() or 'nothing came'}")
        sending.join()
        feed.query.stop()
    if took := sorted(took):
        p50, p99 = took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.99))]
        print(f"{case:12} {mode:12} {len(took)} rows written  p50 {p50:.0f} ms  p99 {p99:.0f} ms", flush=True)


def try_python(spark: SparkSession, name: str) -> None:
    """Print what Spark says to a step in Python in real-time mode."""
    try:
        feed = Feed(spark, "real-time", IN_PYTHON[name], 9)
        feed.send()
        feed.query.awaitTermination(20)
        said: Exception | None = feed.query.exception()
        feed.query.stop()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        said = error
    print(f"{name}: {str(said).partition(' To bypass')[0].splitlines()[0] if said else 'runs'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50, help="rows a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--case", choices=[*CASES, "refused"], action="append", help="left out: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="enmasse-real-time-") as folder:
        spark = session(Path(folder))
        for case in options.case or [*CASES, "refused"]:
            if case == "refused":
                for name in IN_PYTHON:
                    try_python(spark, name)
                continue
            for mode in _SOURCES:
                measure(spark, mode, case, options)
        spark.stop()


if __name__ == "__main__":
    main()
