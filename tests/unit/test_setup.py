"""``make setup`` installs the core alone, and ``with-progress`` tells how far a command is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRESS = str(ROOT / "with-progress")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree of which make knows enough to plan."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def plan(clone: Path, target: str, *settings: str) -> list[str]:
    """Return the commands that make would run."""
    # The make that runs these tests leaves its own flags to whatever it starts.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "-n", target, *settings], cwd=clone, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("target", "layers"),
    [
        ("setup", ["."]),
        ("demo", [".", "'.[demo]'"]),
        ("fast", [".", "'.[demo]'", "'.[dev]'", "'.[proton]'", "'.[fuzz]'"]),
        ("advisories", [".", "'.[demo]'", "'.[dev]'", "'.[proton]'", "'.[fuzz]'"]),
        ("lint", [".", "'.[demo]'", "'.[dev]'", "'.[proton]'", "'.[fuzz]'"]),
    ],
)
def test_a_target_installs_its_layers_in_their_order_and_no_other(
    clone: Path, target: str, layers: list[str]
) -> None:
    installed = [line.partition(" -e ")[2].split()[0] for line in plan(clone, target) if " pip install " in line]
    assert installed == layers


def test_a_layer_that_is_there_is_not_installed_again(clone: Path) -> None:
    (clone / ".venv").mkdir()
    for stamp in (".core", ".spark"):
        (clone / ".venv" / stamp).touch()
    assert plan(clone, "demo") == [".venv/bin/enmasse demo --seconds 0"]
    assert plan(clone, "demo", "NODES=2") == [".venv/bin/enmasse demo --seconds 0 --nodes 2"]


@pytest.mark.slow  # it takes five seconds until there is something to tell
def test_a_command_that_takes_long_tells_how_far_it_is(tmp_path: Path) -> None:
    said = "Collecting a", "Collecting b", "  Downloading b-1.0.tar.gz (3 kB)", "     ━━━━━━━━ 3/3 kB"
    command = [PROGRESS, "log", "sh", "-c", 'printf "%s\\n" "$@"; read answer', "sh", *said]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.communicate("enough\n")
    assert line.endswith(" s: 2 packages found; Downloading b-1.0.tar.gz (3 kB)\n")
    assert process.returncode == 0
    assert (tmp_path / "log").read_text().splitlines() == [*said]


def test_a_command_that_fails_shows_the_end_of_what_it_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRESS, "log", "sh", "-c", "seq 100; exit 3"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        *map(str, range(86, 101)),
        "Failed: sh -c seq 100; exit 3 (all that it said: log)",
    ]
