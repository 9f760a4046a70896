"""Built-in pipelines under kills of the process that runs them: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace

if TYPE_CHECKING:
    from tests.scenario.conftest import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("ENMASSE_TEST_KILLS", "1"))
ADDRESSES = {"telemetry": {"type": "stream"}, "alerts": {"type": "stream"}}
PIPELINES = {
    "demo.lake": {"name": "lake", "parameters": {"address": "telemetry"}},
    "demo.anomalies": {
        "name": "anomalies",
        "parameters": {
            "address": "telemetry",
            "alerts": "alerts",
            "table": "alerts",
            "bands": {"temperature": "10:35"},
            "forgetAfter": "24h",
        },
    },
}


class Devices(threading.Thread):
    """Four devices, each in one partition, that now and then run hot."""

    def __init__(self, node: StreamNode) -> None:
        super().__init__()
        self._node = node
        self._stopping = threading.Event()
        self.sent: list[bytes] = []
        self.crossings: list[tuple[str, str, int]] = []

    def run(self) -> None:
        chance = random.Random(8)
        is_hot = [False] * 4
        number = 0
        with self._node.connect() as connection:
            sender = connection.sender("telemetry")
            while not self._stopping.wait(0.05):
                messages = []
                for device in range(4):
                    if chance.random() < 0.2:
                        is_hot[device] = not is_hot[device]
                        state = "raised" if is_hot[device] else "cleared"
                        self.crossings.append((f"d{device}", state, number))
                    content = {"device": f"d{device}", "temperature": 50 if is_hot[device] else 20, "n": number}
                    self.sent.append(json.dumps(content).encode())
                    messages.append(Message(self.sent[-1], subject=f"d{device}"))
                    number += 1
                outcomes = sender.send_all(messages, timeout=30)
                assert {str(outcome) for outcome in outcomes} == {"accepted"}

    def finish(self) -> None:
        self._stopping.set()
        self.join()


@pytest.fixture
def place(needs_spark: None, stream_node: StreamNode, tmp_path: Path) -> Iterator[RunnerPlace]:
    stream_node.create("telemetry")
    stream_node.create("alerts")
    runner = RunnerPlace(stream_node.url, tmp_path / "default.demo")
    yield runner
    if runner.process is not None and runner.process.poll() is None:
        runner.kill()


def begin(place: RunnerPlace) -> None:
    place.statuses.clear()
    place.start()
    place.next_event("ready")
    for name, builtin in PIPELINES.items():
        place.put(name, {"builtin": builtin, "trigger": "500ms"}, ADDRESSES)


@pytest.mark.timeout(900)
def test_lake_and_alerts_hold_everything_once_however_often_the_runner_is_killed(
    place: RunnerPlace, stream_node: StreamNode
) -> None:
    devices = Devices(stream_node)
    moment = random.Random(5)
    begin(place)
    devices.start()
    try:
        for _ in range(KILLS):
            more = len(place.rows("raw")) + 1
            place.until(partial(lambda rows: len(place.rows("raw")) >= rows, more), 400)
            # Anywhere in the next batches, whatever they are about to write.
            time.sleep(moment.uniform(0.0, 2.0))
            place.kill()
            begin(place)
    finally:
        devices.finish()
    place.until(lambda: len(place.rows("raw")) >= len(devices.sent), 400)
    place.until(lambda: len(place.rows("alerts")) >= len(devices.crossings), 400)
    assert sorted(row["value"] for row in place.rows("raw")) == sorted(devices.sent)
    table = place.rows("alerts")
    order: dict[tuple[int, int], int] = {
        (row["partition"], row["offset"]): json.loads(row["value"])["n"] for row in place.rows("raw")
    }

    def number(alert: str) -> int:
        partition, offset = alert.split("/")[2].split("-")
        return order[int(partition), int(offset)]

    assert sorted((row["device"], row["state"], number(row["id"])) for row in table) == sorted(devices.crossings)
    found: list[str] = []
    with (
        stream_node.connect() as connection,
        connection.receiver("alerts", filters={"enmasse:start": "first"}) as receiver,
    ):
        while (delivery := receiver.receive(timeout=5 if len(found) < len(table) else 1)) is not None:
            found.append(json.loads(delivery.message.body)["id"])
    assert sorted(found) == sorted(row["id"] for row in table)
