"""Rows become Parquet files inside Spark's tasks, and what a transaction must know of each.

Rules:
1. A file that is reported is whole and on disk.
2. Names are never used twice, so a repeated task hides nothing and spoils nothing.
3. A task that fails takes its files away; what a killed one leaves is in no version of the table. Objects stay until
   the table is cleaned: when the last one of a folder goes, Arrow leaves a mark there that looks like a file.
4. Memory is bounded by open files times ``GROUP_BYTES``, whatever the number of partitions.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from enmasse.pipeline.lake.objects import LakePath, ObjectPath, lake_path, located, size_of
from enmasse.pipeline.sums import keep_sum, remove_sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES_DDL: Final = "path STRING, bytes BIGINT, rows BIGINT, partition STRING, stats STRING"
"""The report of a task about a file: ``partition`` and ``stats`` are JSON, as Delta's log has them."""
_FILES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.string()),
        ("stats", pa.string()),
    ]
)

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition column is null, as all readers know it."""
OPEN_FILES: Final = 16
"""A batch of late rows is of some days; one of many days makes more files, not more memory."""
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 16 << 20
"""Rows are collected so far before they are encoded: large enough to compress, small enough for a worker."""
_INDEXED_COLUMNS: Final = 32
"""Delta's own default for statistics by column."""
_INDEXED_TEXT: Final = 64
"""Longer texts help a reader little to decide which files to leave out."""
_SAMPLE_ROWS: Final = 4096
SAFE: Final = " -_."
"""Kept in folder names, beside letters and digits; Spark would take brackets and stars for patterns."""


def partition_text(value: Any) -> str | None:
    """Return a partition's value as Delta's log has it; an empty string is no value there.

    Raises:
        ValueError: readers would take it for NULL.
    """
    if value == NO_VALUE:
        raise ValueError(f"{NO_VALUE} is no value of a partition: folders of tables have that name for NULL")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value not in (None, "") else None


def partition_folder(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the folder of a partition, ``day=2026-01-31/site=north``; empty where there are none."""
    pairs = zip(names, values, strict=True)
    return "/".join(f"{_escape(name)}={NO_VALUE if value is None else _escape(value)}" for name, value in pairs)


def _escape(text: str) -> str:
    return quote(text, safe=SAFE)


def sync(path: LakePath) -> None:
    """Put a file or the names in a folder on disk; objects are durable already."""
    if isinstance(path, ObjectPath):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unnamed(paths: Iterable[LakePath]) -> None:
    """Remove files that no version of a table names; objects are left to who cleans the table."""
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
            remove_sum(path)


def put_whole(path: LakePath, text: str) -> None:
    """Put a small file on disk, in the place of a former one at once."""
    if isinstance(path, ObjectPath):
        path.write_text(text)
        return
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    sync(new)
    new.rename(path)
    sync(path.parent)


@contextmanager
def staging_folder(parent: Path) -> Iterator[Path]:
    """Give a new folder for files on their way into a table, which is removed at the end of the block."""
    folder = parent / uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def written(frame: DataFrame, root: LakePath, partition_by: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Have Spark's tasks write rows below a folder, and return their report of each file (``FILES_DDL``)."""
    from enmasse.pipeline.naming import by_any_name  # noqa: PLC0415  # workers need it not

    files = by_any_name(frame).mapInArrow(FileWriting(str(root), partition_by), FILES_DDL).collect()
    return [row.asDict() for row in files]


class FileWriting:
    """The function for ``mapInArrow``: rows in, a row for each file out.

    Args:
        root: folder of the table; ``path`` is below it.
        partition_by: columns that are in the folders' names and not in the files.
    """

    def __init__(self, root: str, partition_by: Sequence[str] = ()) -> None:
        self._root = root
        self._partition_by = tuple(partition_by)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write everything; reported at the end, when nothing can fail any more."""
        files = _Files(lake_path(self._root), self._partition_by)
        try:
            for batch in batches:
                files.add(batch)
            reported = files.finish()
        except BaseException:
            files.discard()
            raise
        if reported:
            yield pa.RecordBatch.from_pylist(reported, schema=_FILES)


class _Files:
    """The files of one task, of which some are open."""

    def __init__(self, root: LakePath, partition_by: tuple[str, ...]) -> None:
        self._root = root
        self._partition_by = partition_by
        self._name = f"part-{uuid4()}"
        self._open: OrderedDict[tuple[str | None, ...], _File] = OrderedDict()
        self._made: list[LakePath] = []
        self._reported: list[dict[str, Any]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for values, rows in split(batch, self._partition_by):
            file = self._open.get(values)
            if file is None:
                file = self._create(values, rows.schema)
            self._open.move_to_end(values)
            file.add(rows)

    def _create(self, values: tuple[str | None, ...], schema: pa.Schema) -> _File:
        if len(self._open) >= OPEN_FILES:
            _, oldest = self._open.popitem(last=False)
            self._reported.append(oldest.finish())
        folder = partition_folder(self._partition_by, values)
        path = "/".join(filter(None, (folder, f"{self._name}-{len(self._made)}.parquet")))
        whole = self._root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        self._made.append(whole)
        file = _File(whole, path, schema, dict(zip(self._partition_by, values, strict=True)))
        self._open[values] = file
        return file

    def finish(self) -> list[dict[str, Any]]:
        while self._open:
            _, file = self._open.popitem(last=False)
            self._reported.append(file.finish())
        for folder in {path.parent for path in self._made}:
            sync(folder)
        return self._reported

    def discard(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            file.abandon()
        remove_unnamed(self._made)


class _File:
    """One Parquet file that grows by row groups."""

    def __init__(self, path: LakePath, relative: str, schema: pa.Schema, partition: dict[str, str | None]) -> None:
        self._path = path
        self._relative = relative
        self._partition = partition
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._held_rows:
            rows = pa.Table.from_batches(self._held, self._schema)
            if self._writer is None:
                where, files = located(self._path)
                self._writer = pq.ParquetWriter(
                    where,
                    self._schema,
                    filesystem=files,
                    compression="snappy",
                    use_dictionary=repeating(rows),
                    write_page_checksum=True,
                )
            self._writer.write_table(rows, row_group_size=self._held_rows)
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def finish(self) -> dict[str, Any]:
        self._write()
        assert self._writer is not None
        self._writer.close()
        sync(self._path)
        if isinstance(self._path, Path):
            keep_sum(self._path)
        footer = self._writer.writer.metadata  # as it was just written
        return {
            "path": self._relative,
            "bytes": size_of(self._path),
            "rows": footer.num_rows,
            "partition": json.dumps(self._partition),
            "stats": json.dumps(statistics(footer, self._schema)),
        }

    def abandon(self) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
        except (OSError, pa.ArrowException):
            # The disk may be full, and the file goes anyway.
            return


def split(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield the rows by their partition, in order, without the columns that name it."""
    if not partition_by:
        yield (), batch
        return
    kept = batch.select([name for name in batch.schema.names if name not in partition_by])
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    texts: list[list[str | None]] = []
    for name in partition_by:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        texts.append([partition_text(value) for value in encoded.dictionary.to_pylist()])
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    found, positions = np.unique(codes, return_inverse=True)
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(found) + 1))
    for index, code in enumerate(found.tolist()):
        values: list[str | None] = []
        for column in reversed(texts):
            code, position = divmod(code, len(column))  # noqa: PLW2901  # the digits of a number, last first
            values.append(column[position])
        rows = kept if len(found) == 1 else kept.take(pa.array(order[starts[index] : starts[index + 1]]))
        yield tuple(reversed(values)), rows


