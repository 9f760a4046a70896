"""The storage port over a journal process: what a node uses.

Rules:
1. Nothing blocks and nothing runs in another thread; answers come on the loop.
2. A batch stays here, encoded, until its result is known. When the journal process dies, another is
   started; it says what was committed, the rest is sent again under the same numbers.
3. Each batch is answered once, in the order of numbers.
4. Reads see commits, through this process's own read-only environment; ``fetch`` has another process
   bring the pages into memory before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import Enum, auto
from time import perf_counter
from typing import TYPE_CHECKING

from enmasse.messaging.storage import Table
from enmasse.storage.batch import AnswerKind, encode_batch, split_answers
from enmasse.storage.durations import COMMIT_BOUNDS_S, Durations
from enmasse.storage.environment import DEFAULT_MAP_BYTES, ReadEnvironment
from enmasse.storage.errors import (
    JournalDamagedError,
    JournalFormatError,
    JournalLockedError,
    JournalStateError,
    JournalUnavailableError,
)
from enmasse.storage.fetching import Fetcher
from enmasse.storage.presence import file_id
from enmasse.storage.process import PairedProcess
from enmasse.storage.reading import ReadRequest
from enmasse.storage.records import describe
from enmasse.storage.soundness import advise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from enmasse.errors import EnmasseError
    from enmasse.messaging.storage import Fetched, Operation, StorageListener
    from enmasse.storage.batch import Answer
    from enmasse.storage.presence import FileId

__all__ = ["JournalLink"]

_log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 2.0

_MAX_NAMED = 10_000
"""Damaged records that are remembered as logged."""

_LEFT_OUT = frozenset((Table.FRAME, Table.TIME, Table.RETAINED, Table.SETTLED, Table.ATTEMPTS))
"""Tables of which a damaged record costs no more than itself: a message, or that one comes a second time."""


class _State(Enum):
    NEW = auto()
    STARTING = auto()
    """The first process has not said hello."""
    RUNNING = auto()
    BROKEN = auto()
    """The next process has not said hello, or will be started; batches wait here."""
    ENDING = auto()
    """Everything is committed, end of file is sent."""
    STOPPED = auto()


class JournalLink:
    """A journal as the messaging core sees it (``enmasse.messaging.storage.Storage``).

    Keep at most one per directory in a process: LMDB asks for that.

    Args:
        directory: the directory of the journal; made if it is missing.
        map_bytes: upper bound of the data file; a smaller one is used where the platform refuses it.
        lock_wait_s: the seconds that a new journal process waits for an old one to finish.
        marker: the file that shows, once there is a journal, that there was one; without it a journal that is missing
            is always begun anew.
        loss_changed: called with whether the journal is lost, whenever that has changed: its data file is not in its
            place any more, or it is back.
        journal_changed: called with the new process id whenever the journal process was replaced
            (not at start), when the new one is ready.
    """

    def __init__(
        self,
        directory: Path,
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        lock_wait_s: float = 10.0,
        marker: str | None = None,
        loss_changed: Callable[[bool], None] | None = None,
        journal_changed: Callable[[int], None] | None = None,
    ) -> None:
        self._directory = str(directory)
        self._marker = marker
        self._file: FileId | None = None
        """The data file that is in use: no other one may take its place."""
        self._loss_changed = loss_changed
        self._map_bytes = map_bytes
        self._lock_wait_s = lock_wait_s
        self._journal_changed = journal_changed
        self._state = _State.NEW
        self._loop: asyncio.AbstractEventLoop
        self._listener: StorageListener
        self._process: PairedProcess[Answer] | None = None
        self._send: Callable[[bytes], None] | None = None
        self._reader: ReadEnvironment | None = None
        self._fetcher: Fetcher | None = None
        self._started: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._refusal: EnmasseError | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = 0.0
        self._epoch = 0
        self._number = 0
        self._heard = 0
        self._unconfirmed: deque[tuple[int, bytes, float]] = deque()
        """Number, bytes, and when they were handed over by ``perf_counter``."""
        self._unconfirmed_bytes = 0
        self._named: set[bytes] = set()
        self._commits = 0
        self._is_failing = False
        self.failure = ""
        """The reason that the last batch could not be written; empty if it was."""
        self.loss = ""
        """The reason that the journal is no more the one that was loaded; empty if it is."""
        self.replacements = 0
        """Journal processes that took over from one that died."""
        self.commit_times = Durations(COMMIT_BOUNDS_S)
        """Of each batch, from handing it over to its answer."""

    @property
    def journal_pid(self) -> int | None:
        """Process id of the journal, ``None`` while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True if the journal process has the lock and takes batches."""
        return self._state is _State.RUNNING

    @property
    def epoch(self) -> int:
        """One above the epoch of the node's last start that wrote something; known after start."""
        return self._epoch

    @property
    def commits(self) -> int:
        """Group commits that were answered."""
        return self._commits

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes handed over and not yet answered; keeping them bounded is the core's part."""
        return self._unconfirmed_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the data file that have ever been used."""
        return self._environment().file_bytes

    async def start(self, listener: StorageListener) -> None:
        """Start the journal process and return when it has the lock and data can be read.

        Args:
            listener: gets the result of every batch, on the loop.

        Raises:
            JournalLockedError: another process holds the directory and did not finish in time.
            JournalFormatError: the directory holds no journal that this version can read, or none where one was.
            JournalUnavailableError: the process did not come up.
        """
        if self._state is not _State.NEW:
            raise JournalStateError("a journal link starts once; make a new one")
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._ended = self._loop.create_future()
        self._started = started = self._loop.create_future()
        self._state = _State.STARTING
        try:
            self._spawn()
        except OSError as error:
            self._state = _State.STOPPED
            raise JournalUnavailableError(f"the journal process could not be started: {error}") from error
        try:
            await started
            self._reader = ReadEnvironment(self._directory, self._map_bytes, self._damaged)
            self._file = file_id(self._directory)
        except BaseException:
            await self._abandon()
            raise

    async def stop(self, timeout_s: float = 30.0) -> None:
        """Commit what was submitted, end the journal process and wait for its end.

        Batches may still be submitted while earlier ones are being committed. Stopping twice, or
        before a start, does nothing.

        Raises:
            JournalUnavailableError: not everything could be committed in time; the process is gone.
        """
        if self._ended is None or self._state is _State.STOPPED:
            return
        is_hopeless = bool(self.loss) and self._state is _State.BROKEN
        try:
            async with asyncio.timeout(0.0 if is_hopeless else timeout_s):
                while self._unconfirmed:
                    self._idle = self._loop.create_future()
                    await self._idle
                self._enter_end()
                if self._process is not None:
                    self._process.end()
                    await asyncio.shield(self._ended)
        except TimeoutError:
            reason = f": {self.loss}" if is_hopeless else f" within {timeout_s} s"
            raise JournalUnavailableError(
                f"{len(self._unconfirmed)} batches for {self._directory} were not on disk{reason}"
            ) from None
        finally:
            await self._abandon()

    async def _abandon(self) -> None:
        """End the process at once and wait until it is gone."""
        assert self._ended is not None
        if self._process is not None:
            self._enter_end()
            self._process.kill()
            await asyncio.shield(self._ended)
        self._enter_end()
        self._state = _State.STOPPED
        if self._fetcher is not None:
            await self._fetcher.stop()
            self._fetcher = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _enter_end(self) -> None:
        self._state = _State.ENDING
        self._send = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def submit(self, operations: Sequence[Operation]) -> int:
        """Hand over one batch and return its number.

        Raises:
            BatchError: a key or the batch is too large; nothing was handed over.
            JournalStateError: before start or after stop.
        """
        number = self._number + 1
        data = encode_batch(self._epoch, number, self._heard, operations)
        if self._send is not None:
            self._send(data)
        elif self._state is not _State.BROKEN:
            raise JournalStateError("the journal link is not started, or is stopped")
        self._number = number
        self._unconfirmed.append((number, data, perf_counter()))
        self._unconfirmed_bytes += len(data)
        return number

    def _environment(self) -> ReadEnvironment:
        if self._reader is None:
            raise JournalStateError("the journal link is not started, or is stopped")
        return self._reader

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed value of one record."""
        return self._environment().get(table, key)

    def scan(self, table: Table, first: bytes, last: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Committed records with ``first <= key < last``, until their values reach ``limit_bytes``."""
        return self._environment().scan(table, first, last, limit_bytes)

    def fetch(self, table: Table, first: bytes, last: bytes, limit_bytes: int, done: Fetched) -> None:
        """Read like ``scan`` once the reader process has brought the pages into memory and checked frames.

        What has no answer when the link is stopped gets none.
        """
        if self._fetcher is None:
            self._fetcher = Fetcher(self._directory, self._map_bytes, self._environment(), self._damaged)
        self._fetcher.fetch(ReadRequest(table, first, last, limit_bytes), done)

    def _damaged(self, stored: bytes) -> None:
        """Log a damaged record once, as it is left out.

        Raises:
            JournalDamagedError: all that lies behind it would go with it.
        """
        if stored[0] not in _LEFT_OUT:
            raise JournalDamagedError(advise(self._directory, f"the {describe(stored)} has a wrong checksum"))
        if stored in self._named or len(self._named) >= _MAX_NAMED:
            return
        self._named.add(stored)
        _log.error(
            "the %s in %s is damaged and left out; run `enmasse journal check`", describe(stored), self._directory
        )

    @property
    def waiting_reads(self) -> int:
        """``fetch`` calls without an answer."""
        return 0 if self._fetcher is None else self._fetcher.waiting

    @property
    def reader_pid(self) -> int | None:
        """Process id of the reader, ``None`` while there is none: it is started on first need."""
        return None if self._fetcher is None else self._fetcher.pid

    def heads(self, table: Table, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, first 64 bytes and length of every committed record with ``first <= key < last``.

        Reads in steps, so commits in between may be seen in part.
        """
        return self._environment().heads(table, first, last)

    def floor(self, table: Table, key: bytes, first: bytes) -> tuple[bytes, bytes] | None:
        """The committed record with the greatest key at most ``key`` and at least ``first``."""
        return self._environment().floor(table, key, first)

    def scan_all(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Every committed record of a table in key order; for loading at start.

        Reads in steps, so commits in between may be seen in part.
        """
        return self._environment().scan_all(table)

    def _spawn(self) -> None:
        self._refusal = None
        arguments = ["--directory", self._directory, "--map-bytes", str(self._map_bytes)]
        arguments += ["--lock-wait", str(self._lock_wait_s)]
        if self._marker is not None:
            arguments += ["--marker", self._marker]
        if self._file is not None:
            arguments += ["--file", "{}:{}".format(*self._file)]
        self._process = PairedProcess(
            self._loop, "enmasse.storage.journal", arguments, split_answers, self._answered, self._process_ended
        )

    def _answered(self, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.kind == AnswerKind.COMMITTED:
                self._commits += 1
                self._retry_s = 0.0
                self._committed(answer.number)
            elif answer.kind == AnswerKind.FAILED:
                self._failed(answer.number, answer.text)
            elif answer.kind == AnswerKind.HELLO:
                self._greeted(answer)
            elif answer.kind == AnswerKind.LOST:
                self._set_loss(answer.text)
            elif answer.kind == AnswerKind.LOCKED:
                self._refusal = JournalLockedError(answer.text)
            else:
                self._refusal = JournalFormatError(answer.text)
        if self._idle is not None and not self._unconfirmed and not self._idle.done():
            self._idle.set_result(None)

    def _committed(self, number: int) -> None:
        unconfirmed = self._unconfirmed
        now = perf_counter()
        while unconfirmed and unconfirmed[0][0] <= number:
            _, data, began = unconfirmed.popleft()
            self._unconfirmed_bytes -= len(data)
            self.commit_times.add(now - began)
        self._heard = number
        if self._is_failing:
            self._is_failing = False
            self.failure = ""
            _log.warning("the journal in %s is written again", self._directory)
        self._listener.on_committed(number)

    def _failed(self, number: int, reason: str) -> None:
        first, data, _ = self._unconfirmed.popleft()
        assert first == number, "answers come in the order of numbers"
        self._unconfirmed_bytes -= len(data)
        self._heard = number
        self.failure = reason
        if not self._is_failing:
            self._is_failing = True
            _log.error("the journal in %s cannot be written: %s", self._directory, reason)
        self._listener.on_failed(number, reason)

    def _set_loss(self, loss: str) -> None:
        if loss == self.loss:
            return
        self.loss = self.failure = loss
        self._is_failing = bool(loss)
        if loss:
            _log.error("the journal in %s is lost: %s", self._directory, loss)
        else:
            _log.warning("the journal in %s is in its place again", self._directory)
        if self._loss_changed is not None:
            self._loss_changed(bool(loss))

    def _greeted(self, hello: Answer) -> None:
        """The process has the lock: settle what an earlier one left open, send what follows."""
        assert self._process is not None
        if self._state is _State.ENDING:
            return
        self._state = _State.RUNNING
        self._send = self._process.send
        if self._started is not None:
            self._epoch = hello.epoch + 1
            if not self._started.done():
                self._started.set_result(None)
            self._started = None
            return
        self._set_loss("")
        lost = set(hello.numbers) if hello.epoch == self._epoch else set()
        last = hello.number if hello.epoch == self._epoch else 0
        # Sent before the listener is called: what it submits then has higher numbers.
        for number, data, _ in self._unconfirmed:
            if number > last:
                self._process.send(data)
        committed = 0
        for number in [number for number, _, _ in self._unconfirmed if number <= last]:
            if number not in lost:
                committed = number
                continue
            if committed > self._heard:
                self._committed(committed)
            self._failed(number, "it could not be written before the journal process was replaced")
        if committed > self._heard:
            self._committed(committed)
        self.replacements += 1
        _log.warning("journal process %d took over %s", self._process.pid, self._directory)
        if self._journal_changed is not None:
            self._journal_changed(self._process.pid)

    def _process_ended(self, status: int) -> None:
        assert self._ended is not None
        self._process = None
        self._send = None
        if self._state is _State.ENDING:
            self._ended.set_result(None)
            return
        problem = self._refusal or JournalUnavailableError(
            f"the journal process for {self._directory} ended with status {status}"
        )
        if self._started is not None:
            if not self._started.done():
                self._started.set_exception(problem)
            self._started = None
            return
        _log.error("%s; starting another", problem)
        if isinstance(problem, JournalFormatError):
            self._set_loss(str(problem))
        self._wait_to_spawn()

    def _wait_to_spawn(self) -> None:
        self._state = _State.BROKEN
        self._retry = self._loop.call_later(self._retry_s, self._spawn_again)
        self._retry_s = min(max(self._retry_s * 2, _FIRST_RETRY_S), _LAST_RETRY_S)

    def _spawn_again(self) -> None:
        self._retry = None
        try:
            self._spawn()
        except OSError as error:
            _log.error("the journal process could not be started: %s", error)
            self._wait_to_spawn()
