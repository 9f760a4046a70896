"""A Spark driver to be killed: it writes to addresses, takes from a queue and fills tables, in one session.

    python killed_driver.py URL FOLDER

It ends with its standard input. A query that failed is started again, as a runner does. For each batch that a table
has got there is a line with the table's name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")

from enmasse.pipeline.lake.compaction import compact  # PySpark warns when it is imported
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.session import activate, start_session
from enmasse.pipeline.workers.environment import guard_source_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from enmasse.pipeline.lake.batches import Table

COMPACT_EVERY_S = 0.5
ROWS = 100
DEVICES = 7


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def start_sink(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Carry a stream into another stream and into a queue."""
    frame = (
        spark.readStream.format("enmasse")
        .options(url=url, address="in", startingOffsets="earliest", maxOffsetsPerTrigger="40", pollTimeout="200ms")
        .load()
        .selectExpr(
            "key",
            "value",
            "CAST(partition AS STRING) AS subject",
            "map('offset', offset) AS properties",
            "explode(array('out', 'q')) AS address",
        )
    )
    writer = frame.writeStream.format("enmasse").options(url=url, checkpointLocation=str(folder / "sink-checkpoint"))
    return writer.trigger(processingTime="0 seconds").start()


def start_taking(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Write what a queue gives, one file for each batch."""
    tables = folder / "table"
    tables.mkdir(exist_ok=True)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [[row["offset"], bytes(row["value"]).decode()] for row in frame.sort("offset").collect()]
        path = tables / f"{batch}.json"
        if path.exists():
            if json.loads(path.read_text()) != rows:
                (folder / "differs").write_text(f"batch {batch} was read again and differs")
            return
        temporary = tables / f".{batch}"
        temporary.write_text(json.dumps(rows))
        temporary.rename(path)

    checkpoint = str(folder / "taking-checkpoint")
    options = {"url": url, "address": "orders", "spoolDir": str(folder / "spool"), "checkpointLocation": checkpoint}
    frame = (
        spark.readStream.format("enmasse").options(**options, maxOffsetsPerTrigger="40", retryTimeout="20s").load()
    )
    return frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).start()


def telling(table: Table) -> Callable[[DataFrame, int], None]:
    def add(frame: DataFrame, batch: int) -> None:
        table.add(frame, batch)
        say(table.path.name)

    return add


def start_table(spark: SparkSession, folder: Path, *, is_updated: bool) -> StreamingQuery:
    """Bring rows into a table that are the same however often they are read."""
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .load()
    )
    frame = numbers.selectExpr(
        f"concat('device-', value % {DEVICES}) AS device",
        "value AS n",
        "timestamp_seconds(1769860800 - 86400 * (value % 3)) AS ts",
    )
    lake = folder / "lake"
    if is_updated:
        table = open_table(lake / "last", mode="update", keys=["device"], order_by="n")
        frame = frame.select("device", "n")
    else:
        table = open_table(lake / "readings", partition_by=["day"])
    checkpoint = folder / f"{table.path.name}-checkpoint"
    table.prepare(frame.schema, owner=f"test/{table.path.name}", checkpoint=checkpoint)
    writer = frame.writeStream.outputMode(table.mode).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="500 milliseconds").foreachBatch(telling(table)).start()


def compact_tables(folder: Path) -> None:
    while True:
        time.sleep(COMPACT_EVERY_S)
        for table in (folder / "lake").glob("*"):
            compact(table)


def keep_running(
    spark: SparkSession, start: Callable[[], StreamingQuery], gate: threading.Lock, failures: Path
) -> None:
    # Writers are looked up in the active session of the thread.
    activate(spark)
    while True:
        try:
            # One after the other, as a runner has them begin.
            with gate:
                query = start()
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  # whatever it is, the next attempt shows whether it matters
            with failures.open("a") as log:
                log.write(f"{str(error)[:2000]}\n\n")
            time.sleep(0.5)


def main(url: str, folder: Path) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = start_session("driver", folder / "work", cores=2, quick=True, settings={"spark.driver.memory": "512m"})
    guard_source_environment(spark)
    gate = threading.Lock()
    starts = [
        partial(start_sink, spark, url, folder),
        partial(start_taking, spark, url, folder),
        partial(start_table, spark, folder, is_updated=False),
        partial(start_table, spark, folder, is_updated=True),
    ]
    threading.Thread(target=compact_tables, args=(folder,), daemon=True).start()
    threads = [
        threading.Thread(target=keep_running, args=(spark, start, gate, folder / "failures")) for start in starts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
