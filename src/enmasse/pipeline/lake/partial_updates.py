"""Rows that change one row of a table in part: those of a batch made one, and what the table keeps of them.

Rules:
1. A row sets the columns in which it has a value, and those that its column ``PRESENT`` names, perhaps to NULL. All
   others it leaves as they are. A deletion sets all columns to NULL.
2. Each column has the value of the newest row that set it, by the value that orders rows, whatever batches they come
   in and in which order; of equal ones that of the last.
3. So a table keeps of each column what ordered the row that set it, in ``SET_AT``. Where a row of a table has none, a
   column counts as set by the newest row if it has a value, and else as never set.
4. Without a column that orders them, rows are as old as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.errors import TableSchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

SET_AT: Final = "_set_at"
"""The column of a table that says of each other one, by its name, what ordered the row that set it: a structure, in
PostgreSQL JSON."""

ANEW: Final = "__enmasse_anew"
"""A column that is true where a deletion is among the rows: nothing stays of what is older in the table."""

ANEW_AT: Final = "__enmasse_anew_at"
"""A column with the value that orders this deletion."""

_AT: Final = "__enmasse_at_"
_SET: Final = "__enmasse_set_"
_ROW: Final = "__enmasse_row"


def at_of(column: str) -> str:
    """Return the column with what orders the value of another one."""
    return f"{_AT}{column}"


def set_of(column: str) -> str:
    """Return the column that says whether rows set another one."""
    return f"{_SET}{column}"


def is_beside(column: str) -> bool:
    """Return whether a column is not of the table, but says how the others are to be merged."""
    return column in (DELETED, ANEW, ANEW_AT) or column.startswith((_AT, _SET))


def check_present(schema: StructType) -> None:
    """Make sure that the column with the names of what is set has names.

    Raises:
        TableSchemaError: it is of another type.
    """
    if PRESENT in schema.names and (kind := schema[PRESENT].dataType.simpleString()) != "array<string>":
        raise TableSchemaError(
            f"update: present reads in {PRESENT} which columns a row sets, and it comes as {kind.upper()}; expected "
            "ARRAY<STRING>"
        )


def together(
    frame: DataFrame, keys: Sequence[str], order_by: str | None, made: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return one row for each value of the keys, with columns beside them (``is_beside``).

    Args:
        frame: rows of a batch.
        keys: the columns that name a row.
        order_by: the column that orders them.
        made: columns that are made of another one, and are set with it.
    """
    names = [name for name in frame.columns if name not in (*keys, DELETED, PRESENT, order_by)]
    rows = frame.withColumn(_ROW, F.monotonically_increasing_id())
    order = F.lit(None).cast("int") if order_by is None else F.col(quote_identifier(order_by))
    age = F.struct(order.alias("at"), F.col(_ROW).alias("row"))
    flag = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in frame.columns else F.lit(False)

    def newest(value: Column, where: Column) -> Column:
        return F.max_by(F.struct(value.alias("value"), order.alias("at")), F.when(where, age))

    def is_set(name: str) -> Column:
        there = flag | F.col(quote_identifier(name)).isNotNull()
        if PRESENT in frame.columns:
            there |= F.coalesce(F.array_contains(PRESENT, made.get(name, name)), F.lit(False))
        return there

    def given(name: str) -> Column:
        return F.when(~flag, F.col(quote_identifier(name)))

    folded = rows.groupBy(*map(quote_identifier, keys)).agg(
        *[newest(given(name), is_set(name)).alias(name) for name in names],
        *([] if order_by is None or order_by in keys else [F.max(order).alias(order_by)]),
        F.max_by(flag, age).alias(DELETED),
        newest(flag, flag).alias(ANEW),
    )
    columns = [F.col(quote_identifier(key)) for key in keys]
    for name in frame.columns:
        of = F.col(quote_identifier(name))
        if name == order_by and name not in keys:
            columns.append(of)
        if name in names:
            columns += [of["value"].alias(name), of.isNotNull().alias(set_of(name))]
            columns += [] if order_by is None else [of["at"].alias(at_of(name))]
    if DELETED in frame.columns:
        columns += [F.col(DELETED), F.col(ANEW).isNotNull().alias(ANEW)]
        columns += [] if order_by is None else [F.col(ANEW)["at"].alias(ANEW_AT)]
    return folded.select(*columns)
