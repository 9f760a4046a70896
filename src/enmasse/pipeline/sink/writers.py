"""The writers that Spark asks for: planned in the driver, run in its workers' processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from enmasse.pipeline.backup.locks import wait_for_backup
from enmasse.pipeline.credentials import Login
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.sink.columns import check_columns
from enmasse.pipeline.sink.connection import SpaceConnection
from enmasse.pipeline.sink.identity import Identity, Job, of_batch_task, of_streaming_task
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.task import Counts, SinkTask
from enmasse.pipeline.workers.settling import settle

_log = logging.getLogger(__name__)

_connections: dict[tuple[str, str, Login], SpaceConnection] = {}
"""A worker process runs one task after another, so it keeps its connections."""


@dataclass
class Written(WriterCommitMessage):
    """The outcomes of a task's rows."""

    counts: Counts


def _connection(options: SinkOptions) -> SpaceConnection:
    key = (options.url, options.space, options.login)
    kept = _connections.get(key)
    if kept is not None and kept.is_usable:
        return kept
    if kept is not None:
        del _connections[key]
        kept.close()
    made = _connections[key] = SpaceConnection(options)
    return made


@contextmanager
def sink_task(options: SinkOptions, identity: Identity) -> Iterator[SinkTask]:
    """Give what writes rows of the running task, over a connection that later tasks of the process use too."""
    try:
        yield SinkTask(options, identity, lambda: _connection(options))
    except BaseException:
        # What is under way is answered to nobody; the next task begins anew.
        for connection in _connections.values():
            connection.close()
        _connections.clear()
        raise


def _write(options: SinkOptions, identity: Identity, batches: Iterator[pa.RecordBatch]) -> Written:
    settle()
    with sink_task(options, identity) as task:
        return Written(task.write(batches))


def _report(what: str, messages: list[WriterCommitMessage | None]) -> None:
    settle()
    counts = [message.counts for message in messages if isinstance(message, Written)]
    refused = sum(count.refused for count in counts)
    skipped = sum(count.skipped for count in counts)
    if refused or skipped:
        rows = sum(count.rows for count in counts)
        _log.warning("%s: of %d rows %d were refused and %d skipped", what, rows, refused, skipped)


class EnmasseStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each row once where the address finds duplicates.

    Args:
        options: the options of the sink.
        schema: of what is written.

    Raises:
        OptionError: the columns do not fit.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('messages cannot be taken back: expected .outputMode("append") or ("update")')
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows; returns once each is accepted."""
        return _write(self._options, of_streaming_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything was accepted already; report what was not."""
        wait_for_backup()
        _report(f"batch {batchId}", messages)


class EnmasseWriter(DataSourceArrowWriter):
    """Writes a frame once; as :class:`EnmasseStreamWriter`."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('messages cannot be taken back: expected .mode("append")')
        check_columns(schema, options)
        self._options = options
        self._job = Job.of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows; returns once each is accepted."""
        return _write(self._options, of_batch_task(self._job), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything was accepted already; report what was not."""
        _report(f"the write {self._job.name}", messages)
