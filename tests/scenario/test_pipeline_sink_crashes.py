"""Tasks, nodes and journals killed at random moments while batches go to a stream, a queue and a topic."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import Message
from tests.scenario.sink_worker import ADDRESSES, ROWS
from tests.support.chance import kills
from tests.support.draining import everything
from tests.support.polling import until

if TYPE_CHECKING:
    from tests.support.stream_node import StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.chance, pytest.mark.timeout(600)]

KILLS = kills(6)
BATCHES = 2 * KILLS


class Worker:
    """The process that writes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, batches: int) -> subprocess.Popen[bytes]:
        script = str(Path(__file__).with_name("sink_worker.py"))
        with (self._folder / "worker.log").open("ab") as log:
            command = [sys.executable, script, self._url, str(self._folder), str(batches)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        with self._process.stdout as told:
            assert told.readline() == b"ready\n", self.log()
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return (self._folder / "worker.log").read_text()[-4000:]


def take_all(node: StreamNode, address: str, **options: Any) -> list[Message]:
    with node.connect() as connection, connection.receiver(address, credit=0, **options) as receiver:
        return [delivery.message for delivery in everything(receiver)]


def test_every_row_is_where_it_belongs_once(
    stream_node: StreamNode, tmp_path: Path, story_chance: random.Random
) -> None:
    chance, node = story_chance, stream_node
    for name, kind in {"out": "stream", "q": "queue", "t": "topic"}.items():
        node.create(name, kind)
    subscription = {
        "space": "default/demo",
        "address": "sub",
        "addressType": "subscription",
        "topic": "t",
        "uid": "s",
    }
    node.manage(lambda m: m.create("io.enmasse.address", "default/demo.sub", subscription))
    worker = Worker(node.url, tmp_path)
    try:
        for kill in range(KILLS):
            if not worker.is_running:
                # Each round has batches left, however quick the machine.
                worker.start(BATCHES * (kill + 1) // KILLS)
            time.sleep(chance.random() * 0.5)
            victim = chance.choice(["worker", "worker", "node", "journal", "both"])
            if victim == "worker":
                worker.kill()
                continue
            # One that was killed is there again after a moment.
            journal = until(lambda: node.manage(lambda m: m.read("io.enmasse.statistics", "node-0"))["journalPid"])
            if victim != "node":
                os.kill(journal, signal.SIGKILL)
            if victim != "journal":
                node.kill()
                node.start()
        worker.kill()
        assert worker.start(BATCHES).wait(200) == 0, worker.log()
    finally:
        worker.kill()
    found = {
        "out": take_all(node, "out", filters={"enmasse:start": "first"}),
        "q": take_all(node, "q"),
        "t": take_all(node, "sub"),
    }
    for place, address in enumerate(ADDRESSES):
        rows = [int(message.body) for message in found[address]]
        assert sorted(rows) == list(range(place, BATCHES * ROWS, len(ADDRESSES))), address
    assert len({message.message_id for message in found["q"]}) == len(found["q"])
