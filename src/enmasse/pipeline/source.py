"""``format("enmasse")``: a stream address as a streaming or batch table.

Spark makes one planner process per query, where offsets are planned, and hands a pickled copy of
the reader to its workers, where ranges are read. Connections are made on first use and never pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from enmasse.pipeline.columns import SCHEMA, SCHEMA_DDL, join_batches
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.frames_client import Connections
from enmasse.pipeline.offsets import Position, Span, plan_spans, resolve_bounds
from enmasse.pipeline.options import EARLIEST, SourceOptions
from enmasse.pipeline.patience import Patience
from enmasse.pipeline.planner import Planner
from enmasse.pipeline.reading import read_span

__all__ = ["EnmasseDataSource"]

_workers_connections = Connections()
"""A worker process reads one range after another, so it keeps its connections."""


class _SpanPartition(InputPartition):
    """A range on its way to the task that reads it."""

    def __init__(self, span: Span) -> None:
        super().__init__(tuple(span))
        self.span = span


class EnmasseDataSource(DataSource):
    """Rows of a stream address: ``partition, offset, timestamp, key, value``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "enmasse"

    def schema(self) -> str:
        """The columns, always these."""
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> EnmasseStreamReader:  # noqa: N802  # Spark's name
        """The reader of a streaming query.

        Raises:
            OptionError: an option or the schema is wrong.
        """
        _check_schema(schema)
        return EnmasseStreamReader(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> EnmasseReader:
        """The reader of a batch query, from the earliest row to the latest unless told otherwise.

        Raises:
            OptionError: an option or the schema is wrong.
        """
        _check_schema(schema)
        return EnmasseReader(SourceOptions.parse(self.options, default_start=EARLIEST))


def _check_schema(schema: StructType) -> None:
    if schema.fieldNames() != SCHEMA.names:
        raise OptionError(f"format enmasse gives the columns {SCHEMA_DDL}; leave out .schema(...)")


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _SpanPartition)
    span = partition.span
    return join_batches(
        read_span(
            span,
            lambda: _workers_connections.get(span.url or options.url, options),
            fail_on_data_loss=options.fail_on_data_loss,
            patience=Patience(options.retry_timeout_s),
        )
    )


class EnmasseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches by offset and reads ranges; a batch read again gives the same rows."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._connections: Connections | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_options": self._options, "_planner": None, "_connections": None}

    def _plan(self) -> Planner:
        if self._planner is None:
            connections = self._connections = Connections()
            options = self._options
            self._planner = Planner(
                options, lambda: connections.get(options.url, options), Patience(options.retry_timeout_s)
            )
        return self._planner

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger``, else everything."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return self._plan().initial().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a query that ends."""
        self._plan().fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; waits a while for news."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._plan().latest(Position.from_json(start), max_rows).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the stream as last seen, for the query's progress."""
        state = self._plan().state
        if state is None:
            return None
        return Position(state.stream, {n: p.next for n, p in state.partitions.items()}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a batch, one a task."""
        spans = self._plan().spans(Position.from_json(start), Position.from_json(end))
        return [_SpanPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return _read(self._options, partition)

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._connections is not None:
            self._connections.close()
            self._connections = self._planner = None


class EnmasseReader(DataSourceReader):
    """Reads from ``startingOffsets`` to ``endingOffsets``, fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The ranges, one a task."""
        options = self._options
        patience = Patience(options.retry_timeout_s)
        connections = Connections()
        try:
            planner = Planner(options, lambda: connections.get(options.url, options), patience)
            start = planner.initial()
            state = planner.state
            assert state is not None
            end = resolve_bounds("endingOffsets", options.ending, state)
            planner.check_gaps(start)
        finally:
            connections.close()
        spans = plan_spans(start, end, state, min_partitions=options.min_partitions)
        nothing = Span(state.stream, 0, 0, 0, "")
        # Spark reads a table without partitions as one unknown partition.
        return [_SpanPartition(span) for span in spans or [nothing]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return _read(self._options, partition)
