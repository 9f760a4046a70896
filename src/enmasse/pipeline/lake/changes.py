"""A Delta table as a stream: the rows that are there, then those that each new version adds.

Rules:
1. An offset is a version of the table. A batch is the files that versions after one up to another one have added, so
   that a batch that is repeated is the same; the first is the whole version that was there.
2. Files that were only joined or put in order have no new rows, as their log entries say.
3. A version that deletes or replaces rows fails the query, or is skipped where that was asked for: a stream cannot
   take back what it gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from enmasse.pipeline.errors import DataLossError, TableDamagedError, TableSchemaError
from enmasse.pipeline.lake.delta_reading import (
    LOG,
    FilesPartition,
    TableFile,
    TableSource,
    existing_delta,
    files_of,
    partitions_of,
    read_files,
)
from enmasse.pipeline.lake.objects import LakePath, lake_path
from enmasse.pipeline.session import activate

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "enmasse-changes"

_NOTHING: Final = -1
"""The version before the first one."""
_LOOK_ANEW: Final = 60
"""After so many looks at the next entry of the log alone the whole of it is looked at."""


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches by version, and reads their files.

    Args:
        options: ``path``, ``starting`` (``earliest`` or ``latest``) and ``skipChangeCommits``.
        schema: the columns.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._path = lake_path(options["path"])
        self._starting = options.get("starting", "earliest")
        self._skips = options.get("skipChangeCommits") == "true"
        self._schema = schema
        self._target: int | None = None
        self._looks = 0

    def getDefaultReadLimit(self) -> ReadLimit:
        """Everything that is there."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        table = existing_delta(self._path)
        return _offset(table, table.version() if self._starting == "latest" else _NOTHING)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a query that ends."""
        self._target = existing_delta(self._path).version()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the newest version."""
        if self._target is not None:
            return {**start, "version": max(self._target, start["version"])}
        version = int(start["version"])
        if version != _NOTHING and self._looks % _LOOK_ANEW:
            while _entry(self._path, version + 1).exists():
                version += 1
        else:
            version = max(version, self._same(start).version())
        self._looks += 1
        return {**start, "version": version}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return nothing: versions are no rows, by which a lag is told."""
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the files that a batch adds, for several tasks."""
        first, last = int(start["version"]), int(end["version"])
        if first == last:
            return []
        if first == _NOTHING:
            table = self._same(end)
            table.load_as_version(last)
            files = list(files_of(table))
        else:
            files = [file for version in range(first + 1, last + 1) for file in self._added(version)]
        return partitions_of(str(self._path), files) if files else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's files."""
        return read_files(cast("FilesPartition", partition), self._schema)

    def _added(self, version: int) -> Sequence[TableFile]:
        """Return the files whose rows a version adds.

        Raises:
            DataLossError: its entry is gone.
            TableDamagedError: it cannot be read.
            TableSchemaError: it deletes or replaces rows.
        """
        entry = _entry(self._path, version)
        try:
            text = entry.read_text()
        except FileNotFoundError:
            raise DataLossError(
                f"version {version} of the table {self._path.name} is not in its log any more, as the query was away "
                "for too long: begin anew with a restart from earliest or latest"
            ) from None
        try:
            actions = [json.loads(line) for line in text.split("\n") if line.strip()]
        except ValueError:
            actions = []
        if not actions:
            raise TableDamagedError(
                f"the table {self._path.name} is damaged: {entry} cannot be read; bring the file back from a backup, "
                "or move the table away"
            )
        added = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
        if any("remove" in action and action["remove"].get("dataChange", True) for action in actions):
            if self._skips:
                return []
            raise TableSchemaError(
                f"version {version} of the table {self._path.name} deletes or replaces rows, which a stream cannot "
                "take back: set skipChangeCommits to leave such versions out, or join the table instead"
            )
        return [TableFile(unquote(one["path"]), one.get("partitionValues") or {}) for one in added]

    def _same(self, offset: Mapping[str, Any]) -> DeltaTable:
        table = existing_delta(self._path)
        if str(table.metadata().id) != offset["table"]:
            raise DataLossError(
                f"the table {self._path.name} was made anew: begin anew with a restart from earliest or latest"
            )
        return table


class ChangesSource(TableSource):
    """The format of Spark's by which a query reads a table as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        return ChangesReader(self.options, schema)


def stream_of(spark: SparkSession, path: LakePath, starting: str, *, skips_changes: bool) -> DataFrame:
    """Return a table as a stream of the rows that its versions add.

    Args:
        spark: the session of the query.
        path: the table's folder.
        starting: ``earliest``: with the rows that are there; ``latest``: without.
        skips_changes: whether versions that delete or replace rows are left out.

    Raises:
        TableSchemaError: there is no Delta table.
    """
    table = existing_delta(path)
    activate(spark)
    spark.dataSource.register(ChangesSource)
    options = {
        "path": str(path.resolve()),
        "starting": starting,
        "skipChangeCommits": str(skips_changes).lower(),
        "schema": table.schema().to_json(),
    }
    frame: DataFrame = spark.readStream.format(FORMAT).options(**options).load()
    return frame


def _offset(table: DeltaTable, version: int) -> dict[str, Any]:
    return {"table": str(table.metadata().id), "version": version}


def _entry(path: LakePath, version: int) -> LakePath:
    return path / LOG / f"{version:020d}.json"
