"""Parquet tables that hold each micro-batch exactly once, for every reader.

Spark's own file sink leaves the files of interrupted attempts beside the good ones and tells them
apart by a log that only Spark reads. Here a batch is written aside and moved into the table by one
rename, so pandas, DuckDB and Spark all see the same rows.

Rules:
1. A batch is a folder ``batch=N``; it appears whole or not at all.
2. A batch that is there is never written again: a source that is read by offset gives the same rows.
3. Batch numbers belong to a checkpoint. A table remembers whose they are and refuses another's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from enmasse.pipeline.errors import TableMismatchError, TableSchemaError
from enmasse.pipeline.lake.batches import Mode, check_writer, checkpoint_query, query_of
from enmasse.pipeline.lake.columns import added_columns
from enmasse.pipeline.lake.file_writing import put_whole, sync, written
from enmasse.pipeline.lake.objects import LakePath, ObjectPath
from enmasse.pipeline.lake.partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OWNER: Final = "_query"
"""Readers leave out what begins with an underscore."""
_SCHEMA: Final = "_schema"


def parquet_fields(path: LakePath) -> list[dict[str, object]] | None:
    """Return the table's columns as Spark writes them in JSON; None where there is no table."""
    if isinstance(path, ObjectPath):
        return None
    try:
        return list(json.loads((path / _SCHEMA).read_text()))
    except FileNotFoundError:
        return None


def parquet_table(path: LakePath) -> tuple[Path, list[dict[str, object]]]:
    """Return the folder of a table of plain Parquet, and its columns as Spark writes them in JSON.

    Raises:
        TableSchemaError: there is no table.
    """
    fields = parquet_fields(path)
    if fields is None or isinstance(path, ObjectPath):
        raise TableSchemaError(f"there is no table {path.name!r} in the lake; a pipeline makes it when it starts")
    return path, fields


class ParquetTable:
    """A folder of Parquet files that a streaming query adds to.

    Args:
        path: the table's folder. Batches are written beside it, in ``_staging``, where no reader looks.
        partition_by: columns, or functions of one, that lay out the folders within a batch.
        evolve: whether later batches may have new columns.
    """

    def __init__(self, path: Path, *, partition_by: Sequence[str] = (), evolve: bool = False) -> None:
        self._path = path
        self._staging = path.parent / "_staging" / path.name
        self._partitions = Partitions(partition_by)
        self._evolve = evolve
        self._adopt = False
        self._owner = ""

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._path

    @property
    def mode(self) -> Mode:
        """Rows are only added."""
        return "append"

    def prepare(self, schema: StructType, *, owner: str, checkpoint: Path, adopt: bool = False) -> None:
        """See ``Table``."""
        self._owner, self._adopt = owner, adopt
        self._check_owner(checkpoint_query(checkpoint))
        self._fit(schema)

    def _check_owner(self, query: str | None) -> None:
        if (self._path / "_delta_log").exists():
            raise TableMismatchError(f"{self._path} holds a Delta table; choose another name")
        check_writer(self._path.name, self._owner, query, self._written_by(), adopt=self._adopt)

    def _written_by(self) -> tuple[str | None, str | None]:
        """Return who writes the table, and the id of the query, once it wrote."""
        try:
            owner, _, query = (self._path / _OWNER).read_text().rpartition("\n")
        except FileNotFoundError:
            return None, None
        return owner or None, query

    def _fit(self, schema: StructType) -> None:
        fields = self._partitions.fields(schema, ())
        there = parquet_fields(self._path)
        if there is not None:
            new = added_columns(there, fields, evolve=self._evolve, name=self._path.name)
            fields = [*there, *map(dict, new)]
        if there != fields:
            self._keep(_SCHEMA, json.dumps(fields))

    def add(self, frame: DataFrame, batch: int) -> None:
        """See ``Table``."""
        query = query_of(frame)
        home = self._path / self._folder(query, batch)
        if home.exists():
            return
        if self._written_by()[1] != query:
            self._check_owner(query)
            self._keep(_OWNER, f"{self._owner}\n{query}")
        self._fit(frame.schema)
        aside = self._staging / home.name
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        rows = self._partitions.on(frame)
        files = written(rows, aside, self._partitions.names)
        if files:
            sync(aside)
            aside.rename(home)
            sync(self._path)
        else:
            shutil.rmtree(aside)

    def _folder(self, query: str, batch: int) -> str:
        """Return the folder of a batch; those of another checkpoint have numbers of their own."""
        return f"batch={query[:8]}-{batch}"

    def _keep(self, name: str, text: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        put_whole(self._path / name, text)
