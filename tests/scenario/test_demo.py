"""The demonstration as a user starts it."""

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

import psutil
import pytest
from deltalake import DeltaTable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not Path("examples").is_dir(), reason="started outside of the repository"),
]


class Demo:
    """One run, line by line."""

    def __init__(self, data: Path, seconds: float, **environment: str) -> None:
        self.data = data
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse.demo", "--seconds", str(seconds), "--data", str(data)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200", **environment},
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
def demo(data: Path, seconds: float, **environment: str) -> Iterator[Demo]:
    running = Demo(data, seconds, **environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGINT)
            running.finish()


def rows(line: str) -> int:
    found = re.search(r"rows in the lake (\d+)", line)
    return int(found[1]) if found else 0


@pytest.mark.spark
def test_the_demo_ends_well_though_node_and_runner_are_killed(needs_spark: None, tmp_path: Path) -> None:
    with demo(tmp_path / "d", 24) as running:
        running.until(rows)
        processes = json.loads((running.data / "endpoints.json").read_text())["processes"]
        os.kill(next(p["pid"] for p in processes if p["kind"] == "node"), signal.SIGKILL)
        running.until(rows)
        folder = str(running.data / "pipelines" / "default.demo")
        runner = next(
            process
            for process in psutil.process_iter(["cmdline"])
            if {"enmasse.pipeline", "run", folder} <= set(process.info["cmdline"] or [])
        )
        runner.kill()
        status = running.finish()
    assert status == 0, running.said()
    assert "ALERT  boiler-1: temperature" in running.said()
    assert "1 restarts of the node, 1 of the runner" in running.said()
    assert running.left_over() == []
    space = running.data / "pipelines" / "default.demo"
    raw = DeltaTable(space / "lake" / "raw").to_pandas()
    assert not raw.duplicated(["partition", "offset"]).any()
    devices = {json.loads(value)["device"] for value in raw["value"]}
    assert {socket.gethostname(), "boiler-1", "greenhouse-1"} <= devices
    assert (space / "devices.png").read_bytes().startswith(b"\x89PNG")
    curve = next(line for line in running.lines if line.strip().startswith("boiler-1"))
    assert "█" in curve


def test_the_demo_runs_without_java_and_stops_at_ctrl_c_and_runs_again(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no-java")
    with demo(tmp_path / "d", 3, JAVA_HOME=nowhere) as running:
        assert running.finish() == 0, running.said()
    assert "apt-get install openjdk-17-jre-headless" in running.said()
    assert running.left_over() == []
    with demo(tmp_path / "d", 0, JAVA_HOME=nowhere) as running:
        running.until(lambda line: "accepted" in line)
        running.process.send_signal(signal.SIGINT)
        assert running.finish() == 0, running.said()
    assert "Summary" in running.said()
    assert running.left_over() == []
