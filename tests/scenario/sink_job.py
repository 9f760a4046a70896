"""A Spark driver that carries a stream into another stream and into a queue; made to be killed.

    python sink_job.py URL FOLDER run|finish

``run`` goes on until it is killed or its standard input ends, ``finish`` ends when nothing is left.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = 20
"""A query that failed is started again, as a runner does."""


def die_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def start(session: SparkSession, url: str, folder: Path, how: str) -> StreamingQuery:
    frame = (
        session.readStream.format("enmasse")
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
    writer = frame.writeStream.format("enmasse").options(url=url, checkpointLocation=str(folder / "checkpoint"))
    finishing = writer.trigger(availableNow=True) if how == "finish" else writer.trigger(processingTime="0 seconds")
    return finishing.start()


def main(url: str, folder: Path, how: str) -> None:
    threading.Thread(target=die_with_parent, daemon=True).start()
    session = start_session("sink", folder / "work", cores=2, quick=True, settings={"spark.driver.memory": "512m"})
    sys.stdout.write("running\n")
    sys.stdout.flush()
    for attempt in range(ATTEMPTS):
        try:
            start(session, url, folder, how).awaitTermination()
            break
        except StreamingQueryException as error:
            sys.stderr.write(f"attempt {attempt}: {error}\n")
    else:
        raise SystemExit(f"{ATTEMPTS} attempts failed")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
