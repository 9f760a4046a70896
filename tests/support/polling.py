"""Waiting for what happens elsewhere: in another process, thread or task.

A test never sleeps for a fixed time: it asks until something holds, and fails with what it saw last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""Far longer than anything takes: who waits so long has a defect, or a machine that does nothing else."""

STEP_S = 0.02

LONG_STEP_S = 0.2
LATER = 0.05
"""The part of the time since a wait began after which it asks again: to ask costs those who are asked, too."""


def until(
    condition: Callable[[], T | None],
    what: Callable[[], Any] | str = "",
    *,
    seconds: float = PATIENCE_S,
    step: float = STEP_S,
) -> T:
    """Ask until the answer is true, and return it.

    Args:
        condition: what is asked.
        what: says what was waited for, or what is there instead, when it never comes.
        seconds: after which the test fails.
        step: seconds from one question to the next, at first; longer where it costs those who are asked.
    """
    began = time.monotonic()
    deadline = began + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(max(step, min(LONG_STEP_S, LATER * (time.monotonic() - began))))
    return found


async def until_async(
    condition: Callable[[], T], what: Callable[[], Any] | str = "", *, seconds: float = PATIENCE_S
) -> T:
    """``until`` for tests that run in the event loop which has to get on."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        await asyncio.sleep(0.001)
    return found
