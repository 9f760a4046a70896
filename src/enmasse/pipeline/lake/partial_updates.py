"""Rows of a batch that change one row of a table in part, made one.

Rules:
1. The outcome is that of changes that come one by one, whatever batches they come in: a row counts unless one before
   it, here or in the table, is newer, and of each column the last value that is not NULL stays.
2. What came before a deletion is not seen after it.
3. What the table has is known when the rows are merged, so each value brings along what orders it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ANEW: Final = "__enmasse_anew"
"""A column that is true where a deletion is among the rows: nothing stays of what is older in the table."""

ANEW_AT: Final = "__enmasse_anew_at"
"""A column with the value that orders this deletion."""

_AT: Final = "__enmasse_at_"
_ROW: Final = "__enmasse_row"
_NEWEST: Final = "__enmasse_newest"


def at_of(column: str) -> str:
    """Return the column with what orders the value of another one."""
    return f"{_AT}{column}"


def is_beside(column: str) -> bool:
    """Return whether a column is not of the table, but says how the others are to be merged."""
    return column in (DELETED, ANEW, ANEW_AT) or column.startswith(_AT)


def together(frame: DataFrame, keys: Sequence[str], order_by: str | None) -> DataFrame:
    """Return one row for each value of the keys, with columns beside them (``is_beside``)."""
    names = [name for name in frame.columns if name not in (*keys, DELETED)]
    order = F.col(quote_identifier(order_by)) if order_by is not None else F.lit(None).cast("int")
    rows = frame.withColumn(_ROW, F.monotonically_increasing_id())
    if order_by is not None:
        before = (
            Window.partitionBy(*map(quote_identifier, keys)).orderBy(_ROW).rowsBetween(Window.unboundedPreceding, 0)
        )
        rows = rows.withColumn(_NEWEST, F.max(order).over(before))
        rows = rows.where(F.col(_NEWEST).isNull() | (order >= F.col(_NEWEST)))
    row = F.col(_ROW)
    flag = F.coalesce(F.col(quote_identifier(DELETED)), F.lit(False)) if DELETED in frame.columns else F.lit(False)

    def last(value: Column, where: Column) -> Column:
        of = F.struct(value.alias("value"), order.alias("at"), row.alias("row"))
        return F.max_by(of, F.when(where, row))

    found = {name: last(F.col(quote_identifier(name)), F.col(quote_identifier(name)).isNotNull()) for name in names}
    folded = rows.groupBy(*map(quote_identifier, keys)).agg(
        *[of.alias(name) for name, of in found.items()],
        F.max_by(flag, row).alias(DELETED),
        last(flag, flag).alias(ANEW),
    )
    anew = F.col(ANEW)
    columns = [F.col(quote_identifier(key)) for key in keys]
    for name in names:
        of = F.col(quote_identifier(name))
        # What orders the rows stays: a deletion has it, too.
        counts = F.lit(name == order_by) | anew.isNull() | (of["row"] > anew["row"])
        columns.append(F.when(counts, of["value"]).alias(name))
        if order_by is not None:
            columns.append(F.when(counts, of["at"]).alias(at_of(name)))
    if DELETED in frame.columns:
        columns += [F.col(DELETED), anew.isNotNull().alias(ANEW)]
        if order_by is not None:
            columns.append(anew["at"].alias(ANEW_AT))
    return folded.select(*columns)
