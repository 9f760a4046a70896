"""``windows``: statistics of each device, metric and window of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.builtins import WindowsParameters
from enmasse.model.kinds.pipelines.sinks import OutputMode
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of
from enmasse.pipeline.builtin.telemetry import readings_of, telemetry_messages
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

KEYS: Final = ("window_start", "device", "metric")


def build(context: PlanContext, parameters: WindowsParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the table and one for the address, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(WindowsParameters, parameters)
    slide = wanted.slide or wanted.size
    readings = readings_of(telemetry_messages(context, wanted), wanted, wanted.metrics)
    windows = windows_of(readings, milliseconds(wanted.size), milliseconds(slide), milliseconds(wanted.lateness))
    mode: OutputMode = "append" if wanted.emit == "final" else "update"
    spans = f"{milliseconds(wanted.size)} ms every {milliseconds(slide)} ms"
    state = (f"windows 1: {spans}, device, metric -> count, mean, min, max, stddev", f"output mode {mode}")
    plans: list[QueryPlan | JobPlan] = []
    if wanted.table is not None:
        target = TableTarget(wanted.table, Layout(mode=mode, keys=KEYS if mode == "update" else ()))
        plans.append(QueryPlan("table", windows, target, state))
        plans.append(compaction_of(context, wanted.table))
    if wanted.to is not None:
        start = F.unix_millis("window_start")
        parts = ("metric", "device", start) if mode == "append" else ("metric", "device", start, "count")
        messages = as_json_messages(windows, F.concat_ws("/", *parts))
        plans.append(QueryPlan("messages", messages, AddressTarget(wanted.to, mode=mode), state))
    return plans


def windows_of(readings: DataFrame, size_ms: int, slide_ms: int, lateness_ms: int) -> DataFrame:
    """Statistics by device, metric and window.

    Args:
        readings: with ``device, metric, value, time``.
        size_ms: the length of a window.
        slide_ms: the time from one window's begin to the next.
        lateness_ms: the most that a reading may be older than the newest one and still count.
    """
    window = F.window("time", f"{size_ms} milliseconds", f"{slide_ms} milliseconds")
    groups = readings.withWatermark("time", f"{lateness_ms} milliseconds").groupBy(window, "device", "metric")
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
