"""A table that keeps every version of a row: slowly changing dimensions of type 2.

Rules:
1. A row holds from ``valid_from``, which is its value of ``orderBy``, until ``valid_to``, where the next version with
   the same keys begins or the row was deleted; NULL: it is the present one, and ``is_current``.
2. The order in which versions come does not matter: one that comes late ends the one before it, and ends where the
   next one begins.
3. The same keys with the same value of ``orderBy`` are the same version; what comes later replaces it.
4. A deletion ends the version before it. Tombstones remember it for versions that come late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from enmasse.model.kinds.pipelines.sinks import DELETED, HISTORY_COLUMNS
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import TableSchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FROM, TO, IS_CURRENT = HISTORY_COLUMNS

_AT: Final = "__enmasse_at"
_RANK: Final = "__enmasse_rank"
_ROW: Final = "__enmasse_row"
_KNOWN: Final = "__enmasse_known"
_ENDS, _IN_TABLE, _COMES = 0, 1, 2
"""The facts about one moment of a key, from the weakest to the strongest."""


def with_columns(schema: StructType, order_by: str) -> StructType:
    """Return the columns of rows with those of their history.

    Raises:
        TableSchemaError: rows bring columns of these names.
    """
    names = {name.lower() for name in schema.names}
    if taken := next((name for name in HISTORY_COLUMNS if name in names), None):
        raise TableSchemaError(f"keepHistory makes the column {taken!r}, which rows have already: name it otherwise")
    moment = schema[order_by].dataType
    added = [StructField(FROM, moment), StructField(TO, moment), StructField(IS_CURRENT, BooleanType())]
    return StructType([*schema.fields, *added])


def changes(
    rows: DataFrame, table: DataFrame, gone: DataFrame | None, keys: Sequence[str], order_by: str
) -> DataFrame:
    """Return the versions that are new or change by some rows, with their history; ``DELETED`` says which ones go.

    Args:
        rows: of a batch, one for each key and value of ``order_by``; ``DELETED``, if they have it, says which delete.
        table: the rows that are there.
        gone: the keys and ``order_by`` of earlier deletions.
        keys: the columns that name a row.
        order_by: the column that says from when a row holds.
    """
    data = [name for name in rows.columns if name != DELETED]
    is_deleting = F.col(DELETED) if DELETED in rows.columns else F.lit(False)
    none = F.lit(None).cast(rows.drop(DELETED).schema)
    whole = F.struct(*[F.col(quote_identifier(name)) for name in data])
    order = F.col(quote_identifier(order_by))
    unknown = F.lit(None).cast(table.select(F.struct(F.col(TO))).schema.fields[0].dataType)

    def event(at: Column, rank: int, row: Column, known: Column) -> list[Column]:
        named = [F.col(quote_identifier(key)) for key in keys]
        return [*named, at.alias(_AT), F.lit(rank).alias(_RANK), row.alias(_ROW), known.alias(_KNOWN)]

    # Which rows have no place in time is found here, once for all.
    at = F.when(order.isNull(), F.raise_error(F.lit(_no_order(order_by)))).otherwise(order)
    events = [rows.select(*event(at, _COMES, F.when(is_deleting, none).otherwise(whole), unknown))]
    touched = rows.select(*[F.col(quote_identifier(key)).alias(f"{_ROW}{n}") for n, key in enumerate(keys)])

    def of_touched(other: DataFrame) -> DataFrame:
        same = [other[quote_identifier(key)].eqNullSafe(touched[f"{_ROW}{n}"]) for n, key in enumerate(keys)]
        return other.join(touched, same, "left_semi")

    # Each version says when it begins and when it ends. The table is read and joined once, which costs the most.
    begins = F.struct(*event(F.col(FROM), _IN_TABLE, whole, F.struct(F.col(TO)))[len(keys) :])
    ends = F.struct(*event(F.col(TO), _ENDS, none, unknown)[len(keys) :])
    named = [F.col(quote_identifier(key)) for key in keys]
    versions = of_touched(table).select(*named, F.inline(F.array(begins, ends)))
    events.append(versions.where(F.col(_AT).isNotNull()))
    if gone is not None:
        events.append(of_touched(gone).select(*event(order, _ENDS, none, unknown)))
    every = events[0]
    for more in events[1:]:
        every = every.unionAll(more)
    moments = every.groupBy(*named, _AT).agg(
        F.max_by(F.struct(_ROW), _RANK)[_ROW].alias(_ROW),
        F.max(_RANK).alias(_RANK),
        F.max_by(_KNOWN, F.when(F.col(_KNOWN).isNotNull(), F.lit(1))).alias(_KNOWN),
    )
    ordered = Window.partitionBy(*named).orderBy(_AT)
    placed = moments.withColumn(TO, F.lead(_AT).over(ordered))
    is_version, was_version = F.col(_ROW).isNotNull(), F.col(_KNOWN).isNotNull()
    is_new = (F.col(_RANK) == _COMES) | ~F.col(_KNOWN)[TO].eqNullSafe(F.col(TO))
    changed = placed.where(F.when(is_version, ~was_version | is_new).otherwise(was_version))
    columns = [
        F.col(quote_identifier(name)) if name in keys else F.col(f"{_ROW}.{quote_identifier(name)}").alias(name)
        for name in data
    ]
    return changed.select(
        *columns,
        F.col(_AT).alias(FROM),
        F.col(TO),
        (is_version & F.col(TO).isNull()).alias(IS_CURRENT),
        (~is_version).alias(DELETED),
    )


def _no_order(order_by: str) -> str:
    return f"a row has no value of {order_by!r}, by which keepHistory places it: leave such rows out in a step"
