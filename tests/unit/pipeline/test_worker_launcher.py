from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from enmasse.pipeline.workers.launcher import write_launcher

TELL = "import os, sys; print(sys.executable, os.environ.get('PYTHONPATH'), sys.argv[1:], sep='|')"


def started(launcher: Path, *arguments: str) -> str:
    environment = {"PYTHONPATH": "/spark/python/lib/pyspark.zip", "PATH": "/nowhere"}
    return subprocess.run(
        [launcher, "-c", TELL, *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_it_is_this_python_without_sparks_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert (
        started(write_launcher(tmp_path, tmp_path / "zygote"), "a b", "$c") == f"{sys.executable}|None|['a b', '$c']"
    )


def test_modules_are_found_where_this_process_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/it's/$HOME of:mine")
    assert started(write_launcher(tmp_path, tmp_path / "zygote")) == f"{sys.executable}|/it's/$HOME of:mine|[]"


def test_one_that_another_run_left_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/older")
    write_launcher(tmp_path, tmp_path / "zygote")
    monkeypatch.setenv("PYTHONPATH", "/newer")
    assert "|/newer|" in started(write_launcher(tmp_path, tmp_path / "zygote"))
