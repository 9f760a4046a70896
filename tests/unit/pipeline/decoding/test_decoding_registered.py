"""Messages that name their schemas: read by these, into the columns of another."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from enmasse.model.sql.message_schema import SchemaTextError
from enmasse.pipeline import registry_copy
from enmasse.pipeline.decoding.arrow_stage import ArrowDecoding
from enmasse.pipeline.decoding.json_schema import json_schema_columns
from enmasse.pipeline.decoding.registered import Registered
from enmasse.pipeline.errors import PlanError, RegistryAwayError
from enmasse.pipeline.registry_copy import RegisteredSchema, RegistryCopy
from enmasse.schemas.wire_format import header
from tests.support.protobuf_files import field, file_of, schema_of, written

DEVICE = {"name": "device", "type": "string"}
OLD = {"type": "record", "name": "R", "fields": [DEVICE, {"name": "value", "type": "int"}]}
NEW = {
    "type": "record", "name": "R",
    "fields": [DEVICE, {"name": "value", "type": "double"}, {"name": "unit", "type": "string", "default": "C"}],
}  # fmt: skip
ALERT = {
    "type": "object", "required": ["device"],
    "properties": {"device": {"type": "string"}, "level": {"type": ["integer", "null"]},
                   "at": {"type": "string", "format": "date-time"}},
}  # fmt: skip
VERSIONS: list[dict[str, Any]] = [
    {"subject": "readings", "version": 1, "id": 1, "schema": json.dumps(OLD)},
    {"subject": "readings", "version": 2, "id": 2, "schema": json.dumps(NEW)},
    {"subject": "readings", "version": 3, "id": 3, "schema": '"string"', "deleted": True},
    {"subject": "alerts", "version": 1, "id": 4, "schemaType": "JSON", "schema": json.dumps(ALERT)},
]


def write(path: Path, versions: list[dict[str, Any]], asked_s: float) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(versions))
    os.utime(new, (asked_s, asked_s))
    new.replace(path)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy that is asked for after all that the tests do."""
    path = tmp_path / "registry.json"
    write(path, VERSIONS, time.time() + 600)
    return path


def avro(number: int, schema: Any, record: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, record)
    return header(number) + file.getvalue()


def decoded(registered: Registered, *values: bytes, with_present: bool = False) -> list[dict[str, Any]]:
    stage = ArrowDecoding(registered.format, None, [], registered, with_present=with_present)
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
    return [row for found in stage(iter([batch])) for row in found.to_pylist()]


def test_each_message_is_read_by_its_own_schema_into_the_columns_of_the_subjects(copy: Path) -> None:
    rows = decoded(
        Registered(copy, "avro", json.dumps(NEW), is_subject=True),
        avro(1, OLD, {"device": "a", "value": 3}),
        avro(2, NEW, {"device": "b", "value": 2.5, "unit": "F"}),
    )
    assert [(row["device"], row["value"], row["unit"], row["_problem"]) for row in rows] == [
        ("a", 3.0, "C", None),
        ("b", 2.5, "F", None),
    ]


def test_a_default_of_null_that_no_message_has_is_not_present(copy: Path) -> None:
    null = ["null", "string"]
    fields = [
        {"name": "device", "type": "string"},
        {"name": "reading", "aliases": ["value"], "type": ["null", "double"], "default": None},
        {"name": "unit", "type": null, "default": None},
        {"name": "place", "type": "string", "default": "here"},
    ]
    wanted = Registered(copy, "avro", json.dumps({"type": "record", "name": "R", "fields": fields}), is_subject=False)
    writers = (avro(1, OLD, {"device": "a", "value": 3}), avro(2, NEW, {"device": "b", "value": 2.5, "unit": "F"}))
    rows = decoded(wanted, *writers, with_present=True)
    assert [(row["reading"], row["unit"], row["place"], row["_present"]) for row in rows] == [
        (3.0, None, "here", ["device", "reading", "place"]),
        (2.5, "F", "here", ["device", "reading", "unit", "place"]),
    ]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x02a\x06", "it is not in the wire format"),
        (header(9) + b"x", "it is of schema 9, which the registry does not have"),
        (header(4) + b"{}", "it is of schema 4, which is of type JSON and not AVRO"),
        (header(3) + b"\x02a", "it is of schema 3, which has no columns"),
        (header(1) + b"\x02a", "it is no Avro of schema 1: it ends too soon"),
        (header(2) + b"\x02a", "it is no Avro of schema 2: it ends too soon"),
        (avro(1, OLD, {"device": "a", "value": 3}) + b"x", "expected one Avro record, got 1 more bytes"),
    ],
)
def test_what_cannot_be_read_is_a_bad_record(copy: Path, message: bytes, why: str) -> None:
    (row,) = decoded(Registered(copy, "avro", json.dumps(NEW), is_subject=True), message)
    assert row["_problem"].startswith(why)
    assert row["_value"] == message


