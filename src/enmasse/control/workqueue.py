"""A queue of keys: each waits at most once, none is worked on twice at a time.

A key stands for "look at this and put it right", so it does not matter how
often it was added: one look sees all changes up to then. A key that is added
while it is being worked on comes again afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WorkQueue"]


class WorkQueue:
    """Keys to work on, with a back-off for those that failed.

    Args:
        jitter: gives a factor around 1 for each delay, so that keys which
            failed together do not come back together.
        first_delay: seconds before a key that failed once comes again; doubles.
        longest_delay: seconds that the delay never exceeds.
    """

    def __init__(
        self, *, jitter: Callable[[], float], first_delay: float = 0.05, longest_delay: float = 30.0
    ) -> None:
        self._jitter = jitter
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._order: deque[str] = deque()
        self._waiting: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._order)

    def add(self, key: str) -> None:
        """Have a key looked at soon, whatever delay it was waiting for."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._order.append(key)
            self._filled.set()

    async def get(self) -> str:
        """Wait for a key and take it; give it back with ``done`` or ``failed``."""
        while not self._order:
            self._filled.clear()
            await self._filled.wait()
        key = self._order.popleft()
        self._waiting.remove(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """Tell that nothing is left to do for a key."""
        self._failures.pop(key, None)
        self._give_back(key)

    def failed(self, key: str) -> float:
        """Tell that a key must be looked at again later; return in how many seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        # 2**30 is above any longest delay; without the bound the power would overflow one day.
        delay = min(self._first_delay * float(1 << min(count, 30)), self._longest_delay) * self._jitter()
        if not self._give_back(key):
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(delay, self.add, key)
        return delay

    def close(self) -> None:
        """Forget all keys and delays."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._order.clear()
        self._waiting.clear()

    def _give_back(self, key: str) -> bool:
        """Take a key out of work; return whether it waits again already."""
        self._working.remove(key)
        if key not in self._again:
            return False
        self._again.remove(key)
        self.add(key)
        return True
