"""The work that something takes, counted: the same on any machine, under any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

MAX_STEPS = 500_000
"""Beyond this it is given up: what has no bound would take minutes to tell."""


class TooManyStepsError(Exception):
    """More steps than any work that has a bound."""


def steps(act: Callable[[], object]) -> int:
    """Return the lines of Python that a call runs.

    Raises:
        TooManyStepsError: there are more than ``MAX_STEPS``.
    """
    done = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal done
        done += event == "line"
        if done > MAX_STEPS:
            raise TooManyStepsError
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(former)
    return done
