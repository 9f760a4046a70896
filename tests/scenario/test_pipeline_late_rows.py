"""Rows that come too late for windows go to an address: each is in a window or there, though batches are repeated."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.taking import take, take_stream
from tests.scenario.test_pipeline_running import STREAM, send
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("runner"),
]

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
QUEUE = {"type": "queue"}
NUMBERS = "SELECT window.start AS start, collect_list(n) AS ns FROM readings GROUP BY window(ts, '10 seconds')"


def source(address: str, late: str, **more: Any) -> dict[str, Any]:
    watermark = {"column": "ts", "delay": "5s", "late": late}
    schema = {"format": "json", "schema": "n INT, ts TIMESTAMP"}
    return {"name": "readings", "address": address, "watermark": watermark, **schema, **more}


def body(n: int, at: datetime) -> str:
    return json.dumps({"n": n, "ts": at.isoformat()})


def number(message: Message) -> int:
    found: int = json.loads(message.body)["n"]
    return found


@pytest.mark.chance
def test_each_row_is_in_a_window_or_at_the_address_for_late_ones_though_batches_are_repeated(
    node: StreamNode, place: RunnerPlace
) -> None:
    node.create("telemetry", partitions=2)
    node.create("late", partitions=2)
    spec = {
        "sources": [source("telemetry", "late", maxRowsPerBatch=200)],
        "steps": [{"name": "windows", "sql": NUMBERS}],
        "sinks": [{"table": "windows"}, {"input": "readings", "table": "readings"}],
        "trigger": "100ms",
    }
    chance = random.Random(7)  # which rows are late
    sent: list[datetime] = []

    def send_some(count: int) -> None:
        first = len(sent)
        for n in range(first, first + count):
            # The clock goes on by 50 ms with each row; one of ten is up to a minute old.
            age = timedelta(seconds=chance.uniform(0, 60)) if n % 10 == 3 else timedelta()
            sent.append(BEGAN + timedelta(milliseconds=50 * n) - age)
        send(node, "telemetry", *(body(n, sent[n]) for n in range(first, len(sent))))

    send_some(600)
    place.put("demo.late", spec, {"telemetry": STREAM, "late": STREAM})
    with node.connect() as connection:
        # The batch of the first late row goes on until its windows are written.
        assert connection.receiver("late", filters={"enmasse:start": "first"}).receive(timeout=120) is not None
    place.interrupt("demo.late", spec, {"telemetry": STREAM, "late": STREAM})
    place.put("demo.late", spec, {"telemetry": STREAM, "late": STREAM})
    send_some(400)
    # A query without state uses all rows.
    place.until(lambda: place.count("readings") == len(sent))
    send(node, "telemetry", body(-1, BEGAN + timedelta(hours=1)))
    newest = max(sent)
    place.until(lambda: max(row["start"] for row in place.rows("windows")) >= newest - timedelta(seconds=10))
    counted = [n for row in place.rows("windows") for n in row["ns"]]
    late = take_stream(node, "late", len(sent) - len(counted))
    assert sorted([*counted, *map(number, late)]) == list(range(len(sent)))
    assert len(late) > 20
    for message in late:
        known, at = message.properties, sent[number(message)]
        assert json.loads(message.body) == {"n": number(message), "ts": at.isoformat()}
        assert at <= datetime.fromisoformat(str(known["watermark"])) < newest
        assert known["query"] == "demo.late/table-windows"
        assert (known["relation"], known["address"]) == ("readings", "telemetry")
        assert {"reason", "partition", "offset"} <= known.keys()
    place.send(command="delete", name="demo.late", purge=True)


def test_each_sink_of_what_is_consumed_sends_what_is_late_for_it(node: StreamNode, place: RunnerPlace) -> None:
    kinds = dict.fromkeys(("orders", "stragglers", "once"), QUEUE)
    for name in kinds:
        node.create(name, "queue")
    steps = [
        {"name": "windows", "sql": NUMBERS},
        {"name": "new", "dropDuplicates": ["n"], "input": "readings"},
        {"name": "numbers", "sql": "SELECT n FROM new"},
    ]
    sinks = [
        {"input": "windows", "table": "consumed"},
        {"input": "numbers", "address": "once"},
        {"input": "readings", "table": "orders"},
    ]
    small = {"name": "small", "condition": "n < 100", "action": "drop"}
    orders = source("orders", "stragglers", expectations=[small])
    place.put("demo.orders", {"sources": [orders], "steps": steps, "sinks": sinks, "trigger": "200ms"}, kinds)
    send(node, "orders", body(1, BEGAN), body(1, BEGAN + timedelta(seconds=1)))
    place.until(lambda: place.count("orders") == 2)
    send(node, "orders", body(2, BEGAN + timedelta(minutes=10)))
    # The watermark has passed the first window.
    place.until(lambda: place.rows("consumed"))
    at_five = BEGAN + timedelta(minutes=5)
    send(node, "orders", body(3, at_five), body(300, at_five), body(4, BEGAN + timedelta(minutes=11)))
    late = take(node, "stragglers", 2)
    assert [number(message) for message in late] == [3, 3]
    assert {message.properties["query"] for message in late} == {"demo.orders/table-consumed", "demo.orders/to-once"}
    assert [number(message) for message in take(node, "once", 3)] == [1, 2, 4]
    place.until(lambda: sorted(row["n"] for row in place.rows("orders")) == [1, 1, 2, 3, 4])
    place.until(lambda: place.statuses["demo.orders"]["queries"][0].get("lateRows") == 2)
    place.send(command="delete", name="demo.orders", purge=True)


@pytest.mark.parametrize(
    ("of", "sql", "why"),
    [
        (
            {"address": "telemetry"},
            "SELECT n FROM readings",
            "source readings: watermark.late: no row comes too late",
        ),
        ({"addressPattern": "#"}, NUMBERS, "expected an address that is not read, and # matches late"),
        (
            {"address": "telemetry"},
            "SELECT a.n FROM readings a JOIN readings b ON a.n = b.n AND a.ts = b.ts",
            "each query reads once, and demo.odd/table-odd reads it 2 times",
        ),
    ],
)
def test_what_would_send_no_late_rows_or_some_again_is_refused(
    place: RunnerPlace, of: dict[str, str], sql: str, why: str
) -> None:
    spec = {
        "sources": [source("", "late") | {"address": None} | of],
        "steps": [{"name": "odd", "sql": sql}],
        "sinks": [{"table": "odd"}],
    }
    place.put("demo.odd", spec, {"telemetry": STREAM, "late": STREAM})
    place.until(lambda: why in place.statuses["demo.odd"].get("lastError", ""))
    place.send(command="delete", name="demo.odd", purge=True)
