"""The Spark source against a real node: every test reads through PySpark itself."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark.errors import PySparkException

from enmasse.client.blocking import Message
from enmasse.messaging.log.frame import encode_frame
from tests.support.polling import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

FRAME_FORMAT = 0x454D4601


def send(node: StreamNode, address: str, *bodies: Any, subject: str | None = None) -> None:
    with node.connect() as connection:
        messages = [Message(body, subject=subject or f"device-{n % 7}") for n, body in enumerate(bodies)]
        outcomes = connection.sender(address).send_all(messages, timeout=30)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def append_frame(node: StreamNode, address: str, partition: int, rows: int) -> None:
    frame = encode_frame(0, [0] * rows, [b"k"] * rows, [b"\0\x53\x75\xa0\x01"] * rows, [b"x"] * rows)
    with node.connect() as connection:
        properties = {"enmasse:partition": partition}
        sender = connection.sender(address, capabilities=("enmasse:frames",), properties=properties)
        assert str(sender.send_payload(frame, message_format=FRAME_FORMAT, timeout=30)) == "accepted"


class Reading:
    """Runs queries over one stream and keeps, batch by batch, what they were given."""

    def __init__(self, spark: SparkSession, node: StreamNode, checkpoint: Path) -> None:
        self._spark, self._node, self._checkpoint = spark, node, checkpoint
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}

    def stream(self, address: str, **options: str) -> DataFrame:
        chosen = {"url": self._node.url, "address": address, "startingOffsets": "earliest", **options}
        return self._spark.readStream.format("enmasse").options(**chosen).load()

    def _keep(self, frame: DataFrame, batch: int) -> None:
        rows = sorted((r["partition"], r["offset"], bytes(r["value"])) for r in frame.collect())
        assert self.batches.setdefault(batch, rows) == rows, "a batch that was read again differs"

    def start(self, address: str, **options: str) -> StreamingQuery:
        return (
            self.stream(address, **options)
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )

    @contextlib.contextmanager
    def running(self, address: str, **options: str) -> Iterator[StreamingQuery]:
        query = self.start(address, **options)
        try:
            yield query
        finally:
            query.stop()

    def read_available(self, address: str, **options: str) -> None:
        query = (
            self.stream(address, **options)
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def values(self) -> list[bytes]:
        return [value for batch in sorted(self.batches) for _, _, value in self.batches[batch]]

    def offsets(self) -> set[tuple[int, int]]:
        return {row[:2] for rows in self.batches.values() for row in rows}


@pytest.fixture
def reading(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Reading:
    return Reading(spark, stream_node, tmp_path / "checkpoint")


def table(spark: SparkSession, node: StreamNode, address: str, **options: str) -> DataFrame:
    return spark.read.format("enmasse").options(url=node.url, address=address, **options).load()


def test_spark_finds_the_source_and_reads_all_columns(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("t")
    before = time.time()
    send(stream_node, "t", b"bytes", "text", {"a": [1, None]}, subject="boiler")
    rows = table(spark, stream_node, "t").selectExpr("*", "unix_micros(timestamp) AS us").collect()
    assert [r["offset"] for r in rows] == [0, 1, 2]
    assert len({r["partition"] for r in rows}) == 1
    assert [bytes(r["value"]) for r in rows] == [b"bytes", b"text", b'{"a":[1,null]}']
    assert {bytes(r["key"]) for r in rows} == {b"boiler"}
    assert all(before - 1 < r["us"] / 1e6 < time.time() + 1 for r in rows)


def test_a_batch_read_takes_the_range_it_was_told(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("t")
    append_frame(stream_node, "t", 0, 1000)
    append_frame(stream_node, "t", 1, 500)
    assert table(spark, stream_node, "t").count() == 1500
    cut = table(spark, stream_node, "t", startingOffsets='{"0": 10, "1": 400}', endingOffsets='{"0": 20, "1": 403}')
    assert sorted((r["partition"], r["offset"]) for r in cut.collect()) == [
        *[(0, n) for n in range(10, 20)],
        *[(1, n) for n in range(400, 403)],
    ]
    split = table(spark, stream_node, "t", minPartitions="8")
    assert split.rdd.getNumPartitions() >= 8
    assert split.count() == 1500


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("t")
    assert table(spark, stream_node, "t").count() == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"address": "nowhere"}, "amqp:not-found"),
        ({"address": "q", "startingOffsets": "earliest"}, "startingOffsets has no meaning for queue"),
        ({"address": "t", "startingOffset": "latest"}, "startingOffset"),
        ({"address": "t", "startingOffsets": '{"9": 1}'}, "partition 9"),
    ],
)
def test_wrong_options_are_told_in_words(
    spark: SparkSession, stream_node: StreamNode, options: dict[str, str], complaint: str
) -> None:
    stream_node.create("t")
    stream_node.create("q", "queue")
    send(stream_node, "q", b"not lost")
    with pytest.raises(PySparkException, match=complaint):
        spark.read.format("enmasse").options(url=stream_node.url, **options).load().count()
    with stream_node.connect() as connection:
        delivery = connection.receiver("q").receive(timeout=10)
        assert delivery is not None
        assert delivery.payload.endswith(b"not lost")


def test_the_space_is_chosen_by_its_host_name(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", b"here")
    space = {"spaceType": "standard", "authentication": "none", "uid": "space-2", "generation": 1}
    stream_node.manage(lambda m: m.create("io.enmasse.space", "default/other", space))
    values = [bytes(row["value"]) for row in table(spark, stream_node, "t", space="demo.default").collect()]
    assert values == [b"here"]
    with pytest.raises(PySparkException, match="name the space: USER@SPACE"):
        table(spark, stream_node, "t").count()


def test_a_query_sees_each_row_once_as_it_comes(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", *[b"%d" % n for n in range(50)])
    with reading.running("t"):
        until(lambda: len(reading.values()) == 50)
        send(stream_node, "t", *[b"%d" % n for n in range(50, 120)])
        until(lambda: len(reading.values()) >= 120)
    assert sorted(reading.values(), key=int) == [b"%d" % n for n in range(120)]


def test_latest_skips_what_is_there(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", b"old")
    with reading.running("t", startingOffsets="latest") as query:
        until(lambda: query.recentProgress)
        send(stream_node, "t", b"new")
        until(reading.values)
    assert reading.values() == [b"new"]


def test_a_query_goes_on_at_its_checkpoint_with_the_batches_it_planned(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("t")
    send(stream_node, "t", *[b"%d" % n for n in range(100)])
    reading.read_available("t", maxOffsetsPerTrigger="30")
    assert [len(rows) for _, rows in sorted(reading.batches.items())] == [30, 30, 30, 10]
    send(stream_node, "t", *[b"%d" % n for n in range(100, 110)])
    reading.read_available("t", maxOffsetsPerTrigger="30")
    assert sorted(reading.values(), key=int) == [b"%d" % n for n in range(110)]
    assert len(reading.offsets()) == 110


def test_a_batch_that_failed_is_read_again_and_is_the_same(
    reading: Reading, stream_node: StreamNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_node.create("t")
    send(stream_node, "t", *[b"%d" % n for n in range(40)])
    keep = Reading._keep

    def keep_and_fail(self: Reading, frame: DataFrame, batch: int) -> None:
        keep(self, frame, batch)
        raise RuntimeError("the sink failed after it had everything")

    monkeypatch.setattr(Reading, "_keep", keep_and_fail)
    with pytest.raises(PySparkException, match="the sink failed"):
        reading.read_available("t")
    monkeypatch.setattr(Reading, "_keep", keep)
    send(stream_node, "t", *[b"%d" % n for n in range(40, 60)])
    reading.read_available("t")
    assert {batch: len(rows) for batch, rows in reading.batches.items()} == {0: 40, 1: 20}


def test_a_killed_node_costs_time_and_no_rows(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    with reading.running("t") as query:
        for round_ in range(3):
            rows = [b"%d" % n for n in range(round_ * 200, round_ * 200 + 200)]
            send(stream_node, "t", *rows)
            if round_:
                until(reading.values)
            stream_node.kill()
            time.sleep(0.5)
            stream_node.start()
        until(lambda: len(reading.values()) >= 600)
        assert query.isActive
    assert sorted(reading.values(), key=int) == [b"%d" % n for n in range(600)]


def test_an_address_made_anew_ends_the_query_or_is_read_from_its_start(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("t", uid="first")
    send(stream_node, "t", b"a", b"b")
    reading.read_available("t")
    stream_node.delete("t")
    stream_node.create("t", uid="second")
    send(stream_node, "t", b"c")
    with pytest.raises(PySparkException, match="first is gone"):
        reading.read_available("t")
    reading.read_available("t", failOnDataLoss="false")
    assert reading.values() == [b"a", b"b", b"c"]


def test_a_query_stops_while_it_waits_for_news(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    query = reading.start("t", pollTimeout="60m")
    until(lambda: query.status["message"] != "Initializing sources")
    query.stop()
    assert not query.isActive


def marks(node: StreamNode, address: str) -> list[list[int]]:
    found = node.manage(lambda m: m.read("io.enmasse.address", f"default/demo.{address}"))
    return [list(mark) for mark in found["partitionMarks"]]


def test_rows_that_retention_took_end_the_query_or_are_passed(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t", partitions=1)
    append_frame(stream_node, "t", 0, 5_000)
    reading.read_available("t")
    for _ in range(3):
        append_frame(stream_node, "t", 0, 5_000)
    stream_node.manage(lambda m: m.update("io.enmasse.address", "default/demo.t", {"retentionBytes": 1}))
    until(lambda: marks(stream_node, "t") == [[0, 15_000, 20_000]])
    with pytest.raises(PySparkException, match=r"partition 0: offsets 5000 to 14999 .*failOnDataLoss"):
        reading.read_available("t")
    reading.read_available("t", failOnDataLoss="false")
    assert reading.offsets() == {(0, n) for n in [*range(5_000), *range(15_000, 20_000)]}


def test_a_deleted_address_ends_the_query(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", b"a")
    with reading.running("t") as query:
        until(reading.values)
        stream_node.delete("t")
        until(lambda: not query.isActive)
    with pytest.raises(PySparkException, match=r"cannot read the stream 't' at .*amqp:not-found"):
        query.awaitTermination()


def test_a_query_may_begin_at_a_moment(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", *[b"%d" % n for n in range(20)])
    time.sleep(0.05)
    between_ms = int(time.time() * 1_000)
    time.sleep(0.05)
    send(stream_node, "t", *[b"%d" % n for n in range(20, 40)])
    moment = datetime.fromtimestamp(between_ms / 1_000, UTC).isoformat()
    reading.read_available("t", startingOffsets=moment)
    assert sorted(reading.values(), key=int) == [b"%d" % n for n in range(20, 40)]


def test_batches_are_bounded_in_bytes(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", *[b"%d" % n + b" " * 1_000 for n in range(400)])
    reading.read_available("t", maxBytesPerTrigger="100k")
    sizes = [sum(len(value) for _, _, value in rows) for rows in reading.batches.values()]
    assert len(sizes) >= 4
    assert max(sizes) <= 100 << 10
    assert sorted(map(int, reading.values())) == list(range(400))


def test_a_stream_gives_what_precedes_the_body_too(
    spark: SparkSession, stream_node: StreamNode, tmp_path: Path
) -> None:
    stream_node.create("t")
    with stream_node.connect() as connection:
        messages = [Message(b"x", subject=str(n % 3), properties={"n": n}) for n in range(30)]
        connection.sender("t").send_all(messages, timeout=30)
    chosen = {"url": stream_node.url, "startingOffsets": "earliest", "includeProperties": "true"}
    rows = (
        spark.readStream.format("enmasse")
        .options(**chosen, subscribe="t", includeHeaders="true")
        .load()
        .selectExpr("properties['n'] AS n", "address", "headers[0] AS h")
    )
    query = rows.writeStream.format("memory").queryName("heads").trigger(availableNow=True).start()
    query.awaitTermination(120)
    found = spark.table("heads").collect()
    assert sorted(int(row["n"]) for row in found) == list(range(30))
    assert {row["address"] for row in found} == {"t"}
    assert all(tuple(row["h"]) == ("n", row["n"], "long") for row in found)


def test_progress_shows_how_far_the_stream_is(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t", partitions=1)
    send(stream_node, "t", *[b"x"] * 30)
    reading.read_available("t", maxOffsetsPerTrigger="10")
    with reading.running("t", maxOffsetsPerTrigger="10", consumer="shop.hot", pollTimeout="200ms") as query:
        send(stream_node, "t", *[b"x"] * 5)
        until(lambda: len(reading.values()) == 35)
        until(lambda: query.recentProgress)
        source = query.recentProgress[-1]["sources"][0]
        assert json.loads(source["latestOffset"])["0"] == 35

        def consumers() -> Any:
            return stream_node.manage(lambda m: m.read("io.enmasse.address", "default/demo.t"))["consumers"]

        # Told when the query looks for more, so also while it is idle.
        until(lambda: consumers() == [{"name": "shop.hot", "partition": 0, "offset": 35, "lag": 0}])


def planners() -> set[int]:
    """Our Python processes in which Spark plans streaming queries."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("python_streaming_source_runner" in word for word in process.cmdline()):
                found.add(process.pid)
    return found


def test_nothing_is_left_of_a_query_that_was_stopped_while_it_waited(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("t")
    before = planners()
    query = reading.start("t", pollTimeout="60m")
    until(lambda: planners() - before and query.status["message"] != "Initializing sources")
    query.stop()
    until(lambda: not planners() - before)


def test_a_node_that_stays_away_ends_the_query_which_goes_on_later(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("t")
    send(stream_node, "t", b"1")
    with reading.running("t", retryTimeout="2s") as query:
        until(reading.values)
        stream_node.kill()
        until(lambda: not query.isActive)
    with pytest.raises(PySparkException, match="gave up after"):
        query.awaitTermination()
    stream_node.start()
    send(stream_node, "t", b"2")
    reading.read_available("t")
    assert reading.values() == [b"1", b"2"]
