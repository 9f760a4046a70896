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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.model.kinds.flow import DELETED
from enmasse.pipeline.errors import TableMismatchError, TableSchemaError
from enmasse.pipeline.lake.batches import Mode, checkpoint_query, query_of, table_fields, turn, with_day
from enmasse.pipeline.lake.columns import added_columns, is_ordered
from enmasse.pipeline.lake.file_writing import FILES_DDL, FileWriting, sync
from enmasse.pipeline.lake.mending import LOG, QUERY, account_for, application, mend
from enmasse.pipeline.lake.tombstones import Tombstones

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OWNER: Final = "enmasse.owner"
MODE: Final = "enmasse.mode"
_STAGING: Final = "_staging"
"""Readers, and whatever cleans up, leave out what begins with an underscore."""
_PROPERTIES: Final = {
    # A commit a second is 86,400 files a day; who reads an older version than yesterday's?
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "100",
}
_KEPT_COMMITS: Final = 100
"""A table that follows its log commit by commit keeps a piece of each, needs 50 KB more for it, and looks through all
of them: after so many it is read anew, from a checkpoint."""
_ROW: Final = "__enmasse_row"
_LAST: Final = "__enmasse_last"


def open_delta(path: Path) -> DeltaTable | None:
    """Return the table as it is now; None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


class DeltaLakeTable:
    """A Delta table that one query writes.

    Args:
        path: its folder.
        mode: ``append``: rows are added; ``update``: rows replace those with the same keys;
            ``complete``: each batch is the whole table.
        keys: the columns that name a row; only for ``update``, and needed there.
        partition_by: columns that lay out the folders; ``day`` is made of the event's time if need be.
        order_by: for ``update``: the column whose greater value wins; left out: what comes later.
        is_partial: for ``update``: whether NULL leaves what is there.
        evolve: whether new columns are added to the table.
    """

    def __init__(
        self,
        path: Path,
        *,
        mode: Mode = "append",
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        order_by: str | None = None,
        is_partial: bool = False,
        evolve: bool = False,
    ) -> None:
        if (mode == "update") != bool(keys):
            raise TableSchemaError(f"the table {path.name}: mode update needs keys, and only that mode has them")
        self._path = path
        self._mode = mode
        self._keys = tuple(keys)
        self._partition_by = tuple(partition_by)
        self._order_by = order_by
        self._is_partial = is_partial
        self._tombstones = Tombstones(path, keys, order_by) if order_by is not None else None
        self._evolve = evolve
        self._owner: str | None = None
        self._adopt = False
        self._opened: tuple[DeltaTable, int] | None = None
        self._read_at = 0
        self._synced = 0

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._path

    @property
    def mode(self) -> Mode:
        """The mode of writing; also the query's output mode."""
        return self._mode

    def prepare(self, schema: StructType, *, owner: str, checkpoint: Path, adopt: bool = False) -> None:
        """See ``Table``."""
        fields = table_fields(_kept(schema), (*self._keys, *filter(None, [self._order_by])), self._partition_by)
        if self._order_by is not None and not is_ordered(fields, self._order_by):
            raise TableSchemaError(
                f"the table {self._path.name}: orderBy names {self._order_by!r}, whose values have no order; "
                "expected a number, a text, a date or a moment"
            )
        self._owner, self._adopt = owner, adopt
        with turn(self._path):
            mend(self._path, checkpoint)
            table = self._open_or_create(fields)
            self._check_owner(table, checkpoint_query(checkpoint))
            self._fit(table, fields)
        shutil.rmtree(self._path / _STAGING, ignore_errors=True)

    def _open_or_create(self, fields: Sequence[Mapping[str, Any]]) -> DeltaTable:
        table = self._open()
        if table is None:
            if (self._path / "_query").exists():
                raise TableMismatchError(f"{self._path} holds a table of plain Parquet; choose another name")
            self._path.mkdir(parents=True, exist_ok=True)
            configuration = _PROPERTIES | self._property()
            table = DeltaTable.create(
                self._path,
                _schema(fields),
                mode="ignore",
                partition_by=list(self._partition_by),
                configuration=configuration,
                raise_if_key_not_exists=False,
            )
            self._sync_log(table)
        if tuple(table.metadata().partition_columns) != self._partition_by:
            there = ", ".join(table.metadata().partition_columns) or "nothing"
            asked = ", ".join(self._partition_by) or "nothing"
            raise TableSchemaError(
                f"the table {self._path.name} is laid out by {there}, and not by {asked}; "
                "that cannot change, so write to another table"
            )
        if self._opened is None or table is not self._opened[0]:
            self._read_at = table.version()
        self._opened = table, (self._path / LOG).stat().st_ino
        return table

    def _open(self) -> DeltaTable | None:
        """Return the table as it is now; opened seldom, for reading its whole log costs more than a small batch."""
        log = self._path / LOG
        if self._opened is None or not log.exists() or log.stat().st_ino != self._opened[1]:
            return open_delta(self._path)
        table = self._opened[0]
        try:
            table.update_incremental()
        except DeltaError:
            return open_delta(self._path)
        return table if table.version() - self._read_at < _KEPT_COMMITS else open_delta(self._path)

    def _check_owner(self, table: DeltaTable, query: str | None) -> None:
        written = table.metadata().configuration
        owner, last = written.get(_OWNER), written.get(QUERY)
        if owner is None and last is None and table.version() > 0:
            raise TableMismatchError(f"the table {self._path.name} was made by somebody else; choose another name")
        if self._owner is not None and owner not in (None, self._owner):
            raise TableMismatchError(
                f"the table {self._path.name} is written by {owner}: one query writes a table; choose another name"
            )
        if last not in (None, query) and not self._adopt:
            raise TableMismatchError(
                f"the table {self._path.name} was written under another checkpoint, so rows would be lost or "
                "doubled: bring that checkpoint back, restart the pipeline from a point you name, or choose "
                "another table"
            )

    def _fit(self, table: DeltaTable, fields: Sequence[Mapping[str, Any]]) -> None:
        there = json.loads(table.schema().to_json())["fields"]
        new = added_columns(there, fields, evolve=self._evolve, name=self._path.name)
        if new:
            table.alter.add_columns([Field.from_json(json.dumps(field)) for field in new])
            table.update_incremental()

    def add(self, frame: DataFrame, batch: int) -> None:
        """See ``Table``."""
        query = query_of(frame)
        fields = table_fields(_kept(frame.schema), self._keys, self._partition_by)
        with turn(self._path):
            table = self._open_or_create(fields)
            done = table.transaction_version(application(query))
            if done is not None and done >= batch:
                return
            self._claim(table, query, batch)
            self._fit(table, fields)
            rows = with_day(frame, self._partition_by)
            commit = CommitProperties(app_transactions=[Transaction(application(query), batch)])
            try:
                add = self._merge if self._mode == "update" else self._put
                if not add(table, rows, commit):
                    account_for(self._path, query, batch)
            except CommitFailedError:
                # Somebody else's transaction came between. If it was this very batch, it is in the table now.
                done = DeltaTable(self._path).transaction_version(application(query))
                if done is None or done < batch:
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
        return {MODE: self._mode} | ({_OWNER: self._owner} if self._owner else {})

    def _put(self, table: DeltaTable, frame: DataFrame, commit: CommitProperties) -> bool:
        """Add rows, or put them in the place of all; whether that made an entry in the log."""
        files = _written(frame, self._path, self._partition_by)
        if not files and self._mode == "append":
            return False
        mode = "overwrite" if self._mode == "complete" else "append"
        actions: list[Any] = [
            AddAction(file["path"], file["bytes"], json.loads(file["partition"]), 0, True, file["stats"])
            for file in files
        ]
        try:
            table.create_write_transaction(
                actions, mode, table.schema(), list(self._partition_by), commit_properties=commit
            )
        except CommitFailedError:
            for file in files:
                (self._path / file["path"]).unlink(missing_ok=True)
            raise
        self._sync_log(table)
        return True

    def _merge(self, table: DeltaTable, frame: DataFrame, commit: CommitProperties) -> bool:
        """Merge rows; whether that made an entry in the log."""
        before = table.version()
        with self._staged() as staging:
            files = _written(self._last_of_each(frame), staging)
            if not files:
                return False
            staged = ds.dataset([str(staging / file["path"]) for file in files], format="parquet")
            reader: Any = staged.scanner().to_reader()
            is_deleting = DELETED in frame.columns
            if self._tombstones is not None and (is_deleting or self._tombstones.exists()):
                reader = self._tombstones.heeded(staged)
            # DataFusion binds AND more tightly than IS NOT DISTINCT FROM.
            same = " AND ".join(f"(t.{_quoted(key)} IS NOT DISTINCT FROM s.{_quoted(key)})" for key in self._keys)
            columns = {_quoted(name): f"s.{_quoted(name)}" for name in frame.columns if name != DELETED}
            changed = columns
            if self._is_partial:
                changed = {name: f"coalesce({value}, t.{name})" for name, value in columns.items()}
            newer = None
            if self._order_by:
                by = _quoted(self._order_by)
                newer = f"(t.{by} IS NULL OR s.{by} >= t.{by})"
            merge = table.merge(reader, same, source_alias="s", target_alias="t", commit_properties=commit)
            if is_deleting:
                flag = f"s.{_quoted(DELETED)}"
                both = f" AND {newer}" if newer else ""
                merge = merge.when_matched_delete(f"{flag}{both}").when_matched_update(changed, f"NOT {flag}{both}")
                merge = merge.when_not_matched_insert(columns, f"NOT {flag}")
            else:
                merge = merge.when_matched_update(changed, newer).when_not_matched_insert(columns)
            merge.execute()
        # Rows that are all older than those in the table change nothing.
        if table.version() == before:
            return False
        self._sync_log(table)
        return True

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        folder = self._path / _STAGING / uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _last_of_each(self, frame: DataFrame) -> DataFrame:
        """One row for each key: the greatest by ``order_by``, else the last of the batch."""
        numbered = frame.withColumn(_ROW, F.monotonically_increasing_id())
        order = F.struct(*[F.col(_quoted(name)) for name in filter(None, [self._order_by, _ROW])])
        rest = F.struct(*[F.col(_quoted(name)) for name in frame.columns])
        keys = [F.col(_quoted(key)) for key in self._keys]
        last = numbered.groupBy(*keys).agg(F.max_by(rest, order).alias(_LAST))
        return last.select(*[F.col(f"{_LAST}.{_quoted(name)}") for name in frame.columns])

    def _sync_log(self, table: DeltaTable) -> None:
        """Put on disk what was committed since, by whomever."""
        table.update_incremental()
        log = self._path / LOG
        # Those of a compaction too, or a power cut leaves a gap before what is done.
        first = self._synced if self._synced <= table.version() else 0
        for version in range(max(first, table.version() - _KEPT_COMMITS), table.version() + 1):
            entry = log / f"{version:020d}.json"
            if entry.exists():
                sync(entry)
        self._synced = table.version() + 1
        for folder in (log, self._path):
            sync(folder)


def _written(frame: DataFrame, root: Path, partition_by: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Have Spark's tasks write the rows below a folder; return their report of each file."""
    files = frame.mapInArrow(FileWriting(str(root), partition_by), FILES_DDL).collect()
    return [row.asDict() for row in files]


def _kept(schema: StructType) -> StructType:
    """Return the columns that a table keeps of rows."""
    return type(schema)([field for field in schema.fields if field.name != DELETED])


def _schema(fields: Sequence[Mapping[str, Any]]) -> Schema:
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
