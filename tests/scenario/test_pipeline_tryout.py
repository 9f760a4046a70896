"""``enmasse pipeline test``: two run at once, and nothing is left of those that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.support.polling import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LATE_S = 120.0
PIPELINE = """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: plant.said}
spec:
  sources: [{name: lines, address: lines, format: text}]
  sinks: [{table: said}]
"""
ROWS = """
given: [{address: lines, messages: [{text: started}]}]
expect: [{table: said, rows: [{value: started}]}]
"""


def test_two_run_at_once_and_leave_nothing_when_they_are_killed(tmp_path: Path) -> None:
    (tmp_path / "said.yaml").write_text(PIPELINE)
    (tmp_path / "rows.yaml").write_text(ROWS)
    command = [sys.executable, "-m", "enmasse", "pipeline", "test", "said.yaml", "rows.yaml"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pt-")))  # names of sockets are short
        processes = []
        for _ in range(2):
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=os.environ | {"TMPDIR": str(folder)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.kill)
            processes.append(process)
        until(lambda: len(list(folder.glob("*/data/endpoints.json"))) == 2, "not both run", seconds=LATE_S)
        started = [one for process in processes for one in psutil.Process(process.pid).children(recursive=True)]
        assert len(started) > 2 * 3
        for process in processes:
            process.kill()
            process.wait()
        until(lambda: not any(one.is_running() for one in started), "a platform runs on", seconds=LATE_S)
        until(lambda: not list(folder.iterdir()), "a folder is left", seconds=LATE_S)
