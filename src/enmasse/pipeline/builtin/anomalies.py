"""``anomalies``: alerts about readings that are not as they should be, or not as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.model.bands import limits
from enmasse.model.builtins import AnomaliesParameters
from enmasse.pipeline.builtin.anomaly_rules import AnomalyKeeper
from enmasse.pipeline.builtin.bucketed import by_bucket
from enmasse.pipeline.builtin.compaction import compaction_of
from enmasse.pipeline.builtin.messages import as_json_messages
from enmasse.pipeline.builtin.parameters import checked, seconds
from enmasse.pipeline.builtin.telemetry import readings_of, telemetry_messages
from enmasse.pipeline.running.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.plans import Scene

__all__ = ["alerts_of", "build"]

BUCKETS: Final = 8
"""More than the cores of a small machine, so that both halves of the work are about as large."""
MOST_ROWS: Final = 200_000
"""Of a batch: a worker holds a bucket's share at once, some 20 MB."""
STATE: Final = (f"anomalies 1: {BUCKETS} buckets of device, metric -> count, mean, variance, outside, told, heard",)


def build(scene: Scene, parameters: AnomaliesParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """A query for the address and one for the table, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(AnomaliesParameters, parameters)
    readings = readings_of(telemetry_messages(scene, wanted, most=MOST_ROWS), wanted.metrics)
    alerts = alerts_of(readings, wanted)
    plans: list[QueryPlan | JobPlan] = []
    if wanted.alerts is not None:
        messages = as_json_messages(alerts, F.col("id"))
        plans.append(QueryPlan("alerts", messages, AddressTarget(wanted.alerts), STATE))
    if wanted.table is not None:
        plans.append(QueryPlan("table", alerts, TableTarget(wanted.table), STATE))
        plans.append(compaction_of(scene, wanted.table))
    return plans


def alerts_of(readings: DataFrame, wanted: AnomaliesParameters) -> DataFrame:
    """The alerts that readings give rise to.

    Args:
        readings: as ``readings_of`` gives them.
        wanted: the rules.
    """
    keeper = AnomalyKeeper(
        bands={metric: limits(band) for metric, band in wanted.bands.items()},
        device_bands={
            (device, metric): limits(band)
            for device, bands in wanted.device_bands.items()
            for metric, band in bands.items()
        },
        deviations=wanted.deviations,
        alpha=wanted.alpha,
        warm_up=wanted.warm_up,
        min_deviation=wanted.min_deviation,
        repeat_s=None if wanted.repeat_after is None else seconds(wanted.repeat_after),
        cleared=wanted.cleared,
        forget_s=seconds(wanted.forget_after),
        most=max(1, wanted.max_devices // BUCKETS),
    )
    narrow = readings.selectExpr(
        "device",
        "metric",
        "value",
        "unix_micros(time) AS time_us",
        "unix_micros(timestamp) AS heard_us",
        "partition",
        "offset",
    )
    return by_bucket(narrow, keeper, BUCKETS).selectExpr(
        "id",
        "device",
        "metric",
        "state",
        "reason",
        "value",
        "low",
        "high",
        "mean",
        "deviation",
        "timestamp_micros(time_us) AS time",
        "text",
    )
