"""Parquet tables that hold each micro-batch exactly once, for every reader.

Spark's own file sink leaves the files of interrupted attempts beside the good ones and tells them
apart by a log that only Spark reads. Here a batch is written aside and moved into the table by one
rename, so pandas, DuckDB and Spark all see the same rows.

Rules:
1. A batch is a folder ``batch=N``; it appears whole or not at all.
2. A batch that is there is never written again: a source that is read by offset gives the same rows.
3. Batch numbers belong to a checkpoint. A table remembers whose they are and refuses another's.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from enmasse.pipeline.errors import TableMismatchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchTable"]

_OWNER = "_query"
"""Readers leave out what begins with an underscore."""


class BatchTable:
    """A folder of Parquet files that a streaming query adds to.

    Args:
        path: the table's folder.
        staging: where batches are written before they are moved; on the same file system, and not
            inside the table, where a reader could meet a file that is about to go.
    """

    def __init__(self, path: Path, staging: Path) -> None:
        self.path = path
        self._staging = staging / path.name

    def check_owner(self, checkpoint: Path) -> None:
        """Make sure that the table was written under this checkpoint, or is new.

        Raises:
            TableMismatchError: it belongs to another one, so batches would be lost or doubled.
        """
        owner = self.owner()
        if owner is None:
            return
        try:
            query = json.loads((checkpoint / "metadata").read_text())["id"]
        except (OSError, ValueError, KeyError):
            query = None
        if query != owner:
            raise TableMismatchError(
                f"the table {self.path} was not written under the checkpoint {checkpoint}: bring that "
                "checkpoint back, or choose another folder for the tables"
            )

    def owner(self) -> str | None:
        """The id of the query that writes this table, once it wrote."""
        try:
            return (self.path / _OWNER).read_text()
        except FileNotFoundError:
            return None

    def add(self, frame: DataFrame, batch: int, query: str) -> int:
        """Put one micro-batch into the table, unless it is there.

        Args:
            frame: the batch's rows; evaluated once.
            batch: the batch's number under its checkpoint.
            query: id of the query, the same as long as its checkpoint lives.

        Returns:
            The number of rows that were added.
        """
        home = self.path / f"batch={batch}"
        if home.exists():
            return 0
        if self.owner() is None:
            self._claim(query)
        aside = self._staging / f"batch={batch}"
        frame.write.mode("overwrite").option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            str(aside)
        )
        rows = _keep_rows_only(aside)
        if rows:
            _sync(aside)
            aside.rename(home)
            _sync(self.path)
        else:
            shutil.rmtree(aside)
        return rows

    def _claim(self, query: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f"{_OWNER}.new"
        new.write_text(query)
        _sync(new)
        new.rename(self.path / _OWNER)


def _keep_rows_only(folder: Path) -> int:
    """Remove checksum files and files without rows; the number of rows that remain."""
    rows = 0
    for path in folder.iterdir():
        held = 0 if path.name.startswith(".") else pq.read_metadata(path).num_rows
        if held:
            _sync(path)
        else:
            path.unlink()
        rows += held
    return rows


def _sync(path: Path) -> None:
    """What the checkpoint will call done must survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
