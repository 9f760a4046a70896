"""The planner's side of a query: where it begins, how far the next batch goes, which ranges to read.

Rules:
1. Nothing of a query lives here; it is all in the offsets that Spark keeps. What is held is only
   the newest state of the stream, as a cache.
2. Every call survives a node that is away for less than the retry time-out.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from enmasse.errors import EnmasseError, UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import DataLossError, StreamUnavailableError
from enmasse.pipeline.source.bounds import LATEST, Bounds, moments_of
from enmasse.pipeline.source.offsets import (
    Position,
    Span,
    StreamState,
    find_gaps,
    plan_end,
    plan_spans,
    resolve_bounds,
)
from enmasse.pipeline.source.options import SourceOptions
from enmasse.pipeline.source.reading import report_gap

LONGEST_POLL_S = 30.0
"""An idle query costs Spark a plan for each poll, so it polls ever less often."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class OffsetWatch(Protocol):
    """The part of a connection that planning uses."""

    def state(self) -> StreamState:
        """Return what is stored now.

        Raises:
            UnavailableError: the node cannot be reached.
        """

    def wait(self, timeout_s: float) -> StreamState | None:
        """Return the next state that differs from the last one given; ``None`` when time is up.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
        """

    def rows_since(self, since_us: int) -> Mapping[int, int]:
        """By partition the first row that was accepted at that time or later, else where the next one will be.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
        """

    def tell_progress(self, consumer: str, following: Mapping[int, int]) -> None:
        """Have the stream keep how far a consumer has come, without waiting for it.

        Raises:
            EnmasseError: it will not.
        """


def _wait_at(watch: OffsetWatch, timeout_s: float) -> StreamState | None:
    return watch.wait(timeout_s)


