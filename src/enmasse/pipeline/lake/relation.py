"""A table of the lake as it is now: as a relation in Spark, and facts about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from enmasse.model.kinds.pipelines.sinks import TableFormat
from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.far_moments import python_values
from enmasse.pipeline.lake.batches import table_lock
from enmasse.pipeline.lake.delta import sync_log
from enmasse.pipeline.lake.delta_reading import LOG, existing_delta, files_of, open_delta, rows_of, with_texts
from enmasse.pipeline.lake.objects import LakePath, missing_of
from enmasse.pipeline.lake.parquet import parquet_fields, parquet_table

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TableFacts:
    """Facts about a table."""

    name: str
    format: TableFormat
    columns: tuple[tuple[str, str], ...]
    """Names and types, as Spark writes them in DDL."""
    partition_by: tuple[str, ...]
    rows: int
    bytes: int
    files: int
    version: int | None
    """The number of changes of a Delta table."""


def tables(lake: LakePath) -> list[str]:
    """Return the names of the tables in a lake."""
    if not lake.is_dir():
        return []
    folders = [path for path in lake.iterdir() if not path.name.startswith(("_", "."))]
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
        return sorted(
            path.name for path, found in zip(folders, threads.map(_is_table, folders), strict=True) if found
        )


_ASKED_AT_ONCE: Final = 16
"""Object storage tells only folder by folder what lies in one, and takes long for each."""


def _is_table(path: LakePath) -> bool:
    return (path / "_delta_log").is_dir() or parquet_fields(path) is not None


def schema_of(path: LakePath) -> StructType:
    """Return a table's columns.

    Raises:
        TableSchemaError: there is no table.
    """
    delta = open_delta(path)
    if delta is not None:
        return StructType.fromJson(json.loads(delta.schema().to_json()))
    _, fields = parquet_table(path)
    return StructType.fromJson({"type": "struct", "fields": fields})


def relation(spark: SparkSession, path: LakePath, version: int | datetime | None = None) -> DataFrame:
    """Return the table's rows as they are now, or were; what comes later is not in the frame.

    Args:
        spark: the session.
        path: the table's folder.
        version: the version of a Delta table: its number, or a moment; None: the present one.

    Raises:
        TableSchemaError: there is no table, or no such version of it any more.
    """
    delta = open_delta(path)
    if delta is not None:
        if version is not None:
            _go_back(delta, path, version)
        return rows_of(spark, delta, path)
    folder, fields = parquet_table(path)
    if version is not None:
        raise TableSchemaError(f"the table {path.name} is plain Parquet and has no versions")
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    rows = spark.read.schema(schema).parquet(str(folder.resolve()))
    return with_texts(rows, schema, [str(file) for file in folder.rglob("*.parquet")])


def _go_back(delta: DeltaTable, path: LakePath, version: int | datetime) -> None:
    """Have a table be as it was.

    Raises:
        TableSchemaError: that cannot be read any more, or was never so.
    """
    newest = delta.version()
    wanted = f"version {version}" if isinstance(version, int) else f"version of {version.isoformat()}"
    try:
        if isinstance(version, datetime):
            # By the moments that its history tells; Delta's library goes by those at which files were written.
            before = (one for one in delta.history() if one["timestamp"] <= version.timestamp() * 1000)
            version = next(before, {"version": -1})["version"]
        delta.load_as_version(version)
    except (DeltaError, ValueError, OverflowError):
        raise TableSchemaError(
            f"the table {path.name} has no {wanted}: its newest is {newest}, and {_KEPT}"
        ) from None
    if missing := missing_of(path, [file.path for file in files_of(delta)]):
        raise TableSchemaError(f"files of {wanted} of the table {path.name} were deleted, as {missing}: {_KEPT}")


def restore(path: LakePath, version: int | datetime) -> str:
    """Have a Delta table be as it was, as a new version, and return what was done.

    Raises:
        TableSchemaError: there is no such table, or no such version of it any more.
    """
    for _ in range(_ATTEMPTS):
        # Batches and compaction change the table meanwhile: each attempt begins with what is there.
        with table_lock(path), suppress(CommitFailedError):
            delta, past = existing_delta(path), existing_delta(path)
            _go_back(past, path, version)
            delta.restore(past.version())
            delta.update_incremental()
            sync_log(path, delta.version(), delta.version())
            return f"is as version {past.version()} was, as version {delta.version()}"
    raise TableSchemaError(f"the table {path.name} is written all the time: pause its pipeline, and restore it then")


_ATTEMPTS: Final = 5
_KEPT: Final = "old ones go after maintenance.keepVersions, a day if nothing is said"
HISTORY: Final = StructType(
    [
        StructField("version", LongType()),
        StructField("at", TimestampType()),
        StructField("operation", StringType()),
        StructField("files_added", LongType()),
        StructField("files_removed", LongType()),
        StructField("rows", LongType()),
    ]
)


def history(spark: SparkSession, path: LakePath, most: int = 1000) -> DataFrame:
    """Return the versions of a Delta table, the newest first: what made each, and how many rows it added or changed.

    Raises:
        TableSchemaError: there is no such table.
    """
    delta = existing_delta(path)
    rows: list[tuple[Any, ...]] = []
    for entry in delta.history(most):
        figures = entry.get("operationMetrics") or {}
        counts = (
            _count(figures, "num_added_files", "num_target_files_added", "numFilesAdded"),
            _count(figures, "num_removed_files", "num_target_files_removed", "numFilesRemoved"),
            rows_written(figures),
        )
        if not figures and len(rows) < _COUNTED:  # as of appended batches
            counts = _counts_of(path / LOG / f"{entry['version']:020d}.json")
        at = datetime.fromtimestamp(entry.get("timestamp", 0) / 1000, UTC)
        rows.append((entry.get("version"), at, entry.get("operation"), *counts))
    return spark.createDataFrame(rows, HISTORY)


STATISTICS: Final = StructType(
    [
        StructField("column", StringType()),
        StructField("type", StringType()),
        StructField("min", StringType()),
        StructField("max", StringType()),
        StructField("nulls", LongType()),
    ]
)


def statistics(spark: SparkSession, path: LakePath) -> DataFrame:
    """Return the columns of a Delta table with their least and greatest values, as the log has them of its files.

    Raises:
        TableSchemaError: there is no such table.
    """
    delta = existing_delta(path)
    files = pa.table(delta.get_add_actions(flatten=True))

    def values(prefix: str, name: str) -> pa.ChunkedArray | None:
        column = f"{prefix}.{name}"
        return files[column].drop_null() if column in files.column_names else None

    def bound(name: str, least_or_most: str) -> str | None:
        found = [_bound(values(prefix, name), least_or_most) for prefix in (least_or_most, "partition")]
        return next((text for text in found if text is not None), None)

    rows = []
    for name, kind in _columns(json.loads(delta.schema().to_json())):
        nulls = values("null_count", name)
        count = None if nulls is None or not len(nulls) else sum(nulls.to_pylist())
        rows.append((name, kind, bound(name, "min"), bound(name, "max"), count))
    return spark.createDataFrame(rows, STATISTICS)


def _bound(values: pa.ChunkedArray | None, which: str) -> str | None:
    """Return the least or the greatest of the values of files, as text."""
    if values is None or not len(values):
        return None
    (found,) = python_values(pa.array([pc.min_max(values)[which]]))
    return str(found)


_COUNTED: Final = 100
"""Versions of which the log's entry is read: each is a file, or an object far away."""


