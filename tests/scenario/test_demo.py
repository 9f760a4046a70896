"""The demonstration as a user starts it, and the tutorial over what it leaves."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from deltalake import DeltaTable

from tests.scenario.howto_place import Place, blocks
from tests.support.chance import is_long
from tests.support.installation import Installation
from tests.support.polling import until

TUTORIAL = "../tutorial/from-the-demo-to-your-own-pipeline.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


class Demo:
    """One run, line by line."""

    def __init__(self, data: Path, seconds: float, *arguments: str, **environment: str) -> None:
        self.data = data
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse.demo", "--seconds", str(seconds), "--data", str(data), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # At length Java's options are those of the demonstration, as they are for users.
            env={key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS" or not is_long()}
            | {"COLUMNS": "200", **environment},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._queue.put(line)
        self._queue.put(None)

    def until(self, wanted: Callable[[str], object]) -> None:
        while True:
            line = self._queue.get(timeout=200)
            assert line is not None, self.said()
            self.lines.append(line)
            if wanted(line):
                return

    def finish(self) -> int:
        status = self.process.wait(300)
        self._reader.join()
        while (line := self._queue.get()) is not None:
            self.lines.append(line)
        return status

    def said(self) -> str:
        return "".join(self.lines)

    def left_over(self) -> list[str]:
        """Living processes that were started for this run."""
        found = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if str(self.data) in command:
                found.append(command)
        return found


@contextmanager
def demo(data: Path, seconds: float, *arguments: str, **environment: str) -> Iterator[Demo]:
    running = Demo(data, seconds, *arguments, **environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGINT)
            running.finish()


def rows(line: str) -> int:
    found = re.search(r"rows in the lake (\d+)", line)
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def ended(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A run that came to its end, though the home of its space, one of two nodes, and its runner were killed."""
    with demo(tmp_path_factory.mktemp("demo") / ".enmasse", 24, "--nodes", "2") as running:
        running.until(rows)
        processes = json.loads((running.data / "endpoints.json").read_text())["processes"]
        nodes = {p["name"]: p["pid"] for p in processes if p["kind"] == "node"}
        assert nodes.keys() == {"node-0", "node-1"}
        os.kill(nodes[Installation(running.data).home("demo")], signal.SIGKILL)
        running.until(rows)
        folder = str(running.data / "pipelines" / "default.demo")
        runner = next(
            process
            for process in psutil.process_iter(["cmdline"])
            if {"enmasse.pipeline", "run", folder} <= set(process.info["cmdline"] or [])
        )
        runner.kill()
        running.finish()
    return running


@pytest.mark.spark
def test_the_demo_ends_well_though_node_and_runner_are_killed(ended: Demo) -> None:
    assert ended.process.returncode == 0, ended.said()
    assert "ALERT  boiler-1: temperature" in ended.said()
    assert "COMMAND  boiler-1: cool is accepted" in ended.said()
    assert "1 restarts of the node, 1 of the runner" in ended.said(), ended.said()
    assert ended.left_over() == []
    space = ended.data / "pipelines" / "default.demo"
    raw = DeltaTable(space / "lake" / "raw").to_pandas()
    assert not raw.duplicated(["partition", "offset"]).any()
    devices = {json.loads(value)["device"] for value in raw["value"]}
    assert {socket.gethostname(), "boiler-1", "greenhouse-1"} <= devices
    columns = DeltaTable(space / "lake" / "plant_telemetry").to_pandas()
    assert len(columns) == len(raw)
    assert set(columns["tenant"]) == {"default.plant"}
    assert {"hono-mqtt", "hono-http", "hono-amqp"} == set(columns["adapter"])
    assert devices == set(columns["device"])
    assert (space / "devices.png").read_bytes().startswith(b"\x89PNG")
    curve = next(line for line in ended.lines if line.strip().startswith("boiler-1"))
    assert "█" in curve


@pytest.fixture
def place(ended: Demo) -> Iterator[Place]:
    """What the demonstration left, started again."""
    place = Place(ended.data.parent, ())
    try:
        place.start()
        yield place
    finally:
        place.stop()


@pytest.mark.spark
def test_the_tutorial_goes_on_where_the_demo_ended(place: Place) -> None:
    dry_air = place.data / "pipelines/default.demo/lake/dry_air"
    told = {}
    for name, (commands, expected) in blocks(TUTORIAL).items():
        if name == "pandas":
            # The page says that the table has it all a moment after the queue.
            until(
                lambda: (
                    DeltaTable.is_deltatable(str(dry_air)) and DeltaTable(dry_air).to_pyarrow_table().num_rows == 2
                )
            )
        told[name] = place.run(commands)
        if expected is not None:
            wanted = expected.split()  # what comes before was said by commands whose words are not shown
            assert told[name].split()[-len(wanted) :] == wanted, (name, told[name])
    for pipeline in ("lake", "telemetry", "windows", "anomalies"):
        assert f"demo.iot-plant-{pipeline}" in told["list"]
    assert "cool" in told["commands"]
    heading, *warmest = told["windows"].splitlines()
    assert heading.split() == ["device", "warmest"]
    assert len(warmest) == 3
    assert '"device"' in told["stream"]


def test_the_demo_runs_without_java_and_stops_at_ctrl_c_and_runs_again(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no-java")
    with demo(tmp_path / "d", 3, JAVA_HOME=nowhere) as running:
        assert running.finish() == 0, running.said()
    assert "apt-get install openjdk-17-jre-headless" in running.said()
    assert re.search(r"Watch the devices: \S+/enmasse console --data ", running.said())
    assert "token=" not in running.said()
    assert running.left_over() == []
    with demo(tmp_path / "d", 0, JAVA_HOME=nowhere, FORCE_COLOR="1") as running:
        running.until(lambda line: "login?token=" in line)
        link = re.search(r"http://\S+", running.lines[-1])
        assert link is not None
        led = httpx.get(link[0])
        page, proof = re.split("#proof=", led.headers["location"].rpartition("/")[2])
        assert (led.status_code, page, bool(proof)) == (303, "plant", True)
        running.until(lambda line: "accepted" in line)
        running.process.send_signal(signal.SIGINT)
        assert running.finish() == 0, running.said()
    assert "Summary" in running.said()
    assert running.left_over() == []
