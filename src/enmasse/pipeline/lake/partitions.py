"""The columns that lay out a table's folders: those of its rows, and those that are made of them.

Rules:
1. ``partitionBy`` names a column, or makes one: ``day(ts)`` the column ``ts_day``. A row that brings a column of that
   name keeps it.
2. What is made is a column of the table, which readers may ask for: ``WHERE ts_day = '2026-01-31'`` opens no other
   folders.
3. ``day`` alone is made of the event's time where rows have none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from enmasse.model.kinds.pipelines.partitions import Partition, partition_of
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.columns import check_columns, event_time, nullable
from enmasse.pipeline.lake.file_writing import NO_VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

DAY: Final = "day"

_TYPES: Final = {"year": "integer", "month": "string", "day": "date", "hour": "string", "bucket": "integer"}
_MAKE: Final[Mapping[str, Callable[[Column, int], Column]]] = {
    "year": lambda column, _: F.year(column),
    "month": lambda column, _: F.date_format(column, "yyyy-MM"),
    "day": lambda column, _: F.to_date(column),
    "hour": lambda column, _: F.date_format(column, "yyyy-MM-dd-HH"),
    "bucket": lambda column, count: F.pmod(F.hash(column), F.lit(count)).cast("int"),
}


def text_partitions(frame: DataFrame, declared: Sequence[str]) -> list[str]:
    """Return the columns of rows that lay out a table and are texts, in the words of ``partitionBy``."""
    texts = {field.name for field in frame.schema.fields if isinstance(field.dataType, StringType)}
    return [one.name for one in map(partition_of, declared) if not one.function and one.name in texts]


def nameable(name: str) -> Column:
    """Return a column of texts that raises an error where readers of tables would take one for NULL."""
    column = F.col(quote_identifier(name))
    said = f"{NO_VALUE} is no value of a partition, as folders of tables have that name for NULL"
    return F.call_function("if", column == NO_VALUE, F.raise_error(F.lit(said)), column)


class Partitions:
    """The columns that lay out a table.

    Args:
        declared: names of columns, and expressions that make one.
    """

    def __init__(self, declared: Sequence[str]) -> None:
        self._declared = [partition_of(text) for text in declared]
        self.names = tuple(partition.name for partition in self._declared)
        """The columns."""

    def made_of(self, schema: StructType) -> dict[str, str]:
        """Return the columns that are made for rows of a schema, and of which one each is.

        Raises:
            TableSchemaError: there is nothing to make them of.
        """
        made = self._made(schema.names, json.loads(schema.json())["fields"])
        return {partition.name: partition.column for partition in made}

    def on(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the columns that are made.

        Raises:
            TableSchemaError: there is nothing to make them of.
        """
        for partition in self._made(frame.columns, json.loads(frame.schema.json())["fields"]):
            column = F.col(quote_identifier(partition.column))
            frame = frame.withColumn(partition.name, _MAKE[partition.function](column, partition.count))
        return frame

    def fields(self, schema: StructType, keys: Sequence[str]) -> list[dict[str, object]]:
        """Return the table's columns for rows of this schema.

        Raises:
            TableSchemaError: there can be no such table.
        """
        fields = nullable(json.loads(schema.json())["fields"])
        for made in self._made([field["name"] for field in fields], list(fields)):
            fields.append({"name": made.name, "type": _TYPES[made.function], "nullable": True, "metadata": {}})
        check_columns(fields, keys, self.names)
        return fields

    def _made(self, names: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> list[Partition]:
        """Return those that are made of other columns: the ones that rows do not bring."""
        made = []
        for partition in self._declared:
            if partition.name in names:
                continue
            if partition == Partition(DAY):
                if (column := event_time(fields)) is None:
                    raise TableSchemaError(
                        f"partitionBy names {DAY!r}, but there is no such column, nor a TIMESTAMP to make it of"
                    )
                made.append(Partition(DAY, DAY, column))
            elif partition.function:
                self._check(partition, {field["name"]: field["type"] for field in fields})
                made.append(partition)
        return made

    @staticmethod
    def _check(partition: Partition, types: Mapping[str, Any]) -> None:
        if partition.column not in types:
            raise TableSchemaError(
                f"partitionBy names {partition.column!r} in {partition}, but the columns are {', '.join(types)}"
            )
        found = types[partition.column]
        if partition.function != "bucket" and found not in ("timestamp", "timestamp_ntz", "date"):
            raise TableSchemaError(
                f"partitionBy has {partition}, but {partition.column!r} is {str(found).upper()}; "
                "expected a TIMESTAMP or a DATE"
            )
