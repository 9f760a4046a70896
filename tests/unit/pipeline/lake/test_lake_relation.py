"""The tables of a lake."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.pipeline.lake import relation
from enmasse.pipeline.lake.objects import LakePath

PATIENCE_S = 10.0


def test_folders_are_asked_together_whether_they_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("second/_delta_log", "first/_delta_log", "files", "_staging/_delta_log"):
        (tmp_path / folder).mkdir(parents=True)
    asked, is_table = threading.Barrier(3), relation._is_table

    def together(path: LakePath) -> bool:
        asked.wait(PATIENCE_S)
        return is_table(path)

    monkeypatch.setattr(relation, "_is_table", together)
    assert relation.tables(tmp_path) == ["first", "second"]
    assert relation.tables(tmp_path / "nowhere") == []


def test_the_rows_of_a_merge_are_those_that_it_adds_or_changes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"k": [1, 2, 3], "v": [1, 1, 1]}))
    merging = DeltaTable(path).merge(pa.table({"k": [2, 4], "v": [2, 2]}), "a.k = b.k", "b", "a")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(path).delete("k = 1")
    figures = [entry["operationMetrics"] for entry in DeltaTable(path).history()]
    assert [relation.rows_written(one) for one in figures] == [None, 2, 3]
