"""Rows that come too late for windows go to an address: each is in a window or there, whatever is killed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.taking import take_stream
from tests.support.stream_node import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_spark"), pytest.mark.timeout(600)]

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
KINDS = {"telemetry": {"type": "stream"}, "late": {"type": "stream"}, "late-again": {"type": "queue"}}


@pytest.fixture
def place(stream_node: StreamNode, tmp_path: Path) -> Iterator[RunnerPlace]:
    place = RunnerPlace(stream_node.url, tmp_path / "space")
    yield place
    if place.process is not None and place.process.poll() is None:
        place.kill()


def windows(late: str, **more: Any) -> dict[str, Any]:
    source = {
        "name": "readings",
        "address": "telemetry",
        "format": "json",
        "schema": "n INT, ts TIMESTAMP, ratio DOUBLE",
        "watermark": {"column": "ts", "delay": "5s", "late": late},
        "maxRowsPerBatch": 150,
        **more,
    }
    numbers = "SELECT window.start AS start, collect_list(n) AS ns FROM readings GROUP BY window(ts, '10 seconds')"
    return {
        "sources": [source],
        "steps": [{"name": "windows", "sql": numbers}],
        "sinks": [{"table": "windows"}, {"input": "readings", "table": "readings"}],
        "trigger": "100ms",
    }


def send(node: StreamNode, rows: list[tuple[int, datetime]]) -> None:
    with node.connect() as connection:
        messages = [
            Message(json.dumps({"n": n, "ts": ts.isoformat(), "ratio": 0.5}).encode(), subject=f"d{n % 5}")
            for n, ts in rows
        ]
        assert {str(one) for one in connection.sender("telemetry").send_all(messages, timeout=60)} == {"accepted"}


def test_each_row_is_in_a_window_or_at_the_address_for_late_ones_however_the_runner_ends(
    stream_node: StreamNode, place: RunnerPlace
) -> None:
    node = stream_node
    node.create("telemetry", partitions=2)
    node.create("late", partitions=2)
    chance = random.Random(7)  # which rows are late
    sent: dict[int, datetime] = {}

    def send_some(count: int) -> None:
        rows = []
        for n in range(len(sent), len(sent) + count):
            # The clock goes on by 50 ms with each row; one of ten is up to a minute old.
            age = timedelta(seconds=chance.uniform(0, 60)) if n % 10 == 3 else timedelta()
            sent[n] = BEGAN + timedelta(milliseconds=50 * n) - age
            rows.append((n, sent[n]))
        send(node, rows)

    send_some(600)
    place.start()
    place.put("demo.late", windows("late"), KINDS)
    with node.connect() as connection:
        # A late row is there while its batch still goes on.
        assert connection.receiver("late", filters={"enmasse:start": "first"}).receive(timeout=120) is not None
    place.kill()
    send_some(600)
    place.start()
    place.put("demo.late", windows("late"), KINDS)
    last = BEGAN + timedelta(hours=1)
    place.until(lambda: len(place.rows("readings")) >= len(sent))
    send(node, [(-1, last)])

    def in_windows() -> list[int]:
        return sorted(n for row in place.rows("windows") for n in row["ns"])

    newest = max(sent.values())
    place.until(lambda: max(row["start"] for row in place.rows("windows")) >= newest - timedelta(seconds=10))
    counted = in_windows()
    late = take_stream(node, "late", len(sent) - len(counted))
    numbers = [json.loads(message.body)["n"] for message in late]
    assert sorted([*counted, *numbers]) == sorted(sent)
    assert len(numbers) > 20
    for message in late:
        body, known = json.loads(message.body), message.properties or {}
        assert datetime.fromisoformat(body["ts"]) == sent[body["n"]]
        assert sent[body["n"]] <= datetime.fromisoformat(known["watermark"])
        assert body["ratio"] == 0.5
        assert (known["query"], known["relation"]) == ("demo.late/table-windows", "readings")
        assert known["address"] == "telemetry"
        assert {"partition", "offset"} <= known.keys()
