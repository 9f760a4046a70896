"""Tables by name and format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from enmasse.model.kinds.pipelines import TableFormat
from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.batches import Mode, Table
from enmasse.pipeline.lake.delta import DeltaLakeTable
from enmasse.pipeline.lake.parquet import ParquetTable


def open_table(
    path: Path,
    *,
    format: TableFormat = "delta",  # noqa: A002  # the field's name
    mode: Mode = "append",
    keys: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    order_by: str | None = None,
    is_partial: bool = False,
    evolve: bool = False,
) -> Table:
    """Return a table to write to; nothing is touched before ``prepare``.

    Args:
        path: its folder, ``lake/<table>``.
        format: ``delta``, or ``parquet``: plain files that can only be appended to.
        mode: ``append``: rows are added; ``update``: rows replace those with the same keys;
            ``complete``: each batch is the whole table. Also the query's output mode.
        keys: the columns that name a row; only for ``update``, and needed there.
        partition_by: columns that lay out the folders; ``day`` is made of the event's time if need be.
        order_by: for ``update``: the column whose greater value wins; left out: what comes later.
        is_partial: for ``update``: whether NULL leaves what is there.
        evolve: whether new columns are added to the table.

    Raises:
        TableSchemaError: these do not go together.
    """
    if format == "delta":
        return DeltaLakeTable(
            path,
            mode=mode,
            keys=keys,
            partition_by=partition_by,
            order_by=order_by,
            is_partial=is_partial,
            evolve=evolve,
        )
    if mode != "append":
        raise TableSchemaError(f"the table {path.name}: a table of plain Parquet has only mode append; use delta")
    return ParquetTable(path, partition_by=partition_by, evolve=evolve)
