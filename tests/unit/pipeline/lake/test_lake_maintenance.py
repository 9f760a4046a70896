"""A table that is written in many small batches stays quick to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.pipeline.lake.compaction import drop_rows
from enmasse.pipeline.lake.maintenance import Maintenance, Upkeep


def write(table: Path, number: int, **more: object) -> None:
    write_deltalake(
        table, pa.table({"n": [number], **{name: [value] for name, value in more.items()}}), mode="append"
    )


@pytest.mark.slow
def test_many_small_batches_leave_few_files_and_every_row(tmp_path: Path) -> None:
    table = tmp_path / "t"
    maintenance = Maintenance(table, Upkeep(), lambda line: None)
    most = 0
    for number in range(100):
        write(table, number)
        maintenance.note_batch()
        maintenance.wait()
        most = max(most, len(DeltaTable(table).file_uris()))
    assert most <= 20
    assert sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist()) == list(range(100))


def test_files_may_be_left_as_they_are(tmp_path: Path) -> None:
    table = tmp_path / "t"
    maintenance = Maintenance(table, Upkeep(joins=False), lambda line: None)
    for number in range(20):
        write(table, number)
        maintenance.note_batch()
        maintenance.wait()
    assert len(DeltaTable(table).file_uris()) == 20


def test_rows_and_files_that_are_too_old_go_and_what_fails_is_said(tmp_path: Path) -> None:
    table, lines = tmp_path / "t", list[str]()
    now = [0.0]
    upkeep = Upkeep(keep_h=0, rows_column="at", rows_s=3600)
    maintenance = Maintenance(table, upkeep, lines.append, lambda: now[0])
    present = datetime.now(UTC)
    write(table, 1, at=present - timedelta(hours=2))
    write(table, 2, at=present)
    maintenance.note_batch()
    maintenance.wait()
    assert DeltaTable(table).to_pyarrow_table()["n"].to_pylist() == [2]
    assert lines[0] == "table t: 1 rows were older than they are kept"
    assert "files that no version needs were deleted" in lines[1]
    # Once an hour is enough.
    write(table, 3, at=present - timedelta(hours=2))
    maintenance.note_batch()
    maintenance.wait()
    assert len(DeltaTable(table).to_pyarrow_table()) == 2
    now[0] += 3600
    maintenance = Maintenance(table, Upkeep(rows_column="nothing", rows_s=1), lines.append)
    maintenance.note_batch()
    maintenance.wait()
    assert lines[-1].startswith("table t: upkeep failed and is tried again")
    daily = tmp_path / "daily"
    write(daily, 1, day=(present - timedelta(days=9)).date())
    write(daily, 2, day=present.date())
    assert drop_rows(daily, "day", present - timedelta(days=1)) == 1
