"""Rows that change a Delta table in part, merged without Spark: the table knows what ordered each of its values."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.lake.delta import DeltaLakeTable
from enmasse.pipeline.lake.merging import Merging
from enmasse.pipeline.lake.partial_updates import ANEW, ANEW_AT, SET_AT, at_of, set_of
from enmasse.pipeline.lake.partitions import Partitions
from tests.support.chance import SEED

Change = Mapping[str, Any]
LAYOUT = Layout(mode="update", keys=["k"], order_by="at", is_partial=True, evolve=True)


def prepared(folder: Path, *columns: str) -> None:
    schema = StructType().add("k", StringType()).add("at", IntegerType()).add(PRESENT, ArrayType(StringType()))
    for column in columns:
        schema = schema.add(column, IntegerType())
    DeltaLakeTable(folder, LAYOUT).prepare(schema, owner="o", checkpoint=folder.parent / "checkpoint")


def merged(folder: Path, changes: Sequence[Change], *columns: str) -> None:
    """Merge a batch, folded by hand; no two changes of a key are of the same moment."""
    rows = []
    for k in sorted({one["k"] for one in changes}):
        of_key = sorted((one for one in changes if one["k"] == k), key=lambda one: one["at"])
        gone = [one["at"] for one in of_key if one["gone"]]
        row: dict[str, Any] = {"k": k, "at": of_key[-1]["at"], DELETED: of_key[-1]["gone"]}
        row |= {ANEW: bool(gone), ANEW_AT: max(gone, default=None)}
        for column in columns:
            setting = [one for one in of_key if one["gone"] or column in one]
            last = setting[-1] if setting else {}
            value = None if last.get("gone") else last.get(column)
            row |= {column: value, set_of(column): bool(setting), at_of(column): last.get("at")}
        rows.append(row)
    kinds = [("k", pa.string()), ("at", pa.int32()), (DELETED, pa.bool_()), (ANEW, pa.bool_()), (ANEW_AT, pa.int32())]
    for column in columns:
        kinds += [(column, pa.int32()), (set_of(column), pa.bool_()), (at_of(column), pa.int32())]
    staged = ds.dataset(pa.Table.from_pylist(rows, pa.schema(kinds)))
    Merging(folder, LAYOUT, Partitions([]))._replace(DeltaTable(folder), staged, None)  # type: ignore[arg-type]


def by_hand(changes: Sequence[Change], *columns: str) -> list[tuple[Any, ...]]:
    found = []
    for k in sorted({one["k"] for one in changes}):
        row: dict[str, Any] | None = None
        for one in sorted((one for one in changes if one["k"] == k), key=lambda one: one["at"]):
            row = None if one["gone"] else {**(row or {}), **one}
        if row is not None:
            found.append((k, row["at"], *(row.get(column) for column in columns)))
    return found


def rows_of(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted((row["k"], row["at"], *(row[column] for column in columns)) for row in rows)


@pytest.mark.slow
def test_a_table_comes_to_the_same_whatever_order_changes_come_in(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    columns = ("v", 'it\'s a "b".c')
    for attempt in range(8):
        changes: list[Change] = []
        for at in range(24):
            some = chance.sample(columns, chance.choice([0, 1, 1, 2]))
            values = {column: chance.choice([None, at]) for column in some}
            changes.append({"k": chance.choice("ab"), "at": at, "gone": chance.random() < 0.2} | values)
        order = chance.sample(changes, len(changes))
        folder = tmp_path / str(attempt) / "t"
        folder.parent.mkdir()
        prepared(folder, *columns)
        while order:
            size = chance.randint(1, 8)
            merged(folder, order[:size], *columns)
            order = order[size:]
        assert rows_of(folder, *columns) == by_hand(changes, *columns), (attempt, changes)


def test_a_column_that_is_new_is_set_by_late_changes_as_others_are(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    prepared(folder, "v")
    merged(folder, [{"k": "a", "at": 9, "gone": False, "v": 1}], "v")
    prepared(folder, "v", "w")
    merged(folder, [{"k": "a", "at": 5, "gone": False, "v": 2, "w": 5}], "v", "w")
    merged(folder, [{"k": "a", "at": 4, "gone": False, "w": 4}, {"k": "b", "at": 1, "gone": False}], "v", "w")
    assert rows_of(folder, "v", "w") == [("a", 9, 1, 5), ("b", 1, None, None)]
    kept = DeltaTable(folder).to_pyarrow_table().sort_by("k")[SET_AT].to_pylist()
    assert kept == [{"v": 9, "w": 5}, {"v": None, "w": None}]
    # What knows no more of a column leaves it, and what set it, as they are.
    merged(folder, [{"k": "a", "at": 6, "gone": False, "v": 7}], "v")
    assert rows_of(folder, "v", "w") == [("a", 9, 1, 5), ("b", 1, None, None)]
    merged(folder, [{"k": "a", "at": 5, "gone": True}], "v", "w")
    assert rows_of(folder, "v", "w") == [("a", 9, 1, None), ("b", 1, None, None)]
