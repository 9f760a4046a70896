"""Spark looks at declared pipelines that do not run, and says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.pipeline.running.checking import problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]


SEEN: dict[str, Any] = {"name": "seen", "address": "loads", "format": "json", "schema": "load DOUBLE"}
DATABASE = {"type": "postgresql", "host": "db", "database": "plant", "credentialsSecret": "warehouse"}
LEVEL = {"type": "record", "name": "Level", "fields": [{"name": "level", "type": "double"}]}


def found(
    spark: SparkSession,
    folder: Path,
    sql: str,
    sink: Mapping[str, Any] | None = None,
    sources: Sequence[Mapping[str, Any]] = (SEEN,),
    **given: Any,
) -> list[str]:
    sink = sink or {}
    sinks = [sink if sink.keys() & {"address", "database"} else {"table": "expected", **sink}]
    spec = {"sources": sources, "steps": [{"name": "expected", "sql": sql}], "sinks": sinks}
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


def test_all_that_is_wrong_is_told_by_its_field_with_sparks_words_last(spark: SparkSession, tmp_path: Path) -> None:
    steps = [
        {"name": "length", "sql": "SELECT length(load, 1) AS n FROM seen"},
        {"name": "follows", "sql": "SELECT n + 1 AS n FROM length"},
        {"name": "sum", "sql": "SELECT load + array(1) AS n FROM seen"},
        {"name": "right", "sql": "SELECT load FROM seen"},
    ]
    sinks = [
        {"table": "follows", "input": "follows"},
        {"table": "by_day", "input": "right", "partitionBy": ["day(load)"]},
        {"table": "counts", "input": "sum"},
        {"address": "out", "input": "right"},
        {"table": "last"},
    ]
    spec = {"sources": [SEEN], "steps": steps, "sinks": sinks}
    head = {"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": {"name": "demo.loads"}}
    told = problems(spark, tmp_path, {"pipeline": head | {"spec": spec}})
    assert [one.partition(": ")[0] for one in told] == [
        "spec.steps[0] (length).sql",
        "spec.steps[2] (sum).sql",
        "spec.sinks[1] (table-by_day)",
    ]
    assert ": Spark says: " in told[0]
    assert ": Spark says: " in told[1]
    assert "Spark" not in told[2]


def test_what_streams_cannot_do_is_told_with_the_way_that_works_and_then_in_sparks_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    (problem,) = found(spark, tmp_path, "SELECT lag(load) OVER (ORDER BY load) AS before FROM seen")
    assert problem.startswith("spec.sinks[0] (table-expected): set perBatch on the step; Spark says: ")


def test_streams_that_match_a_pattern_need_not_be_declared(spark: SparkSession, tmp_path: Path) -> None:
    several = {"name": "seen", "addressPattern": "loads/*", "format": "json", "schema": "load DOUBLE"}
    assert found(spark, tmp_path, "SELECT _address, load FROM seen", sources=[several]) == []


def test_rows_of_tables_alone_are_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    tables = {"loads": "load DOUBLE"}
    (problem,) = found(
        spark, tmp_path, "SELECT load FROM seen", sources=[{"name": "seen", "table": "loads"}], tables=tables
    )
    assert "stream: true" in problem


def test_tables_of_databases_are_those_that_are_given(spark: SparkSession, tmp_path: Path) -> None:
    sources = [SEEN, {"name": "rooms", "database": {**DATABASE, "table": "rooms"}}]
    sink = {"database": {**DATABASE, "table": "latest"}, "mode": "update", "keys": ["room"]}
    sql = "SELECT r.room, s.load FROM seen s JOIN rooms r ON s.load = r.id"
    tables = {"rooms": "id DOUBLE, room STRING"}
    assert found(spark, tmp_path / "a", sql, sink, sources, tables=tables) == []
    (problem,) = found(spark, tmp_path / "b", sql.replace("r.id", "r.number"), sink, sources, tables=tables)
    assert "number" in problem


def test_columns_are_held_against_the_schema_of_their_subject(spark: SparkSession, tmp_path: Path) -> None:
    sink = {"address": "levels", "schemaRegistry": {"subject": "level"}}
    schemas = [{"subject": "level", "version": 1, "id": 1, "schema": json.dumps(LEVEL)}]
    assert found(spark, tmp_path / "a", "SELECT load AS level FROM seen", sink, schemas=schemas) == []
    (problem,) = found(spark, tmp_path / "b", "SELECT load FROM seen", sink, schemas=schemas)
    assert "level" in problem
