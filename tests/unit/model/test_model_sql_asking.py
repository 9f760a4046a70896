"""Texts that people ask of a space, checked before Spark is there: past versions of tables, and statements."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from enmasse.model.sql.asking import past_versions, read_asked
from enmasse.model.sql.sql import SqlError, checked_sql


def test_a_version_or_a_moment_makes_a_relation_of_its_own() -> None:
    text, found = past_versions(
        "SELECT * FROM readings VERSION AS OF 12 a JOIN `table:odd` FOR SYSTEM_TIME AS OF '2026-01-31' b ON a.x = b.x"
    )
    assert text == "SELECT * FROM `readings@12` a JOIN `table:odd@2026-01-31` b ON a.x = b.x"
    assert found == {
        "readings@12": ("readings", 12),
        "table:odd@2026-01-31": ("table:odd", datetime(2026, 1, 31, tzinfo=UTC)),
    }


def test_the_same_words_in_a_text_are_none() -> None:
    text = "SELECT 'a VERSION AS OF 1', 'it''s' FROM t"
    assert past_versions(text) == (text, {})
    with pytest.raises(SqlError, match="line 2, column 6: TIMESTAMP AS OF: expected a moment such as"):
        past_versions("SELECT *\nFROM t TIMESTAMP AS OF 'yesterday'")


@pytest.mark.parametrize(
    ("text", "sql", "describes"),
    [
        ("SHOW TABLES", "SELECT * FROM `tables:`", False),
        (
            " show  tables like 'plant*|a.b';",
            "SELECT * FROM `tables:` WHERE name RLIKE '(?i)^(plant.*|a[.]b)$'",
            False,
        ),
        ("SHOW TABLES 'x'", "SELECT * FROM `tables:` WHERE name RLIKE '(?i)^(x)$'", False),
        ("SHOW COLUMNS IN readings", "SELECT * FROM `readings`", True),
        ("DESCRIBE readings", "SELECT * FROM `readings`", True),
        ("desc table `plant/line 1` ;", "SELECT * FROM `plant/line 1`", True),
        ("DESCRIBE HISTORY readings", "SELECT * FROM `history:readings` ORDER BY version DESC", False),
        ("DESC history", "SELECT * FROM `history`", True),
        ("SELECT 1 AS describe", "SELECT 1 AS describe", False),
        ("WITH show AS (SELECT 1 AS a) SELECT a FROM show", "WITH show AS (SELECT 1 AS a) SELECT a FROM show", False),
    ],
)
def test_a_statement_stands_for_a_query(text: str, sql: str, describes: bool) -> None:
    asked = read_asked(text)
    assert (asked.sql, asked.versions, asked.describes) == (sql, {}, describes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "SHOW DATABASES",
            "line 1, column 1: expected SHOW TABLES, .* or DESCRIBE HISTORY name, got 'SHOW DATABASES'",
        ),
        ("DESCRIBE a.b", "stands in backticks"),
        ("DESCRIBE EXTENDED a", "expected SHOW TABLES"),
        ("SHOW TABLES LIKE 'a\\\\'", "expected a pattern such as 'plant[*]'"),
        ("SHOW TABLES; DROP TABLE t", "expected SHOW TABLES"),
        ("DROP TABLE t", "line 1, column 1: expected SELECT or WITH, got 'DROP'"),
        ("SELECT FROM", "line 1, column 8: expected table name"),
        ("SELECT a FROM t WHERE", "line 1, column 17: "),
        ("SELECT a\nFROM t GRUP BY a", "line 2, column 13: unexpected 'BY'"),
        ("SELECT java_method('a') FROM t", "java_method"),
        ("SELECT 'a FROM t", "a quote, a bracket or a comment in it has no end"),
    ],
)
def test_what_cannot_be_run_is_refused_whatever_there_is_to_ask(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        read_asked(text)


def test_an_unknown_relation_is_told_with_those_that_there_are_and_what_was_meant() -> None:
    known = dict.fromkeys(
        ["zones", "devices", "table:zones", "history:zones", "readings/raw", "address:readings/raw"]
    )
    with pytest.raises(
        SqlError, match=r"no relation 'zone'; did you mean 'zones'[?] There are zones, devices, readings"
    ):
        checked_sql("SELECT * FROM zone", known)
    with pytest.raises(SqlError, match=r"no relation 'x'; there are zones, devices, readings/raw$"):
        checked_sql("SELECT * FROM x", known)
    many = dict.fromkeys(f"t{n}" for n in range(30))
    with pytest.raises(SqlError, match=r"there are t0, t1, .*, t19 and 10 more$"):
        checked_sql("SELECT * FROM x", many)
