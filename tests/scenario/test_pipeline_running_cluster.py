"""The same Pipeline on a standalone cluster: one master and two workers in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from enmasse.client.blocking import Message
from enmasse.pipeline.session import find_java
from tests.scenario.conftest import StreamNode
from tests.scenario.pipeline_runner_place import RunnerPlace

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

HOME = Path(pyspark.__file__).parent
PIPELINE = {
    "sources": [{"name": "readings", "address": "telemetry"}],
    "steps": [
        {"name": "texts", "sql": "SELECT CAST(value AS STRING) AS text FROM readings"},
        {"name": "scored", "function": "scoring:score", "schema": "text STRING, size INT, executor STRING"},
    ],
    "sinks": [{"table": "scored"}],
    "code": {"configMap": "scoring"},
}
SCORING = """
import os

def score(rows):
    return rows.assign(size=rows.text.str.len(), executor=os.environ.get("SPARK_EXECUTOR_DIRS", ""))
"""


class Cluster:
    """A master and its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self) -> None:
        log = self._run("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self._said(log, r"(spark://127\.0\.0\.1:\d+)")
        for number in range(2):
            log = self._run(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", "600m", "--work-dir", str(self._folder / f"work-{number}")),
                self.url,
            )
            self._said(log, "(Successfully registered)")

    def _run(self, name: str, main: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        # Java 17 keeps these closed, and spark-class, which is not used here, opens them.
        command += ["--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        command += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        command += ["-cp", f"{HOME}/jars/*", main, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        scala = next(HOME.glob("jars/spark-core_*.jar")).name.split("_")[1].rpartition("-")[0]
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": scala,
        }
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=self._folder
            )
        self._processes.append(process)
        return log

    def _said(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + 120
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            assert self._processes[-1].poll() is None, log.read_text()
            time.sleep(0.1)
        return found[1]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.timeout(900)
def test_a_pipeline_runs_on_two_workers_of_a_cluster(
    stream_node: StreamNode, cluster: Cluster, tmp_path: Path
) -> None:
    stream_node.create("telemetry", partitions=2)
    with stream_node.connect() as connection:
        messages = [Message(b"m%d" % n, subject=f"d{n}") for n in range(100)]
        connection.sender("telemetry").send_all(messages, timeout=60)
    place = RunnerPlace(stream_node.url, tmp_path / "space")
    code = place.folder / "code" / "demo.scored"
    code.mkdir(parents=True)
    (code / "scoring.py").write_text(SCORING)
    place.start("--master", cluster.url, "--executor-memory", "512m")
    try:
        place.put("demo.scored", PIPELINE, {"telemetry": {"type": "stream"}})
        place.until(lambda: len(place.rows("scored")) == 100, 500)
        rows = place.rows("scored")
        assert sorted(row["text"] for row in rows) == sorted(f"m{n}" for n in range(100))
        assert {row["size"] for row in rows} == {2, 3}
        assert all(row["executor"] for row in rows), "the function ran in an executor's worker"
        assert place.ask("SELECT count(*) FROM scored", timeout=200)["rows"] == [[100]]
        assert place.stop() == 0
    finally:
        if place.process is not None and place.process.poll() is None:
            place.kill()
