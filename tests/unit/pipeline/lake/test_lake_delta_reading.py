"""How often a table's log is read as a whole, and what is said of one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake.delta import _KEPT_COMMITS, DeltaLakeTable
from enmasse.pipeline.lake.delta_reading import open_delta


@pytest.mark.slow
def test_a_table_is_read_anew_only_after_many_commits(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table({"device": ["d"]})
    write_deltalake(path, rows)
    table = DeltaLakeTable(path)
    seen: list[DeltaTable] = []
    for commits in range(1, 2 * _KEPT_COMMITS + 10):
        found = table._open_or_create([])
        assert found.version() == commits - 1
        if not seen or found is not seen[-1]:
            seen.append(found)
        write_deltalake(found, rows, mode="append")
    assert len(seen) == 3


@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_a_log_that_cannot_be_read_is_named_with_its_table(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "readings"
    for device in "abc":
        write_deltalake(path, pa.table({"device": [device]}), mode="append")
    entry = path / "_delta_log" / f"{1:020d}.json"
    if damage == "torn":
        entry.write_text("{torn")
    else:
        entry.unlink()
    with pytest.raises(TableDamagedError, match=r"^the table readings is damaged: .*; bring the files of ") as told:
        open_delta(path)
    assert "{" not in str(told.value)
