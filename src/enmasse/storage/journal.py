"""The journal process: the only writer of a node's stored data.

    python -m enmasse.storage.journal --directory D --fd N [--map-bytes B] [--lock-wait SECONDS]

Started by ``enmasse.storage.process`` with one end of a socket pair. Rules:

1. Lock first, then open, then ``hello``; the lock ends with the process, after its last commit.
2. Group commit: everything complete that was received is one transaction with one sync and gets
   one answer. What arrives meanwhile is the next group.
3. A group that fails is tried again batch by batch, so that only batches that cannot be written
   are reported failed; answers stay in the order of numbers.
4. It ends at end of file, after the complete batches, without the torn one. SIGINT and SIGTERM are
   for the node.
5. Few imports: this process starts anew while messages wait for it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from typing import NoReturn

import lmdb

from enmasse.storage.batch import AnswerKind, Batch, encode_answer, split_batches
from enmasse.storage.environment import DEFAULT_MAP_BYTES, WriteEnvironment
from enmasse.storage.errors import BatchError, JournalFormatError
from enmasse.storage.lock import DirectoryLock

__all__ = ["JournalWriter", "main"]

_BUFFER_BYTES = 4 << 20
"""Bounds a group: 4 MiB are on disk in a few milliseconds, so the next group never waits long."""

_LOCK_POLL_MS = 20

EXIT_REFUSED = 2
EXIT_BROKEN = 3


class JournalWriter:
    """Receives batches on a socket, commits them and answers.

    Args:
        fd: the journal's end of the socket pair, blocking.
        environment: where to; the caller holds its lock.
    """

    def __init__(self, fd: int, environment: WriteEnvironment) -> None:
        self._fd = fd
        self._environment = environment
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._last = (environment.epoch, environment.number)

    def run(self) -> None:
        """Work until the node's end is closed and all that it sent is committed.

        Raises:
            BatchError: what came is no batch; nothing after it is committed.
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

    def _commit(self, batches: list[Batch]) -> bytes:
        """Commit a group and return what to answer."""
        last = batches[-1]
        before = self._last
        for batch in batches:
            if (batch.epoch, batch.number) <= before:
                raise BatchError(f"batch {batch.number} of epoch {batch.epoch} came after {before[1]} of {before[0]}")
            before = (batch.epoch, batch.number)
        self._last = before
        try:
            self._environment.apply(batches)
        except lmdb.PanicError:
            raise
        except lmdb.Error as error:
            if len(batches) == 1:
                return self._failed(last, error)
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
                answers.append(self._failed(batch, error))
            else:
                failed = []
                answers.append(encode_answer(AnswerKind.COMMITTED, batch.epoch, batch.number))
        return b"".join(answers)

    def _failed(self, batch: Batch, error: lmdb.Error) -> bytes:
        return encode_answer(
            AnswerKind.FAILED, batch.epoch, batch.number, self._environment.explain(error).encode()[:1000]
        )

    def _answer(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except (BrokenPipeError, ConnectionResetError):
                return  # nobody listens; what was received is committed all the same


def _complain(text: str) -> None:
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


def _run(directory: str, fd: int, map_bytes: int, lock_wait_s: float) -> None:
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib would double the start time
        lock = DirectoryLock(directory)
    except OSError as error:
        _refuse(fd, AnswerKind.REFUSED, f"the journal directory {directory} cannot be used: {error}")
    if not _wait_for_lock(lock, fd, lock_wait_s):
        _refuse(fd, AnswerKind.LOCKED, f"process {lock.holder()} still writes the journal in {directory}")
    try:
        environment = WriteEnvironment(directory, map_bytes)
    except JournalFormatError as error:
        _refuse(fd, AnswerKind.REFUSED, str(error))
    except (OSError, lmdb.Error) as error:
        _refuse(fd, AnswerKind.REFUSED, f"the journal in {directory} cannot be opened: {error}")
    try:
        JournalWriter(fd, environment).run()
    except (BatchError, lmdb.PanicError) as error:
        # Exits without an answer: the node starts another journal, which tells what was committed.
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
    _run(
        options["--directory"],
        int(options["--fd"]),
        int(options.get("--map-bytes", DEFAULT_MAP_BYTES)),
        float(options.get("--lock-wait", "10")),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
