"""The how-tos of queues and subscriptions do what they say, command by command."""

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

HOWTOS = Path(__file__).parents[2] / "docs" / "howto"
NAMES = [*sorted(path.name for path in HOWTOS.glob("queues-*.md")), "request-reply.md"]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
URL = "amqp://127.0.0.1:5672"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ENMASSE_DATA": str(tmp_path_factory.mktemp("howto")), "COLUMNS": "100"}


@pytest.fixture(scope="module")
def url(environment: dict[str, str]) -> Iterator[str]:
    """Where clients connect to an installation with the space that the how-tos expect."""
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
        shell("enmasse create space shop --wait 30", environment, Path.cwd())
        endpoints = shell("enmasse endpoints", environment, Path.cwd())
        found = re.search(r"amqp://[\d.]+:\d+", endpoints)
        assert found is not None
        yield found[0]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def shell(script: str, environment: dict[str, str], place: Path) -> str:
    return run(["bash", "-euc", script], environment, place)


def run(command: list[str], environment: dict[str, str], place: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=place, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def lines(text: str) -> list[str]:
    """Without what only tells that something went well."""
    told = re.compile(r"accepted|address/\S+ (created|unchanged|configured)|addressspace/.*")
    return [line.rstrip() for line in text.splitlines() if line.strip() and not told.fullmatch(line.strip())]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_program_does_what_the_howto_says(
    name: str, url: str, environment: dict[str, str], tmp_path: Path
) -> None:
    document = (HOWTOS / name).read_text()
    if "from proton" in document:
        require("python-qpid-proton")
    for command in re.findall(r"`(enmasse create address [^`]+)`", document.partition("\n## ")[0]):
        shell(f"{command} --wait 30", environment, tmp_path)
    output = ""
    checked = 0
    for kind, content in BLOCK.findall(document):
        if kind == "text":
            assert lines(output) == lines(content), output
            checked += 1
            continue
        script = content.replace(URL, url)
        if kind == "sh":
            output = shell(script, environment, tmp_path)
        else:
            assert kind == "python"
            output = run([sys.executable, "-c", script], environment, tmp_path)
    assert checked


def test_there_are_howtos_to_run() -> None:
    assert len(NAMES) >= 6
