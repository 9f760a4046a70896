"""Few queries start at once: each starts Python processes, and Spark gives those ten seconds to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["StartGate"]

LONGEST_S: Final = 8.0
"""A start that takes longer waits for something else, as a node that is away, and lets others in."""
POLL_S: Final = 0.1


class StartGate:
    """Lets so many in at a time, and everybody once it is open.

    Args:
        places: starts at a time.
    """

    def __init__(self, places: int) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._is_open = threading.Event()

    def open(self) -> None:
        """Have nobody wait any more, because all ends."""
        self._is_open.set()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Do something that starts processes."""
        while not (has_place := self._places.acquire(timeout=POLL_S)):
            if self._is_open.is_set():
                break
        try:
            yield
        finally:
            if has_place:
                self._places.release()

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Stay until something is done, or it takes too long.

        Args:
            is_done: looks.
        """
        deadline = time.monotonic() + LONGEST_S
        while not is_done() and time.monotonic() < deadline:
            if self._is_open.wait(POLL_S):
                return
