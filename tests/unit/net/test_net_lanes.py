"""A tenant that brings much leaves another its place in each turn."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from enmasse.net import lanes as lanes_module
from enmasse.net.lanes import (
    ACTIVE_S,
    ALONE_S,
    AWAITED_S,
    CONTENDED_QUANTUM,
    DEFER_S,
    SHARED_QUANTUM,
    WINDOW_S,
    ConnectionLoad,
    Lane,
    LaneScheduler,
)
from enmasse.net.loop import Turn
from tests.unit.net.test_net_transport import meeting

SLOW_S = 2 * SHARED_QUANTUM.seconds
"""What one part takes: more than a lane's share of a turn."""


async def turn_over() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Scene:
    """A turn that has begun, its lanes, and whether somebody waits for the commit of a few messages."""

    def __init__(self, *, is_awaited: bool = False) -> None:
        self.is_awaited = is_awaited
        self.turn = Turn(asyncio.get_running_loop())
        self.lanes = LaneScheduler(self.turn, lambda: self.is_awaited)
        self.tenant = self.lanes.of("one")
        self.turn.begin()


async def test_a_lane_is_shared_while_another_brings_something() -> None:
    scene = Scene()
    one, other = scene.lanes.of("one").calm, scene.lanes.of("other").calm
    assert not one.is_shared()
    assert not one.is_shared()
    assert other.is_shared()
    assert one.is_shared()


async def test_other_tenants_and_who_waits_for_a_commit_are_worth_shorter_turns() -> None:
    scene = Scene()
    turn, tenant = scene.turn, scene.tenant
    tenant.calm.is_shared()
    tenant.busy.is_shared()
    assert tenant.busy.quantum == SHARED_QUANTUM
    scene.is_awaited = True
    assert tenant.busy.quantum == CONTENDED_QUANTUM
    scene.is_awaited = False
    turn.now += 2 * AWAITED_S
    assert tenant.busy.quantum == SHARED_QUANTUM
    scene.lanes.of("other").calm.is_shared()
    assert tenant.busy.quantum == CONTENDED_QUANTUM


async def test_who_has_waited_for_a_commit_may_do_so_again() -> None:
    scene = Scene(is_awaited=True)
    turn = scene.turn
    assert scene.lanes.is_awaited()
    scene.is_awaited = False
    turn.now += AWAITED_S / 2
    assert scene.lanes.is_awaited()
    turn.now += AWAITED_S
    assert not scene.lanes.is_awaited()


async def test_busy_connections_give_way_to_those_that_short_turns_are_for() -> None:
    scene = Scene()
    turn, tenant = scene.turn, scene.tenant
    assert not tenant.busy.is_full()
    scene.is_awaited = True
    assert tenant.busy.is_full()
    assert not tenant.calm.is_full()
    scene.is_awaited = False
    turn.now += 2 * AWAITED_S
    assert not tenant.busy.is_full()
    tenant.busy.is_shared()
    scene.lanes.of("other").calm.is_shared()
    assert tenant.busy.is_full()


class Output:
    """Something to be written to a connection of a lane."""

    def __init__(self, turn: Turn, lane: Lane) -> None:
        self.lane = lane
        self.turn = turn
        self.written: list[int] = []

    def flush(self) -> None:
        if not self.lane.defers(self):
            self.written.append(self.turn.number)


async def test_while_turns_are_short_the_output_of_busy_connections_is_gathered() -> None:
    scene = Scene(is_awaited=True)
    turn, tenant = scene.turn, scene.tenant
    tenant.calm.is_shared()
    tenant.busy.is_shared()
    busy, beside, calm = Output(turn, tenant.busy), Output(turn, tenant.busy), Output(turn, tenant.calm)
    busy.flush()
    assert busy.written == [turn.number], "it has waited long enough before"
    first = turn.number
    began = turn.now
    while turn.number == first:
        await turn_over()
        turn.begin()
    turn.mark(busy)
    turn.mark(beside)
    turn.mark(calm)
    while not calm.written:
        await turn_over()
    assert turn.now - began >= DEFER_S or not busy.written[1:]
    while not beside.written:
        await turn_over()
    assert busy.written[1:] == beside.written, "in one turn, and each once"
    assert turn.now - began >= DEFER_S


