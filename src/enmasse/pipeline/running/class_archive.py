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
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import UnavailableError
from enmasse.model.schema.kinds import PIPELINE
from enmasse.pipeline.running.command import SETTINGS
from enmasse.pipeline.session import archive_folders, archive_name, find_java, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


_NAME = "classes.readings"
_SOURCE: Final = {
    "name": "readings",
    "files": {"path": "in", "format": "json"},
    "schema": "device STRING, value DOUBLE, at TIMESTAMP",
    "watermark": {"column": "at", "delay": "10s"},
}
_WINDOWS: Final = """
SELECT window.start AS since, device, avg(value) AS mean, stddev(value) AS spread,
  to_json(collect_list(value)) AS text
FROM readings GROUP BY device, window(at, '10 seconds')
"""
_PIPELINE: Final = {
    "apiVersion": PIPELINE.api_version,
    "kind": PIPELINE.name,
    "metadata": {"name": _NAME, "namespace": "default", "generation": 1},
    "spec": {
        "sources": [_SOURCE],
        "steps": [
            {"name": "windows", "sql": _WINDOWS},
            {"name": "same", "function": "same:same", "input": "readings", "schema": "device STRING, value DOUBLE"},
        ],
        "sinks": [
            {"input": "windows", "table": "windows", "mode": "update", "keys": ["since", "device"]},
            {"input": "same", "table": "same"},
        ],
        "trigger": "availableNow",
    },
}
_QUERY: Final = """
SELECT s.device, count(*) AS n, max(w.mean) AS mean FROM same s JOIN windows w ON s.device = w.device
WHERE s.value > 0 GROUP BY s.device ORDER BY n
"""
_PATIENCE_S: Final = 300.0


def _work(spark: SparkSession, folder: Path) -> None:
    """Have a runner do a bit of everything: a pipeline from files to tables, and a query of them.

    Raises:
        UnavailableError: it did not.
    """
    from enmasse.pipeline.running.planning.plans import Place  # noqa: PLC0415  # they need PySpark
    from enmasse.pipeline.running.runner import Runner  # noqa: PLC0415

    place = Place("amqp://127.0.0.1", "", folder)
    read, code = place.files / "files" / "in", folder / "code" / _NAME
    for made in (read, code):
        made.mkdir(parents=True)
    (read / "rows.json").write_text('{"device": "d", "value": 1, "at": "2026-01-31T12:00:00Z"}\n')
    (code / "same.py").write_text("def same(rows):\n    return rows[['device', 'value']]\n")
    events: Queue[dict[str, Any]] = Queue()
    runner = Runner(spark, place, lambda event, **fields: events.put({"event": event, **fields}))

    def wait(event: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        while (found := events.get(timeout=_PATIENCE_S))["event"] != event or not condition(found):
            if problem := found.get("error") or found.get("status", {}).get("lastError"):
                raise UnavailableError(problem)

    runner.dispatch({"command": "put", "pipeline": _PIPELINE})
    wait("status", lambda found: {query["state"] for query in found["status"].get("queries", ())} == {"Finished"})
    runner.dispatch({"command": "query", "id": "1", "sql": _QUERY})
    wait("answer", lambda found: not found["error"])
    runner.close()


def _record(archive: Path, folder: Path) -> None:
    spark = start_session("classes", folder / "spark", settings=SETTINGS, record=archive)
    gateway: Any = spark.sparkContext._gateway
    _work(spark, folder)
    gateway.proc.wait()  # it writes the file when it ends


if __name__ == "__main__":
    _record(Path(sys.argv[1]), Path(sys.argv[2]))
