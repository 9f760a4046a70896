"""The how-to of many tenants does what it says, command by command."""

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

from tests.support.polling import until
from tests.support.ready_commands import command_path
from tests.support.ready_processes import ReadyPopen

HOWTO = (Path(__file__).parents[2] / "docs" / "howto" / "many-tenants.md").read_text()
BLOCKS = {
    name: (kind, content)
    for name, kind, content in re.findall(r"<!-- run: (\w+) -->\n```(\w+)\n(.*?)```", HOWTO, re.DOTALL)
}
PATIENCE_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with an installation that runs."""
    directory = tmp_path_factory.mktemp("tenants")
    with (directory / "up.log").open("w") as log:
        process = ReadyPopen(
            [sys.executable, "-m", "enmasse", "up", "--ports", "auto"],
            cwd=directory, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until((directory / ".enmasse" / "endpoints.json").exists, (directory / "up.log").read_text)
            yield directory
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)


def run(place: Path, name: str) -> tuple[str, float]:
    """Run a block; what it said, and how many seconds it took."""
    kind, content = BLOCKS[name]
    command = ["bash", "-euc"] if kind == "sh" else [sys.executable, "-W", "error", "-c"]
    environment = {key: value for key, value in os.environ.items() if key != "ENMASSE_DATA"}
    environment["PATH"] = command_path()
    began = time.monotonic()
    done = subprocess.run(
        [*command, content], cwd=place, env={**environment, "COLUMNS": "100"}, capture_output=True, text=True,
        timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr, time.monotonic() - began


def test_the_how_to_does_what_it_says(place: Path) -> None:
    run(place, "spaces")
    assert "for the trial" in run(place, "send")[0]
    assert "connections: 20" in run(place, "plan")[0]
    assert (
        "space 'default/trial' has 10 devices (distinct container ids), as many as its plan"
        in run(place, "refused")[0]
    )
    assert run(place, "waits")[1] >= 2 * 0.9
    run(place, "hosts")
    told = run(place, "list")[0]
    assert '"address":"orders"' in told
    assert "shop" not in told
    run(place, "quota")
    said = run(place, "exceeded")[0]
    assert "exceeded quota: team, requested: count/addresses.enmasse.io=1" in " ".join(said.split())
    until(lambda: "count/addresses.enmasse.io: 2/2" in " ".join(run(place, "exceeded")[0].split()))


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"spaces", "send", "plan", "refused", "waits", "hosts", "list", "quota", "exceeded"}
