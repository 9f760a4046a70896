"""Fair scheduling of one event loop among the tenants and connections that share it.

The loop runs in turns (``loop.py``). The scheduler is a form of deficit round robin: it decides how long the bytes
of each party may keep one turn, and what has to wait for a later one.

1. A *lane* is a first-come, first-served queue with a *quantum*: the time that its connections may take of a turn,
   all of them together. What comes once the quantum is used up waits in the lane, and goes on in later turns.
   So a party that sends little waits little, however much others send.
2. A tenant has two lanes: *calm*, and *busy* for each connection that keeps the loop occupied for ``BUSY`` of the
   time. Thus a tenant's heavy connections delay its light ones no more than they delay other tenants.
3. A lane that is alone has whole turns, of ``ALONE_S`` at most: what thousands of its connections bring at one moment
   goes on in later turns, so that who comes meanwhile is heard. Lanes share turns for ``ACTIVE_S`` after bytes have
   come on more than one.
4. The quantum is ``SHARED_QUANTUM`` while only lanes of one tenant compete. It is ``CONTENDED_QUANTUM``, and so turns
   are short, while tenants compete, or while somebody waits for the commit of a few messages, as a commit takes two
   turns more. Short turns cost more of the processor, so they are not spent on a tenant's own connections.
5. While turns are short, busy lanes yield: their input waits until the turn has written what it has for others, and
   their output is written every ``DEFER_S`` at most, several turns' worth at once.
6. Connections that are not open yet, and those that are lost, have one lane with ``HANDSHAKE_QUANTUM`` of each turn,
   whosever they are: thousands that come or go at once delay nobody by more than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from enmasse.net.loop import Flushable, Turn


@dataclass(frozen=True, slots=True)
class Quantum:
    """The part of a turn that a lane may take.

    Attributes:
        seconds: the time that its bytes may take.
        least: bytes of one connection that are taken at once even so; fewer are not worth another turn.
    """

    seconds: float
    least: int


SHARED_QUANTUM = Quantum(0.0005, 32 << 10)
"""While only lanes of one tenant share the loop."""

CONTENDED_QUANTUM = Quantum(0.0001, 2 << 10)
"""While several tenants do, or somebody waits for the commit of a few messages."""

HANDSHAKE_QUANTUM = Quantum(0.001, 32 << 10)
"""While many connect at once: some five handshakes, or one of TLS. Whoever sends messages meanwhile waits for a few
such turns at most."""

ALONE_S = 0.01
"""The time that a lane may take of a turn while it is alone, in seconds: more than one connection can use."""

ACTIVE_S = 1.0
"""Lanes share turns for so long after bytes came on another lane, in seconds."""

AWAITED_S = 0.02
"""Turns stay short for so long after somebody waited for a commit, in seconds: a client that sends one message after
the other is about to wait again, and its next message and the answer to that are to find short turns, too."""

DEFER_S = 0.0004
"""Output of busy connections is gathered for so long while turns are short, in seconds."""

WINDOW_S = 0.1
"""The time over which a connection's part of the loop is measured, in seconds."""

BUSY = 0.15
"""The part of the time from which on a connection is busy."""

CALM = 0.05
"""The part of the time below which it is calm again."""


class LaneScheduler:
    """The lanes of one loop.

    Args:
        turn: the loop's turn.
        is_awaited: returns true while somebody waits for the commit of a few messages.
    """

    def __init__(self, turn: Turn, is_awaited: Callable[[], bool] = lambda: False) -> None:
        self.turn = turn
        self._is_awaited = is_awaited
        self._awaited_until = 0.0
        self.last: Lane | None = None
        """The lane on which bytes came last."""
        self.shared_until = 0.0
        """The time at which lanes cease to share turns, unless more comes on several."""
        self.contended_until = 0.0
        """The time at which tenants cease to."""
        self._tenants: WeakValueDictionary[str, TenantLanes] = WeakValueDictionary()

    def is_awaited(self) -> bool:
        """Return true while somebody waits for the commit of a few messages, and ``AWAITED_S`` longer."""
        now = self.turn.now
        if self._is_awaited():
            self._awaited_until = now + AWAITED_S
        return now < self._awaited_until

    def of(self, name: str) -> TenantLanes:
        """Return the lanes of a tenant; they last as long as one of its connections holds them."""
        lanes = self._tenants.get(name)
        if lanes is None:
            lanes = self._tenants[name] = TenantLanes(Lane(self, name), Lane(self, name, yields=True))
        return lanes


class TenantLanes:
    """The two lanes of one tenant."""

    __slots__ = ("__weakref__", "busy", "calm")

    def __init__(self, calm: Lane, busy: Lane) -> None:
        self.calm = calm
        self.busy = busy


class ConnectionLoad:
    """Measures how busy one connection keeps the loop, and chooses its lane by that.

    Args:
        lanes: the lanes of its tenant.
        now: the loop's clock.

    Attributes:
        lane: the one where the connection belongs now.
    """

    __slots__ = ("_lanes", "_since", "_spent_s", "lane")

    def __init__(self, lanes: TenantLanes, now: float) -> None:
        self.lane = lanes.calm
        self._lanes = lanes
        self._since = now
        self._spent_s = 0.0

    def add(self, seconds: float, now: float) -> None:
        """Account for time that the connection has kept the loop."""
        self._spent_s += seconds
        passed = now - self._since
        if passed >= WINDOW_S:
            part = self._spent_s / passed
            if part >= BUSY:
                self.lane = self._lanes.busy
            elif part < CALM:
                self.lane = self._lanes.calm
            self._since, self._spent_s = now, 0.0


