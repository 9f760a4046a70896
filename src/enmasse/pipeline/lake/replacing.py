"""Some partitions of a Delta table get other rows, in one transaction, while a query goes on adding to it.

Rules:
1. What is replaced are the files that the partitions had when it began. What a query has added since stays: its rows
   are of messages that were not read for the new ones.
2. The transaction carries the name of what was done and what came of it, and is done once: a process that is killed
   leaves the table as it was or as it is to be, and the next one sees which.
3. Who computed rows longer than was wanted changes nothing: it asks last of all, while nobody else changes the table.
4. Files that somebody joined meanwhile are not there any more, and their rows cannot be told from newer ones: then
   nothing is changed, and it is to begin anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from deltalake import Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.partitions import Partition, partition_of
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import PlanError, TableBusyError
from enmasse.pipeline.lake.batches import table_lock
from enmasse.pipeline.lake.delta import commit_actions, sync_log
from enmasse.pipeline.lake.delta_reading import open_delta
from enmasse.pipeline.lake.file_writing import partition_text, remove_unnamed, written
from enmasse.pipeline.lake.objects import LakePath

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_DAY: Final = "day"
_LOCAL: Final = timedelta(days=1)
"""No place is further from UTC."""
_FORMS: Final[Mapping[str, str]] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Partitions of time as text, which is in their order."""


