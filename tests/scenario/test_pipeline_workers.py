"""Spark's Python workers: one set for all, forked from a daemon that has loaded what they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from enmasse.client.blocking import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.scenario.conftest import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _daemons(spark: SparkSession) -> dict[int, int]:
    """The daemon and its forks, and the parent of each."""
    gateway = spark.sparkContext._gateway  # nothing else tells
    assert gateway is not None
    found = {}
    for process in psutil.Process(gateway.proc.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "enmasse.pipeline.worker_daemon" in process.cmdline():
                found[process.pid] = process.ppid()
    return found


def test_functions_run_in_forks_of_the_daemon_that_reads_addresses(
    spark: SparkSession, stream_node: StreamNode
) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        for batch in batches:
            row = {
                "rows": [batch.num_rows],
                "parent": [os.getppid()],
                "zips": [len([part for part in sys.path if part.endswith(("pyspark.zip", ".jar"))])],
                "loaded": [sorted({"enmasse.pipeline.source.data_source", "pandas"} & set(sys.modules))],
            }
            yield pa.RecordBatch.from_pydict(row)

    address = stream_node.create("workers")
    with stream_node.connect() as connection:
        sender = connection.sender(address)
        for body in (b"1", b"2"):
            sender.send(Message(body))
    source = spark.read.format("enmasse").options(url=stream_node.url, address=address)
    told = source.load().mapInArrow(tell, "rows LONG, parent LONG, zips LONG, loaded ARRAY<STRING>").collect()
    assert sum(row["rows"] for row in told) == 2
    # Had functions and sources a daemon each, there would be two.
    daemons = {pid for pid, parent in _daemons(spark).items() if parent not in _daemons(spark)}
    assert {row["parent"] for row in told} == daemons
    for row in told:
        assert row["zips"] == 0
        assert row["loaded"] == ["enmasse.pipeline.source.data_source", "pandas"]
