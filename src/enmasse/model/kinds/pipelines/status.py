"""The status of a pipeline as observed: its queries, their sources, and what does not fit."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from enmasse.model.kinds.pipelines.backfills import BackfillStatus
from enmasse.model.schema.resource import ResourceStatus
from enmasse.model.schema.schema import Model

QueryState = Literal["Starting", "Running", "Waiting", "Failed", "Paused", "Finished"]


class DriftedField(Model):
    """A field that does not fit the schema of a source."""

    entry_keys: ClassVar[tuple[str, ...]] = ("source", "field")

    source: str
    """The source's name."""
    field: str
    """The column; empty: the message as a whole."""
    count: int
    """Messages since the runner started."""
    example: str | None = None
    """The problem with the last of some of them."""


class ExpectationStatus(Model):
    """The number of rows of a relation that did not meet an expectation."""

    entry_keys: ClassVar[tuple[str, ...]] = ("relation", "name")

    relation: str
    """The source or step."""
    name: str
    """The expectation."""
    rows: int = 0
    """Rows that were looked at."""
    failed: int = 0
    """Rows that did not meet it."""


class FailedRows(Model):
    """The number of rows of a relation that an expression failed for."""

    entry_keys: ClassVar[tuple[str, ...]] = ("relation",)

    relation: str
    """The step; or the source or step whose rows a sink computes something of."""
    count: int
    """Rows since the runner started."""
    example: str | None = None
    """Why the last of some of them did."""


class JoinedTable(Model):
    """A table that a query joins."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Its name."""
    version: str
    """The version that the last batch joined: the number of the Delta table's."""
    at: str
    """The time at which that was looked for."""


class SourceStatus(Model):
    """The progress of a query at one of its sources."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """The address."""
    rows: int = 0
    """Read since the runner started."""
    input_rows_per_second: float | None = None
    """The rate at which rows came before the last batch."""
    lag: int | None = None
    """Rows that are there and were not read yet; left out while the query does not run."""


class QueryStatus(Model):
    """One streaming query of a pipeline."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """After what it writes."""
    state: QueryState = "Starting"
    """The activity at present."""
    batch: int | None = None
    """The number of the last micro-batch."""
    rows: int = 0
    """Read since the runner started."""
    input_rows_per_second: float | None = None
    """The rate at which rows came before the last batch."""
    processed_rows_per_second: float | None = None
    """The rate at which the last batch went through them."""
    batch_duration_ms: int | None = None
    """The time that the last batch took, without waiting for rows."""
    last_progress: str | None = None
    """The time at which the last batch ended."""
    watermark: str | None = None
    """The moment before which rows are too late."""
    watermark_delay_ms: int | None = None
    """The time that the watermark is behind the present."""
    state_rows: int | None = None
    """Rows of state, such as windows that have not ended; a function with state has one for each bucket of keys."""
    state_bytes: int | None = None
    """Memory that the state takes."""
    late_rows: int | None = None
    """Left out because they were older than the watermark."""
    lag: int | None = None
    """Rows that are there and were not read yet; left out while the query does not run or does one batch for long."""
    bad_records: int | None = None
    """The messages that could not be decoded, or were refused."""
    drift: tuple[DriftedField, ...] = Field(default=(), strict=False)
    """The fields that do not fit the schemas of its sources, by column."""
    expectations: tuple[ExpectationStatus, ...] = Field(default=(), strict=False)
    """The expectations of rows, and how many rows did not meet them, since the runner started."""
    failed_rows: tuple[FailedRows, ...] = Field(default=(), strict=False)
    """The number of rows that an expression failed for, by relation."""
    restarts: int = 0
    """The number of starts after a failure."""
    sources: tuple[SourceStatus, ...] = Field(default=(), strict=False)
    """The progress at each of its sources."""
    tables: tuple[JoinedTable, ...] = Field(default=(), strict=False)
    """The tables that its batches join, each as the last batch did."""
    error: str | None = None
    """The error of the last failure."""


class PipelineStatus(ResourceStatus):
    """The progress of a pipeline."""

    observed_generation: int | None = None
    """The generation of the spec that this was found for."""
    queries: tuple[QueryStatus, ...] = Field(default=(), strict=False)
    """Each of its streaming queries."""
    rows: int = 0
    """Rows read since the runner started. What several queries read of one address counts once: as much as the
    query that has read most."""
    rate: float | None = None
    """Rows read a second; of each address by the query that reads fastest."""
    lag: int | None = None
    """Rows that are there and were not read yet; of each address by the query that is furthest behind."""
    last_error: str | None = None
    """The last failure of any query."""
    last_run: str | None = None
    """The time at which one that ends and runs again ended well."""
    next_run: str | None = None
    """The time at which one with a schedule runs again."""
    restarted_at: str | None = None
    """The last ``restart.at`` that was done."""
    backfill: BackfillStatus | None = None
    """The progress of the last backfill."""
    warnings: tuple[str, ...] = Field(default=(), strict=False)
    """The findings that are no faults and may surprise, as that a queue is consumed."""
