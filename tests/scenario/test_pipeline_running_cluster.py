"""The how-to about a cluster, command by command: a master and two workers, and a Pipeline on them with all between.

The host starts the runner as it does for everybody: as root the space's processes are a user of their own, who
shares folders with executors that are not.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.foreign_tools import require
from tests.scenario.howto_place import Place, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_spark"), pytest.mark.timeout(600)]

PAGE = "run-a-pipeline-on-a-cluster.md"
PATIENCE_S = 180.0
"""Spark starts in seconds, or in minutes where the machine is busy with more than this."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    made.ports["7077"] = made.environment["SPARK_MASTER_PORT"] = port
    # They start sooner so, which is all that they do.
    made.environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    made.start()
    try:
        yield made
    finally:
        made.stop()
        for file in tmp_path.glob("cluster/*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def status(place: Place) -> dict[str, Any]:
    """What is told of the pipeline; at first there is nothing."""
    found: dict[str, Any] = json.loads(place.run("enmasse pipeline status far -o json"))
    return {"phase": "", "messages": [], "rows": 0, "lag": None} | found


def until(place: Place, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status once it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition(found := status(place)):
        assert time.monotonic() < deadline, (found, place.log)
        time.sleep(0.5)
    return found


def condition_of(found: dict[str, Any], kind: str) -> str:
    return next((str(item["reason"]) for item in found["conditions"] if item["type"] == kind), "")


def test_the_howto_runs_a_pipeline_on_two_workers(place: Place) -> None:
    require("ps")
    found = blocks(PAGE)

    def do(name: str) -> str:
        return place.run(found[name][0])

    do("settings")
    try:
        for name in ("cluster", "space", "apply"):
            do(name)
        until(place, lambda now: now["phase"] == "Running")
        assert "far" in do("watch")
        until(place, lambda now: now["rows"] >= 20 and now["lag"] == 0)
        assert [line.split() for line in do("result").splitlines()] == [
            line.split() for line in (found["result"][1] or "").splitlines()
        ]
        # With a second space there is somebody to keep apart, which executors cannot.
        place.run("enmasse create space other --wait 30")
        refused = until(place, lambda now: now["phase"] == "Failed")
        assert condition_of(refused, "ClusterAllowed") == "NotSeparated"
    finally:
        do("end")
    assert not list(place.directory.glob("cluster/*.pid")), "its processes have ended"
