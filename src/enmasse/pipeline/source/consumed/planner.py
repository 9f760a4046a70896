"""The planner's side of a query: deliveries become batches, and are accepted when Spark has committed these.

Rules:
1. A batch is one file, written whole before Spark gets its offsets; Spark plans one at a time.
2. A message that would be known again stays the address's until its batch is committed. One that would not is
   accepted as soon as it is in the file: given again, it would be taken for another.
3. The commit log proves what is committed. It is read when Spark plans the next batch.
4. Every call survives a node that is away, and a disk that is full, for less than the retry time-out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from enmasse.errors import EnmasseError, UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.backup.locks import wait_for_backup
from enmasse.pipeline.errors import OptionError, SpoolFullError, SpoolMismatchError, StreamUnavailableError
from enmasse.pipeline.source.consumed.ledger import CommitLog, Entry, Ledger, local_path
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.spool import BatchFile, Row, Spool, identity_of

LOOK_S = 1.0
"""Seconds between two reads of the commit log while a batch is not known to be committed."""

FIRST_POLL_S = 0.3
"""Messages that wait are there by then, and who started the query learns soon that it runs."""

LONGEST_POLL_S = 30.0
"""An idle query costs Spark a plan for each poll, so it polls ever less often."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Delivering(Protocol):
    """The part of a connection that planning uses; its deliveries have a ``payload``."""

    @property
    def is_usable(self) -> bool:
        """True if it is up."""

    @property
    def stored(self) -> int:
        """The number of messages when it was made."""

    def receive(self, max_rows: int, max_bytes: int, timeout_s: float) -> list[Any]:
        """Return what is there; waits for the first one."""

    def drain(self, max_rows: int, max_bytes: int) -> list[Any]:
        """Return what is there; nothing once nothing is left."""

    def accept(self, deliveries: Sequence[Any]) -> None:
        """Accept deliveries for good."""

    def close(self) -> None:
        """Give back what was not accepted."""


