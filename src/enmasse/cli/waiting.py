"""Waiting until something is so, with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["wait_until"]

_PAUSE_S = 0.1  # short enough to feel immediate, long enough to leave the machine to the others


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, at least once; return whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(_PAUSE_S, left))
    return True
