"""Waking up when a message is due, more precisely than an event loop's clock ticks.

Event loops count in milliseconds; messages of an open loop that wait for the next of these would be
late by half of one, and the peer would be blamed. So the kernel's interval timer wakes the loop with a
signal. One pacer for a process, in its main thread.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import signal
import time

__all__ = ["Pacer"]

LEAST_S = 20e-6
"""Nearer moments are taken as now: to wait for them takes longer than they are away."""


class Pacer:
    """Wakes whoever waits for a moment of the monotonic clock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._loop.add_signal_handler(signal.SIGALRM, self._wake)

    async def until(self, due: int) -> None:
        """Return at ``due`` nanoseconds, or at once if that is over."""
        waiter = self._loop.create_future()
        heapq.heappush(self._waiting, (due, next(self._numbers), waiter))
        if self._waiting[0][2] is waiter:
            self._wake()
        await waiter

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting:
            left_s = (waiting[0][0] - time.monotonic_ns()) / 1e9
            if left_s > LEAST_S:
                signal.setitimer(signal.ITIMER_REAL, left_s)
                return
            _, _, waiter = heapq.heappop(waiting)
            if not waiter.done():
                waiter.set_result(None)