async def test_while_turns_are_long_or_a_lane_is_alone_nothing_is_put_off() -> None:
    scene = Scene(is_awaited=True)
    turn, tenant = scene.turn, scene.tenant
    tenant.busy.is_shared()
    turn.now += 1
    assert not tenant.busy.defers(Output(turn, tenant.busy)), "it is alone"
    tenant.calm.is_shared()
    assert not tenant.busy.defers(Output(turn, tenant.busy))
    turn.number += 1
    assert tenant.busy.defers(Output(turn, tenant.busy))
    scene.is_awaited = False
    turn.now += ACTIVE_S / 2
    tenant.calm.is_shared()
    assert not tenant.busy.defers(Output(turn, tenant.busy))
    turn.number += 1
    assert not tenant.busy.defers(Output(turn, tenant.busy)), "nobody needs short turns"


async def test_a_tenant_has_one_road_for_all_its_connections() -> None:
    lanes = LaneScheduler(Turn(asyncio.get_running_loop()))
    one = lanes.of("one")
    assert lanes.of("one") is one
    assert lanes.of("other") is not one


async def test_a_connection_that_keeps_the_loop_busy_has_another_lane_until_it_is_calm() -> None:
    lanes = LaneScheduler(Turn(asyncio.get_running_loop()))
    tenant = lanes.of("one")
    load = ConnectionLoad(tenant, 0.0)
    load.add(WINDOW_S / 2, WINDOW_S / 2)
    assert load.lane is tenant.calm
    load.add(0.0, WINDOW_S)
    assert load.lane is tenant.busy
    load.add(WINDOW_S / 10, 2 * WINDOW_S)
    assert load.lane is tenant.busy, "neither busy nor calm"
    load.add(WINDOW_S / 100, 3 * WINDOW_S)
    assert load.lane is tenant.calm


async def test_what_does_not_fit_into_a_turn_waits_in_its_order() -> None:
    turn = Turn(asyncio.get_running_loop())
    lanes = LaneScheduler(turn)
    lane = lanes.of("one").calm
    lane.is_shared()
    lanes.of("other").calm.is_shared()
    log: list[tuple[str, int]] = []

    def work(name: str) -> None:
        log.append((name, turn.number))
        lane.charge(SLOW_S)

    turn.begin()
    assert not lane.is_full()
    work("a")
    for name in "bcd":
        assert lane.is_full()
        lane.enqueue(lambda name=name: work(name))  # type: ignore[misc]
    while len(log) < 4:
        await turn_over()
    assert [name for name, _ in log] == ["a", "b", "c", "d"]
    first = log[0][1]
    assert [number for _, number in log] == [first, first + 1, first + 2, first + 3], (
        "one in each turn, and no idle turn"
    )


async def test_what_waits_may_wait_again() -> None:
    turn = Turn(asyncio.get_running_loop())
    lane = LaneScheduler(turn).of("one").calm
    left = [3]

    def work() -> None:
        left[0] -= 1
        if left[0]:
            lane.enqueue(work)

    lane.enqueue(work)
    while left[0]:
        await turn_over()
    turn.begin()
    assert not lane.is_full()


async def test_a_busy_connection_leaves_a_calm_one_of_its_tenant_its_place(script: Any, until: Any) -> None:
    turn = Turn(asyncio.get_running_loop())
    tenant = LaneScheduler(turn).of("one")
    heard: list[Any] = []
    busy, calm = script(), script()

    def hear(engine: Any, seconds: float) -> None:
        heard.append(engine)
        time.sleep(seconds)

    busy.on_receive = lambda _: hear(busy, 20 * SLOW_S)
    calm.on_receive = lambda _: hear(calm, 0)
    async with meeting(busy, turn) as much, meeting(calm, turn) as little:
        much.shell.load, little.shell.load = ConnectionLoad(tenant, turn.now), ConnectionLoad(tenant, turn.now)
        data = random.Random(1).randbytes(2 << 20)
        sending = asyncio.create_task(much.send(data))
        await until(lambda: much.shell.load is not None and much.shell.load.lane is tenant.busy)
        assert little.shell.load.lane is tenant.calm
        at = len(heard)
        await little.send(b"hello")
        await until(lambda: calm in heard)
        assert heard.index(calm) - at < 5
        await until(lambda: len(busy.received) == len(data))
        assert busy.received == data
        await sending


