"""CSV to columns within Java: each value is a text, and becomes one of its column's type or says why not.

Rules:
1. Spark's parser parts lines and values alone. Values are judged here, for it takes ``19,90`` for 1990 where a
   DECIMAL is expected, ``NaN`` for a number, and bytes of another encoding for U+FFFD.
2. A line that has more or fewer values than there are columns is bad as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from enmasse.model.sql.ddl import Column, ColumnType, quote_identifier
from enmasse.pipeline.decoding.json_columns import moment, shown_text
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from enmasse.model.kinds.pipelines.sources import Files

_CORRUPT: Final = "__enmasse_corrupt"
_NUMBER: Final = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?$"
_MAYBE_WHOLE: Final = r"^[+-]?[0-9]{1,40}([.][0-9]{0,9}0*)?([eE]([+]?[0-9]{1,2}|-[0-9]))?$"
"""Numbers of which 18 digits after the point are all that are not zero."""
_FOUR: Final = "[A-Za-z0-9+/]"
_BASE64: Final = f"^(?:{_FOUR}{{4}})*+(?:{_FOUR}[AQgw]==|{_FOUR}{{2}}[AEIMQUYcgkosw048]=)?$"
"""Base64 without bits that nothing holds."""
_DATE: Final = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LOCAL: Final = _DATE + r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?$"


def csv_columns(
    reader: DataFrameReader | DataStreamReader, folder: str, columns: Sequence[Column], files: Files
) -> DataFrame:
    """Return the columns of lines, ``_file``, ``_problem``, and ``_value``, the line where there is one.

    A header with other names than those of the columns, or another order, fails the query.

    Args:
        reader: with the options that are not CSV's.
        folder: with the files.
        columns: that each line has, none of them a structure, an array or a map.
        files: how they are written.
    """
    quote = '"' if files.quote is None else files.quote
    # Quotes are doubled (RFC 4180).
    dialect = {"sep": files.delimiter or ",", "quote": quote, "escape": quote, "encoding": files.encoding or "UTF-8"}
    names = [quote_identifier(column.name) for column in columns]
    schema = ", ".join(f"{name} STRING" for name in (*names, _CORRUPT))
    # What does not fit is told apart as with messages; Spark would not look at columns that nobody asks for.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "columnPruning": "false"}
    options |= {"header": str(bool(files.header)), "enforceSchema": str(not files.header)}
    options["multiLine"] = str(files.multi_line is not False)
    rows = reader.format("csv").options(**options, **dialect).schema(schema).load(folder)
    values, details = [], []
    for name, column in zip(names, columns, strict=True):
        text = F.col(name)
        value = _value(text, column.type, files.decimal or ".")
        values.append(value.alias(column.name))
        wrong = F.concat(F.lit(f"{column.name}: expected {column.type}, got "), shown_text(text))
        details.append(F.when(text.isNotNull() & value.isNull(), wrong))
        details.append(F.when(text.contains("\ufffd"), f"{column.name}: a character is not of the file's encoding"))
        if not column.is_nullable:
            details.append(F.when(text.isNull(), f"{column.name}: required"))
    reasons = F.concat_ws(BETWEEN_PROBLEMS, *details)
    line = F.col(_CORRUPT)
    problem = F.when(line.isNotNull(), f"it does not have {len(columns)} values").when(reasons != "", reasons)
    # Spark keeps the line of what is corrupt alone.
    written = F.encode(F.coalesce(line, F.to_csv(F.struct(*names), dialect)), dialect["encoding"])
    return rows.select(
        *values,
        F.col("_metadata.file_path").alias("_file"),
        problem.alias("_problem"),
        F.when(problem.isNotNull(), written).alias("_value"),
    )


def _value(text: Expression, of: ColumnType, decimal: str) -> Expression:
    """Return a text as a value of a type; NULL where it is none."""
    number = F.translate(text, ",.", ".,") if decimal == "," else text
    if of.name in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        exact = F.when(number.rlike(_MAYBE_WHOLE), number.try_cast("decimal(38,18)"))
        return F.when(exact % 1 == 0, exact.try_cast(of.name.lower()))
    if of.name in ("FLOAT", "DOUBLE"):
        made = F.when(number.rlike(_NUMBER), number.try_cast(of.name.lower()))
        return F.when(F.abs(made) != F.lit(float("inf")), made)
    if of.name == "DECIMAL":
        return F.when(number.rlike(_NUMBER), number.try_cast(str(of).lower()))
    if of.name == "BOOLEAN":
        return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))
    if of.name == "BINARY":
        return F.when(text.rlike(_BASE64), F.try_to_binary(text, F.lit("base64")))
    if of.name == "DATE":
        return F.when(text.rlike(_DATE + "$"), text.try_cast("date"))
    if of.name == "TIMESTAMP":
        return moment(F.when(number.rlike(_NUMBER), number).otherwise(text))
    if of.name == "TIMESTAMP_NTZ":
        return F.when(text.rlike(_LOCAL), text.try_cast("timestamp_ntz"))
    return text
