"""``commands``: from an alert to a command that a device can take, through a queue.

Rules:
1. An alert gives one command, however often it comes: its id is remembered here for ``once_within``, and
   the command's message id is made of it, by which the queue recognises repeats.
2. A command that was not received within its time to live is gone: a device must not execute yesterday's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.builtins import CommandsParameters
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.pipeline.builtin.plans import checked
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan

if TYPE_CHECKING:
    from enmasse.pipeline.running.planning.plans import PlanContext

COMMANDS_DDL: Final = "alert STRING, device STRING, value STRING, timestamp TIMESTAMP"
_SCHEMA: Final = pa.schema(
    [
        ("alert", pa.string()),
        ("device", pa.string()),
        ("value", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_FIELD: Final = re.compile(r"\{([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\}")


@dataclass(frozen=True)
class CommandWriting:
    """The function for ``mapInArrow``: messages with alerts in, a command for each alert that fits out.

    What is no JSON object, or names no device, asks for no command.
    """

    match: Mapping[str, Any]
    body: Mapping[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take ``partition, offset, timestamp, key, value``."""
        for batch in batches:
            rows = [command for row in batch.to_pylist() if (command := self._command(row)) is not None]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def _command(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            alert = json.loads(row["value"] or b"")
        except ValueError:
            return None
        if not isinstance(alert, dict) or not fits(alert, self.match):
            return None
        device = alert.get("device") or (row["key"] or b"").decode(errors="replace")
        if not isinstance(device, str) or not device:
            return None
        alert.setdefault("id", f"{row['partition']}-{row['offset']}")
        alert["device"] = device
        return {
            "alert": str(alert["id"]),
            "device": device,
            "value": json.dumps(fill(self.body, alert), ensure_ascii=False),
            "timestamp": row["timestamp"],
        }


def fits(alert: Mapping[str, Any], match: Mapping[str, Any]) -> bool:
    """Return whether each field is what it must be, or one of those that it may be."""
    for name, wanted in match.items():
        allowed = wanted if isinstance(wanted, list | tuple) else [wanted]
        if _field_at(alert, name) not in allowed:
            return False
    return True


def fill(template: Any, alert: Mapping[str, Any]) -> Any:
    """Return a template with the alert's fields in it.

    A text that is one ``{field}`` and nothing else becomes the field as it is, a number a number; in longer
    texts fields become text. A field that the alert lacks is null, or nothing.
    """
    if isinstance(template, str):
        whole = _FIELD.fullmatch(template)
        if whole is not None:
            return _field_at(alert, whole[1])
        return _FIELD.sub(lambda found: _as_text(_field_at(alert, found[1])), template)
    if isinstance(template, Mapping):
        return {name: fill(item, alert) for name, item in template.items()}
    if isinstance(template, list | tuple):
        return [fill(item, alert) for item in template]
    return template


def _field_at(alert: Mapping[str, Any], path: str) -> Any:
    found: Any = alert
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


STATE: Final = ("commands 1: deduplicated by alert",)


def build(context: PlanContext, parameters: CommandsParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return the query that sends commands.

    Raises:
        PlanError: a parameter is wrong, or commands would go to what is no queue.
    """
    wanted = checked(CommandsParameters, parameters)
    facts = context.addresses.get(wanted.commands)
    if facts is not None and facts.type != "queue":
        raise PlanError(
            f"spec.builtin.parameters.commands: expected a queue, where a command waits for its device and ends "
            f"with its time to live; {wanted.commands} is a {facts.type}"
        )
    alerts = context.read(
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
