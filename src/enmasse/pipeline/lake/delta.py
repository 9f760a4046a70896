"""Delta tables: files written by Spark's tasks, one transaction for each batch.

Rules:
1. A batch's transaction carries the query's id and the batch's number. A batch whose number is there is not
   written again, so rows are in the table exactly once, however often the driver is killed.
2. Before ``add`` returns, files and log are on disk: what the checkpoint calls done survives a power cut.
3. The table's properties name its writer and the checkpoint. No other writer's rows come in.
4. Files are made first and named in the log last, so a reader sees a batch whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyspark.sql.types import StructField, StructType

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.errors import TableMismatchError, TableSchemaError
from enmasse.pipeline.lake import history
from enmasse.pipeline.lake.batches import Layout, Mode, check_writer, checkpoint_query, query_of, table_lock
from enmasse.pipeline.lake.columns import added_columns, is_ordered
from enmasse.pipeline.lake.conditional_writes import require_conditional_writes
from enmasse.pipeline.lake.constraints import declare_constraints, meeting
from enmasse.pipeline.lake.delta_reading import LOG, open_delta
from enmasse.pipeline.lake.file_writing import remove_unnamed, sync, written
from enmasse.pipeline.lake.mending import QUERY, account_for, application, mend
from enmasse.pipeline.lake.merging import STAGING, Merging
from enmasse.pipeline.lake.objects import LakePath, ObjectPath, delta_options, present_storage
from enmasse.pipeline.lake.partial_updates import SET_AT, check_present
from enmasse.pipeline.lake.partitions import Partitions
from enmasse.pipeline.sums import keep_sum, sum_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWNER: Final = "enmasse.owner"
MODE: Final = "enmasse.mode"
_PROPERTIES: Final = {
    # A commit a second is 86,400 files a day; who reads an older version than yesterday's?
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "100",
}
_KEPT_COMMITS: Final = 100
"""A table that follows its log commit by commit keeps a piece of each, needs 50 KB more for it, and looks through all
of them: after so many it is read anew, from a checkpoint."""


class DeltaLakeTable:
    """A Delta table that one query writes.

    Args:
        path: its folder.
        layout: the layout of its rows.
    """

    def __init__(self, path: LakePath, layout: Layout | None = None) -> None:
        self._layout = layout = layout or Layout()
        if (layout.mode == "update") != bool(layout.keys):
            raise TableSchemaError(f"the table {path.name}: mode update needs keys, and only that mode has them")
        self._path = path
        self._partitions = Partitions(layout.partition_by)
        self._merging = Merging(path, layout, self._partitions) if layout.mode == "update" else None
        self._owner: str | None = None
        self._adopt = False
        self._opened: tuple[DeltaTable, int, object] | None = None
        self._read_at = 0
        self._synced = 0

    @property
    def path(self) -> LakePath:
        """Its folder."""
        return self._path

    @property
    def mode(self) -> Mode:
        """The mode of writing; also the query's output mode."""
        return self._layout.mode

    def prepare(self, schema: StructType, *, owner: str, checkpoint: Path, adopt: bool = False) -> None:
        """See ``Table``."""
        fields = self._fields(schema)
        order_by = self._layout.order_by
        if order_by is not None and not is_ordered(fields, order_by):
            raise TableSchemaError(
                f"the table {self._path.name}: orderBy names {order_by!r}, whose values have no order; "
                "expected a number, a text, a date or a moment"
            )
        self._owner, self._adopt = owner, adopt
        if isinstance(self._path, ObjectPath):
            require_conditional_writes(self._path.parent)
        with table_lock(self._path):
            mend(self._path, checkpoint)
            table = self._open_or_create(fields)
            self._check_owner(table, checkpoint_query(checkpoint))
            self._fit(table, fields, schema)
            declare_constraints(table, self._path.name, self._layout.constraints)
        if self._merging is not None:
            # Objects cannot be looked through at once: what waits to be merged is beside the query's state.
            staging = self._path / STAGING if isinstance(self._path, Path) else checkpoint / STAGING
            shutil.rmtree(staging, ignore_errors=True)
            self._merging.staging = staging

    def _fields(self, schema: StructType) -> list[dict[str, object]]:
        """Return the table's columns for rows of this schema.

        Raises:
            TableSchemaError: there can be no such table.
        """
        layout = self._layout
        beside = (DELETED, PRESENT) if layout.is_partial else (DELETED,)
        kept = type(schema)([field for field in schema.fields if field.name not in beside])
        named = [*layout.keys, *filter(None, [layout.order_by])]
        if layout.keeps_history and layout.order_by in kept.names:
            kept = history.with_columns(kept, layout.order_by)
        if layout.is_partial:
            check_present(schema)
            names = [*kept.names, *self._partitions.made_of(kept)]
            ages = [name for name in names if name not in (*layout.keys, layout.order_by)]
            if layout.order_by in kept.names and ages:
                kind = kept[layout.order_by].dataType
                kept = kept.add(SET_AT, StructType([StructField(name, kind) for name in ages]))
        return self._partitions.fields(kept, named)

    def _open_or_create(self, fields: Sequence[Mapping[str, Any]]) -> DeltaTable:
        table = self._open()
        if table is None:
            if (self._path / "_query").exists():
                raise TableMismatchError(f"{self._path} holds a table of plain Parquet; choose another name")
            self._path.mkdir(parents=True, exist_ok=True)
            configuration = _PROPERTIES | self._property()
            table = DeltaTable.create(
                str(self._path),
                _schema(fields),
                mode="ignore",
                partition_by=list(self._partitions.names),
                configuration=configuration,
                raise_if_key_not_exists=False,
                storage_options=delta_options(self._path),
            )
            self._sync_log(table)
        if tuple(table.metadata().partition_columns) != self._partitions.names:
            there = ", ".join(table.metadata().partition_columns) or "nothing"
            asked = ", ".join(self._partitions.names) or "nothing"
            raise TableSchemaError(
                f"the table {self._path.name} is laid out by {there}, and not by {asked}; "
                "that cannot change, so write to another table"
            )
        if self._opened is None or table is not self._opened[0]:
            self._read_at = table.version()
        self._opened = table, table.version(), self._identity(table.version())
        return table

    def _identity(self, version: int) -> object:
        """Return what tells the table from one that was put in its place; None: there is none.

        A folder has a number. Of objects it is when an entry of the log was made, to the second; what they were
        opened with counts, too, for it may be good no longer.
        """
        log = self._path / LOG
        if isinstance(log, Path):
            return log.stat().st_ino if log.exists() else None
        made_at = (log / f"{version:020d}.json").made_at_ns()
        return None if made_at is None else (present_storage(), made_at)

    def _open(self) -> DeltaTable | None:
        """Return the table as it is now; opened seldom, for reading its whole log costs more than a small batch."""
        if self._opened is None:
            return open_delta(self._path)
        table, version, identity = self._opened
        if self._identity(version) != identity:
            return open_delta(self._path)
        try:
            table.update_incremental()
        except (DeltaError, OSError):
            return open_delta(self._path)
        return table if table.version() - self._read_at < _KEPT_COMMITS else open_delta(self._path)

    def _check_owner(self, table: DeltaTable, query: str | None) -> None:
        written = table.metadata().configuration
        owner, last = written.get(_OWNER), written.get(QUERY)
        if owner is None and last is None and table.version() > 0:
            raise TableMismatchError(f"the table {self._path.name} was made by somebody else; choose another name")
        check_writer(self._path.name, self._owner, query, (owner, last), adopt=self._adopt)

    def _fit(self, table: DeltaTable, fields: Sequence[Mapping[str, Any]], schema: StructType) -> None:
        there = json.loads(table.schema().to_json())["fields"]
        ours = [field for field in fields if self._layout.is_partial and field["name"] == SET_AT]
        given = [field for field in fields if field not in ours]
        new = added_columns(there, given, evolve=self._layout.evolve, name=self._path.name)
        for field in ours:
            known = next((one["type"]["fields"] for one in there if one["name"] == SET_AT), None)
            names = () if known is None else {one["name"] for one in known}
            more = [one for one in field["type"]["fields"] if one["name"] not in names]
            # In a table of a former version nobody has set a column to NULL so far.
            if more and (known is not None or PRESENT in schema.names or self._layout.evolve):
                new.append({**field, "type": {"type": "struct", "fields": [*(known or ()), *more]}})
        if new:
            table.alter.add_columns([Field.from_json(json.dumps(field)) for field in new])
            table.update_incremental()

    def add(self, frame: DataFrame, batch: int) -> None:
        """See ``Table``."""
        query = query_of(frame)
        fields = self._fields(frame.schema)
        with table_lock(self._path):
            table = self._open_or_create(fields)
            done = table.transaction_version(application(query))
            if done is not None and done >= batch:
                return
            self._claim(table, query, batch)
            self._fit(table, fields, frame.schema)
            # What is changed in part is complete in the table alone, which looks at it itself.
            looked_at = {} if self._layout.is_partial else self._layout.constraints
            rows = meeting(frame, self._path.name, looked_at)
            transaction = Transaction(application(query), batch)
            try:
                if not self._write(table, rows, transaction):
                    account_for(self._path, query, batch)
            except CommitFailedError:
                # Somebody else's transaction came between, or the answer was lost.
                if not is_committed(self._path, transaction):
                    raise

    def _claim(self, table: DeltaTable, query: str, batch: int) -> None:
        if table.metadata().configuration.get(QUERY) == query:
            return
        self._check_owner(table, query)
        account_for(self._path, query, batch - 1)
        table.alter.set_table_properties({QUERY: query} | self._property(), raise_if_not_exists=False)
        table.update_incremental()

    def _property(self) -> dict[str, str]:
        """Return what the table remembers of who writes it."""
        return {MODE: self._layout.mode} | ({_OWNER: self._owner} if self._owner else {})

    def _write(self, table: DeltaTable, rows: DataFrame, transaction: Transaction) -> bool:
        """Put rows into the table; whether that made an entry in the log."""
        if self._merging is None:
            return self._put(table, self._partitions.on(rows), transaction)
        if not self._merging.merge(table, rows, CommitProperties(app_transactions=[transaction])):
            return False
        self._sync_log(table)
        return True

    def _put(self, table: DeltaTable, frame: DataFrame, transaction: Transaction) -> bool:
        """Add rows, or put them in the place of all; whether that made an entry in the log."""
        files = written(frame, self._path, self._partitions.names)
        if not files and self._layout.mode == "append":
            return False
        mode: Literal["append", "overwrite"] = "overwrite" if self._layout.mode == "complete" else "append"
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(file["path"], file["bytes"], json.loads(file["partition"]), now_ms, True, file["stats"])
            for file in files
        ]
        commit_actions(self._path, table, actions, mode, [transaction], [file["path"] for file in files])
        self._sync_log(table)
        return True

    def _sync_log(self, table: DeltaTable) -> None:
        """Put on disk what was committed since, by whomever."""
        table.update_incremental()
        # Those of a compaction too, or a power cut leaves a gap before what is done.
        first = self._synced if self._synced <= table.version() else 0
        sync_log(self._path, table.version(), first)
        self._synced = table.version() + 1


