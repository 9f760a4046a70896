"""Decoded values as values of columns: taken as they are, or refused with the place and the reason."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.sql.ddl import parse_ddl
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper
from enmasse.pipeline.source.columns import arrow_type

MOMENT = dt.datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=dt.UTC)
MICROS = 1_769_860_800_250_000


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("BOOLEAN", True, True),
        ("INT", -(2**31), -(2**31)),
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("INT", 1e3, 1000),
        ("BIGINT", Decimal("1E3"), 1000),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", Decimal("1.5"), 1.5),
        ("FLOAT", 1.5, 1.5),
        ("DECIMAL(5,2)", 1.255, Decimal("1.26")),
        ("DECIMAL(5,2)", 999, Decimal("999.00")),
        ("STRING", "grüß", "grüß"),
        ("STRING", UUID(int=1), str(UUID(int=1))),
        ("BINARY", b"\xff", b"\xff"),
        ("DATE", "2026-01-31", dt.date(2026, 1, 31)),
        ("DATE", dt.date(2026, 1, 31), dt.date(2026, 1, 31)),
        ("TIMESTAMP", "2026-01-31T13:00:00.25+01:00", MICROS),
        ("TIMESTAMP", "2026-01-31T12:00:00.25", MICROS),
        ("TIMESTAMP", MOMENT, MICROS),
        ("TIMESTAMP", MICROS // 1000, MICROS),
        ("TIMESTAMP", MICROS / 1_000_000, MICROS),
        ("TIMESTAMP_NTZ", "2026-01-31T12:00:00.25", MICROS),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("MAP<STRING, DOUBLE>", {"a": 1}, [("a", 1.0)]),
        ("STRUCT<b: INT, c: STRING>", {"b": 1, "z": 2}, {"b": 1, "c": None}),
    ],
)
def test_a_value_of_its_columns_type_is_taken(column: str, value: Any, expected: Any) -> None:
    columns = parse_ddl(f"a {column}")
    assert shaper(columns)({"a": value}) == [expected]
    assert len(pa.array([expected, None], arrow_type(columns[0].type))) == 2


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("BOOLEAN", 1, "a: expected BOOLEAN, got 1"),
        ("INT", True, "a: expected INT, got True"),
        ("INT", 1.5, "a: expected INT, got 1.5"),
        ("INT", Decimal("sNaN"), "a: expected INT, got sNaN"),
        ("INT", math.inf, "a: expected INT, got inf"),
        ("INT", Decimal("1E+999999"), "a: expected INT, got 1E+999999, which is out of range"),
        ("DATE", "2026-W05-6", "a: expected DATE, got the text '2026-W05-6'"),
        ("TIMESTAMP", "0000-01-01T00:00:00Z", "a: expected TIMESTAMP, got the text '0000-01-01T00:00:00Z'"),
        ("TIMESTAMP", "0001-01-01T00:00:00+01:00", "a: expected TIMESTAMP, got the text '0001-01-01T00:00:00+01:00'"),
        ("INT", 2**31, "a: expected INT, got 2147483648, which is out of range"),
        ("BIGINT", 10**1000, "a: expected BIGINT, got a number of many digits, which is out of range"),
        ("DOUBLE", "hot", "a: expected DOUBLE, got the text 'hot'"),
        ("DOUBLE", math.nan, "a: expected DOUBLE, got nan, which is out of range"),
        ("DOUBLE", Decimal("sNaN"), "a: expected DOUBLE, got sNaN, which is out of range"),
        ("DOUBLE", math.inf, "a: expected DOUBLE, got inf, which is out of range"),
        ("DOUBLE", 10**400, "a: expected DOUBLE, got a number of many digits, which is out of range"),
        ("FLOAT", 1e39, "a: expected FLOAT, got 1e+39, which is out of range"),
        ("DECIMAL(5,2)", 1000, "a: expected DECIMAL(5,2), got 1000, which is out of range"),
        ("DECIMAL(5,2)", math.nan, "a: expected DECIMAL(5,2), got nan, which is out of range"),
        ("DECIMAL(5,2)", 10**1000, "a: expected DECIMAL(5,2), got a number of many digits, which is out of range"),
        ("DECIMAL(5,2)", "1", "a: expected DECIMAL(5,2), got the text '1'"),
        ("STRING", 1, "a: expected STRING, got 1"),
        ("STRING", "\ud800", "a: expected STRING, got the text '?'"),
        ("BINARY", "x", "a: expected BINARY, got the text 'x'"),
        ("DATE", MOMENT, "a: expected DATE, got a datetime"),
        ("DATE", "gestern", "a: expected DATE, got the text 'gestern'"),
        ("TIMESTAMP", "12:30", "a: expected TIMESTAMP, got the text '12:30'"),
        ("TIMESTAMP", 1e300, "a: expected TIMESTAMP, got 1e+300"),
        ("TIMESTAMP", math.nan, "a: expected TIMESTAMP, got nan"),
        ("TIMESTAMP_NTZ", MOMENT, "a: expected TIMESTAMP_NTZ, got a datetime"),
        ("ARRAY<INT>", [1, "x"], "a: a[]: expected INT, got the text 'x'"),
        ("ARRAY<INT>", "x", "a: expected ARRAY, got the text 'x'"),
        ("MAP<STRING, INT>", {1: 1}, "a: a key: expected STRING, got 1"),
        ("MAP<STRING, INT>", [1], "a: expected MAP, got a list"),
        ("STRUCT<b: ARRAY<INT>>", {"b": [None, True]}, "a: a.b[]: expected INT, got True"),
        ("STRUCT<b: INT NOT NULL>", {}, "a: a.b: required"),
        ("STRUCT<b: INT>", b"xx", "a: expected STRUCT, got 2 bytes"),
        ("STRING NOT NULL", None, "a: required"),
        ("STRING", "x" * 100, None),
    ],
)
def test_any_other_value_is_a_problem_that_names_place_and_reason(
    column: str, value: Any, problem: str | None
) -> None:
    shape = shaper(parse_ddl(f"a {column}"))
    if problem is None:
        assert shape({"a": value}) == [value]
        return
    with pytest.raises(RecordProblem) as caught:
        shape({"a": value})
    assert str(caught.value) == problem


def test_a_record_is_a_map() -> None:
    with pytest.raises(RecordProblem, match="expected a map, got a list"):
        shaper(parse_ddl("a INT"))([1])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_record_with_none_of_the_fields_is_no_row_of_null() -> None:
    shape = shaper(parse_ddl("a INT, `b.c` STRING"))
    assert shape({"a": None}) == [None, None]
    for record in ({}, {"A": 1, "b": {"c": "x"}}):
        with pytest.raises(RecordProblem, match=r"^it does not have any field of a, b\.c$"):
            shape(record)


EVERY_TYPE = (
    "BOOLEAN",
    "TINYINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,3)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY<DOUBLE>",
    "MAP<STRING, STRING>",
    "STRUCT<a: INT, b: TIMESTAMP>",
)


@given(st.sampled_from(EVERY_TYPE), VALUES)
def test_whatever_comes_becomes_a_value_that_arrow_takes_or_a_problem(column: str, value: Any) -> None:
    columns = parse_ddl(f"a {column}")
    try:
        shaped = shaper(columns)({"a": value})
    except RecordProblem as problem:
        assert str(problem).startswith("a")  # noqa: PT017  # most values are problems
        return
    pa.array(shaped, arrow_type(columns[0].type)).validate(full=True)
