"""Messages of an address as a relation with the columns of their content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.sql.ddl import Column, quote_identifier, written
from enmasse.model.sql.message_columns import CARRIED, PRESENT, TOMBSTONE
from enmasse.model.sql.message_schema import MESSAGE_FORMATS, MessageFormat, SchemaTextError, schema_columns
from enmasse.pipeline.decoding.arrow_stage import ArrowDecoding
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS
from enmasse.pipeline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from enmasse.pipeline.decoding.registered import Registered


BAD_ROWS: Final = "bad rows of "
"""Prefix of the observations that count what could not be decoded; the source's name follows."""

COUNT_OF, EXAMPLE_OF = "count of ", "example of "
"""The words before the name of a column in observations about drift; alone: of messages as a whole."""
WHOLE_PROBLEMS: Final = "^(it is |it does |expected )"
"""The start of problems that are those of a message as a whole."""
_MAX_FIELDS: Final = 40
_EXAMPLE: Final = 120


def decode(
    frame: DataFrame,
    *,
    format: str,  # noqa: A002  # the field's name
    schema: str | None = None,
    with_present: bool = False,
) -> DataFrame:
    """Return the schema's columns for each message, and what is wrong with those that have none.

    Args:
        frame: raw rows of an address, streaming or not; needs ``value``.
        format: ``json``, ``cbor``, ``avro``, ``protobuf``, ``senml``, ``text`` or ``raw``.
        schema: of json and cbor the columns as Spark writes them, of avro the schema in JSON, of protobuf the full
            name of the message and the descriptor set in base64; of senml which of its columns are wanted, or None;
            of the others None.
        with_present: whether rows have the column ``PRESENT``; not of ``text`` and ``raw``.

    Returns:
        The schema's columns; ``_partition, _offset, _timestamp, _key`` (a text) and whatever else of the raw
        columns is there, with an underscore; ``_problem``, null where the message is good; ``_value``, its bytes
        where it is not. A SenML pack gives a row for each record, all else one for each message.

    Raises:
        OptionError: format and schema do not make columns; the message names the place.
    """
    message_format = _format(format)
    try:
        columns = schema_columns(message_format, schema)
    except SchemaTextError as error:
        raise OptionError(f"schema of format {format}: {error}") from error
    rows, carried = _carried(frame)
    if message_format in ("raw", "text"):
        return _whole(rows, message_format, carried)
    return _in_python(rows, columns, ArrowDecoding(message_format, schema, carried, with_present=with_present))


def decode_registered(frame: DataFrame, registered: Registered, *, with_present: bool = False) -> DataFrame:
    """Return what ``decode`` does, of messages that name their schemas.

    Args:
        frame: as for ``decode``.
        registered: the schema they are read with.
        with_present: whether rows have the column ``PRESENT``.

    Raises:
        OptionError: the schema does not make columns.
    """
    try:
        columns = registered.columns()
    except SchemaTextError as error:
        raise OptionError(f"schema of format {registered.format}: {error}") from error
    rows, carried = _carried(frame)
    decoding = ArrowDecoding(registered.format, None, carried, registered, with_present=with_present)
    return _in_python(rows, columns, decoding)


def _in_python(rows: DataFrame, columns: tuple[Column, ...], decoding: ArrowDecoding) -> DataFrame:
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    nullable = tuple(Column(column.name, column.type) for column in columns)
    kept = "".join(f"{name} {types[name]}, " for name in decoding.carried)
    present = f"{PRESENT} ARRAY<STRING>, " if decoding.with_present else ""
    out = f"{written(nullable)}, {kept}{present}_problem STRING, _value BINARY"
    return rows.mapInArrow(decoding, out)


def _format(text: str) -> MessageFormat:
    found = next((name for name in MESSAGE_FORMATS if name == text), None)
    if found is None:
        raise OptionError(f"format: expected one of {', '.join(MESSAGE_FORMATS)}, got {text!r}")
    return found


