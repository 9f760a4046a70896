"""The journal under load while processes die: nothing answered is lost, nothing is half there.

Run as a program this file is the node that gets killed: it writes batches whose content follows
from their number, and prints each commit it hears of.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
import uvloop

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.link import JournalLink
from enmasse.testing.memory_storage import RecordingListener
from tests.support.chance import kills

pytestmark = [pytest.mark.slow, pytest.mark.chance]

WINDOW_BYTES = 4 << 20
"""More than a socket pair holds, so that a node dies in mid-batch."""

QUIET_LOOKS = 15


def key(epoch: int, number: int, row: int = 0) -> bytes:
    return epoch.to_bytes(8, "big") + number.to_bytes(8, "big") + row.to_bytes(2, "big")


def content(epoch: int, number: int) -> list[Operation]:
    """Batch ``number``: some frames, a mark that moves, and a record that replaces the last one's."""
    chance = random.Random(f"{epoch} {number}")
    frames = [
        Operation(Table.FRAME, key(epoch, number, row), chance.randbytes(chance.choice((0, 50, 3000, 70_000))))
        for row in range(chance.randrange(1, 6))
    ]
    return [
        Operation(Table.SETTLED, key(epoch, number - 1), None),
        *frames,
        Operation(Table.SETTLED, key(epoch, number), b"s"),
        Operation(Table.MARK, epoch.to_bytes(8, "big"), number.to_bytes(8, "big")),
    ]


def verify(link: JournalLink, epoch: int, acknowledged: int) -> int:
    """Check one epoch's data and return how many batches were written."""
    first, last = epoch.to_bytes(8, "big"), (epoch + 1).to_bytes(8, "big")
    mark = link.get(Table.MARK, first)
    written = 0 if mark is None else int.from_bytes(mark, "big")
    assert written >= acknowledged, "an answered batch is not there"
    settled = [found for found, _ in link.scan(Table.SETTLED, first, last, 1 << 40)]
    assert settled == ([key(epoch, written)] if written else [])
    frames = iter(link.scan(Table.FRAME, first, last, 1 << 40))
    for number in range(1, written + 1):
        for table, name, value in content(epoch, number):
            if table is Table.FRAME:
                assert next(frames, None) == (name, value), f"batch {number} is not whole"
    assert next(frames, None) is None, "there is more than the last commit said"
    return written


async def verify_directory(directory: Path, acknowledged: dict[int, int]) -> None:
    link = JournalLink(directory, lock_wait_s=60)
    await link.start(RecordingListener())
    try:
        assert link.epoch == max(acknowledged) + 1
        for epoch, number in acknowledged.items():
            verify(link, epoch, number)
    finally:
        await link.stop()


class PrintingListener:
    def on_committed(self, number: int) -> None:
        os.write(1, b"%d\n" % number)

    def on_failed(self, number: int, reason: str) -> None:
        os.write(1, f"failed {number} {reason}\n".encode())


async def write_until_killed(directory: Path) -> None:
    link = JournalLink(directory, lock_wait_s=60)
    await link.start(PrintingListener())
    os.write(1, b"%d %d\n" % (link.epoch, link.journal_pid or 0))
    number = 0
    while True:
        while link.unconfirmed_bytes < WINDOW_BYTES:
            number += 1
            assert link.submit(content(link.epoch, number)) == number
        await asyncio.sleep(0.0005)


