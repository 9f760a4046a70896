"""Runners are killed again and again; a table and an address hold what was sent, message by message."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from enmasse.client.blocking import Message
from tests.scenario.conftest import StreamNode
from tests.scenario.pipeline_runner_place import RunnerPlace

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

KILLS = int(os.environ.get("ENMASSE_TEST_KILLS", "1"))
STREAM = {"type": "stream"}
PIPELINE = {
    "sources": [
        {
            "name": "readings",
            "address": "telemetry",
            "format": "json",
            "schema": "device STRING, n INT, hot BOOLEAN",
            "maxRowsPerBatch": 400,
            "badRecords": "bad",
        }
    ],
    "steps": [{"name": "alerts", "sql": "SELECT device, n FROM readings WHERE hot"}],
    "sinks": [{"input": "readings", "table": "readings"}, {"input": "alerts", "address": "alerts"}],
    "trigger": "100ms",
}


class Sending:
    """A fleet that sends without a pause, and remembers what was accepted."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node
        self._ending = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._node.connect() as connection:
            sender = connection.sender("telemetry")
            while not self._ending.wait(0.2):
                numbers = range(self.sent, self.sent + 20)
                outcomes = sender.send_all([message(n) for n in numbers], timeout=120)
                assert {str(outcome) for outcome in outcomes} == {"accepted"}
                self.sent += 20

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def message(n: int) -> Message:
    if n % 50 == 49:
        return Message(b"broken %d" % n, subject="d")
    return Message(json.dumps({"device": f"d{n % 7}", "n": n, "hot": n % 5 == 0}).encode(), subject=f"d{n % 7}")


def content(place: RunnerPlace, address: str) -> list[str]:
    """The bodies of all messages of a stream."""
    sql = f"SELECT CAST(value AS STRING) AS body FROM {address}"
    answer = place.ask(sql, limit=100_000, addresses={address: STREAM}, timeout=240)
    assert answer["error"] is None
    return [row[0] for row in answer["rows"]]


def has_more_rows(place: RunnerPlace, than: int) -> bool:
    return len(place.rows("readings")) > than


@pytest.fixture
def place(stream_node: StreamNode, tmp_path: Path) -> Iterator[RunnerPlace]:
    for name in ("telemetry", "alerts", "bad"):
        stream_node.create(name)
    place = RunnerPlace(stream_node.url, tmp_path / "space")
    yield place
    if place.process is not None and place.process.poll() is None:
        place.kill()


@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_doubled_however_often_the_runner_is_killed(
    stream_node: StreamNode, place: RunnerPlace
) -> None:
    def start() -> None:
        place.statuses.clear()
        place.start()
        place.put("demo.kills", PIPELINE, dict.fromkeys(("telemetry", "alerts", "bad"), STREAM))

    sending = Sending(stream_node)
    try:
        for _ in range(KILLS):
            before = len(place.rows("readings"))
            start()
            # Killed in the midst: rows come, and more are on their way.
            place.until(partial(has_more_rows, place, before), 240)
            place.kill()
    finally:
        sending.end()
    start()
    total = sending.sent
    good = [n for n in range(total) if n % 50 != 49]
    place.until(lambda: len(place.rows("readings")) >= len(good), 240)
    place.until(lambda: place.statuses.get("demo.kills", {}).get("lag") == 0, 240)
    assert sorted(row["n"] for row in place.rows("readings")) == good
    hot = [n for n in good if n % 5 == 0]
    place.until(lambda: len(content(place, "alerts")) >= len(hot), 240)
    assert sorted(json.loads(body)["n"] for body in content(place, "alerts")) == hot
    broken = [f"broken {n}" for n in range(total) if n % 50 == 49]
    place.until(lambda: len(content(place, "bad")) >= len(broken), 240)
    assert sorted(content(place, "bad")) == sorted(broken)
    assert place.stop() == 0
