"""A table of PostgreSQL, as one query writes it: each batch in one transaction, which notes the batch.

Rules:
1. Spark's tasks write the rows of a batch to files below the checkpoint; from there they go by COPY into a temporary
   table, in pieces, and from that into the table.
2. The same transaction notes the query and the number of the batch. One that comes again finds it noted, and adds
   nothing; a former runner that is still at it waits for that note, and finds the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.database.connection import transaction
from enmasse.pipeline.database.statements import (
    COLUMNS,
    FINDING_BATCHES,
    LOCKING_BATCHES,
    STAGED,
    Merge,
    batches_of,
    making_batches,
    noting_batch,
    qualified,
    quoted,
)
from enmasse.pipeline.errors import DatabaseError
from enmasse.pipeline.lake.batches import query_of
from enmasse.pipeline.lake.file_writing import staging_folder, written
from enmasse.pipeline.lake.merging import last_of_each
from enmasse.pipeline.lake.partial_updates import SET_AT, check_present, is_beside, together
from enmasse.pipeline.lake.tombstones import Tombstones

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import DatabaseTarget

_FOLDER = "database"
"""Below the checkpoint."""


class DatabaseTable:
    """A table of a database that a query writes.

    Args:
        target: the table, and how it is written.
        owner: the name of the writer, as ``shop.readings/hot``.
        checkpoint: the query's.
    """

    def __init__(self, target: DatabaseTarget, owner: str, checkpoint: Path) -> None:
        self._target = target
        self._owner = owner
        self._folder = checkpoint / _FOLDER
        order_by = target.order_by
        self._tombstones = None if order_by is None else Tombstones(self._folder / "rows", target.keys, order_by)

    def prepare(self, schema: StructType) -> None:
        """Make sure that the table is there and has the columns of the rows, and that batches can be noted.

        Raises:
            DatabaseError: it is not so; the message says what to do.
            DatabaseAwayError: the database cannot be reached.
        """
        shutil.rmtree(self._folder / "staged", ignore_errors=True)
        database = self._target.database
        with transaction(database, self._owner) as cursor:
            types = self._types(cursor, schema.names)
            if self._target.is_partial:
                check_present(schema)
            if PRESENT in schema.names and self._target.is_partial and self._target.order_by and SET_AT not in types:
                table = database.table
                raise DatabaseError(
                    f"the table {table} has no column {SET_AT} of jsonb, which says when a column was set to NULL: "
                    f"ALTER TABLE {qualified(table)} ADD COLUMN {SET_AT} jsonb"
                )
            if self._target.keys:
                _require_unique(cursor, database.table, self._target.keys)
            _make_batches(cursor, database.table)

    def add(self, frame: DataFrame, batch: int) -> None:
        """Put one micro-batch into the table, unless it is there; what ``foreachBatch`` calls.

        Raises:
            RowRefusedError: a row breaks a constraint of the table.
            DatabaseError: the table does not fit any more.
            DatabaseAwayError: the database cannot be reached.
        """
        target = self._target
        rows = frame
        if target.keys:
            each = together if target.is_partial else last_of_each
            rows = each(frame, target.keys, target.order_by)
        with self._staged(_plain(rows)) as staged:
            if staged is None:
                return
            is_deleting = DELETED in frame.columns
            reader: Any = staged.scanner().to_reader()
            if self._tombstones is not None and (is_deleting or self._tombstones.exists()):
                reader = self._tombstones.apply(staged)
            self.put(reader, query_of(frame), batch)

    def put(self, rows: pa.RecordBatchReader, query: str, batch: int) -> None:
        """Put the rows of a batch of a query into the table, unless they are there; each key comes once.

        Raises:
            RowRefusedError: a row breaks a constraint of the table.
            DatabaseError: the table does not fit any more.
            DatabaseAwayError: the database cannot be reached.
        """
        target = self._target
        with transaction(target.database, self._owner) as cursor:
            cursor.execute(noting_batch(target.database.table), (f"{query}/{self._owner}", batch, self._owner))
            if cursor.fetchone() is None:
                return
            merge = Merge(
                table=target.database.table,
                types=self._types(cursor, rows.schema.names),
                keys=target.keys,
                order_by=target.order_by,
                is_partial=target.is_partial,
                is_deleting=DELETED in rows.schema.names,
            )
            cursor.adbc_ingest(STAGED, rows, mode="create", temporary=True)
            for statement in merge.statements():
                cursor.execute(statement)

    @contextmanager
    def _staged(self, rows: DataFrame) -> Iterator[ds.Dataset | None]:
        """Have the rows in files; None: there are none."""
        with staging_folder(self._folder / "staged") as folder:
            files = written(rows, folder)
            paths = [str(folder / file["path"]) for file in files]
            yield ds.dataset(paths, format="parquet") if paths else None

    def _types(self, cursor: Any, columns: Sequence[str]) -> Mapping[str, str]:
        """Return the types of the table's columns that rows have, and of ``SET_AT`` where it is there and of use.

        Raises:
            DatabaseError: there is no table, or it lacks a column.
        """
        table = self._target.database.table
        there = columns_of(cursor, table)
        target = self._target
        names = [name for name in columns if not is_beside(name) and not (target.is_partial and name == PRESENT)]
        if target.is_partial and target.order_by is not None and there.get(SET_AT, ("",))[0] == "jsonb":
            names.append(SET_AT)
        if missing := [name for name in names if name not in there]:
            raise DatabaseError(
                f"the table {table} has no column {missing[0]!r}; it has {', '.join(there)}: add it to the table, or "
                "leave it out in the last step"
            )
        return {name: there[name][0] for name in names}


def columns_of(cursor: Any, table: str) -> Mapping[str, tuple[str, str]]:
    """Return the columns of a table: type, and type with its length, by name.

    Raises:
        DatabaseError: there is no such table.
    """
    cursor.execute(COLUMNS, (qualified(table),))
    found = {name: (kind, full) for name, kind, full in cursor.fetchall()}
    if not found:
        raise DatabaseError(
            f"there is no table {qualified(table)} in the database, or its schema is closed to the user: make it "
            "with CREATE TABLE, and GRANT the user what is needed"
        )
    return found


_UNIQUE = """\
SELECT array_agg(a.attname::text), array_agg(a.attname::text) FILTER (WHERE NOT a.attnotnull)
FROM pg_catalog.pg_index i, pg_catalog.pg_attribute a
WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisunique AND i.indpred IS NULL AND i.indisvalid
  AND a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
