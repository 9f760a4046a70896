"""What was deleted from a table holds against older rows, and is found without having a batch in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake import tombstones
from enmasse.pipeline.lake.tombstones import Tombstones

SCHEMA = pa.schema({"site": pa.string(), "n": pa.int32(), "at": pa.int64(), DELETED: pa.bool_()})
Row = tuple[str | None, int | None, int | None, bool]


@pytest.fixture
def found(tmp_path: Path) -> Tombstones:
    return Tombstones(tmp_path / "table", ["site", "n"], "at")


def batch(*rows: Row) -> ds.Dataset:
    """Rows, each in a part of its own."""
    return ds.dataset(
        [ds.dataset(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], SCHEMA)) for row in rows]
    )


def test_a_row_that_is_older_than_a_deletion_is_left_out_also_with_null_among_its_keys(found: Tombstones) -> None:
    gone: list[Row] = [("a", 1, 5, True), ("a", None, 5, True), (None, None, 5, True)]
    kept: list[Row] = [("b", None, 1, False), (None, 1, 1, False)]
    assert found.apply(batch(*gone, *kept)).read_all().num_rows == 5
    older: list[Row] = [(site, n, at, False) for site, n, _, _ in gone for at in (4, None)]
    newer: list[Row] = [(site, n, 5, False) for site, n, _, _ in gone]
    for row in older:
        assert found.apply(batch(row, *kept)).read_all() == batch(*kept).to_table(), row
    assert found.apply(batch(*newer, *kept)).read_all() == batch(*newer, *kept).to_table()


def test_the_deletions_with_the_greatest_values_are_kept(found: Tombstones, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "MOST", 3)
    found.apply(batch(*[("a", n, n, True) for n in (7, 1, 9, 3)]))
    found.apply(batch(("a", 1, 8, True), ("a", 7, 2, True)))
    remembered: list[dict[str, Any]] = found.read().sort_by("at").to_pylist()
    assert [(row["n"], row["at"]) for row in remembered] == [(7, 7), (1, 8), (9, 9)]


def test_a_batch_is_not_in_memory_at_once(found: Tombstones, tmp_path: Path) -> None:
    rows = {
        "site": ["a"] * 500,
        "n": range(500),
        "at": [1] * 500,
        DELETED: [True] * 500,
        "more": ["x" * 10_000] * 500,
    }
    for number in range(4):
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    before = pa.total_allocated_bytes()
    parts = found.apply(ds.dataset(sorted(tmp_path.glob("*.parquet"))))
    assert pa.total_allocated_bytes() - before < 500 * 10_000
    assert sum(part.num_rows for part in parts) == 2000


def test_a_changed_bit_is_an_error_with_the_name_of_the_file(found: Tombstones) -> None:
    found.apply(batch(("a", 1, 5, True), ("b", 2, 6, True)))
    whole, data = found.read(), found.file.read_bytes()
    for bit in range(0, len(data) * 8, 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found.file.write_bytes(bytes(changed))
        with pytest.raises(TableDamagedError, match=f"{found.file} is not as it was written"):
            found.read()
    found.file.write_bytes(data[:-8])  # as an older version has written it
    assert found.read() == whole
