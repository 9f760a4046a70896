"""Tables of the lake as streaming queries write them, and as Spark, pandas, polars and DuckDB read them."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from enmasse.model.kinds.pipelines.sinks import DELETED, TableFormat
from enmasse.pipeline.errors import TableDamagedError, TableMismatchError, TableSchemaError
from enmasse.pipeline.lake.batches import Mode, Table
from enmasse.pipeline.lake.compaction import FEW_FILES, compact, order_rows
from enmasse.pipeline.lake.relation import facts, history, relation, statistics, tables
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.failures import sentence_of
from tests.scenario.lake_stage import COLUMNS, ODD, Lake, Rows
from tests.support.chance import SEED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def test_rows_are_laid_out_by_the_day_of_their_event_and_open_everywhere(lake: Lake) -> None:
    table = open_table(lake.folder / "readings", partition_by=["day"])
    lake.write(
        table,
        [{"k": "a", "v": 1, "ts": "2026-01-31T23:59:59Z"}, {"k": "b", "v": 2, "ts": "2026-02-01T00:00:00Z"}],
        [{"k": "late", "v": 3, "ts": "2025-12-24T12:00:00Z"}, {"k": "timeless", "v": 4}],
    )
    days = [("a", date(2026, 1, 31)), ("b", date(2026, 2, 1)), ("late", date(2025, 12, 24)), ("timeless", None)]
    assert lake.rows("readings", "k", "day") == days
    path = str(lake.folder / "readings")
    delta = DeltaTable(path)
    frame = delta.to_pandas().sort_values("k")
    assert [(k, None if pd.isna(day) else day) for k, day in zip(frame["k"], frame["day"], strict=True)] == days
    assert sorted(pl.scan_delta(path).select("k", "day").collect().rows()) == days
    arrow = delta.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("readings", arrow)
        assert connection.execute("SELECT k, day FROM readings ORDER BY k").fetchall() == days
    assert arrow.count_rows() == 4
    found = facts(lake.folder / "readings")
    assert (found.rows, found.format, found.partition_by) == (4, "delta", ("day",))
    assert found.columns == (("k", "STRING"), ("v", "INT"), ("ts", "TIMESTAMP"), ("day", "DATE"))
    assert tables(lake.folder) == ["readings"]


@pytest.mark.parametrize(("form", "batches"), [("delta", FEW_FILES), ("parquet", 2)])
def test_any_text_may_name_a_partition(lake: Lake, form: Any, batches: int) -> None:
    table = open_table(lake.folder / "t", format=form, partition_by=["k"])
    batch = [{"k": k, "v": n} for n, k in enumerate(ODD)]
    lake.write(table, *[batch] * batches)
    expected = sorted(((k, n) for n, k in enumerate(ODD) for _ in range(batches)), key=repr)
    assert lake.rows("t", "k", "v") == expected
    if form == "delta":
        done = compact(lake.folder / "t", keep_h=0)
        files = batches * len(ODD)
        assert (done.merged, done.made, done.removed, done.left) == (files, len(ODD), files, 0)
        assert lake.rows("t", "k", "v") == expected
    assert facts(lake.folder / "t").rows == len(expected)


def test_a_batch_that_is_there_is_not_written_again(lake: Lake) -> None:
    forms: tuple[TableFormat, ...] = ("delta", "parquet")
    for form in forms:
        table = open_table(lake.folder / form, format=form)
        lake.write(table, [{"k": "a", "v": 1}], [{"k": "b", "v": 2}])
        commits = lake.checkpoint(form) / "commits"
        # As if the driver had been killed after it wrote the table.
        shutil.rmtree(commits / "1", ignore_errors=True)
        (commits / "1").unlink(missing_ok=True)
        lake.write(table, [{"k": "c", "v": 3}])
        assert lake.rows(form, "k", "v") == [("a", 1), ("b", 2), ("c", 3)]


def test_a_batch_that_is_done_is_missed_if_it_had_rows(lake: Lake) -> None:
    table = open_table(lake.folder / "t", mode="update", keys=["k"], order_by="v")
    # The second changes nothing and the third has no rows: neither makes an entry.
    lake.write(table, [{"k": "a", "v": 5}], [{"k": "a", "v": 3}], [])
    lake.write(table, [{"k": "b", "v": 1}])
    newest = max((lake.folder / "t" / "_delta_log").glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(b"")
    with pytest.raises(TableDamagedError, match=r"cannot be read.* up to 3 done while the log ends with batch 2"):
        lake.write(table)
    newest.unlink()
    with pytest.raises(TableDamagedError, match=r"is missing.* up to 3 done while the log ends with batch 2"):
        lake.write(table)
    newest.write_bytes(content)
    lake.write(table, [{"k": "c", "v": 1}])
    assert lake.rows("t", "k", "v") == [("a", 5), ("b", 1), ("c", 1)]


def test_rows_replace_those_with_the_same_keys_while_files_are_compacted(lake: Lake) -> None:
    table = open_table(lake.folder / "last", mode="update", keys=["k"])
    stop = threading.Event()
    steps: list[int] = []

    def compacting() -> None:
        while not stop.wait(0.05):
            steps.append(compact(lake.folder / "last", keep_h=0).removed)

    thread = threading.Thread(target=compacting)
    thread.start()
    try:
        batches: list[Rows] = [
            [{"k": "a", "v": n}, {"k": f"b{n % 3}", "v": n}, {"v": n}, {"k": "a", "v": n + 100}] for n in range(8)
        ]
        lake.write(table, *batches)
    finally:
        stop.set()
        thread.join()
    assert lake.rows("last", "k", "v") == [("a", 107), ("b0", 6), ("b1", 7), ("b2", 5), (None, 7)]
    assert sum(steps)


def test_with_an_order_the_greatest_row_stays(lake: Lake) -> None:
    table = open_table(lake.folder / "last", mode="update", keys=["k"], order_by="ts")
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    lake.write(
        table,
        [{"k": "a", "v": 1, "ts": late}, {"k": "a", "v": 2, "ts": early}, {"k": "b", "v": 3}],
        [{"k": "a", "v": 4, "ts": early}, {"k": "b", "v": 5, "ts": early}, {"k": "b", "v": 6}],
    )
    assert lake.rows("last", "k", "v") == [("a", 1), ("b", 5)]


def test_deletions_hold_against_older_rows_that_come_late_and_are_repeated_without_harm(lake: Lake) -> None:
    columns = f"k STRING, v INT, at INT, {DELETED} BOOLEAN"

    def row(k: str | None, v: int | None, at: int | None, gone: bool = False) -> dict[str, Any]:
        return {"k": k, "v": v, "at": at, DELETED: gone}

    def table() -> Table:
        return open_table(lake.folder / "cdc", mode="update", keys=["k"], order_by="at")

    def write(*batches: Rows) -> None:
        lake.write(table(), *batches, columns=columns)

    write([row("a", 1, 1), row("b", 1, 1), row(None, 1, 1)], [row("a", 2, 5), row("a", 9, 4)])
    assert lake.rows("cdc", "k", "v", "at") == [("a", 2, 5), ("b", 1, 1), (None, 1, 1)]
    # A deletion that is older than the row deletes nothing; a row without an order never wins.
    write([row("a", None, 3, gone=True), row("b", 7, None)], [row("a", None, 6, gone=True)])
    assert lake.rows("cdc", "k", "v", "at") == [("b", 1, 1), (None, 1, 1)]
    write([row("a", 3, 5), row("c", 1, 2)], [row("c", None, 2, gone=True), row("d", None, 9, gone=True)])
    assert lake.rows("cdc", "k", "v", "at") == [("b", 1, 1), (None, 1, 1)]
    # What was deleted without having been there holds, too; what is newer comes back.
    write([row("d", 1, 8), row("c", 1, 1), row("a", 4, 6)])
    assert lake.rows("cdc", "k", "v", "at") == [("a", 4, 6), ("b", 1, 1), (None, 1, 1)]
    write([row(None, None, 2, gone=True)], [row(None, 1, 1), row("b", 2, 2)])
    assert lake.rows("cdc", "k", "v", "at") == [("a", 4, 6), ("b", 2, 2)]
    assert tables(lake.folder) == ["cdc"]
    with pytest.raises(TableSchemaError, match="orderBy names 'm', whose values have no order"):
        lake.write(
            open_table(lake.folder / "odd", mode="update", keys=["k"], order_by="m"),
            columns="k STRING, m MAP<STRING, INT>",
        )


def test_every_version_of_a_row_is_kept_whatever_the_order_in_which_they_come(lake: Lake) -> None:
    columns = f"k STRING, v INT, at INT, {DELETED} BOOLEAN"
    made = [("a", 1, 10), ("a", 2, 20), ("a", None, 30), ("a", 3, 40), ("b", 1, 5), ("c", None, 7), (None, 1, 1)]
    events: list[dict[str, Any]] = [{"k": k, "v": v, "at": at, DELETED: v is None} for k, v, at in made]
    expected = [
        ("a", 1, 10, 20, False),
        ("a", 2, 20, 30, False),
        ("a", 3, 40, None, True),
        ("b", 1, 5, None, True),
        ("c", 4, 6, 7, False),
        (None, 1, 1, None, True),
    ]
    late: list[dict[str, Any]] = [{"k": "c", "v": 4, "at": 6, DELETED: False}]
    chance = random.Random(SEED)
    mixed = chance.sample(events, len(events))
    for name, order in (
        ("at_once", [*events, *late]),
        ("backwards", [*events[::-1], *late]),
        ("mixed", mixed + late),
    ):
        size = len(order) if name == "at_once" else 4
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        table = open_table(lake.folder / name, mode="update", keys=["k"], order_by="at", keeps_history=True)
        lake.write(table, *batches, columns=columns)
        assert lake.rows(name, "k", "v", "valid_from", "valid_to", "is_current") == expected, (name, order)
    lake.write(table, [{"k": "a", "v": 7, "at": 20, DELETED: False}], columns=columns)
    assert ("a", 7, 20, 30) in lake.rows("mixed", "k", "v", "valid_from", "valid_to")
    lake.write(table, [{"k": "a", "v": None, "at": 20, DELETED: True}], columns=columns)
    assert lake.rows("mixed", "k", "v", "valid_to")[:2] == [("a", 1, 20), ("a", 3, None)]
    with pytest.raises(StreamingQueryException, match="no value of 'at', by which keepHistory places it"):
        lake.write(table, [{"k": "a", "v": 1, DELETED: False}], columns=columns)


def test_folders_are_made_of_moments_and_hashes_and_rows_are_put_in_order(lake: Lake) -> None:
    table = open_table(lake.folder / "t", partition_by=["month(ts)", "bucket(2, k)"])
    batches = [
        [
            {"k": f"k{number}", "v": number, "ts": f"2026-0{1 + number % 2}-0{1 + batch}T00:00:00Z"}
            for number in range(20)
        ]
        for batch in range(2)
    ]
    lake.write(table, *batches)
    path = lake.folder / "t"
    assert DeltaTable(path).metadata().partition_columns == ["ts_month", "k_bucket"]
    assert {row[0] for row in lake.rows("t", "ts_month")} == {"2026-01", "2026-02"}
    assert {row[0] for row in lake.rows("t", "k_bucket")} == {0, 1}
    found = {row["column"]: row for row in statistics(lake.spark, path).collect()}
    assert (found["v"]["min"], found["v"]["max"], found["v"]["nulls"]) == ("0", "19", 0)
    assert (found["ts_month"]["min"], found["ts_month"]["max"]) == ("2026-01", "2026-02")
    before = lake.rows("t", "k", "v", "ts")
    assert order_rows(path, ["v", "ts"]) >= 8
    assert order_rows(path, ["v", "ts"]) == 0
    assert lake.rows("t", "k", "v", "ts") == before
    lake.write(table, [{"k": "k0", "v": 1, "ts": "2026-01-01T00:00:00Z"}])
    assert order_rows(path, ["v", "ts"]) == 2
    with pytest.raises(TableSchemaError, match=r"partitionBy has day\(v\), but 'v' is INTEGER; expected a TIMESTAMP"):
        lake.write(open_table(lake.folder / "odd", partition_by=["day(v)"]), [{"k": "a"}])


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_row_that_a_constraint_forbids_fails_its_batch(lake: Lake, mode: Mode) -> None:
    path, keys = lake.folder / "t", ["k"] if mode == "update" else []

    def write(constraints: dict[str, str], *rows: dict[str, Any]) -> None:
        lake.write(open_table(path, mode=mode, keys=keys, constraints=constraints), *([rows] if rows else []))

    write({"positive": "v > 0"}, {"k": "a", "v": 1})
    bad = {"k": "b", "v": -1 if mode == "append" else None}
    with pytest.raises(StreamingQueryException, match=r"constraint positive \(v > 0\), which a row fails: .*b"):
        write({"positive": "v > 0"}, {"k": "c", "v": 3}, bad)
    assert lake.rows("t", "k", "v") == [("a", 1)]
    with pytest.raises(TableSchemaError, match=r"cannot have the constraint large \(v > 9\)"):
        write({"large": "v > 9"})
    write({"named": "k IS NOT NULL"})
    assert DeltaTable(path).metadata().configuration["delta.constraints.named"] == "k IS NOT NULL"
    assert "delta.constraints.positive" not in DeltaTable(path).metadata().configuration


def test_a_table_is_read_as_it_was_as_long_as_its_files_are_there(lake: Lake) -> None:
    table = open_table(lake.folder / "t", mode="update", keys=["k"])
    for number in (1, 2, 3):
        lake.write(table, [{"k": "a", "v": number}])
    path = lake.folder / "t"
    versions = {row["version"]: row for row in history(lake.spark, path).collect()}
    newest = max(versions)
    assert versions[newest]["operation"] == "MERGE"
    assert (versions[newest]["files_added"], versions[newest]["files_removed"]) == (1, 1)

    def value(version: int | datetime) -> int:
        (row,) = relation(lake.spark, path, version).collect()
        return int(row["v"])

    assert [value(newest - back) for back in (0, 1, 2)] == [3, 2, 1]
    # A version begins with the moment that the history tells of it, whenever its file was written.
    for entry in (path / "_delta_log").glob("*.json"):
        os.utime(entry)
    moment = versions[newest - 1]["at"].astimezone(UTC)
    assert [value(moment), value(moment - timedelta(milliseconds=1))] == [2, 1]
    with pytest.raises(TableSchemaError, match=f"the table t has no version 99: its newest is {newest}"):
        relation(lake.spark, path, 99)
    compact(path, keep_h=0)
    with pytest.raises(TableSchemaError, match=r"were deleted, as .*: old ones go after maintenance.keepVersions"):
        relation(lake.spark, path, newest - 1)
    assert value(newest) == 3


def test_the_history_tells_how_many_rows_each_batch_has_appended(lake: Lake) -> None:
    table = open_table(lake.folder / "t")
    lake.write(table, [{"k": "a", "v": 1}], [{"k": "b", "v": 2}, {"k": "c", "v": 3}])
    told = [tuple(row) for row in history(lake.spark, lake.folder / "t").select("operation", "rows").collect()]
    assert told[:2] == [("WRITE", 2), ("WRITE", 1)]
    compact(lake.folder / "t", keep_h=0)
    first = history(lake.spark, lake.folder / "t").collect()[-1]
    assert (first["operation"], first["files_added"], first["rows"]) == ("CREATE TABLE", 0, 0)


def test_a_row_may_change_the_columns_alone_that_it_has(lake: Lake) -> None:
    table = open_table(lake.folder / "parts", mode="update", keys=["k"], order_by="at", is_partial=True)
    first = [{"k": "a", "v": 1, "w": "x", "at": 1}, {"k": "b", "v": 1, "w": "y", "at": 1}]
    later = [{"k": "a", "v": 2, "at": 2}, {"k": "b", "w": "z", "at": 2}, {"k": "c", "v": 3, "at": 2}]
    lake.write(table, first, later, columns="k STRING, v INT, w STRING, at INT")
    assert lake.rows("parts", "k", "v", "w", "at") == [("a", 2, "x", 2), ("b", 1, "z", 2), ("c", 3, None, 2)]


@pytest.mark.parametrize("sizes", [[13], [1, 1, 4, 7]])
def test_changes_in_part_come_to_the_same_whatever_batches_they_come_in(lake: Lake, sizes: list[int]) -> None:
    table = open_table(lake.folder / "parts", mode="update", keys=["k"], order_by="at", is_partial=True)
    changes: Rows = [
        {"k": "a", "v": 1, "w": "x", "at": 5},
        {"k": "a", "w": "old", "at": 3},
        {"k": "b", "v": 1, "w": "x", "at": 1},
        {"k": "c", "v": 1, "at": 1},
        {"k": "a", "v": 2, "at": 6},
        {"k": "b", "at": 2, DELETED: True},
        {"k": "c", "at": 4, DELETED: True},
        {"k": "a", "w": "old", "at": 4},
        {"k": "b", "v": 3, "at": 3},
        {"k": "c", "w": "old", "at": 2},
        {"k": "a", "w": "y"},
        {"k": "c", "v": 2, "at": 7},
        {"k": "d", "v": 1, "at": 1, DELETED: True},
    ]
    changes = [{DELETED: False} | change for change in changes]
    batches = [changes[sum(sizes[:n]) :][:size] for n, size in enumerate(sizes)]
    lake.write(table, *batches, columns=f"k STRING, v INT, w STRING, at INT, {DELETED} BOOLEAN")
    assert lake.rows("parts", "k", "v", "w", "at") == [("a", 2, "x", 6), ("b", 3, None, 3), ("c", 2, None, 7)]


def test_a_complete_batch_is_the_whole_table(lake: Lake) -> None:
    table = open_table(lake.folder / "c", mode="complete")
    lake.write(table, [{"k": "a", "v": 1}, {"k": "b", "v": 2}], [{"k": "b", "v": 3}])
    assert lake.rows("c", "k", "v") == [("b", 3)]


def test_no_appended_row_is_lost_to_compaction(lake: Lake) -> None:
    table = open_table(lake.folder / "t", partition_by=["day"])
    stop = threading.Event()
    failures: list[Exception] = []
    merged: list[int] = []

    def compacting() -> None:
        while not stop.wait(0.02):
            try:
                merged.append(compact(lake.folder / "t", keep_h=1).merged)
            except Exception as error:  # noqa: BLE001  # told below
                failures.append(error)

    thread = threading.Thread(target=compacting)
    thread.start()
    try:
        batches = [[{"k": "a", "v": n, "ts": "2026-01-31T12:00:00Z"}] for n in range(15)]
        lake.write(table, *batches)
    finally:
        stop.set()
        thread.join()
    compact(lake.folder / "t", keep_h=1)
    assert failures == []
    assert sum(merged)
    assert lake.rows("t", "v") == sorted(((n,) for n in range(15)), key=repr)


def test_a_table_has_one_writer_and_one_checkpoint(lake: Lake) -> None:
    forms: tuple[TableFormat, ...] = ("delta", "parquet")
    for form in forms:
        table = open_table(lake.folder / form, format=form)
        lake.write(table, [{"k": "a", "v": 1}])
        with pytest.raises(TableMismatchError, match="is written by o: one query writes a table"):
            lake.write(table, [{"k": "b", "v": 2}], owner="another")
        with pytest.raises(TableMismatchError, match="under another checkpoint"):
            lake.write(table, [{"k": "b", "v": 2}], name=f"{form}-other")
        lake.write(table, [{"k": "c", "v": 3}], name=f"{form}-third", adopt=True)
        assert lake.rows(form, "k", "v") == [("a", 1), ("c", 3)]
    for form, path in zip(forms, reversed(forms), strict=True):
        with pytest.raises(TableMismatchError, match="holds a"):
            lake.write(open_table(lake.folder / path, format=form))


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_columns_are_added_where_asked_for_and_never_change_their_type(lake: Lake, form: Any) -> None:
    path = lake.folder / "t"
    lake.write(open_table(path, format=form), [{"k": "a", "v": 1}])
    wider = f"{COLUMNS}, w DOUBLE"
    with pytest.raises(TableSchemaError, match="the table t has no column 'w'"):
        lake.write(open_table(path, format=form), [{"k": "b", "w": 0.5}], columns=wider)
    lake.write(open_table(path, format=form, evolve=True), [{"k": "c", "w": 1.5}], columns=wider)
    lake.write(open_table(path, format=form), [{"k": "d"}], columns="k STRING")
    assert lake.rows("t", "k", "v", "w") == [("a", 1, None), ("b", None, 0.5), ("c", None, 1.5), ("d", None, None)]
    with pytest.raises(TableSchemaError, match="has 'v' as INTEGER, but it comes as STRING"):
        lake.write(open_table(path, format=form, evolve=True), columns="k STRING, v STRING")
    with pytest.raises(TableSchemaError, match="nor a TIMESTAMP"):
        lake.write(open_table(lake.folder / "u", format=form, partition_by=["day"]), columns="k STRING")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system can only be mounted by root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_fails_the_batch_and_a_retry_goes_on(lake: Lake, small_disk: Path) -> None:
    lake.folder = small_disk / "lake"
    table = open_table(lake.folder / "t")
    lake.write(table, [{"k": "a", "v": 1}])
    ballast = small_disk / "ballast"
    try:
        with ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError:
        pass
    with pytest.raises((StreamingQueryException, OSError)) as full:
        lake.write(table, [{"k": "b", "v": 2}], [{"k": "c", "v": 3}])
    assert re.search(r"No space left on device: (the disk|/\S*/lake/t)", sentence_of(full.value))
    assert lake.rows("t", "k", "v") == [("a", 1)]
    ballast.unlink()
    lake.write(table)
    assert lake.rows("t", "k", "v") == [("a", 1), ("b", 2), ("c", 3)]
