"""A fair share of each turn for those who use one loop beside others.

Each tenant has a *road* with two *lanes*: one for its connections that keep the loop busy, one for the
others. While more than one lane brings bytes, what a lane brings keeps a turn for ``BUDGET_S`` at most:
the rest waits in the order in which it came, and is taken in the turns that follow. So whoever brings
little waits for little, however much other tenants, or other connections of its own, bring. A lane that is
alone has the whole turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from enmasse.net.loop import Turn

__all__ = ["BUDGET_S", "LANE_BYTES", "Lane", "Lanes", "Load", "Road"]

BUDGET_S = 0.0002
"""How long one lane's bytes may keep a turn while there are others, in seconds."""

LANE_BYTES = 8 << 10
"""As many of one connection are taken at once even so: fewer are not worth another turn."""

BESIDE_S = 1.0
"""For so long after another lane brought bytes there is another, in seconds."""


WINDOW_S = 0.1
"""How long it takes to see how busy a connection keeps the loop."""

BUSY = 0.15
"""The part of the time from which a connection is a busy one."""

CALM = 0.05
"""The part below which it is one no more."""


class Lanes:
    """All lanes of one loop.

    Args:
        turn: of the loop.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.last: Lane | None = None
        """Who brought bytes last."""
        self.shared_until = 0.0
        self._roads: WeakValueDictionary[str, Road] = WeakValueDictionary()

    def of(self, name: str) -> Road:
        """The road of a tenant; it lasts as long as a connection has it."""
        road = self._roads.get(name)
        if road is None:
            road = self._roads[name] = Road(Lane(self), Lane(self))
        return road


class Road:
    """The lanes of one tenant."""

    __slots__ = ("__weakref__", "busy", "calm")

    def __init__(self, calm: Lane, busy: Lane) -> None:
        self.calm = calm
        self.busy = busy


class Load:
    """How busy one connection keeps the loop.

    Args:
        road: of its tenant.
        now: the loop's clock.

    Attributes:
        lane: where it belongs.
    """

    __slots__ = ("_road", "_since", "_spent_s", "lane")

    def __init__(self, road: Road, now: float) -> None:
        self.lane = road.calm
        self._road = road
        self._since = now
        self._spent_s = 0.0

    def add(self, seconds: float, now: float) -> None:
        """It has kept the loop for so long."""
        self._spent_s += seconds
        passed = now - self._since
        if passed >= WINDOW_S:
            part = self._spent_s / passed
            if part >= BUSY:
                self.lane = self._road.busy
            elif part < CALM:
                self.lane = self._road.calm
            self._since, self._spent_s = now, 0.0


class Lane:
    """Some connections that share a part of each turn."""

    __slots__ = ("_at", "_is_due", "_lanes", "_left_s", "_turn", "_waiting")

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._turn = lanes.turn
        self._at = 0.0
        self._left_s = BUDGET_S
        self._is_due = False
        self._waiting: deque[Callable[[], None]] = deque()

    def is_shared(self) -> bool:
        """Note that bytes have come in this turn; tell whether others bring some, too."""
        lanes, now = self._lanes, self._turn.now
        if lanes.last is not self:
            if lanes.last is not None:
                lanes.shared_until = now + BESIDE_S
            lanes.last = self
        return now < lanes.shared_until

    def is_full(self) -> bool:
        """Whether what comes now has to wait: for the next turn, or for what came before."""
        return bool(self._waiting) or self._left() <= 0

    def _left(self) -> float:
        """How much of its share of this turn is left, in seconds."""
        if self._at != self._turn.now:
            self._at = self._turn.now
            self._left_s = BUDGET_S
        return self._left_s

    def spend(self, seconds: float) -> None:
        """So much of this turn is used up."""
        self._left_s -= seconds

    def wait(self, call: Callable[[], None]) -> None:
        """Have ``call`` called in one of the turns that follow, after all that waits now; it must not raise."""
        self._waiting.append(call)
        if not self._is_due:
            self._is_due = True
            self._turn.later(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self._left() <= 0:
                break
            waiting.popleft()()
        if waiting and not self._is_due:
            self._is_due = True
            self._turn.later(self._go_on)
