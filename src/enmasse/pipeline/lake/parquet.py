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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enmasse.pipeline.errors import TableDamagedError, TableMismatchError, TableSchemaError
from enmasse.pipeline.lake.batches import Mode, check_writer, checkpoint_query, query_of
from enmasse.pipeline.lake.columns import added_columns
from enmasse.pipeline.lake.file_writing import put_whole, sync, written
from enmasse.pipeline.lake.objects import LakePath, ObjectPath
from enmasse.pipeline.lake.partitions import Partitions
from enmasse.pipeline.sums import opened, sealed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OWNER: Final = "_query"
"""Readers leave out what begins with an underscore."""
_SCHEMA: Final = "_schema"


def parquet_fields(path: LakePath) -> list[dict[str, object]] | None:
    """Return the table's columns as Spark writes them in JSON; None where there is no table."""
    kept = None if isinstance(path, ObjectPath) else _kept(path / _SCHEMA, _schema_of)
    return None if kept is None else list(kept["fields"])


def parquet_table(path: LakePath) -> tuple[Path, list[dict[str, object]]]:
    """Return the folder of a table of plain Parquet, and its columns as Spark writes them in JSON.

    Raises:
        TableSchemaError: there is no table.
    """
    fields = parquet_fields(path)
    if fields is None or isinstance(path, ObjectPath):
        raise TableSchemaError(f"there is no table {path.name!r} in the lake; a pipeline makes it when it starts")
    return path, fields


def _kept(file: Path, former: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return what is kept in a file of a table; None where there is none.

    Args:
        file: holds a document with its checksum.
        former: reads what an older version wrote in its place.

    Raises:
        TableDamagedError: it is not as it was written.
    """
    try:
        text = file.read_text()
        return opened(text) if text.startswith("{") else former(text)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        name = file.parent.name
        raise TableDamagedError(
            f"the table {name} is damaged: {file} cannot be read ({error}); {TableDamagedError.REMEDY}"
        ) from None


def _schema_of(text: str) -> dict[str, Any]:
    fields = json.loads(text)
    if not isinstance(fields, list):
        raise ValueError("expected a list of columns")  # noqa: TRY004  as for anything else that it is not
    return {"fields": fields}


def _owner_of(text: str) -> dict[str, Any]:
    if "{" in text or '"' in text:
        raise ValueError("expected an object of JSON")
    owner, _, query = text.rpartition("\n")
    return {"owner": owner, "query": query}


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
        kept = _kept(self._path / _OWNER, _owner_of)
        return (None, None) if kept is None else (kept["owner"] or None, kept["query"])

    def _fit(self, schema: StructType) -> None:
        fields = self._partitions.fields(schema, ())
        there = parquet_fields(self._path)
        if there is not None:
            new = added_columns(there, fields, evolve=self._evolve, name=self._path.name)
            fields = [*there, *map(dict, new)]
        if there != fields:
            self._keep(_SCHEMA, {"fields": fields})

    def add(self, frame: DataFrame, batch: int) -> None:
        """See ``Table``."""
        query = query_of(frame)
        home = self._path / self._folder(query, batch)
        if home.exists():
            return
        if self._written_by()[1] != query:
            self._check_owner(query)
            self._keep(_OWNER, {"owner": self._owner, "query": query})
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

    def _keep(self, name: str, document: Mapping[str, Any]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        put_whole(self._path / name, sealed(document))
