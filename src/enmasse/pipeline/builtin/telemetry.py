"""Messages of devices as rows.

A message is JSON such as ``{"device": "boiler-1", "temperature": 21.5, "ts": 1764000000000}``: a name,
a moment (ISO 8601, or a number: seconds below 1e11, else milliseconds; optional), and any number of
metrics. Without ``device`` the message's key names it. An address whose messages have a schema of
their own (Avro, Protobuf, CBOR, SenML) is read by its columns, which mean the same as fields of JSON.

Rules:
1. A message counts at the moment it names, but never later than it was accepted: one device whose
   clock runs ahead must not make the rows of all the others late.
2. What is no such message gives no reading and fails nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.message_columns import raw_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.model.kinds.pipelines.builtins import TelemetryParameters
    from enmasse.pipeline.running.planning.plans import PlanContext

_AS_TEXT: Final = frozenset({"raw", "json", "text"})
"""Formats whose bytes are JSON if they are telemetry at all."""

_TIME: Final = """
    least(timestamp, coalesce(
        CASE WHEN ts RLIKE '^[0-9]{1,15}([.][0-9]+)?$' THEN timestamp_micros(CAST(
            CAST(ts AS DOUBLE) * CASE WHEN CAST(ts AS DOUBLE) < 1e11 THEN 1e6 ELSE 1e3 END AS BIGINT
        )) END,
        try_to_timestamp(ts),
        timestamp
    ))
"""
"""Numbers below 1e11 are seconds: as milliseconds they would lie before 1974."""


_RAW = raw_columns(with_properties=False)
"""The value is the last of them."""


def raw_messages(context: PlanContext, parameters: TelemetryParameters) -> DataFrame:
    """Return the messages as the stream keeps them, without properties."""
    return context.read(
        SourceSpec(
            name="messages",
            address=parameters.address,
            format="raw",
            starting_offsets=parameters.starting_offsets,
            max_rows_per_batch=parameters.max_rows_per_batch,
        )
    ).select(*(column.name for column in _RAW))


def telemetry_messages(
    context: PlanContext, parameters: TelemetryParameters, *, most: int | None = None
) -> DataFrame:
    """Return the same columns, with a ``value`` that is JSON, whatever the address's schema.

    Args:
        context: gives the rows.
        parameters: name the address.
        most: rows of one micro-batch at most, where the parameters leave it open.
    """
    limited = parameters.model_copy(update={"max_rows_per_batch": parameters.max_rows_per_batch or most})
    facts = context.addresses.get(parameters.address)
    schema = facts.schema if facts is not None else None
    if (schema or {}).get("format", "raw") in _AS_TEXT:
        return raw_messages(context, limited)
    decoded = context.read(
        SourceSpec(
            name="decoded",
            address=limited.address,
            starting_offsets=limited.starting_offsets,
            max_rows_per_batch=limited.max_rows_per_batch,
        )
    )
    fields = [F.col(quote_identifier(name)) for name in decoded.columns if not name.startswith("_")]
    return decoded.select(
        *(F.col(f"_{column.name}").cast(str(column.type)).alias(column.name) for column in _RAW[:-1]),
        F.to_json(F.struct(*fields)).cast("binary").alias("value"),
    )


def messages_of(stream: DataFrame) -> DataFrame:
    """Columns ``partition, offset, timestamp, message, device, time``; ``message`` is a map of texts.

    ``message`` is null and ``device`` the key where the value is no JSON object.
    """
    return _parsed(stream, "MAP<STRING, STRING>", "try_element_at(message, '{}')")


def _parsed(stream: DataFrame, schema: str, field: str) -> DataFrame:
    parsed = stream.select(
        "partition",
        "offset",
        "timestamp",
        "key",
        F.from_json(F.col("value").cast("string"), schema).alias("message"),
    )
    device = field.format("device")
    named = parsed.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "message",
        f"{field.format('ts')} AS ts",
        f"coalesce(nullif({device}, ''), nullif(CAST(key AS STRING), '')) AS device",
    )
    return named.selectExpr("partition", "offset", "timestamp", "message", "device", f"{_TIME} AS time")


def readings_of(stream: DataFrame, metrics: Sequence[str] = ()) -> DataFrame:
    """Return a row for each number in each message.

    Args:
        stream: ``partition, offset, timestamp, key, value``.
        metrics: the fields that count; empty: every one that holds a number.

    Returns:
        Columns ``device, metric, value, time, timestamp, partition, offset``.
    """
    fields = ["device", "ts", *metrics]
    if metrics and len({name.lower() for name in fields}) == len(fields):
        # Looking for known fields costs half of what a map of all costs; Spark tells names apart by letters alone.
        messages = _parsed(stream, ", ".join(f"{quote_identifier(name)} STRING" for name in fields), "message.{}")
        pairs = [
            F.struct(F.lit(name).alias("metric"), F.col(f"message.{quote_identifier(name)}").alias("text"))
            for name in metrics
        ]
        found = F.array(*pairs)
    else:
        messages = messages_of(stream)
        wanted = F.array(*[F.lit(name) for name in metrics])
        found = F.map_entries(
            F.map_filter(
                "message",
                lambda name, _: F.array_contains(wanted, name) if metrics else ~name.isin("device", "ts"),
            )
        )
    # A filter on the device would be moved before the parsing, and have each message parsed for it once more.
    named = F.inline(F.when(F.col("device").isNotNull(), found)).alias("metric", "text")
    values = messages.select("device", named, "time", "timestamp", "partition", "offset").selectExpr(
        "device", "metric", "try_cast(text AS DOUBLE) AS value", "time", "timestamp", "partition", "offset"
    )
    return values.where("abs(value) < double('Infinity')")


def days_of(stream: DataFrame, oldest_s: float) -> DataFrame:
    """Return the messages as they came, and ``day``, the date of the event.

    Args:
        stream: ``partition, offset, timestamp, key, value``.
        oldest_s: an event that is older than this at its arrival belongs to the day of its arrival.
    """
    ts = "from_json(CAST(value AS STRING), 'ts STRING').ts"
    timed = stream.selectExpr("*", f"{ts} AS ts").selectExpr("*", f"{_TIME} AS time")
    known = f"time >= timestamp - make_dt_interval(0, 0, 0, {oldest_s:.3f})"
    return timed.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        f"to_date(CASE WHEN {known} THEN time ELSE timestamp END) AS day",
    )
