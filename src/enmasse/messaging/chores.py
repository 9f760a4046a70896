"""Chores: the work on thousands of members that one event asks for, done from turn to turn.

Rules:
1. A chore says the work of each of its parts, and is done at once as far as a turn bears it: what concerns few is
   over when its caller goes on.
2. The rest is done in the turns that follow. Chores take parts of these in turn, so none waits for another's end.
3. What fails in a part (our bug) is reported, and the chore is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

MAX_UNITS: Final = 1_500
"""The work of chores in one turn; a unit is a microsecond or two, as in ``core``."""

PART_UNITS: Final = 300
"""The work of one chore after which another has its part of the turn."""

ENDING_UNITS: Final = 40
"""The work of ending one member: a session, a subscription, a link, a connection."""

Chore = tuple[str, Iterator[int]]
"""Its name in reports, and its parts, each of which says the work that it was."""


class Chores:
    """The chores of a node, which take part in the core's turns like an address.

    Args:
        due: has ``on_turn`` called with the next turn of the core.
        report: called with the name of a chore that failed, and the error.

    Attributes:
        spent: the work of chores since the core's latest turn began; the core resets it.
    """

    __slots__ = ("_due", "_report", "_waiting", "is_due", "name", "spent")

    def __init__(self, due: Callable[[Chores], None], report: Callable[[str, Exception], None]) -> None:
        self.name = "chores"
        self.is_due = False
        self.spent = 0
        self._due = due
        self._report = report
        self._waiting: deque[Chore] = deque()

    def add(self, name: str, parts: Iterator[int]) -> None:
        """Have a chore done, now or in turns."""
        self._waiting.append((name, parts))
        if len(self._waiting) == 1:
            self._go_on()
        self._go_on_later()

    def on_turn(self, now: float) -> None:
        """Do as much as one turn bears."""
        self._go_on()
        self._go_on_later()

    def _go_on(self) -> None:
        while self._waiting and self.spent < MAX_UNITS:
            name, parts = chore = self._waiting.popleft()
            if not self._do_part(name, parts):
                self._waiting.append(chore)

    def _do_part(self, name: str, parts: Iterator[int]) -> bool:
        """Do a part of a chore; return true if that was the last one."""
        until = min(self.spent + PART_UNITS, MAX_UNITS)
        try:
            while self.spent < until:
                units = next(parts, None)
                if units is None:
                    return True
                self.spent += units
        except Exception as error:  # noqa: BLE001  the others must be done
            self._report(name, error)
            return True
        return False

    def _go_on_later(self) -> None:
        if self._waiting and not self.is_due:
            self.is_due = True
            self._due(self)
