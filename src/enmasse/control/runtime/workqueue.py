"""A queue of keys: each waits at most once, none is worked on twice at a time.

A key stands for "reconcile this", so it does not matter how often it was
added: reconciling sees all changes up to then. A key that is added
while it is being worked on comes again afterwards.

There are two lines: one for keys that somebody waits for, and one, the background,
for what may take its time (everything that uses a changed plan, say).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class WorkQueue:
    """Keys to work on, with a back-off for those that failed.

    Args:
        jitter: gives a factor around 1 for each delay, so that keys that failed together are not retried together.
        first_delay: seconds before a key that failed once comes again; doubles.
        longest_delay: seconds that the delay never exceeds.
    """

    def __init__(
        self, *, jitter: Callable[[], float], first_delay: float = 0.05, longest_delay: float = 30.0
    ) -> None:
        self._jitter = jitter
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._lines: tuple[deque[str], deque[str]] = deque(), deque()
        # Key to whether it is in the background. A key may still stand in the line that it left for the other.
        self._waiting: dict[str, bool] = {}
        self._working: dict[str, bool] = {}
        self._again: dict[str, bool] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]] = deque(), deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """Return the number of keys that wait or are worked on; those in a back-off do not count."""
        return len(self._waiting) + len(self._working)

    def add(self, key: str, *, background: bool = False) -> None:
        """Add a key to be worked on soon, whatever delay it was waiting for.

        Args:
            key: the key.
            background: whether it may take its time.
        """
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._working:
            self._again[key] = background and self._again.get(key, True)
            return
        waits = self._waiting.get(key)
        if waits is None or (waits and not background):
            self._waiting[key] = background
            self._lines[background].append(key)
            self._wake(background)

    async def get(self, *, background: bool = False) -> str:
        """Wait for a key of one of the two lines and take it; give it back with ``done`` or ``failed``."""
        line = self._lines[background]
        while True:
            while line:
                key = line.popleft()
                if self._waiting.get(key) is background:
                    del self._waiting[key]
                    self._working[key] = background
                    return key
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle[background].append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(background)  # the key that this one was woken for is left to another
                raise

    def done(self, key: str) -> None:
        """Mark a key as done: nothing is left to do for it."""
        self._failures.pop(key, None)
        del self._working[key]
        self._add_again(key)

    def failed(self, key: str) -> float:
        """Requeue a key that failed after a back-off; return its delay in seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        # 2**30 is above any longest delay; without the bound the power would overflow one day.
        delay = min(self._first_delay * float(1 << min(count, 30)), self._longest_delay) * self._jitter()
        background = self._working.pop(key)
        if not self._add_again(key):
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(delay, lambda: self.add(key, background=background))
        return delay

    def close(self) -> None:
        """Forget all keys and delays."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for line in self._lines:
            line.clear()
        self._waiting.clear()

    def _add_again(self, key: str) -> bool:
        """Add a key again that was added meanwhile; return whether it was."""
        background = self._again.pop(key, None)
        if background is None:
            return False
        self.add(key, background=background)
        return True

    def _wake(self, background: bool) -> None:
        """Wake one worker that waits for a key: only one of them can get it."""
        idle = self._idle[background]
        while idle:
            waiter = idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
