"""The loop that the blocking client runs on, in a thread of its own.

There is one for each process. It starts with the first connection and ends with the last. A fork
leaves it behind: the child starts one of its own with its first connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from enmasse.client.errors import ClosedError
from enmasse.errors import LocalError
from enmasse.net.loop import new_loop

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """The loop and its thread."""

    _lock = threading.Lock()
    _present: Background | None = None
    _left_behind: Background | None = None
    """The parent's; kept, because to close its loop would disturb the parent."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.users = 0
        """Connections that run on it."""
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="enmasse-client", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> Background:
        """The process' background, started if need be."""
        with cls._lock:
            if cls._present is None:
                cls._present = cls()
            cls._present.users += 1
            return cls._present

    def release(self) -> None:
        """Not used any more by one of its users; the last one stops it."""
        if self.is_foreign:
            return
        with self._lock:
            self.users -= 1
            if self.users:
                return
            if Background._present is self:
                Background._present = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @classmethod
    def forget(cls) -> None:
        """After a fork, in the child: the thread is not here, and the lock may be held for ever."""
        cls._lock = threading.Lock()
        cls._left_behind = cls._present
        cls._present = None

    @property
    def is_foreign(self) -> bool:
        """Whether it was made before a fork, by another process."""
        return self._pid != os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and give its result; an interrupt cancels it."""
        try:
            self._check()
        except LocalError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, call: Callable[[], object]) -> None:
        """Have something called soon, without waiting."""
        self._check()
        self._loop.call_soon_threadsafe(call)

    def _check(self) -> None:
        if self.is_foreign:
            raise ClosedError("the connection was made before a fork: connect again in the new process")
        if self._loop.is_closed():
            raise ClosedError("the connection is closed")
        if threading.get_ident() == self._thread.ident:
            raise LocalError("the blocking client was called from its own loop, which would wait for ever")


os.register_at_fork(after_in_child=Background.forget)
