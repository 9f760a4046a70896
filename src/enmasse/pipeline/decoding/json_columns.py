"""JSON to columns within Java, and why a message is none.

Rules:
1. Spark's parser does the work. It is given the message inside an object of ours, with a last field of ours:
   alone it would take the first object it finds and leave the rest of the message unread.
2. What the parser lets through and should not is looked for: bytes that are no UTF-8, halves of pairs of
   surrogates (which it makes question marks), texts with commas for a DECIMAL (which it leaves out), numbers that
   are none or out of range, fields that must not be missing. NaN it is told to let through: where it would not,
   the other values of the message were lost.
3. Each TIMESTAMP, at any depth, is read as a text and made a moment as all formats do it (``shaping``): the parser
   alone would take milliseconds for seconds, and a time of day for one of the day on which it is read.
4. Reasons are only worked out for bad records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.sql.ddl import Column, ColumnType, written
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

_TEXT: Final = "__enmasse_text"
_WHOLE: Final = "__enmasse_whole"
_ALL: Final = "__enmasse_all"
_CORRUPT: Final = "__enmasse_corrupt"
_END: Final = "__enmasse_end"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "true",
    "allowSingleQuotes": "false",
    "timeZone": "UTC",
}
_STRING: Final = ColumnType("STRING")
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_GROUPED: Final = r'"[-+.eE,]*[0-9][-+.eE0-9]*,[-+.eE0-9,]*"'
"""A text that the parser takes for a number by leaving commas out."""
_ALONE: Final = "^[-+.eE0-9,]*,[-+.eE0-9,]*$"
_HALF: Final = (
    r"^(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+\\u"
)
"""All that is right, and then half of a pair of surrogates."""
_OF_PATHS: Final = re.compile(r"[^\s'?*](?:[^'?*]*[^\s'?*])?")
"""Names of fields that paths of Spark can have."""
_SHOWN: Final = 60
"""Characters of a wrong value: enough to recognise it."""


def json_columns(
    frame: DataFrame, columns: Sequence[Column], carried: Sequence[str], *, with_present: bool = False
) -> DataFrame:
    """Return the columns, those that are carried along, perhaps ``PRESENT``, ``_problem`` and ``_value``.

    Args:
        frame: with ``value``, and what is carried.
        columns: of the messages.
        carried: names of other columns.
        with_present: whether there is the column ``PRESENT``.
    """
    kept = [F.col(name) for name in carried]
    text = F.col("value").cast("string")
    parsed = [Column(column.name, _as_read(column.type), column.is_nullable) for column in columns]
    schema = (
        f"{_ALL} STRUCT<{', '.join(Column(c.name, c.type).written(': ') for c in parsed)}>, "
        f"{_END} BOOLEAN, {_CORRUPT} STRING"
    )
    wrapped = F.concat(F.lit(f'{{"{_ALL}":'), text, F.lit(f',"{_END}":true}}'))
    rows = frame.select(
        *kept,
        F.col("value").alias("_value"),
        text.alias(_TEXT),
        F.from_json(wrapped, schema, _OPTIONS).alias(_WHOLE),
    )
    values = {column.name: _value(column) for column in columns}
    problem = _problem(columns, values)
    good = problem.isNull()
    fields = F.array_intersect(F.json_object_keys(F.col(_TEXT)), F.array(*[F.lit(name) for name in values]))
    return rows.select(
        *[value.alias(name) for name, value in values.items()],
        *kept,
        *([fields.alias(PRESENT)] if with_present else []),
        problem.alias("_problem"),
        F.when(~good, F.col("_value")).alias("_value"),
    )


def _field(name: str) -> Expression:
    return F.col(_WHOLE)[_ALL][name]


def _value(column: Column) -> Expression:
    return _made(_field(column.name), column.type)


def _as_read(of: ColumnType) -> ColumnType:
    """Return a type with STRING for each TIMESTAMP in it."""
    if of.fields:
        fields = tuple(Column(field.name, _as_read(field.type), field.is_nullable) for field in of.fields)
        return ColumnType("STRUCT", fields=fields)
    if of.inner:
        return ColumnType(of.name, inner=(*of.inner[:-1], _as_read(of.inner[-1])))
    return _STRING if of.name == "TIMESTAMP" else of


def _has(of: ColumnType, names: Sequence[str]) -> bool:
    """Return whether a type is one of some, or holds one as a value."""
    return of.name in names or any(_has(one, names) for one in (*of.inner[-1:], *(field.type for field in of.fields)))


def _made(read: Expression, of: ColumnType) -> Expression:
    """Return what was read with moments for the texts of each TIMESTAMP."""
    if not _has(of, ("TIMESTAMP",)):
        return read
    if of.name == "STRUCT":
        values = [_made(read[field.name], field.type).alias(field.name) for field in of.fields]
        return F.when(read.isNotNull(), F.struct(*values))
    if of.name == "ARRAY":
        return F.transform(read, lambda item: _made(item, of.inner[0]))
    if of.name == "MAP":
        return F.transform_values(read, lambda _, item: _made(item, of.inner[1]))
    return moment(read)


def _misses_moment(read: Expression, of: ColumnType) -> Expression:
    """Return whether a text stands somewhere in what was read where a TIMESTAMP is expected, and is none."""
    if not _has(of, ("TIMESTAMP",)):
        return F.lit(False)
    if of.name == "STRUCT":
        return _or([_misses_moment(read[field.name], field.type) for field in of.fields])
    if of.name in ("ARRAY", "MAP"):
        items = read if of.name == "ARRAY" else F.map_values(read)
        return F.exists(items, lambda item: _misses_moment(item, of.inner[-1]))
    return read.isNotNull() & moment(read).isNull()


def moment(text: Expression) -> Expression:
    """Return a text or the digits of a number as a moment (see ``shaping``); NULL where it is none."""
    number = text.cast("double")
    micros = F.round(number * F.when(F.abs(number) < F.lit(1e11), 1e6).otherwise(1e3))
    of_number = F.when(
        micros.between(F.lit(-62_135_596_800_000_000), F.lit(253_402_300_799_999_999)),
        F.timestamp_micros(micros.cast("bigint")),
    )
    is_number = text.rlike(r"^-?[0-9]{1,19}([.][0-9]{1,19})?([eE][+]?[0-9]{1,2})?$")
    is_moment = text.rlike(r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]|$)")
    return F.when(is_number, of_number).when(is_moment, F.try_to_timestamp(text))


def _problem(columns: Sequence[Column], values: dict[str, Expression]) -> Expression:
    text = F.col(_TEXT)
    whole = F.col(_WHOLE)
    has_half = text.contains("\\u") & text.rlike(_HALF)
    names = [column.name for column in columns]
    is_without = _all_null(values) & ~F.arrays_overlap(F.json_object_keys(text), F.array(*map(F.lit, names)))
    doubts = [whole[_CORRUPT].isNotNull(), whole[_END].isNull(), whole[_ALL].isNull(), ~F.is_valid_utf8(text)]
    doubts += [has_half, is_without]
    details = []
    for column in columns:
        field, value = _field(column.name), values[column.name]
        there = _field_text(text, column.name)
        shown = shown_text(there)
        if column.type.name in _NUMBERS or column.type.name == "BOOLEAN":
            shown = F.when(_is_text(text, column.name, there), F.concat(F.lit('"'), shown, F.lit('"'))).otherwise(
                shown
            )
        wrong = F.concat(F.lit(f"{column.name}: expected {column.type}, got "), shown)
        details.append(F.when(value.isNull() & there.isNotNull(), wrong))
        misses = _misses_moment(field, column.type)
        if _has(column.type, ("TIMESTAMP",)):
            doubts.append(misses)
        if _has(column.type, ("DECIMAL",)):
            # Only then is what the parser has made of a text looked at more closely.
            is_grouped = text.rlike(_GROUPED) & there.rlike(_ALONE if column.type.name == "DECIMAL" else _GROUPED)
            doubts.append(is_grouped)
            details.append(F.when(is_grouped & value.isNotNull(), wrong))
        infinities = list(_infinities(field, column.type))
        for infinite in infinities:
            doubts.append(infinite)
            details.append(F.when(infinite, F.lit(f"{column.name}: a number is out of range")))
        if column.type.name in ("ARRAY", "MAP", "STRUCT"):
            is_finite = ~_or(infinities)
            details.append(F.when(value.isNotNull() & is_finite & (misses | _has_misfit(column, there)), wrong))
        if not column.is_nullable:
            doubts.append(value.isNull())
            details.append(F.when(value.isNull() & there.isNull(), F.lit(f"{column.name}: required")))
    doubt = _or(doubts)
    is_object = text.rlike(r"^\s*[{]")
    reasons = F.concat_ws(BETWEEN_PROBLEMS, *details)
    reason = (
        F.when(text.rlike(r"^\s*$"), "it is empty")
        .when(~F.is_valid_utf8(text), "it is no UTF-8")
        .when(
            ~is_object,
            F.concat(F.lit("expected a JSON object, got "), shown_text(F.make_valid_utf8(text))),
        )
        .when(whole[_END].isNull() | whole[_ALL].isNull(), "it is not one JSON object and nothing else")
        .when(has_half, "it is no text: half of a pair of surrogates is no character")
        .when(is_without, f"it does not have any field of {', '.join(names)}"[:1000])
        .when(reasons != "", reasons)
        .otherwise(f"it does not fit {written(tuple(columns))[:1000]}")
    )
    return F.when(doubt | text.isNull(), F.coalesce(reason, F.lit("it is empty")))


def _field_text(text: Expression, name: str) -> Expression:
    """Return the text of a field's value, NULL where that is null or missing."""
    if _OF_PATHS.fullmatch(name) is None:
        return F.from_json(text, "MAP<STRING, STRING>")[name]
    return F.get_json_object(text, f"$['{name}']")


