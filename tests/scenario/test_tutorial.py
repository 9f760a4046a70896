"""The tutorial does what it says, command by command, over what the demonstration declares."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.scenario.howto_place import Place, blocks

ROOT = Path(__file__).parents[2]
PAGE = "../tutorial/from-the-demo-to-your-own-pipeline.md"

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def place(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("tutorial"), ())
    place.start()
    try:
        place.run(f"enmasse apply -f {ROOT}/examples\nenmasse apply -f {ROOT}/examples/pipelines/demo.yaml")
        place.run("enmasse status --wait 60")
        for number in range(6):
            reading = {
                "device": f"boiler-{number % 2}",
                "temperature": 20 + number,
                "humidity": 45,
                "ts": time.time(),
            }
            place.run(f"enmasse send telemetry --space demo '{json.dumps(reading)}'")
        windows = place.directory / ".enmasse/pipelines/default.demo/lake/windows/_delta_log"
        deadline = time.monotonic() + 200
        while not any(windows.glob("*.json")):
            assert time.monotonic() < deadline, place.run("enmasse pipeline status demo.windows")
            time.sleep(0.2)
        yield place
    finally:
        place.stop()


def wait_for_rows(place: Place, commands: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        with suppress(AssertionError):  # there may be no table yet
            if "kiln-1" in (told := place.run(commands)) and "kiln-2" in told:
                return
        assert time.monotonic() < deadline, place.run("enmasse pipeline status demo.dry")
        time.sleep(0.5)


def test_the_tutorial(place: Place) -> None:
    told = {}
    for name, (commands, expected) in blocks(PAGE).items():
        if name == "pandas":
            # The page says that the table has it all a moment after the queue.
            wait_for_rows(place, commands)
        told[name] = place.run(commands)
        if expected is not None:
            wanted = expected.split()  # what comes before was said by commands whose words are not shown
            assert told[name].split()[-len(wanted) :] == wanted, (name, told[name])
    for pipeline in ("demo.lake", "demo.windows", "demo.anomalies"):
        assert pipeline in told["list"]
    assert "warmest" in told["windows"]
    assert "boiler-1" in told["stream"]
