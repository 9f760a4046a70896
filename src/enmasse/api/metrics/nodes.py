"""Figures of nodes, cached for a moment, and a canary that tests messaging through each node.

Rules:
1. A node that does not answer in ``PATIENCE_S`` counts as down; no request waits longer than that.
2. An answer, or its absence, serves all requests within ``FRESH_S``; simultaneous requests share one question.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from enmasse.api.metrics.catalogue import ADDRESS_COUNTERS
from enmasse.control.errors import NodeUnavailableError
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from enmasse.control.ports import FiguresSource, NodeFigures

PATIENCE_S = 2.0
"""Far below the ten seconds that Prometheus waits by default."""

FRESH_S = 1.0
"""Two servers that scrape at the same time get the same figures."""


_T = TypeVar("_T")


class _Fresh(Generic[_T]):
    """An answer that is asked for at most every ``FRESH_S``, however many want to know."""

    def __init__(self, ask: Callable[[], Awaitable[_T]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = asyncio.Lock()
        self._latest: tuple[float, _T] | None = None

    async def read(self) -> _T:
        """Return the latest answer."""
        async with self._lock:
            if self._latest is None or self._clock() - self._latest[0] >= FRESH_S:
                found = await self._ask()
                self._latest = self._clock(), found
            return self._latest[1]


class Figures:
    """The figures of one node.

    Args:
        source: the port to the node.
        clock: returns seconds, monotonic.
    """

    def __init__(self, source: FiguresSource, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = source.name
        self.failures = 0
        """Questions without an answer."""
        self.problem = "it was not asked yet"
        """Why there are no figures; empty if there are some."""
        self._source = source
        self._figures = _Fresh(self._ask, clock)
        self._is_ready = _Fresh(self._ask_ready, clock)

    async def read(self) -> NodeFigures | None:
        """Return the node's figures; ``None``, with the reason in ``problem``, if it does not answer."""
        return await self._figures.read()

    async def is_ready(self) -> bool:
        """Return whether the node answers, and says that it is ready."""
        return await self._is_ready.read()

    async def _ask_ready(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return bool((await self._source.health()).get("ready"))
        except (TimeoutError, EnmasseError):
            return False

    async def _ask(self) -> NodeFigures | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                figures = await self._source.figures(ADDRESS_COUNTERS)
        except TimeoutError:
            self.problem = f"it did not answer within {PATIENCE_S:g} s"
        except EnmasseError as error:
            self.problem = str(error)
        else:
            self.problem = ""
            return figures
        self.failures += 1
        return None


CANARY_INTERVAL_S = 30.0
"""As in EnMasse 1.0; a shorter failure is not worth an alert."""

CANARY_PATIENCE_S = 5.0
"""A node usually answers in a millisecond; this late, its clients have noticed."""

_log = logging.getLogger(__name__)


class Canary:
    """Sends a message through one node and waits for it.

    Args:
        source: the port to the node.
        interval_s: seconds between two messages.
        patience_s: time-out of each.

    Attributes:
        failures: messages that did not return in time.
        check_failures: messages that could not be sent, as the node was not reachable.
    """

    def __init__(
        self, source: FiguresSource, *, interval_s: float = CANARY_INTERVAL_S, patience_s: float = CANARY_PATIENCE_S
    ) -> None:
        self.failures = 0
        self.check_failures = 0
        self._source = source
        self._interval_s = interval_s
        self._patience_s = patience_s

    async def run(self) -> None:
        """Send messages at the interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.check()

    async def check(self) -> bool:
        """Send one message, and return whether it came back."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._source.ping()
        except NodeUnavailableError as error:
            self.check_failures += 1
            _log.info("no canary for node %s: %s", self._source.name, error)
        except (TimeoutError, EnmasseError) as error:
            self.failures += 1
            _log.warning("the canary of node %s did not come back: %s", self._source.name, error or "too late")
        else:
            return True
        return False
