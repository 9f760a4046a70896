"""The page on querying the lake: what it shows is what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.pipeline.lake.tables import open_table
from tests.scenario.howto_place import Place, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PAGE = blocks("query-the-lake.md")
READINGS = """
{"device": "boiler-1", "temperature": 21.5, "ts": "2026-01-31T12:00:00Z"}
{"device": "boiler-1", "temperature": 22.5, "ts": "2026-01-31T13:00:00Z"}
{"device": "boiler-2", "temperature": 19.0, "ts": "2026-01-30T12:00:00Z"}
"""


def test_each_tool_says_what_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "readings.json").write_text(READINGS.strip())
    frame = spark.readStream.schema("device STRING, temperature DOUBLE, ts TIMESTAMP").json(str(tmp_path / "in"))
    table = open_table(tmp_path / "lake" / "readings", partition_by=["day"])
    checkpoint = tmp_path / "checkpoint"
    table.prepare(frame.schema, owner="shop.readings/readings", checkpoint=checkpoint)
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(table.mode)
    writer.trigger(availableNow=True).foreachBatch(table.add).start().awaitTermination()
    place = Place(tmp_path, ())
    for name in ("pandas", "polars", "duckdb"):
        code, shown = PAGE[name]
        assert shown is not None
        assert [line.split() for line in _run(place, code).splitlines()] == [
            line.split() for line in shown.splitlines()
        ]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    exec(PAGE["spark"][0], names)  # the page's own program
    assert [tuple(row) for row in names["rows"]] == [("boiler-1", 22.5), ("boiler-2", 19.0)]


def _run(place: Place, code: str) -> str:
    """Run a program; once more if a library's thread has outlived the interpreter, which no program can help."""
    try:
        return place.run(code)
    except AssertionError as error:
        if "terminate called without an active exception" not in str(error):
            raise
        return place.run(code)
