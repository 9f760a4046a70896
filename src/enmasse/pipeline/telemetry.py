"""The built-in telemetry job: every raw message, statistics per device and window, and alerts.

A message is JSON such as ``{"device": "boiler-1", "temperature": 21.5, "ts": 1764000000000}``: a name,
a moment (ISO 8601 or milliseconds; optional), and any number of metrics. Without ``device`` the
message's key names it. What is not such a message is kept in ``raw`` and is nowhere else.

Three streaming queries, each with its own checkpoint:

    raw       every message as it came               -> table ``raw``
    windows   statistics once a window is complete   -> table ``windows``
    live      the same statistics while they grow    -> progress lines and alerts

Rules:
1. The tables hold each message and each window exactly once (see ``tables``).
2. Alerts are sent at least once, with an id that stays the same (see ``bands``).
3. A message counts at the moment it names, but never later than it was accepted: one device whose
   clock runs ahead must not make the rows of all the others late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.pipeline.bands import Alert, Band, Bands, Reading, find_alerts
from enmasse.pipeline.tables import BatchTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["TelemetryJob", "TelemetrySettings", "readings_of", "windows_of"]

Report = Callable[..., None]
"""Takes an event's name and its fields."""

_MOMENT = """
    least(timestamp, coalesce(
        CASE WHEN ts RLIKE '^[0-9]{1,15}([.][0-9]+)?$' THEN timestamp_micros(CAST(
            CAST(ts AS DOUBLE) * CASE WHEN CAST(ts AS DOUBLE) < 1e11 THEN 1e6 ELSE 1e3 END AS BIGINT
        )) END,
        try_to_timestamp(ts),
        timestamp
    ))
"""
"""Numbers below 1e11 are seconds: as milliseconds they would lie before 1974."""

_SENT_REMEMBERED = 10_000
"""Alerts of the last windows, to spare receivers repeats; forgetting one only repeats it."""


@dataclass(frozen=True)
class TelemetrySettings:
    """What the job reads, where it writes and when it speaks."""

    url: str
    address: str
    out: Path
    """Folder of the tables ``raw`` and ``windows``."""
    checkpoint: Path
    """Folder of the queries' checkpoints; belongs to ``out`` for ever."""
    space: str = ""
    starting: str = "earliest"
    max_rows: int | None = None
    """Rows of one micro-batch at most."""
    metric: str = "temperature"
    """The metric that has a band."""
    bands: Bands = field(default_factory=lambda: Bands(Band(10.0, 35.0)))
    window_s: int = 10
    lateness_s: int = 10
    """How much older than the newest reading one may be and still count."""
    live_trigger_s: float = 1.0
    """How soon a reading outside its band is an alert."""
    table_trigger_s: float = 2.0
    """How often the table of raw messages grows; each time by a file per partition."""
    windows_trigger_s: float = 5.0
    """How often the table of windows does; a window is complete once in ``window_s``."""


def readings_of(stream: DataFrame) -> DataFrame:
    """Rows ``device, metric, value, time``, one for each number in each telemetry message."""
    messages = stream.selectExpr(
        "timestamp", "key", "from_json(CAST(value AS STRING), 'MAP<STRING, STRING>') AS message"
    )
    named = messages.selectExpr(
        "timestamp",
        "message",
        "try_element_at(message, 'ts') AS ts",
        "coalesce(nullif(try_element_at(message, 'device'), ''), nullif(CAST(key AS STRING), '')) AS device",
    )
    metrics = named.selectExpr(
        "device",
        f"{_MOMENT} AS time",
        "explode(map_filter(message, (name, _) -> name NOT IN ('device', 'ts'))) AS (metric, text)",
    )
    values = metrics.selectExpr("device", "metric", "try_cast(text AS DOUBLE) AS value", "time")
    return values.where("device IS NOT NULL AND abs(value) < double('Infinity')")


def windows_of(readings: DataFrame, window_s: int, lateness_s: int) -> DataFrame:
    """Statistics by device, metric and window."""
    groups = readings.withWatermark("time", f"{lateness_s} seconds").groupBy(
        F.window("time", f"{window_s} seconds"), "device", "metric"
    )
    statistics = groups.agg(
        F.count("value").alias("count"),
        F.avg("value").alias("mean"),
        F.min("value").alias("min"),
        F.max("value").alias("max"),
        F.stddev_samp("value").alias("stddev"),
    )
    return statistics.selectExpr(
        "window.start AS window_start",
        "window.end AS window_end",
        "device",
        "metric",
        "count",
        "mean",
        "min",
        "max",
        "stddev",
    )


