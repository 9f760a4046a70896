"""The how-to of reading queues, block by block, in the session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import connect
from enmasse.engines.embedded.paths import DEFAULT_NODE, Layout
from tests.scenario.consumed_place import until
from tests.scenario.howto_place import Place, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PAGE = blocks("read-a-queue-in-spark.md")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ())
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.timeout(400)  # an installation and Spark
def test_a_queue_is_read_as_the_page_says(
    spark: SparkSession, place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place.run(PAGE["queue"][0].replace("enmasse create space demo", "enmasse create space demo --wait 60"))
    names: dict[str, Any] = {"spark": spark}

    def run(block: str) -> str:
        code = PAGE[block][0].replace("127.0.0.1:5672", f"127.0.0.1:{place.ports['5672']}")
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
    place.run(PAGE["topic"][0] + "enmasse status --wait 60\n")
    run("subscribe")
    until(lambda: names["query"].recentProgress or names["query"].exception())
    assert names["query"].exception() is None
    names["query"].stop()

    def subscriptions() -> int:
        socket = Layout(next(tmp_path.rglob("endpoints.json")).parent).admin_socket(DEFAULT_NODE)
        with connect(f"amqp+unix://{socket}") as connection:
            news = connection.management().read("io.enmasse.address", "default/demo.news")
            return int(news["subscriptions"])

    assert subscriptions() == 1
    # The planner of the query that was stopped may be closing still, and the last receiver counts.
    until(lambda: run("unsubscribe") is not None and not subscriptions())
