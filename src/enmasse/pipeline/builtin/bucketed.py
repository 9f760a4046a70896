"""State of many devices in a few values.

Spark pays for each key and batch: with a key for each device, ten thousand devices make 4,000 to
15,000 rows a second. Keyed by bucket, each with the state of all its devices in one value, it is 60,000
and more.

Rules:
1. A device's bucket never changes: the number of buckets is part of the state.
2. A bucket's rows come in the order of the stream, so what is found does not depend on how rows are
   cut into batches, and a repeated batch gives the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

__all__ = ["Keeper", "by_bucket"]

STATE_DDL: Final = "kept BINARY"


class Keeper(Protocol):
    """What becomes of one bucket's rows; sent to Spark's workers, so it has to be picklable."""

    @property
    def columns(self) -> str:
        """The columns that it gives, as DDL."""

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take a batch's rows.

        Args:
            kept: what was kept of the batches before; None at the beginning.
            rows: in the order of the stream; none when only time has passed.
            now_us: when the batch was made, in microseconds; the same when it is repeated.

        Returns:
            What is to be kept, and rows to give.
        """


def by_bucket(frame: DataFrame, keeper: Keeper, buckets: int, *, ticks: bool = False) -> DataFrame:
    """Have a keeper look at a stream's rows.

    Args:
        frame: rows with ``device``, ``partition`` and ``offset``; every column is shuffled.
        keeper: looks at them.
        buckets: how many values of state there are.
        ticks: whether buckets are also looked at when no row came.
    """
    keyed = frame.withColumn("bucket", F.pmod(F.hash("device"), F.lit(buckets)))
    return keyed.groupBy("bucket").applyInPandasWithState(
        _Bucket(keeper, ticks=ticks).take,
        keeper.columns,
        STATE_DDL,
        "append",
        "ProcessingTimeTimeout" if ticks else "NoTimeout",
    )


@dataclass(frozen=True)
class _Bucket:
    keeper: Keeper
    ticks: bool

    def take(self, _key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        settle()
        parts = [frame for frame in frames if len(frame)]
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        if len(rows):
            rows = rows.sort_values(["partition", "offset"], kind="stable", ignore_index=True)
        kept = state.get[0] if state.exists else None
        now_us = state.getCurrentProcessingTimeMs() * 1000 if self.ticks else 0
        new, told = self.keeper(kept, rows, now_us)
        if new != kept:
            state.update((new,))
        if self.ticks:
            # Spark asks each time-out anew; a batch is made for it with every trigger.
            state.setTimeoutDuration(1)
        if len(told):
            yield told
