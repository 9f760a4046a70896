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
        process = subprocess.Popen(
            [sys.executable, "-m", "enmasse", "up", "--ports", "auto"],
            cwd=directory, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (directory / ".enmasse" / "endpoints.json").exists():
                assert time.monotonic() < deadline, (directory / "up.log").read_text()
                time.sleep(0.05)
            yield directory
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)


def run(place: Path, name: str) -> tuple[str, float]:
    """Run a block; what it said, and how many seconds it took."""
    kind, content = BLOCKS[name]
    command = ["bash", "-euc"] if kind == "sh" else [sys.executable, "-W", "error", "-c"]
    environment = {key: value for key, value in os.environ.items() if key != "ENMASSE_DATA"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    began = time.monotonic()
    done = subprocess.run(
        [*command, content], cwd=place, env={**environment, "COLUMNS": "100"}, capture_output=True, text=True,
        timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
    return done.stdout, time.monotonic() - began


def test_the_how_to_does_what_it_says(place: Path) -> None:
    run(place, "spaces")
    assert "for the trial" in run(place, "send")[0]
    assert "connections: 20" in run(place, "plan")[0]
    assert (
        "space 'default/trial' has 10 devices (distinct container ids), as many as its plan"
        in run(place, "refused")[0]
    )
    assert run(place, "waits")[1] >= 2 * 0.9
    told = run(place, "list")[0]
    assert '"address":"orders"' in told
    assert "shop" not in told


def test_every_block_is_run() -> None:
    assert set(BLOCKS) == {"spaces", "send", "plan", "refused", "waits", "list"}
