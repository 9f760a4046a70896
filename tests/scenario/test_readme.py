"""The README's commands do what it says, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.foreign_tools import require
from tests.support.installation import Installation

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    return dict(BLOCK.findall((ROOT / "README.md").read_text()))


@pytest.fixture(scope="module")
def environment(installation: Installation) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ENMASSE_DATA": str(installation.data)}


@pytest.fixture(scope="module")
def platform(blocks: dict[str, str], installation: Installation) -> None:
    """The platform as the README starts it, but on free ports."""
    assert "enmasse up &\n" in blocks["up"]
    installation.be_empty()


def run(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euc", script],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("platform")
def test_the_first_five_minutes_end_with_messages_received(
    blocks: dict[str, str], environment: dict[str, str]
) -> None:
    run(blocks["declare"], environment)
    assert "a first message" in run(blocks["send"], environment)

    urls = re.findall(r"amqp://[\d.]+:\d+", run("enmasse endpoints", environment))
    program = blocks["proton"].replace("amqp://127.0.0.1:5672", urls[0])
    require("python-qpid-proton")
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert shown.stdout.strip() == "hello from proton"

    listed = run(blocks["apply"] + "\nenmasse status --wait 150", environment)
    assert "telemetry" in listed


def test_the_two_commands_at_the_top_are_targets_of_the_makefile() -> None:
    commands = re.search(r"# EnMasse\n\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert commands is not None
    targets = [line.split()[1] for line in commands[1].splitlines()]
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
