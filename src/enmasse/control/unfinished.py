"""Writes that need work first which takes longer than the event loop can spare.

Whoever has a say in a write runs on the event loop, within a transaction. If it needs slow work it raises an
``UnfinishedWriteError`` that carries the work: nothing is written, the work is done elsewhere, and the same
write is made again, which finds it done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from enmasse.control.errors import UnfinishedWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["finish", "finish_here"]

T = TypeVar("T")

_MOST_TIMES = 8
"""Of one write. It is done again when somebody else has written meanwhile, and that does not go on for ever."""

_AT_ONCE = 2
"""Threads that work: more would take the time of everything else."""

_places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


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
