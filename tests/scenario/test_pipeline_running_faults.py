"""Runners that are killed, whose Java dies or is broken: nothing is lost or doubled, and they say what it was."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.test_pipeline_database import database, server, write_secret
from tests.support.chance import kills
from tests.support.draining import everything
from tests.support.postgresql import PostgreSQL
from tests.support.stream_node import StreamNode

__all__ = ["server"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.xdist_group("runner"),
]

STREAM = {"type": "stream"}
ADDRESSES = ("telemetry", "alerts", "bad", "devices", "alarms")
TRIGGER = "200ms"
LATE_S = 240.0

PIPELINES: dict[str, dict[str, Any]] = {
    "demo.kills": {
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
        "trigger": TRIGGER,
    },
    "demo.lake": {"builtin": {"name": "lake", "parameters": {"address": "devices"}}, "trigger": TRIGGER},
    "demo.anomalies": {
        "builtin": {
            "name": "anomalies",
            "parameters": {
                "address": "devices",
                "alerts": "alarms",
                "table": "alarms",
                "bands": {"temperature": "10:35"},
                "forgetAfter": "24h",
            },
        },
        "trigger": TRIGGER,
    },
}


def into_database(server: PostgreSQL) -> dict[str, Any]:
    """The same readings in two tables of a database: all of them, and the newest of each device."""
    (source,) = PIPELINES["demo.kills"]["sources"]
    return {
        "sources": [{key: value for key, value in source.items() if key != "badRecords"}],
        "steps": [{"name": "good", "sql": "SELECT device, n FROM readings"}],
        "sinks": [
            {"database": database(server, "every")},
            {"database": database(server, "newest"), "mode": "update", "keys": ["device"], "orderBy": "n"},
        ],
        "trigger": TRIGGER,
    }


SPOILING = """
import runpy

from enmasse.pipeline.running import runner
from enmasse.pipeline.workers.environment import source_environment


def spoil(spark):
    shared = source_environment(spark.newSession())
    inner = shared.getClass().getDeclaredField("underlying")
    inner.setAccessible(True)
    size = inner.get(shared).getClass().getDeclaredField("contentSize")
    size.setAccessible(True)
    size.setInt(inner.get(shared), 4)


