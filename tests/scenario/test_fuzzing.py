"""The fuzzer itself, for a moment: it runs, counts, and keeps what it finds out of the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import minimise, registry
from fuzz.registry import corpus_of
from tests.support.foreign_tools import require

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def atheris() -> None:
    """It is installed."""
    require("atheris")


@pytest.mark.usefixtures("atheris")
def test_two_targets_are_fuzzed_and_counted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seconds", "1", "types", "server"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"types: [1-9]\d* inputs\nserver: [1-9]\d* inputs\n\d+ inputs, none failed", done.stdout)
    assert (tmp_path / "build/fuzz/types").is_dir()


def test_minimising_again_keeps_the_corpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = corpus_of("types")
    monkeypatch.setattr(registry, "CORPUS", tmp_path)
    registry.keep_corpus("types", before)
    packed = (tmp_path / "types.zip").read_bytes()
    monkeypatch.setattr(sys, "argv", ["minimise", "types"])
    assert minimise.main() == 0
    assert corpus_of("types") == before
    assert (tmp_path / "types.zip").read_bytes() == packed
