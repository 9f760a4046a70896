from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.pipelines.databases import as_lake_tables
from enmasse.model.kinds.pipelines.pipeline import Pipeline

DATABASE = {
    "type": "postgresql",
    "host": "db.example.com",
    "database": "plant",
    "table": "machines",
    "credentialsSecret": "warehouse",
}


def problems(source: dict[str, Any], sink: dict[str, Any]) -> list[tuple[str, str]]:
    spec = {
        "sources": [
            {"name": "readings", "address": "telemetry"},
            {"name": "machines", "database": DATABASE} | source,
        ],
        "sinks": [{"input": "readings", "database": DATABASE} | sink],
    }
    metadata = {"name": "shop.hot", "namespace": "default"}
    pipeline = Pipeline.model_validate({"metadata": metadata, "spec": spec})
    return [(problem.path, problem.message) for problem in pipeline.spec_problems()]


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ({}, {}),
        ({"refresh": "batch", "whenEmpty": "warn"}, {"mode": "update", "keys": ["device"], "update": "present"}),
        ({"database": DATABASE | {"host": "2001:db8::7", "port": 6432, "tls": "off"}}, {}),
        ({}, {"database": DATABASE | {"table": 'plant.My "own" table'}}),
    ],
)
def test_a_table_of_a_database_is_read_and_written(source: dict[str, Any], sink: dict[str, Any]) -> None:
    assert problems(source, sink) == []


@pytest.mark.parametrize(
    ("source", "sink", "path", "message"),
    [
        ({"table": "t"}, {}, "sources[1]", "expected one of"),
        ({"refresh": "onStart"}, {}, "sources[1].refresh", "expected batch or a duration"),
        ({"stream": True}, {}, "sources[1].stream", "only a table of the lake has it"),
        ({"format": "json"}, {}, "sources[1].format", "a table is read as it is"),
        ({"database": DATABASE | {"host": "postgresql://db"}}, {}, "sources[1].database.host", "without a port"),
        ({"database": DATABASE | {"host": "db,other"}}, {}, "sources[1].database.host", "expected the name"),
        ({"database": DATABASE | {"host": "/var/run"}}, {}, "sources[1].database.host", "expected the name"),
        ({"database": DATABASE | {"database": "a\nb"}}, {}, "sources[1].database.database", "expected a name"),
        ({"database": DATABASE | {"table": "a.b.c"}}, {}, "sources[1].database.table", "plant.machines"),
        ({"database": DATABASE | {"table": "t" * 64}}, {}, "sources[1].database.table", "at most 63 bytes"),
        (
            {"database": DATABASE | {"credentialsSecret": "../x"}},
            {},
            "sources[1].database.credentialsSecret",
            "Secret",
        ),
        ({}, {"database": DATABASE | {"table": "enmasse_batches"}}, "sinks[0].database.table", "another table"),
        ({}, {"table": "t"}, "sinks[0]", "got table and database"),
        ({}, {"mode": "complete"}, "sinks[0].mode", "append or update"),
        ({}, {"mode": "update"}, "sinks[0].keys", "required with mode update"),
        ({}, {"orderBy": "ts"}, "sinks[0].orderBy", "only mode update has it"),
        ({}, {"badRecords": "bad"}, "sinks[0].badRecords", "only an address has it"),
        (
            {},
            {"mode": "update", "keys": ["k"], "orderBy": "n", "keepHistory": True},
            "sinks[0].keepHistory",
            "of the lake",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    source: dict[str, Any], sink: dict[str, Any], path: str, message: str
) -> None:
    assert any(found == f"spec.{path}" and message in said for found, said in problems(source, sink)), problems(
        source, sink
    )


def test_there_are_no_fields_by_which_libpq_could_be_told_more() -> None:
    (problem,) = [said for path, said in unknown({"options": "-c role=postgres"}) if path.endswith("options")]
    assert "unknown field" in problem


def unknown(more: dict[str, Any]) -> list[tuple[str, str]]:
    from enmasse.model.schema.errors import InvalidResourceError
    from enmasse.model.schema.objects import decode

    document = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "shop.hot", "namespace": "default"},
        "spec": {
            "sources": [{"name": "readings", "address": "telemetry"}],
            "sinks": [{"database": DATABASE | more}],
        },
    }
    with pytest.raises(InvalidResourceError) as error:
        decode(document)
    return [(problem.path, problem.message) for problem in error.value.problems]


def test_a_pipeline_is_tried_with_tables_of_the_lake_in_the_place_of_databases() -> None:
    read = {"name": "machines", "database": DATABASE | {"table": "plant.Machines"}, "refresh": "5m"}
    written = {"input": "machines", "database": DATABASE, "mode": "update", "keys": ["id"]}
    stream = {"name": "readings", "address": "telemetry"}
    tried = as_lake_tables(
        {"kind": "Pipeline", "spec": {"sources": [stream, read], "sinks": [written], "paused": True}}
    )
    assert tried == {
        "kind": "Pipeline",
        "spec": {
            "sources": [stream, {"name": "machines", "table": "plant_machines", "refresh": "5m"}],
            "sinks": [{"input": "machines", "table": "machines", "mode": "update", "keys": ["id"]}],
            "paused": True,
        },
    }
