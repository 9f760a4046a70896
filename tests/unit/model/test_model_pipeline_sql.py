"""SQL that is taken and SQL that is not: one query, which only computes, over known relations."""

from __future__ import annotations

import re

import pytest

from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, REASONS, TABLE_FUNCTIONS
from enmasse.model.sql.sql import MAX_SQL_CHARACTERS, Columns, SqlError, checked_sql
from tests.unit.model.pipeline_sql_cases import BAD, GOOD, RELATIONS

DEEP = [
    "SELECT " + "- " * 3000 + "1",
    "SELECT " + "NOT " * 2000 + "true",
    "SELECT " + "+".join(["1"] * 2400),
    "SELECT CAST(device AS " + "array<" * 400 + "int" + ">" * 400 + ") FROM readings",
    "SELECT device" + ".b" * 2000 + " FROM readings",
    "SELECT tags" + "[0]" * 1500 + " FROM readings",
    "SELECT 1 " + "UNION ALL SELECT 1 " * 900,
    "SELECT device" + "::int" * 1500 + " FROM readings",
    "SELECT 1 FROM " + "readings JOIN " * 1200 + "readings",
]


@pytest.mark.parametrize(("text", "canonical", "columns"), GOOD)
def test_a_query_that_computes_is_taken_and_written_anew(text: str, canonical: str, columns: Columns) -> None:
    found = checked_sql(text, RELATIONS)
    assert (found.canonical, found.columns) == (canonical, columns)
    assert found.functions <= ALLOWED_FUNCTIONS | {"timestampdiff"}
    assert found.relations == {name for name in RELATIONS if re.search(f"(FROM|JOIN) `{name}`", canonical)}
    again = checked_sql(canonical, RELATIONS)
    assert (again.canonical, again.relations) == (canonical, found.relations)


@pytest.mark.parametrize(("text", "message"), BAD)
def test_what_does_more_or_reads_something_else_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        checked_sql(text, RELATIONS)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", DEEP, ids=lambda text: text[:24])
def test_what_is_too_deep_for_the_parser_is_a_plain_error(text: str) -> None:
    with pytest.raises(SqlError, match="too deeply nested"):
        checked_sql(text, RELATIONS)


def test_what_is_too_long_is_not_even_parsed() -> None:
    with pytest.raises(SqlError, match="expected at most 20000 characters, got 20009"):
        checked_sql(f"SELECT '{'x' * MAX_SQL_CHARACTERS}'", RELATIONS)
    with pytest.raises(SqlError, match="expected at most 5000 words, got 12002"):
        checked_sql("SELECT " + "a," * 6000 + "a", RELATIONS)


def test_a_comment_is_gone_from_what_is_run() -> None:
    found = checked_sql("SELECT /*!99999 reflect('a') */ device -- , version()\nFROM readings", RELATIONS)
    assert found.canonical == "SELECT `device` FROM `readings`"


def test_names_stay_names_whatever_is_in_them() -> None:
    found = checked_sql("SELECT device AS `a`` FROM x; --` FROM readings", RELATIONS)
    assert found.canonical == "SELECT `device` AS `a`` FROM x; --` FROM `readings`"
    assert found.columns == ("a` FROM x; --",)


def test_where_columns_are_not_known_nothing_is_said_of_them() -> None:
    assert checked_sql("SELECT anything, r.that FROM raw r JOIN readings", RELATIONS).columns == ("anything", "that")
    assert checked_sql("SELECT * FROM raw", RELATIONS).columns is None
    assert checked_sql("SELECT upper(device) FROM readings", RELATIONS).columns is None


def test_the_place_of_a_wrong_column_is_its_line() -> None:
    with pytest.raises(SqlError) as caught:
        checked_sql("SELECT device,\n       temprature AS t\nFROM readings", RELATIONS)
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert caught.value.message == "there is no column 'temprature'; did you mean 'temperature'?"


def test_nothing_that_is_explained_as_forbidden_is_allowed() -> None:
    assert not ALLOWED_FUNCTIONS & set(REASONS)
    assert TABLE_FUNCTIONS <= ALLOWED_FUNCTIONS
