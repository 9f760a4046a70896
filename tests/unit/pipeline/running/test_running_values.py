"""Values of a query's answer, in JSON and in a file of Parquet."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from enmasse.pipeline.running import querying
from enmasse.pipeline.running.querying import as_file, as_rows, json_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1 << 62, 1 << 62),
        (0.5, 0.5),
        (float("inf"), "inf"),
        ("é", "é"),
        (b"text", "text"),
        (bytearray(b"\xff\x00"), "base64:/wA="),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(minutes=1), 60.0),
        (Decimal("1.50"), "1.50"),
        ([1, [b"x"]], [1, ["x"]]),
        (Row(a=1, b=Row(c=None)), {"a": 1, "b": {"c": None}}),
        ({1: date(2026, 1, 1)}, {"1": "2026-01-01"}),
    ],
)
def test_every_value_has_a_form_in_json(value: object, expected: object) -> None:
    assert json_value(value) == expected
    assert json.dumps(json_value(value), allow_nan=False)


NTZ = TimestampNTZType()


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (NTZ, lambda moment: moment),
        (ArrayType(NTZ), lambda moment: [moment]),
        (MapType(NTZ, ArrayType(NTZ)), lambda moment: {moment: [moment]}),
        (StructType().add("at", NTZ), lambda moment: Row(at=moment)),
    ],
)
def test_a_moment_without_a_zone_is_no_other_one_where_the_machine_has_a_zone(
    kind: DataType, make: Callable[[datetime], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime.fromisoformat("2026-01-31T13:00:00")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        told = json.dumps(json_value(make(moment), kind))
        answer = as_rows(StructType().add("at", kind), [Row(at=make(moment))], 1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert '2026-01-31T13:00:00"' in told
    assert json.dumps(answer["rows"][0][0]) == told


SCHEMA = (
    StructType()
    .add("device", StringType())
    .add("n", LongType())
    .add("at", TimestampType())
    .add("parts", ArrayType(StructType().add("a", IntegerType())))
    .add("tags", MapType(StringType(), DoubleType()))
)
ROW_OF: Any = Row(*SCHEMA.names)
ROWS = [
    ROW_OF("boiler-1", 1 << 40, datetime(2026, 1, 31, 12, tzinfo=UTC), [Row(a=1)], {"x": 0.5}),
    ROW_OF(None, None, None, None, None),
]


def table_of(answer: dict[str, Any]) -> pa.Table:
    return pq.read_table(io.BytesIO(base64.b64decode(answer["file"])))


def test_a_file_has_the_types_of_the_columns() -> None:
    answer = as_file(SCHEMA, ROWS, 10)
    table = table_of(answer)
    assert answer["truncated"] is False
    assert [str(field.type) for field in table.schema][:3] == ["string", "int64", "timestamp[us, tz=UTC]"]
    assert table.to_pylist() == [
        {
            "device": "boiler-1",
            "n": 1 << 40,
            "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
            "parts": [{"a": 1}],
            "tags": [("x", 0.5)],
        },
        dict.fromkeys(SCHEMA.names),
    ]


def test_an_answer_without_rows_is_a_file_with_columns() -> None:
    table = table_of(as_file(SCHEMA, [], 10))
    assert (table.num_rows, table.column_names) == (0, SCHEMA.names)


def test_an_answer_in_either_form_ends_with_its_limit_of_rows_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    file = as_file(SCHEMA, ROWS, 1)
    assert (table_of(file).num_rows, file["truncated"]) == (1, True)
    monkeypatch.setattr(querying, "MAX_BYTES", 100)
    rows = as_rows(SCHEMA, ROWS * 10, 1000)
    file = as_file(SCHEMA, ROWS * 10, 1000)
    assert rows["truncated"] is file["truncated"] is True
    assert table_of(file).num_rows == len(rows["rows"]) == 1
