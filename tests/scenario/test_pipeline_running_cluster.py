"""The how-to about a cluster, command by command: a master and two workers, and a Pipeline on them with all between.

The host starts the runner as it does for everybody: as root the space's processes are a user of their own, who
shares folders with executors that are not.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.pipeline.session import find_java, sharing_options
from tests.scenario.howto_place import Place, blocks
from tests.support.foreign_tools import require
from tests.support.polling import until

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
    # The cluster's processes start sooner so, which is most of what they do.
    options = ("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", sharing_options(find_java()))
    made.environment["JDK_JAVA_OPTIONS"] = " ".join(options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        for file in tmp_path.glob("cluster/*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def wait(place: Place, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status once it is so."""

    def found() -> dict[str, Any] | None:
        return status if condition(status := place.pipeline("plant.far")) else None

    return until(found, lambda: (place.pipeline("plant.far"), place.log), seconds=PATIENCE_S, step=0.3)


def condition_of(found: dict[str, Any], kind: str) -> str:
    return next((str(item["reason"]) for item in found["conditions"] if item["type"] == kind), "")


def test_the_howto_runs_a_pipeline_on_two_workers(place: Place) -> None:
    require("ps")
    found = blocks(PAGE)

    def do(name: str) -> str:
        return place.run(found[name][0])

    do("settings")
    try:
        for name in ("cluster", "space", "hosts", "apply"):
            do(name)
        wait(place, lambda now: now["phase"] == "Running")
        assert "far" in do("watch")
        wait(place, lambda now: now["rows"] >= 20 and now["lag"] == 0)
        assert [line.split() for line in do("result").splitlines()] == [
            line.split() for line in (found["result"][1] or "").splitlines()
        ]
        # With a second space there is somebody to keep apart, which executors cannot.
        place.run("enmasse create space other --wait 150")
        refused = wait(place, lambda now: now["phase"] == "Failed")
        assert condition_of(refused, "ClusterAllowed") == "NotSeparated"
    finally:
        do("end")
    assert not list(place.directory.glob("cluster/*.pid")), "its processes have ended"
