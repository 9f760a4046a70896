"""The parts of writing a query's batches that all tables share, whatever their files are.

Within this process one change of a table follows another: a merge and a compaction that run at once would make one of
them fail, and a query would start again for nothing.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from weakref import WeakValueDictionary

from enmasse.model.kinds.pipelines.sinks import TableFormat
from enmasse.pipeline.errors import TableMismatchError, TableSchemaError
from enmasse.pipeline.lake.objects import LakePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class _TableLock:
    """The lock of one table, which weak references can point to."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


_locks: WeakValueDictionary[LakePath, _TableLock] = WeakValueDictionary()
_guard = threading.Lock()


@contextmanager
def table_lock(path: LakePath) -> Iterator[None]:
    """Wait until no other thread of this process changes the table, and hold it."""
    with _guard:
        of_table = _locks.setdefault(path.resolve(), _TableLock())
    with of_table.lock:
        yield


_resting: Counter[LakePath] = Counter()


@contextmanager
def at_rest(path: LakePath) -> Iterator[None]:
    """Have no files of a table joined or put in order meanwhile: somebody is about to replace some of them."""
    place = path.resolve()
    with _guard:
        _resting[place] += 1
    try:
        yield
    finally:
        with _guard:
            _resting[place] -= 1


def is_at_rest(path: LakePath) -> bool:
    """Return whether somebody is about to replace some of a table's files."""
    with _guard:
        return _resting[path.resolve()] > 0


Mode = Literal["append", "update", "complete"]


@dataclass(frozen=True)
class Layout:
    """The layout of a table's rows.

    Attributes:
        format: ``delta``, or ``parquet``: plain files that can only be appended to.
        mode: ``append``: rows are added; ``update``: rows replace those with the same keys; ``complete``: each batch
            is the whole table. Also the query's output mode.
        keys: the columns that name a row; only for ``update``, and needed there.
        partition_by: columns that lay out the folders, or such as ``day(ts)``, which make one (``partitions.py``);
            ``day`` alone is made of the event's time if need be.
        order_by: for ``update``: the column whose greater value wins; left out: what comes later.
        is_partial: for ``update``: whether rows change the columns that they set alone (``partial_updates.py``).
        keeps_history: for ``update`` with ``order_by``: rows end those with the same keys instead of replacing them
            (``history.py``).
        evolve: whether new columns are added to the table.
        constraints: conditions in SQL by name, which every row of the table meets.
    """

    format: TableFormat = "delta"
    mode: Mode = "append"
    keys: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    order_by: str | None = None
    is_partial: bool = False
    keeps_history: bool = False
    evolve: bool = False
    constraints: Mapping[str, str] = field(default_factory=dict)


class Table(Protocol):
    """A table of the lake, as one query writes it."""

    @property
    def path(self) -> LakePath:
        """Its folder."""

    @property
    def mode(self) -> Mode:
        """The mode of writing; also the query's output mode."""

    def prepare(self, schema: StructType, *, owner: str, checkpoint: Path, adopt: bool = False) -> None:
        """Make sure that the query may write here and its rows fit; the table is there afterwards.

        Args:
            schema: the rows' columns.
            owner: the name of the writer, the same after every restart, as ``shop.readings/hot``.
            checkpoint: the query's; need not be there.
            adopt: go on with another checkpoint than before, because a restart from another point was
                asked for. Rows that are read again are then added again (``update``: merged again).

        Raises:
            TableMismatchError: another owner's, or written under another checkpoint.
            TableSchemaError: there can be no such table, or the rows do not fit it.
        """

    def add(self, frame: DataFrame, batch: int) -> None:
        """Put one micro-batch into the table, unless it is there; what ``foreachBatch`` calls.

        Args:
            frame: the batch's rows; evaluated once.
            batch: its number under the query's checkpoint.

        Raises:
            TableMismatchError: the table went to another query meanwhile.
            TableSchemaError: the rows do not fit.
        """


def check_writer(
    name: str, owner: str | None, query: str | None, written_by: tuple[str | None, str | None], *, adopt: bool
) -> None:
    """Make sure that a query may go on with a table.

    Args:
        name: the table's.
        owner: the name of the present writer.
        query: the id of the query, once it has one.
        written_by: owner and query that wrote it until now.
        adopt: whether another checkpoint than before is meant.

    Raises:
        TableMismatchError: it is another owner's, or was written under another checkpoint.
    """
    former, last = written_by
    if owner and former not in (None, owner):
        raise TableMismatchError(
            f"the table {name} is written by {former}: one query writes a table; choose another name"
        )
    if last not in (None, query) and not adopt:
        raise TableMismatchError(
            f"the table {name} was written under another checkpoint, so rows would be lost or doubled: bring that "
            "checkpoint back, restart the pipeline from a point you name, or choose another table"
        )


def query_of(frame: DataFrame) -> str:
    """Return the id of the streaming query that a batch is of, the same as long as its checkpoint lives."""
    query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise TableSchemaError("only batches of a streaming query can be told apart: use foreachBatch")
    return str(query)


def checkpoint_query(checkpoint: Path) -> str | None:
    """Return the id of the query whose checkpoint this is; None where there is none."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
