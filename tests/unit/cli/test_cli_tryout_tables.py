"""Tables of a pipeline's test: given rows by a schema, and what differs from what is expected."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from enmasse.cli.commands.use.tryout_tables import write_file, write_table
from enmasse.cli.commands.use.tryout_trial import compared, differing
from enmasse.cli.errors import UsageError

SCHEMA = "id INT NOT NULL, at TIMESTAMP, price DECIMAL(6,2), tags ARRAY<STRING>"


def test_rows_are_those_of_the_schema_and_those_of_a_second_part_are_added(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 31, 10, tzinfo=UTC)
    write_table(tmp_path, "orders", SCHEMA, [{"id": 1, "at": "2026-01-31T10:00:00Z", "price": 2.5}])
    write_table(tmp_path, "orders", SCHEMA, [{"id": 2, "at": moment, "tags": ["a"]}])
    table = DeltaTable(tmp_path / "orders").to_pyarrow_table().sort_by("id")
    assert table["id"].to_pylist() == [1, 2]
    assert table["at"].to_pylist() == [moment, moment]
    assert [str(price) for price in table["price"].to_pylist()] == ["2.50", "None"]
    assert table["tags"].to_pylist() == [None, ["a"]]
    write_table(tmp_path, "empty", SCHEMA, [])
    assert DeltaTable(tmp_path / "empty").to_pyarrow_table().num_rows == 0


def test_rows_of_a_file_are_those_of_the_schema(tmp_path: Path) -> None:
    write_file(tmp_path / "orders", "orders", SCHEMA, [{"id": 1, "price": 2.5}])
    assert pq.read_table(tmp_path / "orders").to_pylist() == [
        {"id": 1, "at": None, "price": Decimal("2.50"), "tags": None}
    ]


@pytest.mark.parametrize(
    ("schema", "row", "said"),
    [
        (None, {}, "given table t: schema: .*expected such as id INT, name STRING"),
        ("id WAT", {}, "given table t: schema: "),
        (SCHEMA, {"id": "one"}, "given table t, row 1: id: "),
        (SCHEMA, {"price": 1}, "given table t, row 1: id: required"),
        (SCHEMA, {}, "given table t, row 1: it does not have any field of id, at, price, tags"),
        (SCHEMA, {"id": 1, "name": "x"}, "given table t, row 1: name: the schema has no such column"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, schema: str | None, row: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        write_table(tmp_path, "t", schema, [row])


def test_what_differs_is_told_as_often_as_it_does() -> None:
    assert compared(["a", "b"], ["b", "a"]) == []
    assert compared(["a", "a", "b"], ["a", "c"]) == [("missing", "a"), ("missing", "b"), ("not expected", "c")]


def test_rows_differ_by_the_columns_that_are_expected() -> None:
    found: list[dict[str, Any]] = [
        {"id": 1, "at": "2026-01-31T12:00:00Z", "n": 41.0},
        {"id": 2, "at": None, "n": None},
    ]
    moment = datetime(2026, 1, 31, 12)  # noqa: DTZ001  # as YAML has one without a zone
    assert differing("t", [{"id": 2, "n": None}, {"id": 1, "n": 41}], found) == []
    assert differing("t", [{"at": moment}, {}], found) == []
    assert differing("t", [{}, {}], found) == []
    assert [what for what, _ in differing("t", [{}], found)] == ["not expected"]
    assert [what for what, _ in differing("t", [], found)] == ["not expected", "not expected"]
    assert differing("t", [], []) == []
    with pytest.raises(UsageError, match="expected rows of t: there is no column nn; expected one of id, at, n"):
        differing("t", [{"nn": None}], found)
