"""``prepare``: Spark's classes in a file that Java maps instead of reading each, so that it starts in half the time.

Java calls it a dynamic archive of class-data sharing (JEP 350). It fits one version of Java and of Spark; with
another, or without one, everything works and starts slower. It belongs to the user who installed EnMasse: what it
holds is code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.errors import UnavailableError
from enmasse.pipeline.running.command import SETTINGS
from enmasse.pipeline.session import archive_folders, archive_name, find_java, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(_options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Make the archive; the exit status.

    Raises:
        UnavailableError: it could not be made.
    """
    made = make_archive(find_java())
    sys.stdout.write(f"{made}: {made.stat().st_size >> 20} MB; Spark starts in about half the time\n")
    return 0


def make_archive(java: Path) -> Path:
    """Start Spark once, have it do what pipelines do, and keep the classes that took; about half a minute.

    Raises:
        UnavailableError: Java made none, or no folder can be written.
    """
    folder = next((one for one in archive_folders() if _is_writable(one)), None)
    if folder is None:
        raise UnavailableError(f"none of {', '.join(map(str, archive_folders()))} can be written")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / archive_name(java)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as work:
        made = Path(work, "classes.jsa")
        # In a process of its own: Java writes the file when it ends.
        done = subprocess.run(
            [sys.executable, "-m", "enmasse.pipeline.running.class_archive", str(made), work],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not made.is_file():
            raise UnavailableError(f"Java kept no archive of Spark's classes: {(done.stderr or done.stdout)[-500:]}")
        made.chmod(0o644)
        made.replace(target)
    for other in folder.glob("spark-*.jsa"):
        if other != target:
            other.unlink(missing_ok=True)
    return target


def _is_writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _count(frame: DataFrame, _batch: int) -> None:
    frame.mapInArrow(lambda batches: batches, "value STRING").count()


def _work(spark: SparkSession, folder: Path) -> None:
    """Do a bit of everything that pipelines do."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # loaded when the session was made

    (folder / "in").mkdir()
    (folder / "in" / "rows.json").write_text('{"device": "d", "value": 1, "at": "2026-01-31T12:00:00Z"}\n')
    rows = spark.readStream.text(str(folder / "in")).select(
        F.from_json("value", "device STRING, value DOUBLE, at TIMESTAMP").alias("row")
    )
    windows = (
        rows.select("row.*")
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "10 seconds"), "device")
        .agg(F.mean("value"), F.stddev("value"))
    )
    query = (
        windows.select(F.to_json(F.struct("*")).alias("value"))
        .mapInPandas(lambda frames: frames, "value STRING")
        .writeStream.foreachBatch(_count)
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _record(archive: Path, folder: Path) -> None:
    spark = start_session("classes", folder / "spark", settings=SETTINGS, record=archive)
    _work(spark, folder)
    spark.stop()


if __name__ == "__main__":
    _record(Path(sys.argv[1]), Path(sys.argv[2]))