def _all_null(values: dict[str, Expression]) -> Expression:
    result = F.lit(True)
    for value in values.values():
        result = result & value.isNull()
    return result


def _is_text(text: Expression, name: str, there: Expression) -> Expression:
    """Return whether what looks like a number or a boolean is in quotes."""
    value = (
        F.from_json(text, "MAP<STRING, VARIANT>")[name]
        if _OF_PATHS.fullmatch(name) is None
        else F.try_variant_get(F.try_parse_json(text), f"$['{name}']", "variant")
    )
    return there.rlike("^(-?[0-9]|true$|false$)") & (F.schema_of_variant(value) == F.lit("STRING"))


def _has_misfit(column: Column, there: Expression) -> Expression:
    """Return whether something within a value does not fit; the parser says no more than that of a message."""
    alone = F.from_json(
        F.concat(F.lit(f'{{"{_ALL}":'), there, F.lit("}")),
        f"{_ALL} {_as_read(column.type)}, {_CORRUPT} STRING",
        _OPTIONS,
    )
    return alone[_CORRUPT].isNotNull()


def shown_text(text: Expression) -> Expression:
    """Return the beginning of a wrong value, without what stands between problems."""
    return F.replace(F.substring(text, 1, _SHOWN), F.lit(BETWEEN_PROBLEMS), F.lit(", "))