def commit_actions(
    path: LakePath,
    table: DeltaTable,
    actions: Sequence[Any],
    mode: Literal["append", "overwrite"],
    transactions: Sequence[Transaction],
    files: Iterable[str],
) -> None:
    """Commit files that were written, under transactions that are there once.

    Args:
        path: the table's folder.
        table: the table as it was opened.
        actions: the files to add and remove.
        mode: ``overwrite`` removes all that is there.
        transactions: by the first of which it is told that they are in the table already.
        files: the files that are added, below the folder; they go if they are not in the table.

    Raises:
        CommitFailedError: somebody else's transaction came between.
    """
    commit = CommitProperties(app_transactions=list(transactions))
    names = list(table.metadata().partition_columns)
    try:
        table.create_write_transaction(list(actions), mode, table.schema(), names, commit_properties=commit)
    except CommitFailedError:
        # Storage may have taken it, and its answer was lost: tried again, it is in its own way.
        if is_committed(path, transactions[0]):
            return
        remove_unnamed(path / file for file in files)
        raise


def is_committed(path: LakePath, transaction: Transaction) -> bool:
    """Return whether a transaction is in a table, which is opened anew."""
    table = open_delta(path)
    done = None if table is None else table.transaction_version(transaction.app_id)
    return done is not None and done >= transaction.version


