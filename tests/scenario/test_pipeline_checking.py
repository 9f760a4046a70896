"""Spark looks at declared pipelines that do not run, and says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.pipeline.running.checking import problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]


def found(
    spark: SparkSession,
    folder: Path,
    sql: str,
    sink: Mapping[str, Any] | None = None,
    where: Mapping[str, str] | None = None,
    **given: Any,
) -> list[str]:
    source = {"name": "seen", **(where or {"address": "loads"}), "format": "json", "schema": "load DOUBLE"}
    if "table" in source:
        source = {name: source[name] for name in ("name", "table")}
    sinks = [{"table": "expected", **(sink or {})}]
    spec = {"sources": [source], "steps": [{"name": "expected", "sql": sql}], "sinks": sinks}
    pipeline = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "demo.loads"},
        "spec": spec,
    }
    return problems(spark, folder, {"pipeline": pipeline, **given})


def test_what_a_model_gives_is_said_where_none_is_there(spark: SparkSession, tmp_path: Path) -> None:
    (missing,) = found(spark, tmp_path / "a", "SELECT model_pumps(load) AS power FROM seen")
    assert "there is no model 'pumps' yet" in missing
    of_text = {"pumps": "STRING"}
    assert found(spark, tmp_path / "b", "SELECT upper(model_pumps(load)) AS power FROM seen", models=of_text) == []
    (wrong,) = found(spark, tmp_path / "c", "SELECT model_pumps(load).high AS power FROM seen", models=of_text)
    assert "STRING" in wrong


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"partitionBy": ["day(load)"]}, "partitionBy has day(load), but 'load' is DOUBLE"),
        ({"partitionBy": ["load"]}, "partitionBy names 'load', which is DOUBLE"),
        ({"maintenance": {"keepRows": {"column": "load", "for": "1d"}}}, "keepRows names 'load', which is DOUBLE"),
        ({"constraints": {"some": "length(load) > 1"}}, "the table expected cannot have the constraint some"),
    ],
)
def test_a_table_that_there_cannot_be_is_found(
    spark: SparkSession, tmp_path: Path, sink: dict[str, Any], said: str
) -> None:
    (problem,) = found(spark, tmp_path, "SELECT load FROM seen", sink)
    assert said in problem


def test_streams_that_match_a_pattern_need_not_be_declared(spark: SparkSession, tmp_path: Path) -> None:
    assert found(spark, tmp_path, "SELECT _address, load FROM seen", where={"addressPattern": "loads/*"}) == []


def test_rows_of_tables_alone_are_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    (problem,) = found(
        spark, tmp_path, "SELECT load FROM seen", where={"table": "loads"}, tables={"loads": "load DOUBLE"}
    )
    assert "stream: true" in problem