def _carried(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    names = [name for name in CARRIED if name in frame.columns]
    columns: list[Expression] = [F.col("value").cast("binary").alias("value")]
    for name in names:
        column = F.col(name)
        if name == "key":
            # A key of other bytes is shown as far as it is text: no reader of tables takes what is no UTF-8.
            column = F.make_valid_utf8(column.cast("string"))
        columns.append(column.alias(f"_{name}"))
    return frame.select(*columns), [f"_{name}" for name in names]


def _whole(rows: DataFrame, message_format: MessageFormat, carried: list[str]) -> DataFrame:
    value = F.col("value")
    problem: Expression = F.lit(None).cast("string")
    if message_format == "text":
        is_text = F.is_valid_utf8(value.cast("string"))
        problem = F.when(~is_text, "it is no UTF-8")
        content = F.when(is_text, value.cast("string"))
    else:
        content = value
    return rows.select(
        content.alias("value"),
        *carried,
        problem.alias("_problem"),
        F.when(problem.isNotNull(), value).alias("_value"),
    )


def good(decoded: DataFrame) -> DataFrame:
    """Return the rows that could be decoded, without the columns about problems."""
    return decoded.where(F.col("_problem").isNull()).drop("_problem", "_value")


def with_tombstones(decoded: DataFrame) -> DataFrame:
    """Return decoded rows in which an empty message is no problem but a row of its key, with ``_tombstone`` true."""
    is_empty = F.coalesce(F.length("_value") == 0, F.lit(False))
    problem, value = F.when(~is_empty, F.col("_problem")), F.when(~is_empty, F.col("_value"))
    return decoded.withColumns({"_problem": problem, "_value": value, TOMBSTONE: is_empty})


def no_records(decoded: DataFrame) -> DataFrame:
    """Return the rows of messages that are no records, as decoded: ``filled`` leaves them out."""
    return decoded.where(_is_whole(decoded))


def filled(decoded: DataFrame) -> DataFrame:
    """Return the rows of messages that are records, with NULL where a value does not fit; of JSON alone."""
    is_record = F.col("_problem").isNull() | ~_is_whole(decoded)
    columns = []
    for name in (name for name in decoded.columns if name not in ("_problem", "_value")):
        value = F.col(quote_identifier(name))
        if name == PRESENT:
            # A value that does not fit is not known to be NULL.
            value = F.filter(value, lambda field: ~F.coalesce(_is_of(field), F.lit(False)))
        fits = ~F.coalesce(_is_of(F.lit(name)), F.lit(False))
        columns.append((value if name.startswith("_") else F.when(fits, value)).alias(name))
    return decoded.where(is_record).select(*columns)


def _is_whole(decoded: DataFrame) -> Expression:
    """Return whether a problem is one of a message as a whole, and not of a column whose name begins like one."""
    problem = F.col("_problem")
    whole = problem.rlike(WHOLE_PROBLEMS)
    for name in decoded.columns:
        if re.match(WHOLE_PROBLEMS, f"{name}: "):
            whole &= ~problem.startswith(f"{name}: ")
    return whole


def _is_of(name: Expression) -> Expression:
    """Return whether a problem is one of a column."""
    problems = F.concat(F.lit(BETWEEN_PROBLEMS), F.col("_problem"))
    return F.contains(problems, F.concat(F.lit(BETWEEN_PROBLEMS), name, F.lit(": ")))


def unfailing(decoded: DataFrame, source: str) -> DataFrame:
    """Return the rows, and have the query fail at the first one that could not be decoded."""
    said = F.concat(F.lit(f"source {source}: a message does not fit, and onDrift is fail: "), F.col("_problem"))
    problem = F.col("_problem").isNull() | F.raise_error(said).cast("boolean")
    return decoded.where(problem).drop("_problem", "_value")


def drift_counts(decoded: DataFrame) -> list[Expression]:
    """Return the counts of what could not be decoded: of all rows, of those, and by column, with an example of each.

    Args:
        decoded: by ``decode``.
    """
    problem = F.col("_problem")
    counts = [
        F.count(F.lit(1)).alias("all"),
        F.count_if(problem.isNotNull()).alias("bad"),
        F.count_if(_is_whole(decoded)).alias(COUNT_OF),
        F.max(F.when(_is_whole(decoded), F.substring(problem, 1, _EXAMPLE))).alias(EXAMPLE_OF),
    ]
    for name in [name for name in decoded.columns if not name.startswith("_")][:_MAX_FIELDS]:
        of_field = _is_of(F.lit(name))
        counts.append(F.count_if(of_field).alias(f"{COUNT_OF}{name}"))
        counts.append(F.max(F.when(of_field, F.substring(problem, 1, _EXAMPLE))).alias(f"{EXAMPLE_OF}{name}"))
    return counts


def bad(decoded: DataFrame, address: str) -> DataFrame:
    """Return the messages that could not, as the sink takes them: as they came, with the reason.

    Args:
        decoded: by ``decode``.
        address: the address that they came from, given in the property ``address`` where the rows have no such
            column.

    Returns:
        ``value, properties`` and, where they are known, ``key, content_type``. Properties: ``reason``, ``address``
        and, where they are known, ``partition, offset``.
    """
    entries: list[Expression] = [F.lit("reason"), F.col("_problem")]
    from_row = F.coalesce("_address", F.lit(address)) if "_address" in decoded.columns else F.lit(address)
    entries += [F.lit("address"), from_row]
    for name in ("partition", "offset"):
        if f"_{name}" in decoded.columns:
            entries += [F.lit(name), F.col(f"_{name}").cast("string")]
    known = F.map_filter(F.create_map(*entries), lambda _, value: value.isNotNull())
    columns = [F.col("_value").alias("value"), known.alias("properties")]
    columns += [F.col(f"_{name}").alias(name) for name in ("key", "content_type") if f"_{name}" in decoded.columns]
    return decoded.where(F.col("_problem").isNotNull()).select(*columns)
