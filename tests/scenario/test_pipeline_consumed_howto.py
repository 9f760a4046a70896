"""The how-to of reading queues, block by block, in the session of the tests."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import connect
from enmasse.drivers.data_directory import DEFAULT_NODE, Layout
from tests.scenario.howto_place import blocks
from tests.support.polling import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.installation import Installation

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PAGE = blocks("read-a-queue-in-spark.md")


def enter(installation: Installation, block: str) -> None:
    """Run a block's commands, each of which goes on once all is ready that it asked for."""
    for line in PAGE[block][0].splitlines():
        enmasse, *arguments = shlex.split(line)
        assert enmasse == "enmasse"
        installation.ok(*arguments)
        installation.ok("status", "--wait", "150")


@pytest.mark.timeout(400)  # an installation and Spark
def test_a_queue_is_read_as_the_page_says(
    spark: SparkSession, own: Installation, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    enter(own, "queue")
    names: dict[str, Any] = {"spark": spark}

    def run(block: str) -> str:
        code = PAGE[block][0].replace("amqp://127.0.0.1:5672", own.url("amqp"))
        for relative in ("spool", "checkpoints", "tables"):
            code = code.replace(f'"{relative}/', f'"{tmp_path / relative}/')
        capfd.readouterr()
        exec(compile(code, block, "exec"), names)
        return capfd.readouterr().out

    assert "two coffees" in run("look")
    run("take")
    table = spark.read.parquet(str(tmp_path / "tables/orders"))
    assert sorted(row["text"] for row in table.collect()) == ["one tea", "two coffees"]
    names["query"].stop()
    enter(own, "topic")
    run("subscribe")
    until(lambda: names["query"].recentProgress or names["query"].exception())
    assert names["query"].exception() is None
    enter(own, "below")
    read = spark.read.schema("topic_name STRING, text STRING").parquet
    until(lambda: read(str(tmp_path / "tables/news")).count() == 2)
    shown = run("names")
    assert "news/sport/chess" in shown
    assert "good morning" in shown
    names["query"].stop()

    def subscriptions() -> int:
        socket = Layout(own.data).admin_socket(DEFAULT_NODE)
        with connect(f"amqp+unix://{socket}") as connection:
            news = connection.management().read("io.enmasse.address", "default/demo.news")
            return int(news["subscriptions"])

    assert subscriptions() == 1
    # The planner of the query that was stopped may be closing still, and the last receiver counts.
    until(lambda: run("unsubscribe") is not None and not subscriptions())