class TurnQueue:
    """A queue of calls that together take a part of each turn.

    Args:
        turn: the turn of the loop.
    """

    __slots__ = ("_is_due", "_left_s", "_spent_s", "_turn", "_turn_number", "_waiting")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._turn_number = 0
        self._left_s = 0.0
        self._spent_s = 0.0
        self._is_due = False
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def quantum(self) -> Quantum:
        """The part of a turn that the queue has."""
        raise NotImplementedError

    def is_full(self) -> bool:
        """Return true if what comes now has to wait: behind what came earlier, or for its quantum."""
        return bool(self._waiting) or not self._has_time()

    def _has_time(self) -> bool:
        """Return true if something of its part of this turn is left."""
        return self._left() > 0

    def _left(self) -> float:
        """Return how many seconds of this turn's quantum are left."""
        if self._turn_number != self._turn.number:
            self._turn_number = self._turn.number
            self._left_s = self.quantum.seconds
            self._spent_s = 0.0
        return self._left_s

    def charge(self, seconds: float) -> None:
        """Take time off this turn's quantum."""
        self._left_s = self._left() - seconds
        self._spent_s += seconds

    def enqueue(self, call: Callable[[], None]) -> None:
        """Have ``call`` called in a later turn, after everything that waits now; it must not raise."""
        self._waiting.append(call)
        if not self._is_due:
            self._is_due = True
            self._turn.later(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        waiting = self._waiting
        for _ in range(len(waiting)):
            if not self._has_time():
                break
            waiting.popleft()()
        if waiting and not self._is_due:
            self._is_due = True
            self._turn.later(self._go_on)


class HandshakeLane(TurnQueue):
    """The lane of all connections that are not open yet, and of those that are lost; see rule 6."""

    __slots__ = ()

    @property
    def quantum(self) -> Quantum:
        """The part of a turn that these connections have, all of them together."""
        return HANDSHAKE_QUANTUM

    @property
    def lane(self) -> HandshakeLane:
        """The lane of each of these connections, however busy it is."""
        return self

    def add(self, seconds: float, now: float) -> None:
        """Account for time that one of them has kept the loop: they are not told apart."""

    def is_shared(self) -> bool:
        """Return true: there are others."""
        return True

    def defers(self, output: Flushable) -> bool:
        """Return false: output does not wait."""
        return False


class Lane(TurnQueue):
    """A queue of connections' input with a quantum of each turn.

    Args:
        scheduler: the scheduler of the loop.
        tenant: the tenant's name.
        yields: input and output wait for others while turns are short (rule 5).
    """

    __slots__ = ("_deferred", "_scheduler", "_written_at", "_written_in", "_yields", "tenant")

    def __init__(self, scheduler: LaneScheduler, tenant: str, *, yields: bool = False) -> None:
        super().__init__(scheduler.turn)
        self.tenant = tenant
        self._yields = yields
        self._scheduler = scheduler
        self._deferred: list[Flushable] = []
        self._written_at = 0.0
        self._written_in = 0

    def is_shared(self) -> bool:
        """Note that bytes have come on this lane in this turn, and return true if what others bring counts.

        That is so if other lanes are active, too, and if its own connections have brought more than fits into a turn.
        """
        scheduler, now = self._scheduler, self._turn.now
        if (last := scheduler.last) is not self:
            if last is not None:
                scheduler.shared_until = now + ACTIVE_S
                if last.tenant != self.tenant:
                    scheduler.contended_until = now + ACTIVE_S
            scheduler.last = self
        return now < scheduler.shared_until or bool(self._waiting) or not self._has_time()

    def _has_time(self) -> bool:
        left = self._left()
        return left > 0 if self._turn.now < self._scheduler.shared_until else self._spent_s < ALONE_S

    @property
    def quantum(self) -> Quantum:
        """The part of a turn that the lane has beside others."""
        is_short = self._turn.now < self._scheduler.contended_until or self._scheduler.is_awaited()
        return CONTENDED_QUANTUM if is_short else SHARED_QUANTUM

    def is_full(self) -> bool:
        """Return true if what comes now has to wait: behind earlier input, for its quantum, or as the lane yields."""
        if super().is_full():
            return True
        return self._yields and self.quantum is not SHARED_QUANTUM

    def defers(self, output: Flushable) -> bool:
        """Return true if output of a connection waits; ``output`` is then flushed again in a later turn."""
        turn = self._turn
        if not self._yields or turn.now >= self._scheduler.shared_until or self._written_in == turn.number:
            return False
        if turn.now - self._written_at >= DEFER_S or self.quantum is SHARED_QUANTUM:
            self._written_at, self._written_in = turn.now, turn.number
            return False
        if not self._deferred:
            turn.later(self._flush)
        self._deferred.append(output)
        return True

    def _flush(self) -> None:
        outputs, self._deferred = self._deferred, []
        for output in outputs:
            self._turn.mark(output)
