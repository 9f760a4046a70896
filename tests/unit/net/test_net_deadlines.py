"""Far deadlines that share timers: in time, cancelled, and many at once in several turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse.net.deadlines import FAR_S, PER_TURN, STEP_S, Deadlines
from enmasse.net.loop import Turn


class Clock:
    """A loop whose time a test moves on, as far as deadlines look at one."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        self.timers.append((when, call, arguments))

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, call, arguments in due:
            call(*arguments)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for call in soon:
            call()


class Connection:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.called_at: list[float] = []

    def on_deadline(self) -> None:
        self.called_at.append(self._clock.now)


def scene() -> tuple[Clock, Deadlines]:
    clock = Clock()
    turn = Turn(clock)  # type: ignore[arg-type]
    return clock, turn.deadlines


def test_a_deadline_is_never_early_and_little_late() -> None:
    clock, deadlines = scene()
    connections = [Connection(clock) for _ in range(20)]
    wanted = [clock.now + FAR_S + number * 0.07 for number in range(20)]
    for at, connection in zip(wanted, connections, strict=True):
        assert deadlines.add(at, connection) is not None
    assert len(clock.timers) <= 8, "they share timers"
    for _ in range(400):
        clock.advance(0.01)
    for at, connection in zip(wanted, connections, strict=True):
        (called_at,) = connection.called_at
        assert at <= called_at <= at + STEP_S + 0.02


def test_one_that_is_near_is_left_to_a_timer_of_its_own() -> None:
    clock, deadlines = scene()
    assert deadlines.add(clock.now + FAR_S - 0.001, Connection(clock)) is None
    assert not clock.timers


def test_one_that_is_cancelled_is_not_called() -> None:
    clock, deadlines = scene()
    stays, goes = Connection(clock), Connection(clock)
    for connection in (stays, goes):
        step = deadlines.add(clock.now + 10, connection)
    assert step is not None
    step.cancel(goes)
    clock.advance(11)
    assert stays.called_at
    assert not goes.called_at


def test_many_at_once_are_called_in_several_turns_and_can_be_cancelled_until_then() -> None:
    clock, deadlines = scene()
    connections = [Connection(clock) for _ in range(3 * PER_TURN)]
    for connection in connections:
        step = deadlines.add(clock.now + 10, connection)
    assert step is not None
    clock.advance(11)
    assert sum(bool(connection.called_at) for connection in connections) == PER_TURN
    late = next(connection for connection in connections if not connection.called_at)
    step.cancel(late)
    while clock.soon:
        clock.turn()
    assert [connection for connection in connections if not connection.called_at] == [late]
    assert all(len(connection.called_at) <= 1 for connection in connections)


def test_a_loop_has_them() -> None:
    async def run() -> None:
        turn = Turn(asyncio.get_running_loop())
        connection = Connection(Clock())
        step = turn.deadlines.add(turn.now + 60, connection)
        assert step is not None
        assert step.waiting == {connection}

    asyncio.run(run())
