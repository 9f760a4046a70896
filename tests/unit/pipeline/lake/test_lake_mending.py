"""A log whose last entry a power cut spoilt opens again, without what nobody was told to be there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.pipeline.lake.mending import mend


def rows(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("n").to_pylist())


@pytest.mark.parametrize("spoilt", [b"", b"\0" * 300, b'{"commitInfo":{}}\n{"add":{"path":"x', b"null\n"])
def test_an_entry_that_is_none_is_taken_away(tmp_path: Path, spoilt: bytes) -> None:
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"n": [n]}), mode="append")
    assert mend(tmp_path) == 0
    newest = tmp_path / "_delta_log" / f"{2:020d}.json"
    newest.write_bytes(spoilt)
    assert mend(tmp_path) == 1
    assert rows(tmp_path) == [0, 1]
    write_deltalake(tmp_path, pa.table({"n": [7]}), mode="append")
    assert rows(tmp_path) == [0, 1, 7]


def test_no_table_needs_no_mending(tmp_path: Path) -> None:
    assert mend(tmp_path / "no") == 0
