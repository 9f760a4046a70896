"""Many small files become few large ones, and what no version needs any more goes.

Rules:
1. A step is bounded: it takes the partitions with the most small files first and ends after ``BYTES_AT_ONCE``.
2. A batch that is appended meanwhile stays: compaction moves rows and declares that, which conflicts with no append.
   Merges wait their turn (``turns``), for both would rewrite the same files.
3. A file goes when it has been out of the table for ``keep_h``, so that a query that began before still finds it.
   So do files that no transaction ever named, which killed drivers leave behind, after a day at the earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError

from enmasse.pipeline.lake.batches import turn
from enmasse.pipeline.lake.delta import MODE, open_delta

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES: Final = 128 << 20
"""Large enough that opening it costs nothing beside reading it."""
FEW_FILES: Final = 8
"""A partition with fewer small files is left alone: rewriting it would cost more than it spares readers."""
BYTES_AT_ONCE: Final = 1 << 30
"""A step takes seconds, beside queries that run."""
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
    files: Sequence[tuple[tuple[str | None, ...], int]], *, bytes_at_once: int = BYTES_AT_ONCE
) -> tuple[list[tuple[str | None, ...]], int]:
    """Return which partitions to compact now, and how many wait.

    Args:
        files: each file's partition and bytes.
        bytes_at_once: what one step may rewrite; the first partition is taken whatever it has.
    """
    small: dict[tuple[str | None, ...], list[int]] = {}
    for partition, size in files:
        if size < TARGET_BYTES // 2:
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


def compact(path: Path, *, keep_h: int = KEEP_H, bytes_at_once: int = BYTES_AT_ONCE) -> Compaction:
    """Do one step at a table; nothing at one that is not there, or is plain Parquet.

    Args:
        path: the table's folder.
        keep_h: hours that files stay after they left the table.
        bytes_at_once: what one step may rewrite.
    """
    table = open_delta(path)
    if table is None:
        return Compaction(0, 0, 0, 0)
    columns = list(table.metadata().partition_columns)
    chosen, left = plan_compaction(_files(table, columns), bytes_at_once=bytes_at_once)
    merged = made = 0
    for partition in chosen:
        with _turn_if_merged(table, path):
            table.update_incremental()
            try:
                done = table.optimize.compact(
                    partition_filters=[(n, "=", v or "") for n, v in zip(columns, partition, strict=True)] or None,
                    target_size=TARGET_BYTES,
                    max_concurrent_tasks=1,
                    writer_properties=WriterProperties(compression="ZSTD"),
                )
            except CommitFailedError:
                # Another process rewrote one of the files; the next step sees what is left to do.
                left += 1
                continue
        merged += done["numFilesRemoved"]
        made += done["numFilesAdded"]
    return Compaction(merged, made, _vacuum(table, path, keep_h), left)


def _vacuum(table: DeltaTable, path: Path, keep_h: int) -> int:
    """Delete what left the table long enough ago, and what never came into it; how many files."""
    removed = 0
    # A file that no transaction names may be one of a batch that is just being written.
    for hours, never_named in ((keep_h, False), (max(keep_h, KEEP_H), True)):
        with _turn_if_merged(table, path):
            table.update_incremental()
            # Looking first: a deletion is in the log, even one of nothing.
            if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=never_named):
                try:
                    gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=never_named)
                except CommitFailedError:
                    # Another process changed the table; what is left goes with the next step.
                    continue
                removed += len(gone)
    return removed


def _files(table: DeltaTable, columns: Sequence[str]) -> list[tuple[tuple[str | None, ...], int]]:
    actions = table.get_add_actions(flatten=True)
    sizes = actions.column("size_bytes").to_pylist()
    partitions = [actions.column(f"partition.{name}").to_pylist() for name in columns]
    texts: list[list[str | None]] = [
        [None if value is None else _text(value) for value in column] for column in partitions
    ]
    rows = list(zip(*texts, strict=True)) if texts else [()] * len(sizes)
    return list(zip(rows, sizes, strict=True))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _turn_if_merged(table: DeltaTable, path: Path) -> AbstractContextManager[None]:
    """Only merges rewrite files; appends need not wait for a compaction."""
    return nullcontext() if table.metadata().configuration.get(MODE) == "append" else turn(path)
