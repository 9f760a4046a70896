"""The how-to of TLS does what it says, command by command, with foreign programs as they come."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.foreign_tools import require
from tests.support.installation import Installation
from tests.support.ready_commands import command_path

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "tls.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
PLACE = "127.0.0.1:5672"

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(installation: Installation) -> dict[str, str]:
    path = command_path()
    return {**os.environ, "PATH": path, "ENMASSE_DATA": str(installation.data), "COLUMNS": "100"}


@pytest.fixture
def place(own: Installation) -> str:
    """Host and port of an installation with what the how-to expects."""
    own.ok("create", "space", "shop", "--wait", "150")
    own.ok("create", "address", "stock", "--type", "queue", "--wait", "150")
    return own.url("amqps").removeprefix("amqps://")


def run(command: list[str], environment: dict[str, str], place: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_command_and_program_does_what_the_howto_says(
    place: str, environment: dict[str, str], tmp_path: Path
) -> None:
    require("python-qpid-proton with SASL and TLS", "Proton's examples for Python")
    output = ""
    checked = 0
    for kind, content in BLOCK.findall(HOWTO.read_text()):
        if kind == "text":
            assert output.split() == content.split()
            checked += 1
        elif kind == "sh":
            output = run(["bash", "-euc", content.replace(PLACE, place)], environment, tmp_path)
        elif kind == "python":
            output = run([sys.executable, "-c", content.replace(PLACE, place)], environment, tmp_path)
    assert checked == 5


def test_without_an_authority_there_is_nothing_to_print(tmp_path: Path) -> None:
    done = Installation(tmp_path / "data").run("ca")
    assert done.code == 3
    assert "enmasse up" in done.err
    assert not (tmp_path / "data").exists()
