"""Copies a table of PostgreSQL into a Delta table, which the batches of a query join as they join tables of the lake.

Rules:
1. A copy is one version: all rows of one snapshot of the database. Its digest, which the database makes, says whether
   anything has changed; if not, no row is read.
2. What a type of PostgreSQL has no column for, comes as text. What a column has no value for, the infinity of a
   moment and the NaN of a decimal, is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from enmasse.pipeline.backup.locks import deletion
from enmasse.pipeline.database.connection import transaction
from enmasse.pipeline.database.statements import qualified, quoted
from enmasse.pipeline.database.writing import columns_of
from enmasse.pipeline.lake.delta import sync_log
from enmasse.pipeline.lake.delta_reading import existing_delta, open_delta
from enmasse.pipeline.sums import remove_lonely_sums

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from enmasse.model.kinds.pipelines.databases import Database

DEFAULT_REFRESH: Final = "1m"
"""The age of a copy where the source does not say: each look has the database read the table."""

_DIGEST: Final = "enmasse.digest"
_KEEP_H: Final = 24
"""The hours that replaced files stay where readers have no links to them."""

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_MAX_DIGITS: Final = 38
"""Of a DECIMAL of Spark."""


def refresh_copy(database: Database, folder: Path, application: str, *, is_linked: bool) -> None:
    """Bring the copy of a table up to date; if nothing has changed, nothing is written.

    Args:
        database: the table.
        folder: the folder of the copy.
        application: the name of the connection for the server.
        is_linked: whether readers have links of their own to the files that they need.

    Raises:
        DatabaseAwayError: the database cannot be reached.
        DatabaseError: there is no such table, or it may not be read.
    """
    table = qualified(database.table)
    with transaction(database, application) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        columns = {name: full for name, (_, full) in columns_of(cursor, database.table).items()}
        cursor.execute(f"SELECT count(*), coalesce(sum(hashtextextended((t.*)::text, 0)), 0)::text FROM {table} t")  # noqa: S608  # quoted
        count, digest = cursor.fetchone()
        digest = f"{count} {digest} {columns}"
        delta = open_delta(folder)
        if delta is not None and _digest_of(delta) == digest:
            return
        if delta is not None:
            # Pins link what batches that may come again have joined. The last entry of the log is that of the rows.
            hours = 0 if is_linked else _KEEP_H
            with deletion() as is_free:
                if is_free:
                    delta.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
        schema = pa.schema([(name, _type_of(kind)) for name, kind in columns.items()])
        cursor.execute(f"SELECT {', '.join(_value(name, kind) for name, kind in columns.items())} FROM {table}")  # noqa: S608  # quoted
        write_deltalake(
            folder,
            pa.RecordBatchReader.from_batches(schema, _fitted(cursor.fetch_record_batch(), schema)),
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=CommitProperties(custom_metadata={_DIGEST: digest}),
        )
    written = existing_delta(folder).version()
    sync_log(folder, written, written)
    remove_lonely_sums(folder)


def _digest_of(delta: DeltaTable) -> str | None:
    found: Any = delta.history(1)
    digest: str | None = found[0].get(_DIGEST)
    return digest


def _type_of(kind: str) -> pa.DataType:
    numeric = _NUMERIC.fullmatch(kind)
    if numeric is not None and int(numeric[1]) <= _MAX_DIGITS:
        return pa.decimal128(int(numeric[1]), int(numeric[2]))
    return _TYPES.get(kind, pa.string())


def _value(name: str, kind: str) -> str:
    column = quoted(name)
    if kind.startswith(("date", "timestamp")):
        return f"CASE WHEN isfinite({column}) THEN {column} END AS {column}"
    if kind in _TYPES:
        return column
    if pa.types.is_decimal(_type_of(kind)):
        return f"nullif({column}, 'NaN')::text AS {column}"
    return f"{column}::text AS {column}"


def _fitted(rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
