"""From Spark's progress reports to the status of a query."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from enmasse.model.kinds.pipelines import QueryState, QueryStatus

BAD_ROWS: Final = "bad rows of "
"""Prefix of the observations that count what could not be decoded; the source's name follows."""


@dataclass
class Progress:
    """The progress of one query since the runner started."""

    readings: tuple[int, ...] = ()
    """The number of times that the query reads each of its sources; once if not given."""
    batch: int | None = None
    rows: int = 0
    bad: int = 0
    late: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    """The newest report."""
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
        self.bad += bad_rows(report)
        self.late += sum(int(o.get("numRowsDroppedByWatermark") or 0) for o in report.get("stateOperators", ()))
        if "addBatch" in report.get("durationMs", {}):
            self.batch = int(report["batchId"])
        return True

    def status(self, name: str, state: QueryState, *, restarts: int, error: str | None) -> QueryStatus:
        """Return the status of the query.

        Args:
            name: the query's name within its pipeline.
            state: whether it runs.
            restarts: how often it was started again.
            error: of its last failure.
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
            input_rows_per_second=self._rate("inputRowsPerSecond"),
            processed_rows_per_second=self._rate("processedRowsPerSecond"),
            batch_duration_ms=last.get("durationMs", {}).get("triggerExecution"),
            last_progress=last.get("timestamp"),
            watermark=None if behind is None else watermark,
            watermark_delay_ms=behind,
            state_rows=sum(int(o.get("numRowsTotal") or 0) for o in operators) if operators else None,
            state_bytes=sum(int(o.get("memoryUsedBytes") or 0) for o in operators) if operators else None,
            late_rows=self.late if operators else None,
            lag=_lag(last.get("sources", ())),
            bad_records=self.bad,
            restarts=restarts,
            error=error,
        )

    def _rows(self, report: Mapping[str, Any]) -> int:
        """Return the rows of a batch, each counted once."""
        sources = report.get("sources", ())
        if len(sources) != len(self.readings):
            return int(report.get("numInputRows") or 0)
        pairs = zip(sources, self.readings, strict=True)
        return sum(int(source.get("numInputRows") or 0) // count for source, count in pairs)

    def _rate(self, name: str) -> float | None:
        reported, counted = self.last.get(name), int(self.last.get("numInputRows") or 0)
        if not isinstance(reported, int | float) or not math.isfinite(reported):
            return None
        return round(float(reported) * (self._rows(self.last) / counted if counted else 1), 1)


def bad_rows(report: Mapping[str, Any]) -> int:
    """Return how many rows of a batch could not be decoded."""
    observed = report.get("observedMetrics") or {}
    return sum(int(row.get("bad") or 0) for name, row in observed.items() if name.startswith(BAD_ROWS))


def _behind(watermark: str | None, reported: str | None) -> int | None:
    """Milliseconds at the moment of the report: a status that changes by itself would be written each second."""
    if watermark is None or reported is None:
        return None
    moment = datetime.fromisoformat(watermark)
    if moment.year <= 1970:
        return None  # Spark gives this while there was no row yet.
    return int((datetime.fromisoformat(reported) - moment).total_seconds() * 1000)


def _lag(sources: Any) -> int | None:
    """Rows that the sources have beyond what was read; None where no source reports them."""
    total = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None or end.get("stream") != latest.get("stream"):
            continue
        numbers = [max(0, last - end.get(key, 0)) for key, last in latest.items() if isinstance(last, int)]
        total = (total or 0) + sum(numbers)
    return total


def _offsets(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
