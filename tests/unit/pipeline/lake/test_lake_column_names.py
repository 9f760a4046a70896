"""Tables whose columns have names of any characters, merged and kept without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import IntegerType, StringType, StructType, TimestampType

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.lake.compaction import compact, drop_rows
from enmasse.pipeline.lake.delta import DeltaLakeTable
from enmasse.pipeline.lake.merging import Merging
from enmasse.pipeline.lake.partitions import Partitions
from tests.support.column_names import NAMES

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_merged_and_dropped_by_columns_whatever_they_are_called(tmp_path: Path, name: str) -> None:
    at, folder = f"{name} at", tmp_path / "t"
    constraints = {"known": f"{quote_identifier(name)} IS NOT NULL"}
    layout = Layout(mode="update", keys=[name], order_by=at, partition_by=[f"bucket(2, {quote_identifier(name)})"])
    schema = StructType().add(name, StringType()).add(at, TimestampType()).add("n", IntegerType())
    table = DeltaLakeTable(folder, Layout(**{**vars(layout), "constraints": constraints}))
    table.prepare(schema, owner="o", checkpoint=tmp_path / "checkpoint")
    kinds = [(name, pa.string()), (at, pa.timestamp("us", "UTC")), ("n", pa.int32()), (f"{name}_bucket", pa.int32())]

    def merge(*rows: tuple[str, int, int, bool]) -> None:
        given = [
            {name: key, at: NOW + timedelta(hours=hour), "n": n, f"{name}_bucket": 0, DELETED: gone}
            for key, hour, n, gone in rows
        ]
        staged = ds.dataset(pa.Table.from_pylist(given, pa.schema([*kinds, (DELETED, pa.bool_())])))
        merging = Merging(folder, layout, Partitions(layout.partition_by))
        merging._replace(DeltaTable(folder), staged, None)  # type: ignore[arg-type]

    def rows() -> list[tuple[str, int]]:
        found = DeltaTable(folder).to_pyarrow_table()
        return sorted(zip(found[name].to_pylist(), found["n"].to_pylist(), strict=True))

    merge(("a", 0, 1, False), ("b", 0, 2, False), ("c", 0, 3, False))
    merge(("a", 1, 4, False), ("b", -1, 5, False), ("c", 2, 6, True), ("d", 0, 7, False))
    assert rows() == [("a", 4), ("b", 2), ("d", 7)]
    compact(folder, keep_h=24)
    assert drop_rows(folder, at, NOW + timedelta(minutes=30)) == 2
    assert rows() == [("a", 4)]
