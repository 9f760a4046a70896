"""Backfill: partitions of a table that a pipeline computes again, and its progress."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

BackfillState = Literal["Waiting", "Running", "Done", "Refused", "Failed"]


class Backfill(Model):
    """Compute partitions of a table again, from what the stream keeps: once for each `at`."""

    at: str = Field(min_length=1, max_length=64)
    """Any text that was not there before; the command line writes the moment."""
    table: str | None = None
    """The table; left out: the only one that the pipeline writes."""
    start: str | None = Field(default=None, alias="from")
    """A moment, RFC 3339: the partitions of this time and later, by the first of `partitionBy` that is of time."""
    end: str | None = Field(default=None, alias="to")
    """A moment: the partitions before it. What is touched in part is computed as a whole."""
    partitions: dict[str, str] = Field(default_factory=dict, max_length=16)
    """Columns of `partitionBy` and the value that they have in the partitions, beside `from` and `to` or instead."""


class BackfillStatus(Model):
    """The progress of a backfill."""

    at: str
    """The backfill: `spec.backfill.at`."""
    state: BackfillState = "Waiting"
    """`Waiting`: for the query's first batch; `Refused`: it cannot be done so; `Failed`: it is tried again."""
    table: str | None = None
    """The table."""
    tasks: int | None = None
    """Parts of the work that are known yet."""
    tasks_done: int | None = None
    """The parts that are done."""
    rows: int | None = None
    """Rows that it put into the table."""
    rows_before: int | None = None
    """Rows that they have replaced."""
    partitions: int | None = None
    """Partitions that were replaced."""
    message: str | None = None
    """Why it waits, was refused or failed."""


def moment_of(text: str) -> datetime | None:
    """Return a moment in UTC; None: the text is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def backfill_problems(backfill: Backfill) -> Iterator[Problem]:
    """Yield what is wrong with a backfill as it is declared."""
    given = {"from": backfill.start, "to": backfill.end}
    for name, text in given.items():
        if text is not None and moment_of(text) is None:
            expected = "expected a moment such as 2026-01-31T12:00:00Z"
            yield Problem(f"spec.backfill.{name}", f"{expected}, got {describe_value(text)}")
    for column, value in backfill.partitions.items():
        if not value:
            # Either would take the rows of the other away.
            reason = "expected a value: an empty text and NULL lie in one folder, and cannot be chosen apart"
            yield Problem(f"spec.backfill.partitions.{column}", reason)
    if (backfill.start is None) != (backfill.end is None):
        missing = "from" if backfill.start is None else "to"
        yield Problem(f"spec.backfill.{missing}", "required: from and to go together")
        return
    if backfill.start is None or backfill.end is None:
        if not backfill.partitions:
            yield Problem("spec.backfill", "expected from and to, or partitions: which ones are to be computed again")
        return
    start, end = moment_of(backfill.start), moment_of(backfill.end)
    if start is not None and end is not None and start >= end:
        yield Problem("spec.backfill.to", f"expected a moment after from, got {describe_value(backfill.end)}")
