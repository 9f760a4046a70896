"""The journal process: the only writer of a node's stored data.

    python -m enmasse.storage.journal --directory D --fd N [--map-bytes B] [--lock-wait SECONDS] [--marker FILE]
        [--file DEVICE:INODE]

Started by ``enmasse.storage.process`` with one end of a socket pair. Rules:

1. Lock first, then open, then ``hello``; the lock ends with the process, after its last commit.
2. Group commit: everything complete that was received is one transaction with one sync and gets
   one answer. What arrives meanwhile is the next group.
3. A group that fails is tried again batch by batch, so that only batches that cannot be written
   are reported failed; answers stay in the order of numbers.
4. It ends at end of file, after the complete batches, without the torn one. SIGINT and SIGTERM are
   for the node.
5. Every ``CHECK_S`` it checks that the data file is still in its place. Where it is not, every batch fails.
6. Few imports: this process starts anew while messages wait for it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import lmdb

from enmasse.storage.batch import AnswerKind, Batch, encode_answer, split_batches
from enmasse.storage.environment import DEFAULT_MAP_BYTES, WriteEnvironment
from enmasse.storage.errors import BatchError, JournalFormatError
from enmasse.storage.lock import DirectoryLock
from enmasse.storage.presence import explain_loss, file_id, require_journal, write_marker

if TYPE_CHECKING:
    from enmasse.storage.presence import FileId

_BUFFER_BYTES = 4 << 20
"""Bounds a group: 4 MiB are on disk in a few milliseconds, so the next group never waits long."""

_LOCK_POLL_MS = 20

CHECK_S = 0.5
"""So often the data file is checked for, under load too: a commit is confirmed at most so long after its loss."""

EXIT_REFUSED = 2
EXIT_BROKEN = 3


class JournalWriter:
    """Receives batches on a socket, commits them and answers.

    Args:
        fd: the journal's end of the socket pair, blocking.
        environment: the environment to write to; the caller holds its lock.
        directory: the directory of the environment.
        file: its data file.
    """

    def __init__(self, fd: int, environment: WriteEnvironment, directory: str, file: FileId) -> None:
        self._fd = fd
        self._environment = environment
        self._directory = directory
        self._file = file
        self._loss = ""
        self._checked = time.monotonic()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._last = (environment.epoch, environment.number)

    def run(self) -> None:
        """Work until the node's end is closed and all that it sent is committed.

        Raises:
            BatchError: the bytes that came are no batch; nothing after it is committed.
            lmdb.PanicError: the environment cannot be used any more.
        """
        env = self._environment
        failed = b"".join(number.to_bytes(8, "little") for number in env.failed)
        self._answer(encode_answer(AnswerKind.HELLO, env.epoch, env.number, failed))
        while self._receive():
            batches, used, size = split_batches(self._buffer[: self._filled])
            if batches:
                self._answer(self._commit(batches))
                batches.clear()
            self._keep_from(used, size)
        if self._filled:
            _complain(f"dropped a torn batch of {self._filled} bytes")

    def _receive(self) -> bool:
        """Wait for bytes and take all that are there, as far as the buffer goes."""
        while not self._poll.poll(CHECK_S * 1000):
            self._check_file()
        try:
            count = os.readv(self._fd, [self._buffer[self._filled :]])
        except ConnectionResetError:
            return False  # the node died with answers unread
        self._filled += count
        return count > 0

    def _keep_from(self, used: int, size: int) -> None:
        """Move a torn batch to the front of a buffer that holds it whole."""
        rest = self._filled - used
        wanted = max(size, _BUFFER_BYTES)
        if wanted != len(self._buffer):
            new = memoryview(bytearray(wanted))
            new[:rest] = self._buffer[used : self._filled]
            self._buffer = new
        elif used and rest:
            self._buffer[:rest] = self._buffer[used : self._filled]
        self._filled = rest

    def _check_file(self) -> None:
        """See whether the data file is in its place, and say so if that has changed."""
        self._checked = time.monotonic()
        loss = explain_loss(self._directory, self._file)
        if loss != self._loss:
            self._loss = loss
            self._answer(encode_answer(AnswerKind.LOST, 0, 0, loss.encode()[:1000]))

    def _commit(self, batches: list[Batch]) -> bytes:
        """Commit a group and return what to answer."""
        last = batches[-1]
        before = self._last
        for batch in batches:
            if (batch.epoch, batch.number) <= before:
                raise BatchError(f"batch {batch.number} of epoch {batch.epoch} came after {before[1]} of {before[0]}")
            before = (batch.epoch, batch.number)
        self._last = before
        if self._loss or time.monotonic() - self._checked >= CHECK_S:
            self._check_file()
        if self._loss:
            return b"".join(self._failed(batch, self._loss) for batch in batches)
        try:
            self._environment.apply(batches)
        except lmdb.PanicError:
            raise
        except lmdb.Error as error:
            if len(batches) == 1:
                return self._failed(last, self._environment.explain(error))
            return self._commit_singly(batches)
        return encode_answer(AnswerKind.COMMITTED, last.epoch, last.number)

    def _commit_singly(self, batches: list[Batch]) -> bytes:
        answers = []
        failed: list[int] = []
        for batch in batches:
            try:
                self._environment.apply([batch], failed)
            except lmdb.PanicError:
                raise
            except lmdb.Error as error:
                failed.append(batch.number)
                answers.append(self._failed(batch, self._environment.explain(error)))
            else:
                failed = []
                answers.append(encode_answer(AnswerKind.COMMITTED, batch.epoch, batch.number))
        return b"".join(answers)

    def _failed(self, batch: Batch, reason: str) -> bytes:
        return encode_answer(AnswerKind.FAILED, batch.epoch, batch.number, reason.encode()[:1000])

    def _answer(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except (BrokenPipeError, ConnectionResetError):
                return  # nobody listens; what was received is committed all the same


def _complain(text: str) -> None:
    with suppress(OSError):  # a log on a full disk
        sys.stderr.write(f"journal {os.getpid()}: {text}\n")
        sys.stderr.flush()


def _refuse(fd: int, kind: int, text: str) -> NoReturn:
    try:
        os.write(fd, encode_answer(kind, 0, 0, text.encode()[:1000]))
    except OSError:
        _complain(text)
    sys.exit(EXIT_REFUSED)


def _wait_for_lock(lock: DirectoryLock, fd: int, seconds: float) -> bool:
    """Wait for an old writer to finish; false if it does not, or if the node is gone."""
    deadline = time.monotonic() + seconds
    node = select.poll()
    node.register(fd, select.POLLRDHUP)
    while not lock.acquire():
        if node.poll(_LOCK_POLL_MS) or time.monotonic() >= deadline:
            return False
    return True


def _run(
    directory: str, fd: int, map_bytes: int, lock_wait_s: float, marker: str | None, former: FileId | None
) -> None:
    if former is not None and (loss := explain_loss(directory, former)):
        _refuse(fd, AnswerKind.REFUSED, loss)
    try:
        if marker is not None:
            require_journal(directory, marker)
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib would double the start time
        lock = DirectoryLock(directory)
    except JournalFormatError as error:
        _refuse(fd, AnswerKind.REFUSED, str(error))
    except OSError as error:
        _refuse(fd, AnswerKind.REFUSED, f"the journal directory {directory} cannot be used: {error}")
    if not _wait_for_lock(lock, fd, lock_wait_s):
        _refuse(fd, AnswerKind.LOCKED, f"process {lock.holder()} still writes the journal in {directory}")
    try:
        environment = WriteEnvironment(directory, map_bytes)
        file = file_id(directory)
    except JournalFormatError as error:
        _refuse(fd, AnswerKind.REFUSED, str(error))
    except (OSError, lmdb.Error) as error:
        _refuse(fd, AnswerKind.REFUSED, f"the journal in {directory} cannot be opened: {error}")
    for sentence in environment.mended:
        _complain(sentence)
    if marker is not None:
        try:
            write_marker(directory, marker)
        except OSError as error:
            _complain(f"{marker} cannot be made, so that a later loss of the journal would go unnoticed: {error}")
    try:
        JournalWriter(fd, environment, directory, file).run()
    except (BatchError, lmdb.PanicError) as error:
        # Exits without an answer: the node starts another journal, which reports what was committed.
        _complain(str(error))
        sys.exit(EXIT_BROKEN)
    environment.close()
    lock.release()


def main(arguments: list[str]) -> None:
    """Run the journal process for command-line arguments (without the program's name)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.disable()  # nothing here makes cycles
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    device, _, inode = options.get("--file", "").partition(":")
    _run(
        options["--directory"],
        int(options["--fd"]),
        int(options.get("--map-bytes", DEFAULT_MAP_BYTES)),
        float(options.get("--lock-wait", "10")),
        options.get("--marker"),
        (int(device), int(inode)) if inode else None,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
