"""The node's side of the journal: answers on the loop, and a journal process that may die."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.errors import (
    BatchError,
    JournalFormatError,
    JournalLockedError,
    JournalStateError,
    JournalUnavailableError,
)
from enmasse.storage.link import JournalLink
from enmasse.storage.lock import DirectoryLock
from enmasse.testing.memory_storage import RecordingListener
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.slow

SMALL_MAP = 128 * 1024
"""A map that a value of the same size does not fit into; a socket holds both."""


def put(key: bytes, value: bytes = b"v") -> Operation:
    return Operation(Table.FRAME, key, value)


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        uvloop.run(main())

    return run


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_it_runs_on_either_loop(tmp_path: Path, runner: Callable[..., None]) -> None:
    async def main() -> None:
        listener = RecordingListener()
        link = JournalLink(tmp_path / "deep" / "journal")
        await link.start(listener)
        pid = link.journal_pid
        assert pid is not None
        numbers = [link.submit([put(b"%d" % i, b"v" * 100_000)]) for i in range(100)]
        await link.stop()
        assert listener.committed == numbers[-1] == 100
        assert link.journal_pid is None
        assert is_gone(pid)

    runner(main())


@on_uvloop
async def test_submits_of_one_turn_share_commits(tmp_path: Path) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path)
    await link.start(listener)
    for i in range(1000):
        link.submit([put(b"%d" % i)])
    await until_async(lambda: listener.committed == 1000, "the commit")
    assert link.commits == len(listener.answers) < 200
    assert link.file_bytes > 0
    await link.stop()


@on_uvloop
async def test_a_killed_journal_is_replaced_and_nothing_is_lost_or_answered_twice(tmp_path: Path) -> None:
    replaced: list[int] = []
    listener = RecordingListener()
    link = JournalLink(tmp_path, journal_changed=replaced.append)
    await link.start(listener)
    first = link.journal_pid
    assert first is not None
    for i in range(300):
        link.submit([put(b"%03d" % i, b"v" * 20_000)])
        if i == 150:
            os.kill(first, signal.SIGKILL)
        if i % 50 == 0:
            await asyncio.sleep(0.002)
    held = link.unconfirmed_bytes
    assert held > 0
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    assert replaced == [link.journal_pid]
    assert replaced != [first]
    numbers = [number for number, _ in listener.answers]
    assert numbers == sorted(set(numbers))
    assert (numbers[-1], listener.failed) == (300, {})
    assert len(link.scan(Table.FRAME, b"", b"\xff", 1 << 40)) == 300
    await link.stop()


@on_uvloop
async def test_commits_whose_answers_were_lost_are_learnt_from_the_next_journal(tmp_path: Path) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path, map_bytes=SMALL_MAP)
    await link.start(listener)
    process = link._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    link.submit([put(b"a")])
    link.submit([put(b"b", b"x" * SMALL_MAP)])
    link.submit([put(b"c")])
    process._flush()
    stolen = process._socket.dup()
    os.kill(process.pid, signal.SIGCONT)
    stolen.setblocking(True)
    while link.get(Table.FRAME, b"c") is None:
        stolen.recv(1)  # blocks this loop, so the link cannot hear
    os.kill(process.pid, signal.SIGSTOP)
    stolen.setblocking(False)
    try:
        while stolen.recv(4096):
            continue
    except BlockingIOError:
        stolen.close()
    assert listener.answers == []
    process.kill()
    link.submit([put(b"d")])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    assert [number for number, _ in listener.answers] == [1, 2, 3, 4]
    assert list(listener.failed) == [2]
    assert [key for key, _ in link.scan_all(Table.FRAME)] == [b"a", b"c", b"d"]
    await link.stop()


@on_uvloop
async def test_a_batch_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path, map_bytes=SMALL_MAP)
    await link.start(listener)
    link.submit([put(b"a")])
    link.submit([put(b"b", b"x" * SMALL_MAP)])
    link.submit([put(b"c")])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the answers")
    assert list(listener.failed) == [2]
    assert "MAP_FULL" in listener.failed[2]
    assert listener.committed == 3
    assert [key for key, _ in link.scan_all(Table.FRAME)] == [b"a", b"c"]
    await link.stop()


@on_uvloop
async def test_batches_submitted_while_there_is_no_journal_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path, lock_wait_s=0.05)
    await link.start(listener)
    assert link.journal_pid is not None
    lock = DirectoryLock(str(tmp_path))
    os.kill(link.journal_pid, signal.SIGKILL)
    while not lock.acquire():
        time.sleep(0.001)  # noqa: ASYNC251 - the loop must not run, or another journal would be first
    link.submit([put(b"a")])
    await until_async(lambda: "still writes the journal" in caplog.text, "the refusal")
    link.submit([put(b"b")])
    assert listener.answers == []
    assert link.unconfirmed_bytes > 0
    lock.release()
    await until_async(lambda: listener.committed == 2, "the commit")
    await link.stop()


@on_uvloop
async def test_stopping_while_there_is_no_journal_waits_for_the_commit(tmp_path: Path) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path)
    await link.start(listener)
    assert link.journal_pid is not None
    os.kill(link.journal_pid, signal.SIGKILL)
    link.submit([put(b"a")])
    await link.stop()
    assert listener.answers == [(1, None)]


@on_uvloop
async def test_stopping_gives_up_after_its_time(tmp_path: Path) -> None:
    link = JournalLink(tmp_path)
    await link.start(RecordingListener())
    pid = link.journal_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    link.submit([put(b"a")])
    with pytest.raises(JournalUnavailableError, match="1 batches"):
        await link.stop(timeout_s=0.1)
    assert is_gone(pid)


@on_uvloop
async def test_stopping_twice_or_before_a_start_does_nothing(tmp_path: Path) -> None:
    link = JournalLink(tmp_path)
    await link.stop()
    await link.start(RecordingListener())
    await link.stop()
    await link.stop()


@on_uvloop
async def test_a_link_is_of_no_use_before_start_and_after_stop(tmp_path: Path) -> None:
    link = JournalLink(tmp_path)
    for _ in range(2):
        with pytest.raises(JournalStateError):
            link.submit([])
        with pytest.raises(JournalStateError):
            link.get(Table.FRAME, b"a")
        if link.epoch == 0:
            await link.start(RecordingListener())
            await link.stop()
    with pytest.raises(JournalStateError, match="starts once"):
        await link.start(RecordingListener())


@on_uvloop
async def test_each_start_that_writes_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        link = JournalLink(tmp_path)
        await link.start(RecordingListener())
        link.submit([])
        epochs.append(link.epoch)
        await link.stop()
    assert epochs == [1, 2, 3]


@on_uvloop
async def test_a_start_over_a_held_lock_is_refused_with_the_holder(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    assert lock.acquire()
    link = JournalLink(tmp_path, lock_wait_s=0.05)
    with pytest.raises(JournalLockedError, match=str(os.getpid())):
        await link.start(RecordingListener())
    assert link.journal_pid is None
    lock.release()


@on_uvloop
async def test_a_damaged_journal_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else entirely" * 1000)
    with pytest.raises(JournalFormatError, match=str(tmp_path)):
        await JournalLink(tmp_path).start(RecordingListener())


@on_uvloop
async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    assert lock.acquire()
    link = JournalLink(tmp_path)
    starting = asyncio.ensure_future(link.start(RecordingListener()))
    await until_async(lambda: link.journal_pid, "the start")
    pid = link.journal_pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_gone(pid)
    lock.release()


@on_uvloop
async def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path)
    await link.start(listener)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert link.journal_pid is not None
    os.kill(link.journal_pid, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with caplog.at_level(logging.ERROR):
            await until_async(lambda: "could not be started" in caplog.text, "the failure")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    link.submit([put(b"a")])
    await until_async(lambda: listener.committed == 1, "the commit")
    await link.stop()


@on_uvloop
async def test_a_batch_that_breaks_a_limit_uses_no_number(tmp_path: Path) -> None:
    listener = RecordingListener()
    link = JournalLink(tmp_path)
    await link.start(listener)
    with pytest.raises(BatchError):
        link.submit([put(b"k" * 401)])
    assert link.submit([put(b"a")]) == 1
    await link.stop()
    assert listener.answers == [(1, None)]


@on_uvloop
async def test_the_journal_holds_none_of_the_nodes_descriptors(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        link = JournalLink(tmp_path)
        await link.start(RecordingListener())
        mine = Path(f"/proc/self/fd/{server.fileno()}").readlink()
        held = [entry.readlink() for entry in Path(f"/proc/{link.journal_pid}/fd").iterdir()]
        assert mine not in held
        assert held.count(Path("/dev/null")) == 2
        await link.stop()


def test_a_signal_to_the_whole_group_leaves_the_journal_alone(tmp_path: Path) -> None:
    program = """
import asyncio, os, signal, sys
from pathlib import Path
from enmasse.storage.link import JournalLink
from enmasse.testing.memory_storage import RecordingListener

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, print, "interrupted")
    link = JournalLink(Path(sys.argv[1]))
    starting = asyncio.ensure_future(link.start(RecordingListener()))
    while link.journal_pid is None:
        await asyncio.sleep(0)
    for _ in range(20):
        os.killpg(0, signal.SIGINT)
        await asyncio.sleep(0.005)
    await starting
    print("started")
    await link.stop()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=60, start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "started"
