"""Gives memory back to the system after much of it was freed.

The C library keeps what is freed for later: where something lies behind it that is still used, nothing of it goes
back by itself. After a hundred clients that read nothing had left, some 40 MB of a node's memory were free and stayed
with its process for ever.

Rules:
1. Counted is what the budgets of all clients have given out, as it comes and goes in large pieces. Nothing is asked
   of the allocator, which would take as long as giving back.
2. Once ``FREED_BYTES`` less are given out than were before, what is free goes back: a millisecond or so for each
   2 MB, for which the node stands still. So that is rare, at most once in ``LOOK_S``.
3. Another C library than glibc keeps to its own ways.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Iterable
from typing import Final

from enmasse.messaging.budget import Budget

LOOK_S: Final = 15.0
"""Seconds between two looks."""

FREED_BYTES: Final = 4 << 20
"""The bytes that have to be freed to make it worth while."""


class Heap:
    """Gives back what is free from ``start`` to ``stop``.

    Args:
        loop: calls it.
        budgets: the budgets whose given-out bytes are counted.
        give_back: has the allocator give back what is free.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budgets: Iterable[Budget], give_back: Callable[[], None] | None = None
    ) -> None:
        self._loop = loop
        self._budgets = tuple(budgets)
        self._give_back = give_back or trim
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._handle = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        if sum(budget.most_held - budget.held for budget in self._budgets) >= FREED_BYTES:
            self._give_back()
            for budget in self._budgets:
                budget.most_held = budget.held
        self.start()


def trim() -> None:
    """Have the C library give back what is free, if it is one that can."""
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(0)