def _infinities(value: Expression, of: ColumnType) -> Iterator[Expression]:
    """Yield whether there is an infinite number in a value, for each place where one can be."""
    if of.name in ("DOUBLE", "FLOAT"):
        # Of NaN, too, for it counts as larger than all numbers.
        yield F.abs(value) >= F.lit(float("inf"))
    elif of.name == "ARRAY":
        if any(_has_floats(inner) for inner in of.inner):
            yield F.exists(value, lambda item: _any(item, of.inner[0]))
    elif of.name == "MAP":
        if _has_floats(of.inner[1]):
            yield F.exists(F.map_values(value), lambda item: _any(item, of.inner[1]))
    elif of.name == "STRUCT":
        for field in of.fields:
            yield from _infinities(value[field.name], field.type)


def _has_floats(of: ColumnType) -> bool:
    return of.name in ("DOUBLE", "FLOAT") or any(
        _has_floats(inner) for inner in (*of.inner, *(field.type for field in of.fields))
    )


def _any(value: Expression, of: ColumnType) -> Expression:
    return _or(list(_infinities(value, of)))


def _or(conditions: Sequence[Expression]) -> Expression:
    """Return whether one of some conditions is true."""
    result = F.lit(False)
    for condition in conditions:
        result = result | F.coalesce(condition, F.lit(False))
    return result
