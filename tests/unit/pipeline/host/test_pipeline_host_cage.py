"""What a confined process may do all the same, in a process of its own: no way leads back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFINED = """
import os, sys
from enmasse.pipeline.host.cage import confine
confine({ports})
os.rename(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("ports", [None, [443]])
def test_whoever_is_confined_moves_a_folder_into_another(ports: list[int] | None, tmp_path: Path) -> None:
    (tmp_path / "aside" / "batch").mkdir(parents=True)
    (tmp_path / "table").mkdir()
    move = [str(tmp_path / "aside" / "batch"), str(tmp_path / "table" / "batch")]
    done = subprocess.run(
        [sys.executable, "-c", CONFINED.format(ports=ports), *move], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table" / "batch").is_dir()
