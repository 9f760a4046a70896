"""A table of the lake that the batches of a streaming query join: each batch joins the table as it is then.

Rules:
1. Spark asks for a table's files when it plans a batch, after it has written the batch's offsets. The version that a
   batch joins is on disk, beside the checkpoint, before the batch runs; a batch that comes again, as after a kill,
   joins the same one.
2. Its files are linked beside the tables, under the query's name, so that nothing that cleans up takes them away.
   What the last two batches joined is kept; where there are no links, as in object storage, tables keep replaced
   files for a day.
3. Columns that the table has got since the query began are left out; one that is gone, or has another type, fails it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from enmasse.pipeline.backup.locks import deletion
from enmasse.pipeline.errors import CheckpointDamagedError, TableSchemaError
from enmasse.pipeline.lake.delta_reading import (
    FilesPartition,
    TableFile,
    TableSource,
    files_of,
    open_delta,
    partitions_of,
    read_files,
)
from enmasse.pipeline.lake.file_writing import NO_VALUE, sync
from enmasse.pipeline.lake.objects import LakePath, ObjectPath, lake_path
from enmasse.pipeline.lake.parquet import parquet_table
from enmasse.pipeline.session import activate
from enmasse.pipeline.sums import opened, sealed, sum_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.model.kinds.pipelines.databases import Database

FORMAT: Final = "enmasse-table"

SMALL_BYTES: Final = 32 << 20
"""A table that is no larger when the query starts is given to every task whole, and needs no shuffle."""

UNLINKED_S: Final = 1800.0
"""The oldest version that is joined where links cannot keep its files: tables keep them for an hour at least."""

_KEPT_BATCHES: Final = 2
_PINNED: Final = "_pinned"
"""Readers, and whatever cleans up, leave out what begins with an underscore."""


@dataclass(frozen=True)
class Version:
    """A table at a moment.

    Attributes:
        name: the number of a Delta table's version, or what stands for it.
        at: the time at which a batch first joined it, RFC 3339.
        files: all that it has.
        folder: the folder where they are kept for the query; empty: in the table.
    """

    name: str
    at: str
    files: tuple[TableFile, ...]
    folder: str = ""


def present_version(path: LakePath, fields: Sequence[Mapping[str, Any]] = ()) -> Version:
    """Return a table as it is now.

    Args:
        path: its folder.
        fields: the columns that are read, as a schema of Spark's in JSON has them; each has to be there.

    Raises:
        TableSchemaError: there is no table, or it lacks a column.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    delta = open_delta(path)
    if delta is not None:
        _check_fields(path.name, json.loads(delta.schema().to_json())["fields"], fields)
        return Version(str(delta.version()), now, tuple(files_of(delta)))
    folder, there = parquet_table(path)
    _check_fields(path.name, there, fields)
    names = sorted(
        str(file.relative_to(folder)) for file in folder.rglob("*.parquet") if not file.name.startswith(("_", "."))
    )
    names = [name for name in names if not name.startswith("_")]
    digest = sha256("\0".join(names).encode()).hexdigest()[:12]
    return Version(digest, now, tuple(TableFile(name, _values_of(name)) for name in names))


