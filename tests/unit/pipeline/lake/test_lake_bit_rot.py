"""One bit that a disk has changed, in each kind of a table's files: an error with its name, and never other rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from enmasse.pipeline.errors import TableDamagedError, TableMismatchError
from enmasse.pipeline.lake.compaction import compact, drop_rows, order_rows, vacuum
from enmasse.pipeline.lake.delta import commit_actions, sync_log
from enmasse.pipeline.lake.delta_reading import LOG, existing_delta, files_of, partitions_of, read_files
from enmasse.pipeline.lake.file_writing import FileWriting
from enmasse.pipeline.lake.mending import account_for, last_done, mend
from enmasse.pipeline.lake.parquet import ParquetTable, parquet_table
from enmasse.pipeline.sums import sealed, sum_of

MOMENT = datetime(2026, 1, 31, tzinfo=UTC)
SCHEMA = pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
OF = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("n", "long"), ("ts", "timestamp"))
        ],
    }
)


def rows_from(first: int) -> pa.Table:
    numbers = range(first, first + 50)
    return pa.table({"n": list(numbers), "ts": [MOMENT + timedelta(hours=n) for n in numbers]}, SCHEMA)


def make_table(path: Path, batches: int = 7) -> None:
    """Have a table of files that queries have written."""
    write_deltalake(path, rows_from(0).slice(0, 0))
    for number in range(batches):
        (batch,) = rows_from(50 * number).to_batches()
        (told,) = FileWriting(str(path))(iter([batch]))
        (file,) = told.to_pylist()
        add = AddAction(file["path"], file["bytes"], {}, time.time_ns() // 1_000_000, True, file["stats"])
        table = existing_delta(path)
        commit_actions(path, table, [add], "append", [], [])
        table.update_incremental()
        sync_log(path, table.version())


def make_rows_after(path: Path) -> None:
    write_deltalake(path, rows_from(1000), mode="append")


def read(path: Path) -> list[int]:
    parts = partitions_of(str(path), tuple(files_of(existing_delta(path))))
    return sorted(n for each in parts for rows in read_files(each, OF) for n in rows["n"].to_pylist())


def change_bits(file: Path, act: Callable[[], object], expected: Any, every: int = 97) -> None:
    """Change a bit here and there, one at a time; whoever acts is told which file it is, or gets what was there."""
    data = file.read_bytes()
    for at in range(0, len(data), every):
        file.write_bytes(data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :])
        with pytest.raises(TableDamagedError, match=rf"the table t is damaged: {file} .*bring the file back"):
            assert act() == expected, (file, at)
    file.write_bytes(data)
    assert act() == expected


def changed_bits(file: Path) -> Iterator[None]:
    """Change a fifth of the bits of a file, one at a time, each place in a byte as often as another."""
    whole = file.read_bytes()
    for at in range(0, 8 * len(whole), 5):
        file.write_bytes(whole[: at // 8] + bytes((whole[at // 8] ^ 1 << at % 8,)) + whole[at // 8 + 1 :])
        yield
    file.write_bytes(whole)


def data_files(path: Path) -> list[Path]:
    return [path / file.path for file in files_of(existing_delta(path))]


@pytest.mark.parametrize("made_by", ["query", "compact", "order_rows", "drop_rows"])
def test_a_bit_of_a_file_with_rows(tmp_path: Path, made_by: str) -> None:
    path = tmp_path / "t"
    make_table(path)
    gone = 0
    if made_by == "compact":
        assert compact(path).made == 1
    elif made_by == "order_rows":
        assert order_rows(path, ["n"]) > 0
    elif made_by == "drop_rows":
        gone = drop_rows(path, "ts", MOMENT + timedelta(hours=10))
        assert gone == 10
    for file in data_files(path)[:2]:
        change_bits(file, lambda: read(path), list(range(gone, 350)))


@pytest.mark.parametrize("act", ["compact", "order_rows", "drop_rows"])
def test_a_file_that_a_bit_has_changed_is_not_written_anew_as_if_it_were_sound(tmp_path: Path, act: str) -> None:
    path = tmp_path / "t"
    make_table(path)
    acts: dict[str, Callable[[], object]] = {
        "compact": lambda: compact(path),
        "order_rows": lambda: order_rows(path, ["n"]),
        "drop_rows": lambda: drop_rows(path, "ts", MOMENT + timedelta(hours=10)),
    }
    before = existing_delta(path).version()
    file = data_files(path)[-1]
    data = file.read_bytes()
    file.write_bytes(data[:60] + bytes((data[60] ^ 16,)) + data[61:])
    with pytest.raises(TableDamagedError, match=f"{file} is not as it was written"):
        acts[act]()
    assert existing_delta(path).version() == before


def test_a_bit_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path)
    for number in (0, 1, 5, 7):
        change_bits(path / LOG / f"{number:020d}.json", lambda: read(path), list(range(350)), 29)


def test_a_bit_of_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path, 3)
    table = existing_delta(path)
    table.create_checkpoint()
    sync_log(path, table.version())
    change_bits(path / LOG / f"{3:020d}.checkpoint.parquet", lambda: read(path), list(range(150)), 997)


@pytest.mark.parametrize("name", ["_batches.json", "_schema", "_query"])
def test_a_bit_of_what_else_is_kept_of_a_table(tmp_path: Path, name: str) -> None:
    path, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')
    if name == "_batches.json":
        make_table(path, 2)
        account_for(path, "q", 7)
    else:
        table = ParquetTable(path)
        table.prepare(OF, owner="shop.p", checkpoint=checkpoint)
        (path / "_query").write_text(sealed({"owner": "shop.p", "query": "q"}))

    def act() -> Any:
        if name == "_batches.json":
            return mend(path, checkpoint), last_done(existing_delta(path), path, checkpoint)
        if name == "_schema":
            return parquet_table(path)[1]
        return ParquetTable(path).prepare(OF, owner="shop.p", checkpoint=checkpoint)

    file = path / name
    expected = act()
    told: list[str] = []
    for _ in changed_bits(file):
        try:
            # All that a bit may do without an error is to change what is not read: a space, or the checksum's name.
            assert act() == expected
        except TableDamagedError as error:
            told.append(str(error))
    assert len(told) > 7 * len(file.read_bytes()) // 5
    assert all(text.startswith(f"the table t is damaged: {file} ") for text in told)


@pytest.mark.parametrize("checkpoint", ["", "checkpoint"])
def test_what_a_former_version_kept_of_a_table_is_read(tmp_path: Path, checkpoint: str) -> None:
    fields = OF.jsonValue()["fields"]
    (tmp_path / "_schema").write_text(json.dumps(fields))
    (tmp_path / "_query").write_text("shop.p\nq")
    assert parquet_table(tmp_path)[1] == fields
    (tmp_path / "metadata").write_text('{"id":"q"}')
    table = ParquetTable(tmp_path)
    if checkpoint:
        table.prepare(OF, owner="shop.p", checkpoint=tmp_path)
    else:
        with pytest.raises(TableMismatchError, match=r"shop\.p"):
            table.prepare(OF, owner="shop.other", checkpoint=tmp_path / "none")


def test_a_bit_of_the_name_of_the_newest_checkpoint_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path, 3)
    table = existing_delta(path)
    table.create_checkpoint()
    sync_log(path, table.version())
    make_rows_after(path)
    file, expected, told = path / LOG / "_last_checkpoint", read(path), set()
    for _ in changed_bits(file):
        try:
            assert read(path) == expected
        except TableDamagedError as error:
            told.add(str(error))
    assert len(told) == 1
    assert told.pop().startswith(
        f"the table t is damaged: {file} names a checkpoint of the log that is not there; rem"
    )
    file.unlink()
    assert read(path) == expected


def test_an_entry_in_the_place_of_a_removed_one_has_a_checksum_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path, 2)
    (path / LOG / f"{2:020d}.json").unlink()
    mend(path, tmp_path / "checkpoint")
    write_deltalake(path, rows_from(0), mode="append")
    sync_log(path, 2)
    assert read(path) == sorted(2 * list(range(50)))


def test_checksums_stay_as_long_as_their_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make_table(path)
    former = data_files(path)
    compact(path)
    vacuum(path, keep_h=0)
    (file,) = data_files(path)
    assert sum_of(file).exists()
    assert not any(old.exists() or sum_of(old).exists() for old in former)
    vacuum(path, keep_h=0)
    assert sum_of(file).exists()