@dataclass(frozen=True)
class Chosen:
    """The partitions that are chosen.

    Attributes:
        values: columns, and the text that they have.
        time: the column of time; None: any time.
        first: its first text.
        last: its last.
        start: no row of the first partition of time is of an earlier moment.
        end: and none of the last of this one or a later.
    """

    values: Mapping[str, str]
    time: Partition | None = None
    first: str = ""
    last: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def has(self, partition: Mapping[str, str | None]) -> bool:
        """Return whether a partition, as the table's log has it, is one of them."""
        if any(partition.get(name) != value for name, value in self.values.items()):
            return False
        return self.time is None or self.first <= (partition.get(self.time.name) or "") <= self.last

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of these partitions, of rows that have the columns which lay out the table."""
        for name, value in self.values.items():
            frame = frame.where(F.col(quote_identifier(name)).cast("string") == value)
        time = self.time
        if time is None:
            return frame
        if time.function and time.column in frame.columns:
            # The same once more, in a form that a source may know to leave out what is older.
            frame = frame.where(
                (F.col(quote_identifier(time.column)) >= F.lit(self.start))
                & (F.col(quote_identifier(time.column)) < F.lit(self.end))
            )
        return frame.where(F.col(quote_identifier(time.name)).cast("string").between(self.first, self.last))


def choose(
    partition_by: Sequence[str],
    values: Mapping[str, str],
    start: datetime | None,
    end: datetime | None,
    brought: Collection[str] = (),
) -> Chosen:
    """Return the partitions that a time touches, and that have some values.

    Args:
        partition_by: as declared.
        values: columns, and the text that they have.
        start: a moment in UTC; None: any time.
        end: the moment at which it ends; not a part of it.
        brought: the columns of rows before any is made to lay out the table.

    Raises:
        PlanError: the table is not laid out so; the message says how it is.
    """
    declared = [partition_of(text) for text in partition_by]
    by = ", ".join(map(str, declared)) or "nothing"
    if missing := next((name for name in values if name not in {item.name for item in declared}), None):
        names = ", ".join(item.name for item in declared) or "none"
        raise PlanError(f"partitions: expected columns that lay out the table ({names}), got {missing!r}")
    if start is None or end is None:
        return Chosen(values)
    time = next((item for item in declared if item.function in _FORMS or item.name == _DAY), None)
    if time is None:
        raise PlanError(
            f"from and to: the table is laid out by {by}, and by no time; expected partitionBy with year, month, day "
            "or hour of a column, or choose partitions by their values"
        )
    unit = time.function or _DAY
    form = _FORMS[unit]
    last = end - timedelta(microseconds=1)
    first_text, last_text = start.strftime(form), last.strftime(form)
    first, following = _beginning(start, unit), _following(last, unit)
    if time.name in brought:
        # Rows have a day of their own, such as a local one, and only they know which moments lie in it.
        time, first, following = Partition(time.name), first - _LOCAL, following + _LOCAL
    return Chosen(values, time, first_text, last_text, first, following)


def _beginning(moment: datetime, unit: str) -> datetime:
    moment = moment.replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        moment = moment.replace(hour=0)
    if unit in ("month", "year"):
        moment = moment.replace(day=1)
    return moment.replace(month=1) if unit == "year" else moment


def _following(moment: datetime, unit: str) -> datetime:
    longest = {"hour": timedelta(hours=1), "day": timedelta(days=1), "month": timedelta(days=31)}
    return _beginning(_beginning(moment, unit) + longest.get(unit, timedelta(days=366)), unit)


@dataclass(frozen=True)
class Replaced:
    """The outcome.

    Attributes:
        rows: the rows that came in.
        rows_before: that they replaced.
        partitions: the partitions that were touched.
    """

    rows: int
    rows_before: int
    partitions: int


class Replacement:
    """Other rows for some partitions of a table.

    Args:
        path: the table's folder.
        chosen: the partitions.
        name: the name of what is done, the same when it is tried again, and of nothing else.
    """

    def __init__(self, path: LakePath, chosen: Chosen, name: str) -> None:
        self._path = path
        self._chosen = chosen
        self._name = name
        self._old: list[dict[str, Any]] = []

    def done(self) -> Replaced | None:
        """Return what was done, by whichever process; None: it was not."""
        table = open_delta(self._path)
        return None if table is None else self._done(table)

    def _done(self, table: DeltaTable) -> Replaced | None:
        rows, rows_before, partitions = (table.transaction_version(name) for name in self._names)
        if rows is None or rows_before is None or partitions is None:
            return None
        return Replaced(rows, rows_before, partitions)

    @property
    def _names(self) -> list[str]:
        """Names of transactions, whose numbers say what was done: the table has them even when its log is cut."""
        return [f"{self._name}:{field.name}" for field in fields(Replaced)]

    def _open(self) -> DeltaTable:
        table = open_delta(self._path)
        if table is None:
            raise TableBusyError(f"there is no table {self._path.name}")
        return table

    def begin(self, look: Callable[[DeltaTable], int]) -> int:
        """Note what is to be replaced, and return what ``look`` finds in the table at the same moment."""
        with table_lock(self._path):
            table = self._open()
            found = look(table)
            self._old = [file for file in _files(table) if self._chosen.has(file["partition"])]
        return found

    def finish(self, frame: DataFrame, is_given_up: Callable[[], bool]) -> Replaced | None:
        """Compute the rows, and put them in the place of the old ones; None: that was given up, or done meanwhile.

        Args:
            frame: rows of these partitions alone, with all columns of the table.
            is_given_up: whether they are not wanted any more.

        Raises:
            TableBusyError: files were rewritten meanwhile; nothing was changed.
        """
        names = list(self._open().metadata().partition_columns)
        files = written(frame, self._path, names)
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            RemoveAction(file["path"], True, now_ms, file["size"], file["partition"]) for file in self._old
        ]
        new = [(file, json.loads(file["partition"])) for file in files]
        actions += [AddAction(it["path"], it["bytes"], where, now_ms, True, it["stats"]) for it, where in new]
        added = [file["path"] for file in files]
        touched = {
            json.dumps(where, sort_keys=True) for where in [it["partition"] for it in self._old] + [w for _, w in new]
        }
        replaced = Replaced(sum(it["rows"] for it in files), sum(it["rows"] for it in self._old), len(touched))
        transactions = [
            Transaction(name, number) for name, number in zip(self._names, astuple(replaced), strict=True)
        ]
        with table_lock(self._path):
            table = self._open()
            is_over = is_given_up() or self._done(table) is not None
            there = {file["path"] for file in _files(table)}
            is_busy = any(file["path"] not in there for file in self._old)
            if is_over or is_busy:
                remove_unnamed(self._path / file for file in added)
            else:
                try:
                    commit_actions(self._path, table, actions, "append", transactions, added)
                except CommitFailedError:
                    is_busy = True
                else:
                    table.update_incremental()
                    sync_log(self._path, table.version())
        if is_over:
            return None
        if is_busy:
            raise TableBusyError(
                f"the files of table {self._path.name} were joined or put in order meanwhile, so nothing was changed"
            )
        return replaced


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """Return path, bytes, rows and partition of each file of a table."""
    actions = table.get_add_actions(flatten=True)
    names = list(table.metadata().partition_columns)
    columns = [actions.column(f"partition.{name}").to_pylist() for name in names]
    facts = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    return [
        {
            "path": unquote(path),  # as the log has it; what is written there is quoted again
            "size": size,
            "rows": rows or 0,
            "partition": {name: partition_text(column[at]) for name, column in zip(names, columns, strict=True)},
        }
        for at, (path, size, rows) in enumerate(zip(*facts, strict=True))
    ]
