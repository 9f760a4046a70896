"""Waits of sessions and wills: until a session has expired, until a will is sent.

Times count from the end of the turn in which they are asked for. Somebody who comes and goes again and again leaves
waits behind that are over; they are cleared out when they are more than what still counts.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Protocol

from enmasse.messaging.chores import ENDING_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.messaging.core import Core


SLACK: Final = 1_000
"""Waits that are over and may be left behind, beside as many as still count."""


class Waiting(Protocol):
    """Something that waits: a session, a will."""

    def on_waited(self) -> None:
        """Do what the wait was for."""


class Delays:
    """The waits of one space's sessions and wills.

    Args:
        core: the core, in whose turns it takes part like an address.
        name: its name in reports.
    """

    __slots__ = ("_asked", "_core", "_heap", "_is_ending", "_number", "_numbers", "is_due", "name")

    def __init__(self, core: Core, name: str) -> None:
        self.name = name
        self.is_due = False
        self._core = core
        self._asked: dict[Waiting, float] = {}
        """Waits that begin with this turn, in seconds."""
        self._heap: list[tuple[float, int, Waiting]] = []
        self._numbers: dict[Waiting, int] = {}
        """The number of the wait of each that counts."""
        self._number = 0
        self._is_ending = False
        """True while waits whose time has come are ended."""

    def __len__(self) -> int:
        """The number of waits that count."""
        return len(self._numbers) + len(self._asked)

    def wait(self, item: Waiting, seconds: float) -> None:
        """Call ``on_waited`` of an item after some seconds; a former wait of it does not count any more."""
        self._numbers.pop(item, None)
        self._asked[item] = seconds
        if not self.is_due:
            self.is_due = True
            self._core.due(self)

    def cancel(self, item: Waiting) -> None:
        """Let an item wait no longer."""
        self._asked.pop(item, None)
        self._numbers.pop(item, None)

    def on_turn(self, now: float) -> None:
        """Begin the waits that were asked for."""
        asked, self._asked = self._asked, {}
        for item, seconds in asked.items():
            self._number += 1
            self._numbers[item] = self._number
            heapq.heappush(self._heap, (now + seconds, self._number, item))
        if len(self._heap) > 2 * len(self._numbers) + SLACK:
            self._heap = [wait for wait in self._heap if self._numbers.get(wait[2]) == wait[1]]
            heapq.heapify(self._heap)
        self._schedule()

    def on_deadline(self, now: float) -> None:
        """End the waits whose time has come, in turns if they are many."""
        if not self._is_ending:
            self._is_ending = True
            self._core.chores.add(self.name, self._end(now))

    def _end(self, now: float) -> Iterator[int]:
        while self._heap and self._heap[0][0] <= now:
            _, number, item = heapq.heappop(self._heap)
            if self._numbers.get(item) != number:
                yield 1
                continue
            del self._numbers[item]
            try:
                item.on_waited()
            except Exception as error:  # noqa: BLE001  the others must have their end
                self._core.report(self.name, error)
            yield ENDING_UNITS
        self._is_ending = False
        self._schedule()

    def _schedule(self) -> None:
        if self._heap and not self._is_ending:
            self._core.schedule(self, self._heap[0][0])
