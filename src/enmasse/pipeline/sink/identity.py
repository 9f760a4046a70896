"""Identities of rows: they distinguish each row, and one that is written again from a new one.

Rules:
1. A task of a batch of a query is one producer's next numbers; a retried task and a replayed batch give
   the same numbers again.
2. Numbers rise: of a query with every batch, within a batch with every row and frame.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark import TaskContext

from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.sink.options import SinkOptions

FRAME_BITS = 20
"""A task's frames into one partition: a terabyte at 1 MiB each."""

ROW_BITS = 32
"""A task's rows."""

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass(frozen=True)
class Identity:
    """One task's output of one batch."""

    query: str
    """The query's id, or the name of a batch write."""
    batch: int
    task: int

    @property
    def producer(self) -> str:
        """Under which name it numbers what it sends."""
        return f"{self.query}/{self.task}"

    def frame_sequence(self, chunk: int) -> int:
        """Return the number of a frame among those of its partition."""
        return self.batch << FRAME_BITS | chunk

    def row_sequence(self, row: int) -> int:
        """Return the number of a row."""
        return self.batch << ROW_BITS | row

    def message_id(self, row: int) -> str:
        """Return a row's id."""
        return f"{self.query}/{self.batch}/{self.task}/{row}"

    def describe(self, row: int) -> str:
        """Return a row, in words."""
        return f"row {row} of task {self.task} in batch {self.batch} of {self.query}"


@dataclass(frozen=True)
class Job:
    """One batch write: its tasks, retried ones included, share it."""

    name: str
    sequence: int

    @classmethod
    def of(cls, options: SinkOptions) -> Job:
        """The name that its options give; else a random one."""
        return cls(options.producer or uuid.uuid4().hex, options.sequence)


def of_streaming_task() -> Identity:
    """Return what the running task of a streaming query writes.

    Raises:
        OptionError: there is no such task.
    """
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
    if context is None or query is None or batch is None:
        raise OptionError("the streaming sink runs in the tasks of a streaming query only")
    return Identity(query, int(batch), context.partitionId())


def of_batch_task(job: Job) -> Identity:
    """Return what the running task of a batch write writes."""
    context = TaskContext.get()
    return Identity(job.name, job.sequence, context.partitionId() if context is not None else 0)
