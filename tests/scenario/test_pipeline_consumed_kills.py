"""Drivers, planners and nodes are killed at random moments; what was sent and what Spark wrote is compared."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenario.consumed_place import counts, send, until

if TYPE_CHECKING:
    from .conftest import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

DRIVER = Path(__file__).with_name("consumed_driver.py")

MANNERS = [
    "planner",
    "node",
    "planner",
    "java",
    "planner",
    "planner",
    "node",
    "planner",
    "driver",
    "planner",
    "node",
    "planner",
]
"""Most are quick: a new driver takes Spark some seconds."""


class Driver:
    """The process group of one driver after the other."""

    def __init__(self, node: StreamNode, address: str, folder: Path) -> None:
        self._node, self._address, self._folder = node, address, folder
        folder.mkdir()
        self.start()

    def start(self) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), self._node.url, self._address, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"running\n", (self._folder / "driver.log").read_text()

    def _members(self, word: bytes) -> list[int]:
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdecimal():
                try:
                    if os.getpgid(int(path.name)) == self._process.pid and word in (path / "cmdline").read_bytes():
                        found.append(int(path.name))
                except OSError:
                    continue
        return found

    def kill_planner(self) -> None:
        for number in self._members(b"python_streaming_source_runner"):
            os.kill(number, signal.SIGKILL)

    def kill_java(self) -> None:
        """Spark dies alone: its planner has to notice by itself."""
        for number in self._members(b"SparkSubmit"):
            os.kill(number, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        until(lambda: not self._members(b"python_streaming_source_runner"))
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def rows(self) -> list[tuple[int, str]]:
        tables = sorted((self._folder / "table").glob("*.json"), key=lambda path: int(path.stem))
        return [(offset, value) for path in tables for offset, value in json.loads(path.read_text())]


@pytest.mark.timeout(400)  # Spark starts three times, and a busy machine takes its time for that
def test_nothing_is_lost_or_doubled_however_often_something_is_killed(
    stream_node: StreamNode, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    sys.stderr.write(f"seed {seed}\n")
    chance = random.Random(seed)
    stream_node.create("orders", "queue")
    folder = tmp_path / "driver"
    driver = Driver(stream_node, "orders", folder)
    sent = 0
    try:
        for manner in MANNERS:
            count = chance.randrange(30, 150)
            send(stream_node, "orders", *[b"%d" % n for n in range(sent, sent + count)])
            sent += count
            time.sleep(chance.random() * 1.5)
            if manner == "node":
                stream_node.kill()
                stream_node.start()
            elif manner == "planner":
                driver.kill_planner()
            else:
                driver.kill_java() if manner == "java" else driver.kill()
                driver.start()
        until(lambda: len({value for _, value in driver.rows()}) >= sent)
        until(lambda: counts(stream_node, "orders")["messagesStored"] == 0)
        # A message that was given twice would show by now.
        until(lambda: counts(stream_node, "orders")["unsettled"] == 0)
    finally:
        driver.kill()
    assert not (folder / "differs").exists(), (folder / "differs").read_text()
    rows = driver.rows()
    found = Counter(int(value) for _, value in rows)
    assert sorted(found) == list(range(sent)), "lost"
    assert {value: times for value, times in found.items() if times > 1} == {}, "doubled"
    assert [offset for offset, _ in rows] == list(range(sent))
