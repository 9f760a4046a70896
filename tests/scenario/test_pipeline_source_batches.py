"""Batches over streams: by time, by filter, with what precedes the body, from what foreign clients sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, symbol

from tests.support.proton_play import Exchange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def send(node: StreamNode, *messages: Any) -> None:
    """Send with proton, and wait until all is accepted."""
    sender = Exchange(node.url, "t", list(messages), expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * len(messages)


def numbered(count: int) -> list[Any]:
    return [Message(body=b"%d" % n, subject=f"device-{n}", inferred=True) for n in range(count)]


def table(spark: SparkSession, node: StreamNode, **options: str) -> DataFrame:
    return spark.read.format("enmasse").options(url=node.url, address="t", **options).load()


@pytest.fixture
def spread(spark: SparkSession, stream_node: StreamNode) -> list[Any]:
    """A stream of rows that came in several moments: partition, offset and time of each, as Spark reads it all."""
    stream_node.create("t")
    for _ in range(4):
        send(stream_node, *numbered(25))
        time.sleep(0.02)
    rows = table(spark, stream_node).selectExpr("partition", "offset", "unix_micros(timestamp) AS us", "timestamp")
    found = rows.orderBy("us", "partition", "offset").collect()
    assert len(found) == 100
    assert len({row["us"] for row in found}) >= 4
    return found


def places(frame: DataFrame) -> set[tuple[int, int]]:
    return {(row["partition"], row["offset"]) for row in frame.collect()}


def as_iso(us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()


def test_a_batch_begins_and_ends_at_moments(spark: SparkSession, stream_node: StreamNode, spread: list[Any]) -> None:
    times = sorted({row["us"] for row in spread})
    begin, end = times[1], times[-1]
    expected = {(row["partition"], row["offset"]) for row in spread if begin <= row["us"] < end}
    assert 0 < len(expected) < 100
    by_iso = table(spark, stream_node, startingTimestamp=as_iso(begin), endingTimestamp=as_iso(end))
    assert places(by_iso) == expected
    as_offsets = table(spark, stream_node, startingOffsets=as_iso(begin), endingOffsets=as_iso(end))
    assert places(as_offsets) == expected
    # Milliseconds, as Spark's own Kafka source takes them, begin no later.
    since_ms = table(spark, stream_node, startingTimestamp=str(begin // 1000))
    assert places(since_ms) == {
        (row["partition"], row["offset"]) for row in spread if row["us"] >= begin // 1000 * 1000
    }
    one = table(spark, stream_node, startingOffsets=f'{{"0": "{as_iso(begin)}", "1": "latest"}}')
    assert places(one) == {
        (row["partition"], row["offset"]) for row in spread if row["us"] >= begin and row["partition"] == 0
    }


def test_a_moment_before_everything_is_the_beginning_and_one_to_come_is_the_end(
    spark: SparkSession, stream_node: StreamNode, spread: list[Any]
) -> None:
    assert table(spark, stream_node, startingTimestamp="1000").count() == 100
    assert table(spark, stream_node, endingTimestamp="1000").count() == 0
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert table(spark, stream_node, startingTimestamp=tomorrow).count() == 0
    assert table(spark, stream_node, endingTimestamp=tomorrow).count() == 100


def rows_fetched(frame: DataFrame) -> int:
    """Rows that the scan gave to Spark, whatever filters left of them."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    metrics = [leaves.apply(n).metrics().get("numOutputRows") for n in range(leaves.size())]
    assert metrics
    return sum(int(metric.get().value()) for metric in metrics if metric.isDefined())


def test_filters_reduce_what_is_fetched(spark: SparkSession, stream_node: StreamNode, spread: list[Any]) -> None:
    whole = table(spark, stream_node)
    middle = sorted(row["timestamp"] for row in spread)[60]
    cases: list[tuple[str, Callable[[Any], bool]]] = [
        ("partition = 1", lambda row: row["partition"] == 1),
        ("partition IN (0, 5)", lambda row: row["partition"] == 0),
        ("offset >= 10 AND offset < 20", lambda row: 10 <= row["offset"] < 20),
        ("partition = 0 AND offset = 7", lambda row: (row["partition"], row["offset"]) == (0, 7)),
        (f"timestamp >= TIMESTAMP '{middle}'", lambda row: row["timestamp"] >= middle),
        (f"timestamp < TIMESTAMP '{middle}'", lambda row: row["timestamp"] < middle),
        (f"timestamp = TIMESTAMP '{middle}'", lambda row: row["timestamp"] == middle),
        ("offset > 1000", lambda row: False),
    ]
    for condition, is_wanted in cases:
        filtered = whole.where(condition)
        expected = {(row["partition"], row["offset"]) for row in spread if is_wanted(row)}
        assert places(filtered) == expected, condition
        assert rows_fetched(whole.where(condition)) == len(expected), condition
    assert rows_fetched(whole.where("value = '7'")) == 100
    # What is pushed down and what is left to Spark hold together.
    mixed = whole.where("partition = 1 AND offset % 2 = 0")
    assert places(mixed) == {
        (row["partition"], row["offset"]) for row in spread if row["partition"] == 1 and not row["offset"] % 2
    }


def test_where_spark_pushes_nothing_down_a_batch_is_the_same(
    spark: SparkSession, stream_node: StreamNode, spread: list[Any]
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert table(spark, stream_node).where("partition = 1 AND offset < 5").count() == 5
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_what_precedes_the_body_becomes_columns(spark: SparkSession, stream_node: StreamNode) -> None:
    stream_node.create("t", partitions=1)
    send(
        stream_node,
        Message(
            body=b"21.5",
            inferred=True,
            subject="boiler",
            content_type="text/plain",
            properties={"unit": "C", "n": 3, "ok": True},
            annotations={symbol("x-site"): "north"},
        ),
        Message(body={"a": [1, None]}, address="telemetry/far"),
        Message(body="text"),
    )
    rows = table(spark, stream_node, includeProperties="true").orderBy("offset").collect()
    assert list(rows[0].asDict()) == [
        *("partition", "offset", "timestamp", "key", "value"),
        *("content_type", "properties", "annotations", "address"),
    ]
    assert bytes(rows[0]["value"]) == b"21.5"
    assert rows[0]["content_type"] == "text/plain"
    assert rows[0]["properties"] == {"unit": "C", "n": "3", "ok": "true"}
    assert rows[0]["annotations"] == {"x-site": "north"}
    assert [row["address"] for row in rows] == ["t", "telemetry/far", "t"]
    assert (bytes(rows[1]["value"]), bytes(rows[2]["value"])) == (b'{"a":[1,null]}', b"text")
    assert rows[2]["properties"] == {}
