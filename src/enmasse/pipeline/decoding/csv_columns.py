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
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS
from enmasse.pipeline.decoding.text_values import INTEGERS, is_seconds, shown_text, value_of_text

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from enmasse.model.kinds.pipelines.sources import Files

_CORRUPT: Final = "__enmasse_corrupt"


def csv_columns(
    reader: DataFrameReader | DataStreamReader, folder: str, columns: Sequence[Column], files: Files
) -> DataFrame:
    """Return the columns of lines, ``_file``, ``_problem``, and ``_value``, the line where there is one.

    A header with other names than those of the columns, or another order, fails the query.

    Args:
        reader: with the options that are not CSV's.
        folder: with the files.
        columns: the columns that each line has, none of them a structure, an array or a map.
        files: the form in which they are written.
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
        value = value_of_text(_with_points(text, column.type) if files.decimal == "," else text, column.type)
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


def _with_points(text: Expression, of: ColumnType) -> Expression:
    """Return a text with points for commas where it is a number, or has to be one."""
    swapped = F.translate(text, ",.", ".,")
    if of.name == "TIMESTAMP":
        return F.when(is_seconds(swapped), swapped).otherwise(text)
    return swapped if of.name in (*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL") else text
