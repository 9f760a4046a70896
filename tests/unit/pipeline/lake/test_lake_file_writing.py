"""Files of a batch: rows by partition, what is told of each file, and nothing left of a task that fails."""

from __future__ import annotations

import datetime as dt
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.pipeline.lake import file_writing
from enmasse.pipeline.lake.file_writing import FileWriting, partition_folder, partition_text, split

SCHEMA = pa.schema([("day", pa.date32()), ("site", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
DAY = dt.date(2026, 1, 31)


def rows_of(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def told(root: Path, batches: list[pa.RecordBatch], *partition_by: str) -> list[dict[str, Any]]:
    return [row for batch in FileWriting(str(root), partition_by)(iter(batches)) for row in batch.to_pylist()]


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_what_is_told_of_a_file_is_what_is_in_it(tmp_path: Path) -> None:
    batch = rows_of((DAY, "a", 3, 1.5), (DAY, None, None, float("nan")), (None, "b" * 100, -1, None))
    (file,) = told(tmp_path, [batch, batch])
    assert pq.read_table(tmp_path / file["path"]).num_rows == file["rows"] == 6
    assert (tmp_path / file["path"]).stat().st_size == file["bytes"]
    assert json.loads(file["partition"]) == {}
    assert json.loads(file["stats"]) == {
        "numRecords": 6,
        "minValues": {"day": "2026-01-31", "n": -1},
        "maxValues": {"day": "2026-01-31", "n": 3},
        "nullCount": {"day": 2, "site": 2, "n": 2},
    }


@pytest.mark.parametrize("of", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str)
@pytest.mark.parametrize("far", [3_000_000, -800_000], ids=["after 9999", "before 1"])
def test_nothing_is_told_of_moments_that_python_does_not_hold(tmp_path: Path, of: pa.DataType, far: int) -> None:
    unit, plain = (1, pa.int32()) if of == pa.date32() else (86_400_000_000, pa.int64())
    values = pa.array([20_000 * unit, far * unit, None], plain).cast(of)
    (file,) = told(tmp_path, [pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), values], ["n", "at"])])
    stats = json.loads(file["stats"])
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"n": 1}, {"n": 3}, {"n": 0, "at": 1})


def test_a_changed_bit_of_a_page_is_an_error_of_who_reads_it(tmp_path: Path) -> None:
    batch = rows_of(*((DAY, f"site {n}", n, 0.5 * n) for n in range(300)))
    (file,) = told(tmp_path, [batch])
    path = tmp_path / file["path"]
    data = path.read_bytes()
    (chunk, *_) = [pq.read_metadata(path).row_group(0).column(index) for index in (2, 3)]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    for at in range(start + chunk.total_compressed_size // 2, start + chunk.total_compressed_size, 37):
        path.write_bytes(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        with pytest.raises((OSError, pa.ArrowInvalid)):
            pq.ParquetFile(path, page_checksum_verification=True).read()


def test_rows_go_to_the_folder_of_their_partition(tmp_path: Path) -> None:
    late = dt.date(2025, 12, 24)
    batch = rows_of((DAY, "a", 1, 0.0), (late, "a", 2, 0.0), (DAY, "b/c", 3, 0.0), (DAY, None, 4, 0.0))
    found = {file["path"].rpartition("/")[0]: file for file in told(tmp_path, [batch, batch], "day", "site")}
    assert {folder: json.loads(file["partition"]) for folder, file in found.items()} == {
        "day=2026-01-31/site=a": {"day": "2026-01-31", "site": "a"},
        "day=2025-12-24/site=a": {"day": "2025-12-24", "site": "a"},
        "day=2026-01-31/site=b%2Fc": {"day": "2026-01-31", "site": "b/c"},
        "day=2026-01-31/site=__HIVE_DEFAULT_PARTITION__": {"day": "2026-01-31", "site": None},
    }
    assert all(pq.ParquetFile(tmp_path / file["path"]).schema_arrow.names == ["n", "x"] for file in found.values())


def test_a_batch_of_many_days_makes_files_and_not_memory(tmp_path: Path) -> None:
    days = [DAY + dt.timedelta(days=n) for n in range(3 * file_writing.OPEN_FILES)]
    batches = [rows_of(*[(day, "a", n, 0.0) for n, day in enumerate(days)]) for _ in range(2)]
    found = told(tmp_path, batches, "day")
    assert sum(file["rows"] for file in found) == 2 * len(days)
    assert len(files(tmp_path)) == 2 * len(found)  # with checksums


def test_a_task_without_rows_makes_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, []) == []
    assert files(tmp_path) == []


def test_a_task_that_fails_takes_its_files_away(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(file_writing.OPEN_FILES + 3):
            yield rows_of((DAY + dt.timedelta(days=n), "a", n, 0.0))
        raise ConnectionError("the node went away")

    with pytest.raises(ConnectionError):
        list(FileWriting(str(tmp_path), ["day"])(batches()))
    assert files(tmp_path) == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The file system gives no more than so many bytes to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_a_full_disk_cut_off_goes_away_and_the_error_is_told(tmp_path: Path) -> None:
    values = pa.array([bytes(1000) + n.to_bytes(4, "big") * 250 for n in range(1000)])
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    with files_of_at_most(10_000), pytest.raises(OSError, match="large"):
        told(tmp_path, [batch])
    assert files(tmp_path) == []
    (file,) = told(tmp_path, [batch])
    assert file["rows"] == 1000


VALUES = st.none() | st.text(max_size=3)


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(-5, 5)), max_size=20))
def test_each_row_is_in_one_part_and_in_its_order(rows: list[tuple[str | None, str | None, int]]) -> None:
    schema = pa.schema([("a", pa.string()), ("n", pa.int64()), ("b", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"a": a, "b": b, "n": n} for a, b, n in rows], schema)
    parts: dict[Any, list[int]] = {}
    for values, part in split(batch, ("a", "b")):
        parts.setdefault(values, []).extend(part.column("n").to_pylist())
    expected: dict[Any, list[int]] = {}
    for a, b, n in rows:
        expected.setdefault((partition_text(a), partition_text(b)), []).append(n)
    # The empty text and null are one partition, of two parts.
    assert {values: sorted(numbers) for values, numbers in parts.items()} == {
        values: sorted(numbers) for values, numbers in expected.items()
    }


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("a b", "k=a b"),
        ("50%", "k=50%25"),
        ("[a]*", "k=%5Ba%5D%2A"),
        ("ü", "k=%C3%BC"),
        (None, f"k={file_writing.NO_VALUE}"),
    ],
)
def test_folders_are_named_as_readers_expect(value: str | None, folder: str) -> None:
    assert partition_folder(["k"], [value]) == folder


def test_an_empty_batch_makes_no_file(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())})
    assert list(FileWriting(str(tmp_path))(iter([empty]))) == []
    assert list(tmp_path.iterdir()) == []


def test_columns_that_repeat_get_a_dictionary(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "unique": list(range(100)),
            "few": ["a", "b"] * 50,
            "pairs": pa.array([[("k", "v")]] * 100, pa.map_(pa.string(), pa.string())),
            "nested": [{"deep": {"list": ["x"]}}] * 100,
        }
    )
    list(FileWriting(str(tmp_path))(iter([batch])))
    (path,) = tmp_path.glob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert [c.path_in_schema for c in columns if "RLE_DICTIONARY" not in c.encodings] == ["unique"]
    assert pq.read_table(path).to_pylist() == batch.to_pylist()
