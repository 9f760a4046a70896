from __future__ import annotations

import os
import queue
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from enmasse.pipeline.host.supervise import Supervisor
from tests.support.processes import is_alive

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc"),
]

JOB = """
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print("noise", flush=True)
print(json.dumps({"event": "ready", "child": child.pid}), flush=True)
while os.read(0, 100): pass
child.kill()
child.wait()
print(json.dumps({"event": "stopped"}), flush=True)
"""


class Job:
    def __init__(self, folder: Path, source: str = JOB) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.supervisor = Supervisor([sys.executable, "-c", source], folder / "log", self.events.put)

    def until(self, event: str) -> dict[str, Any]:
        while True:
            found = self.events.get(timeout=30)
            if found["event"] == event:
                return found


def test_a_killed_driver_is_replaced_and_nothing_of_the_old_one_lives_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.supervisor.start()
    try:
        old = job.until("ready")["child"]
        pid = job.supervisor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert job.until("ended")["status"] == -signal.SIGKILL
        assert not is_alive(old)
        assert job.until("ready")["child"] != old
    finally:
        job.supervisor.stop()


def test_a_stop_lets_the_driver_end_in_order(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.supervisor.start()
    child = job.until("ready")["child"]
    job.supervisor.stop()
    assert job.until("stopped")
    assert job.until("ended")["status"] == 0
    assert not is_alive(child)
    assert job.events.empty()


def test_a_driver_without_grace_is_ended_though_it_heeds_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, 'import time; print(\'{"event": "begun"}\', flush=True); time.sleep(600)')
    job.supervisor.start()
    assert job.until("begun")
    job.supervisor.stop(0.0)
    assert job.until("ended")["status"] == -signal.SIGKILL


def test_what_the_driver_complains_of_goes_to_the_log(tmp_path: Path) -> None:
    job = Job(tmp_path, "import sys; sys.exit('no such thing')")
    job.supervisor.start()
    assert job.until("ended")["status"] == 1
    job.supervisor.stop()
    assert "no such thing" in (tmp_path / "log").read_text()
