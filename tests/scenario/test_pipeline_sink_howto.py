"""The how-to about writing results: its commands and its program are run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.howto_place import Place, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = "write-results-to-an-address.md"


@pytest.fixture
def place(needs_spark: None, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ())
    made.start()
    try:
        yield made
    finally:
        made.stop()


def run(place: Place, *command: str) -> str:
    """As ``Place.run``, for commands that a busy machine needs minutes for."""
    *rest, script = command
    script = script.replace("127.0.0.1:5672", f"127.0.0.1:{place.ports['5672']}")
    done = subprocess.run(
        [*rest, script],
        cwd=place.directory,
        env={**os.environ, **place.environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_results_are_written_as_the_howto_says(place: Place) -> None:
    found = {name: commands for name, (commands, _) in blocks(PAGE).items()}
    assert list(found) == ["prepare", "write", "read", "refused"]
    shell = ("bash", "-euc")
    run(place, *shell, found["prepare"])
    run(place, sys.executable, "-c", found["write"])
    told = run(place, *shell, found["read"])
    assert told.count("boiler-1") >= 2
    assert "95.0" in told
    assert "97.0" in told
    assert run(place, *shell, found["refused"]).endswith("nothing was refused\n")