class TelemetryJob:
    """Starts the job's queries in a session.

    Args:
        spark: where they run.
        settings: what to do.
        send: delivers alerts and returns when every one was accepted.
        report: hears of windows, alerts and table growth; called from other threads.
    """

    QUERIES = ("raw", "windows", "live")

    def __init__(
        self,
        spark: SparkSession,
        settings: TelemetrySettings,
        send: Callable[[list[Alert]], None],
        report: Report,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._send = send
        self._report = report
        self._sent: dict[str, None] = {}

    def start(self, name: str) -> StreamingQuery:
        """Start one of ``QUERIES``; it goes on where its checkpoint ends.

        Raises:
            TableMismatchError: a table was written under another checkpoint.
        """
        settings = self._settings
        starters: dict[str, Callable[[], StreamingQuery]] = {
            "raw": lambda: self._start_table("raw", self._stream, settings.table_trigger_s),
            "windows": lambda: self._start_table("windows", self._windows(), settings.windows_trigger_s),
            "live": lambda: self._start(
                "live", self._windows(), "update", settings.live_trigger_s, self._on_live_batch
            ),
        }
        # A pool for each, so that a large batch of one does not hold up the others.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return starters[name]()

    @cached_property
    def _stream(self) -> DataFrame:
        """The rows; made once, for Spark asks a new Python process about each."""
        settings = self._settings
        reader = (
            self._spark.readStream.format("enmasse")
            .option("url", settings.url)
            .option("address", settings.address)
            .option("startingOffsets", settings.starting)
        )
        if settings.space:
            reader = reader.option("space", settings.space)
        if settings.max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", settings.max_rows)
        return reader.load()

    def _windows(self) -> DataFrame:
        return windows_of(readings_of(self._stream), self._settings.window_s, self._settings.lateness_s)

    def _start_table(self, name: str, frame: DataFrame, trigger_s: float) -> StreamingQuery:
        out = self._settings.out.resolve()
        table = BatchTable(out / name, out / "_staging")
        table.check_owner(self._settings.checkpoint.resolve() / name)

        def on_batch(rows: DataFrame, batch: int) -> None:
            query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query is not None
            self._report("table", table=name, batch=batch, rows=table.add(rows, batch, query))

        return self._start(name, frame, "append", trigger_s, on_batch)

    def _start(
        self,
        name: str,
        frame: DataFrame,
        mode: str,
        trigger_s: float,
        on_batch: Callable[[DataFrame, int], None],
    ) -> StreamingQuery:
        return (
            frame.writeStream.queryName(name)
            .outputMode(mode)
            .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
            .option("checkpointLocation", str(self._settings.checkpoint.resolve() / name))
            .foreachBatch(on_batch)
            .start()
        )

    def _on_live_batch(self, frame: DataFrame, _batch: int) -> None:
        readings = [_reading(row.asDict()) for row in _with_micros(frame).collect()]
        for reading in readings:
            self._report("window", **reading.to_json())
        settings = self._settings
        alerts = [a for a in find_alerts(readings, settings.bands, settings.metric) if a.id not in self._sent]
        if not alerts:
            return
        self._send(alerts)
        for alert in alerts:
            self._sent[alert.id] = None
            self._report("alert", **alert.to_json())
        while len(self._sent) > _SENT_REMEMBERED:
            del self._sent[next(iter(self._sent))]


def _with_micros(frame: DataFrame) -> DataFrame:
    """Moments as numbers, which mean the same in every time zone of a driver."""
    return frame.withColumns({name: F.unix_micros(name) for name in ("window_start", "window_end")})


def _reading(row: dict[str, Any]) -> Reading:
    return Reading(
        row["device"],
        row["metric"],
        _moment(row["window_start"]),
        _moment(row["window_end"]),
        row["count"],
        row["mean"],
        row["min"],
        row["max"],
        row["stddev"],
    )


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
