"""Spark's Python workers: one set for all, forked from a daemon that has loaded what they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

from enmasse.client.blocking import Message
from enmasse.pipeline.session import activate
from enmasse.pipeline.workers.environment import guard_source_environment, source_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _daemons(spark: SparkSession) -> list[int]:
    """Those that Spark has started for functions and for sources: it names them, and the zygote forks them."""
    gateway = spark.sparkContext._gateway  # nothing else tells
    assert gateway is not None
    found = []
    for process in psutil.Process(gateway.proc.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "enmasse.pipeline.workers.daemon" in process.cmdline():
                found.append(process.pid)
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
    assert len(_daemons(spark)) == 1
    (daemon,) = {row["parent"] for row in told}
    zygote = psutil.Process(daemon).parent()
    assert zygote is not None
    assert "enmasse.pipeline.workers.zygote" in zygote.cmdline()
    for row in told:
        assert row["zips"] == 0
        assert row["loaded"] == ["enmasse.pipeline.source.data_source", "pandas"]


def test_what_queries_share_when_they_begin_may_be_written_by_several_at_once(
    spark: SparkSession, stream_node: StreamNode, tmp_path: Path
) -> None:
    address = stream_node.create("environment")
    guard_source_environment(spark)
    session = spark.newSession()
    environment = source_environment(session)
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert "PYTHONPATH" in set(environment)
    # All sessions of this Java share it.
    environment.remove("SPARK_BUFFER_SIZE")
    # Sources are looked up in the thread's active session.
    activate(session)
    try:
        source = session.readStream.format("enmasse").options(url=stream_node.url, address=address).load()
        writer = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
    finally:
        activate(spark)
    assert "SPARK_BUFFER_SIZE" in set(environment)


def test_java_is_asked_once_what_a_name_stands_for(spark: SparkSession) -> None:
    java: Any = spark._jvm
    asked = java.org.apache.spark.sql.functions
    assert java.org.apache.spark.sql.functions is asked
    assert java.SparkSession is java.SparkSession
    assert java.org.apache.spark.sql.functions.lit(1).toString() == "1"
