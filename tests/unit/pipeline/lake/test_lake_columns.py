"""What columns a table may have, and how they may change."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.columns import added_columns, check_columns, event_time, nullable


def field(name: str, of: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": of, "nullable": True, "metadata": {}, **more}


def test_every_column_may_be_null_at_every_depth() -> None:
    inner = {"type": "struct", "fields": [field("x", "decimal(5,2)", nullable=False, metadata={"comment": "c"})]}
    of = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False}
    array = {"type": "array", "elementType": of, "containsNull": False}
    (made,) = nullable([field("a", array, nullable=False)])
    assert made["nullable"]
    assert made["type"]["containsNull"]
    assert made["type"]["elementType"]["valueContainsNull"]
    assert made["type"]["elementType"]["valueType"]["fields"] == [field("x", "decimal(5,2)")]


@pytest.mark.parametrize("of", ["void", "interval day to second", "variant", {"type": "udt"}])
def test_a_type_that_no_table_has_is_refused_by_name(of: Any) -> None:
    with pytest.raises(TableSchemaError, match="column 'a': a table has no columns of type"):
        nullable([field("a", of)])


@pytest.mark.parametrize(
    ("fields", "keys", "partition_by", "problem"),
    [
        ([field("a"), field("A")], (), (), "two columns 'A'"),
        ([field("a")], ("b",), (), "keys names 'b', but the columns are a"),
        ([field("a")], (), ("b",), "partitionBy names 'b'"),
        ([field("a"), field("b", "double")], (), ("b",), "'b', which is DOUBLE"),
        ([field("a"), field("b", {"type": "array"})], (), ("b",), "'b', which is"),
        ([field("a")], (), ("a",), "names every column"),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    fields: list[dict[str, Any]], keys: tuple[str, ...], partition_by: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(TableSchemaError, match=problem):
        check_columns(fields, keys, partition_by)


def test_new_columns_are_added_where_that_was_asked_for() -> None:
    there, rows = [field("a")], [field("b", "long"), field("a")]
    assert added_columns(there, rows, evolve=True, name="t") == [field("b", "long")]
    assert added_columns(rows, there, evolve=False, name="t") == []
    with pytest.raises(TableSchemaError, match="the table t has no column 'b'; allow new columns"):
        added_columns(there, rows, evolve=False, name="t")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([field("a", "long")], "has 'a' as STRING, but it comes as LONG"),
        ([field("A")], "has 'a', but it comes as 'A'"),
    ],
)
def test_a_change_that_readers_would_not_survive_is_refused(rows: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(TableSchemaError, match=problem):
        added_columns([field("a")], rows, evolve=True, name="t")


def test_the_time_of_an_event_is_its_own_before_the_addresss() -> None:
    own = [field("_timestamp", "timestamp"), field("d", "date"), field("ts", "timestamp"), field("b", "timestamp")]
    assert event_time(own) == "ts"
    assert event_time(own[:2]) == "_timestamp"
    assert event_time(own[1:2]) is None
