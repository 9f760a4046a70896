"""Drivers, nodes and journals killed at random moments: nothing the sink wrote is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.foreign_tools import require

require("python-qpid-proton")

from proton import Message as ProtonMessage
from proton import Timeout
from proton.utils import BlockingConnection

from enmasse.client.blocking import Message

if TYPE_CHECKING:
    from .conftest import StreamNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 4
ROWS = 300


class Job:
    """The driver, with Java and the workers in a group of their own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, how: str = "run") -> subprocess.Popen[bytes]:
        self.kill()
        with (self._folder / "job.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("sink_job.py")), self._url, str(self._folder), how],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"running\n", self.log()
        return self._process

    def revive(self) -> None:
        """Start it if it is not running; a query that failed ends it, as on a machine that is too busy."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def log(self) -> str:
        logs = [self._folder / "job.log", self._folder / "work" / "spark.log", self._folder / "work" / "spark.err"]
        return "\n".join(log.read_text()[-3000:] for log in logs if log.exists())


def stored(node: StreamNode) -> tuple[int, int]:
    """Rows that are in the stream and in the queue."""

    def read(manager: Any) -> tuple[int, int]:
        marks = manager.read("io.enmasse.address", "default/demo.out")["partitionMarks"]
        queue = manager.read("io.enmasse.address", "default/demo.q")["messagesStored"]
        return sum(after for _, _, after in marks), queue

    found: tuple[int, int] = node.manage(read)
    return found


def feed(node: StreamNode, begin: int) -> None:
    with node.connect() as connection:
        messages = [Message(b"%d" % n, subject=f"device-{n % 13}") for n in range(begin, begin + ROWS)]
        outcomes = connection.sender("in").send_all(messages, timeout=60)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def kill_node(node: StreamNode, victim: str) -> None:
    journal = node.manage(lambda m: m.read("io.enmasse.statistics", "node-0"))["journalPid"]
    if victim != "node":
        os.kill(journal, signal.SIGKILL)
    if victim != "journal":
        node.kill()
        node.start()


def drain(node: StreamNode, address: str) -> list[ProtonMessage]:
    connection = BlockingConnection(node.url, timeout=30)
    receiver = connection.create_receiver(address, credit=500)
    found: list[ProtonMessage] = []
    with suppress(Timeout):
        while True:
            found.append(receiver.receive(timeout=3))
            receiver.accept()
    connection.close()
    return found


def body(message: ProtonMessage) -> int:
    return int(bytes(cast("Any", message.body)))


def test_nothing_is_lost_or_doubled_whatever_is_killed(
    needs_spark: None, stream_node: StreamNode, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    sys.stderr.write(f"seed {seed}\n")
    chance = random.Random(seed)
    node = stream_node
    node.create("in", partitions=2)
    node.create("out", partitions=3)
    node.create("q", "queue")
    job = Job(node.url, tmp_path)
    kills: Counter[str] = Counter()
    victims = ["driver", "node", "journal", "both"]
    chance.shuffle(victims)
    assert len(victims) == ROUNDS
    try:
        for round_, victim in enumerate(victims):
            job.revive()
            feed(node, round_ * ROWS)
            before = stored(node)
            deadline = time.monotonic() + 240
            while stored(node) == before:
                assert time.monotonic() < deadline, f"nothing came after {kills}: {before} {job.log()}"
                job.revive()
                time.sleep(0.05)
            time.sleep(chance.random() * 0.7)
            if victim == "driver":
                job.kill()
            else:
                kill_node(node, victim)
            kills[victim] += 1
            sys.stderr.write(f"{time.monotonic():.0f}: killed {victim}; {stored(node)}\n")
        job.kill()
        assert any(job.start("finish").wait(240) == 0 for _ in range(3)), job.log()
    finally:
        job.kill()
    assert sum(kills.values()) == ROUNDS
    sent = list(range(ROUNDS * ROWS))
    rows: list[tuple[int, int, int]] = []
    with node.connect() as connection:
        for partition in range(3):
            filters: dict[str, Any] = {"enmasse:start": "first", "enmasse:partition": partition}
            with connection.receiver("out", credit=500, filters=filters) as receiver:
                while (delivery := receiver.receive(timeout=1)) is not None:
                    message = delivery.message
                    rows.append((int(message.body), int(message.subject or ""), message.properties["offset"]))
    assert sorted(value for value, _, _ in rows) == sent
    # Rows of a device keep their order.
    for device in range(13):
        values = [value for value, _, _ in rows if value % 13 == device]
        assert values == sorted(values)
    queued = drain(node, "q")
    assert sorted(map(body, queued)) == sent
    assert len({letter.id for letter in queued}) == len(sent)
    places = {value: (subject, offset) for value, subject, offset in rows}
    for letter in queued:
        properties: Any = letter.properties
        assert (int(letter.subject or ""), properties["offset"]) == places[body(letter)]
