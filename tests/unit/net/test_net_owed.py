"""What waits for peers that do not read: a share for each, one budget for all, and who gives way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from enmasse.messaging.budget import Budget, Holder
from enmasse.net import transport as module
from enmasse.net.loop import Turn
from enmasse.net.owed import ASSURED_BYTES, MAX_BYTES, Owed
from enmasse.net.transport import EngineProtocol


def budget_of(size: int) -> Budget:
    return Budget(size, 4096)


class Place:
    """What gives up nothing."""

    def stay(self) -> None:
        """Free nothing."""


PLACE = Place()


def owed_of(budget: Budget, *path: str) -> Owed:
    return Owed(lambda: Holder(budget, path, PLACE.stay))


def test_what_is_within_the_share_takes_nothing_of_the_budget() -> None:
    budget = budget_of(0)
    owed = owed_of(budget, "space")
    assert owed.has_room(ASSURED_BYTES - 1)
    assert not owed.is_extra
    assert not owed.has_room(ASSURED_BYTES)
    assert len(budget.short) == 1
    owed.release()
    assert (budget.held, len(budget.short)) == (0, 0)


def test_room_is_doubled_up_to_the_most_of_a_connection_and_given_back_at_once() -> None:
    budget = budget_of(MAX_BYTES)
    owed = owed_of(budget, "space")
    rooms = []
    size = ASSURED_BYTES
    while owed.has_room(size):
        rooms.append(owed.room)
        size = owed.room
    assert rooms == [2 * ASSURED_BYTES, 4 * ASSURED_BYTES, 8 * ASSURED_BYTES, MAX_BYTES]
    assert budget.held == MAX_BYTES - ASSURED_BYTES
    assert not budget.short
    owed.release()
    assert (budget.held, owed.room, budget.root.children) == (0, ASSURED_BYTES, {})


def test_what_is_there_counts_though_there_is_no_room_for_it() -> None:
    budget = budget_of(MAX_BYTES)
    large, small = owed_of(budget, "space"), owed_of(budget, "space")
    assert not large.has_room(10 * MAX_BYTES)
    assert budget.held == 10 * MAX_BYTES - ASSURED_BYTES
    assert not small.has_room(ASSURED_BYTES + 1)
    large.release()
    assert small.has_room(ASSURED_BYTES + 1)


@asynccontextmanager
async def peers(engines: list[Any], budget: Budget) -> AsyncIterator[list[tuple[EngineProtocol, socket.socket]]]:
    """Shells with these engines, each of a space of its own, and the sockets at their other ends."""
    loop = asyncio.get_running_loop()
    turn = Turn(loop)
    made: list[EngineProtocol] = []

    def make(shell: EngineProtocol) -> Any:
        path = (f"space-{len(made)}",)
        shell.limit_output(lambda give_way: Holder(budget, path, give_way))
        made.append(shell)
        return engines[len(made) - 1]

    listener = await loop.create_server(lambda: EngineProtocol(turn, make), "127.0.0.1", 0)
    sockets = []
    for count in range(1, len(engines) + 1):
        peer = socket.socket()
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(peer, listener.sockets[0].getsockname())
        sockets.append(peer)
        async with asyncio.timeout(60):
            while len(made) < count or not hasattr(made[-1], "engine"):
                await asyncio.sleep(0)
    try:
        yield list(zip(made, sockets, strict=True))
    finally:
        for peer in sockets:
            peer.close()
        for shell in made:
            shell.abort()
            await shell.wait_closed()
        listener.close()
        await listener.wait_closed()
    assert budget.held == 0
    assert not budget.short


async def fill(engine: Any, until: Any) -> None:
    """Have more said than its socket takes, in small pieces."""
    while not engine.is_paused:
        engine.put(bytes(ASSURED_BYTES // 4))
        engine.out_bytes = ASSURED_BYTES // 4
        await asyncio.sleep(0.001)
    await until(lambda: not engine.out)


async def test_a_peer_without_room_is_left_alone_once_its_share_waits(script: Any, until: Any) -> None:
    budget = budget_of(0)
    async with peers([script()], budget) as [(shell, _)]:
        await fill(shell.engine, until)
        assert shell.transport.get_write_buffer_size() < 2 * ASSURED_BYTES
        assert not shell.transport.is_reading()
        assert len(budget.short) == 1


async def test_a_peer_with_room_goes_on_to_the_most_of_a_connection(script: Any, until: Any) -> None:
    budget = budget_of(2 * MAX_BYTES)
    async with peers([script()], budget) as [(shell, peer)]:
        await fill(shell.engine, until)
        left = shell.transport.get_write_buffer_size()
        assert MAX_BYTES // 2 < left < MAX_BYTES + ASSURED_BYTES
        assert budget.held >= MAX_BYTES - ASSURED_BYTES
        while shell.engine.is_paused:
            await asyncio.get_running_loop().sock_recv(peer, 1 << 20)
        assert budget.held == 0
        assert shell.engine.out_room == ASSURED_BYTES


async def test_who_reads_next_to_nothing_gives_way_to_another_space(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 600.0)
    monkeypatch.setattr(module, "STALL_CHECKS", 12_000)
    budget = budget_of(MAX_BYTES)
    async with peers([script(), script()], budget) as [(deaf, _), (other, _)]:
        await fill(deaf.engine, until)
        await until(lambda: deaf._is_slow)
        engine: Any = other.engine
        while not deaf.is_lost:
            engine.put(bytes(ASSURED_BYTES // 4))
            await asyncio.sleep(0.001)
        assert budget.given_up == 1
        assert not other.is_lost


async def test_who_reads_next_to_nothing_is_dropped_while_more_waits_than_there_is_room_for(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 600.0)
    monkeypatch.setattr(module, "STALL_CHECKS", 12_000)
    budget = budget_of(MAX_BYTES)
    async with peers([script()], budget) as [(deaf, _)]:
        engine: Any = deaf.engine
        engine.put(bytes(16 * MAX_BYTES))
        await until(lambda: deaf.is_lost)


def test_a_large_message_is_admitted_while_there_is_room_or_nothing_else() -> None:
    budget = budget_of(2 * MAX_BYTES)
    first, second = owed_of(budget, "space"), owed_of(budget, "space")
    assert first.admits(0, 4 * MAX_BYTES)
    assert first.has_room(4 * MAX_BYTES)
    assert not second.admits(0, 2 * ASSURED_BYTES)
    assert len(budget.short) == 1
    first.release()
    assert second.admits(0, 2 * MAX_BYTES)
    assert second.has_room(2 * MAX_BYTES)


def test_large_messages_for_one_peer_have_the_most_of_a_connection_together() -> None:
    owed = owed_of(budget_of(64 * MAX_BYTES), "space")
    assert owed.admits(0, MAX_BYTES // 2)
    assert owed.admits(MAX_BYTES // 2, MAX_BYTES // 2)
    assert not owed.admits(MAX_BYTES, ASSURED_BYTES + 1)
    # One that is larger goes beside little, or it would wait for ever on a connection with much to say.
    assert owed.admits(ASSURED_BYTES, 2 * MAX_BYTES)


def test_who_has_read_before_has_a_message_more_beside_its_like() -> None:
    budget = budget_of(MAX_BYTES)
    deaf, fresh, proven = (owed_of(budget, "space") for _ in range(3))
    proven.has_read = True
    assert deaf.admits(0, MAX_BYTES)
    assert not deaf.is_needed
    assert not fresh.admits(0, MAX_BYTES)
    assert proven.admits(0, MAX_BYTES)
    assert not proven.admits(MAX_BYTES, ASSURED_BYTES + 1)
    # Its like waits, and it has never shown that it reads.
    assert (deaf.is_needed, proven.is_needed) == (True, False)
    stranger = owed_of(budget, "other")
    fresh.release()
    assert not stranger.admits(0, MAX_BYTES)
    # Spaces are compared by what they hold.
    assert (deaf.is_needed, proven.is_needed) == (False, False)
    assert proven.admits(0, 2 * MAX_BYTES)
    # More than twice what there is.
    assert (deaf.is_needed, proven.is_needed) == (True, True)


async def test_who_takes_nothing_of_one_large_message_is_dropped(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked for nothing else meanwhile, and was not paused, as there was room."""
    monkeypatch.setattr(module, "STALL_S", 0.6)
    budget = budget_of(64 * MAX_BYTES)
    async with peers([script()], budget) as [(deaf, _)]:
        engine: Any = deaf.engine
        await until(lambda: engine.flushes)
        assert engine.admits(16 * MAX_BYTES)
        engine.put(bytes(16 * MAX_BYTES))
        engine.out_bytes = 16 * MAX_BYTES
        await until(lambda: deaf._is_over)
        engine.out_bytes = 0
        assert not engine.is_paused
        assert deaf.transport.is_reading()
        await until(lambda: deaf.is_lost)
    assert "has read nothing for" in caplog.text


