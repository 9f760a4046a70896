"""Spark reads queues, subscriptions, topics and direct addresses of a real node; python-qpid-proton sends."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from enmasse.client.blocking import connect
from enmasse.messaging.patterns import SUBTREE_CAPABILITY
from tests.scenario.consumed_place import counts, numbers, send
from tests.support.polling import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


class Reading:
    """Runs queries over one address and keeps, batch by batch, what they were given."""

    def __init__(self, spark: SparkSession, node: StreamNode, folder: Path) -> None:
        self._spark, self._node = spark, node
        self.folder = folder
        self.batches: dict[int, list[tuple[int, bytes]]] = {}

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def frame(self, address: str, **options: str) -> DataFrame:
        chosen = {
            "url": self._node.url,
            "address": address,
            "spoolDir": str(self.spool),
            "checkpointLocation": str(self.checkpoint),
            **options,
        }
        return self._spark.readStream.format("enmasse").options(**chosen).load()

    def keep(self, frame: DataFrame, batch: int) -> None:
        rows = sorted((r["offset"], bytes(r["value"])) for r in frame.collect())
        assert self.batches.setdefault(batch, rows) == rows, "a batch that was read again differs"

    def writing(self, address: str, options: dict[str, str]) -> DataStreamWriter:
        writer = self.frame(address, **options).writeStream.foreachBatch(self.keep)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def start(self, address: str, **options: str) -> StreamingQuery:
        return self.writing(address, options).start()

    @contextlib.contextmanager
    def running(self, address: str, **options: str) -> Iterator[StreamingQuery]:
        query = self.start(address, **options)
        try:
            yield query
        finally:
            query.stop()

    def read_available(self, address: str, **options: str) -> None:
        query = self.writing(address, options).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    @property
    def values(self) -> list[bytes]:
        return [value for batch in sorted(self.batches) for _, value in self.batches[batch]]

    @property
    def files(self) -> list[str]:
        return [path.name for path in self.spool.glob("*.a*")]


@pytest.fixture
def reading(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Reading:
    return Reading(spark, stream_node, tmp_path / "query")


def test_a_queue_is_read_as_it_fills_and_emptied_as_batches_are_done(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("orders", "queue")
    send(stream_node, "orders", *numbers(0, 50))
    with reading.running("orders") as query:
        until(lambda: len(reading.values) == 50)
        # Without another message: the commit log alone says that the batch is done.
        until(lambda: counts(stream_node, "orders")["messagesStored"] == 0)
        send(stream_node, "orders", *numbers(50, 80))
        until(lambda: len(reading.values) == 80)
        until(lambda: not reading.files)
        assert query.exception() is None
    assert reading.values == numbers(0, 80)
    offsets = [offset for batch in sorted(reading.batches) for offset, _ in reading.batches[batch]]
    assert offsets == list(range(80))
    told = counts(stream_node, "orders")
    assert (told["messagesStored"], told["accepted"], told["modified"]) == (0, 80, 0)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_batch_that_failed_is_given_again_as_it_was(
    reading: Reading, stream_node: StreamNode, monkeypatch: pytest.MonkeyPatch, numbered: bool
) -> None:
    stream_node.create("orders", "queue")
    send(stream_node, "orders", *numbers(0, 40), numbered=numbered)
    keep = Reading.keep

    def keep_and_fail(self: Reading, frame: DataFrame, batch: int) -> None:
        keep(self, frame, batch)
        raise RuntimeError("the sink failed after it had everything")

    monkeypatch.setattr(Reading, "keep", keep_and_fail)
    for _ in range(3):
        query = reading.start("orders")
        with pytest.raises(PySparkException, match="the sink failed"):
            query.awaitTermination(60)
    # The address still has what it could give again, and nobody holds the failures against the messages.
    assert counts(stream_node, "orders")["messagesStored"] == (40 if numbered else 0)
    assert counts(stream_node, "orders")["modified"] == 0
    monkeypatch.setattr(Reading, "keep", keep)
    send(stream_node, "orders", *numbers(40, 60), numbered=numbered)
    with reading.running("orders"):
        until(lambda: len(reading.values) >= 60)
        until(lambda: counts(stream_node, "orders")["messagesStored"] == 0)
    assert reading.values == numbers(0, 60)


def test_a_query_that_ends_takes_what_was_there_when_it_began(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("orders", "queue")
    send(stream_node, "orders", *numbers(0, 95))
    reading.read_available("orders", maxOffsetsPerTrigger="30")
    assert [len(rows) for _, rows in sorted(reading.batches.items())] == [30, 30, 30, 5]
    until(lambda: counts(stream_node, "orders")["messagesStored"] == 0)
    reading.read_available("orders")
    assert reading.values == numbers(0, 95)
    ended = threading.Event()

    def send_on() -> None:
        number = 1000
        while not ended.is_set():
            send(stream_node, "orders", b"%d" % number)
            number += 1

    sender = threading.Thread(target=send_on)
    sender.start()
    try:
        until(lambda: counts(stream_node, "orders")["messagesStored"] >= 5)
        reading.read_available("orders", maxOffsetsPerTrigger="3")
    finally:
        ended.set()
        sender.join()
    assert len(reading.values) >= 100
    left = counts(stream_node, "orders")["messagesStored"]
    reading.read_available("orders")
    assert reading.values == [*numbers(0, 95), *numbers(1000, 1000 + len(reading.values) - 95)]
    assert left >= 0


def test_a_query_stops_at_once_and_what_it_had_not_done_is_given_back(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("orders", "queue")
    with reading.running("orders", pollTimeout="60m") as query:
        until(lambda: counts(stream_node, "orders")["receivers"] == 1)
        began = time.monotonic()
        query.stop()
        assert not query.isActive
        took = time.monotonic() - began
    until(lambda: counts(stream_node, "orders")["receivers"] == 0)
    send(stream_node, "orders", *numbers(0, 5))
    with reading.running("orders", maxOffsetsPerTrigger="2", pollTimeout="60m"):
        until(lambda: len(reading.values) == 5)
    assert took < 30, "not as long as it polls"


def test_all_that_is_said_of_a_message_is_in_columns(
    spark: SparkSession, reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("orders", "queue")
    before = time.time()
    send(stream_node, "orders", b"1", subject="boiler", content_type="text/plain", properties={"n": 5})
    frames = []

    def keep(frame: DataFrame, _batch: int) -> None:
        frames.append(frame.selectExpr("*", "unix_micros(timestamp) AS us").collect())

    query = (
        reading.frame("orders", includeProperties="true", includeHeaders="true")
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(reading.checkpoint))
        .start()
    )
    until(lambda: frames)
    query.stop()
    (row,) = frames[0]
    assert (row["partition"], row["offset"], bytes(row["key"]), bytes(row["value"])) == (0, 0, b"boiler", b"1")
    assert (row["content_type"], row["properties"], row["address"]) == ("text/plain", {"n": "5"}, "orders")
    assert [tuple(header) for header in row["headers"]] == [("n", "5", "long")]
    assert before - 1 < row["us"] / 1e6 < time.time() + 1


def test_a_subscription_is_read_like_a_queue(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("news", "topic")
    attributes = {"space": "default/demo", "address": "news-lake", "addressType": "subscription", "topic": "news"}
    stream_node.manage(lambda m: m.create("io.enmasse.address", "default/demo.news-lake", attributes))
    send(stream_node, "news", *numbers(0, 20))
    with reading.running("news::news-lake"):
        until(lambda: len(reading.values) == 20)
        until(lambda: counts(stream_node, "news-lake")["messagesStored"] == 0)
    assert reading.values == numbers(0, 20)


def test_a_topic_is_read_through_a_subscription_that_outlives_the_query(
    reading: Reading, stream_node: StreamNode
) -> None:
    stream_node.create("news", "topic")
    send(stream_node, "news", b"nobody has subscribed")
    with reading.running("news", subscription="lake"):
        # Before it has a spool, the one subscription may be that of the look at what "news" is, which ends.
        until(lambda: any(reading.spool.glob("*")) and counts(stream_node, "news")["subscriptions"] == 1)
        send(stream_node, "news", *numbers(0, 10))
        until(lambda: len(reading.values) == 10)
    # Beside a receiver of all names below it the subscription would stay what it is.
    until(lambda: all(link["name"] != "lake" for link in stream_node.manage(lambda m: m.query("io.enmasse.link"))))
    with connect(stream_node.url) as connection:
        # As an older version left it: a subscription to the topic alone.
        connection.receiver("news", name="lake", credit=0, durable=True, capabilities=("shared", "global"))
    send(stream_node, "news/sport", b"nobody has subscribed")
    send(stream_node, "news", *numbers(10, 20))
    stream_node.kill()
    stream_node.start()
    with reading.running("news", subscription="lake", includeTopicName="true"):
        until(lambda: len(reading.values) == 20)
        send(stream_node, "news/sport/chess", *numbers(20, 30))
        until(lambda: len(reading.values) == 30)
    assert reading.values == numbers(0, 30)
    assert counts(stream_node, "news")["subscriptions"] == 1
    with connect(stream_node.url) as connection:

        def unsubscribe() -> int:
            # Of the same source as the query's, which may be attached still.
            shared = ("shared", "global", SUBTREE_CAPABILITY)
            connection.receiver("news", name="lake", credit=0, durable=True, capabilities=shared).close()
            left: int = counts(stream_node, "news")["subscriptions"]
            return left

        # It goes with its last receiver, and the query's may be closing still.
        until(lambda: unsubscribe() == 0)


def test_an_anycast_sender_hears_that_its_message_is_done(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("work", "anycast")
    with reading.running("work"):
        until(lambda: counts(stream_node, "work")["receivers"] == 1)
        # Each of these waits until its message is accepted, which is when its batch is committed.
        send(stream_node, "work", *numbers(0, 3))
        assert reading.values == numbers(0, 3)
        send(stream_node, "work", *numbers(3, 20), numbered=False)
        until(lambda: len(reading.values) == 20)
    assert reading.values == numbers(0, 20)


def test_multicast_is_read_as_it_passes(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("ticks", "multicast")
    with reading.running("ticks"):
        until(lambda: counts(stream_node, "ticks")["receivers"] == 1)
        send(stream_node, "ticks", *numbers(0, 20))
        until(lambda: len(reading.values) == 20)
        until(lambda: not reading.files)
    assert reading.values == numbers(0, 20)


def test_a_batch_read_looks_at_a_queue_and_takes_nothing(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("orders", "queue")
    table = spark.read.format("enmasse").options(url=stream_node.url, address="orders")
    assert table.load().count() == 0
    send(stream_node, "orders", *numbers(0, 300))
    for _ in range(2):
        rows = table.load().select("offset", "value").collect()
        assert [(row["offset"], bytes(row["value"])) for row in rows] == list(enumerate(numbers(0, 300)))
    assert counts(stream_node, "orders")["messagesStored"] == 300


@pytest.mark.parametrize(
    ("address", "options", "complaint"),
    [
        ("orders", {"startingOffsets": "earliest"}, "startingOffsets has no meaning for queue 'orders'"),
        ("orders", {"spoolDir": "/tmp/x"}, "option spoolDir is for streams"),
        ("news", {}, "cannot read topic 'news': a topic stores nothing"),
        ("work", {}, "cannot read anycast 'work'"),
        ("ticks", {}, "cannot read multicast 'ticks'"),
        ("nowhere", {}, "amqp:not-found"),
    ],
)
def test_a_batch_read_says_what_it_cannot_do(
    spark: SparkSession, stream_node: StreamNode, address: str, options: dict[str, str], complaint: str
) -> None:
    for name, kind in {"orders": "queue", "news": "topic", "work": "anycast", "ticks": "multicast"}.items():
        stream_node.create(name, kind)
    with pytest.raises(PySparkException, match=re.escape(complaint)):
        spark.read.format("enmasse").options(url=stream_node.url, address=address, **options).load().count()


def test_a_killed_node_costs_time_and_neither_loses_nor_doubles(reading: Reading, stream_node: StreamNode) -> None:
    stream_node.create("orders", "queue")
    with reading.running("orders") as query:
        for round_ in range(3):
            send(stream_node, "orders", *numbers(round_ * 100, round_ * 100 + 100))
            if round_:
                until(lambda: reading.values)
            stream_node.kill()
            time.sleep(0.3)
            stream_node.start()
        until(lambda: len(reading.values) >= 300)
        until(lambda: counts(stream_node, "orders")["messagesStored"] == 0)
        assert query.isActive
    assert sorted(reading.values, key=int) == numbers(0, 300)


def test_two_queries_do_not_share_a_spool(reading: Reading, stream_node: StreamNode, tmp_path: Path) -> None:
    stream_node.create("orders", "queue")
    with reading.running("orders"):
        until(lambda: counts(stream_node, "orders")["receivers"] == 1)
        other = Reading(reading._spark, stream_node, tmp_path / "other")
        query = other.start("orders", spoolDir=str(reading.spool))
        with pytest.raises(PySparkException, match="is in use by process"):
            query.awaitTermination(60)
    query = other.start("orders", spoolDir=str(reading.spool))
    with pytest.raises(PySparkException, match="belongs to the checkpoint"):
        query.awaitTermination(60)


def test_a_wrong_checkpoint_location_is_found_out(reading: Reading, stream_node: StreamNode, tmp_path: Path) -> None:
    stream_node.create("orders", "queue")
    send(stream_node, "orders", *numbers(0, 5))
    query = reading.start("orders", checkpointLocation=str(tmp_path / "elsewhere"))
    with pytest.raises(PySparkException, match="name the checkpointLocation that the query is started with"):
        query.awaitTermination(60)
    assert counts(stream_node, "orders")["messagesStored"] == 5
