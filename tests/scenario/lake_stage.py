"""Tables that streaming queries write, for tests."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.pipeline.lake.batches import Table
from enmasse.pipeline.lake.relation import relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.pipeline.lake.objects import LakePath

__all__ = ["COLUMNS", "ODD", "Lake", "Rows"]

Rows = Sequence[dict[str, Any]]
COLUMNS = "k STRING, v INT, ts TIMESTAMP"
ODD = [
    "x",
    "a b",
    "a/b",
    "50%",
    "a:b=c",
    "ü#?",
    "日本",
    None,
    "q'\"\\",
    "+",
    "007",
    "a[b]",
    "{c}*?",
    "NULL",
    "2026-01-01",
]


class Lake:
    """Tables, and for each a streaming query whose batches are files of JSON."""

    def __init__(self, spark: SparkSession, folder: Path, tables: LakePath | None = None) -> None:
        self.spark = spark
        self.folder: Any = folder / "lake" if tables is None else tables
        self.inputs = folder / "inputs"

    def checkpoint(self, name: str) -> Path:
        return self.inputs / f"{name}-checkpoint"

    def write(
        self,
        table: Table,
        *batches: Rows,
        name: str = "",
        columns: str = COLUMNS,
        owner: str = "o",
        adopt: bool = False,
    ) -> None:
        """Have the table's query, or one of another name, go on with these batches."""
        name = name or table.path.name
        frame = self.stream(name, *batches, columns=columns)
        table.prepare(frame.schema, owner=owner, checkpoint=self.checkpoint(name), adopt=adopt)
        self.go_on(table, frame, name)

    def stream(self, name: str, *batches: Rows, columns: str = COLUMNS) -> DataFrame:
        """The stream of a query, with more batches."""
        source = self.inputs / name
        source.mkdir(parents=True, exist_ok=True)
        for rows in batches:
            number = len(list(source.iterdir()))
            file = source / f"{number:05d}.json"
            file.write_text("\n".join(map(json.dumps, rows)))
            # Spark takes files in the order of their times.
            os.utime(file, (number, number))
        return self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(source))

    def go_on(self, table: Table, frame: DataFrame, name: str) -> None:
        """Have a table take what is new of a stream."""
        query = (
            frame.writeStream.outputMode("append" if table.mode == "complete" else table.mode)
            .option("checkpointLocation", str(self.checkpoint(name)))
            .trigger(availableNow=True)
            .foreachBatch(table.add)
            .start()
        )
        query.awaitTermination()

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        found = relation(self.spark, self.folder / name).select(*columns).collect()
        return sorted(map(tuple, found), key=repr)
