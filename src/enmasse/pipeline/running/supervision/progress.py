"""From Spark's progress reports to the status of a query."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from enmasse.model.kinds.pipelines.status import (
    DriftedField,
    ExpectationStatus,
    FailedRows,
    QueryState,
    QueryStatus,
    SourceStatus,
)
from enmasse.pipeline.decoding import BAD_ROWS, COUNT_OF, EXAMPLE_OF
from enmasse.pipeline.running.steps.expectations import ALL, EXPECTED
from enmasse.pipeline.running.steps.late_rows import AFTER, BEFORE, LATE
from enmasse.pipeline.running.steps.verdicts import COUNT, EVERY, EXAMPLE, name_of

RECENT: Final = 20
"""Batches of which the share of what did not fit is told."""


@dataclass
class Progress:
    """The progress of one query since the runner started."""

    readings: tuple[tuple[str, int], ...] = ()
    """The query's sources and how often it reads each; not given: not told apart, and read once."""
    batch: int | None = None
    rows: int = 0
    rows_of: dict[str, int] = field(default_factory=dict)
    """Rows by source."""
    bad: int = 0
    drift: dict[tuple[str, str], tuple[int, str | None]] = field(default_factory=dict)
    """By source and column, how many rows did not fit, and an example."""
    expected: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By relation and expectation, how many rows there were, and how many did not meet it."""
    failed: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """By relation, for how many rows an expression failed, and an example."""
    news: list[str] = field(default_factory=list)
    """Lines for the log about what does not fit or is not met for the first time."""
    recent: deque[dict[str, tuple[int, int]]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Of the last batches with rows, by source, how many there were and how many of them did not fit."""
    recent_failed: deque[dict[str, tuple[int, int]]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The same by relation, of rows and those that an expression failed for."""
    late: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    """The newest report."""
    batch_ms: int | None = None
    """The time that the last batch took, without the time in which there was nothing to do."""
    processed: float | None = None
    """Its rows a second."""
    reported: tuple[str, int, str] | None = None
    """Run, batch and moment of the newest report, as reports may be seen again."""

    def take(self, report: Mapping[str, Any]) -> bool:
        """Count a report; whether it was a new one.

        Args:
            report: ``StreamingQueryProgress`` as JSON.
        """
        mark = (str(report.get("runId")), int(report["batchId"]), str(report.get("timestamp")))
        if mark == self.reported:
            return False
        self.reported = mark
        self.last = report
        self.rows += self._rows(report)
        for name, source, count in self._sources(report):
            self.rows_of[name] = self.rows_of.get(name, 0) + int(source.get("numInputRows") or 0) // count
        self.bad += bad_rows(report)
        self._note_drift(report)
        self._note_expectations(report)
        self._note_failed(report)
        self.late += sum(int(o.get("numRowsDroppedByWatermark") or 0) for o in report.get("stateOperators", ()))
        for name, row in (report.get("observedMetrics") or {}).items():
            if name.startswith(LATE):
                self.late += int(row.get(BEFORE) or 0) - int(row.get(AFTER) or 0)
        took = report.get("durationMs", {})
        if "addBatch" in took:
            self.batch = int(report["batchId"])
            # A source that waits for news does so while it is asked for its latest offset.
            self.batch_ms = max(0, int(took.get("triggerExecution") or 0) - int(took.get("latestOffset") or 0))
            self.processed = round(self._rows(report) / max(1, self.batch_ms) * 1000, 1)
        return True

    def status(
        self, name: str, state: QueryState, *, restarts: int, error: str | None, is_counted: bool
    ) -> QueryStatus:
        """Return the status of the query.

        Args:
            name: the query's name within its pipeline.
            state: whether it runs.
            restarts: the number of its restarts.
            error: the error of its last failure.
            is_counted: whether the newest report says what is there to be read: of what comes while the query does
                not run, or does a batch for long, Spark says nothing.
        """
        last = self.last
        operators = last.get("stateOperators", ())
        watermark = last.get("eventTime", {}).get("watermark")
        behind = _behind(watermark, last.get("timestamp"))
        return QueryStatus(
            name=name,
            state=state,
            batch=self.batch,
            rows=self.rows,
            input_rows_per_second=self._input_rate(),
            processed_rows_per_second=self.processed,
            batch_duration_ms=self.batch_ms,
            last_progress=last.get("timestamp"),
            watermark=None if behind is None else watermark,
            watermark_delay_ms=behind,
            state_rows=sum(int(o.get("numRowsTotal") or 0) for o in operators) if operators else None,
            state_bytes=sum(int(o.get("memoryUsedBytes") or 0) for o in operators) if operators else None,
            late_rows=self.late if operators else None,
            lag=_lag(last.get("sources", ())) if is_counted else None,
            sources=tuple(
                SourceStatus(
                    name=source_name,
                    rows=self.rows_of.get(source_name, 0),
                    input_rows_per_second=_rounded(source.get("inputRowsPerSecond"), count),
                    lag=_lag([source]) if is_counted else None,
                )
                for source_name, source, count in self._sources(last)
            ),
            bad_records=self.bad,
            drift=tuple(
                DriftedField(source=source, field=column, count=count, example=example)
                for (source, column), (count, example) in sorted(self.drift.items())
            ),
            expectations=tuple(
                ExpectationStatus(relation=relation, name=rule, rows=rows, failed=failed)
                for (relation, rule), (rows, failed) in self.expected.items()
            ),
            failed_rows=tuple(
                FailedRows(relation=relation, count=count, example=example)
                for relation, (count, example) in sorted(self.failed.items())
            ),
            restarts=restarts,
            error=error,
        )

    def _note_drift(self, report: Mapping[str, Any]) -> None:
        shares: dict[str, tuple[int, int]] = {}
        for name, row in (report.get("observedMetrics") or {}).items():
            if not name.startswith(BAD_ROWS):
                continue
            source = name.removeprefix(BAD_ROWS)
            if row.get("all"):
                shares[source] = int(row["all"]), int(row.get("bad") or 0)
            counts = {key.removeprefix(COUNT_OF): int(row[key] or 0) for key in row if key.startswith(COUNT_OF)}
            for column, count in counts.items():
                if count:
                    if (source, column) not in self.drift:
                        example = row.get(f"{EXAMPLE_OF}{column}")
                        by = f"by {column}" if column else "as a whole"
                        self.news.append(f"source {source}: {count:,} messages do not fit {by}, as {example}")
                    known, _ = self.drift.get((source, column), (0, None))
                    self.drift[source, column] = known + count, row.get(f"{EXAMPLE_OF}{column}")
        if shares:
            self.recent.append(shares)

    def _note_expectations(self, report: Mapping[str, Any]) -> None:
        # A query that was made of several reports each of them, of the same rows.
        observed = (report.get("observedMetrics") or {}).items()
        named = ((name.removeprefix(EXPECTED), row) for name, row in observed if name.startswith(EXPECTED))
        for relation, row in {name.partition("#")[0]: row for name, row in named}.items():
            every = int(row.get(ALL) or 0)
            for rule in (key for key in row if key != ALL):
                rows, failed = self.expected.get((relation, rule), (0, 0))
                if not failed and row[rule]:
                    self.news.append(f"{relation}: {row[rule]:,} of {every:,} rows do not meet {rule}")
                self.expected[relation, rule] = rows + every, failed + int(row[rule] or 0)

    def _note_failed(self, report: Mapping[str, Any]) -> None:
        # By place where rows are judged: a query that has it twice reports each.
        places: dict[str, tuple[int, int, str, str | None]] = {}
        for name, row in (report.get("observedMetrics") or {}).items():
            relation = name_of(name)
            if relation is not None:
                found = int(row[COUNT] or 0), int(row[EVERY] or 0), relation, row.get(EXAMPLE)
                place = name.rpartition(".")[0]
                places[place] = max(places.get(place, found), found, key=lambda one: one[:2])
        shares: dict[str, tuple[int, int]] = {}
        for count, rows, relation, example in places.values():
            if count:
                if relation not in self.failed:
                    self.news.append(f"{relation}: an expression fails for {count:,} of {rows:,} rows, as {example}")
                self.failed[relation] = self.failed.get(relation, (0, None))[0] + count, example
            if rows:
                every, bad = shares.get(relation, (0, 0))
                shares[relation] = max(every, rows), bad + count
        if shares:
            self.recent_failed.append(shares)

    def bad_share(self, source: str) -> float:
        """Return the share of a source's rows in the last batches that did not fit."""
        return _share(self.recent, source)

    def failed_share(self, relation: str) -> float:
        """Return the share of a relation's rows in the last batches that an expression failed for."""
        return _share(self.recent_failed, relation)

    def _rows(self, report: Mapping[str, Any]) -> int:
        """Return the rows of a batch, each counted once."""
        sources = self._sources(report)
        if not sources:
            return int(report.get("numInputRows") or 0)
        return sum(int(source.get("numInputRows") or 0) // count for _, source, count in sources)

    def _sources(self, report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], int]]:
        """Return what a report says of each source, with its name and how often it is read."""
        sources = report.get("sources", ())
        if len(sources) != len(self.readings):
            return []
        pairs = zip(self.readings, sources, strict=True)
        return [(name, source, count) for (name, count), source in pairs]

    def _input_rate(self) -> float | None:
        reported, counted = self.last.get("inputRowsPerSecond"), int(self.last.get("numInputRows") or 0)
        if not isinstance(reported, int | float) or not math.isfinite(reported):
            return None
        return round(float(reported) * (self._rows(self.last) / counted if counted else 1), 1)


