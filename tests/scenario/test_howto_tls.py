"""The how-to of TLS does what it says, command by command, with foreign programs as they come."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign_tools import require

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "tls.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
PLACE = "127.0.0.1:5672"

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ENMASSE_DATA": str(tmp_path / "data"), "COLUMNS": "100"}


@pytest.fixture
def place(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Host and port of an installation with what the how-to expects."""
    process = subprocess.Popen(
        ["enmasse", "up", "--ports", "auto"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (Path(environment["ENMASSE_DATA"]) / "endpoints.json").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run(["enmasse", "create", "space", "shop", "--wait", "30"], environment, tmp_path)
        run(["enmasse", "create", "address", "stock", "--type", "queue", "--wait", "30"], environment, tmp_path)
        found = re.search(r"amqps://(\S+)", run(["enmasse", "endpoints"], environment, tmp_path))
        assert found is not None
        yield found[1]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


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


def test_without_an_authority_there_is_nothing_to_print(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(["enmasse", "ca"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "enmasse up" in done.stderr
    assert not (tmp_path / "data").exists()