class ConsumedPlanner:
    """Plans the micro-batches of one query.

    Args:
        options: the options of the user.
        spool: the spool of the query; closed with the planner.
        link: makes a connection, a new one after the last was lost.
        backoff: the time that the node may stay away, or the disk be full.
        wall_us: the time in microseconds since 1970 UTC.
    """

    def __init__(
        self,
        options: ConsumedOptions,
        spool: Spool,
        link: Callable[[], Delivering],
        backoff: Backoff,
        *,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._options = options
        self._spool = spool
        self._make_link = link
        self._backoff = backoff
        self._wall_us = wall_us
        self._lock = threading.RLock()
        """Held while the account is changed; never while waiting for messages."""
        self._link: Delivering | None = None
        self._fresh: list[tuple[Row, Any]] = []
        """Messages of no batch yet, with their deliveries."""
        self._poll_s = min(FIRST_POLL_S, options.source.poll_timeout_s)
        self._budget: int | None = None
        """The number of messages that an ending query still takes."""
        place = local_path(options.checkpoint)
        self._commits = None if place is None else CommitLog(place, spool.id)
        entries = [Entry[Any](file, [row.identity for row in spool.rows(file)]) for file in spool.batches]
        self._ledger: Ledger[Any] = Ledger(entries, spool.again)
        self._committed = 0
        self._last_us = 0
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    # What Spark asks

    def initial(self) -> int:
        """Return where a query without a checkpoint begins: what an earlier one left is given again."""
        with self._lock:
            return min((entry.file.first for entry in self._ledger.entries), default=0)

    def fix_target(self) -> None:
        """Take no more than what is there now.

        Raises:
            StreamUnavailableError: the node stayed away.
        """
        self._budget = self._try(lambda link: link.stored)

    def latest(self, start: int, max_rows: int | None) -> int:
        """Return where the next batch ends; waits for messages for up to the poll time-out.

        Args:
            start: the start of the batch; what is below is committed.
            max_rows: messages to take at most.

        Returns:
            ``start`` itself when there is nothing new.

        Raises:
            StreamUnavailableError: the node stayed away.
            SpoolFullError: the spool could not be written.
            SpoolDamagedError: a batch of the spool is not as it was written.
        """
        self.committed(start)
        rows = min(max_rows or self._options.max_rows, self._options.max_rows)
        with self._lock:
            waiting = [entry.file for entry in self._ledger.entries if entry.file.end > start]
        if not waiting:
            self._gather(rows)
            wait_for_backup()
            with self._lock:
                if self._fresh and self._link is not None and self._link.is_usable:
                    waiting = [self._cut(start)]
        if not waiting:
            self._poll_s = max(self._options.source.poll_timeout_s, min(2 * self._poll_s, LONGEST_POLL_S))
            return start
        self._poll_s = self._options.source.poll_timeout_s
        self._watch()
        return waiting[0].end

    def files(self, start: int, end: int) -> list[BatchFile]:
        """Return the files of a batch.

        Raises:
            SpoolDamagedError: they are not there.
        """
        with self._lock:
            found = self._spool.covering(start, end)
        self._watch()
        return found

    def committed(self, position: int) -> None:
        """Spark has committed everything below an offset.

        Raises:
            SpoolMismatchError: the checkpoint that the options name does not say so.
            SpoolFullError: the spool could not be written.
        """
        with self._lock:
            if position <= self._committed:
                return
            proved = self._proved()
            is_shown = self._commits is None or (proved is not None and proved >= position)
            if not is_shown and self._ledger.committed(position):
                raise SpoolMismatchError(
                    f"option checkpointLocation names {self._options.checkpoint}, whose commit log does not show "
                    f"what the query has committed: name the checkpointLocation that the query is started with"
                )
            self._settle(position)

    def belongs(self, spool: str) -> None:
        """A checkpoint names the spool that its offsets are of.

        Raises:
            SpoolMismatchError: that is another one.
            SpoolFullError: the spool could not be written.
        """
        with self._lock:
            if spool == self._spool.id:
                return
            if not self._spool.is_empty:
                raise SpoolMismatchError(
                    f"the checkpoint {self._options.checkpoint} belongs to another spool than the one in "
                    f"{self._spool.folder}, which holds messages: give the query a spoolDir of its own, or begin "
                    f"anew with another checkpointLocation and spoolDir"
                )
            self._spool.adopt(spool)
            if self._commits is not None:
                self._commits = CommitLog(local_path(self._options.checkpoint) or self._spool.folder, spool)

    @property
    def spool_id(self) -> str:
        """The spool's id, which is part of its offsets."""
        return self._spool.id

    def stop(self) -> None:
        """Accept what is committed, give back the rest, let go of the folder."""
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join()
        with self._lock:
            try:
                if self._link is not None and self._link.is_usable:
                    self._settle_proved()
            except EnmasseError as error:
                _log.warning("%s", error)
            finally:
                self._drop_link()
                self._spool.close()

    # Receiving

    def _gather(self, rows: int) -> None:
        """Take what is there; several times if what came was known already."""
        until = time.monotonic() + self._poll_s
        while len(self._fresh) < rows and not self._stopped.is_set():
            wanted = rows - len(self._fresh)
            if self._budget is not None:
                wanted = min(wanted, self._budget)
                if wanted <= 0:
                    return
            wait_s = 0.0 if self._fresh else max(0.0, until - time.monotonic())
            found = self._try(partial(self._receive, wanted, wait_s))
            if not found:
                return
            if self._budget is not None:
                self._budget -= len(found)
            self._sort(found)
            if self._fresh and self._budget is None:
                return

    def _receive(self, rows: int, wait_s: float, link: Delivering) -> list[Any]:
        size = self._options.max_bytes
        return link.receive(rows, size, wait_s) if self._budget is None else link.drain(rows, size)

    def _sort(self, found: Sequence[Any]) -> None:
        """Find out what is new."""
        done, identities = [], []
        with self._lock:
            if self._link is None or not self._link.is_usable:
                # They come again, with the next connection.
                return
            now_us = self._last_us = max(self._wall_us(), self._last_us)
            for delivery in found:
                identity = identity_of(delivery.payload)
                if self._ledger.is_committed(identity):
                    assert identity is not None
                    done.append(delivery)
                    identities.append(identity)
                elif not self._ledger.tie(identity, delivery):
                    self._fresh.append((Row(now_us, identity, delivery.payload), delivery))
            if done:
                self._accept_again(done, identities)

    def _accept_again(self, deliveries: list[Any], identities: list[bytes]) -> None:
        assert self._link is not None
        try:
            self._link.accept(deliveries)
        except UnavailableError as error:
            _log.info("Messages that were committed before come once more: %s", error)
            self._ledger.may_come_again(identities)
            self._drop_link()
        else:
            self._spool.came_again(identities)

    def _cut(self, first: int) -> BatchFile:
        """Write what is new as a batch, as soon as the disk takes it."""
        rows = [row for row, _ in self._fresh]
        while True:
            try:
                file = self._spool.append(first, rows)
            except SpoolFullError as error:
                self._wait(error)
            else:
                break
        self._backoff.succeeded()
        unknown = [handle for row, handle in self._fresh if row.identity is None]
        handles = [None if row.identity is None else handle for row, handle in self._fresh]
        self._ledger.add(Entry(file, [row.identity for row in rows], handles))
        self._fresh = []
        self._take_over(unknown)
        return file

    def _take_over(self, deliveries: list[Any]) -> None:
        """Accept what could not be distinguished from new messages if redelivered; only the spool has it now."""
        if not deliveries:
            return
        assert self._link is not None
        try:
            self._link.accept(deliveries)
        except UnavailableError as error:
            _log.warning("Up to %d messages without a message id may come twice: %s", len(deliveries), error)
            self._drop_link()

    # Accepting

    def _proved(self) -> int | None:
        return None if self._commits is None else self._commits.position()

    def _settle_proved(self) -> None:
        position = self._proved()
        if position is not None and position > self._committed:
            self._settle(position)

    def _settle(self, position: int) -> None:
        """Accept what is below an offset, and forget it."""
        for entry in self._ledger.committed(position):
            again = entry.unheld
            if entry.living:
                try:
                    assert self._link is not None
                    self._link.accept(entry.living)
                except UnavailableError as error:
                    _log.info("It is not known whether committed messages are accepted: %s", error)
                    again = entry.known
                    self._drop_link()
            if self._options.is_lossy:
                again = []
            self._spool.remove(entry.file, again)
            self._ledger.may_come_again(again)
            self._ledger.remove(entry)
        self._committed = max(self._committed, position)

    def _watch(self) -> None:
        """Read the commit log from time to time: Spark reports a commit only with the next batch."""
        if self._commits is not None and self._watcher is None:
            self._watcher = threading.Thread(target=self._poll_commits, name="enmasse-commits", daemon=True)
            self._watcher.start()

    def _poll_commits(self) -> None:
        while not self._stopped.wait(LOOK_S):
            with self._lock:
                if not self._ledger.entries:
                    continue
                try:
                    self._settle_proved()
                except (EnmasseError, OSError) as error:
                    # Planning the next batch comes upon it, too, and reports it.
                    _log.warning("%s", error)

    # The connection

    def _drop_link(self) -> None:
        """Give up the connection, and every delivery with it."""
        link, self._link = self._link, None
        self._ledger.lost()
        self._fresh = []
        if link is not None:
            link.close()

    def _wait(self, error: EnmasseError) -> None:
        try:
            self._backoff.wait(error)
        except StreamUnavailableError:
            if isinstance(error, SpoolFullError):
                raise error from None
            raise

    def _try(self, ask: Callable[[Delivering], _T]) -> _T:
        while True:
            try:
                with self._lock:
                    if self._link is None or not self._link.is_usable:
                        self._drop_link()
                        self._link = self._make_link()
                    link = self._link
                answer = ask(link)
            except (StreamUnavailableError, OptionError):
                raise
            except UnavailableError as error:
                with self._lock:
                    self._drop_link()
                self._wait(error)
            else:
                self._backoff.succeeded()
                return answer
