"""Reads through the reader process: started on need, replaced when it dies, each read answered once."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.log.layout import log_key, log_range
from enmasse.messaging.storage import Operation, Table
from enmasse.storage import fetching
from enmasse.storage.errors import JournalStateError
from enmasse.storage.link import JournalLink
from enmasse.storage.pages import PageFile
from enmasse.storage.reading import split_reads
from enmasse.testing.memory_storage import RecordingListener
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.slow

BODY = b"x" * 2000


def frame(offset: int) -> bytes:
    return encode_frame(offset, [0], [b""], [b"h"], [BODY])


def put(offset: int, log: int = 1) -> Operation:
    return Operation(Table.FRAME, log_key(log, 0, offset), frame(offset))


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        uvloop.run(main())

    return run


async def started(directory: Path, frames: int) -> JournalLink:
    listener = RecordingListener()
    link = JournalLink(directory)
    await link.start(listener)
    for offset in range(frames):
        link.submit([put(offset)])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    return link


def pid_of(link: JournalLink) -> int:
    assert link.reader_pid is not None
    return link.reader_pid


def wait_until_answered(link: JournalLink, count: int) -> None:
    """Block the loop until the reader has answered so often, so that it hears all answers at once."""
    fetcher = link._fetcher
    assert fetcher is not None
    process = fetcher._process
    assert process is not None
    deadline = time.monotonic() + 30
    said = b""
    while len(split_reads(said)[0]) < count:
        assert time.monotonic() < deadline, f"{count} answers did not come"
        time.sleep(0.002)
        try:
            said = process._socket.recv(1 << 13, socket.MSG_PEEK)
        except BlockingIOError:
            continue


class Answers:
    def __init__(self) -> None:
        self.keys: list[list[int]] = []
        self.damaged: list[int] = []

    def __call__(self, records: list[tuple[bytes, bytes]], damaged: list[bytes]) -> None:
        self.keys.append([int.from_bytes(key[-8:], "big") for key, _ in records])
        self.damaged += [int.from_bytes(key[-8:], "big") for key in damaged]


def fetch(link: JournalLink, answers: Answers, first: int, last: int, limit: int = 1 << 20) -> None:
    link.fetch(Table.FRAME, log_key(1, 0, first), log_key(1, 0, last), limit, answers)


@on_uvloop
async def test_the_reader_starts_with_the_first_read_and_ends_with_the_link(tmp_path: Path) -> None:
    link = await started(tmp_path, 10)
    assert link.reader_pid is None
    answers = Answers()
    fetch(link, answers, 0, 10)
    pid = pid_of(link)
    await until_async(lambda: link.waiting_reads == 0, "the read")
    assert answers.keys == [list(range(10))]
    fetch(link, answers, 3, 5)
    assert pid_of(link) == pid
    await until_async(lambda: link.waiting_reads == 0, "the read")
    await link.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@on_uvloop
async def test_reads_survive_the_death_of_the_reader(tmp_path: Path) -> None:
    link = await started(tmp_path, 100)
    answers = Answers()
    fetch(link, answers, 0, 1)
    await until_async(lambda: link.waiting_reads == 0, "the first read")
    for round_ in range(4):
        for offset in range(100):
            fetch(link, answers, offset, offset + 1)
        pid = pid_of(link)
        os.kill(pid, signal.SIGKILL)
        await until_async(lambda: link.waiting_reads == 0, f"the reads of round {round_}")
        assert pid_of(link) != pid
    assert answers.keys == [[0], *([offset] for _ in range(4) for offset in range(100))]
    assert answers.damaged == []
    await link.stop()


DYING_READER = """
import os, signal, sys
from enmasse.storage import reader

def warm(environment, directory, request, sound=reader._warm):
    if int.from_bytes(request.first[-8:], "big") == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return sound(environment, directory, request)

