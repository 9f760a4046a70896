"""Values of a query's answer, in JSON and in a file of Parquet."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from enmasse.pipeline.far_moments import moment_text, python_values
from enmasse.pipeline.running import querying
from enmasse.pipeline.running.querying import as_file, as_rows, json_value

TEXT, WHOLE = StringType(), LongType()
ROW: Any = Row  # its stubs have texts alone


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (TEXT, None, None),
        (BooleanType(), True, True),
        (WHOLE, 1 << 62, 1 << 62),
        (DoubleType(), 0.5, 0.5),
        (DoubleType(), float("inf"), "inf"),
        (TEXT, "é", "é"),
        (BinaryType(), b"text", "text"),
        (BinaryType(), bytearray(b"\xff\x00"), "base64:/wA="),
        (TimestampType(), 1_769_860_800_000_000, "2026-01-31T12:00:00Z"),
        (TimestampType(), 1_769_860_800_500_000, "2026-01-31T12:00:00.500000Z"),
        (TimestampNTZType(), 1_769_860_800_000_000, "2026-01-31T12:00:00"),
        (DateType(), 20_484, "2026-01-31"),
        (DayTimeIntervalType(), timedelta(minutes=1), 60.0),
        (DecimalType(10, 2), Decimal("1.50"), "1.50"),
        (ArrayType(ArrayType(BinaryType())), [None, [b"x"]], [None, ["x"]]),
        (StructType().add("a", WHOLE).add("b", StructType().add("c", TEXT)), ROW(1, ROW(None)),
         {"a": 1, "b": {"c": None}}),
        (MapType(WHOLE, DateType()), {1: 20_454}, {"1": "2026-01-01"}),
    ],
)  # fmt: skip
def test_every_value_has_a_form_in_json(kind: DataType, value: object, expected: object) -> None:
    assert json_value(value, kind, []) == expected
    assert json.dumps(json_value(value, kind, []), allow_nan=False)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (-62_135_596_800_000_000, "0001-01-01T00:00:00"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00"),
        (1_795_856_400_000_000_000, "+58878-06-04T00:00:00"),
        # As Java has the least and greatest of them.
        (-(1 << 63), "-290308-12-21T19:59:05.224192"),
        ((1 << 63) - 1, "+294247-01-10T04:00:54.775807"),
    ],
)
def test_moments_of_all_years_have_a_text(micros: int, text: str) -> None:
    far: list[str] = []
    kind = MapType(TimestampNTZType(), ArrayType(TimestampType()))
    assert json_value({micros: [micros]}, kind, far) == {text: [f"{text}Z"]}
    assert far == ([] if text[:4] in ("0001", "9999") else [text, f"{text}Z"])
    assert moment_text(micros, has_zone=False) == text
    days = pa.array([micros // 86_400_000_000], pa.int64()).cast(pa.int32()).cast(pa.date32())
    assert [str(one) for one in python_values(days)] == [text.partition("T")[0]]


@given(st.datetimes())
def test_moments_of_all_other_years_are_those_of_python(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001  # of no zone
    assert moment_text(micros, has_zone=False) == moment.isoformat()


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
    ROW_OF("boiler-1", 1 << 40, 1_769_860_800_000_000, [Row(a=1)], {"x": 0.5}),
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
