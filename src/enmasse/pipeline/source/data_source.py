"""``format("enmasse")``: a stream address as a streaming or batch table, and the sink for any address.

Spark makes one planner process per query, where offsets are planned, and hands a pickled copy of
the reader to its workers, where ranges are read. Connections are made on first use and never pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from enmasse.model.sql.ddl import written
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.source import consumed
from enmasse.pipeline.source.columns import join_batches
from enmasse.pipeline.source.frames_client import Connections
from enmasse.pipeline.source.offsets import Position, Span, plan_spans
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.planner import Planner
from enmasse.pipeline.source.pushdown import Wanted, restrict
from enmasse.pipeline.source.reading import read_span
from enmasse.pipeline.source.several import SeveralReader, SeveralStreamReader
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from enmasse.pipeline.sink.writers import EnmasseStreamWriter, EnmasseWriter

_workers_connections = Connections()
"""A worker process reads one range after another, so it keeps its connections."""


class _SpanPartition(InputPartition):
    """A range on its way to the task that reads it."""

    def __init__(self, span: Span) -> None:
        super().__init__(tuple(span))
        self.span = span


class EnmasseDataSource(DataSource):
    """Rows of a stream address: ``partition, offset, timestamp, key, value``, and more by options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "enmasse"

    def schema(self) -> str:
        """Return the columns.

        Raises:
            OptionError: an option is wrong.
        """
        if several := SourceOptions.several(consumed.shared(self.options), is_batch=True):
            options = next(iter(several.values()))
            ddl = written(options.columns)
            return ddl if options.include_properties else f"{ddl}, address STRING"
        return written(SourceOptions.parse(consumed.shared(self.options), is_batch=True).columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query.

        Raises:
            OptionError: an option or the schema is wrong.
            StreamUnavailableError: the node stayed away.
        """
        if several := SourceOptions.several(consumed.shared(self.options)):
            return SeveralStreamReader(several, _read_span)
        options = _checked(SourceOptions.parse(consumed.shared(self.options)), schema)
        return consumed.stream_reader(self.options) or EnmasseStreamReader(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query, from the earliest row to the latest unless the options name others.

        Raises:
            OptionError: an option or the schema is wrong.
        """
        if several := SourceOptions.several(consumed.shared(self.options), is_batch=True):
            readers = {name: EnmasseReader(options) for name, options in several.items()}
            return SeveralReader(readers, several, _read_span)
        options = _checked(SourceOptions.parse(consumed.shared(self.options), is_batch=True), schema)
        return consumed.batch_reader(self.options) or EnmasseReader(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> EnmasseStreamWriter:
        """Return the writer of a streaming query.

        Raises:
            OptionError: an option or a column is wrong.
        """
        # Here, as each query has a planner's process for as long as it runs, and that never writes.
        from enmasse.pipeline.sink.writers import EnmasseStreamWriter  # noqa: PLC0415

        settle()
        return EnmasseStreamWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> EnmasseWriter:
        """Return the writer of a batch.

        Raises:
            OptionError: an option or a column is wrong.
        """
        from enmasse.pipeline.sink.writers import EnmasseWriter  # noqa: PLC0415  # the same

        settle()
        return EnmasseWriter(SinkOptions.parse(self.options, is_batch=True), schema, overwrite=overwrite)


def _checked(options: SourceOptions, schema: StructType) -> SourceOptions:
    if schema.fieldNames() != [column.name for column in options.columns]:
        raise OptionError(f"format enmasse gives the columns {written(options.columns)}; leave out .schema(...)")
    return options


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _SpanPartition)
    return _read_span(options, partition.span)


def _read_span(options: SourceOptions, span: Span) -> Iterator[pa.RecordBatch]:
    settle()
    return join_batches(
        read_span(
            span,
            # Not the place that the node names: it knows its port, but not how we came there.
            lambda: _workers_connections.get(options.url, options),
            fail_on_data_loss=options.fail_on_data_loss,
            backoff=Backoff(options.retry_timeout_s),
            properties_of=options.address if options.include_properties else "",
            with_headers=options.include_headers,
            topic="" if options.include_topic_name else None,
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
                options, lambda: connections.get(options.url, options), Backoff(options.retry_timeout_s)
            )
        return self._planner

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger`` or ``maxBytesPerTrigger``, else everything."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return self._plan().initial().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a query that ends."""
        self._plan().fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; waits a while for news."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        # Spark knows no limit of both kinds; where it asks for everything, it is to have everything.
        max_bytes = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes
        return self._plan().latest(Position.from_json(start), max_rows, max_bytes).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the stream as last seen, for the query's progress."""
        state = self._plan().state
        if state is None:
            return None
        return Position(state.stream, {n: p.next for n, p in state.partitions.items()}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch, one a task."""
        spans = self._plan().spans(Position.from_json(start), Position.from_json(end))
        return [_SpanPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range."""
        return _read(self._options, partition)

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._connections is not None:
            self._connections.close()
            self._connections = self._planner = None


class _PushFilters:
    """``pushFilters`` for sessions that push filters down, and none for the others.

    Where that is off, as by default, Spark refuses a reader that implements it, which it recognizes by ``__func__``.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._wanted.push(filters)


class EnmasseReader(DataSourceReader):
    """Reads from ``startingOffsets`` to ``endingOffsets``, fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()

    @property
    def pushFilters(self) -> _PushFilters:
        """Takes up filters of partition, offset and timestamp."""
        return _PushFilters(self._wanted)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges, one a task."""
        options, wanted = self._options, self._wanted
        connections = Connections()
        try:
            backoff = Backoff(options.retry_timeout_s)
            planner = Planner(options, lambda: connections.get(options.url, options), backoff)
            first = None if wanted.time.start is None else planner.rows_since(wanted.time.start)
            after = None if wanted.time.end is None else planner.rows_since(wanted.time.end)
            end = planner.resolve("endingOffsets", options.ending)
            start = planner.initial()
            start, end = restrict(start, end, wanted, first=first, after=after)
            planner.check_gaps(start)
            state = planner.state
            assert state is not None
        finally:
            connections.close()
        spans = plan_spans(start, end, state, min_partitions=options.min_partitions, max_rows=options.max_task_rows)
        nothing = Span(state.stream, 0, 0, 0)
        # Spark reads a table without partitions as one unknown partition.
        return [_SpanPartition(span) for span in spans or [nothing]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range."""
        return _read(self._options, partition)