def repeating(rows: pa.Table) -> list[str]:
    """Return the columns that a dictionary makes smaller; for the others it doubles what encoding costs."""
    some = rows.slice(0, _SAMPLE_ROWS)
    found: list[str] = []
    for field in rows.schema:
        if pa.types.is_nested(field.type):
            found += _leaves(field.name, field.type)
        elif pc.count_distinct(some.column(field.name)).as_py() <= len(some) // 2:
            found.append(field.name)
    return found


def _leaves(path: str, of: pa.DataType) -> Iterator[str]:
    """Yield the paths of a column's parts, as Parquet has them."""
    if pa.types.is_map(of):
        yield from _leaves(f"{path}.key_value.key", of.key_type)
        yield from _leaves(f"{path}.key_value.value", of.item_type)
    elif pa.types.is_struct(of):
        for field in of:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_nested(of):
        yield from _leaves(f"{path}.list.element", of.value_type)
    else:
        yield path


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Return what readers may leave a file out by: numbers of rows and nulls, least and greatest values."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    indexed = {field.name for field in list(schema)[:_INDEXED_COLUMNS] if _is_indexed(field.type)}
    for column in range(footer.num_columns):
        name = footer.schema.column(column).path
        if name not in indexed:
            continue
        groups = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
        if not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        bounds = [group for group in groups if group.null_count < group.num_values + group.null_count]
        if bounds and all(group.has_min_max for group in bounds):
            try:
                low, high = _text_of(min(group.min for group in bounds)), _text_of(max(group.max for group in bounds))
            except (OverflowError, ValueError):  # a moment beyond the years 1 to 9999
                continue
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_indexed(of: pa.DataType) -> bool:
    """Return whether the least and greatest values of a type are told.

    Those of floats are not: NaN is above every number to some readers, and Parquet's statistics leave it out.
    """
    return bool(
        pa.types.is_integer(of) or pa.types.is_string(of) or pa.types.is_date32(of) or pa.types.is_timestamp(of)
    )


def _text_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.year >= 1000 else None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _INDEXED_TEXT else None
    return value
