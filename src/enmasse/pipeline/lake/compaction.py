"""Many small files become few large ones, and what no version needs any more goes.

Rules:
1. A step is bounded: it takes the partitions with the most small files first and ends after ``BYTES_AT_ONCE``. Files
   are joined with others of about their size, so that a row is not rewritten each time that more come.
2. A batch that is appended meanwhile stays: compaction moves rows and declares that, which conflicts with no append.
   Merges wait their turn (``batches.table_lock``), for both would rewrite the same files. So do other compactions,
   also those of other processes over a table on a disk: Delta's library takes two transactions that only move rows
   of the same files, and each row would be there twice.
3. A file goes when it has been out of the table for ``keep_h``, so that a query that began before still finds it.
   So do files that no transaction ever named, which killed drivers leave behind, after a day at the earliest.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError

from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.backup.locks import deletion
from enmasse.pipeline.far_moments import python_values
from enmasse.pipeline.lake.batches import table_lock
from enmasse.pipeline.lake.delta import MODE, sync_log
from enmasse.pipeline.lake.delta_reading import LOG, check_files, open_delta
from enmasse.pipeline.lake.file_writing import partition_text
from enmasse.pipeline.lake.objects import LakePath
from enmasse.pipeline.sums import remove_lonely_sums

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES: Final = 128 << 20
"""Large enough that opening it costs nothing beside reading it."""
SIZES: Final = (4 << 20, 24 << 20, TARGET_BYTES)
"""Files that are smaller than half of a size become files of that size."""
FEW_FILES: Final = 6
"""A partition with fewer files of a size is left alone: rewriting it would cost more than it spares readers."""
BYTES_AT_ONCE: Final = 1 << 30
"""A step takes seconds, beside queries that run."""
_ORDERED: Final = "enmasse.orderedAt"
"""The property of a table that says when the newest file was made of those whose rows are in order."""
KEEP_H: Final = 24
"""Longer than any query over the table runs."""


@dataclass(frozen=True)
class Compaction:
    """The outcome of a step."""

    merged: int
    """Small files that are no longer in the table."""
    made: int
    """Files that hold their rows now."""
    removed: int
    """Files that were deleted, because no version needs them."""
    left: int
    """Partitions that wait for the next step."""

    def __str__(self) -> str:
        more = f"; {self.left} partitions wait for the next step" if self.left else ""
        return f"{self.merged} files became {self.made}, {self.removed} old ones were deleted{more}"


def plan_compaction(
    files: Sequence[tuple[tuple[str | None, ...], int]],
    *,
    bytes_at_once: int = BYTES_AT_ONCE,
    target_bytes: int = TARGET_BYTES,
) -> tuple[list[tuple[str | None, ...]], int]:
    """Return which partitions to compact now, and how many wait.

    Args:
        files: each file's partition and bytes.
        bytes_at_once: the most that one step rewrites; the first partition is taken whatever it has.
        target_bytes: the size of files to make.
    """
    small: dict[tuple[str | None, ...], list[int]] = {}
    for partition, size in files:
        if size < target_bytes // 2:
            small.setdefault(partition, []).append(size)
    due = sorted((item for item in small.items() if len(item[1]) >= FEW_FILES), key=lambda item: -len(item[1]))
    chosen: list[tuple[str | None, ...]] = []
    total = 0
    for partition, sizes in due:
        if chosen and total + sum(sizes) > bytes_at_once:
            break
        chosen.append(partition)
        total += sum(sizes)
    return chosen, len(due) - len(chosen)


def compact(path: LakePath, *, keep_h: int = KEEP_H, bytes_at_once: int = BYTES_AT_ONCE) -> Compaction:
    """Do one step at a table; nothing at one that is not there, or is plain Parquet.

    Args:
        path: the table's folder.
        keep_h: hours that files stay after they left the table.
        bytes_at_once: the most that one step rewrites.
    """
    table = open_delta(path)
    if table is None:
        return Compaction(0, 0, 0, 0)
    steps = [_join_files(table, path, size, bytes_at_once) for size in SIZES]
    merged, made, left = (sum(counts) for counts in zip(*steps, strict=True))
    return Compaction(merged, made, vacuum(path, keep_h=keep_h), left)


def join_small_files(path: LakePath) -> int:
    """Join the small files of a table, and delete none; return how many became fewer."""
    table = open_delta(path)
    return 0 if table is None else sum(_join_files(table, path, size, BYTES_AT_ONCE)[0] for size in SIZES)


def _join_files(table: DeltaTable, path: LakePath, target_bytes: int, bytes_at_once: int) -> tuple[int, int, int]:
    """Join files to such of a size; return how many files were joined and made, and how many partitions are left."""
    columns = list(table.metadata().partition_columns)
    files = _files(table, columns)
    sizes = [(partition, size) for partition, size, _, _ in files]
    chosen, left = plan_compaction(sizes, bytes_at_once=bytes_at_once, target_bytes=target_bytes)
    merged = made = 0
    for partition in chosen:
        with _one_at_a_time(path), _lock_if_merged(table, path):
            table.update_incremental()
            before = table.version()
            check_files(path, (name for where, size, _, name in files if where == partition and size < target_bytes))
            try:
                done = table.optimize.compact(
                    partition_filters=_filters(columns, partition),
                    target_size=target_bytes,
                    max_concurrent_tasks=1,
                    writer_properties=WriterProperties(compression="ZSTD"),
                )
            except CommitFailedError:
                # Another process rewrote one of the files; the next step sees what is left to do.
                left += 1
                continue
            _keep_sums(table, path, before)
        merged += done["numFilesRemoved"]
        made += done["numFilesAdded"]
    if chosen:
        table.update_incremental()
    return merged, made, left


def order_rows(path: LakePath, columns: Sequence[str], *, bytes_at_once: int | None = BYTES_AT_ONCE) -> int:
    """Lay rows with like values of some columns beside each other (z-order), where files came since it was done last.

    Args:
        path: the table's folder.
        columns: the columns; none of those that lay out the table.
        bytes_at_once: the most that one step rewrites, so that larger partitions are left alone; None: everything.

    Returns:
        How many files were rewritten.
    """
    table = open_delta(path)
    if table is None:
        return 0
    names = list(table.metadata().partition_columns)
    done_at = int(table.metadata().configuration.get(_ORDERED, "0"))
    by_partition: dict[tuple[str | None, ...], list[tuple[int, int, str]]] = {}
    for partition, size, made_at, name in _files(table, names):
        by_partition.setdefault(partition, []).append((size, made_at, name))
    rewritten = total = 0
    for partition, files in sorted(by_partition.items(), key=lambda item: -len(item[1])):
        size = sum(size for size, _, _ in files)
        if len(files) < 2 or all(made_at <= done_at for _, made_at, _ in files):
            continue
        if bytes_at_once is not None and total + size > bytes_at_once:
            continue
        total += size
        with _one_at_a_time(path), _lock_if_merged(table, path):
            table.update_incremental()
            before = table.version()
            check_files(path, (name for _, _, name in files))
            try:
                done = table.optimize.z_order(
                    list(columns),
                    partition_filters=_filters(names, partition),
                    target_size=TARGET_BYTES,
                    max_concurrent_tasks=1,
                    writer_properties=WriterProperties(compression="ZSTD"),
                )
            except CommitFailedError:
                continue  # another process rewrote one of the files; the next step sees it
            _keep_sums(table, path, before)
        rewritten += done["numFilesRemoved"]
    if rewritten:
        with table_lock(path):
            table.update_incremental()
            made = max(made_at for _, _, made_at, _ in _files(table, names))
            table.alter.set_table_properties({_ORDERED: str(made)}, raise_if_not_exists=False)
    return rewritten


def _keep_sums(table: DeltaTable, path: LakePath, before: int) -> None:
    """Keep checksums of what Delta's library has written since a version."""
    table.update_incremental()
    sync_log(path, table.version(), before + 1)