reader._warm = warm
reader.main(sys.argv[1:])
"""


def test_a_read_that_kills_every_reader_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying_reader.py").write_text(DYING_READER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(fetching, "_READER", "dying_reader")

    @on_uvloop
    async def run() -> None:
        link = await started(tmp_path / "journal", 10)
        answers = Answers()
        for offset in range(10):
            fetch(link, answers, offset, offset + 1)
        await until_async(lambda: link.waiting_reads == 0 and len(answers.keys) == 10, "the reads")
        assert [keys for keys in answers.keys if keys] == [[offset] for offset in range(10) if offset != 5]
        assert answers.damaged == [5]
        await link.stop()

    with caplog.at_level(logging.ERROR):
        run()
    (given_up,) = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert log_key(1, 0, 5).hex() in given_up
    assert "enmasse journal check" in given_up


@on_uvloop
async def test_a_damaged_frame_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    link = await started(tmp_path, 3)
    spoilt = bytearray(frame(1))
    spoilt[100] ^= 1
    link.submit([Operation(Table.FRAME, log_key(1, 0, 1), bytes(spoilt))])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    answers = Answers()
    with caplog.at_level(logging.ERROR):
        fetch(link, answers, 0, 10)
        fetch(link, answers, 1, 2)
        await until_async(lambda: link.waiting_reads == 0, "the reads")
    assert answers.keys == [[0, 2], []]
    assert answers.damaged == [1, 1]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "FRAME record of log 1, partition 0, offset 1 in" in message
    assert "enmasse journal check" in message
    await link.stop()


@on_uvloop
async def test_a_page_that_is_lost_while_the_node_runs_costs_its_own_record_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = await started(tmp_path, 0)
    for offset in range(6):
        data = encode_frame(offset, [0], [b""], [b"h"], [b"y" * 9000])
        link.submit([Operation(Table.FRAME, log_key(1, 0, offset), data)])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    file = PageFile(str(tmp_path / "data.mdb"))
    (page,) = [
        node.overflow
        for number, data in file.leaves(file.metas[0].main)
        for node in file.nodes(number, data)
        if node.key[1:] == log_key(1, 0, 3)
    ]
    file.close()
    with (tmp_path / "data.mdb").open("r+b") as raw:
        raw.seek(page * 4096)
        raw.write(page.to_bytes(8, "little") + b"\0\0\2\0" + bytes(4084))
    answers = Answers()
    with caplog.at_level(logging.ERROR):
        for first in (0, 3, 4, 2):
            fetch(link, answers, first, 10)
        await until_async(lambda: link.waiting_reads == 0, "the reads")
    assert answers.keys == [[0, 1, 2], [], [4, 5], [2]]
    assert answers.damaged == [3]
    assert log_key(1, 0, 3).hex() in caplog.text
    await link.stop()


@on_uvloop
async def test_other_work_gets_its_turn_between_large_reads(tmp_path: Path) -> None:
    link = await started(tmp_path, 1)
    for offset in range(1, 40):
        data = encode_frame(offset, [0], [b""], [b"h"], [b"y" * (1 << 20)])
        link.submit([Operation(Table.FRAME, log_key(1, 0, offset), data)])
    await until_async(lambda: link.unconfirmed_bytes == 0, "the commit")
    loop = asyncio.get_running_loop()
    turn = 0
    turns: list[int] = []

    def note(_records: list[tuple[bytes, bytes]], _damaged: list[bytes]) -> None:
        turns.append(turn)

    def count() -> None:
        nonlocal turn
        turn += 1
        if link.waiting_reads:
            loop.call_soon(count)

    answers = Answers()
    fetch(link, answers, 1, 2)
    await until_async(lambda: answers.keys, "the reader")
    first, last = log_range(1, 0)
    for _ in range(8):
        link.fetch(Table.FRAME, first, last, 8 << 20, note)
    wait_until_answered(link, 8)
    loop.call_soon(count)
    await until_async(lambda: len(turns) == 8, "the reads")
    assert len(set(turns)) == 8
    await link.stop()


@on_uvloop
async def test_reads_are_refused_before_start_and_after_stop(tmp_path: Path) -> None:
    link = JournalLink(tmp_path)
    with pytest.raises(JournalStateError):
        fetch(link, Answers(), 0, 1)
    await link.start(RecordingListener())
    await link.stop()
    with pytest.raises(JournalStateError):
        fetch(link, Answers(), 0, 1)


@on_uvloop
async def test_stopping_does_not_wait_for_reads(tmp_path: Path) -> None:
    link = await started(tmp_path, 100)
    answers = Answers()
    for offset in range(100):
        fetch(link, answers, offset, offset + 1)
    await link.stop()
    heard = len(answers.keys)
    await asyncio.sleep(0)
    assert len(answers.keys) == heard
