"""``heartbeat``: alerts about devices that fell silent, and are back.

One bucket holds all devices: hearing one is a maximum, so that one task does several hundred thousand a
second, and with one bucket every batch with rows is seen by it. With several, one of them could be
without rows in a batch of a backlog and take its devices for silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.model.builtins import HeartbeatParameters
from enmasse.pipeline.builtin.bucketed import by_bucket
from enmasse.pipeline.builtin.compaction import compaction_of
from enmasse.pipeline.builtin.messages import as_json_messages
from enmasse.pipeline.builtin.parameters import checked, micros, seconds
from enmasse.pipeline.builtin.silence_rules import SilenceKeeper
from enmasse.pipeline.builtin.telemetry import messages_of, telemetry_messages
from enmasse.pipeline.running.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from enmasse.pipeline.running.plans import Scene

__all__ = ["build"]

STATE: Final = ("heartbeat 1: 1 bucket of device -> heard, told",)
LEAST_CHECK_S: Final = 0.5
MOST_CHECK_S: Final = 10.0
"""An empty look costs about a tenth of a second of one core."""


def build(scene: Scene, parameters: HeartbeatParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """A query for the address and one for the table, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(HeartbeatParameters, parameters)
    keeper = SilenceKeeper(
        after_us=micros(wanted.after),
        cleared=wanted.cleared,
        forget_us=micros(wanted.forget_after),
        most=wanted.max_devices,
    )
    source = wanted.model_copy(update={"starting_offsets": wanted.starting_offsets or "latest"})
    heard = (
        messages_of(telemetry_messages(scene, source))
        .where("device IS NOT NULL")
        .selectExpr("device", "unix_micros(timestamp) AS heard_us", "partition", "offset")
    )
    alerts = by_bucket(heard, keeper, 1, ticks=True).selectExpr(
        "id",
        "device",
        "state",
        "timestamp_micros(since_us) AS since",
        "timestamp_micros(time_us) AS time",
        "text",
    )
    check_s = (
        max(LEAST_CHECK_S, min(MOST_CHECK_S, seconds(wanted.after) / 4))
        if wanted.check_every is None
        else seconds(wanted.check_every)
    )
    plans: list[QueryPlan | JobPlan] = []
    if wanted.alerts is not None:
        messages = as_json_messages(alerts, F.col("id"))
        plans.append(QueryPlan("alerts", messages, AddressTarget(wanted.alerts), STATE, trigger_s=check_s))
    if wanted.table is not None:
        plans.append(QueryPlan("table", alerts, TableTarget(wanted.table), STATE, trigger_s=check_s))
        plans.append(compaction_of(scene, wanted.table))
    return plans
