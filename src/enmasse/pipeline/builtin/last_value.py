"""``last-value``: the last value of each device and metric.

Rules:
1. Last is the one with the newest moment; of several, the one that the stream accepted last. So a
   message that comes late changes nothing.
2. There is one row of state for each row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import LastValueParameters
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of
from enmasse.pipeline.builtin.telemetry import readings_of, telemetry_messages
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

KEYS: Final = ("device", "metric")
STATE: Final = ("last values 1: device, metric -> time, timestamp, partition, offset, value",)


def build(context: PlanContext, parameters: LastValueParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the table and one for the address, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(LastValueParameters, parameters)
    last = last_values(readings_of(telemetry_messages(context, wanted), wanted, wanted.metrics))
    plans: list[QueryPlan | JobPlan] = []
    if wanted.table is not None:
        plans.append(QueryPlan("table", last, TableTarget(wanted.table, Layout(mode="update", keys=KEYS)), STATE))
        plans.append(compaction_of(context, wanted.table))
    if wanted.to is not None:
        message_id = F.concat_ws("/", "metric", "device", F.concat_ws("-", "partition", "offset"))
        messages = as_json_messages(last, message_id, ("partition", "offset"))
        plans.append(QueryPlan("messages", messages, AddressTarget(wanted.to, mode="update"), STATE))
    return plans


def last_values(readings: DataFrame) -> DataFrame:
    """Columns ``device, metric, value, time, accepted, partition, offset``; for output mode ``update``."""
    last = F.max(F.struct("time", "timestamp", "partition", "offset", "value")).alias("last")
    return (
        readings.groupBy(*KEYS)
        .agg(last)
        .selectExpr(
            "device",
            "metric",
            "last.value AS value",
            "last.time AS time",
            "last.timestamp AS accepted",
            "last.partition AS partition",
            "last.offset AS offset",
        )
    )
