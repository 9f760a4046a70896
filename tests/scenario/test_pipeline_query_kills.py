"""Drivers, planners, nodes and journals killed at random moments: nothing that queries handle is lost or doubled."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from enmasse.client.blocking import Message
from tests.scenario.consumed_place import counts
from tests.scenario.consumed_place import send as send_with_proton
from tests.scenario.killed_driver import DEVICES, ROWS
from tests.support.chance import kills
from tests.support.draining import everything
from tests.support.polling import until
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.chance,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(900),
]

LATE_S = 240.0
"""Spark starts in seconds, or in minutes where the machine is busy."""

KINDS = [["driver", "java"], ["node", "journal", "both"], ["planner"]]
"""Ways to kill, by what begins anew: Spark, the node, what Spark asks. One of each in a round."""


class Driver:
    """The process group of one driver after the other."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self.folder = url, folder
        self.added: Counter[str] = Counter()
        folder.mkdir()
        self.start()

    def start(self) -> None:
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("killed_driver.py")), self._url, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.added.clear()
        self._listener = threading.Thread(target=self._listen, args=(self._process,))
        self._listener.start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.added[line.decode().strip()] += 1

    def _members(self, word: bytes) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getpgid(int(path.name)) == self._process.pid and word in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def kill_planners(self) -> None:
        for number in self._members(b"python_streaming_source_runner"):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def kill_java(self) -> None:
        """Spark dies alone: its planners have to notice by themselves."""
        for number in self._members(b"SparkSubmit"):
            os.kill(number, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        until(lambda: not self._members(b"python_streaming_source_runner"))
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def taken(self) -> list[tuple[int, str]]:
        """Offset and value of what came of the queue, in the order of the batches."""
        tables = sorted((self.folder / "table").glob("*.json"), key=lambda path: int(path.stem))
        return [(offset, value) for path in tables for offset, value in json.loads(path.read_text())]

    def log(self) -> str:
        logs = [self.folder / name for name in ("driver.log", "failures", "work/spark.log", "work/spark.err")]
        return "\n".join(log.read_text()[-3000:] for log in logs if log.exists())


def stored(node: StreamNode) -> tuple[int, int]:
    """Rows that are in the stream and in the queue."""
    marks = counts(node, "out")["partitionMarks"]
    return sum(after for _, _, after in marks), counts(node, "q")["messagesStored"]


def kill(way: str, driver: Driver, node: StreamNode) -> None:
    if way == "planner":
        driver.kill_planners()
    elif way in ("driver", "java"):
        driver.kill() if way == "driver" else driver.kill_java()
        driver.start()
    else:
        journal = node.manage(lambda m: m.read("io.enmasse.statistics", "node-0"))["journalPid"]
        if way != "node" and journal:
            os.kill(journal, signal.SIGKILL)
        if way != "journal":
            node.kill()
            node.start()


def ways(chance: random.Random) -> Iterator[str]:
    while True:
        yield from chance.sample([chance.choice(kind) for kind in KINDS], len(KINDS))


def test_nothing_is_lost_or_doubled_whatever_is_killed(
    stream_node: StreamNode, tmp_path: Path, story_chance: random.Random
) -> None:
    node = stream_node
    for name, kind, partitions in (
        ("in", "stream", 2),
        ("out", "stream", 3),
        ("q", "queue", 0),
        ("orders", "queue", 0),
    ):
        node.create(name, kind, partitions=partitions)
    driver = Driver(node.url, tmp_path / "driver")
    rows = orders = 0
    try:
        for way in itertools.islice(ways(story_chance), kills(len(KINDS))):
            before = stored(node), len(driver.taken())
            more = story_chance.randrange(30, 120)
            with node.connect() as connection:
                messages = [Message(b"%d" % n, subject=f"device-{n % 13}") for n in range(rows, rows + more)]
                outcomes = connection.sender("in").send_all(messages, timeout=60)
                assert {str(outcome) for outcome in outcomes} == {"accepted"}
            rows += more
            more = story_chance.randrange(30, 120)
            send_with_proton(node, "orders", *[b"%d" % n for n in range(orders, orders + more)])
            orders += more
            until(lambda: stored(node) != before[0], driver.log, seconds=LATE_S)  # noqa: B023  # called at once
            until(lambda: len(driver.taken()) > before[1], driver.log, seconds=LATE_S)  # noqa: B023  # called at once
            if way in ("driver", "java"):
                until(lambda: driver.added["readings"] >= 2 and driver.added["last"], driver.log, seconds=LATE_S)
            # Anywhere in the batches that follow.
            time.sleep(story_chance.uniform(0.0, 0.7))
            kill(way, driver, node)
        until(lambda: stored(node) >= (rows, rows), driver.log, seconds=LATE_S)
        until(lambda: len({value for _, value in driver.taken()}) >= orders, driver.log, seconds=LATE_S)
        until(lambda: counts(node, "orders")["messagesStored"] == 0, driver.log, seconds=LATE_S)
        # A message that was given twice would show by now.
        until(lambda: counts(node, "orders")["unsettled"] == 0, driver.log, seconds=LATE_S)
        until(lambda: driver.added["readings"] and driver.added["last"], driver.log, seconds=LATE_S)
    finally:
        driver.kill()
    check_addresses(node, rows)
    check_what_was_taken(driver, orders)
    check_tables(tmp_path / "driver" / "lake")


def check_addresses(node: StreamNode, count: int) -> None:
    """The stream and the queue have each row once, and rows of a device in their order."""
    rows: list[tuple[int, int, int]] = []
    letters: list[Message] = []
    with node.connect() as connection:
        for partition in range(3):
            filters: dict[str, Any] = {"enmasse:start": "first", "enmasse:partition": partition}
            with connection.receiver("out", credit=0, filters=filters) as receiver:
                for delivery in everything(receiver):
                    message = delivery.message
                    rows.append((int(message.body), int(message.subject or ""), message.properties["offset"]))
        with connection.receiver("q", credit=0) as receiver:
            letters += [delivery.message for delivery in everything(receiver)]
    assert sorted(value for value, _, _ in rows) == list(range(count))
    for device in range(13):
        values = [value for value, _, _ in rows if value % 13 == device]
        assert values == sorted(values)
    assert sorted(int(letter.body) for letter in letters) == list(range(count))
    assert len({letter.message_id for letter in letters}) == count
    places = {value: (subject, offset) for value, subject, offset in rows}
    for letter in letters:
        assert (int(letter.subject or ""), letter.properties["offset"]) == places[int(letter.body)]


def check_what_was_taken(driver: Driver, count: int) -> None:
    """Each message was in one batch, with the offset that follows the one before."""
    assert not (driver.folder / "differs").exists(), (driver.folder / "differs").read_text()
    taken = driver.taken()
    found = Counter(int(value) for _, value in taken)
    assert sorted(found) == list(range(count)), "lost"
    assert {value: times for value, times in found.items() if times > 1} == {}, "doubled"
    assert [offset for offset, _ in taken] == list(range(count))


def check_tables(lake: Path) -> None:
    """Batches are whole, each row is there once, and each device has its newest."""
    readings = DeltaTable(lake / "readings").to_pyarrow_table(columns=["n", "device", "day"]).to_pylist()
    rows = len(readings)
    assert rows
    assert rows % ROWS == 0
    assert sorted(row["n"] for row in readings) == list(range(rows))
    assert all(row["device"] == f"device-{row['n'] % DEVICES}" for row in readings)
    assert {(row["n"] % 3, str(row["day"])) for row in readings} == {
        (0, "2026-01-31"),
        (1, "2026-01-30"),
        (2, "2026-01-29"),
    }
    last = {row["device"]: row["n"] for row in DeltaTable(lake / "last").to_pyarrow_table().to_pylist()}
    newest = max(last.values())
    assert (newest + 1) % ROWS == 0
    assert last == {f"device-{n % DEVICES}": n for n in range(newest - DEVICES + 1, newest + 1)}