def sync_log(path: LakePath, version: int, first: int = 0) -> None:
    """Put the entries of a table's log on disk, with the files that they add, and keep checksums of all of them.

    What queries write has them already; what Delta's library writes is neither synced nor has any.

    Args:
        path: the table's folder.
        version: the version of the newest.
        first: of the oldest that may not be there yet.
    """
    if isinstance(path, ObjectPath):
        return
    log = path / LOG
    for number in range(max(first, version - _KEPT_COMMITS), version + 1):
        entry = log / f"{number:020d}.json"
        if entry.exists():
            sync(entry)
            for file in (*_added(path, entry), entry, entry.with_suffix(".checkpoint.parquet")):
                if file.exists() and not sum_of(file).exists():
                    with suppress(FileNotFoundError):  # it left the table, and was deleted
                        sync(file)
                        sync(file.parent)
                        keep_sum(file)
    for folder in (log, path):
        sync(folder)


def _added(path: Path, entry: Path) -> Iterator[Path]:
    """Yield the files that an entry of a table's log adds; none if it cannot be read, which who opens it says."""
    with suppress(ValueError, KeyError, TypeError):
        for line in entry.read_text().splitlines():
            if '"add"' in line and "add" in (action := json.loads(line)):
                yield path / unquote(action["add"]["path"])


def _schema(fields: Sequence[Mapping[str, Any]]) -> Schema:
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))
