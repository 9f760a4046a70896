"""The comparison of the clients runs to its end and tells what it was of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.foreign_tools import require

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_both_clients_are_measured_in_both_roles(tmp_path: Path) -> None:
    require("python-qpid-proton")
    command = [sys.executable, "-m", "benchmarks.client", "--seconds", "0.2", "--runs", "1"]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "send enmasse", "send proton", "send", "receive enmasse", "receive proton", "receive",
    ]  # fmt: skip
    assert all("us of CPU per message" in line for line in lines if " enmasse" in line or " proton" in line)
    assert not list(tmp_path.iterdir())
