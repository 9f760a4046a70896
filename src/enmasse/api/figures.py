"""What nodes say of themselves, asked for whoever looks: seldom enough, and never for long.

Rules:
1. A node that does not answer in ``PATIENCE_S`` counts as down; nobody waits longer than that.
2. An answer, also that there is none, serves everyone who asks within ``FRESH_S``, and all who ask at the same
   time wait for one question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from enmasse.control.ports import FiguresSource, NodeFigures

__all__ = ["FRESH_S", "PATIENCE_S", "Figures"]

PATIENCE_S = 2.0
"""Far below the ten seconds that Prometheus waits by default."""

FRESH_S = 1.0
"""Two servers that scrape at the same time are to see the same."""


class Figures:
    """The figures of one node.

    Args:
        source: the way to the node.
        clock: gives the time in seconds, monotonic.
    """

    def __init__(self, source: FiguresSource, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = source.name
        self.failures = 0
        """Questions without an answer."""
        self.problem = "it was not asked yet"
        """Why there are no figures; empty if there are."""
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at: float | None = None
        self._latest: NodeFigures | None = None

    async def read(self) -> NodeFigures | None:
        """The node's figures; ``None``, and the reason in ``problem``, if it does not answer."""
        async with self._lock:
            if self._asked_at is None or self._clock() - self._asked_at >= FRESH_S:
                self._latest = await self._ask()
                self._asked_at = self._clock()
            return self._latest

    async def _ask(self) -> NodeFigures | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                figures = await self._source.figures()
        except TimeoutError:
            self.problem = f"it did not answer within {PATIENCE_S:g} s"
        except EnmasseError as error:
            self.problem = str(error)
        else:
            self.problem = ""
            return figures
        self.failures += 1
        return None