def _counts_of(entry: LakePath) -> tuple[int | None, int | None, int | None]:
    """Return how many files an entry of a table's log adds and removes, and how many rows it adds.

    None of an entry that is not there any more, and no rows where files are removed: they may hold the same ones.
    """
    try:
        actions = [json.loads(line) for line in entry.read_text().split("\n") if line]
    except OSError:
        return None, None, None
    added = [action["add"] for action in actions if "add" in action]
    removed = sum("remove" in action for action in actions)
    rows = sum(json.loads(add.get("stats") or "{}").get("numRecords") or 0 for add in added)
    return len(added), removed, None if removed else rows


def rows_written(figures: Mapping[str, Any]) -> int | None:
    """Return how many rows an operation added or changed, by its figures; None: they do not say."""
    # A merge counts those of the files that it wrote anew as its output.
    merged = [_count(figures, f"num_target_rows_{kind}") for kind in ("inserted", "updated")]
    if merged != [None, None]:
        return sum(filter(None, merged))
    return _count(figures, "num_added_rows", "num_output_rows")


def _count(figures: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of some figures that there is; operations call them differently."""
    found = (str(figures[name]) for name in names if figures.get(name) is not None)
    return next((int(text) for text in found if text.isdigit()), None)


def facts(path: LakePath) -> TableFacts:
    """Return what the table's log says of it, without reading rows.

    Raises:
        TableSchemaError: there is no table.
    """
    delta = open_delta(path)
    if delta is not None:
        return _delta_facts(path.name, delta)
    folder, fields = parquet_table(path)
    files = [file for file in folder.rglob("*.parquet") if not file.name.startswith(("_", "."))]
    return TableFacts(
        path.name,
        "parquet",
        _columns({"type": "struct", "fields": fields}),
        (),
        sum(pq.read_metadata(file).num_rows for file in files),
        sum(file.stat().st_size for file in files),
        len(files),
        None,
    )


def _delta_facts(name: str, delta: DeltaTable) -> TableFacts:
    files = delta.get_add_actions(flatten=True)
    columns = {column: files.column(column) for column in ("num_records", "size_bytes")}
    rows, size = (sum(value or 0 for value in column.to_pylist()) for column in columns.values())
    return TableFacts(
        name,
        "delta",
        _columns(json.loads(delta.schema().to_json())),
        tuple(delta.metadata().partition_columns),
        rows,
        size,
        files.num_rows,
        delta.version(),
    )


def _columns(schema: dict[str, object]) -> tuple[tuple[str, str], ...]:
    fields = StructType.fromJson(schema).fields
    return tuple((field.name, field.dataType.simpleString().upper()) for field in fields)