async def test_many_connections_of_a_tenant_cost_another_one_share(script: Any, until: Any) -> None:
    turn = Turn(asyncio.get_running_loop())
    lanes = LaneScheduler(turn)
    heard: list[Any] = []

    def hear(engine: Any, seconds: float) -> None:
        heard.append(engine)
        time.sleep(seconds)

    busy, also_busy, quiet = script(), script(), script()
    busy.on_receive = lambda _: hear(busy, SLOW_S)
    also_busy.on_receive = lambda _: hear(also_busy, SLOW_S)
    quiet.on_receive = lambda _: hear(quiet, 0)
    async with meeting(busy, turn) as first, meeting(also_busy, turn) as second, meeting(quiet, turn) as other:
        first.shell.load, second.shell.load = (ConnectionLoad(lanes.of("noisy"), turn.now) for _ in range(2))
        other.shell.load = ConnectionLoad(lanes.of("quiet"), turn.now)
        data = random.Random(1).randbytes(1 << 20)
        sending = [asyncio.create_task(met.send(data)) for met in (first, second)]
        await other.send(b"1")
        await until(lambda: quiet in heard and busy in heard and also_busy in heard)
        # Both are in the middle of it; whatever they have brought, the next word of the other is soon heard.
        await until(lambda: len(heard) > 10)
        at = len(heard)
        await other.send(b"2")
        await until(lambda: quiet.received == b"12")
        assert heard.index(quiet, at) - at < 5
        await until(lambda: len(busy.received) == len(also_busy.received) == len(data))
        assert busy.received == also_busy.received == data
        await asyncio.gather(*sending)


async def test_a_tenant_alone_waits_for_nobody(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "ALONE_S", 60.0)
    turn = Turn(asyncio.get_running_loop())
    engine = script()
    engine.on_receive = lambda _: time.sleep(SLOW_S)
    async with meeting(engine, turn) as met:
        met.shell.load = ConnectionLoad(LaneScheduler(turn).of("one"), turn.now)
        for _ in range(3):
            met.shell.data_received(b"x")
        assert engine.received == b"xxx"


async def test_what_waits_is_heard_before_the_loss(script: Any) -> None:
    turn = Turn(asyncio.get_running_loop())
    lanes = LaneScheduler(turn)
    engine, other = script(), script()
    engine.on_receive = lambda _: time.sleep(SLOW_S)
    async with meeting(engine, turn) as met, meeting(other, turn) as beside:
        met.shell.load, beside.shell.load = (ConnectionLoad(lanes.of(name), turn.now) for name in ("one", "other"))
        beside.shell.data_received(b"y")
        met.shell.data_received(b"a")
        met.shell.data_received(b"b")
        assert engine.received == b"a"
        met.shell.abort()
        await met.shell.wait_closed()
        assert engine.received == b"ab"


async def test_what_many_connections_of_a_tenant_bring_at_one_moment_is_more_than_one_turn(script: Any) -> None:
    turn = Turn(asyncio.get_running_loop())
    lanes = LaneScheduler(turn)
    async with AsyncExitStack() as stack:
        crowd = []
        for _ in range(10):
            engine = script()
            engine.on_receive = lambda _: time.sleep(ALONE_S / 4)
            met = await stack.enter_async_context(meeting(engine, turn))
            met.shell.load = ConnectionLoad(lanes.of("one"), turn.now)
            crowd.append((engine, met))
        await turn_over()
        for _, met in crowd:
            met.shell.data_received(b"x")
        heard = [engine for engine, _ in crowd if engine.received]
        assert 0 < len(heard) <= 4
        # Who has been heard waits behind those who have not.
        crowd[0][1].shell.data_received(b"y")
        assert heard[0].received == b"x"
        while not crowd[0][0].received.endswith(b"y"):
            await turn_over()
        assert [engine.received for engine, _ in crowd] == [b"xy", *[b"x"] * 9]