@pytest.mark.parametrize("reads", [True, False])
async def test_a_peer_has_read_once_its_system_has_acknowledged_more_than_it_keeps(
    script: Any, until: Any, reads: bool
) -> None:
    """What the sender's system takes at once says nothing."""
    budget = budget_of(MAX_BYTES)
    async with peers([script()], budget) as [(shell, peer)]:
        engine: Any = shell.engine
        await until(lambda: engine.flushes)
        engine.put(bytes(2 * MAX_BYTES))
        await until(lambda: not engine.out)
        got = 0
        while reads and got < 2 * MAX_BYTES:
            got += len(await asyncio.get_running_loop().sock_recv(peer, 1 << 20))
        if reads:
            await until(shell._has_read)
        assert shell._has_read() is reads


async def test_one_look_tells_that_a_new_peer_reads_nothing(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = budget_of(64 * MAX_BYTES)
    async with peers([script()], budget) as [(deaf, _)]:
        engine: Any = deaf.engine
        await until(lambda: engine.flushes)
        looks: list[tuple[int, float]] = []
        monkeypatch.setattr(EngineProtocol, "_look_again", lambda _, taken, idle_s: looks.append((taken, idle_s)))
        assert engine.admits(16 * MAX_BYTES)
        engine.put(bytes(16 * MAX_BYTES))
        engine.out_bytes = 16 * MAX_BYTES
        await until(lambda: looks)
        engine.out_bytes = 0
        deaf._check_stall(2.0, *looks[0])
        assert deaf._is_slow


async def test_who_reads_goes_on_however_often_it_lags(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of what waits is taken between two looks, again and again."""
    monkeypatch.setattr(module, "STALL_S", 0.6)
    budget = budget_of(64 * MAX_BYTES)
    async with peers([script()], budget) as [(shell, peer)]:
        engine: Any = shell.engine
        loop = asyncio.get_running_loop()
        ends = loop.time() + 1
        while loop.time() < ends:
            engine.put(bytes(4 * MAX_BYTES))
            await until(lambda: not engine.out)
            while shell._is_over:
                await loop.sock_recv(peer, 1 << 20)
        assert shell._owed is not None
        assert shell._owed.has_read
        assert not shell.is_lost
        await until(lambda: shell._stall is None)


async def test_a_peer_that_is_refused_and_asks_no_more_does_not_wait(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    budget = budget_of(MAX_BYTES)
    async with peers([script()], budget) as [(shell, _)]:
        other = owed_of(budget, "other")
        assert other.admits(0, MAX_BYTES)
        engine: Any = shell.engine
        await until(lambda: engine.flushes)
        assert not engine.admits(MAX_BYTES)
        assert len(budget.short) == 1
        await until(lambda: not budget.short)
        other.release()


async def test_what_an_engine_keeps_for_its_peer_is_counted_until_it_goes(script: Any, until: Any) -> None:
    budget = budget_of(4 * MAX_BYTES)
    async with peers([script()], budget) as [(shell, _)]:
        engine: Any = shell.engine
        await until(lambda: engine.flushes)
        engine.out_bytes = MAX_BYTES // 2
        assert engine.more_out(engine.out_bytes)
        engine.wake(engine)
        await until(lambda: engine.flushes > 1)
        assert budget.held >= MAX_BYTES // 2 - ASSURED_BYTES
        await until(lambda: shell._stall is not None)
        engine.out_bytes = 0
        engine.wake(engine)
        await until(lambda: budget.held == 0)


async def test_a_peer_without_room_for_a_large_message_asks_again(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    budget = budget_of(MAX_BYTES)
    async with peers([script()], budget) as [(shell, _)]:
        other = owed_of(budget, "other")
        assert other.admits(0, MAX_BYTES)
        engine: Any = shell.engine
        await until(lambda: engine.flushes)
        assert not engine.admits(MAX_BYTES)
        assert engine.is_paused
        engine.is_blocked = True
        await until(lambda: "resume" in engine.calls)
        assert not engine.admits(MAX_BYTES)
        other.release()
        assert engine.admits(MAX_BYTES // 2)
        assert budget.held > 0
        engine.is_blocked = False
        # Nothing is sent, so nothing is kept.
        await until(lambda: budget.held == 0)
