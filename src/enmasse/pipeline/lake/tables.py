"""Tables by name and format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.batches import Layout, Table
from enmasse.pipeline.lake.delta import DeltaLakeTable
from enmasse.pipeline.lake.objects import LakePath, ObjectPath
from enmasse.pipeline.lake.parquet import ParquetTable


def open_table(path: LakePath, layout: Layout | None = None, **fields: Any) -> Table:
    """Return a table to write to; nothing is touched before ``prepare``.

    Args:
        path: its folder, ``lake/<table>``.
        layout: the layout of its rows.
        fields: of ``Layout``, as ``mode="append"``.

    Raises:
        TableSchemaError: these do not go together.
    """
    layout = replace(layout or Layout(), **fields)
    if layout.format == "delta":
        return DeltaLakeTable(path, layout)
    if layout.mode != "append" or layout.constraints:
        only = "has only mode append" if layout.mode != "append" else "has no constraints"
        raise TableSchemaError(f"the table {path.name}: a table of plain Parquet {only}; use delta")
    if isinstance(path, ObjectPath):
        raise TableSchemaError(
            f"the table {path.name}: a table of plain Parquet needs a folder that can be renamed, and objects have "
            "none; use delta"
        )
    return ParquetTable(path, partition_by=layout.partition_by, evolve=layout.evolve)
