"""Reads that wait elsewhere: the node's side of the reader process.

Rules:
1. The reader process brings the records into memory and checks frames; then this process copies them.
2. Several requests are on their way at once, the others wait here. Answers keep the order of requests.
3. Started on first need. When it dies another is started and asked again what has no answer. A request
   that killed ``_ATTEMPTS`` readers is given up: its first key counts as damaged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

import lmdb

from enmasse.messaging.storage import Table
from enmasse.storage.batch import TABLE_PREFIX
from enmasse.storage.process import PairedProcess
from enmasse.storage.reading import FAILED, READY, ReadAnswer, ReadRequest, encode_request, split_reads

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.messaging.storage import Fetched
    from enmasse.storage.environment import ReadEnvironment

_log = logging.getLogger(__name__)

_READER = "enmasse.storage.reader"

_WINDOW = 8
"""Requests on their way: enough that the reader never waits for this process's turn."""

_TURN_BYTES = 2 << 20
"""Bytes that are copied in one turn of the loop before others get theirs."""

_ATTEMPTS = 3
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 2.0
_STOP_S = 1.0


class _Read:
    """One request and who wants to know."""

    __slots__ = ("attempts", "done", "request")

    def __init__(self, request: ReadRequest, done: Fetched) -> None:
        self.request = request
        self.done = done
        self.attempts = 0


class Fetcher:
    """Asks the reader process, and hands out what it has warmed.

    Args:
        directory: the directory of the journal.
        map_bytes: upper bound of the data file.
        environment: this process's own, to copy from.
        report: called with the stored key of a damaged record that is left out.
    """

    def __init__(
        self, directory: str, map_bytes: int, environment: ReadEnvironment, report: Callable[[bytes], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._map_bytes = map_bytes
        self._environment = environment
        self._report = report
        self._process: PairedProcess[ReadAnswer] | None = None
        self._is_ready = False
        self._asked: deque[_Read] = deque()
        """On their way to the reader."""
        self._waiting: deque[_Read] = deque()
        self._answers: deque[ReadAnswer] = deque()
        self._turn: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = 0.0
        self._ended: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._asked) + len(self._waiting)

    @property
    def pid(self) -> int | None:
        """Process id of the reader, ``None`` while there is none."""
        return None if self._process is None else self._process.pid

    def fetch(self, request: ReadRequest, done: Fetched) -> None:
        """Answer ``done`` in a later turn of the loop."""
        self._waiting.append(_Read(request, done))
        if self._process is None:
            if self._retry is None and self._ended is None:
                self._spawn()
        elif self._is_ready and len(self._asked) < _WINDOW:
            self._ask()

    async def stop(self) -> None:
        """End the reader; what has no answer gets none."""
        self._waiting.clear()
        self._ended = self._loop.create_future()
        for handle in (self._turn, self._retry):
            if handle is not None:
                handle.cancel()
        if self._process is not None:
            self._process.end()
            try:
                async with asyncio.timeout(_STOP_S):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                self._process.kill()
                await self._ended

    def _spawn(self) -> None:
        self._retry = None
        self._is_ready = False
        arguments = ["--directory", self._directory, "--map-bytes", str(self._map_bytes)]
        try:
            self._process = PairedProcess(
                self._loop, _READER, arguments, split_reads, self._heard, self._process_ended
            )
        except OSError as error:
            _log.error("the journal's reader could not be started: %s", error)
            self._spawn_later()

    def _spawn_later(self) -> None:
        self._retry = self._loop.call_later(self._retry_s, self._spawn)
        self._retry_s = min(max(self._retry_s * 2, _FIRST_RETRY_S), _LAST_RETRY_S)

    def _ask(self) -> None:
        assert self._process is not None
        while self._waiting and len(self._asked) < _WINDOW:
            read = self._waiting.popleft()
            self._asked.append(read)
            self._process.send(encode_request(read.request))

    def _heard(self, answers: list[ReadAnswer]) -> None:
        if self._ended is not None:
            return
        for answer in answers:
            if answer.kind == READY:
                self._is_ready = True
                self._ask()
            else:
                self._answers.append(answer)
        if self._answers and self._turn is None:
            self._hand_out()

    def _hand_out(self) -> None:
        """Copy what is warm, a bounded part in one turn."""
        self._turn = None
        self._retry_s = 0.0
        copied = 0
        while self._answers and copied < _TURN_BYTES and self._ended is None:
            answer, read = self._answers.popleft(), self._asked.popleft()
            if self._process is not None and self._is_ready:
                self._ask()
            if answer.kind == FAILED:
                self._give_up(read, answer.end.decode("utf-8", "replace"), *answer.damaged)
                continue
            try:
                records = self._copy(read.request, answer)
            except lmdb.Error as error:
                self._give_up(read, str(error))
                continue
            copied += sum(len(value) for _, value in records)
            for key in answer.damaged:
                self._report(TABLE_PREFIX[read.request.table] + key)
            read.done(records, list(answer.damaged))
        if self._answers and self._ended is None:
            self._turn = self._loop.call_soon(self._hand_out)

    def _copy(self, request: ReadRequest, answer: ReadAnswer) -> list[tuple[bytes, bytes]]:
        if not answer.found:
            return []
        records = self._environment.scan(request.table, request.first, answer.end + b"\0", request.limit_bytes)
        if answer.damaged:
            damaged = set(answer.damaged)
            records = [record for record in records if record[0] not in damaged]
        return records

    def _give_up(self, read: _Read, reason: str, key: bytes | None = None) -> None:
        table, first, _, _ = read.request
        if key is not None:
            first = key
        _log.error(
            "the journal in %s cannot be read from %s %s on: %s; stop the node and run `enmasse journal check`",
            self._directory,
            Table(table).name,
            first.hex(),
            reason,
        )
        read.done([], [first])

    def _process_ended(self, status: int) -> None:
        self._process = None
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
            return
        _log.error("the journal's reader ended with status %d; starting another", status)
        was_ready, self._is_ready = self._is_ready, False
        # What has an answer already is handed out; the next one is what the reader died of.
        answered = len(self._answers)
        again = [self._asked.pop() for _ in range(len(self._asked) - answered)]
        self._waiting.extendleft(again)
        if was_ready and again:
            suspect = self._waiting[0]
            suspect.attempts += 1
            if suspect.attempts >= _ATTEMPTS:
                self._waiting.popleft()
                self._loop.call_soon(self._give_up, suspect, f"{_ATTEMPTS} readers ended over it")
        if self._waiting:
            self._spawn_later()
