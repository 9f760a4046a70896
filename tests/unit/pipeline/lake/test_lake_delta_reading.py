"""How often a table's log is read as a whole, and what is said of one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake.changes import ChangesReader
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


def test_an_entry_that_is_empty_is_no_version_without_changes(tmp_path: Path) -> None:
    path = tmp_path / "readings"
    for device in "abc":
        write_deltalake(path, pa.table({"device": [device]}), mode="append")
    entry = path / "_delta_log" / f"{1:020d}.json"
    whole = entry.read_bytes()
    entry.write_bytes(b"")
    with pytest.raises(TableDamagedError, match=rf"^the table readings is damaged: {entry} is empty; bring "):
        open_delta(path)
    assert open_delta(path, 0) is not None
    entry.write_bytes(whole)
    found = open_delta(path)
    assert found is not None
    found.create_checkpoint()
    entry.write_bytes(b"")
    assert open_delta(path) is not None  # the checkpoint has its rows


@pytest.mark.parametrize("torn", [b"", b'{"commitInfo"'])
def test_a_stream_of_a_table_ends_at_an_entry_that_cannot_be_read(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "readings"
    for device in "abc":
        write_deltalake(path, pa.table({"device": [device]}), mode="append")
    reader = ChangesReader({"path": str(path), "starting": "earliest"}, StructType())
    first = reader.initialOffset() | {"version": 0}
    assert len(reader.partitions(first, first | {"version": 2})) == 2
    (path / "_delta_log" / f"{1:020d}.json").write_bytes(torn)
    with pytest.raises(TableDamagedError, match=r"the table readings is damaged: .*1\.json cannot be read"):
        reader.partitions(first, first | {"version": 2})