GROUP BY i.indexrelid, i.indnkeyatts HAVING count(*) = i.indnkeyatts"""
"""Columns of each unique index of a table, and those of them that may be NULL."""


def _require_unique(cursor: Any, table: str, keys: Sequence[str]) -> None:
    cursor.execute(_UNIQUE, (qualified(table),))
    of_keys = [nullable or [] for names, nullable in cursor.fetchall() if sorted(names) == sorted(keys)]
    if not of_keys:
        names = ", ".join(map(quoted, keys))
        raise DatabaseError(
            f"the table {table} has no primary key or unique index of ({', '.join(keys)}), which mode update needs: "
            f"CREATE UNIQUE INDEX ON {qualified(table)} ({names})"
        )
    if of_keys[0]:
        # Two rows with a NULL among their keys are never the same row.
        changes = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in of_keys[0])
        raise DatabaseError(
            f"the table {table} lets {', '.join(of_keys[0])} be NULL, which mode update needs as a key: "
            f"ALTER TABLE {qualified(table)} {changes}"
        )


def _make_batches(cursor: Any, table: str) -> None:
    """Make the table of batches unless it is there."""
    batches = batches_of(table)
    cursor.execute(FINDING_BATCHES, (batches, qualified(table)))
    is_there, may_make, user = cursor.fetchone()
    if is_there:
        return
    if not may_make:
        raise DatabaseError(
            f"the user {user} may not make the table {batches}, in which batches are noted; have somebody run who "
            f"may: {making_batches(table)}; GRANT SELECT, INSERT, UPDATE ON {batches} TO {user}"
        )
    cursor.execute(LOCKING_BATCHES, (batches,))
    cursor.execute(making_batches(table))


def _plain(rows: DataFrame) -> DataFrame:
    """Return rows in which what has parts is JSON."""
    nested = (ArrayType, MapType, StructType, VariantType)
    columns = [
        F.to_json(F.col(quote_identifier(field.name))).alias(field.name)
        if isinstance(field.dataType, nested)
        else F.col(quote_identifier(field.name))
        for field in rows.schema
    ]
    return rows.select(*columns)
