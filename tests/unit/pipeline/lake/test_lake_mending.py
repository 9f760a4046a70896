"""A table's log before its query goes on: what a power cut left goes, what is damaged fails the query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake.mending import QUERY, account_for, application, mend


class Table:
    """A table that a query wrote, a row for each batch, and the query's checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.path, self.checkpoint = folder / "t", folder / "checkpoint"

    def make(self) -> None:
        schema = Schema([Field("n", PrimitiveType("long"))])
        DeltaTable.create(self.path, schema, configuration={QUERY: "q"}, raise_if_key_not_exists=False)

    def write(self, *batches: int) -> None:
        if not self.path.exists():
            self.make()
        for batch in batches:
            transaction = CommitProperties(app_transactions=[Transaction(application("q"), batch)])
            write_deltalake(self.path, pa.table({"n": [batch]}), mode="append", commit_properties=transaction)

    def call_done(self, *batches: int, query: str = "q") -> None:
        """Write the checkpoint as Spark does when batches are done."""
        (self.checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        for batch in batches:
            (self.checkpoint / "commits" / str(batch)).write_text("v1\n{}")

    def entry(self, number: int) -> Path:
        """The entry of a batch, the table's making being before the first."""
        return self.path / "_delta_log" / f"{number + 1:020d}.json"

    def rows(self) -> list[int]:
        return sorted(DeltaTable(self.path).to_pyarrow_table().column("n").to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.fixture
def damaged(table: Table) -> Table:
    """Batches 0 to 2 are written and done; nothing is damaged yet."""
    table.write(0, 1, 2)
    table.call_done(0, 1, 2)
    assert mend(table.path, table.checkpoint) == 0
    return table


def assert_fails(table: Table, *words: str) -> None:
    before = {file.name: file.read_bytes() for file in table.entry(0).parent.glob("*.json")}
    with pytest.raises(TableDamagedError) as found:
        mend(table.path, table.checkpoint)
    for word in ("the table t is damaged", "bring the file back from a backup", *words):
        assert word in str(found.value)
    assert {file.name: file.read_bytes() for file in table.entry(0).parent.glob("*.json")} == before


@pytest.mark.parametrize("spoilt", [b"", b"\0" * 300, b'{"commitInfo":{}}\n{"add":{"path":"x', b"null\n"])
def test_an_entry_that_no_checkpoint_calls_done_is_removed(table: Table, spoilt: bytes) -> None:
    table.write(0, 1, 2)
    table.call_done(0, 1)
    assert mend(table.path, table.checkpoint) == 0
    table.entry(2).write_bytes(spoilt)
    assert mend(table.path, table.checkpoint) == 1
    assert table.rows() == [0, 1]
    table.write(2)
    assert table.rows() == [0, 1, 2]


@pytest.mark.parametrize("spoilt", [b"", b'{"commitInfo":{}}\n{"add":{"path":"x'])
def test_an_entry_that_the_checkpoint_calls_done_fails_the_query_and_stays(damaged: Table, spoilt: bytes) -> None:
    whole = damaged.entry(2).read_bytes()
    damaged.entry(2).write_bytes(spoilt)
    assert_fails(damaged, f"{damaged.entry(2)} cannot be read", "calls batches up to 2 done", "ends with batch 1")
    damaged.entry(2).write_bytes(whole)
    assert mend(damaged.path, damaged.checkpoint) == 0
    assert damaged.rows() == [0, 1, 2]


def test_several_entries_are_removed_or_kept_together(damaged: Table) -> None:
    damaged.write(3)
    for version in (2, 3):
        damaged.entry(version).write_bytes(b"")
    assert_fails(damaged, str(damaged.entry(2)), "ends with batch 1")


def test_an_entry_of_done_batches_that_is_missing_fails_the_query(damaged: Table) -> None:
    damaged.entry(2).unlink()
    assert_fails(damaged, f"{damaged.entry(2)} is missing", "calls batches up to 2 done", "ends with batch 1")


def test_a_log_that_is_gone_fails_the_query_and_a_table_that_was_removed_does_not(damaged: Table) -> None:
    shutil.rmtree(damaged.path / "_delta_log")
    assert_fails(damaged, f"{damaged.entry(-1)} is missing", "the log has none")
    shutil.rmtree(damaged.path)
    assert mend(damaged.path, damaged.checkpoint) == 0


@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_a_gap_before_later_entries_fails_the_query(damaged: Table, content: bytes | None) -> None:
    damaged.entry(1).unlink()
    if content is not None:
        damaged.entry(1).write_bytes(content)
    problem = "is missing" if content is None else "cannot be read"
    assert_fails(damaged, f"{damaged.entry(1)} {problem}, and later entries are there", "move the table away")


def test_batches_without_rows_are_not_missed(damaged: Table) -> None:
    account_for(damaged.path, "q", 4)
    damaged.call_done(3, 4)
    damaged.write(5)
    damaged.entry(3).write_bytes(b"")
    assert mend(damaged.path, damaged.checkpoint) == 1
    assert damaged.rows() == [0, 1, 2]
    damaged.call_done(5)
    with pytest.raises(TableDamagedError, match="calls batches up to 5 done while the log ends with batch 4"):
        mend(damaged.path, damaged.checkpoint)


def test_a_table_from_before_batches_without_rows_were_written_down_goes_on(table: Table) -> None:
    table.write(0, 1)
    table.call_done(0, 1, 2, 3)
    assert mend(table.path, table.checkpoint) == 0
    table.write(4)
    table.call_done(4)
    table.entry(2).unlink()
    assert_fails(table, f"{table.entry(2)} is missing", "ends with batch 3")


def test_another_checkpoint_may_have_called_an_entry_done(damaged: Table) -> None:
    damaged.entry(2).write_bytes(b"")
    damaged.call_done(query="next")
    for batch in range(3):
        (damaged.checkpoint / "commits" / str(batch)).unlink()
    assert_fails(damaged, str(damaged.entry(2)), "another checkpoint", "or remove it")
    damaged.entry(2).unlink()
    assert mend(damaged.path, damaged.checkpoint) == 0


def test_entries_before_the_logs_own_checkpoint_are_not_needed(damaged: Table) -> None:
    DeltaTable(damaged.path).create_checkpoint()
    damaged.entry(0).unlink()
    damaged.entry(1).write_bytes(b"")
    damaged.write(3)
    assert mend(damaged.path, damaged.checkpoint) == 0
    assert damaged.rows() == [0, 1, 2, 3]


def test_a_table_whose_making_was_cut_short_is_made_again(table: Table) -> None:
    table.make()
    table.entry(-1).write_bytes(b"")
    assert mend(table.path, table.checkpoint) == 1
    assert not DeltaTable.is_deltatable(str(table.path))


def test_no_table_needs_no_mending(table: Table) -> None:
    table.call_done(0)
    assert mend(table.path, table.checkpoint) == 0
    assert not table.path.exists()
