"""Columns as Spark writes them, read without Spark."""

from __future__ import annotations

import pytest

from enmasse.model.sql.ddl import DdlError, parse_ddl, written


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("device STRING, temperature DOUBLE", "device STRING, temperature DOUBLE"),
        ("  device\n string ,ts timestamp not null", "device STRING, ts TIMESTAMP NOT NULL"),
        ("a: int, b: long, c byte", "a INT, b BIGINT, c TINYINT"),
        ("d DECIMAL, e DECIMAL(12), f NUMERIC(12, 3)", "d DECIMAL(10,0), e DECIMAL(12,0), f DECIMAL(12,3)"),
        ("x ARRAY<MAP<STRING, STRUCT<y: INT, `z z` DATE NOT NULL>>>",) * 2,
        ("`a``b` STRING COMMENT 'it\\'s, so', b BINARY", "`a``b` STRING, b BINARY"),
        ("array ARRAY<INT>, timestamp TIMESTAMP, not BOOLEAN", "array ARRAY<INT>, timestamp TIMESTAMP, not BOOLEAN"),
    ],
)
def test_columns_are_read_and_written_in_one_form(text: str, canonical: str) -> None:
    expected = canonical.replace("`z z` DATE", "`z z`: DATE")
    assert written(parse_ddl(text)) == expected
    assert parse_ddl(expected) == parse_ddl(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected the name of a column, got the end"),
        ("device", "character 7: expected a type of column 'device', such as STRING"),
        ("device TEXT", "character 8: expected a type of column 'device', such as STRING, DOUBLE, BIGINT or TIMES"),
        ("a INT b INT", "character 7: expected ',' and another column, got 'b'"),
        ("a INT,", "character 7: expected the name of a column, got the end"),
        ("a INT, A STRING", "character 8: there is another column 'A' before"),
        ("a ARRAY<INT", "character 12: expected '>', got the end"),
        ("a DECIMAL(39)", "character 11: expected a number from 1 to 38, got '39'"),
        ("a DECIMAL(3,4)", "character 13: expected a number from 0 to 3, got '4'"),
        ("a STRUCT<>", "character 10: expected the name of a column, got '>'"),
        ("a INT; DROP", "character 6: expected a name or a type, got ';'"),
        ("a INT NOT", "character 10: expected 'NULL', got the end"),
        ("a " + "ARRAY<" * 30 + "INT", "expected at most 20 types in each other"),
        ("a" * 100_001, "expected at most 100000 characters"),
    ],
)
def test_what_is_no_column_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        parse_ddl(text)
    assert message in str(caught.value)