def _share(recent: Iterable[Mapping[str, tuple[int, int]]], name: str) -> float:
    rows, bad = (sum(shares.get(name, (0, 0))[index] for shares in recent) for index in (0, 1))
    return bad / rows if rows else 0.0


def sentence_about(query: QueryStatus) -> str:
    """Return how far a query is, for its log."""
    found = [f"batch {query.batch}", f"{query.rows:,} rows since the runner started"]
    found += [] if query.batch_duration_ms is None else [f"the last batch took {query.batch_duration_ms:,} ms"]
    rate = query.processed_rows_per_second
    found += [] if rate is None else [f"at {rate:,.0f} rows a second"]
    found += [] if query.lag is None else [f"lag {query.lag:,}"]
    behind = query.watermark_delay_ms
    found += [] if behind is None else [f"watermark {behind / 1000:,.1f} s behind"]
    found += [f"{query.late_rows:,} late rows"] if query.late_rows else []
    found += [] if query.state_rows is None else [f"{query.state_rows:,} rows of state"]
    found += [f"{query.bad_records:,} bad records"] if query.bad_records else []
    failed = sum(one.count for one in query.failed_rows)
    found += [f"{failed:,} rows for which an expression failed"] if failed else []
    return ", ".join(found)


def sum_of_most(queries: Iterable[QueryStatus], field: str) -> float | None:
    """Return the sum over all addresses of what the query has that has most; None: nothing is known.

    A query whose sources are not told apart counts as it is.
    """
    most: dict[str, float] = {}
    for query in queries:
        told: dict[str, SourceStatus | QueryStatus] = {source.name: source for source in query.sources}
        for name, status in (told or {f"query {query.name}": query}).items():
            if (value := getattr(status, field)) is not None:
                most[name] = max(most.get(name, 0), value)
    return round(sum(most.values()), 1) if most else None