def _check_fields(table: str, there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> None:
    types = {field["name"]: field["type"] for field in there}
    for field in wanted:
        if types.get(field["name"]) != field["type"]:
            found = "gone" if field["name"] not in types else f"now {json.dumps(types[field['name']])}"
            raise TableSchemaError(
                f"the column {field['name']!r} of the table {table} is {found}, and was {json.dumps(field['type'])} "
                "when the query started: bring it back, or have the pipeline start anew with "
                "`enmasse pipeline restart`"
            )


def _values_of(path: str) -> dict[str, str | None]:
    pairs = [part.split("=", 1) for part in path.split("/")[:-1] if "=" in part]
    return {unquote(name): None if value == NO_VALUE else unquote(value) for name, value in pairs}


def _pins_in(folder: Path) -> dict[int, Version]:
    """Return the versions of a table that batches of a query joined, by the numbers of the batches."""
    found = {}
    for entry in folder.glob("[0-9]*"):
        if entry.name.isdigit():
            # What is no longer needed is removed meanwhile.
            with suppress(FileNotFoundError):
                try:
                    document = opened(entry.read_text())
                    files = tuple(TableFile(**file) for file in document.pop("files"))
                    found[int(entry.name)] = Version(**document, files=files)
                except (ValueError, KeyError, TypeError) as error:
                    raise CheckpointDamagedError(
                        f"the checkpoint's {entry} cannot be read ({error}); {CheckpointDamagedError.REMEDY}"
                    ) from None
    return found


class Pins:
    """The versions of a table that the batches of a query join.

    Args:
        table: the table's folder.
        checkpoint: the query's folder.
        query: names the query among all of the space.
        database: the table that this one is a copy of; None: it is none.
    """

    def __init__(self, table: LakePath, checkpoint: Path, query: str, database: Database | None = None) -> None:
        self._table = table
        self._query = query
        self._database = database
        self._checkpoint = checkpoint
        self._folder = checkpoint / "tables" / table.name
        self._links = table.parent / _PINNED / query / table.name if isinstance(table, Path) else None

    def of_present_batch(self, refresh_s: float, fields: Sequence[Mapping[str, Any]]) -> Version:
        """Return the version that the batch joins whose offsets were written last.

        Args:
            refresh_s: the greatest age of a version before another is looked for.
            fields: the columns that are read.
        """
        batches = [int(entry.name) for entry in (self._checkpoint / "offsets").glob("[0-9]*") if entry.name.isdigit()]
        if not batches:  # it is explained, and not run
            return present_version(self._table, fields)
        batch = max(batches)
        pins = _pins_in(self._folder)
        if batch in pins:
            return pins[batch]
        former = pins[max(pins)] if pins else None
        version = self._next(former, refresh_s, fields)
        self._write(batch, version)
        self._forget(pins | {batch: version})
        return version

    def _next(self, former: Version | None, refresh_s: float, fields: Sequence[Mapping[str, Any]]) -> Version:
        if self._links is None:
            refresh_s = min(refresh_s, UNLINKED_S)
        if former is not None and refresh_s:
            age = datetime.now(UTC) - datetime.fromisoformat(former.at)
            if age.total_seconds() < refresh_s:
                return former
        if self._database is not None:
            from enmasse.pipeline.database.reading import refresh_copy  # noqa: PLC0415  # few pipelines need a driver

            assert isinstance(self._table, Path)
            is_linked = former is not None and bool(former.folder)
            refresh_copy(self._database, self._table, self._query, is_linked=is_linked)
        found = present_version(self._table, fields)
        if former is not None and found.name == former.name:
            # The moment of the last look counts, where there is none for each batch.
            return replace(former, at=found.at) if refresh_s else former
        return self._linked(found)

    def _linked(self, version: Version) -> Version:
        """Return a version whose files nobody takes away."""
        if self._links is None or isinstance(self._table, ObjectPath):
            return version
        folder = self._links / version.name
        try:
            for file in version.files:
                target = folder / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                beside = sum_of(self._table / file.path)
                with suppress(FileExistsError):
                    os.link(self._table / file.path, target)
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(beside, sum_of(target))
        except FileNotFoundError:
            raise
        except OSError:
            return version
        return replace(version, folder=str(folder))

    def _write(self, batch: int, version: Version) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / f".{batch}.new"
        with new.open("w") as file:
            file.write(sealed(asdict(version)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._folder / str(batch))
        sync(self._folder)

    def _forget(self, pins: Mapping[int, Version]) -> None:
        kept = sorted(pins)[-_KEPT_BATCHES:]
        for batch in pins.keys() - set(kept):
            (self._folder / str(batch)).unlink(missing_ok=True)
        names = {pins[batch].name for batch in kept}
        if self._links is None or not self._links.is_dir():
            return
        with deletion() as is_free:
            for folder in self._links.iterdir() if is_free else ():
                if folder.name not in names:
                    shutil.rmtree(folder, ignore_errors=True)


def joined_tables(checkpoint: Path) -> Iterator[tuple[str, Version]]:
    """Yield the tables that a query's batches join, each with the version of the last batch."""
    for folder in sorted((checkpoint / "tables").glob("*")):
        newest = _pins_in(folder)
        if newest:
            yield folder.name, newest[max(newest)]


def forget_pins(lake: LakePath, pipeline: str) -> None:
    """Remove what the queries of a pipeline have kept of tables."""
    if isinstance(lake, ObjectPath):
        return
    for folder in (lake / _PINNED).glob("*"):
        if folder.name == pipeline or folder.name.startswith(f"{pipeline}_"):
            shutil.rmtree(folder, ignore_errors=True)


def query_key(pipeline: str, query: str) -> str:
    """Return what names a query in folders."""
    return f"{pipeline}_{query}"


class ReferenceReader(DataSourceReader):
    """Reads the version that the present batch joins."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the version that the present batch joins, for several tasks."""
        given = self._options
        table = lake_path(given["path"])
        pins = Pins(table, Path(given["checkpoint"]), given["query"], _database_of(given.get("database")))
        version = pins.of_present_batch(float(given["refresh"]), json.loads(self._schema.json())["fields"])
        root = version.folder or given["path"]
        return partitions_of(root, version.files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        return read_files(cast("FilesPartition", partition), self._schema)


def _database_of(document: str | None) -> Database | None:
    if not document:
        return None
    from enmasse.model.kinds.pipelines.databases import Database  # noqa: PLC0415  # few pipelines need it, and it is slow to load

    return Database.model_validate_json(document)


class ReferenceSource(TableSource):
    """The format of Spark's by which a streaming query joins a table as it is in each batch."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one batch."""
        return ReferenceReader(self.options, schema)


def followed(
    spark: SparkSession,
    path: LakePath,
    checkpoint: Path,
    query: str,
    refresh_s: float,
    database: Database | None = None,
) -> DataFrame:
    """Return a table as a streaming query joins it: each batch as the table is then.

    Args:
        spark: the session of the query.
        path: the table's folder.
        checkpoint: the checkpoint of the query.
        query: names the query among all of the space.
        refresh_s: the greatest age of a batch's version; 0: the present one is looked for each time.
        database: the table that this one is a copy of, and that is copied again; None: it is none.

    Raises:
        TableSchemaError: there is no table.
    """
    from enmasse.pipeline.lake.relation import facts, schema_of  # noqa: PLC0415  # which itself reads tables

    activate(spark)
    spark.dataSource.register(ReferenceSource)
    options = {
        "path": str(path.resolve()),
        "checkpoint": str(checkpoint),
        "query": query,
        "refresh": str(refresh_s),
        "schema": schema_of(path).json(),
    }
    if database is not None:
        options["database"] = database.model_dump_json(by_alias=True)
    frame: DataFrame = spark.read.format(FORMAT).options(**options).load()
    return frame.hint("broadcast") if facts(path).bytes <= SMALL_BYTES else frame
