"""The how-to about declaring a pipeline, command by command, with Spark; the command line end to end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.howto_place import Place, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(500)]

PAGE = "declare-a-pipeline.md"


@pytest.fixture
def place(needs_spark: None, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ())
    made.start()
    try:
        yield made
    finally:
        made.stop()


def wait_until_it_runs(place: Place) -> None:
    """Spark starts in seconds, or in minutes where the machine is busy with more than this."""
    deadline = time.monotonic() + 300
    while '"phase": "Running"' not in (told := place.run("enmasse pipeline status hot -o json")):
        assert time.monotonic() < deadline, told
        time.sleep(1)


def test_the_howto_does_what_it_says(place: Place) -> None:
    found = blocks(PAGE)
    told: dict[str, str] = {}
    for name, (commands, expected) in found.items():
        told[name] = place.run(commands)
        if name == "run":
            wait_until_it_runs(place)
        if expected is not None:
            lines = [line.rstrip() for line in told[name].splitlines()]
            # What sending says is beside the point.
            assert lines[-len(expected.splitlines()) :] == [line.rstrip() for line in expected.splitlines()], name
    assert "plant.hot" in told["status"]
    assert "table-readings" in told["status"]
    assert "Running" in told["status"]
    assert "boiler-2 ████" in told["chart"]
