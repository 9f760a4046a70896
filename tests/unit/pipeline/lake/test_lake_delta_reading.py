"""How often a table's log is read as a whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.pipeline.lake.delta import _KEPT_COMMITS, DeltaLakeTable


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
