"""The version of a table that a batch joins: found, written down, kept and read."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import DateType, DoubleType, StringType, StructField, StructType

from enmasse.pipeline.errors import DataLossError, TableSchemaError
from enmasse.pipeline.lake.delta_reading import partitions_of, read_files
from enmasse.pipeline.lake.reference import (
    Pins,
    ReferenceReader,
    forget_pins,
    joined_tables,
    present_version,
    query_key,
)

SCHEMA = StructType(
    [
        StructField("device", StringType()),
        StructField("place", StringType()),
        StructField("day", DateType()),
        StructField("level", DoubleType()),
    ]
)
FIELDS = json.loads(SCHEMA.json())["fields"]


class Scene:
    """A table, and the checkpoint of a query that joins it."""

    def __init__(self, folder: Path) -> None:
        self.lake = folder / "lake"
        self.table = self.lake / "devices"
        self.checkpoint = folder / "checkpoint"
        (self.checkpoint / "offsets").mkdir(parents=True)

    def write(self, *rows: tuple[str, str | None, date | None, float], mode: Any = "append") -> None:
        columns = zip(*rows, strict=True)
        table = pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True)))
        write_deltalake(self.table, table, mode=mode, partition_by=["place", "day"])

    def begin(self, batch: int) -> None:
        (self.checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n{}\n")

    def pins(self) -> Pins:
        return Pins(self.table, self.checkpoint, query_key("shop.enrich", "table-out"))

    def joined(self, refresh: float = 0) -> list[dict[str, Any]]:
        options = {
            "path": str(self.table),
            "checkpoint": str(self.checkpoint),
            "query": query_key("shop.enrich", "table-out"),
            "refresh": str(refresh),
        }
        reader = ReferenceReader(options, SCHEMA)
        rows = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = pa.Table.from_batches(rows, rows[0].schema).to_pylist() if rows else []
        return sorted(found, key=lambda row: str(row["device"]))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    found = Scene(tmp_path)
    found.write(("a", "cold store", date(2026, 1, 31), 1.0), ("b", "größe/1", None, 2.0))
    return found


def test_columns_that_folders_stand_for_have_their_types_and_texts(scene: Scene) -> None:
    scene.begin(0)
    assert scene.joined() == [
        {"device": "a", "place": "cold store", "day": date(2026, 1, 31), "level": 1.0},
        {"device": "b", "place": "größe/1", "day": None, "level": 2.0},
    ]


def test_each_batch_joins_the_table_as_it_is_then_and_the_same_again_when_it_is_repeated(scene: Scene) -> None:
    scene.begin(0)
    before = scene.joined()
    scene.write(("c", "x", None, 3.0))
    assert scene.joined() == before
    scene.begin(1)
    assert [row["device"] for row in scene.joined()] == ["a", "b", "c"]
    ((name, version),) = joined_tables(scene.checkpoint)
    assert (name, version.name) == ("devices", "1")


def test_what_a_batch_joined_stays_although_the_table_is_cleaned_up(scene: Scene) -> None:
    scene.begin(0)
    before = scene.joined()
    scene.write(("z", "x", None, 9.0), mode="overwrite")
    DeltaTable(scene.table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert scene.joined() == before
    for batch in (1, 2):
        scene.begin(batch)
        assert [row["device"] for row in scene.joined()] == ["z"]
    # What no batch can join again is kept no longer.
    kept = scene.lake / "_pinned" / "shop.enrich_table-out" / "devices"
    assert [folder.name for folder in kept.iterdir()] == [str(DeltaTable(scene.table).version())]
    assert sorted(file.name for file in (scene.checkpoint / "tables" / "devices").iterdir()) == ["1", "2"]
    forget_pins(scene.lake, "shop.enrich")
    assert not kept.exists()


def test_a_file_that_nothing_kept_is_missed_by_its_name_and_not_read_as_no_rows(scene: Scene) -> None:
    # As of a table in a bucket, where there are no links.
    version = present_version(scene.table, FIELDS)
    (part,) = [part for part in partitions_of(str(scene.table), version.files) if "cold" in part.files[0].path]
    assert sum(rows.num_rows for rows in read_files(part, SCHEMA)) == 1
    (scene.table / part.files[0].path).unlink()
    missed = r"the file place=cold.*parquet of the table .*devices is there no more: .* restart the pipeline"
    with pytest.raises(DataLossError, match=missed):
        list(read_files(part, SCHEMA))


def test_a_version_may_be_as_old_as_the_source_says(scene: Scene) -> None:
    scene.begin(0)
    before = scene.joined(refresh=3600)
    scene.write(("c", "x", None, 3.0))
    scene.begin(1)
    assert scene.joined(refresh=3600) == before
    scene.begin(2)
    assert len(scene.joined(refresh=0.000001)) == 3


def test_new_columns_are_left_out_and_changed_ones_are_said(scene: Scene) -> None:
    table = pa.table({"device": ["c"], "place": ["x"], "day": pa.nulls(1, pa.date32()), "level": [3.0], "new": [1]})
    write_deltalake(scene.table, table, mode="append", schema_mode="merge", partition_by=["place", "day"])
    scene.begin(0)
    assert "new" not in scene.joined()[0]
    other = pa.table({"device": [1], "place": ["x"], "level": ["much"]})
    write_deltalake(scene.table, other, mode="overwrite", schema_mode="overwrite", partition_by=["place"])
    with pytest.raises(TableSchemaError, match=r"'device' of the table devices is now .*long"):
        present_version(scene.table, FIELDS)
    with pytest.raises(TableSchemaError, match="there is no table 'nothing'"):
        present_version(scene.lake / "nothing", FIELDS)


def test_an_empty_table_joins_nothing(scene: Scene) -> None:
    DeltaTable(scene.table).delete()
    scene.begin(0)
    assert scene.joined() == []