runner.guard_source_environment = spoil
runpy.run_module("enmasse.pipeline", run_name="__main__")
"""
"""A runner whose Java is as two queries leave it that begin in the same moment: what they share has a wrong size."""


@pytest.fixture
def own_place(stream_node: StreamNode, tmp_path: Path) -> Iterator[RunnerPlace]:
    place = RunnerPlace(stream_node.url, tmp_path / "space")
    yield place
    if place.process is not None and place.process.poll() is None:
        place.kill()


class Fleet(threading.Thread):
    """Sends without a pause, and remembers what was accepted."""

    def __init__(self, node: StreamNode, address: str, batches: Iterator[list[Message]]) -> None:
        super().__init__()
        self._node, self._address, self._batches = node, address, batches
        self._ending = threading.Event()
        self.sent: list[bytes] = []

    def run(self) -> None:
        with self._node.connect() as connection:
            sender = connection.sender(self._address)
            while not self._ending.wait(0.2):
                messages = next(self._batches)
                outcomes = sender.send_all(messages, timeout=120)
                assert {str(outcome) for outcome in outcomes} == {"accepted"}
                self.sent += [message.body for message in messages]

    def end(self) -> None:
        self._ending.set()
        self.join()


def readings() -> Iterator[list[Message]]:
    """Numbered readings, of which each fiftieth is none."""

    def message(n: int) -> Message:
        good = json.dumps({"device": f"d{n % 7}", "n": n, "hot": n % 5 == 0})
        return Message((f"broken {n}" if n % 50 == 49 else good).encode(), subject=f"d{n % 7}")

    # So few that the slowest query keeps up on a busy machine: what it is behind at the end is waited for.
    for first in itertools.count(step=5):
        yield [message(n) for n in range(first, first + 5)]


def temperatures(chance: random.Random) -> Iterator[list[Message]]:
    """Four devices, each in one partition, that now and then run hot."""
    is_hot = [False] * 4
    numbers = itertools.count()
    while True:
        messages = []
        for device in range(4):
            is_hot[device] ^= chance.random() < 0.2
            content = {"device": f"d{device}", "temperature": 50 if is_hot[device] else 20, "n": next(numbers)}
            messages.append(Message(json.dumps(content).encode(), subject=f"d{device}"))
        yield messages


def crossings(bodies: list[bytes]) -> list[tuple[str, str, int]]:
    """Where a device became hot, or ceased to be."""
    found = []
    is_hot: dict[str, bool] = {}
    for content in map(json.loads, bodies):
        device, hot = content["device"], content["temperature"] == 50
        if hot != is_hot.get(device, False):
            found.append((device, "raised" if hot else "cleared", content["n"]))
        is_hot[device] = hot
    return found


def kill_java(place: RunnerPlace) -> None:
    """Java dies; its runner ends with a word."""
    assert place.process is not None
    children = Path(f"/proc/{place.process.pid}/task/{place.process.pid}/children").read_text().split()
    (java,) = [pid for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(int(java), signal.SIGKILL)
    assert place.process.wait(120) == 1
    assert place.stop() == 1
    assert "Spark's Java process ended" in (place.folder / "runner.err").read_text()


def is_marked(pid: Path, marks: set[bytes]) -> bool:
    try:
        environment = set((pid / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False
    return not environment.isdisjoint(marks)


@pytest.mark.chance
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_however_often_the_runner_or_its_java_is_killed(
    node: StreamNode, place: RunnerPlace, server: PostgreSQL, story_chance: random.Random
) -> None:
    """The runner that is there is killed first."""
    for name in ADDRESSES:
        node.create(name)
    server.execute("CREATE TABLE every (device text, n int)", "CREATE TABLE newest (device text PRIMARY KEY, n int)")
    write_secret(place, server)
    marks: set[bytes] = set()
    errors = place.folder / "runner.err"
    assert "Traceback" not in errors.read_text()

    def start() -> None:
        if place.process is None or place.process.poll() is not None:
            errors.unlink()  # what dies may complain
            place.statuses.clear()
            place.start()
            place.next_event("ready")
        marks.add(b"ENMASSE_RUNNER=" + (place.folder / "runner.lock").read_bytes())
        for name, spec in (PIPELINES | {"demo.database": into_database(server)}).items():
            place.put(name, spec, dict.fromkeys(ADDRESSES, STREAM))

    def has_more_than(before: list[int]) -> bool:
        return all(rows > some for rows, some in zip(counted(), before, strict=True))

    def counted() -> list[int]:
        ((every, newest),) = server.rows("SELECT count(*), (SELECT coalesce(max(n), 0) FROM newest) FROM every")
        return [every, newest, *(place.count(table) for table in ("readings", "raw"))]

    fleets = [
        Fleet(node, "telemetry", readings()),
        Fleet(node, "devices", temperatures(random.Random(story_chance.random()))),
    ]
    ways: list[Callable[[RunnerPlace], None]] = [RunnerPlace.kill, kill_java]
    story_chance.shuffle(ways)
    for fleet in fleets:
        fleet.start()
    try:
        for _, end in zip(range(kills(1)), itertools.cycle(ways), strict=False):
            before = counted()
            start()
            place.until(lambda: has_more_than(before), LATE_S)  # noqa: B023  # it is called at once
            # Anywhere in the next batches, whatever they are about to write.
            time.sleep(story_chance.uniform(0.0, 1.0))
            end(place)
    finally:
        for fleet in fleets:
            fleet.end()
    start()
    check_what_came_of_readings(place, node, fleets[0].sent)
    check_what_is_in_the_database(place, server, fleets[0].sent)
    check_what_came_of_temperatures(place, node, fleets[1].sent)
    assert place.process is not None
    place.process.send_signal(signal.SIGTERM)
    assert place.process.wait(150) == 0
    assert place.stop() == 0
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if is_marked(pid, marks)], (
        "what was killed took all along"
    )


def check_what_came_of_readings(place: RunnerPlace, node: StreamNode, sent: list[bytes]) -> None:
    """The table has all good readings, the addresses those that are hot and those that are none."""

    def content(address: str) -> list[str]:
        # Spark takes longer.
        filters = {"enmasse:start": "first"}
        with node.connect() as connection, connection.receiver(address, credit=0, filters=filters) as receiver:
            return [bytes(delivery.message.body).decode() for delivery in everything(receiver)]

    broken = [body.decode() for body in sent if body.startswith(b"broken")]
    good = [json.loads(body) for body in sent if not body.startswith(b"broken")]
    hot = [reading["n"] for reading in good if reading["hot"]]
    place.until(lambda: place.count("readings") >= len(good), LATE_S)
    place.until(lambda: place.statuses.get("demo.kills", {}).get("lag") == 0, LATE_S)
    assert sorted(row["n"] for row in place.rows("readings")) == [reading["n"] for reading in good]
    place.until(lambda: len(content("alerts")) >= len(hot), LATE_S)
    assert sorted(json.loads(body)["n"] for body in content("alerts")) == hot
    place.until(lambda: len(content("bad")) >= len(broken), LATE_S)
    assert sorted(content("bad")) == sorted(broken)


def check_what_is_in_the_database(place: RunnerPlace, server: PostgreSQL, sent: list[bytes]) -> None:
    """One table has each good reading once, the other the newest of each device."""
    good = [json.loads(body) for body in sent if not body.startswith(b"broken")]
    newest = {reading["device"]: reading["n"] for reading in good}
    place.until(lambda: server.rows("SELECT count(*) FROM every")[0][0] >= len(good), LATE_S)
    place.until(lambda: dict(server.rows("SELECT device, n FROM newest")) == newest, LATE_S)
    every = server.rows("SELECT device, n FROM every ORDER BY n")
    assert every == [(reading["device"], reading["n"]) for reading in good]


def check_what_came_of_temperatures(place: RunnerPlace, node: StreamNode, sent: list[bytes]) -> None:
    """The lake has all messages; a table and an address have each crossing once."""
    wanted = crossings(sent)
    place.until(lambda: place.count("raw") >= len(sent), LATE_S)
    place.until(lambda: place.count("alarms") >= len(wanted), LATE_S)
    raw, table = place.rows("raw"), place.rows("alarms")
    assert sorted(row["value"] for row in raw) == sorted(sent)
    numbers = {(row["partition"], row["offset"]): json.loads(row["value"])["n"] for row in raw}

    def number(alarm: str) -> int:
        partition, offset = alarm.split("/")[2].split("-")
        found: int = numbers[int(partition), int(offset)]
        return found

    assert sorted((row["device"], row["state"], number(row["id"])) for row in table) == sorted(wanted)
    filters = {"enmasse:start": "first"}
    with node.connect() as connection, connection.receiver("alarms", credit=0, filters=filters) as receiver:
        found = [json.loads(delivery.message.body)["id"] for delivery in everything(receiver)]
    assert sorted(found) == sorted(row["id"] for row in table)


@pytest.mark.timeout(600)
def test_a_runner_whose_queries_all_fail_in_java_ends_with_the_reason(
    stream_node: StreamNode, own_place: RunnerPlace
) -> None:
    own_place.start(program=["-c", SPOILING])
    for name in ("one", "other"):
        stream_node.create(name)
        with stream_node.connect() as connection:
            connection.sender(name).send(Message(b"a"))
        spec = {
            "sources": [{"name": "readings", "address": name}],
            "steps": [{"name": "texts", "sql": "SELECT CAST(value AS STRING) AS text FROM readings"}],
            "sinks": [{"table": name}],
        }
        own_place.put(f"demo.{name}", spec, {name: STREAM})
    reason = own_place.next_event("failed")["error"]
    assert "every query fails in Java" in reason
    assert "IllegalStateException: Illegal size 5 of collection, expected 8" in reason
    assert own_place.process is not None
    assert own_place.process.wait(150) == 1
    assert own_place.stop() == 1
