"""Pipelines as declared: what is taken, and what is refused with the place and what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.kinds.pipelines.pipeline import Pipeline, PipelineSpec
from enmasse.model.kinds.pipelines.row_errors import row_errors
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode
from enmasse.model.schema.openapi import field_texts

READINGS: dict[str, Any] = {
    "name": "readings",
    "address": "telemetry",
    "format": "json",
    "schema": "device STRING, temperature DOUBLE, ts TIMESTAMP, day DATE",
}
FILE: dict[str, Any] = {"name": "f", "files": {"path": "a", "format": "csv"}, "schema": "a INT"}
HOT = {"name": "hot", "sql": "SELECT device, temperature FROM readings WHERE temperature > 30"}
WARM = {"name": "warm", "sql": "SELECT device FROM hot"}
TO_ALERTS = {"input": "hot", "address": "alerts"}
SCORED = {"name": "scored", "function": "scoring:score", "schema": "device STRING, score DOUBLE"}


def pipeline(name: str = "shop.hot", **spec: Any) -> dict[str, Any]:
    whole = {"sources": [READINGS], "steps": [HOT], "sinks": [TO_ALERTS]} if "builtin" not in spec else {}
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": whole | spec,
    }


def problems(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        decode(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_what_becomes_of_a_row_that_fails_is_said_by_step_source_pipeline_or_where_bad_records_go() -> None:
    def found(**spec: Any) -> tuple[str, str | None]:
        resource = decode(pipeline(**spec))
        assert isinstance(resource, Pipeline)
        one = row_errors(resource.spec)["hot"]
        return one.action, one.bad_records

    to_bad = READINGS | {"badRecords": "bad"}
    assert found() == ("drop", None)
    assert found(sources=[to_bad]) == ("dead-letter", "bad")
    assert found(steps=[HOT | {"badRecords": "own"}], sources=[to_bad]) == ("dead-letter", "own")
    assert found(onError="null") == ("null", None)
    assert found(onError="null", sources=[to_bad | {"onError": "fail"}]) == ("fail", "bad")
    assert (
        found(onError="null", sources=[to_bad | {"onError": "fail"}], steps=[HOT | {"onError": "drop"}])[0] == "drop"
    )
    assert found(steps=[HOT | {"perBatch": True}], sources=[to_bad])[0] == "fail"
    # What is NULL for its drift, and what is no record.
    assert found(sources=[to_bad | {"onDrift": "null"}])[0] == "dead-letter"


@pytest.mark.parametrize(
    "source", [READINGS, FILE | {"name": "readings", "files": {"path": "a", "format": "json"}}], ids=["json", "files"]
)
def test_the_names_of_present_fields_are_a_column_where_they_are_asked_for(source: dict[str, Any]) -> None:
    step = {"name": "named", "sql": "SELECT _present FROM readings"}
    of_step: dict[str, Any] = {"steps": [step], "sinks": [{"address": "alerts"}]}
    assert "there is no column '_present'" in problems(pipeline(sources=[source], **of_step))["spec.steps[0].sql"]
    decode(pipeline(sources=[source | {"includePresent": True}], **of_step))


def test_a_pipeline_with_every_field_applies_and_is_written_the_same() -> None:
    document = pipeline(
        credentialsSecret="analyst",
        sources=[
            READINGS
            | {
                "watermark": {"column": "ts", "delay": "10s"},
                "startingOffsets": '{"0": 120, "1": "latest"}',
                "badRecords": "bad",
                "includeProperties": True,
                "maxRowsPerBatch": 1000,
                "maxBytesPerBatch": "16Mi",
                "failOnDataLoss": False,
            },
            {"name": "devices", "table": "devices"},
        ],
        steps=[
            HOT,
            SCORED | {"input": "hot", "parameters": {"limit": 3}, "timeout": "1m"},
            {"name": "joined", "sql": "SELECT s.*, d.place FROM scored s LEFT JOIN devices d ON s.device = d.device"},
        ],
        sinks=[
            {"input": "scored", "address": "alerts", "badRecords": "refused", "onNoConsumer": "skip"},
            {"input": "readings", "table": "readings", "format": "parquet", "partitionBy": ["day"]},
            {"table": "joined", "mode": "update", "keys": ["device"]},
        ],
        code={"configMap": "scoring"},
        trigger="availableNow",
        restart={"at": "2026-01-31T12:00:00Z", "from": "2026-01-31T11:00:00Z"},
        resources={"session": "own", "cores": 2, "memory": "1Gi", "master": "spark://127.0.0.1:7077"},
        paused=True,
    )
    found = decode(document)
    assert isinstance(found, Pipeline)
    assert found.space == "shop"
    assert document["spec"].items() <= found.to_dict()["spec"].items()
    assert decode(found.to_dict()) == found


def test_each_sink_asks_for_rows_as_often_as_it_says() -> None:
    found = decode(pipeline(sinks=[{"address": "alerts", "trigger": "0s"}, {"table": "t", "trigger": "1m"}]))
    assert isinstance(found, Pipeline)
    assert [sink.trigger for sink in found.spec.sinks] == ["0s", "1m"]


@pytest.mark.parametrize("name", ["hot", "shop.", "Shop.hot"])
def test_a_pipeline_is_named_after_its_space(name: str) -> None:
    assert "metadata.name" in problems(pipeline(name))


TO_FAHRENHEIT = {"name": "warm", "function": "units:fahrenheit", "returns": "DOUBLE"}
WITH_SQL: dict[str, Any] = {
    "steps": [HOT | {"sql": "SELECT warm(temperature) AS f FROM readings"}],
    "code": {"configMap": "units", "functions": [TO_FAHRENHEIT]},
    "resources": {"session": "own"},
}


def with_sql(**function: str) -> dict[str, Any]:
    return WITH_SQL | {"code": {"configMap": "units", "functions": [TO_FAHRENHEIT | function]}}


def by_device(**step: Any) -> dict[str, Any]:
    counted = {"name": "counted", "function": "counting:count", "schema": "device STRING, count INT"}
    whole = counted | {"stateBy": "device", "state": {"schema": "count INT"}} | step
    return {"steps": [whole], "code": {"configMap": "counting"}, "sinks": [{"table": "counts"}]}


UPSERT = {"table": "t", "mode": "update", "keys": ["device"]}


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"sources": []}, "spec.sources", "required: what the pipeline reads; or builtin"),
        ({"sinks": []}, "spec.sinks", "required: where the results go; or builtin"),
        ({"sources": [READINGS, READINGS]}, "spec.sources[1].name", "there is another relation 'readings' above"),
        ({"steps": [HOT | {"name": "readings"}]}, "spec.steps[0].name", "another relation 'readings' above"),
        ({"steps": [HOT | {"name": "Hot"}]}, "spec.steps[0].name", "expected lower-case letters"),
        (
            {"sources": [{"name": "readings"}]},
            "spec.sources[0]",
            "one of address, addresses, addressPattern, table, files and database, got none",
        ),
        ({"sources": [READINGS | {"table": "t"}]}, "spec.sources[0]", "got address and table"),
        ({"sources": [READINGS | {"address": "a b"}]}, "spec.sources[0].address", "without white space"),
        ({"sources": [READINGS | {"onDrift": "dead-letter"}]}, "spec.sources[0].badRecords", "required with onDrift"),
        (
            {"sources": [READINGS | {"onDrift": "fail", "badRecords": "bad"}], "steps": [HOT | {"onError": "drop"}]},
            "spec.sources[0].badRecords",
            "nothing goes there with onDrift fail",
        ),
        (
            {"sources": [READINGS | {"onDrift": "null", "format": "cbor"}]},
            "spec.sources[0].onDrift",
            "for format json",
        ),
        (
            {"sources": [READINGS | {"addressPattern": "a/#"}]},
            "spec.sources[0]",
            "got address and addressPattern",
        ),
        (
            {"sources": [READINGS, {"name": "r", "addresses": ["a", "b"], "startingOffsets": '{"0": 1}'}]},
            "spec.sources[1].startingOffsets",
            "there are several streams",
        ),
        (
            {"sources": [READINGS | {"stream": True}]},
            "spec.sources[0].stream",
            "only a table has it",
        ),
        (
            {"sources": [READINGS, {"name": "t", "table": "t", "stream": True, "startingOffsets": "1d"}]},
            "spec.sources[1].startingOffsets",
            "expected earliest",
        ),
        (
            {"sources": [READINGS, {"name": "t", "table": "t", "skipChangeCommits": True}]},
            "spec.sources[1].skipChangeCommits",
            "a table with stream: true",
        ),
        (
            {"sources": [READINGS, FILE | {"files": {"path": "../other", "format": "csv"}}]},
            "spec.sources[1].files.path",
            "expected a folder below lake/files",
        ),
        (
            {"sources": [READINGS, {"name": "f", "files": {"path": "a", "format": "csv"}}]},
            "spec.sources[1].schema",
            "required",
        ),
        (
            {"sources": [READINGS, FILE | {"files": {"path": "a", "format": "json", "header": True}}]},
            "spec.sources[1].files.header",
            "header is of csv",
        ),
        (
            {"sources": [READINGS, FILE | {"files": {"path": "a", "format": "parquet", "multiLine": True}}]},
            "spec.sources[1].files.multiLine",
            "multiLine is of csv",
        ),
        (
            {"sources": [READINGS, FILE | {"files": {"path": "a", "format": "csv", "delimiter": '"'}}]},
            "spec.sources[1].files",
            "delimiter and quote: expected two characters",
        ),
        (
            {"sources": [READINGS, FILE | {"schema": "a INT, b ARRAY<INT>"}]},
            "spec.sources[1].schema",
            "b: a value of csv is no ARRAY",
        ),
        ({"sources": [READINGS, FILE | {"address": "a"}]}, "spec.sources[1]", "got address and files"),
        ({"sinks": [{"table": "files"}]}, "spec.sinks[0].table", "holds the files that sources read"),
        (
            {"sources": [READINGS | {"schemaRegistry": {"subject": "s"}}]},
            "spec.sources[0].schemaRegistry.subject",
            "either a subject, whose schema has the columns, or the source's schema, got both",
        ),
        (
            {"sources": [{"name": "readings", "address": "a", "format": "json", "schemaRegistry": {"version": 2}}]},
            "spec.sources[0].schemaRegistry.version",
            "only a subject has it",
        ),
        (
            {"sources": [READINGS | {"schemaRegistry": {"wireFormat": False}}]},
            "spec.sources[0].schemaRegistry.wireFormat",
            "messages without ids need a subject",
        ),
        (
            {"sources": [{"name": "readings", "address": "a", "format": "cbor", "schemaRegistry": {"subject": "s"}}]},
            "spec.sources[0].format",
            "required with schemaRegistry: avro, json or protobuf",
        ),
        (
            {"sources": [READINGS, {"name": "t", "table": "t", "schemaRegistry": {"subject": "s"}}]},
            "spec.sources[1].schemaRegistry",
            "only an address has it",
        ),
        (
            {
                "sources": [
                    {"name": "readings", "address": "a", "format": "avro"}
                    | {"schemaRegistry": {"subject": "s", "message": "acme.Reading"}}
                ]
            },
            "spec.sources[0].schemaRegistry.message",
            "only a subject of format protobuf",
        ),
        (
            {"sources": [{"name": "readings", "address": "a", "format": "protobuf", "schema": "acme.Reading ?"}]},
            "spec.sources[0].schema",
            "expected a descriptor set in base64",
        ),
        (
            {"sources": [{"name": "readings", "address": "a", "format": "protobuf", "tombstones": True}]},
            "spec.sources[0].tombstones",
            "an empty message is one like others with format protobuf",
        ),
        (
            {"sinks": [{"address": "alerts", "schemaRegistry": {"subject": "s", "message": "acme.Reading"}}]},
            "spec.sinks[0].schemaRegistry.message",
            "only a source has it",
        ),
        (
            {"sinks": [{"address": "alerts", "schemaRegistry": {}}]},
            "spec.sinks[0].schemaRegistry.subject",
            "required: the subject",
        ),
        (
            {"sinks": [{"table": "t", "schemaRegistry": {"subject": "s"}}]},
            "spec.sinks[0].schemaRegistry",
            "only an address has it",
        ),
        ({"sources": [READINGS | {"refresh": "5m"}]}, "spec.sources[0].refresh", "only a table has it"),
        ({"sources": [READINGS | {"whenEmpty": "warn"}]}, "spec.sources[0].whenEmpty", "only a table has it"),
        (
            {"sources": [READINGS, {"name": "t", "table": "t", "refresh": "often"}]},
            "spec.sources[1].refresh",
            "expected batch, onStart or a duration",
        ),
        ({"steps": [HOT | {"dropDuplicates": ["device"]}]}, "spec.steps[0]", "got sql and dropDuplicates"),
        ({"steps": [{"name": "hot"}]}, "spec.steps[0]", "expected one of sql, function and dropDuplicates, got none"),
        (
            {"steps": [{"name": "hot", "dropDuplicates": ["devise"]}]},
            "spec.steps[0].dropDuplicates[0]",
            "no column 'devise'",
        ),
        (
            {"steps": [{"name": "hot", "dropDuplicates": ["device"], "schema": "a INT"}]},
            "spec.steps[0].schema",
            "only a step with a function has it",
        ),
        ({"sinks": [{"table": "t", "orderBy": "device"}]}, "spec.sinks[0].orderBy", "only mode update has it"),
        ({"sinks": [{"address": "alerts", "evolve": "add"}]}, "spec.sinks[0].evolve", "only a table has it"),
        (
            {"sinks": [{"table": "t", "maintenance": {"keepRows": {"column": "at", "for": "9d"}}}]},
            "spec.sinks[0].maintenance.keepRows.column",
            "there is no column 'at'",
        ),
        (
            {"sinks": [{"table": "t", "maintenance": {"keepVersions": "1m"}}]},
            "spec.sinks[0].maintenance.keepVersions",
            "expected at least 1h",
        ),
        (
            {"steps": [HOT | {"expectations": [{"name": "warm", "condition": "heat > 1"}]}]},
            "spec.steps[0].expectations[0].condition",
            "there is no column 'heat'",
        ),
        (
            {"steps": [HOT | {"expectations": [{"name": "warm", "condition": "true", "action": "dead-letter"}]}]},
            "spec.steps[0].badRecords",
            "required with action dead-letter",
        ),
        (
            {"steps": [HOT | {"expectations": [{"name": "a b", "condition": "true"}]}]},
            "spec.steps[0].expectations[0].name",
            "expected a name such as has_device",
        ),
        (
            {"steps": [HOT | {"perBatch": True, "expectations": [{"name": "warm", "condition": "true"}]}]},
            "spec.steps[0].expectations",
            "not with perBatch",
        ),
        (
            {"steps": [{"name": "once", "dropDuplicates": ["device"], "perBatch": True}]},
            "spec.steps[0].perBatch",
            "over batches",
        ),
        ({"steps": [HOT | {"inputs": ["readings"]}]}, "spec.steps[0].inputs", "only a step with a function has it"),
        (
            {"steps": [{"name": "f", "function": "a:b", "inputs": ["readings"]}], "code": {"configMap": "c"}},
            "spec.resources.session",
            "expected own",
        ),
        (
            {
                "steps": [{"name": "f", "function": "a:b", "inputs": ["reading"], "schema": "a INT"}],
                "code": {"configMap": "c"},
                "resources": {"session": "own"},
            },
            "spec.steps[0].schema",
            "a function of whole relations",
        ),
        (
            {"trigger": "availableNow", "sinks": [{"table": "t", "trigger": "1m"}]},
            "spec.sinks[0].trigger",
            "not with trigger: availableNow",
        ),
        (
            {"sinks": [{"table": "t", "trigger": "soon"}]},
            "spec.sinks[0].trigger",
            "such as 1s, 0s for at once, got 'soon'",
        ),
        (
            {"sinks": [{"table": "t", "trigger": "availableNow"}]},
            "spec.sinks[0].trigger",
            "such as 1s, 0s for at once",
        ),
        ({"schedule": "0 3 * * *"}, "spec.schedule", "only with trigger: availableNow"),
        (
            {"schedule": "0 25 * * *", "trigger": "availableNow"},
            "spec.schedule",
            "expected minute, hour",
        ),
        ({"after": ["hot"], "trigger": "availableNow"}, "spec.after[0]", "expected another pipeline"),
        ({"after": ["farm.a"], "trigger": "availableNow"}, "spec.after[0]", "expected a pipeline of space shop"),
        (
            {"after": ["a"], "schedule": "0 3 * * *", "trigger": "availableNow"},
            "spec.after",
            "either a schedule or pipelines",
        ),
        (by_device(stateBy=None), "spec.steps[0].stateBy", "required with state"),
        (by_device(stateBy="divice"), "spec.steps[0].stateBy", "there is no column"),
        (by_device(state=None), "spec.steps[0].state", "required with stateBy"),
        (by_device(state={"schema": "count"}), "spec.steps[0].state.schema", "character"),
        (by_device(state={"schema": "n INT", "orderBy": ["at"]}), "spec.steps[0].state.orderBy[0]", "no column 'at'"),
        (by_device(perBatch=True), "spec.steps[0].perBatch", "over batches"),
        ({"steps": [HOT | {"stateBy": "device"}]}, "spec.steps[0].stateBy", "only a step with a function has it"),
        (WITH_SQL | {"resources": None}, "spec.resources.session", "expected own: code has functions for SQL"),
        (with_sql(name="sum"), "spec.code.functions[0].name", "Spark has a function sum()"),
        (with_sql(name="over"), "spec.code.functions[0].name", "a word of SQL"),
        (with_sql(name="Hot"), "spec.code.functions[0].name", "expected a name such as to_celsius"),
        (with_sql(function="a"), "spec.code.functions[0].function", "expected module:function"),
        (with_sql(returns="NUMBER"), "spec.code.functions[0].returns", "NUMBER"),
        (with_sql(name="hot"), "spec.steps[0].sql", "warm() is not among the functions"),
        (
            {"steps": [HOT | {"badRecords": "bad", "onError": "drop"}]},
            "spec.steps[0].badRecords",
            "nothing goes there with onError drop and without",
        ),
        ({"steps": [HOT | {"onError": "dead-letter"}]}, "spec.steps[0].badRecords", "required with onError"),
        ({"steps": [HOT | {"onError": "skip"}]}, "spec.steps[0].onError", "expected"),
        ({"onError": "dead-letter"}, "spec.steps[0].badRecords", "required with onError"),
        ({"sources": [READINGS | {"onError": "dead-letter"}]}, "spec.sources[0].badRecords", "required with onError"),
        ({"steps": [HOT | {"perBatch": True, "onError": "drop"}]}, "spec.steps[0].onError", "perBatch"),
        (
            {"steps": [HOT | {"perBatch": True}], "onError": "drop"},
            "spec.steps[0].onError",
            "required: fail, for it is done with each batch as a whole",
        ),
        (
            {"steps": [HOT | {"perBatch": True, "onError": "fail"}, WARM | {"onError": "null"}]},
            "spec.steps[1].onError",
            "it is done with each batch",
        ),
        (
            {"steps": [HOT, {"name": "once", "dropDuplicates": ["device"], "onError": "drop"}]},
            "spec.steps[1].onError",
            "computes nothing",
        ),
        ({"steps": [SCORED | {"onError": "null"}]}, "spec.steps[0].onError", "a function gives rows, not values"),
        (
            {"steps": [SCORED | {"inputs": ["readings"]}], "sources": [READINGS | {"onError": "drop"}]},
            "spec.steps[0].onError",
            "required: fail, for its function is called with whole relations",
        ),
        (
            {
                "sources": [READINGS | {"onError": "drop"}, READINGS | {"name": "other", "onError": "null"}],
                "steps": [{"name": "hot", "sql": "SELECT readings.device FROM readings JOIN other USING (device)"}],
            },
            "spec.steps[0].onError",
            "required: its sources say drop and null",
        ),
        ({"steps": [], "sinks": [{"table": "all"}], "onError": "drop"}, "spec.onError", "nothing computes rows"),
        (
            {"steps": [], "sinks": [{"table": "all"}], "sources": [READINGS | {"onError": "drop"}]},
            "spec.sources[0].onError",
            "no step computes its rows",
        ),
        (
            {"sources": [{"name": "readings", "address": "a", "format": "text", "includePresent": True}]},
            "spec.sources[0].includePresent",
            "a message of format text has no fields",
        ),
        (
            {"sources": [READINGS, FILE | {"files": {"path": "a", "format": "parquet"}, "includePresent": True}]},
            "spec.sources[1].includePresent",
            "rows of parquet have all columns",
        ),
        (
            {"sources": [READINGS, {"name": "t", "table": "t", "includePresent": True}]},
            "spec.sources[1].includePresent",
            "only an address has it",
        ),
        (
            {"sources": [READINGS | {"format": "raw", "tombstones": True}]},
            "spec.sources[0].tombstones",
            "is one like others",
        ),
        ({"sinks": [UPSERT | {"keepHistory": True}]}, "spec.sinks[0].orderBy", "required with keepHistory"),
        (
            {"sinks": [UPSERT | {"keepHistory": True, "orderBy": "device", "update": "present"}]},
            "spec.sinks[0].update",
            "as a late row would change all after it, too: leave it out, and have a function with state",
        ),
        ({"sinks": [{"table": "t", "keepHistory": True}]}, "spec.sinks[0].keepHistory", "only mode update has it"),
        ({"sinks": [{"table": "t", "partitionBy": ["day(at)"]}]}, "spec.sinks[0].partitionBy[0]", "no column 'at'"),
        (
            {"sinks": [{"table": "t", "partitionBy": ["week(device)"]}]},
            "spec.sinks[0].partitionBy[0]",
            "expected a column, year(column)",
        ),
        (
            {"sinks": [{"table": "t", "partitionBy": ["bucket(device)"]}]},
            "spec.sinks[0].partitionBy[0]",
            "bucket(16, column) with 1000 buckets at most",
        ),
        (
            {"sinks": [{"table": "t", "constraints": {"cold": "pressure < 9"}}]},
            "spec.sinks[0].constraints.cold",
            "there is no column 'pressure'",
        ),
        ({"sinks": [{"table": "t", "constraints": {"a-b": "true"}}]}, "spec.sinks[0].constraints", "expected a name"),
        (
            {"sinks": [{"table": "t", "format": "parquet", "constraints": {"a": "true"}}]},
            "spec.sinks[0].constraints",
            "only a Delta table has them",
        ),
        (
            {"sinks": [{"table": "t", "maintenance": {"zOrderBy": ["at"]}}]},
            "spec.sinks[0].maintenance.zOrderBy[0]",
            "there is no column 'at'",
        ),
        ({"sinks": [UPSERT | {"orderBy": "at"}]}, "spec.sinks[0].orderBy", "there is no column 'at'"),
        ({"sinks": [UPSERT | {"deleteWhen": "op = 'd'"}]}, "spec.sinks[0].deleteWhen", "there is no column 'op'"),
        ({"sinks": [UPSERT | {"deleteWhen": "rand() > 0"}]}, "spec.sinks[0].deleteWhen", "rand"),
        ({"sinks": [UPSERT | {"deleteWhen": "true) FROM x --"}]}, "spec.sinks[0].deleteWhen", "line 1"),
        ({"sources": [READINGS | {"badRecords": "telemetry"}]}, "spec.sources[0].badRecords", "another address"),
        (
            {"sources": [READINGS | {"watermark": {"column": "ts", "delay": "1s", "late": "telemetry"}}]},
            "spec.sources[0].watermark.late",
            "another address",
        ),
        (
            {"sources": [READINGS | {"watermark": {"column": "ts", "delay": "1s", "late": "a b"}}]},
            "spec.sources[0].watermark.late",
            "expected",
        ),
        (
            {"sources": [READINGS | {"schema": "device TEXT"}]},
            "spec.sources[0].schema",
            "character 8: expected a type",
        ),
        ({"sources": [READINGS | {"format": "raw"}]}, "spec.sources[0].schema", "raw has columns of its own"),
        (
            {"sources": [READINGS | {"format": "avro"}]},
            "spec.sources[0].schema",
            "expected the JSON of an Avro record",
        ),
        ({"sources": [READINGS | {"format": None}]}, "spec.sources[0].format", "required where there is a schema"),
        (
            {"sources": [READINGS | {"startingOffsets": "5"}]},
            "spec.sources[0].startingOffsets",
            "expected earliest, la",
        ),
        (
            {"sources": [READINGS | {"startingOffsets": '{"0": -1}'}]},
            "spec.sources[0].startingOffsets",
            "partition '0' has -1",
        ),
        (
            {"sources": [READINGS | {"watermark": {"column": "at", "delay": "1s"}}]},
            "spec.sources[0].watermark.column",
            "there is no column 'at'; there are device, temperature, ts, day, _partition, _offset, _timestamp",
        ),
        (
            {"sources": [READINGS | {"watermark": {"column": "device", "delay": "1s"}}]},
            "spec.sources[0].watermark.column",
            "expected a TIMESTAMP, but 'device' is STRING",
        ),
        (
            {"sources": [{"name": "readings", "table": "t", "startingOffsets": "latest"}]},
            "spec.sources[0].startingOffsets",
            "only an address has it, or a table with stream: true",
        ),
        (
            {"steps": [{"name": "hot", "sql": "SELECT devise, temperature FROM readings"}]},
            "spec.steps[0].sql",
            "line 1, column 8: there is no column 'devise'; did you mean 'device'?",
        ),
        (
            {"steps": [{"name": "a", "sql": "SELECT device FROM hot"}, HOT]},
            "spec.steps[0].sql",
            "line 1, column 20: there is no relation 'hot'; there are readings",
        ),
        (
            {"steps": [HOT, {"name": "b", "sql": "SELECT ts FROM hot"}]},
            "spec.steps[1].sql",
            "line 1, column 8: there is no column 'ts'; there are device, temperature",
        ),
        ({"steps": [{"name": "hot"}]}, "spec.steps[0]", "expected one of sql, function and dropDuplicates"),
        ({"steps": [HOT | {"input": "readings"}]}, "spec.steps[0].input", "only a step with a function has it"),
        ({"steps": [HOT | SCORED]}, "spec.steps[0]", "got sql and function"),
        ({"steps": [HOT, SCORED]}, "spec.code", "required: the ConfigMap with the module of spec.steps[1].function"),
        (
            {"steps": [HOT, SCORED | {"function": "score"}], "code": {"configMap": "c"}},
            "spec.steps[1].function",
            "expected module:function, got 'score'",
        ),
        (
            {"steps": [HOT, SCORED | {"schema": None}], "code": {"configMap": "c"}},
            "spec.steps[1].schema",
            "required: the columns that the function gives",
        ),
        (
            {"steps": [HOT, SCORED | {"input": "warm"}], "code": {"configMap": "c"}},
            "spec.steps[1].input",
            "there is no relation 'warm' above; there are readings, hot",
        ),
        ({"code": {"configMap": "c"}}, "spec.code", "only a pipeline with functions needs code"),
        ({"sinks": [{"input": "hot"}]}, "spec.sinks[0]", "expected one of address, table and database, got none"),
        ({"sinks": [{"input": "warm", "address": "a"}]}, "spec.sinks[0].input", "there is no relation 'warm' above"),
        ({"sinks": [TO_ALERTS | {"address": "*"}]}, "spec.sinks[0].address", "'*' needs a column 'address'"),
        ({"sinks": [TO_ALERTS | {"keys": ["device"]}]}, "spec.sinks[0].keys", "only a table has it"),
        ({"sinks": [TO_ALERTS | {"mode": "complete"}]}, "spec.sinks[0].mode", "an address takes append or update"),
        ({"sinks": [{"table": "t", "onNoConsumer": "skip"}]}, "spec.sinks[0].onNoConsumer", "only an address has it"),
        ({"sinks": [{"table": "t", "mode": "update"}]}, "spec.sinks[0].keys", "required with mode update"),
        ({"sinks": [{"table": "t", "keys": ["device"]}]}, "spec.sinks[0].keys", "only mode update has it"),
        (
            {"sinks": [{"table": "t", "mode": "update", "keys": ["device"], "format": "parquet"}]},
            "spec.sinks[0].mode",
            "rows of a Parquet table cannot change; use format delta",
        ),
        (
            {"sinks": [{"table": "t", "partitionBy": ["device", "day"]}]},
            "spec.sinks[0].partitionBy[1]",
            "there is no column 'day'; there are device, temperature",
        ),
        ({"sinks": [{"table": "t"}, {"table": "t"}]}, "spec.sinks[1].table", "another sink writes 't' already"),
        ({"sinks": [{"table": "T T"}]}, "spec.sinks[0].table", "expected lower-case letters"),
        ({"trigger": "often"}, "spec.trigger", "expected a duration such as 1s, 0s for at once, or availableNow"),
        (
            {"backfill": {"at": "1", "from": "2026-01-31T00:00:00Z"}},
            "spec.backfill.to",
            "required: from and to go together",
        ),
        ({"backfill": {"at": "1"}}, "spec.backfill", "expected from and to, or partitions"),
        (
            {"backfill": {"at": "1", "from": "2026-01-31T00:00:00Z", "to": "2026-01-31T00:00:00Z"}},
            "spec.backfill.to",
            "expected a moment after from",
        ),
        (
            {"backfill": {"at": "1", "from": "soon", "to": "2026-01-31T00:00:00Z"}},
            "spec.backfill.from",
            "expected a moment such as 2026-01-31T12:00:00Z",
        ),
        (
            {"backfill": {"at": "1", "partitions": {"site": ""}}},
            "spec.backfill.partitions.site",
            "expected a value: an empty text and NULL lie in one folder",
        ),
        ({"restart": {"at": ""}}, "spec.restart.at", "required: any text that was not there before"),
        (
            {"restart": {"at": "1", "from": "soon"}},
            "spec.restart.from",
            "expected earliest, latest, a moment such as",
        ),
        ({"resources": {"cores": 2}}, "spec.resources.cores", "needs session: own"),
        ({"resources": {"session": "own", "memory": "1Mi"}}, "spec.resources.memory", "expected at least 512Mi"),
        (
            {"resources": {"session": "own", "master": "http://a:1"}},
            "spec.resources.master",
            "expected spark://HOST:PORT, k8s://URL, yarn, local or local[N], got 'http://a:1'",
        ),
        ({"credentialsSecret": "An alyst"}, "spec.credentialsSecret", "expected the name of an object"),
        ({"sorces": []}, "spec.sorces", "unknown field; did you mean 'sources'?"),
        (
            {"steps": [HOT | {"sql": "x" * 20_001}]},
            "spec.steps[0].sql",
            "expected at most 20000 characters, got 20001",
        ),
        (
            {"steps": [{"name": f"s{number}", "sql": f"SELECT '{'x' * 19_000}' AS a"} for number in range(6)]},
            "spec.steps",
            "expected at most 100000 characters of SQL in all",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(spec: dict[str, Any], path: str, message: str) -> None:
    found = problems(pipeline(**spec))
    assert message in found[path]


def test_a_function_may_keep_state_by_key() -> None:
    decode(pipeline(**by_device()))
    decode(pipeline(**by_device(state={"schema": "n INT", "timers": "eventTime", "ttl": "1h", "orderBy": ["ts"]})))


def test_sql_may_call_declared_functions() -> None:
    decode(pipeline(**WITH_SQL))


def test_of_a_table_or_an_address_without_schema_any_column_may_be() -> None:
    decode(pipeline(sources=[{"name": "readings", "table": "readings"}]))
    decode(pipeline(sources=[{"name": "readings", "address": "telemetry"}]))


def test_raw_rows_have_the_columns_of_the_source() -> None:
    raw = {"name": "readings", "address": "telemetry", "format": "raw"}
    step = {"name": "hot", "sql": "SELECT CAST(value AS STRING) AS v, properties['room'] AS room FROM readings"}
    assert "there is no column 'properties'" in problems(pipeline(sources=[raw], steps=[step]))["spec.steps[0].sql"]
    decode(pipeline(sources=[raw | {"includeProperties": True}], steps=[step]))
    named = {"name": "hot", "sql": "SELECT address FROM readings"}
    assert "there is no column 'address'" in problems(pipeline(sources=[raw], steps=[named]))["spec.steps[0].sql"]
    decode(pipeline(sources=[raw | {"includeProperties": True}], steps=[named]))
    typed = {"name": "hot", "sql": "SELECT transform(headers, h -> h.type) AS types FROM readings"}
    assert "there is no column 'headers'" in problems(pipeline(sources=[raw], steps=[typed]))["spec.steps[0].sql"]
    decode(pipeline(sources=[raw | {"includeHeaders": True}], steps=[typed]))
    late = raw | {"watermark": {"column": "timestamp", "delay": "1s"}}
    decode(pipeline(sources=[late], steps=[], sinks=[{"table": "raw"}]))


ENDLESS: Any = [
    ("SELECT device FROM readings LIMIT 3", "line 1, column 35: LIMIT would end the stream"),
    ("SELECT device FROM readings OFFSET 3", "no rows that OFFSET could skip"),
    ("SELECT device FROM readings ORDER BY ts", "no order of all its rows"),
    ("SELECT device, lag(ts) OVER (ORDER BY ts) AS l FROM readings", "no windows over its rows"),
    ("SELECT device FROM readings EXCEPT SELECT device FROM devices", "LEFT ANTI JOIN a table"),
    ("SELECT device FROM devices INTERSECT SELECT device FROM readings", "SEMI JOIN a table"),
    ("SELECT max(ts) AS t FROM readings HAVING max(temperature) > 3", "HAVING without GROUP BY"),
    ("SELECT device, count(*) AS n FROM readings GROUP BY device HAVING n > 3", "a group without a window goes on"),
    ("SELECT device FROM (SELECT * FROM readings LIMIT 3) AS some", "LIMIT would end the stream"),
    ("WITH some AS (SELECT * FROM readings LIMIT 3) SELECT device FROM some", "LIMIT would end the stream"),
    ("WITH some AS (SELECT * FROM readings) SELECT device FROM some LIMIT 3", "LIMIT would end the stream"),
    ("SELECT device FROM readings UNION ALL SELECT device FROM devices LIMIT 3", "LIMIT would end the stream"),
    ("SELECT DISTINCT device FROM readings", "DISTINCT keeps each row of a stream in mind for ever"),
    ("SELECT d FROM (SELECT DISTINCT device AS d FROM readings) AS one", "use dropDuplicates"),
    ("SELECT device FROM readings UNION SELECT device FROM devices", "use UNION ALL"),
]
NEVER: Any = [
    ("SELECT device, count(DISTINCT ts) AS n FROM readings GROUP BY device", "use approx_count_distinct"),
    ("SELECT sum(DISTINCT temperature) FILTER (WHERE ts > '2026-01-31') AS s FROM readings", "sum(DISTINCT ...)"),
    ("SELECT name FROM devices WHERE device IN (SELECT device FROM readings LIMIT 3)", "SEMI JOIN for IN and EXISTS"),
    (
        "SELECT name FROM devices d WHERE NOT EXISTS (SELECT 1 FROM readings r WHERE r.device = d.device)",
        "a subquery",
    ),
    ("SELECT device FROM readings WHERE temperature > (SELECT avg(temperature) AS a FROM readings)", "a subquery"),
    ("WITH all AS (SELECT * FROM readings) SELECT (SELECT max(ts) AS m FROM all) AS m FROM devices", "a subquery"),
    (
        "SELECT r.device FROM readings r LEFT JOIN readings o ON r.device = o.device",
        "a row of a stream without a partner",
    ),
    (
        "SELECT r.device FROM readings r FULL OUTER JOIN readings o ON r.device = o.device",
        "give a source of the join",
    ),
    (
        "WITH w AS (SELECT * FROM readings) SELECT ts FROM devices JOIN readings USING (ts) RIGHT JOIN w USING (ts)",
        "a watermark",
    ),
]
DEVICES: dict[str, Any] = {"name": "devices", "table": "devices"}


@pytest.mark.parametrize(("sql", "message"), ENDLESS)
def test_what_needs_an_end_of_the_rows_is_refused_over_streams_with_the_way_that_works(
    sql: str, message: str
) -> None:
    sources = [READINGS, DEVICES]
    told: dict[str, Any] = {"sources": sources, "steps": [{"name": "hot", "sql": sql}]}
    (found,) = problems(pipeline(**told)).items()
    assert found[0] == "spec.steps[0].sql"
    assert message in found[1]
    assert "perBatch: true" in found[1]
    passed = [
        {"name": "all", "sql": "SELECT * FROM readings"},
        {"name": "hot", "sql": sql.replace("readings", "all")},
    ]
    assert list(problems(pipeline(**told | {"steps": passed}))) == ["spec.steps[1].sql"]
    decode(pipeline(**told | {"steps": [{"name": "hot", "sql": sql, "perBatch": True}]}))
    decode(pipeline(**told | {"steps": [passed[0] | {"perBatch": True}, passed[1]]}))
    decode(pipeline(**told | {"sinks": [{"table": "hot", "mode": "complete"}]}))
    other = {"name": "hot", "sql": sql.replace("readings", "devices")}
    decode(pipeline(**told | {"steps": [other]}))


@pytest.mark.parametrize(("sql", "message"), NEVER)
def test_what_no_stream_has_is_refused_whatever_becomes_of_its_rows(sql: str, message: str) -> None:
    told: dict[str, Any] = {"sources": [READINGS, DEVICES], "steps": [{"name": "hot", "sql": sql}]}
    for changed in ({}, {"sinks": [{"table": "hot", "mode": "complete"}]}):
        (found,) = problems(pipeline(**told | changed)).items()
        assert found[0] == "spec.steps[0].sql"
        assert message in found[1]
        assert "perBatch: true" in found[1]
    passed = [
        {"name": "all", "sql": "SELECT * FROM readings"},
        {"name": "hot", "sql": sql.replace("all ", "each ").replace("all)", "each)").replace("readings", "all")},
    ]
    assert list(problems(pipeline(**told | {"steps": passed}))) == ["spec.steps[1].sql"]
    decode(pipeline(**told | {"steps": [{"name": "hot", "sql": sql, "perBatch": True}]}))
    decode(pipeline(**told | {"steps": [{"name": "hot", "sql": sql.replace("readings", "devices")}]}))


@pytest.mark.parametrize("side", ["LEFT", "RIGHT", "FULL OUTER"])
@pytest.mark.parametrize("source", ["readings", "others"])
def test_streams_are_joined_with_rows_that_have_no_partner_where_a_watermark_ends_the_wait(
    side: str, source: str
) -> None:
    sql = f"SELECT r.device FROM readings r {side} JOIN step0 o ON r.device = o.device"
    steps = [{"name": "step0", "sql": "SELECT * FROM others"}, {"name": "hot", "sql": sql}]
    sources = [READINGS, READINGS | {"name": "others", "address": "others"}]
    assert list(problems(pipeline(sources=sources, steps=steps))) == ["spec.steps[1].sql"]
    late = {"watermark": {"column": "ts", "delay": "10s"}}
    decode(pipeline(sources=[one | (late if one["name"] == source else {}) for one in sources], steps=steps))


@pytest.mark.parametrize(
    "steps",
    [
        ["SELECT count(*) AS n FROM readings GROUP BY window(ts, '1 minute') HAVING n > 3"],
        ["SELECT DISTINCT window(ts, '1 minute') AS w, device FROM readings"],
        ["SELECT device FROM readings WHERE device IN (SELECT DISTINCT device FROM devices)"],
        ["SELECT r.device FROM readings r LEFT JOIN devices d ON r.device = d.device"],
        ["SELECT device FROM readings JOIN (SELECT count(DISTINCT device) AS device FROM devices) USING (device)"],
        [
            "SELECT window(ts, '1 minute') AS w, device FROM readings",
            "SELECT w, count(*) AS n FROM step0 GROUP BY w HAVING n > 3",
        ],
        ["SELECT r.device FROM readings r JOIN (SELECT * FROM devices ORDER BY n LIMIT 3) d ON r.device = d.device"],
        ["WITH readings AS (SELECT * FROM devices) SELECT device FROM readings LIMIT 3"],
    ],
)
def test_windows_end_groups_and_tables_have_an_end(steps: list[str]) -> None:
    made = [{"name": f"step{number}", "sql": sql} for number, sql in enumerate(steps)]
    last = [{"input": made[-1]["name"], "address": "alerts"}]
    decode(pipeline(sources=[READINGS, DEVICES], steps=made, sinks=last))


def test_groups_of_the_column_of_a_watermark_end_where_rows_are_final() -> None:
    source = READINGS | {"watermark": {"column": "ts", "delay": "1s"}}
    step = {"name": "hot", "sql": "SELECT ts, count(*) AS n FROM readings GROUP BY ts HAVING n > 3"}
    decode(pipeline(sources=[source], steps=[step]))
    update = [{"table": "hot", "mode": "update", "keys": ["ts"]}]
    assert list(problems(pipeline(sources=[source], steps=[step], sinks=update))) == ["spec.steps[0].sql"]


def test_decoded_rows_have_those_of_the_source_with_an_underscore() -> None:
    step = {"name": "hot", "sql": "SELECT device, _offset, _properties['room'] AS room, _address FROM readings"}
    assert "there is no column '_" in problems(pipeline(sources=[READINGS], steps=[step]))["spec.steps[0].sql"]
    decode(pipeline(sources=[READINGS | {"includeProperties": True}], steps=[step]))


def test_a_builtin_pipeline_has_its_own_flow_and_parameters() -> None:
    telemetry = {"address": "telemetry"}
    decode(pipeline(builtin={"name": "lake", "parameters": telemetry}))
    beside = pipeline(builtin={"name": "lake", "parameters": telemetry}, sources=[READINGS])
    assert problems(beside) == {"spec.sources": "cannot stand beside builtin, which has its own"}
    again = {"at": "1", "from": "2026-01-30T00:00:00Z", "to": "2026-01-31T00:00:00Z"}
    said = problems(pipeline(builtin={"name": "lake", "parameters": telemetry}, backfill=again))
    assert said == {
        "spec.backfill": "cannot stand beside builtin: only what a query makes of spec.sources is computed again"
    }
    unknown = problems(pipeline(builtin={"name": "leak"}))
    assert unknown == {"spec.builtin.name": f"expected one of {', '.join(BUILTINS)}, got 'leak'"}
    wrong = pipeline(builtin={"name": "windows", "parameters": telemetry | {"size": "soon", "sise": "1m"}})
    assert problems(wrong) == {
        "spec.builtin.parameters.size": "expected a duration such as 30s, 15m, 12h, 7d or 1h30m, at most a hundred "
        "years, got 'soon'",
        "spec.builtin.parameters.sise": "unknown field; did you mean 'size'?",
    }
    assert "spec.builtin.parameters.address" in problems(pipeline(builtin={"name": "lake"}))


def test_every_field_of_a_pipeline_says_what_it_is() -> None:
    pending: list[Any] = [Pipeline]
    while pending:
        model = pending.pop()
        texts = field_texts(model)
        for name, field in model.model_fields.items():
            inner = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if part]
            pending += [
                part for part in inner if isinstance(part, type) and part.__module__ == PipelineSpec.__module__
            ]
            assert name in texts or name in ("api_version", "kind", "metadata", "spec", "status"), (model, name)
