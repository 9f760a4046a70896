"""Writes numbered batches as a task of Spark would, without Spark; made to be killed.

    python sink_worker.py URL FOLDER BATCHES

A batch counts as done once FOLDER/done says so; it begins with the first that is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from enmasse.pipeline.sink.connection import SpaceConnection
from enmasse.pipeline.sink.identity import Identity
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.task import SinkTask

ROWS = 120
ADDRESSES = ("out", "q", "t")


def batch_of(number: int) -> pa.RecordBatch:
    rows = range(number * ROWS, (number + 1) * ROWS)
    return pa.record_batch(
        {
            "value": [str(row) for row in rows],
            "subject": [f"device-{row % 17}" for row in rows],
            "address": [ADDRESSES[row % len(ADDRESSES)] for row in rows],
        }
    )


def main(url: str, folder: Path, batches: int) -> None:
    options = SinkOptions(url=url)
    kept: list[SpaceConnection] = []

    def connect() -> SpaceConnection:
        if not kept or not kept[0].is_usable:
            while kept:
                kept.pop().close()
            kept.append(SpaceConnection(options))
        return kept[0]

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    done = folder / "done"
    for number in range(int(done.read_text()) if done.exists() else 0, batches):
        SinkTask(options, Identity("query", number, 0), connect).write([batch_of(number)])
        done.with_suffix(".new").write_text(str(number + 1))
        done.with_suffix(".new").replace(done)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
