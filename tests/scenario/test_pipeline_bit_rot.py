"""One bit that a disk has changed in what Spark reads: an error with the file's name and the way out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from enmasse.pipeline.errors import CheckpointDamagedError, TableDamagedError
from enmasse.pipeline.lake.batches import Mode
from enmasse.pipeline.lake.compaction import FEW_FILES, compact
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.command import SETTINGS
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.supervision.checkpoints import check_whole
from enmasse.pipeline.sums import DamagedFileError, check_sum, sum_of
from tests.scenario.lake_stage import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

STATE = "spark.sql.streaming.stateStore."


def change_bit(file: Path, at: float = 0.5) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * at)] ^= 4
    file.write_bytes(data)


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: (len(path.name), path.name))


@pytest.mark.parametrize(("mode", "is_joined"), [("append", False), ("append", True), ("update", False)])
def test_a_bit_of_a_table_is_told_by_who_reads_it(
    spark: SparkSession, tmp_path: Path, mode: Mode, is_joined: bool
) -> None:
    lake = Lake(spark, tmp_path)
    table = open_table(lake.folder / "readings", mode=mode, keys=["k"] if mode == "update" else [])
    batches = [[{"k": f"{number}-{n}", "v": n} for n in range(50)] for number in range(FEW_FILES)]
    lake.write(table, *batches)
    if is_joined:
        assert compact(lake.folder / "readings").made
    before = lake.rows("readings", "k", "v")
    files = [path for path in (lake.folder / "readings").rglob("*.parquet") if sum_of(path).exists()]
    file = max(files, key=lambda path: path.stat().st_mtime)
    whole = file.read_bytes()
    for at in (0.1, 0.5, 0.98):  # a page, another one, the footer
        change_bit(file, at)
        with pytest.raises((PySparkException, Py4JJavaError)) as told:
            lake.rows("readings", "k", "v")
        assert sentence_of(told.value).startswith(f"{file} is not as it was written")
        assert TableDamagedError.REMEDY in sentence_of(told.value)
        if mode == "update":  # Delta's library would take other values, or put them into new files
            with pytest.raises((PySparkException, Py4JJavaError)) as told:
                lake.write(table, [{"k": "0-1", "v": 100}])
            assert f"{file} is not as it was written" in sentence_of(told.value)
        file.write_bytes(whole)
    assert set(before) <= set(lake.rows("readings", "k", "v"))


def test_a_bit_of_a_checkpoint_is_told_by_spark_or_before_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    """Every file has a checksum, and one of each kind that says so is found when it is read."""
    lake = Lake(spark, tmp_path)
    for name in ("providerClass", "rocksdb.changelogCheckpointing.enabled"):
        spark.conf.set(STATE + name, SETTINGS[STATE + name])
    sums: dict[str, int] = {}

    def go_on(checkpoint: Path, *batches: Any) -> None:
        def take(frame: Any, _: int) -> None:
            sums.update({row.k: row.v for row in frame.collect()})

        rows = lake.stream("readings", *batches)
        counts = rows.groupBy("k").agg(F.sum("v").alias("v")).writeStream.outputMode("complete")
        query = counts.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).foreachBatch(take)
        query.start().awaitTermination()

    made = tmp_path / "checkpoints" / "p"
    try:
        go_on(made, *[[{"k": "a", "v": number}] for number in (1, 2)])
        spark.conf.set(f"{STATE}rocksdb.changelogCheckpointing.enabled", "false")  # whole states, at once
        go_on(made, [{"k": "a", "v": 3}])
        whole = newest(made / "state", "0/0/*.zip")
        spark.conf.set(f"{STATE}rocksdb.changelogCheckpointing.enabled", "true")
        go_on(made, [{"k": "a", "v": 4}])
        lake.stream("readings", [{"k": "a", "v": 5}])
        files = [path for path in made.rglob("*") if path.is_file() and path.suffix != ".crc"]
        for file in files:
            kept = file.read_bytes()
            assert not kept or sum_of(file).exists(), file
            check_sum(file)
            if kept:
                change_bit(file)
                with pytest.raises(DamagedFileError, match=re.escape(str(file))):
                    check_sum(file)
                file.write_bytes(kept)
        sound = tmp_path / "sound"
        shutil.copytree(made, sound)
        at_start = [made / "metadata", newest(made, "offsets/[0-9]*"), newest(made, "commits/[0-9]*")]
        when_read = [newest(made, "sources/0/[0-9]*"), newest(made / "state", "0/0/*.changelog"), whole]
        when_read.append(made / "state" / "0" / "0" / "_metadata" / "schema")
        for file in (*at_start, *when_read):
            change_bit(file)
            with pytest.raises((PySparkException, Py4JJavaError, CheckpointDamagedError)) as told:
                (check_whole if file in at_start else go_on)(made)
            said = sentence_of(told.value)
            # In the place of a whole state Spark takes the changes since the one before, which were not written here.
            assert str(whole.with_suffix(".changelog") if file == whole else file) in said, said
            assert CheckpointDamagedError.REMEDY in said, said
            shutil.rmtree(made)
            shutil.copytree(sound, made)
        go_on(made)
        assert sums == {"a": 15}
    finally:
        for name in ("providerClass", "rocksdb.changelogCheckpointing.enabled"):
            spark.conf.unset(STATE + name)
