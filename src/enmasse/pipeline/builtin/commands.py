"""``commands``: from an alert to a command that a device can take, through a queue.

Rules:
1. An alert gives one command, however often it comes: its id is remembered here for ``once_within``, and
   the command's message id is made of it, by which the queue tells repeats.
2. A command that nobody took within its time to live is gone: a device must not obey yesterday's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.model.builtins import CommandsParameters
from enmasse.model.durations import milliseconds
from enmasse.model.pipelines import SourceSpec
from enmasse.pipeline.builtin.command_writing import COMMANDS_DDL, CommandWriting
from enmasse.pipeline.builtin.parameters import checked
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.plans import AddressTarget, JobPlan, QueryPlan

if TYPE_CHECKING:
    from enmasse.pipeline.running.plans import Scene

__all__ = ["build"]

STATE: Final = ("commands 1: deduplicated by alert",)


def build(scene: Scene, parameters: CommandsParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """The query that sends commands.

    Raises:
        PlanError: a parameter is wrong, or commands would go to what is no queue.
    """
    wanted = checked(CommandsParameters, parameters)
    facts = scene.addresses.get(wanted.commands)
    if facts is not None and facts.type != "queue":
        raise PlanError(
            f"spec.builtin.parameters.commands: expected a queue, where a command waits for its device and ends "
            f"with its time to live; {wanted.commands} is a {facts.type}"
        )
    alerts = scene.read(
        SourceSpec(name="alerts", address=wanted.alerts, format="raw", starting_offsets=wanted.starting_offsets)
    )
    written = alerts.select("partition", "offset", "timestamp", "key", "value").mapInArrow(
        CommandWriting(wanted.match, wanted.body), COMMANDS_DDL
    )
    once = written.withWatermark(
        "timestamp", f"{milliseconds(wanted.once_within)} milliseconds"
    ).dropDuplicatesWithinWatermark(["alert"])
    commands = once.select(
        "value",
        F.col("device").alias("key"),
        F.col("device").alias("subject"),
        F.concat(F.lit("command/"), "alert").alias("message_id"),
        F.create_map(F.lit("alert"), "alert").alias("properties"),
        F.lit("application/json").alias("content_type"),
        F.lit(milliseconds(wanted.ttl)).cast("bigint").alias("ttl"),
    )
    return [QueryPlan("commands", commands, AddressTarget(wanted.commands), STATE)]