def _filters(names: Sequence[str], partition: Sequence[str | None]) -> Any:
    return [(n, "=", v or "") for n, v in zip(names, partition, strict=True)] or None


def vacuum(path: LakePath, *, keep_h: int = KEEP_H) -> int:
    """Delete what left a table long enough ago, and what never came into it; return how many files.

    While a backup copies them none is.

    Args:
        path: the table's folder.
        keep_h: hours that files stay after they left the table.
    """
    table = open_delta(path)
    if table is None:
        return 0
    with deletion() as is_free:
        return _vacuum(table, path, keep_h) if is_free else 0


def _vacuum(table: DeltaTable, path: LakePath, keep_h: int) -> int:
    removed = 0
    # A file that no transaction names may be one of a batch that is just being written.
    for hours, never_named in ((keep_h, False), (max(keep_h, KEEP_H), True)):
        with _lock_if_merged(table, path):
            table.update_incremental()
            # Looking first: a deletion is in the log, even one of nothing.
            if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=never_named):
                try:
                    gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=never_named)
                except CommitFailedError:
                    # Another process changed the table; what is left goes with the next step.
                    continue
                removed += len(gone)
    if isinstance(path, Path):
        remove_lonely_sums(path)
    return removed


def drop_rows(path: LakePath, column: str, before: datetime) -> int:
    """Delete the rows of a table whose moment or date is older; return how many.

    Args:
        path: the table's folder.
        column: a TIMESTAMP or a DATE.
        before: the moment.
    """
    table = open_delta(path)
    if table is None:
        return 0
    types = {field.name: str(field.type) for field in table.schema().fields}
    is_date = "date" in types.get(column, "")
    # As a text, which takes the column's own type.
    moment = before.astimezone(UTC).strftime("%Y-%m-%d" if is_date else "%Y-%m-%dT%H:%M:%S")
    with table_lock(path):
        table.update_incremental()
        check_files(path, _parted(table, column, moment))
        version = table.version()
        try:
            done = table.delete(f"{quote_identifier(column)} < '{moment}'")
        except CommitFailedError:
            return 0  # another process changed the table; they go with the next step
        _keep_sums(table, path, version)
    return int(done.get("num_deleted_rows") or 0)


