"""What an address may say of its messages, and the columns that it comes to."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.schema import objects
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.sql.avro import AvroSchemaError, avro_columns
from enmasse.model.sql.ddl import written
from enmasse.model.sql.message_schema import SENML_COLUMNS, MessageFormat, SchemaTextError, schema_columns
from tests.support.protobuf_files import field as field_of
from tests.support.protobuf_files import file_of, schema_of


def record(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "Reading", "fields": list(fields)} | more)


def field(of: Any, name: str = "x") -> dict[str, Any]:
    return {"name": name, "type": of}


def wide(level: int) -> Any:
    """A record with two of the next level, of which the second is a name, over and over."""
    if level == 14:
        return "int"
    inner = wide(level + 1)
    name = inner["name"] if isinstance(inner, dict) else inner
    return {"type": "record", "name": f"L{level}", "fields": [field(inner, "a"), field(name, "b")]}


def address(schema: Any) -> dict[str, Any]:
    spec = {"address": "telemetry", "type": "stream", "schema": schema}
    metadata = {"name": "shop.telemetry", "namespace": "default"}
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("of", "column"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("bytes", "BINARY"),
        ("string", "STRING"),
        (["null", "string"], "STRING"),
        (["int"], "INT"),
        (["null", "int", "long"], "BIGINT"),
        (["float", "double"], "DOUBLE"),
        (["null", "int", "string", "long"], "STRUCT<string: STRING, long: BIGINT>"),
        (
            ["long", {"type": "enum", "name": "acme.E", "symbols": ["A"]}, {"type": "array", "items": "int"}],
            "STRUCT<long: BIGINT, E: STRING, array: ARRAY<INT>>",
        ),
        (
            [{"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}],
            "STRING",
        ),
        ([{"type": "int", "logicalType": "date"}, "long"], "STRUCT<int: DATE, long: BIGINT>"),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "STRING"),
        ({"type": "fixed", "name": "U", "size": 8, "logicalType": "uuid"}, "BINARY"),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            "STRUCT<months: BIGINT, days: BIGINT, milliseconds: BIGINT>",
        ),
        ({"type": "string", "logicalType": "date"}, "STRING"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "INT"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT"),
        ({"type": "fixed", "name": "N", "size": 5, "logicalType": "decimal", "precision": 9}, "DECIMAL(9,0)"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "DECIMAL(9,2)"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 4}, "BINARY"),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>"),
        ({"type": "map", "values": "double"}, "MAP<STRING, DOUBLE>"),
        ({"type": "record", "name": "P", "fields": [field("int", "floor")]}, "STRUCT<floor: INT>"),
    ],
)
def test_each_avro_type_is_a_type_of_column(of: Any, column: str) -> None:
    assert written(avro_columns(record(field(of)))) == f"x {column}"


def test_a_type_may_be_used_again_by_its_name() -> None:
    place = {"type": "record", "name": "Place", "fields": [field("int", "floor")]}
    text = record(field(place, "a"), field("Place", "b"), namespace="shop")
    assert written(avro_columns(text)) == "a STRUCT<floor: INT>, b STRUCT<floor: INT>"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected an Avro schema in JSON"),
        ("[" * 10_000, "expected an Avro schema in JSON|at most"),
        ('"string"', "expected a record"),
        (record(), "Reading: expected at least one field"),
        (record({"name": "x"}), "type"),
        (record({"type": "int"}), "name"),
        (record(field("strin")), "unknown type strin"),
        (record(field("null")), "x: a column cannot be null"),
        (record(field(["null"])), "x: a column cannot be null alone"),
        (record(field(["int", {"type": "int", "logicalType": "date"}])), "x: two types of a union are called 'int'"),
        (record(field(["null", ["int", "string"]])), "x: a union stands in a union"),
        (record(field({"type": "bytes", "logicalType": "decimal"})), "x: expected the precision of a decimal"),
        (
            record(field(wide(0))),
            "expected at most 10000 fields in all",
        ),
        (record(field("Reading")), "x: Reading holds itself"),
        (record(field({"type": "array", "items": "null"})), r"x\[\]: a column cannot be null"),
        (record(field({"type": "fixed", "name": "F", "size": 0})), "x: expected a fixed of at least one byte"),
        (
            json.dumps({"type": "record", "name": "R", "fields": [{"name": None, "type": "int"}]}),
            "R: expected a text as the name",
        ),
        (record(field({"type": "record", "name": "P", "fields": []})), "x: expected at least one field"),
        (record(field("int", "a"), field("int", "A")), "two fields 'A'"),
        (
            record(field({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2})),
            "x: expected at most 38 digits",
        ),
    ],
)
def test_a_schema_that_makes_no_columns_says_where(text: str, problem: str) -> None:
    with pytest.raises(AvroSchemaError, match=problem):
        avro_columns(text)


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers() | st.sampled_from(["int", "null", "record"]),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "name",
                        "fields",
                        "items",
                        "values",
                        "size",
                        "symbols",
                        "logicalType",
                        "precision",
                        "scale",
                        "namespace",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    )
)
def test_whatever_stands_for_a_schema_is_one_or_is_refused(of: Any) -> None:
    for text in (json.dumps(of), record(field(of)), record(of)):
        try:
            assert avro_columns(text)
        except AvroSchemaError as error:
            assert str(error)  # noqa: PT017  # nearly all are refused


@pytest.mark.parametrize(
    ("form", "text", "columns"),
    [
        ("raw", None, "value BINARY"),
        ("text", None, "value STRING"),
        ("json", "device STRING, t DOUBLE NOT NULL", "device STRING, t DOUBLE NOT NULL"),
        ("senml", None, written(SENML_COLUMNS)),
        ("senml", "name STRING, value DOUBLE", "name STRING, value DOUBLE"),
    ],
)
def test_a_format_and_a_text_make_columns(form: MessageFormat, text: str | None, columns: str) -> None:
    assert written(schema_columns(form, text)) == columns


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("raw", "a INT", "has no schema"),
        ("json", None, "required for format json: the columns, as in 'device STRING"),
        ("avro", None, "required for format avro"),
        ("protobuf", None, "required for format protobuf: the full name of the message"),
        ("cbor", "a WAT", "character 3: expected a type"),
        ("json", "_offset BIGINT", "'_offset' is one that every address has"),
        ("senml", "temperature DOUBLE", "expected one of name, unit"),
        ("senml", "value STRING", "expected value DOUBLE, got value STRING"),
    ],
)
def test_what_does_not_go_together_is_told(form: MessageFormat, text: str | None, problem: str) -> None:
    with pytest.raises(SchemaTextError, match=problem):
        schema_columns(form, text)


A = field_of("a", 1, "int32")


def message(name: str, *fields: str) -> str:
    return f'message_type {{ name: "{name}" {" ".join(fields)} }}'


WIDE = " ".join(
    message(f"M{level}", *(field_of(f"f{n}", n, f".acme.M{level + 1}") for n in range(1, 11))) for level in range(8)
)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("R", message("R", field_of("r", 1, ".acme.R")), "r: acme.R holds itself"),
        ("R", message("R"), "acme.R: expected at least one field"),
        ("R", message("R", A, field_of("A", 2, "int32")), "two fields 'A'"),
        ("R", message("R", field_of("_offset", 1, "int32")), "'_offset' is one that every"),
        ("None", message("R", A), "no message acme.None; there are acme.R"),
        ("M0", WIDE + message("M8", A), "at most 10000 fields in all"),
    ],
)
def test_what_a_message_of_protobuf_cannot_be_is_told(name: str, content: str, problem: str) -> None:
    with pytest.raises(SchemaTextError, match=problem):
        schema_columns("protobuf", schema_of(f"acme.{name}", file_of(content)))


@pytest.mark.parametrize("text", ["", "acme.R", "CgA=", "acme.R !", "acme.R AAAA", f"acme.R {'A' * 100_001}"])
def test_what_is_no_descriptor_is_told(text: str) -> None:
    with pytest.raises(SchemaTextError, match=r"descriptor set|FileDescriptorSet|characters"):
        schema_columns("protobuf", text)


@given(st.binary(max_size=80))
def test_whatever_comes_as_a_descriptor_is_one_or_says_why_not(content: bytes) -> None:
    try:
        schema_columns("protobuf", f"acme.R {base64.b64encode(content).decode()}")
    except SchemaTextError as error:
        assert str(error)  # noqa: PT017  # nearly everything is none


def test_an_address_keeps_its_schema_and_is_refused_a_wrong_one() -> None:
    schema = {"format": "json", "definition": "device STRING"}
    assert objects.decode(address(schema)).to_dict()["spec"]["schema"] == schema
    for wrong, problem in (
        ({"format": "json"}, "spec.schema.definition: required for format json"),
        ({"format": "jsn"}, "spec.schema.format: expected one of raw, json"),
        ({"format": "json", "definition": "a WAT"}, "spec.schema.definition: character 3"),
        ({"format": "avro", "definition": record(field("strin"))}, "spec.schema.definition: unknown type strin"),
        ({"format": "raw", "fields": "a INT"}, "spec.schema.fields: unknown field"),
    ):
        with pytest.raises(InvalidResourceError, match=problem):
            objects.decode(address(wrong))
