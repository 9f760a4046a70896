"""Opens Delta tables, and gives their rows to Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom
from pyspark.sql.types import StringType, StructType

from enmasse.pipeline.lake.file_writing import SAFE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_ASCII: Final = re.compile("%[89A-Fa-f]")


def open_delta(path: Path) -> DeltaTable | None:
    """Return the table as it is now; None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def rows_of(spark: SparkSession, table: DeltaTable, path: Path) -> DataFrame:
    """Return the rows of a table in the version in which it was opened."""
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    # Folders carry the partition columns; the schema says their types, or 007 would become 7.
    rows = spark.read.schema(schema).option("basePath", str(path.resolve())).parquet(*files)
    return with_texts(rows, schema, files)


def with_texts(rows: DataFrame, schema: StructType, files: Iterable[str]) -> DataFrame:
    """Return rows with the names of folders unescaped: Spark takes the escaped bytes of UTF-8 for characters."""
    escaped = {part.partition("=")[0] for file in files if _NOT_ASCII.search(file) for part in file.split("/")}
    columns = []
    for field in schema.fields:
        column = F.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, StringType) and quote(field.name, safe=SAFE) in escaped:
            column = F.decode(F.encode(column, "ISO-8859-1"), "UTF-8").alias(field.name)
        columns.append(column)
    return rows.select(*columns)
