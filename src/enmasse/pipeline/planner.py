"""The planner's side of a query: where it begins, how far the next batch goes, which ranges to read.

Rules:
1. Nothing of a query lives here; it is all in the offsets that Spark keeps. What is held is only
   the newest state of the stream, as a cache.
2. Every call survives a node that is away for less than the retry time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from enmasse.errors import UnavailableError
from enmasse.pipeline.errors import DataLossError, StreamUnavailableError
from enmasse.pipeline.offsets import (
    Position,
    Span,
    StreamState,
    find_gaps,
    plan_end,
    plan_spans,
    resolve_bounds,
)
from enmasse.pipeline.options import LATEST, SourceOptions
from enmasse.pipeline.patience import Patience
from enmasse.pipeline.reading import report_gap

__all__ = ["OffsetWatch", "Planner"]

LONGEST_POLL_S = 30.0
"""An idle query costs Spark a plan for each poll, so it polls ever less often."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class OffsetWatch(Protocol):
    """What planning needs of a connection."""

    def state(self) -> StreamState:
        """What is stored now.

        Raises:
            UnavailableError: the node cannot be reached.
        """

    def wait(self, timeout_s: float) -> StreamState | None:
        """The next state that differs from the last one given; ``None`` when time is up.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
        """


class Planner:
    """Plans the micro-batches of one query.

    Args:
        options: what the user asked for.
        watch: gives a connection, a new one after the last was lost.
        patience: how long the node may stay away.
    """

    def __init__(self, options: SourceOptions, watch: Callable[[], OffsetWatch], patience: Patience) -> None:
        self._options = options
        self._watch = watch
        self._patience = patience
        self._target: Position | None = None
        self._warned: set[str] = set()
        self._poll_s = options.poll_timeout_s
        self.state: StreamState | None = None
        """The newest state seen."""

    def initial(self) -> Position:
        """Where a query without a checkpoint begins.

        Raises:
            OptionError: ``startingOffsets`` names a partition that does not exist.
            StreamUnavailableError: the node stayed away.
        """
        return resolve_bounds("startingOffsets", self._options.starting, self._fresh())

    def fix_target(self) -> None:
        """Remember what is stored now as the end of a query that ends.

        Raises:
            StreamUnavailableError: the node stayed away.
        """
        self._target = resolve_bounds("endingOffsets", LATEST, self._fresh())

    def latest(self, start: Position, max_rows: int | None) -> Position:
        """Where the next batch ends; waits for news for up to the poll time-out.

        Args:
            start: where the batch begins.
            max_rows: rows to admit at most.

        Returns:
            ``start`` itself when there is nothing new.

        Raises:
            DataLossError: rows after ``start`` are missing and ``failOnDataLoss``.
            StreamUnavailableError: the node stayed away.
        """
        state = self.state or self._fresh()
        end = self._end(start, state, max_rows)
        if end == start and self._target is None:
            news = self._try(lambda watch: watch.wait(self._poll_s))
            if news is None:
                self._poll_s = max(self._poll_s, min(2 * self._poll_s, LONGEST_POLL_S))
            else:
                self._poll_s = self._options.poll_timeout_s
                self.state = state = news
                end = self._end(start, state, max_rows)
        self.check_gaps(start)
        return end

    def spans(self, start: Position, end: Position) -> list[Span]:
        """The ranges of a batch, one a task.

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
        return plan_spans(start, end, state, min_partitions=self._options.min_partitions)

    def _end(self, start: Position, state: StreamState, max_rows: int | None) -> Position:
        return plan_end(start, state, max_rows=max_rows, target=self._target)

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
                self._patience.wait(error)
            else:
                self._patience.succeeded()
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
