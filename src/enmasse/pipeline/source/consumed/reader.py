"""``format("enmasse")`` over addresses that are no streams, as Spark sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from enmasse.pipeline.patience import Patience
from enmasse.pipeline.source.consumed.batch_file import BatchFile, read_rows
from enmasse.pipeline.source.consumed.browsing import browse
from enmasse.pipeline.source.consumed.ending import end_in_order
from enmasse.pipeline.source.consumed.link import Link
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.planner import ConsumedPlanner
from enmasse.pipeline.source.consumed.rows import rows_to_batch
from enmasse.pipeline.source.consumed.spool import Owner, Spool
from enmasse.pipeline.workers.settling import settle

__all__ = ["BrowsingReader", "ConsumedStreamReader"]


class _FilePartition(InputPartition):
    """A file on its way to the task that reads it."""

    def __init__(self, folder: str, file: BatchFile) -> None:
        super().__init__(file.name)
        self.folder = folder
        self.file = file


class ConsumedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of what an address gave; a batch read again gives the same rows.

    An offset is ``{"spool": id, "next": number}``.
    """

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options
        self._planner: ConsumedPlanner | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_options": self._options, "_planner": None}

    def _plan(self, offset: Mapping[str, Any] | None = None) -> ConsumedPlanner:
        if self._planner is None:
            options = self._options
            source = options.source
            owner = Owner(source.address, source.space, options.checkpoint)
            spool = Spool(options.spool, owner)
            try:
                self._planner = ConsumedPlanner(
                    options, spool, lambda: Link(options), Patience(source.retry_timeout_s)
                )
            except BaseException:
                spool.close()
                raise
            end_in_order()
        if offset is not None:
            self._planner.belongs(str(offset["spool"]))
        return self._planner

    def _offset(self, position: int) -> dict[str, Any]:
        return {"spool": self._plan().spool_id, "next": position}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """``maxOffsetsPerTrigger``, or its default: what is taken must fit the spool."""
        return ReadMaxRows(self._options.max_rows)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return self._offset(self._plan().initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no more than what is there now."""
        self._plan().fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; waits a while for messages."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._offset(self._plan(start).latest(int(start["next"]), max_rows))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files of a batch, one a task."""
        if start == end:
            return []
        files = self._plan(end).files(int(start["next"]), int(end["next"]))
        return [_FilePartition(str(self._options.spool), file) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        assert isinstance(partition, _FilePartition)
        settle()
        rows = read_rows(Path(partition.folder), partition.file)
        yield rows_to_batch(partition.file.first, rows, self._options.properties_of)

    def commit(self, end: dict[str, Any]) -> None:
        """Accept what is below."""
        self._plan(end).committed(int(end["next"]))

    def stop(self) -> None:
        """Give back what is not committed."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.stop()


class BrowsingReader(DataSourceReader):
    """Looks at what a queue or subscription has, and takes nothing."""

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages that are there when it begins."""
        return browse(self._options)