def _parted(table: DeltaTable, column: str, moment: str) -> Iterator[str]:
    """Yield the files that have older and newer rows, and so are rewritten; and those of which it is not told."""
    if column in table.metadata().partition_columns:
        return  # whole files go
    actions = pa.table(table.get_add_actions(flatten=True))
    least, greatest = (
        python_values(actions[name]) if name in actions.column_names else [None] * actions.num_rows
        for name in (f"min.{column}", f"max.{column}")
    )
    for name, low, high in zip(actions["path"].to_pylist(), least, greatest, strict=True):
        # A far moment is a text.
        is_told = isinstance(low, date) and isinstance(high, date)
        if not is_told or low.isoformat() < moment <= high.isoformat():
            yield unquote(name)


def _files(table: DeltaTable, columns: Sequence[str]) -> list[tuple[tuple[str | None, ...], int, int, str]]:
    """Return each file's partition, bytes, when it was made in milliseconds since 1970, and path."""
    actions = table.get_add_actions(flatten=True)
    sizes = actions.column("size_bytes").to_pylist()
    partitions = [actions.column(f"partition.{name}").to_pylist() for name in columns]
    texts: list[list[str | None]] = [[partition_text(value) for value in column] for column in partitions]
    rows = list(zip(*texts, strict=True)) if texts else [()] * len(sizes)
    paths = map(unquote, actions.column("path").to_pylist())
    return list(zip(rows, sizes, actions.column("modification_time").to_pylist(), paths, strict=True))


@contextmanager
def _one_at_a_time(path: LakePath) -> Iterator[None]:
    """Wait until no other compaction of the table is at work: one after the other sees what there is then."""
    log = path / LOG
    with table_lock(log):
        if not isinstance(log, Path):
            yield
            return
        folder = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _lock_if_merged(table: DeltaTable, path: LakePath) -> AbstractContextManager[None]:
    """Only merges rewrite files; appends need not wait for a compaction."""
    return nullcontext() if table.metadata().configuration.get(MODE) == "append" else table_lock(path)
