"""Timers of tens of thousands of connections, of which hardly any is ever exact.

A timer of the loop takes half a kilobyte. Deadlines that are far off share one where they end in the same ``STEP_S``.

Rules:
1. A deadline is called once, in time or up to ``STEP_S`` late; one that is nearer than ``FAR_S`` is not taken.
2. Of those that are due together ``PER_TURN`` are called in a turn: all the clients of a node may have connected in
   the same second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

STEP_S = 0.25
"""An eighth of the shortest deadline that is taken."""

FAR_S = 8 * STEP_S

PER_TURN = 100
"""A millisecond or two."""


class Timed(Protocol):
    """An object that has a deadline."""

    def on_deadline(self) -> None:
        """Do what is due; must not raise."""


class Turns(Protocol):
    """The turns of a loop (``loop.Turn``)."""

    loop: asyncio.AbstractEventLoop
    now: float

    def later(self, call: Callable[[], None]) -> None:
        """Have ``call`` called in the next turn."""


class Step:
    """The deadlines within one step of time.

    Attributes:
        waiting: those who have them.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: set[Timed] = set()

    def cancel(self, timed: Timed) -> None:
        """Take a deadline back."""
        self.waiting.discard(timed)


class Deadlines:
    """The far deadlines of one loop.

    Args:
        turn: the turn of the loop.
    """

    __slots__ = ("_steps", "_turn")

    def __init__(self, turn: Turns) -> None:
        self._turn = turn
        self._steps: dict[int, Step] = {}

    def add(self, at: float, timed: Timed) -> Step | None:
        """Have ``timed.on_deadline`` called.

        Args:
            at: the time, by the loop's clock.
            timed: the object that has the deadline.

        Returns:
            What cancels it; None if it is too near.
        """
        if at - self._turn.now < FAR_S:
            return None
        number = int(at / STEP_S) + 1
        step = self._steps.get(number)
        if step is None:
            step = self._steps[number] = Step()
            self._turn.loop.call_at(number * STEP_S, self._end, number)
        step.waiting.add(timed)
        return step

    def _end(self, number: int) -> None:
        self._call(self._steps.pop(number))

    def _call(self, step: Step) -> None:
        waiting = step.waiting
        for _ in range(min(PER_TURN, len(waiting))):
            waiting.pop().on_deadline()
        if waiting:
            self._turn.later(lambda: self._call(step))
