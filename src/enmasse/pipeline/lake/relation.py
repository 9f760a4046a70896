"""A table of the lake as it is now: as a relation in Spark, and facts about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from enmasse.model.kinds.pipelines import TableFormat
from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.batches import turn
from enmasse.pipeline.lake.delta import open_delta
from enmasse.pipeline.lake.file_writing import SAFE, sync
from enmasse.pipeline.lake.mending import LOG
from enmasse.pipeline.lake.parquet import parquet_fields

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_NOT_ASCII: Final = re.compile("%[89A-Fa-f]")


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


def tables(lake: Path) -> list[str]:
    """Return the names of the tables in a lake."""
    if not lake.is_dir():
        return []
    return sorted(path.name for path in lake.iterdir() if not path.name.startswith(("_", ".")) and _is_table(path))


def _is_table(path: Path) -> bool:
    return (path / "_delta_log").is_dir() or parquet_fields(path) is not None


def schema_of(path: Path) -> StructType:
    """Return a table's columns.

    Raises:
        TableSchemaError: there is no table.
    """
    delta = open_delta(path)
    if delta is not None:
        return StructType.fromJson(json.loads(delta.schema().to_json()))
    fields = parquet_fields(path)
    if fields is None:
        raise TableSchemaError(f"there is no table {path.name!r} in the lake; a pipeline makes it when it starts")
    return StructType.fromJson({"type": "struct", "fields": fields})


def relation(spark: SparkSession, path: Path, version: int | datetime | None = None) -> DataFrame:
    """Return the table's rows as they are now, or were; what comes later is not in the frame.

    Args:
        spark: the session.
        path: the table's folder.
        version: of a Delta table: its number, or a moment; None: the present one.

    Raises:
        TableSchemaError: there is no table, or no such version of it any more.
    """
    delta = open_delta(path)
    if delta is not None:
        if version is not None:
            _go_back(delta, path, version)
        schema = StructType.fromJson(json.loads(delta.schema().to_json()))
        files = delta.file_uris()
        if not files:
            return spark.createDataFrame([], schema)
        # Folders carry the partition columns; the schema says their types, or 007 would become 7.
        rows = spark.read.schema(schema).option("basePath", str(path.resolve())).parquet(*files)
        return _with_texts(rows, schema, files)
    fields = parquet_fields(path)
    if fields is None:
        raise TableSchemaError(f"there is no table {path.name!r} in the lake; a pipeline makes it when it starts")
    if version is not None:
        raise TableSchemaError(f"the table {path.name} is plain Parquet and has no versions")
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    rows = spark.read.schema(schema).parquet(str(path.resolve()))
    return _with_texts(rows, schema, [str(file) for file in path.rglob("*.parquet")])


def _go_back(delta: DeltaTable, path: Path, version: int | datetime) -> None:
    """Have a table be as it was.

    Raises:
        TableSchemaError: that cannot be read any more, or was never so.
    """
    newest = delta.version()
    wanted = f"version {version}" if isinstance(version, int) else f"version of {version.isoformat()}"
    try:
        if isinstance(version, datetime) and version.timestamp() * 1000 < delta.history()[-1]["timestamp"]:
            raise ValueError(version)  # noqa: TRY301  # told in the same words
        delta.load_as_version(version)
    except (DeltaError, ValueError, OverflowError):
        raise TableSchemaError(
            f"the table {path.name} has no {wanted}: its newest is {newest}, and {_KEPT}"
        ) from None
    files = [unquote(file.removeprefix("file://")) for file in delta.file_uris()]
    if missing := next((file for file in files if not Path(file).exists()), None):
        raise TableSchemaError(f"files of {wanted} of the table {path.name} were deleted, as {missing}: {_KEPT}")


def restore(path: Path, version: int | datetime) -> str:
    """Have a Delta table be as it was, as a new version, and return what was done.

    Raises:
        TableSchemaError: there is no such table, or no such version of it any more.
    """
    for _ in range(_ATTEMPTS):
        # Batches and compaction change the table meanwhile: each attempt begins with what is there.
        with turn(path), suppress(CommitFailedError):
            delta, past = open_delta(path), open_delta(path)
            if delta is None or past is None:
                raise TableSchemaError(f"there is no Delta table {path.name!r} in the lake")
            _go_back(past, path, version)
            delta.restore(past.version())
            delta.update_incremental()
            for entry in (path / LOG / f"{delta.version():020d}.json", path / LOG):
                sync(entry)
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


def history(spark: SparkSession, path: Path, most: int = 1000) -> DataFrame:
    """Return the versions of a Delta table, the newest first: what made each, and how many rows it added.

    Raises:
        TableSchemaError: there is no such table.
    """
    delta = open_delta(path)
    if delta is None:
        raise TableSchemaError(f"there is no Delta table {path.name!r} in the lake")
    rows = []
    for entry in delta.history(most):
        figures = entry.get("operationMetrics") or {}
        counts = (
            _count(figures, "num_added_files", "num_target_files_added", "numFilesAdded"),
            _count(figures, "num_removed_files", "num_target_files_removed", "numFilesRemoved"),
            _count(figures, "num_added_rows", "num_target_rows_inserted", "num_output_rows"),
        )
        at = datetime.fromtimestamp(entry.get("timestamp", 0) / 1000, UTC)
        rows.append((entry.get("version"), at, entry.get("operation"), *counts))
    return spark.createDataFrame(rows, HISTORY)


def _count(figures: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of some figures that there is; operations call them differently."""
    found = (str(figures[name]) for name in names if figures.get(name) is not None)
    return next((int(text) for text in found if text.isdigit()), None)


def _with_texts(rows: DataFrame, schema: StructType, files: Iterable[str]) -> DataFrame:
    """Return rows with the names of folders unescaped: Spark takes the escaped bytes of UTF-8 for characters."""
    escaped = {part.partition("=")[0] for file in files if _NOT_ASCII.search(file) for part in file.split("/")}
    columns = []
    for field in schema.fields:
        column = F.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, StringType) and quote(field.name, safe=SAFE) in escaped:
            column = F.decode(F.encode(column, "ISO-8859-1"), "UTF-8").alias(field.name)
        columns.append(column)
    return rows.select(*columns)


def facts(path: Path) -> TableFacts:
    """Return what the table's log says of it, without reading rows.

    Raises:
        TableSchemaError: there is no table.
    """
    delta = open_delta(path)
    if delta is not None:
        return _delta_facts(path.name, delta)
    fields = parquet_fields(path)
    if fields is None:
        raise TableSchemaError(f"there is no table {path.name!r} in the lake; a pipeline makes it when it starts")
    files = [file for file in path.rglob("*.parquet") if not file.name.startswith(("_", "."))]
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