def _rounded(rate: Any, count: int) -> float | None:
    """Return a rate of Spark's for rows that are counted so often."""
    return round(float(rate) / count, 1) if isinstance(rate, int | float) and math.isfinite(rate) else None


def bad_rows(report: Mapping[str, Any]) -> int:
    """Return how many rows of a batch could not be decoded."""
    observed = report.get("observedMetrics") or {}
    return sum(int(row.get("bad") or 0) for name, row in observed.items() if name.startswith(BAD_ROWS))


def _behind(watermark: str | None, reported: str | None) -> int | None:
    """Return how far a watermark is behind the moment of a report, in milliseconds.

    Not behind the present: a status that changes by itself would be written each second.
    """
    if watermark is None or reported is None:
        return None
    moment = datetime.fromisoformat(watermark)
    if moment.year <= 1970:
        return None  # Spark gives this while there was no row yet.
    return int((datetime.fromisoformat(reported) - moment).total_seconds() * 1000)


def _lag(sources: Any) -> int | None:
    """Return how many rows the sources have beyond what was read; None where no source reports them."""
    total = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        # Of several streams each has its own.
        pairs = [(end.get(name), at) for name, at in latest.items()] if "stream" not in latest else [(end, latest)]
        for reached, at in pairs:
            if isinstance(reached, dict) and isinstance(at, dict) and reached.get("stream") == at.get("stream"):
                numbers = [max(0, last - reached.get(key, 0)) for key, last in at.items() if isinstance(last, int)]
                total = (total or 0) + sum(numbers)
    return total


def _offsets(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
