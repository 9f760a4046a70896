"""Rows as messages of an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["as_json_messages"]


def as_json_messages(frame: DataFrame, message_id: Column, leave_out: Sequence[str] = ()) -> DataFrame:
    """A message for each row, JSON of its columns, keyed and named by its ``device``.

    Keyed, so that what is told of one device stays in order.

    Args:
        frame: rows with a column ``device``.
        message_id: the same whenever the same is told again.
        leave_out: columns that are not told.
    """
    fields = [F.col(f"`{name}`") for name in frame.columns if name not in leave_out]
    return frame.select(
        F.to_json(F.struct(*fields)).alias("value"),
        F.col("device").alias("key"),
        F.col("device").alias("subject"),
        message_id.alias("message_id"),
        F.lit("application/json").alias("content_type"),
    )
