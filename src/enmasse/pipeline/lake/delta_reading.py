"""Opens Delta tables, and gives their rows to Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import DataLossError, TableDamagedError, TableSchemaError
from enmasse.pipeline.lake.file_writing import SAFE, partition_text
from enmasse.pipeline.lake.objects import (
    LakePath,
    ObjectPath,
    away,
    delta_options,
    lake_path,
    located,
    storage_failure,
)
from enmasse.pipeline.session import activate
from enmasse.pipeline.sums import DamagedFileError, check_sum
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "enmasse-version"
LOG: Final = "_delta_log"
_HINT: Final = "_last_checkpoint"

_TASKS: Final = 8
"""Tasks that read a table at most."""
_NOT_ASCII: Final = re.compile("%[89A-Fa-f]")


def open_delta(path: LakePath, version: int | None = None) -> DeltaTable | None:
    """Return the table as it is now, or was in a version; None where there is none.

    Raises:
        LakeAwayError: its storage does not answer.
        TableDamagedError: its log cannot be read.
    """
    try:
        table = DeltaTable(str(path), version=version, storage_options=delta_options(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        if isinstance(path, ObjectPath) and storage_failure(str(error)):
            raise away(path, error) from None
        if isinstance(error, OSError):
            raise
        if isinstance(path, Path):
            check_files(path, (f"{LOG}/{entry.name}" for entry in (path / LOG).glob("[0-9]*")))
        # The library shows its own state in braces, and where it was in further lines.
        said = str(error).partition("\n")[0].partition(" {")[0]
        if _HINT in said:
            raise TableDamagedError(
                f"the table {path.name} is damaged: {path / LOG / _HINT} names a checkpoint of the log that is not "
                "there; remove the file: the newest one is found without it, if it was not lost"
            ) from error
        raise TableDamagedError(
            f"the table {path.name} is damaged: its log cannot be read ({said}); bring the files of {path} back from "
            "a backup, or move the table away"
        ) from error
    if isinstance(path, Path):
        _require_entries(path, table.version())
    return table


def _require_entries(path: Path, version: int) -> None:
    """Make sure that no entry of a table's log is empty, which the library takes for one that changes nothing.

    Raises:
        TableDamagedError: one is, or is not as it was written, of those since the log's last checkpoint, or that is.
    """
    for number in range(version, -1, -1):
        entry = path / LOG / f"{number:020d}.json"
        try:
            is_empty = entry.stat().st_size == 0
        except FileNotFoundError:
            return  # a checkpoint is in the place of the older ones
        if is_empty:
            raise TableDamagedError(
                f"the table {path.name} is damaged: {entry} is empty; bring the file back from a backup, or move the "
                "table away"
            )
        checkpoint = entry.with_suffix(".checkpoint.parquet")
        check_files(path, [f"{LOG}/{entry.name}"])
        if checkpoint.exists():
            check_files(path, [f"{LOG}/{checkpoint.name}"])
            return


def check_files(path: LakePath, files: Iterable[str]) -> None:
    """Make sure that files of a table are as they were written, for a library that does not look.

    Args:
        path: the table's folder.
        files: below it. One that is gone meanwhile is passed over.

    Raises:
        TableDamagedError: one is not; the message names it and what to do.
    """
    if isinstance(path, ObjectPath):
        return
    for file in files:
        with suppress(FileNotFoundError):
            try:
                check_sum(path / file)
            except DamagedFileError as error:
                raise TableDamagedError(
                    f"the table {path.name} is damaged: {error}; {TableDamagedError.REMEDY}"
                ) from None


def existing_delta(path: LakePath) -> DeltaTable:
    """Return the table as it is now.

    Raises:
        TableSchemaError: there is none.
    """
    table = open_delta(path)
    if table is None:
        raise TableSchemaError(
            f"there is no Delta table {path.name!r} in the lake; a pipeline makes it when it starts"
        )
    return table


def rows_of(spark: SparkSession, table: DeltaTable, path: LakePath) -> DataFrame:
    """Return the rows of a table in the version in which it was opened."""
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    if isinstance(path, ObjectPath):
        activate(spark)
        spark.dataSource.register(VersionSource)
        options = {"path": str(path), "version": str(table.version()), "schema": schema.json()}
        frame: DataFrame = spark.read.format(FORMAT).options(**options).load()
        return frame
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    # Folders carry the partition columns; the schema says their types, or 007 would become 7.
    rows = spark.read.schema(schema).option("basePath", str(path.resolve())).parquet(*files)
    return with_texts(rows, schema, files)


def with_texts(rows: DataFrame, schema: StructType, files: Iterable[str]) -> DataFrame:
    """Return rows with the names of folders unescaped: Spark takes the escaped bytes of UTF-8 for characters."""
    escaped = {part.partition("=")[0] for file in files if _NOT_ASCII.search(file) for part in file.split("/")}
    columns = []
    for field in schema.fields:
        column = F.col(quote_identifier(field.name))
        if isinstance(field.dataType, StringType) and quote(field.name, safe=SAFE) in escaped:
            column = F.decode(F.encode(column, "ISO-8859-1"), "UTF-8").alias(field.name)
        columns.append(column)
    return rows.select(*columns)


@dataclass(frozen=True)
class TableFile:
    """A file of a table.

    Attributes:
        path: below the table's folder.
        values: the values of the columns that folders stand for, as text.
    """

    path: str
    values: dict[str, str | None]


def files_of(delta: DeltaTable) -> Iterator[TableFile]:
    """Yield the files of a table in the version in which it was opened."""
    columns = list(delta.metadata().partition_columns)
    actions = pa.table(delta.get_add_actions(flatten=True))
    values = [actions.column(f"partition.{name}").to_pylist() for name in columns]
    for index, name in enumerate(actions.column("path").to_pylist()):
        texts = {column: partition_text(values[at][index]) for at, column in enumerate(columns)}
        yield TableFile(unquote(name), texts)


class FilesPartition(InputPartition):
    """Files that one task reads."""

    def __init__(self, root: str, files: Sequence[TableFile]) -> None:
        super().__init__(root)
        self.root = root
        self.files = tuple(files)


def partitions_of(root: str, files: Sequence[TableFile]) -> Sequence[FilesPartition]:
    """Return files for several tasks; at least one task, as Spark wants one."""
    count = max(1, min(_TASKS, len(files)))
    return [FilesPartition(root, files[number::count]) for number in range(count)]


def read_files(part: FilesPartition, of: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a table with all of its columns."""
    settle()
    schema = to_arrow_schema(of, timezone="UTC")
    for file in part.files:
        check_files(lake_path(part.root), [file.path])
        where, storage = located(lake_path(part.root) / file.path)
        try:
            parquet = pq.ParquetFile(where, filesystem=storage, page_checksum_verification=True)
        except FileNotFoundError:
            raise DataLossError(
                f"the file {file.path} of the table {part.root} is there no more: who reads an old version has to do "
                "so within maintenance.keepVersions; restart the pipeline"
            ) from None
        there = set(parquet.schema_arrow.names)
        columns = [name for name in schema.names if name in there]
        try:
            for rows in parquet.iter_batches(50_000, columns=columns):
                yield _fitted(rows, schema, file.values)
        except (OSError, pa.ArrowInvalid) as error:
            raise DataLossError(f"the file {file.path} of the table {part.root} cannot be read: {error}") from None


def _fitted(rows: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return rows with all columns: those that folders stand for, and nulls for what the file lacks."""
    columns = []
    for field in schema:
        if field.name in values:
            text = pa.scalar(values[field.name], pa.string())
            columns.append(pa.repeat(text.cast(field.type), rows.num_rows))
        elif field.name in rows.schema.names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class VersionReader(DataSourceReader):
    """Reads a version of a table whose files Spark itself does not reach.

    Args:
        options: ``path`` and ``version``.
        schema: the columns.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._path = options["path"]
        self._version = int(options["version"])
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the version, for several tasks."""
        table = existing_delta(lake_path(self._path))
        table.load_as_version(self._version)
        return partitions_of(self._path, tuple(files_of(table)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        return read_files(cast("FilesPartition", partition), self._schema)


class TableSource(DataSource):
    """A format of Spark's that reads a table of the lake, whose columns are an option."""

    def schema(self) -> StructType:
        """Return the columns that the table had when the query was planned."""
        return StructType.fromJson(json.loads(self.options["schema"]))


class VersionSource(TableSource):
    """The format of Spark's by which tables in object storage are read."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one query."""
        return VersionReader(self.options, schema)
