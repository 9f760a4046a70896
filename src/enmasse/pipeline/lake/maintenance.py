"""Keeps a table quick to read and no larger than it is to be, beside the query that writes it.

Rules:
1. Small files are joined after every ``BATCHES`` batches, in a thread of its own: the next batch does not wait,
   unless it merges.
2. Files that left the table, and rows that are older than the table keeps, go every ``CLEAN_S``, and rows are put in
   order where that was asked for.
3. What fails is said and tried again; the query goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from enmasse.errors import EnmasseError
from enmasse.pipeline.lake.batches import is_at_rest
from enmasse.pipeline.lake.compaction import KEEP_H, drop_rows, join_small_files, order_rows, vacuum
from enmasse.pipeline.lake.objects import storage_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.lake.objects import LakePath

BATCHES: Final = 8
CLEAN_S: Final = 3600.0


@dataclass(frozen=True)
class Upkeep:
    """The upkeep of a table.

    Attributes:
        joins: whether small files are joined.
        keep_h: hours that files stay after they left the table.
        rows_column: the TIMESTAMP or DATE by which rows are too old; empty: none is.
        rows_s: the greatest age of a row, in seconds.
        z_order_by: columns by which rows are laid beside each other.
    """

    joins: bool = True
    keep_h: int = KEEP_H
    rows_column: str = ""
    rows_s: float = 0.0
    z_order_by: Sequence[str] = ()


class Maintenance:
    """Looks after one table.

    Args:
        path: the table's folder.
        upkeep: the upkeep of the table.
        log: takes a line about what was deleted, or failed.
        clock: returns seconds that only grow.
    """

    def __init__(
        self, path: LakePath, upkeep: Upkeep, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._upkeep = upkeep
        self._log = log
        self._clock = clock
        self._batches = 0
        self._clean_at = 0.0
        self._thread: threading.Thread | None = None

    def after(self, add: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """Return what adds a batch, and looks after the table then."""

        def add_and_look(rows: DataFrame, batch: int) -> None:
            add(rows, batch)
            self.note_batch()

        return add_and_look

    def note_batch(self) -> None:
        """Note that a batch was written."""
        self._batches += 1
        is_due = self._batches >= BATCHES or self._clock() >= self._clean_at
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._batches = 0
            self._thread = threading.Thread(target=self._run, name=f"upkeep of {self._path.name}")
            self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is done."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        if is_at_rest(self._path):
            return
        try:
            if self._upkeep.joins:
                join_small_files(self._path)
            if self._clock() >= self._clean_at:
                self._clean_at = self._clock() + CLEAN_S
                self._clean()
        except (EnmasseError, DeltaError, pa.ArrowException, OSError, ValueError) as error:
            self._log(f"table {self._path.name}: upkeep failed and is tried again: {_first_line(error)}")

    def _clean(self) -> None:
        upkeep = self._upkeep
        if upkeep.rows_column:
            before = datetime.now(UTC) - timedelta(seconds=upkeep.rows_s)
            if gone := drop_rows(self._path, upkeep.rows_column, before):
                self._log(f"table {self._path.name}: {gone:,} rows were older than they are kept")
        if upkeep.z_order_by and (files := order_rows(self._path, upkeep.z_order_by)):
            self._log(f"table {self._path.name}: {files:,} files were put in order by {', '.join(upkeep.z_order_by)}")
        if files := vacuum(self._path, keep_h=upkeep.keep_h):
            self._log(f"table {self._path.name}: {files:,} files that no version needs were deleted")


def _first_line(error: Exception) -> str:
    """Return what an error says, without the stack that some libraries put behind it."""
    return storage_failure(str(error)) or (str(error).splitlines() or [type(error).__name__])[0]
