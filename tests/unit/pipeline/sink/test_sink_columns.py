"""Columns that the sink writes."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.headers import Header
from enmasse.pipeline.sink.columns import Row, check_columns, rows_of
from enmasse.pipeline.sink.options import SinkOptions

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string()), ("type", pa.string())]))
TO_ONE = SinkOptions(url="amqp://x", address="a")
TO_MANY = SinkOptions(url="amqp://x")


TEXT, BYTES, INT, LONG, DOUBLE, FLAG = (
    StringType(), BinaryType(), IntegerType(), LongType(), DoubleType(), BooleanType()
)  # fmt: skip


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def headers(**fields: DataType) -> ArrayType:
    return ArrayType(schema(**fields))


@pytest.mark.parametrize(
    "columns",
    [
        {"value": TEXT},
        {"value": BYTES, "key": BYTES, "subject": TEXT, "content_type": TEXT, "message_id": TEXT},
        {"value": BYTES, "key": TEXT, "ttl": INT, "durable": FLAG, "address": TEXT},
        {"value": TEXT, "ttl": DayTimeIntervalType(), "properties": MapType(TEXT, DOUBLE)},
        {"value": TEXT, "ttl": LONG, "properties": MapType(TEXT, BYTES)},
        {"value": TEXT, "headers": headers(key=TEXT, value=TEXT, type=TEXT)},
        {"value": TEXT, "headers": headers(key=TEXT, value=TEXT)},
        {"value": TEXT, "partition": INT},
        {"value": TEXT, "headers": headers(key=TEXT, value=BYTES)},
    ],
)
def test_what_fits(columns: dict[str, DataType]) -> None:
    check_columns(schema(**columns), TO_ONE)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"subject": TEXT}, "no column 'value'"),
        ({"value": INT}, "'value' should be binary or string, not int"),
        ({"value": TEXT, "heat": DOUBLE}, r"column 'heat'; it knows value, key.*to_json\(struct"),
        ({"value": TEXT, "key": INT}, "'key' should be binary or string"),
        ({"value": TEXT, "ttl": TEXT}, "'ttl' should be a whole number of milliseconds, or an interval"),
        ({"value": TEXT, "ttl": DOUBLE}, "'ttl' should be"),
        ({"value": TEXT, "durable": INT}, "'durable' should be boolean"),
        ({"value": TEXT, "properties": MapType(INT, TEXT)}, "'properties' should be a map of string"),
        ({"value": TEXT, "properties": MapType(TEXT, ArrayType(INT))}, "'properties' should be a map of string"),
        ({"value": TEXT, "properties": StructType()}, "'properties' should be a map of string"),
        ({"value": TEXT, "headers": MapType(TEXT, TEXT)}, "'headers' should be an array<struct<key string"),
        ({"value": TEXT, "headers": ArrayType(TEXT)}, "'headers' should be an array<struct<key string"),
        ({"value": TEXT, "headers": headers(key=TEXT, value=INT)}, "'headers' should be an array"),
        ({"value": TEXT, "headers": headers(key=TEXT, value=BYTES, type=TEXT)}, "'headers' should be an array"),
        ({"value": TEXT, "headers": headers(key=TEXT, value=TEXT, kind=TEXT)}, "'headers' should be an array"),
        ({"value": TEXT, "headers": headers(key=TEXT)}, "'headers' should be an array"),
        ({"value": TEXT, "partition": TEXT}, "'partition' should be a whole number"),
    ],
)
def test_what_does_not_fit_is_named(columns: dict[str, DataType], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        check_columns(schema(**columns), TO_ONE)


def test_rows_go_somewhere() -> None:
    check_columns(schema(value=TEXT, address=TEXT), TO_MANY)
    with pytest.raises(OptionError, match="nothing says where rows go"):
        check_columns(schema(value=TEXT), TO_MANY)


def test_two_columns_of_a_name_are_refused() -> None:
    with pytest.raises(OptionError, match="two columns 'value'"):
        check_columns(StructType([StructField("value", TEXT)] * 2), TO_ONE)


def test_rows_are_plain_values() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["höt", None]),
            "key": pa.array([b"\xff", None], pa.binary()),
            "ttl": pa.array([dt.timedelta(seconds=1.5), None], pa.duration("us")),
            "properties": pa.array([[("b", 2), ("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "durable": pa.array([False, None]),
            "headers": pa.array([[{"key": "a", "value": "1", "type": "int"}, None], None], HEADERS),
        }
    )
    nothing = Row(None, None, None, None, None, None, None, None, None)
    properties = (("a", 1), ("b", 2))
    first = nothing._replace(value="höt".encode(), key=b"\xff", ttl=1500, properties=properties, durable=False)
    first = first._replace(headers=(Header("a", "1", "int"), Header(None, None)))
    assert list(rows_of(batch)) == [first, nothing]


def test_large_columns_and_small_numbers_are_read_too() -> None:
    batch = pa.record_batch({"value": pa.array(["x"], pa.large_string()), "ttl": pa.array([7], pa.int8())})
    (row,) = rows_of(batch)
    assert (row.value, row.ttl) == (b"x", 7)
