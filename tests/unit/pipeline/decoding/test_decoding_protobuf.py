"""Messages of Protobuf, as Google's library writes them and as it does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.sql.message_schema import schema_columns
from enmasse.pipeline.decoding.protobuf import protobuf_reader
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper
from tests.support.protobuf_files import field, file_of, map_entry, schema_of, written

ONE = "oneof_index: 0"
READING = file_of(
    'dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto" '
    'dependency: "google/protobuf/struct.proto" dependency: "google/protobuf/duration.proto" '
    'dependency: "google/protobuf/empty.proto" '
    'enum_type { name: "State" value { name: "OFF" number: 0 } value { name: "ON" number: 1 } } '
    'message_type { name: "Reading" '
    + field("device", 1, "string")
    + field("temperature", 2, "double", oneof_index=1, proto3_optional="true")
    + field("count", 3, "uint64")
    + field("raw", 4, "bytes")
    + field("state", 5, ":acme.State")
    + field("samples", 6, "sint32", "repeated")
    + field("tags", 7, ".acme.Reading.TagsEntry", "repeated")
    + field("place", 8, ".acme.Place")
    + field("at", 9, ".google.protobuf.Timestamp")
    + field("took", 10, ".google.protobuf.Duration")
    + field("limit", 11, ".google.protobuf.Int32Value")
    + field("more", 12, ".google.protobuf.Struct")
    + field("button", 13, "uint32", oneof_index=0)
    + field("reset", 14, ".google.protobuf.Empty", oneof_index=0)
    + map_entry("TagsEntry", "string", ":acme.State")
    + 'oneof_decl { name: "event" } oneof_decl { name: "_temperature" } } '
    + 'message_type { name: "Place" '
    + field("room", 1, "string")
    + field("floor", 2, "int32")
    + "}"
)
SCHEMA = schema_of("acme.Reading", READING)
MESSAGE: dict[str, Any] = {
    "device": "ä-1",
    "temperature": 0.0,
    "count": 2**64 - 1,
    "raw": b"\x00\xff",
    "state": 1,
    "samples": [1, -2],
    "tags": {"a": 1},
    "place": {"room": "hall"},
    "at": {"seconds": 1769860800, "nanos": 5_000},
    "took": {"seconds": -1, "nanos": -500},
    "limit": {"value": 0},
    "more": {"z": 1, "a": [True, None, 1.5]},
    "button": 0,
}
ROW = {
    "device": "ä-1",
    "temperature": 0.0,
    "count": 2**64 - 1,
    "raw": b"\x00\xff",
    "state": "ON",
    "samples": [1, -2],
    "tags": {"a": "ON"},
    "place": {"room": "hall", "floor": 0},
    "at": dt.datetime(2026, 1, 31, 12, microsecond=5, tzinfo=dt.UTC),
    "took": Decimal("-1.000000500"),
    "limit": 0,
    "more": '{"a":[true,null,1.5],"z":1}',
    "button": 0,
}
COLUMNS = {
    "device": "STRING",
    "temperature": "DOUBLE",
    "count": "DECIMAL(20,0)",
    "raw": "BINARY",
    "state": "STRING",
    "samples": "ARRAY<INT>",
    "tags": "MAP<STRING, STRING>",
    "place": "STRUCT<room: STRING, floor: INT>",
    "at": "TIMESTAMP",
    "took": "DECIMAL(21,9)",
    "limit": "INT",
    "more": "STRING",
    "button": "BIGINT",
    "reset": "BOOLEAN",
}


def test_the_fields_of_the_message_are_the_columns() -> None:
    assert {column.name: str(column.type) for column in schema_columns("protobuf", SCHEMA)} == COLUMNS


def test_each_type_is_read_as_it_was_sent() -> None:
    record = protobuf_reader(SCHEMA)(written(SCHEMA, **MESSAGE))
    assert record == ROW
    row = shaper(schema_columns("protobuf", SCHEMA))(record)
    assert row[list(COLUMNS).index("took")] == Decimal("-1.000000500")
    assert row[-1] is None


def test_what_was_not_sent_is_null_where_the_field_tells_and_its_default_where_it_does_not() -> None:
    for content in (b"", written(SCHEMA, device="d")):
        record = protobuf_reader(SCHEMA)(content)
        assert record == {
            "device": "d" if content else "",
            "count": 0,
            "raw": b"",
            "state": "OFF",
            "samples": (),
            "tags": {},
        }
        shaper(schema_columns("protobuf", SCHEMA))(record)


def test_defaults_that_were_sent_all_the_same_are_values() -> None:
    for content in (b"\x18\x00", b"\x0a\x00\x28\x00\xa2\x06\x01x"):
        assert protobuf_reader(SCHEMA)(content) == protobuf_reader(SCHEMA)(b"")


def test_of_a_oneof_the_others_are_null_and_a_message_without_fields_is_true() -> None:
    record = protobuf_reader(SCHEMA)(written(SCHEMA, reset={}))
    assert record["reset"] is True
    assert "button" not in record


def test_fields_of_a_newer_message_are_left_out_and_numbers_of_a_newer_enum_stay_numbers() -> None:
    newer = schema_of(
        "acme.Reading",
        file_of(
            'message_type { name: "Reading" '
            + field("state", 5, "int32")
            + field("unit", 99, "string", "repeated")
            + "}"
        ),
    )
    record = protobuf_reader(SCHEMA)(written(newer, state=7, unit=["C", "F"]))
    assert record["state"] == "7"
    assert "unit" not in record


OLD = schema_of(
    "acme.Old",
    file_of(
        'enum_type { name: "Level" value { name: "LOW" number: 1 } } message_type { name: "Old" '
        + field("id", 1, "int32", "required")
        + field("name", 2, "string", default_value='"none"')
        + field("level", 3, ":acme.Level", "repeated")
        + field("part", 4, ".acme.Old.Part", "repeated")
        + 'nested_type { name: "Part" '
        + field("id", 1, "fixed32", "required")
        + "} }",
        syntax="proto2",
    ),
)


def test_proto2_has_null_for_what_was_not_sent_whatever_its_default() -> None:
    record = protobuf_reader(OLD)(written(OLD, id=0))
    assert record == {"id": 0, "level": (), "part": ()}


@pytest.mark.parametrize(
    ("schema", "content", "problem"),
    [
        (SCHEMA, b"hello", "it is no acme.Reading: "),
        (SCHEMA, written(SCHEMA, **MESSAGE)[:-1], "it is no acme.Reading"),
        (SCHEMA, b"\x0a\x01\xff", "it is no acme.Reading: "),
        (SCHEMA, b"\x42\x04" * 3, "it is no acme.Reading"),
        (SCHEMA, b"\x08\x01", "device: expected string, got a varint, which is another type"),
        (SCHEMA, b"\x11" + bytes(8) + b"\x1d" + bytes(4), "count: expected uint64, got 32 bits"),
        (SCHEMA, b"\x42\x02\x12\x00", "place.floor: expected int32, got bytes with their length"),
        (SCHEMA, b"\x3a\x05\x0a\x01k\x12\x00", "tags: expected a key and a value of its types"),
        (SCHEMA, b"\xa2\x06\x01x", "it does not have any field of device, temperature"),
        (SCHEMA, written(SCHEMA, at={"seconds": 2**60}), "at: expected TIMESTAMP, got 1152921504606846976 seconds"),
        (SCHEMA, written(SCHEMA, at={"nanos": -1}), "at: expected TIMESTAMP"),
        (SCHEMA, b"\x4a\x02\x0a\x00", "at.seconds: expected int64, got bytes with their length"),
        (SCHEMA, b"\x62\x06\x0a\x04\x0a\x00\x10\x01", "more.fields: expected a key and a value"),
        (SCHEMA, written(SCHEMA, took={"seconds": 1, "nanos": -1}), "took: expected a duration"),
        (OLD, b"\x12\x01a", "id: required"),
        (OLD, b"\x08\x01\x22\x00", r"part\[0\].id: required"),
        (OLD, b"\x08\x01\x18\x07", "level: 7 is none of acme.Level"),
        (OLD, b"\x08\x01\x12\x01\xff", "name: expected STRING, got 1 bytes"),
    ],
)
def test_what_is_no_such_message_says_why(schema: str, content: bytes, problem: str) -> None:
    with pytest.raises(RecordProblem, match=problem):
        shaper(schema_columns("protobuf", schema))(protobuf_reader(schema)(content))


def test_a_value_that_no_json_has_is_a_problem_of_its_column() -> None:
    message = written(SCHEMA, more={"a": float("nan")})
    with pytest.raises(RecordProblem, match=r"^more: it is no JSON"):
        protobuf_reader(SCHEMA)(message)


def test_groups_and_messages_nest_no_deeper_than_the_library_lets_them() -> None:
    deep = b""
    for level in range(201):
        size, head = len(deep), b"\x0a" if level % 2 or level == 200 else b"\x32"
        while size > 0x7F:
            head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
        deep = head + bytes([size]) + deep
    value = file_of(
        'dependency: "google/protobuf/struct.proto" message_type { name: "V" '
        + field("v", 1, ".google.protobuf.ListValue")
        + "}"
    )
    with pytest.raises(RecordProblem, match=r"it is no acme.V"):
        protobuf_reader(schema_of("acme.V", value))(deep)


@given(st.binary(max_size=60))
def test_whatever_comes_gives_a_row_or_a_problem(content: bytes) -> None:
    for schema in (SCHEMA, OLD):
        try:
            shaper(schema_columns("protobuf", schema))(protobuf_reader(schema)(content))
        except RecordProblem as problem:
            assert str(problem)  # noqa: PT017  # nearly everything is a problem


@given(st.data())
def test_a_damaged_message_gives_a_row_or_a_problem(data: st.DataObject) -> None:
    content = bytearray(written(SCHEMA, **MESSAGE))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        row = shaper(schema_columns("protobuf", SCHEMA))(protobuf_reader(SCHEMA)(bytes(content)))
    except RecordProblem:
        return
    assert len(row) == len(COLUMNS)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "device": st.text(),
            "temperature": st.floats(allow_nan=False, allow_infinity=False),
            "count": st.integers(0, 2**64 - 1),
            "raw": st.binary(),
            "samples": st.lists(st.integers(-(2**31), 2**31 - 1)),
            "button": st.integers(0, 2**32 - 1),
        },
    )
)
def test_what_the_library_writes_comes_out(message: dict[str, Any]) -> None:
    record = protobuf_reader(SCHEMA)(written(SCHEMA, **message))
    assert {name: record[name] for name in message if message[name] or name in ("temperature", "button")} == {
        name: value for name, value in message.items() if value or name in ("temperature", "button")
    }
