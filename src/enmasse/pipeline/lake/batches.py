"""The parts of writing a query's batches that all tables share, whatever their files are.

Within this process one change of a table follows another: a merge and a compaction that run at once would make one of
them fail, and a query would start again for nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from weakref import WeakValueDictionary

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.columns import DAY, check_columns, event_time, nullable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class _Turn:
    """The lock of one table, which weak references can point to."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


_turns: WeakValueDictionary[Path, _Turn] = WeakValueDictionary()
_guard = threading.Lock()


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other thread of this process changes the table, and hold it."""
    with _guard:
        of_table = _turns.setdefault(path.resolve(), _Turn())
    with of_table.lock:
        yield


Mode = Literal["append", "update", "complete"]


class Table(Protocol):
    """A table of the lake, as one query writes it."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def mode(self) -> Mode:
        """The mode of writing; also the query's output mode."""

    def prepare(self, schema: StructType, *, owner: str, checkpoint: Path, adopt: bool = False) -> None:
        """Make sure that the query may write here and its rows fit; the table is there afterwards.

        Args:
            schema: the rows' columns.
            owner: who writes the table, the same after every restart, as ``shop.readings/hot``.
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


def with_day(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Return the rows, with the day of the event's time where the table is laid out by it and they have none.

    Raises:
        TableSchemaError: there is no time either.
    """
    if DAY not in partition_by or DAY in frame.columns:
        return frame
    time = event_time(json.loads(frame.schema.json())["fields"])
    if time is None:
        raise TableSchemaError(
            f"partitionBy names {DAY!r}, but there is no such column, nor a TIMESTAMP to make it of"
        )
    return frame.withColumn(DAY, F.to_date(F.col(f"`{time.replace('`', '``')}`")))


def table_fields(schema: StructType, keys: Sequence[str], partition_by: Sequence[str]) -> list[dict[str, object]]:
    """Return the table's columns for rows of this schema.

    Raises:
        TableSchemaError: there can be no such table.
    """
    fields = nullable(json.loads(schema.json())["fields"])
    names = [field["name"] for field in fields]
    if DAY in partition_by and DAY not in names:
        if event_time(fields) is None:
            raise TableSchemaError(
                f"partitionBy names {DAY!r}, but there is no such column, nor a TIMESTAMP to make it of"
            )
        fields.append({"name": DAY, "type": "date", "nullable": True, "metadata": {}})
    check_columns(fields, keys, partition_by)
    return fields
