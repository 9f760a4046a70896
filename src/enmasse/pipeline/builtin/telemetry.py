"""Messages of devices as rows.

A message is JSON such as ``{"device": "boiler-1", "temperature": 21.5, "ts": 1764000000000}``: a name,
a moment (ISO 8601, or a number: seconds below 1e11, else milliseconds; optional), and any number of
metrics. Without ``device`` the message's key names it. An address whose messages have a schema of
their own (Avro, Protobuf, CBOR, SenML) is read by its columns, which mean the same as fields of JSON. Names may be
others, and lie deeper: paths such as ``deviceInfo.devEui``.

Rules:
1. A message counts at the moment it names, but never later than it was accepted: one device whose
   clock runs ahead must not make the rows of all the others late.
2. What is no such message gives no reading and fails nothing.
3. A path is first the name of a field of the message itself, dots and all, and then a way into objects. A name with a
   dot on the way stands in backquotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import ALL_FIELDS
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.sql.ddl import path_of, quote_identifier
from enmasse.model.sql.message_columns import raw_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from enmasse.model.kinds.pipelines.builtins import TelemetryParameters, TimedParameters
    from enmasse.pipeline.running.planning.plans import PlanContext

_AS_TEXT: Final = frozenset({"raw", "json", "text"})
"""Formats whose bytes are JSON if they are telemetry at all."""

_TIME: Final = """
    least(timestamp, coalesce(
        CASE WHEN ts RLIKE '^([0-9]{1,15}([.][0-9]+)?|[0-9][.][0-9]+E(1[0-2]|[0-9]))$' THEN timestamp_micros(CAST(
            CAST(ts AS DOUBLE) * CASE WHEN CAST(ts AS DOUBLE) < 1e11 THEN 1e6 ELSE 1e3 END AS BIGINT
        )) END,
        try_to_timestamp(ts),
        timestamp
    ))
