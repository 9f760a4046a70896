"""A fair share of each turn for those who use one loop beside others.

Each tenant has a *road* with two *lanes*: one for its connections that keep the loop busy, one for the
others. While more than one lane brings bytes, what a lane brings keeps a turn for its share at most: the
rest waits in the order in which it came, and is taken in the turns that follow. So whoever brings little
waits for little, however much other tenants, or other connections of its own, bring. A lane that is alone
has the whole turn.

Short turns cost more of the processor. They are worth that to other tenants, and to whoever waits for a commit
of a few messages, as a commit is two turns longer for the node; not to other connections of a tenant's own.
Where they are, what busy connections bring is put aside until a turn has written what it has for the others,
and what they are to be sent is gathered over some turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from enmasse.net.loop import Flushable, Turn

__all__ = ["BESIDE_OTHERS", "BESIDE_OWN", "Lane", "Lanes", "Load", "Road", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """A lane's part of a turn.

    Attributes:
        seconds: how long its bytes may keep the turn.
        least: as many bytes of one connection are taken at once even so: fewer are not worth another turn.
    """

    seconds: float
    least: int


BESIDE_OWN = Share(0.0005, 32 << 10)
"""While another lane of the tenant brings something."""

BESIDE_OTHERS = Share(0.0001, 2 << 10)
"""While another tenant does, or somebody waits for the commit of a few messages."""

BESIDE_S = 1.0
"""For so long after another lane brought bytes there is another, in seconds."""

AWAITED_S = 0.02
"""For so long after a commit was awaited the next one is: its message is to find short turns, and its answer, too."""

PUT_OFF_S = 0.0004
"""For how long what busy connections are to be sent is gathered while turns are short, in seconds."""

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
        is_awaited: tells whether somebody waits for the commit of a few messages.
    """

    def __init__(self, turn: Turn, is_awaited: Callable[[], bool] = lambda: False) -> None:
        self.turn = turn
        self._is_awaited = is_awaited
        self._awaited_until = 0.0
        self.last: Lane | None = None
        """Who brought bytes last."""
        self.shared_until = 0.0
        """Beside another lane."""
        self.crowded_until = 0.0
        """Beside another tenant."""
        self._roads: WeakValueDictionary[str, Road] = WeakValueDictionary()

    def is_awaited(self) -> bool:
        """Whether somebody waits for the commit of a few messages, or has just done so and may again."""
        now = self.turn.now
        if self._is_awaited():
            self._awaited_until = now + AWAITED_S
        return now < self._awaited_until

    def of(self, name: str) -> Road:
        """The road of a tenant; it lasts as long as a connection has it."""
        road = self._roads.get(name)
        if road is None:
            road = self._roads[name] = Road(Lane(self, name), Lane(self, name, gives_way=True))
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
    """Some connections that share a part of each turn.

    Args:
        lanes: of the loop.
        tenant: whose it is.
        gives_way: what it brings waits until a turn is over for the others, if somebody needs short turns.
    """

    __slots__ = (
        "_gives_way", "_is_due", "_lanes", "_left_s", "_put_off", "_turn", "_turn_number", "_waiting",
        "_written_at", "_written_in", "tenant",
    )  # fmt: skip

    def __init__(self, lanes: Lanes, tenant: str, *, gives_way: bool = False) -> None:
        self.tenant = tenant
        self._gives_way = gives_way
        self._lanes = lanes
        self._turn = lanes.turn
        self._turn_number = 0
        self._left_s = 0.0
        self._is_due = False
        self._waiting: deque[Callable[[], None]] = deque()
        self._put_off: list[Flushable] = []
        self._written_at = 0.0
        self._written_in = 0

    def is_shared(self) -> bool:
        """Note that bytes have come in this turn; tell whether others bring some, too."""
        lanes, now = self._lanes, self._turn.now
        if (last := lanes.last) is not self:
            if last is not None:
                lanes.shared_until = now + BESIDE_S
                if last.tenant != self.tenant:
                    lanes.crowded_until = now + BESIDE_S
            lanes.last = self
        return now < lanes.shared_until

    @property
    def share(self) -> Share:
        """What it has of a turn beside others."""
        is_short = self._turn.now < self._lanes.crowded_until or self._lanes.is_awaited()
        return BESIDE_OTHERS if is_short else BESIDE_OWN

    def is_full(self) -> bool:
        """Whether what comes now waits: for the next turn, for what came before, or for who needs short turns."""
        if self._waiting or self._left() <= 0:
            return True
        return self._gives_way and self.share is not BESIDE_OWN

    def puts_off(self, output: Flushable) -> bool:
        """Whether the output of one of its connections waits: if so, ``output`` is flushed anew in a later turn."""
        turn = self._turn
        if not self._gives_way or turn.now >= self._lanes.shared_until or self._written_in == turn.number:
            return False
        if turn.now - self._written_at >= PUT_OFF_S or self.share is BESIDE_OWN:
            self._written_at, self._written_in = turn.now, turn.number
            return False
        if not self._put_off:
            turn.later(self._flush)
        self._put_off.append(output)
        return True

    def _flush(self) -> None:
        outputs, self._put_off = self._put_off, []
        for output in outputs:
            self._turn.mark(output)

    def _left(self) -> float:
        """How much of its share of this turn is left, in seconds."""
        if self._turn_number != self._turn.number:
            self._turn_number = self._turn.number
            self._left_s = self.share.seconds
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
