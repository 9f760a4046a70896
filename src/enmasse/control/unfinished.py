"""Writes that need work first which takes longer than the event loop can spare.

Whoever has a say in a write runs on the event loop, within a transaction. If it needs slow work it raises an
``UnfinishedWriteError`` that carries the work: nothing is written, the work is done elsewhere, and the same
write is made again, which finds it done.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from enmasse.control.errors import UnfinishedWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SlowResults", "finish", "finish_here"]

T = TypeVar("T")

_MOST_TIMES = 8
"""Of one write. It is done again when somebody else has written meanwhile, and that does not go on for ever."""

_AT_ONCE = 2
"""Threads that work: more would take the time of everything else."""

_places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


_KEPT = 64
"""Results that wait for their write, which comes at once."""


class SlowResults:
    """What slow work has found, until the write that asked for it comes again.

    It is known by a mark of what was asked for, from which that cannot be had; threads may add to it.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._found: deque[tuple[bytes, bytes]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def mark(self, *asked: bytes) -> bytes:
        """Return the mark of what is asked for."""
        lengths = b",".join(b"%d" % len(part) for part in asked)
        return hmac.digest(self._secret, lengths + b":" + b"".join(asked), "sha256")

    def add(self, mark: bytes, result: bytes) -> None:
        """Keep a result; the oldest of many goes."""
        with self._lock:
            self._found.append((mark, result))

    def find(self, mark: bytes) -> bytes | None:
        """Return a result, which stays."""
        with self._lock:
            return next((result for known, result in self._found if hmac.compare_digest(known, mark)), None)

    def take(self, mark: bytes) -> bytes | None:
        """Return a result that is used once."""
        with self._lock:
            for item in self._found:
                if hmac.compare_digest(item[0], mark):
                    self._found.remove(item)
                    return item[1]
            return None


async def finish(write: Callable[[], T]) -> T:
    """Write, with the slow work done by a thread; return what the write returns.

    Raises:
        UnfinishedWriteError: when others kept changing the same object.
    """
    for _ in range(_MOST_TIMES - 1):
        try:
            return write()
        except UnfinishedWriteError as error:
            async with _place():
                await asyncio.to_thread(error.work)
    return write()


def finish_here(write: Callable[[], T]) -> T:
    """Write, with the slow work done here; for programs that nobody waits for."""
    for _ in range(_MOST_TIMES - 1):
        try:
            return write()
        except UnfinishedWriteError as error:
            error.work()
    return write()


def _place() -> asyncio.Semaphore:
    """Return the semaphore of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _places:
        for other in [other for other in _places if other.is_closed()]:
            del _places[other]
        _places[loop] = asyncio.Semaphore(_AT_ONCE)
    return _places[loop]