"""
"""Numbers below 1e11 are seconds: as milliseconds they would lie before 1974. What lies within an object Spark writes
anew: 1795856400.5 as 1.7958564005E9."""


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


class _Fields:
    """Fields of messages as texts, by their paths; of each object on the way the JSON is parsed once.

    Args:
        stream: needs ``partition, offset, timestamp, key, value``.
        fields: the paths as they are declared.
        as_map: whether ``message`` is a map of all fields, and not a structure of those that are wanted.
    """

    def __init__(self, stream: DataFrame, fields: Sequence[str], *, as_map: bool) -> None:
        self.frame = stream.select("partition", "offset", "timestamp", "key", "value")
        self._found: dict[tuple[str, ...], Column] = {}
        self._parsed = 0
        tree: _Tree = {}
        for path in (path for field in fields for path in _ways(field)):
            node = tree
            for name in path:
                node = node.setdefault(name, {})
        self._parse("message", F.col("value").cast("string"), tree, (), as_map=as_map)

    def _parse(self, column: str, text: Column, tree: _Tree, above: tuple[str, ...], *, as_map: bool = False) -> None:
        # Looking for known fields costs half of what a map of all costs; Spark tells names apart by letters alone.
        as_map = as_map or ALL_FIELDS in tree or len(set(map(str.lower, tree))) < len(tree)
        schema = _MAP if as_map else ", ".join(f"{quote_identifier(name)} STRING" for name in tree)
        self.frame = self.frame.withColumn(column, F.from_json(text, schema))
        parsed = F.col(column)
        for name, below in tree.items():
            if name == ALL_FIELDS:
                found = parsed
            elif as_map:
                found = F.try_element_at(parsed, F.lit(name))
            else:
                found = parsed.getField(name)
            self._found[*above, name] = found
            if below:
                self._parsed += 1
                self._parse(f"_object_{self._parsed}", found, below, (*above, name))

    def text(self, field: str) -> Column:
        """Return a field, as a text, or NULL."""
        return F.coalesce(*(self._found[path] for path in _ways(field)))

    def pairs(self, metrics: Sequence[str]) -> Column:
        """Return an array of ``metric`` and ``text``, of single fields and of all in objects."""
        single: list[Column] = []
        several: list[Column] = []
        for field in metrics:
            path = path_of(field)
            if _is_of_all(path):
                several.append(self._all_of(path, field.removesuffix(ALL_FIELDS)))
            else:
                name = F.lit(path[0] if len(path) == 1 else field)
                single.append(F.struct(name.alias("metric"), self.text(field).alias("text")))
        arrays = [F.array(*single), *several] if single else several
        return arrays[0] if len(arrays) == 1 else F.concat(*arrays)

    def _all_of(self, path: tuple[str, ...], before: str) -> Column:
        def named(one: Column) -> Column:
            return F.struct(F.concat(F.lit(before), one["key"]).alias("metric"), one["value"].alias("text"))

        return F.coalesce(F.transform(F.map_entries(self._found[path]), named), F.array().cast(_PAIRS))


_Tree = dict[str, "_Tree"]
_MAP: Final = "MAP<STRING, STRING>"
_PAIRS: Final = "ARRAY<STRUCT<metric: STRING, text: STRING>>"


def _ways(field: str) -> tuple[tuple[str, ...], ...]:
    """Return where a field may be: at the top under a name with dots, or down a path."""
    path = path_of(field)
    return (path,) if len(path) == 1 or _is_of_all(path) else ((field,), path)


def _is_of_all(path: tuple[str, ...]) -> bool:
    return len(path) > 1 and path[-1] == ALL_FIELDS


def _named(fields: _Fields, device_field: str, time_field: str, *more: str | Column) -> DataFrame:
    """Return rows with ``device, time``, and other columns."""
    named = fields.frame.select(
        "partition",
        "offset",
        "timestamp",
        *more,
        fields.text(time_field).alias("ts"),
        F.expr("nullif(CAST(key AS STRING), '')").alias("_key"),
        fields.text(device_field).alias("_device"),
    )
    return named.selectExpr(
        *(name for name in named.columns if name not in ("ts", "_key", "_device")),
        "coalesce(nullif(_device, ''), _key) AS device",
        f"{_TIME} AS time",
    )


def messages_of(stream: DataFrame, device_field: str = "device", time_field: str = "ts") -> DataFrame:
    """Columns ``partition, offset, timestamp, message, device, time``; ``message`` is a map of texts.

    ``message`` is null and ``device`` the key where the value is no JSON object.
    """
    fields = _Fields(stream, (device_field, time_field), as_map=True)
    return _named(fields, device_field, time_field, "message")


def readings_of(stream: DataFrame, parameters: TimedParameters, metrics: Sequence[str] = ()) -> DataFrame:
    """Return a row for each number in each message.

    Args:
        stream: ``partition, offset, timestamp, key, value``.
        parameters: the fields with device and time.
        metrics: the fields that count; empty: every one that holds a number.

    Returns:
        Columns ``device, metric, value, time, timestamp, partition, offset``.
    """
    own = (parameters.device_field, parameters.time_field)
    fields = _Fields(stream, (*own, *metrics), as_map=not metrics)
    if metrics:
        pairs = fields.pairs(tuple(dict.fromkeys(metrics)))
    else:
        names = [path[0] for name in own for path in _ways(name) if len(path) == 1]
        pairs = F.map_entries(F.map_filter("message", lambda name, _: ~name.isin(*names)))
    messages = _named(fields, *own, pairs.alias("pairs"))
    # A filter on the device would be moved before the parsing, and have each message parsed for it once more.
    named = F.inline(F.when(F.col("device").isNotNull(), F.col("pairs"))).alias("metric", "text")
    values = messages.select("device", named, "time", "timestamp", "partition", "offset").selectExpr(
        "device", "metric", "try_cast(text AS DOUBLE) AS value", "time", "timestamp", "partition", "offset"
    )
    return values.where("abs(value) < double('Infinity')")


def days_of(stream: DataFrame, time_field: str, oldest_s: float) -> DataFrame:
    """Return the messages as they came, and ``day``, the date of the event.

    Args:
        stream: ``partition, offset, timestamp, key, value``.
        time_field: the field with the time.
        oldest_s: an event that is older than this at its arrival belongs to the day of its arrival.
    """
    fields = _Fields(stream, (time_field,), as_map=False)
    kept = ("partition", "offset", "timestamp", "key", "value")
    timed = fields.frame.select(*kept, fields.text(time_field).alias("ts"))
    known = f"time >= timestamp - make_dt_interval(0, 0, 0, {oldest_s:.3f})"
    return timed.selectExpr(*kept, f"{_TIME} AS time").selectExpr(
        *kept, f"to_date(CASE WHEN {known} THEN time ELSE timestamp END) AS day"
    )
