"""Rows as messages of a registered schema: what Confluent's deserializers read, and what does not fit."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from enmasse.pipeline.errors import PlanError, RowRefusedError
from enmasse.pipeline.registry_copy import RegisteredSchema
from enmasse.pipeline.sink.encoding import Encoding, _Stage
from enmasse.schemas.wire_format import HEADER_BYTES, header

READING = {
    "type": "record", "name": "R",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "count", "type": ["null", "int"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}  # fmt: skip
ALERT = {
    "type": "object", "additionalProperties": False, "required": ["device", "level"],
    "properties": {"device": {"type": "string"}, "level": {"type": ["integer", "null"]},
                   "share": {"type": "number"}, "subject": {"type": "string"}},
}  # fmt: skip
AVRO = RegisteredSchema(7, "AVRO", json.dumps(READING))
JSON = RegisteredSchema(8, "JSON", json.dumps(ALERT))
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def encoded(encoding: Encoding, columns: dict[str, Any], *, with_address: bool = False) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict(columns)
    content = encoding._content(batch.schema.names, with_address=with_address)
    carried = [name for name in batch.schema.names if name not in content]
    out = [*carried, *(name for name in ("address", "properties") if encoding.bad_records and name not in carried)]
    return [row for found in _Stage(encoding, content, carried, out)(iter([batch])) for row in found.to_pylist()]


def test_rows_become_avro_of_the_subjects_schema() -> None:
    columns = {
        "device": ["a", "b"],
        "count": pa.array([1, None], pa.int64()),
        "at": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
        "tags": pa.array([[("x", "y")], []], pa.map_(pa.string(), pa.string())),
        "key": ["k", "l"],
    }
    rows = encoded(Encoding("readings", AVRO), columns)
    assert [row["key"] for row in rows] == ["k", "l"]
    assert all(row["value"].startswith(header(7)) for row in rows)
    read = [fastavro.schemaless_reader(io.BytesIO(row["value"][HEADER_BYTES:]), READING, None) for row in rows]
    assert read == [
        {"device": "a", "count": 1, "at": NOON, "tags": {"x": "y"}},
        {"device": "b", "count": None, "at": NOON, "tags": {}},
    ]


def test_rows_become_json_that_fits() -> None:
    columns = {"device": ["a", "b"], "level": pa.array([1, None], pa.int32()), "share": [Decimal("0.5"), None],
               "subject": ["of the content", None]}  # fmt: skip
    rows = encoded(Encoding("alerts", JSON), columns)
    assert [json.loads(row["value"][HEADER_BYTES:]) for row in rows] == [
        {"device": "a", "level": 1, "share": 0.5, "subject": "of the content"},
        {"device": "b", "level": None},
    ]
    assert rows[0]["value"].startswith(header(8))


def test_messages_may_be_without_the_id() -> None:
    (row,) = encoded(Encoding("alerts", JSON, with_id=False), {"device": ["a"], "level": [1]})
    assert json.loads(row["value"]) == {"device": "a", "level": 1}


@pytest.mark.parametrize(
    ("schema", "columns", "why"),
    [
        (AVRO, {"device": ["a"], "count": pa.array([2**31], pa.int64())}, "count"),
        (AVRO, {"device": pa.array([None], pa.string())}, "device"),
        (AVRO, {"device": ["a"], "at": ["noon"]}, "at"),
        (JSON, {"device": ["a"], "level": ["high"]}, "level: 'high' is not of type"),
        (JSON, {"device": ["a"], "level": [1], "more": [1]}, "'more' was unexpected"),
        (JSON, {"device": ["a"], "level": [1], "share": [float("nan")]}, "JSON"),
        (RegisteredSchema(9, "JSON", "{}"), {"device": ["a"], "took": [timedelta(1)]}, "timedelta is not JSON"),
    ],
)
def test_a_row_that_does_not_fit_fails_the_batch_or_goes_to_the_bad_records(
    schema: RegisteredSchema, columns: dict[str, Any], why: str
) -> None:
    with pytest.raises(RowRefusedError, match="of subject 'readings'") as caught:
        encoded(Encoding("readings", schema), columns)
    assert why in str(caught.value)
    (row,) = encoded(Encoding("readings", schema, "bad"), columns)
    assert row["address"] == "bad"
    assert why in dict(row["properties"])["enmasse-reason"]
    assert json.loads(row["value"]).get("device") in ("a", None)


def test_rows_that_fit_keep_their_address_and_properties() -> None:
    columns = {
        "device": ["a", None],
        "address": ["here", "there"],
        "properties": pa.array([[("p", "1")], [("p", "2")]], pa.map_(pa.string(), pa.string())),
    }
    rows = encoded(Encoding("readings", AVRO, "bad"), columns, with_address=True)
    assert [row["address"] for row in rows] == ["here", "bad"]
    assert dict(rows[0]["properties"]) == {"p": "1"}
    assert {*dict(rows[1]["properties"])} == {"p", "enmasse-reason"}


@pytest.mark.parametrize(
    ("schema", "columns", "why"),
    [
        (AVRO, ["device", "more"], "has no field for the column 'more'; it has device, count, at, tags"),
        (AVRO, ["count"], "needs a column 'device'; the columns are count"),
        (RegisteredSchema(1, "AVRO", '"string"'), ["value"], "is none of rows"),
        (RegisteredSchema(1, "PROTOBUF", "Cg=="), ["value"], "is of Protobuf, and a sink writes Avro or JSON"),
    ],
)
def test_columns_that_are_not_the_schemas_are_told_before_a_row_comes(
    schema: RegisteredSchema, columns: list[str], why: str
) -> None:
    with pytest.raises(PlanError, match=why):
        Encoding("readings", schema)._content(columns, with_address=False)