class Node:
    """The node as a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.test_journal_crash", str(directory)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.output.readline().split()
        self.epoch, self.journal_pid = int(first[0]), int(first[1])
        self.output.readline()

    @property
    def output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def end(self) -> tuple[int, str]:
        """Kill it, wait for the end of its journal too, and return the last number it learned of."""
        self.process.kill()
        output, errors = self.process.communicate(timeout=60)
        lines = output.splitlines()
        assert not [line for line in lines if line.startswith("failed")]
        return max((int(line) for line in lines), default=0), errors

    def end_with_its_journal_stopped(self, signal_then: signal.Signals) -> tuple[int, str]:
        """Kill it when its socket is full, then send the journal a signal."""
        os.kill(self.journal_pid, signal.SIGSTOP)
        deadline = time.monotonic() + 30
        before = -1
        quiet = 0
        # A node that merely waits for a processor is quiet too, but not for that long.
        while quiet < QUIET_LOOKS:
            assert time.monotonic() < deadline, "the node goes on writing to a stopped journal"
            time.sleep(0.05)
            written = _written_bytes(self.process.pid)
            quiet = quiet + 1 if written == before else 0
            before = written
        self.process.kill()
        self.process.wait(30)
        os.kill(self.journal_pid, signal_then)
        return self.end()


def _written_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count what a process writes")


def test_a_node_that_vanishes_leaves_whole_batches_only(tmp_path: Path, story_chance: random.Random) -> None:
    acknowledged: dict[int, int] = {}
    lives = kills(2)
    for _ in range(lives):
        node = Node(tmp_path)
        time.sleep(story_chance.uniform(0, 0.3))
        acknowledged[node.epoch], _ = node.end()
        asyncio.run(verify_directory(tmp_path, acknowledged))
    assert list(acknowledged) == [*range(1, lives + 1)]


def test_a_batch_that_the_node_had_half_sent_is_dropped(tmp_path: Path, story_chance: random.Random) -> None:
    acknowledged: dict[int, int] = {}
    torn = 0
    for _ in range(max(3, kills(3))):
        node = Node(tmp_path)
        time.sleep(story_chance.uniform(0, 0.1))
        acknowledged[node.epoch], errors = node.end_with_its_journal_stopped(signal.SIGCONT)
        # Now and then what the socket took ends with a whole batch.
        torn += "dropped a torn batch" in errors
        asyncio.run(verify_directory(tmp_path, acknowledged))
    assert torn


def test_when_both_die_the_last_commit_is_the_truth(tmp_path: Path, story_chance: random.Random) -> None:
    acknowledged: dict[int, int] = {}
    for round_number in range(max(2, kills(2))):
        node = Node(tmp_path)
        time.sleep(story_chance.uniform(0, 0.2))
        if round_number % 2:
            acknowledged[node.epoch], _ = node.end_with_its_journal_stopped(signal.SIGKILL)
        else:
            os.kill(node.journal_pid, signal.SIGKILL)
            acknowledged[node.epoch], _ = node.end()
        asyncio.run(verify_directory(tmp_path, acknowledged))


def test_a_journal_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, story_chance: random.Random
) -> None:
    async def run() -> None:
        replaced: list[int] = []
        listener = RecordingListener()
        link = JournalLink(tmp_path, journal_changed=replaced.append)
        await link.start(listener)
        wanted = kills(12)
        number = killed = commits_wanted = 0
        next_kill = time.monotonic()
        while killed < wanted:
            while link.unconfirmed_bytes < WINDOW_BYTES:
                number += 1
                assert link.submit(content(1, number)) == number
            await asyncio.sleep(0.0005)
            due = link.commits >= commits_wanted and time.monotonic() >= next_kill
            if due and link.journal_pid is not None:
                os.kill(link.journal_pid, signal.SIGKILL)
                killed += 1
                # Now and then before it has said a word, else among its commits.
                commits_wanted = link.commits + story_chance.choice((0, 1, 1, 5))
                next_kill = time.monotonic() + story_chance.uniform(0.02, 0.1)
        deadline = time.monotonic() + 60
        while link.unconfirmed_bytes:
            assert time.monotonic() < deadline, "batches were not answered"
            await asyncio.sleep(0.005)
        answered = [answer for answer, _ in listener.answers]
        assert answered == sorted(set(answered))
        assert (answered[-1], listener.failed) == (number, {})
        assert verify(link, 1, number) == number
        assert 0 < len(replaced) <= killed
        await link.stop()

    uvloop.run(run())


if __name__ == "__main__":
    uvloop.run(write_until_killed(Path(sys.argv[1])))