class Planner:
    """Plans the micro-batches of one query.

    Args:
        options: the options of the user.
        watch: gives a connection, a new one after the last was lost.
        backoff: the time that the node may stay away.
    """

    def __init__(self, options: SourceOptions, watch: Callable[[], OffsetWatch], backoff: Backoff) -> None:
        self._options = options
        self._watch = watch
        self._backoff = backoff
        self._target: Position | None = None
        self._warned: set[str] = set()
        self._poll_s = options.poll_timeout_s
        self._has_looked = False
        self._reported: Position | None = None
        self._began: tuple[Position, float] | None = None
        self._parent = os.getppid()
        self.state: StreamState | None = None
        """The newest state seen."""

    def initial(self) -> Position:
        """Return where a query without a checkpoint begins.

        Raises:
            OptionError: ``startingOffsets`` names a partition that does not exist.
            StreamUnavailableError: the node stayed away.
        """
        return self.resolve("startingOffsets", self._options.starting)

    def resolve(self, name: str, bounds: Bounds) -> Position:
        """Return the offsets that an option means now.

        Raises:
            OptionError: it names a partition that does not exist.
            StreamUnavailableError: the node stayed away.
        """
        moments = {moment: self.rows_since(moment.us) for moment in moments_of(bounds)}
        return resolve_bounds(name, bounds, self._fresh(), moments)

    def rows_since(self, since_us: int) -> Mapping[int, int]:
        """By partition the first row of that time or later; see ``OffsetWatch``.

        Raises:
            StreamUnavailableError: the node stayed away.
        """
        return self._try(lambda watch: watch.rows_since(since_us))

    def fix_target(self) -> None:
        """Remember what is stored now as the end of a query that ends.

        Raises:
            StreamUnavailableError: the node stayed away.
        """
        self._target = resolve_bounds("endingOffsets", LATEST, self._fresh())

    def latest(self, start: Position, max_rows: int | None, max_bytes: int | None = None) -> Position:
        """Return where the next batch ends; waits for news for up to the poll time-out, but not when it first looks.

        Who started a query learns so at once that it runs.

        Args:
            start: the start of the batch; everything before it has been dealt with.
            max_rows: rows to admit at most.
            max_bytes: bytes to admit at most, a row counted as the mean of its partition.

        Returns:
            ``start`` itself when there is nothing new.

        Raises:
            DataLossError: rows after ``start`` are missing and ``failOnDataLoss``.
            StreamUnavailableError: the node stayed away.
        """
        end = self.plan(start, max_rows, max_bytes)
        may_wait, self._has_looked = self._has_looked, True
        if end == start and self._target is None and may_wait:
            news = self._wait()
            if news is None:
                self._poll_s = max(self._poll_s, min(2 * self._poll_s, LONGEST_POLL_S))
            else:
                self._poll_s = self._options.poll_timeout_s
                self.state = news
                end = self.plan(start, max_rows, max_bytes)
        return end

    def plan(self, start: Position, max_rows: int | None, max_bytes: int | None = None) -> Position:
        """Return where the next batch ends by what is known now; see ``latest``."""
        state = self.state or self._fresh()
        self._report_progress(start)
        end = plan_end(start, state, max_rows=max_rows, max_bytes=max_bytes, target=self._target)
        self.check_gaps(start)
        return start if self._is_too_little(start, end) else end

    def _is_too_little(self, start: Position, end: Position) -> bool:
        """Return whether a batch waits for more rows."""
        if not self._options.min_rows or self._target is not None or start.stream != end.stream:
            return False
        rows = sum(at - start.next.get(number, 0) for number, at in end.next.items())
        now = time.monotonic()
        if self._began is None or self._began[0] != start:
            self._began = start, now
        return rows < self._options.min_rows and now - self._began[1] < self._options.max_delay_s

    def spans(self, start: Position, end: Position) -> list[Span]:
        """Return the ranges of a batch, one a task.

        Raises:
            DataLossError: rows of the batch are missing and ``failOnDataLoss``.
            StreamUnavailableError: the node stayed away.
        """
        if start == end:
            return []
        state = self.state
        if state is None or any(end.next.get(n, 0) > p.next for n, p in state.partitions.items()):
            state = self._fresh()
        self.check_gaps(start)
        options = self._options
        return plan_spans(start, end, state, min_partitions=options.min_partitions, max_rows=options.max_task_rows)

    def _wait(self) -> StreamState | None:
        """News, if there are any before the poll time-out is over, or Spark is gone."""
        left_s = self._poll_s
        while left_s > 0:
            wait_s = min(left_s, LONGEST_POLL_S)
            news = self._try(partial(_wait_at, timeout_s=wait_s))
            if news is not None or os.getppid() != self._parent:
                return news
            left_s -= wait_s
        return None

    def _report_progress(self, at: Position) -> None:
        """Have management see the lag; nothing depends on it, so nothing fails for it."""
        consumer, reported = self._options.consumer, self._reported
        if not consumer or at == reported or self.state is None or at.stream != self.state.stream:
            return
        known = self.state.partitions
        moved = {
            number: following
            for number, following in at.next.items()
            if number in known
            and following <= known[number].next
            and (reported is None or reported.stream != at.stream or reported.next.get(number) != following)
        }
        self._reported = at
        try:
            self._watch().tell_progress(consumer, moved)
        except EnmasseError as error:
            self._warn(f"how far {consumer!r} has come is not shown with the stream: {error}")

    def _fresh(self) -> StreamState:
        self.state = self._try(lambda watch: watch.state())
        return self.state

    def _try(self, ask: Callable[[Any], _T]) -> _T:
        while True:
            try:
                answer = ask(self._watch())
            except StreamUnavailableError:
                raise
            except UnavailableError as error:
                self._backoff.wait(error)
            else:
                self._backoff.succeeded()
                return answer

    def check_gaps(self, start: Position) -> None:
        """Report what the newest state lacks after ``start``, once per gap.

        Raises:
            DataLossError: rows are missing and ``failOnDataLoss``.
        """
        state = self.state or self._fresh()
        fail = self._options.fail_on_data_loss
        try:
            gaps = find_gaps(start, state)
        except DataLossError as error:
            if fail:
                raise
            self._warn(str(error))
            return
        for gap in gaps:
            if fail:
                report_gap(gap, fail=True)
            self._warn(f"{gap} are not stored any more and are skipped")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)
