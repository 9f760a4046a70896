"""Keeps state of many devices in a few values: a table of numbers for each bucket of devices.

Spark pays for each key and batch: with a key for each device, ten thousand devices make 4,000 to
15,000 rows a second. Keyed by bucket, each with the state of all its devices in one value, it is 60,000
and more. A value is a length, JSON with the names, and the numbers as 64-bit floats, row by row. Moments are
kept in seconds: a float has room for microseconds until the year 2255.

Rules:
1. A device's bucket never changes: the number of buckets is part of the state.
2. A bucket's rows come in the order of the stream, so what is found does not depend on how rows are
   cut into batches, and a repeated batch gives the same rows in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import functions as F

from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

STATE_DDL: Final = "kept BINARY"


class Keeper(Protocol):
    """Turns one bucket's rows into a new state and rows; sent to Spark's workers, so it has to be picklable."""

    @property
    def columns(self) -> str:
        """The columns that it gives, as DDL."""

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take a batch's rows.

        Args:
            kept: the state of the batches before; None at the beginning.
            rows: in the order of the stream; none when only time has passed.
            now_us: the time at which the batch was made, in microseconds; the same when it is repeated.

        Returns:
            What is to be kept, and rows to give.
        """


def by_bucket(frame: DataFrame, keeper: Keeper, buckets: int, *, ticks: bool = False) -> DataFrame:
    """Apply a keeper to a stream's rows.

    Args:
        frame: rows with ``device``, ``partition`` and ``offset``; every column is shuffled.
        keeper: is applied to them.
        buckets: the number of values of state.
        ticks: whether buckets are also visited when no row came.
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
        new, found = self.keeper(kept, rows, now_us)
        if new != kept:
            state.update((new,))
        if self.ticks:
            # Spark asks each time-out anew; a batch is made for it with every trigger.
            state.setTimeoutDuration(1)
        if len(found):
            yield found


_LENGTH: Final = 8
_LEAST_ROOM: Final = 64

Names = tuple[str, ...]
Numbers = npt.NDArray[np.float64]


class Devices:
    """Numbers by name; a name is a device, or a device and a metric.

    Args:
        columns: the number of figures for each.
        kept: the bytes that ``to_bytes`` gave; None: nothing yet.
    """

    def __init__(self, columns: int, kept: bytes | None = None) -> None:
        names: list[Names] = []
        self._numbers: Numbers = np.empty((0, columns))
        if kept is not None:
            length = int.from_bytes(kept[:_LENGTH], "little")
            names = [tuple(name) for name in json.loads(kept[_LENGTH : _LENGTH + length])]
            found = np.frombuffer(kept, dtype="<f8", offset=_LENGTH + length)
            self._numbers = found.reshape(len(names), columns).copy()
        self._rows = {name: row for row, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, names: Sequence[Names], new: Sequence[float]) -> npt.NDArray[np.intp]:
        """Return the rows of these names; unknown ones get a row that holds ``new``."""
        rows = self._rows
        found = [rows.setdefault(name, len(rows)) for name in names]
        room = len(self._numbers)
        if len(rows) > room:
            # By half more, so that devices that come one by one do not have it copied each time.
            more = max(len(rows) - room, room // 2, _LEAST_ROOM)
            self._numbers = np.vstack([self._numbers, np.tile(np.asarray(new, dtype=np.float64), (more, 1))])
        return np.asarray(found, dtype=np.intp)

    @property
    def numbers(self) -> Numbers:
        """A row for each name; written to in place."""
        return self._numbers[: len(self._rows)]

    @property
    def names(self) -> list[Names]:
        """By row."""
        return list(self._rows)

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Forget all rows but these."""
        if wanted.all():
            return
        names = [name for name, stays in zip(self._rows, wanted.tolist(), strict=True) if stays]
        self._numbers = self.numbers[wanted]
        self._rows = {name: row for row, name in enumerate(names)}

    def keep_recent(self, column: int, since: float, most: int) -> None:
        """Forget devices without a message since then, and the oldest of more than ``most``.

        Args:
            column: holds when each was last seen.
            since: the same unit.
            most: the most that may stay.
        """
        seen = self.numbers[:, column]
        wanted = seen >= since
        if int(wanted.sum()) > most:
            newest = np.argsort(seen, kind="stable")[len(seen) - most :]
            among = np.zeros(len(seen), dtype=np.bool_)
            among[newest] = True
            wanted &= among
        self.keep(wanted)

    def to_bytes(self) -> bytes:
        """Return what a new object is made of."""
        names = json.dumps(list(self._rows), separators=(",", ":")).encode()
        return len(names).to_bytes(_LENGTH, "little") + names + self.numbers.astype("<f8").tobytes()


def name_codes(*columns: Any) -> tuple[npt.NDArray[np.intp], list[Names]]:
    """For each row of these columns, the number of its name; and the names in the order they first appear."""
    import pandas as pd  # noqa: PLC0415  # only workers need it

    codes: npt.NDArray[np.intp] = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        digits, values = pd.factorize(column)
        codes = codes * len(values) + digits
    numbers, found = pd.factorize(codes)
    firsts = pd.Series(numbers).drop_duplicates().index
    names = list(zip(*[column.iloc[firsts] for column in columns], strict=True))
    assert len(names) == len(found)
    return numbers, names
