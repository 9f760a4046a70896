"""A tool that is missing: its tests skip, and the run says at its end what brings it; in CI they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ASKING = """
from tests.support.foreign_tools import require

def test_curl() -> None:
    require("curl")

def test_more_of_curl() -> None:
    require("curl")

def test_rhea() -> None:
    require("rhea")
"""


def run(place: Path, ci: str) -> tuple[int, list[str]]:
    """Tests on a machine without any program: how they end, and what is said last."""
    (place / "test_asking.py").write_text(ASKING)
    (place / "test_all_of_it_asks.py").write_text(
        "from tests.support.foreign_tools import require\nrequire('curl')\n"
    )
    options = ("-n0", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={place}", str(place)],
        cwd=ROOT, env={**os.environ, "PATH": str(place), "CI": ci, "PYTEST_ADDOPTS": ""}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_what_is_missing_is_counted_and_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    code, said = run(tmp_path, "")
    assert code == 0
    assert said[-5].strip("= ") == "4 skipped as tools are missing"
    assert [line.split(maxsplit=1) for line in said[-4:-2]] == [["3", "curl"], ["1", "rhea"]]
    command = "make test-tools" if os.geteuid() == 0 else "sudo make test-tools"
    assert said[-2] == f"`{command}` brings them."


def test_in_ci_it_is_a_failure_that_names_the_command(tmp_path: Path) -> None:
    code, said = run(tmp_path, "true")
    assert code != 0
    assert any("missing tool: curl; `" in line and "make test-tools` brings it" in line for line in said)