def test_documents_are_held_against_their_schema(copy: Path) -> None:
    rows = decoded(
        Registered(copy, "json", json.dumps(ALERT), is_subject=True),
        header(4) + b'{"device": "a", "level": 3, "at": "2026-01-31T12:00:00Z", "more": 1}',
        header(4) + b'{"device": "a", "level": "high"}',
        header(4) + b'{"level": 1}',
        header(4) + b'{"device": NaN}',
        header(4) + b"\xff",
    )
    assert rows[0] | {"at": None} == {"device": "a", "level": 3, "at": None, "_problem": None, "_value": None}
    assert rows[0]["at"].isoformat() == "2026-01-31T12:00:00+00:00"
    problems = [row["_problem"] for row in rows[1:]]
    assert problems[0] == "level: 'high' is not of type 'integer', 'null'"
    assert problems[1] == "it does not fit schema 4: 'device' is a required property"
    assert all(problem.startswith("it is no JSON: ") for problem in problems[2:])


def test_messages_without_ids_are_all_of_the_subjects_schema(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"  # no registry is asked
    reading = Registered(
        nowhere, "avro", json.dumps(OLD), is_subject=True, of_all=RegisteredSchema(1, "AVRO", json.dumps(OLD))
    )
    rows = decoded(reading, avro(1, OLD, {"device": "a", "value": 3})[5:], b"x")
    assert (rows[0]["device"], rows[0]["value"]) == ("a", 3)
    assert rows[1]["_problem"].startswith("it is no Avro of schema 1")
    alert = Registered(
        nowhere, "json", json.dumps(ALERT), is_subject=True, of_all=RegisteredSchema(4, "JSON", json.dumps(ALERT))
    )
    rows = decoded(alert, b'{"device": "a", "level": 3}', b'{"level": 3}')
    assert (rows[0]["level"], rows[1]["_problem"]) == (3, "it does not fit schema 4: 'device' is a required property")


READING = file_of(
    'message_type { name: "Reading" ' + field("device", 1, "string") + field("value", 2, "int32") + "} "
    'message_type { name: "Alert" ' + field("text", 1, "string") + 'nested_type { name: "Cause" } } '
)
NEWER = file_of(
    'message_type { name: "Reading" ' + field("device", 1, "string") + field("reading", 2, "int64") + "} "
    'message_type { name: "Alert" ' + field("text", 1, "string") + 'nested_type { name: "Cause" } } '
)


def test_protobuf_is_read_by_the_numbers_of_fields_in_the_subjects_schema(copy: Path) -> None:
    old, new = (schema_of("acme.Reading", file) for file in (READING, NEWER))
    versions = [
        {"subject": "r", "version": 1, "id": number, "schemaType": "PROTOBUF", "schema": text.split()[1]}
        for number, text in enumerate((old, new), start=7)
    ]
    write(copy, [*VERSIONS, *versions], time.time() + 600)
    registered = Registered(copy, "protobuf", new, is_subject=True)
    content = written(old, device="a", value=3)
    rows = decoded(
        registered,
        header(7) + b"\0" + content,
        header(8) + b"\x02\x00" + written(new, device="b", reading=2**40),
        header(7) + b"\x02\x02" + b"\x0a\x01x",
        header(7) + b"\x02\x04" + content,
        header(7) + b"\x04\x02\x02" + content,
        header(7),
        header(1) + content,
        header(7) + b"\0\x08\x01",
    )
    assert [(row["device"], row["reading"]) for row in rows[:2]] == [("a", 3), ("b", 2**40)]
    assert [row["_problem"] for row in rows[2:]] == [
        "it is a message acme.Alert of schema 7, and acme.Reading is read",
        "it is of schema 7, and of none of its messages: (2,)",
        "it is of schema 7, and of none of its messages: (1, 1)",
        "it is of schema 7: the place of a message in its file ends too soon",
        "it is of schema 1, which is of type AVRO and not PROTOBUF",
        "device: expected string, got a varint, which is another type",
    ]
    alone = Registered(copy, "protobuf", old, is_subject=True, of_all=RegisteredSchema(7, "PROTOBUF", old.split()[1]))
    (row,) = decoded(alone, content)
    assert (row["device"], row["value"]) == ("a", 3)


def test_columns_may_stand_in_the_pipeline(copy: Path) -> None:
    (row,) = decoded(
        Registered(copy, "json", "device STRING, level SMALLINT", is_subject=False),
        header(4) + b'{"device": "a", "level": 3}',
    )
    assert (row["device"], row["level"], row["_problem"]) == ("a", 3, None)


def test_an_unknown_id_is_looked_for_in_a_younger_copy(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    write(path, VERSIONS[:1], time.time() - 5)
    later = threading.Timer(0.2, write, (path, VERSIONS, time.time() + 600))
    later.start()
    message = avro(2, NEW, {"device": "b", "value": 2.5, "unit": "F"})
    (row,) = decoded(Registered(path, "avro", json.dumps(NEW), is_subject=True), message)
    later.join()
    assert row["_problem"] is None


def test_nothing_is_called_unknown_while_the_registry_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_copy, "PATIENCE_S", 0.1)
    path = tmp_path / "registry.json"
    registered = Registered(path, "avro", json.dumps(OLD), is_subject=True)
    with pytest.raises(RegistryAwayError):
        decoded(registered, header(1))
    write(path, [], time.time() - 5)
    with pytest.raises(RegistryAwayError):
        decoded(registered, header(1))


def test_a_subject_is_that_of_its_latest_version_that_was_not_deleted(copy: Path) -> None:
    known = RegistryCopy(copy)
    assert known.subject("readings", None).id == 2
    assert known.subject("readings", 1).id == 1
    with pytest.raises(PlanError, match="has no version 3; there are 1, 2"):
        known.subject("readings", 3)
    with pytest.raises(PlanError, match="no subject 'none'"):
        known.subject("none", None)


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({"a": {"type": "number"}, "b": {"type": "boolean"}}, "a DOUBLE, b BOOLEAN"),
        ({"a": {"type": "array", "items": {"type": "integer"}}}, "a ARRAY<BIGINT>"),
        ({"a": {"type": "object", "properties": {"b": {"type": "string"}}}}, "a STRUCT<b: STRING>"),
        ({"a": {"type": "object", "additionalProperties": {"type": "number"}}}, "a MAP<STRING, DOUBLE>"),
        ({"a": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}}, "a DATE"),
        ({"a": {"enum": ["x", "y"]}}, "a STRING"),
    ],
)
def test_properties_are_columns(properties: Any, columns: str) -> None:
    schema = {"properties": properties, "$defs": {"x": {"type": "string", "format": "date"}}}
    assert ", ".join(f"{column.name} {column.type}" for column in json_schema_columns(json.dumps(schema))) == columns


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "expected an object with properties"),
        ({"properties": {"a": {}}}, "a: expected one type"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "a: expected one type"),
        ({"properties": {"a": {"$ref": "#"}}}, "expected at most 20 types in each other"),
        ({"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "there are two properties 'A'"),
        ({"properties": {"_offset": {"type": "string"}}}, "choose another name"),
    ],
)
def test_what_is_no_column_is_told(schema: Any, why: str) -> None:
    with pytest.raises(SchemaTextError, match=why):
        json_schema_columns(json.dumps(schema))
