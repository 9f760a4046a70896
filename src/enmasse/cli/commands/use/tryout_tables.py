"""Tables that a pipeline's test has there before the pipeline begins: rows of YAML, by a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from enmasse.cli.errors import UsageError
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper
from enmasse.pipeline.source.columns import arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def write_table(lake: Path, name: str, schema: str | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows into a table of a lake; into one that is there they are added.

    Args:
        lake: its folder.
        name: the name of the table.
        schema: its columns, such as ``id INT, name STRING``.
        rows: a value by column; what is left out is NULL.

    Raises:
        UsageError: there is no schema, or a row does not fit it.
    """
    write_deltalake(lake / name, _made(name, schema, rows), mode="append")


def write_file(path: Path, name: str, schema: str | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows into a new file of Parquet.

    Args:
        path: the path of the file.
        name: the name of the file in errors.
        schema: the schema, as of a table.
        rows: the rows, as of a table.

    Raises:
        UsageError: there is no schema, or a row does not fit the schema.
    """
    pq.write_table(_made(name, schema, rows), path)


def _made(name: str, schema: str | None, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    try:
        columns = parse_ddl(schema or "")
    except DdlError as error:
        raise UsageError(f"given table {name}: schema: {error}; expected such as id INT, name STRING") from None
    shape, known, shaped = shaper(columns), {column.name for column in columns}, []
    for number, row in enumerate(rows, start=1):
        if odd := sorted(row.keys() - known):
            raise UsageError(f"given table {name}, row {number}: {odd[0]}: the schema has no such column")
        try:
            shaped.append(shape(row))
        except RecordProblem as problem:
            raise UsageError(f"given table {name}, row {number}: {problem}") from None
    fields = [pa.field(column.name, arrow_type(column.type), column.is_nullable) for column in columns]
    arrays = [pa.array([row[index] for row in shaped], field.type) for index, field in enumerate(fields)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
