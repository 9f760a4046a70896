"""``lake``: every message into a table that stays, by the day of its event.

Rules:
1. The table has every message once, whatever it holds: nothing is parsed but its moment.
2. A late message goes to the day it belongs to; see ``LakeParameters.oldest``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.model.kinds.pipelines.builtins import LakeParameters
from enmasse.pipeline.builtin.plans import checked, compaction_of, seconds
from enmasse.pipeline.builtin.telemetry import days_of, raw_messages, readings_of, telemetry_messages
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.planning.plans import JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from enmasse.pipeline.running.planning.plans import PlanContext


def build(context: PlanContext, parameters: LakeParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the table of messages, one for that of readings if it is wanted, and compaction of both.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(LakeParameters, parameters)
    oldest_s = seconds(wanted.oldest)
    messages = days_of(raw_messages(context, wanted), wanted.time_field, oldest_s)
    plans: list[QueryPlan | JobPlan] = [
        QueryPlan("messages", messages, TableTarget(wanted.table, Layout(partition_by=("day",))))
    ]
    if wanted.readings_table is not None:
        readings = readings_of(telemetry_messages(context, wanted), wanted).selectExpr(
            "device",
            "metric",
            "value",
            "time",
            "timestamp",
            "partition",
            "offset",
            f"to_date(CASE WHEN time >= timestamp - make_dt_interval(0, 0, 0, {oldest_s:.3f}) "
            "THEN time ELSE timestamp END) AS day",
        )
        plans.append(
            QueryPlan("readings", readings, TableTarget(wanted.readings_table, Layout(partition_by=("day",))))
        )
    every_s, keep_s = seconds(wanted.compact_every), seconds(wanted.keep_versions)
    return [*plans, *(compaction_of(context, table, every_s=every_s, keep_s=keep_s) for table in wanted.tables())]
