"""The journal process by itself, over a raw socket pair."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import Answer, AnswerKind, encode_batch, split_answers
from enmasse.storage.environment import ReadEnvironment
from enmasse.storage.lock import DirectoryLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

SMALL_MAP = 128 * 1024
"""A map that a value of the same size does not fit into; a socket holds both."""


class RawJournal:
    """A journal process and the node's end of its socket."""

    def __init__(self, directory: Path, *arguments: str, map_bytes: int = 1 << 40, lock_wait_s: float = 10.0) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse.storage.journal", "--directory", str(directory),
             "--fd", str(theirs.fileno()), "--map-bytes", str(map_bytes),
             "--lock-wait", str(lock_wait_s), *arguments],
            pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        theirs.close()
        self._answers: list[Answer] = []
        self._rest = b""

    def answer(self) -> Answer:
        while not self._answers:
            data = self.socket.recv(65536)
            assert data, "the journal closed its socket"
            self._answers, self._rest = split_answers(self._rest + data)
        return self._answers.pop(0)

    def send(self, number: int, *operations: Operation, epoch: int = 1, acknowledged: int = 0) -> None:
        self.socket.sendall(encode_batch(epoch, number, acknowledged, operations))

    def end(self) -> tuple[int, str]:
        """Close the socket and return exit status and standard error."""
        self.socket.close()
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors

    def kill(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.communicate(timeout=30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RawJournal]]:
    started: list[RawJournal] = []

    def start(**options: float) -> RawJournal:
        started.append(RawJournal(tmp_path / "journal", **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for journal in started:
        journal.kill()


def put(key: bytes, value: bytes = b"v") -> Operation:
    return Operation(Table.FRAME, key, value)


def stored(tmp_path: Path) -> dict[bytes, bytes]:
    reader = ReadEnvironment(str(tmp_path / "journal"))
    try:
        return dict(reader.scan_all(Table.FRAME))
    finally:
        reader.close()


def test_it_says_hello_and_answers_each_commit(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    journal = start()
    assert journal.answer() == (AnswerKind.HELLO, 0, 0, b"")
    journal.send(1, put(b"a"), epoch=4)
    assert journal.answer() == (AnswerKind.COMMITTED, 4, 1, b"")
    journal.send(2, put(b"b"), epoch=4)
    assert journal.answer() == (AnswerKind.COMMITTED, 4, 2, b"")
    assert journal.end() == (0, "")
    assert stored(tmp_path) == {b"a": b"v", b"b": b"v"}
    assert start().answer() == (AnswerKind.HELLO, 4, 2, b"")


def test_what_waits_on_the_socket_is_one_commit_with_one_answer(start: Callable[..., RawJournal]) -> None:
    journal = start()
    journal.answer()
    journal.socket.sendall(b"".join(encode_batch(1, number, 0, [put(b"%d" % number)]) for number in range(1, 51)))
    assert journal.answer() == (AnswerKind.COMMITTED, 1, 50, b"")


def test_a_batch_larger_than_the_buffer_is_committed(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    journal = start()
    journal.answer()
    value = bytes(range(256)) * 4096 * 9
    journal.send(1, put(b"small"), put(b"large", value))
    journal.send(2, put(b"next"))
    while journal.answer().number < 2:
        continue
    assert journal.end() == (0, "")
    assert stored(tmp_path) == {b"small": b"v", b"large": value, b"next": b"v"}


def test_at_end_of_file_complete_batches_are_committed_and_a_torn_one_is_dropped(
    start: Callable[..., RawJournal], tmp_path: Path
) -> None:
    journal = start()
    journal.answer()
    torn = encode_batch(1, 3, 0, [put(b"torn", b"x" * 1000)])
    journal.send(1, put(b"a"))
    journal.socket.sendall(encode_batch(1, 2, 0, [put(b"b")]) + torn[:-1])
    status, errors = journal.end()
    assert status == 0
    assert f"torn batch of {len(torn) - 1} bytes" in errors
    assert stored(tmp_path) == {b"a": b"v", b"b": b"v"}


def test_it_ignores_signals_that_are_meant_for_the_node(start: Callable[..., RawJournal]) -> None:
    journal = start()
    journal.answer()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        journal.process.send_signal(number)
    journal.send(1, put(b"a"))
    assert journal.answer().kind == AnswerKind.COMMITTED
    assert journal.end() == (0, "")


def test_it_refuses_while_another_holds_the_lock(start: Callable[..., RawJournal]) -> None:
    first = start()
    first.answer()
    second = start(lock_wait_s=0.1)
    answer = second.answer()
    assert answer.kind == AnswerKind.LOCKED
    assert str(first.process.pid) in answer.text
    assert second.end()[0] == 2
    first.send(1, put(b"a"))
    assert first.answer().kind == AnswerKind.COMMITTED


def test_it_waits_for_an_old_writer_that_is_finishing(start: Callable[..., RawJournal]) -> None:
    old = start()
    old.answer()
    new = start(lock_wait_s=30)
    old.process.send_signal(signal.SIGSTOP)
    old.send(1, put(b"a"), epoch=9)
    old.socket.close()
    new.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        new.answer()
    old.process.send_signal(signal.SIGCONT)
    new.socket.settimeout(30)
    assert new.answer() == (AnswerKind.HELLO, 9, 1, b"")


def test_it_ends_without_the_lock_when_its_node_goes_away(start: Callable[..., RawJournal]) -> None:
    first = start()
    first.answer()
    waiting = start(lock_wait_s=600)
    status, errors = waiting.end()
    assert status == 2
    assert str(first.process.pid) in errors


def test_a_directory_that_cannot_be_made_is_refused_with_its_name(
    start: Callable[..., RawJournal], tmp_path: Path
) -> None:
    (tmp_path / "journal").write_text("a file")
    answer = start().answer()
    assert answer.kind == AnswerKind.REFUSED
    assert str(tmp_path / "journal") in answer.text


def send_as_one_group(journal: RawJournal, *batches: bytes) -> list[Answer]:
    """Send so that the process finds everything at once, and return one answer for each."""
    journal.process.send_signal(signal.SIGSTOP)
    journal.socket.sendall(b"".join(batches))
    journal.process.send_signal(signal.SIGCONT)
    return [journal.answer() for _ in batches]


def test_only_the_batch_that_does_not_fit_fails(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    journal = start(map_bytes=SMALL_MAP)
    journal.answer()
    answers = send_as_one_group(
        journal,
        encode_batch(1, 1, 0, [put(b"a")]),
        encode_batch(1, 2, 0, [put(b"b"), put(b"large", b"x" * SMALL_MAP)]),
        encode_batch(1, 3, 0, [put(b"c")]),
    )
    assert [(answer.kind, answer.number) for answer in answers] == [
        (AnswerKind.COMMITTED, 1),
        (AnswerKind.FAILED, 2),
        (AnswerKind.COMMITTED, 3),
    ]
    assert "MAP_FULL" in answers[1].text
    journal.kill()
    assert stored(tmp_path) == {b"a": b"v", b"c": b"v"}
    hello = start().answer()
    assert (hello.number, hello.numbers) == (3, [2])


def test_a_write_error_of_the_disk_fails_the_batch_and_not_the_process(
    start: Callable[..., RawJournal], tmp_path: Path
) -> None:
    journal = start()
    journal.answer()
    limit = (tmp_path / "journal" / "data.mdb").stat().st_size + 64 * 1024
    _, hard = resource.prlimit(journal.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(journal.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
    answers = send_as_one_group(
        journal,
        encode_batch(1, 1, 0, [put(b"a")]),
        encode_batch(1, 2, 0, [put(b"large", b"x" * SMALL_MAP)]),
        encode_batch(1, 3, 0, [put(b"c")]),
    )
    assert [answer.kind for answer in answers] == [AnswerKind.COMMITTED, AnswerKind.FAILED, AnswerKind.COMMITTED]
    resource.prlimit(journal.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    journal.send(4, put(b"large", b"y" * SMALL_MAP), acknowledged=3)
    assert journal.answer() == (AnswerKind.COMMITTED, 1, 4, b"")
    assert journal.end() == (0, "")
    assert stored(tmp_path) == {b"a": b"v", b"c": b"v", b"large": b"y" * SMALL_MAP}


def test_garbage_ends_it_after_what_was_right(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    journal = start()
    journal.answer()
    journal.send(1, put(b"a"))
    journal.answer()
    journal.socket.sendall(b"garbage" * 100)
    _, errors = journal.process.communicate(timeout=30)
    assert journal.process.returncode == 3
    assert "not a batch" in errors
    assert stored(tmp_path) == {b"a": b"v"}


@pytest.mark.parametrize(("epoch", "number"), [(5, 2), (5, 1), (4, 9)])
def test_a_number_that_does_not_rise_is_not_committed(
    start: Callable[..., RawJournal], tmp_path: Path, epoch: int, number: int
) -> None:
    journal = start()
    journal.answer()
    journal.send(2, put(b"a"), epoch=5)
    journal.answer()
    journal.send(number, put(b"a", b"again"), epoch=epoch)
    _, errors = journal.process.communicate(timeout=30)
    assert journal.process.returncode == 3
    assert f"batch {number} of epoch {epoch} came after 2 of 5" in errors
    assert stored(tmp_path) == {b"a": b"v"}


def test_it_commits_for_a_node_that_died_with_answers_unread(
    start: Callable[..., RawJournal], tmp_path: Path
) -> None:
    journal = start()
    for number in range(1, 200):
        journal.send(number, put(b"%03d" % number))
    assert journal.end()[0] == 0
    assert len(stored(tmp_path)) == 199


def test_it_holds_no_descriptor_of_its_parent(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    mine = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(mine, True)
    try:
        journal = start()
        journal.answer()
        held = [str(entry.readlink()) for entry in Path(f"/proc/{journal.process.pid}/fd").iterdir()]
        assert str(tmp_path) not in held
        assert str(tmp_path / "journal" / "writer.lock") in held
    finally:
        os.close(mine)


def test_the_lock_is_free_once_it_was_killed(start: Callable[..., RawJournal], tmp_path: Path) -> None:
    journal = start()
    journal.answer()
    lock = DirectoryLock(str(tmp_path / "journal"))
    assert not lock.acquire()
    journal.kill()
    deadline = time.monotonic() + 30
    while not lock.acquire():
        assert time.monotonic() < deadline, "the lock outlived its holder"
        time.sleep(0.01)
    lock.release()
