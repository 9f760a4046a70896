"""The turns of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from enmasse.net.loop import Turn, run


class Recorder:
    """Something to flush that records when it was."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def flush(self) -> None:
        self.log.append(self.name)


async def turn_over() -> None:
    """Let the present turn end."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_there_is_one_clock_reading_for_each_turn() -> None:
    turn = Turn(asyncio.get_running_loop())
    first = turn.begin()
    before = time.monotonic()
    while time.monotonic() < before + 0.003:
        pass
    assert turn.begin() == turn.now == first
    assert abs(turn.wall - time.time()) < 60
    await turn_over()
    assert turn.begin() > first
    await turn_over()


async def test_hooks_run_before_what_is_dirty_is_flushed() -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []
    turn.add_hook(lambda now: log.append(f"hook {now == turn.now}"))
    turn.mark(Recorder(log, "a"))
    turn.mark(Recorder(log, "b"))
    await turn_over()
    assert log == ["hook True", "a", "b"]
    await turn_over()
    assert log == ["hook True", "a", "b"]


async def test_what_a_hook_or_a_flush_makes_dirty_is_flushed_in_the_same_turn() -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []
    last = Recorder(log, "last")

    class Chain(Recorder):
        def flush(self) -> None:
            super().flush()
            turn.mark(last)

    def hook(_now: float) -> None:
        if not log:
            turn.mark(Chain(log, "first"))

    turn.add_hook(hook)
    turn.begin()
    await asyncio.sleep(0)
    assert log == ["first", "last"]


async def test_what_is_for_later_waits_for_the_next_turn() -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []

    def again() -> None:
        log.append("again")

    def first() -> None:
        log.append("first")
        turn.later(again)

    turn.later(first)
    await asyncio.sleep(0)
    assert log == ["first"]
    await turn_over()
    assert log == ["first", "again"]


async def test_what_a_turn_brought_goes_out_before_what_has_waited_for_it() -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []
    turn.add_hook(lambda _: log.append("hook"))

    def late() -> None:
        log.append("late")
        turn.mark(Recorder(log, "what it brought"))

    turn.later(late)
    turn.mark(Recorder(log, "what came"))
    await asyncio.sleep(0)
    assert log == ["hook", "what came", "late", "hook", "what it brought"]


async def test_what_is_requested_while_a_turn_ends_brings_another() -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []

    class Late(Recorder):
        def flush(self) -> None:
            super().flush()
            turn.request()

    def hook(_now: float) -> None:
        log.append(f"hook {turn.number}")
        if turn.number == 1:
            turn.request()
        elif turn.number == 2:
            turn.mark(Late(log, "flush"))

    turn.add_hook(hook)
    turn.request()
    turn.request()
    for _ in range(3):
        await turn_over()
    assert log == ["hook 1", "hook 2", "flush", "hook 3"]


async def test_turns_are_told_apart_where_the_clock_is_not() -> None:
    turn = Turn(asyncio.get_running_loop())
    numbers = []
    for _ in range(3):
        turn.begin()
        turn.begin()
        numbers.append(turn.number)
        await turn_over()
    assert numbers == [1, 2, 3]


async def test_a_hook_that_fails_is_logged_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []

    def broken(_now: float) -> None:
        raise RuntimeError("oops")

    turn.add_hook(broken)
    turn.mark(Recorder(log, "a"))
    await turn_over()
    assert log == ["a"]
    assert "oops" in caplog.text


@pytest.mark.parametrize("is_later", [False, True])
async def test_what_fails_at_the_end_of_a_turn_costs_nobody_else_the_turn(
    caplog: pytest.LogCaptureFixture, is_later: bool
) -> None:
    turn = Turn(asyncio.get_running_loop())
    log: list[str] = []

    class Broken:
        def flush(self) -> None:
            raise RuntimeError("oops")

    for name in ("a", "b"):
        if is_later:
            turn.later(Broken().flush)
            turn.later(Recorder(log, name).flush)
        else:
            turn.mark(Broken())
            turn.mark(Recorder(log, name))
    await turn_over()
    await turn_over()
    assert log == ["a", "b"]
    assert caplog.text.count("RuntimeError: oops") == 2
    turn.mark(Recorder(log, "the next"))
    await turn_over()
    assert log[-1] == "the next"


def test_programs_run_on_uvloop_and_give_their_result() -> None:
    async def main() -> type:
        return type(asyncio.get_running_loop())

    assert run(main()) is uvloop.Loop


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_turns_end_on_every_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        log: list[str] = []
        Turn(asyncio.get_running_loop()).mark(Recorder(log, "a"))
        await turn_over()
        assert log == ["a"]

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
