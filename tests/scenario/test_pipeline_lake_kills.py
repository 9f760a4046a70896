"""Drivers killed while they write tables: each row is there once, and batches are whole."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.scenario.lake_driver import DEVICES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("ENMASSE_TEST_LAKE_KILLS", "2"))


class Driver:
    """The driver in a session of its own, with Java and workers, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._log = (folder / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("lake_driver.py")), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.put(json.loads(line))
        self.events.put(None)

    def added(self, batches: Mapping[str, int]) -> bool:
        """Wait until each table got so many batches; false: a query failed, and the driver ended."""
        missing = dict(batches)
        while any(count > 0 for count in missing.values()):
            event = self.events.get(timeout=150)
            if event is None:
                return False
            missing[event["table"]] -= event["added"]
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@pytest.mark.timeout(500)
def test_each_row_is_in_the_table_once_however_often_the_driver_is_killed(needs_spark: None, tmp_path: Path) -> None:
    moment = random.Random(7)
    kills = 0
    while kills < KILLS:
        driver = Driver(tmp_path)
        try:
            # On a machine that is too busy Spark gives its workers up; then the next driver goes on.
            if driver.added({"readings": 2, "last": 1}):
                # Anywhere in the batches that follow.
                time.sleep(moment.uniform(0.0, 0.6))
                kills += 1
        finally:
            driver.kill()
    readings = DeltaTable(tmp_path / "lake" / "readings").to_pyarrow_table(columns=["n", "device", "day"]).to_pylist()
    rows = len(readings)
    assert rows >= KILLS * ROWS
    assert rows % ROWS == 0
    assert sorted(row["n"] for row in readings) == list(range(rows))
    assert all(row["device"] == f"device-{row['n'] % DEVICES}" for row in readings)
    assert {(row["n"] % 3, str(row["day"])) for row in readings} == {
        (0, "2026-01-31"),
        (1, "2026-01-30"),
        (2, "2026-01-29"),
    }
    last = {row["device"]: row["n"] for row in DeltaTable(tmp_path / "lake" / "last").to_pyarrow_table().to_pylist()}
    newest = max(last.values())
    assert (newest + 1) % ROWS == 0
    assert last == {f"device-{n % DEVICES}": n for n in range(newest - DEVICES + 1, newest + 1)}
