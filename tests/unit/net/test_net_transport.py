"""The shell between engines and sockets, over real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.net import transport as module
from enmasse.net.loop import Turn
from enmasse.net.transport import MIN_SHARE_BYTES, SHARE_S, EngineProtocol
from tests.unit.client.authorities import Authority

MORE_THAN_THE_KERNEL_TAKES = 32 << 20


class Meeting:
    """A shell with its engine, and the bare socket at the other end."""

    def __init__(self, turn: Turn, shell: EngineProtocol, engine: Any, peer: socket.socket) -> None:
        self.turn = turn
        self.shell = shell
        self.engine = engine
        self.peer = peer

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.peer, data)

    async def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = await asyncio.get_running_loop().sock_recv(self.peer, size - len(data))
            if not more:
                break
            data += more
        return bytes(data)


@asynccontextmanager
async def meeting(engine: Any, turn: Turn | None = None, *, yields: bool = True) -> AsyncIterator[Meeting]:
    loop = asyncio.get_running_loop()
    turn = turn or Turn(loop)
    shell = EngineProtocol(turn, lambda _: engine, yields=yields)
    listener = await loop.create_server(lambda: shell, "127.0.0.1", 0)
    with socket.socket() as peer:
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        await loop.sock_connect(peer, listener.sockets[0].getsockname())
        async with asyncio.timeout(60):
            while not hasattr(shell, "engine"):
                await asyncio.sleep(0)
        try:
            yield Meeting(turn, shell, engine, peer)
        finally:
            shell.abort()
            await shell.wait_closed()
            listener.close()
            await listener.wait_closed()


async def test_bytes_reach_the_engine_with_the_turns_clock(script: Any, until: Any) -> None:
    async with meeting(script()) as met:
        await met.send(b"hello")
        await until(lambda: met.engine.received == b"hello")
        assert met.shell.bytes_in == 5
        assert met.engine.receive_times[-1] <= asyncio.get_running_loop().time()


async def test_what_the_engine_says_in_a_turn_is_written_once(script: Any) -> None:
    async with meeting(script()) as met:
        await asyncio.sleep(0.01)
        before = met.engine.flushes
        for chunk in (b"a", b"b", b"c"):
            met.engine.put(chunk)
        assert await met.read(3) == b"abc"
        assert met.engine.flushes == before + 1
        assert met.shell.bytes_out == 3


async def test_a_peer_that_brings_much_work_leaves_the_others_their_turns(script: Any, until: Any) -> None:
    loop = asyncio.get_running_loop()
    turn = Turn(loop)
    heard: list[Any] = []

    def hear(engine: Any, seconds: float) -> None:
        heard.append(engine)
        time.sleep(seconds)

    busy, quiet = script(), script()
    busy.on_receive = lambda _: hear(busy, 2 * SHARE_S)
    quiet.on_receive = lambda _: hear(quiet, 0)
    async with meeting(busy, turn) as much, meeting(quiet, turn) as little:
        data = random.Random(1).randbytes(40 * MIN_SHARE_BYTES)
        sending = asyncio.create_task(much.send(data))
        await until(lambda: len(heard) > 1)
        await little.send(b"hello")
        await until(lambda: quiet in heard)
        assert heard.index(quiet) < 20
        await until(lambda: len(busy.received) == len(data))
        assert busy.received == data
        await sending


class Pile:
    """Work that turns leave to others: each read brings some, until it is done."""

    def __init__(self) -> None:
        self.added = 0
        self.calls: list[Any] = []

    def after(self, call: Any) -> None:
        self.calls.append(call)

    def done(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_peer_is_not_read_until_the_work_that_it_brought_is_done(
    script: Any, until: Any, *, is_lost: bool
) -> None:
    turn = Turn(asyncio.get_running_loop())
    turn.backlog = pile = Pile()
    engine = script()
    take = engine.receive

    def receive(data: bytes, now: float) -> None:
        pile.added += data.count(b"!")
        take(data, now)

    engine.receive = receive
    async with meeting(engine, turn) as met, meeting(script(), turn) as other:
        await met.send(b"one!")
        await until(lambda: pile.calls)
        await met.send(b"two!")
        if is_lost:
            met.peer.close()
        # Others are read meanwhile.
        await other.send(b"x")
        await until(lambda: other.engine.received == b"x")
        assert engine.received == b"one!"
        assert "lost" not in engine.calls
        pile.done()
        await until(lambda: engine.received == b"one!two!")
        pile.done()
        if is_lost:
            await until(lambda: "lost" in engine.calls)
        else:
            await met.send(b"three")
            await until(lambda: engine.received == b"one!two!three")
            assert not pile.calls


async def test_what_has_come_is_heard_before_the_loss(script: Any, until: Any) -> None:
    engine = script()
    engine.on_receive = lambda _: time.sleep(2 * SHARE_S)
    async with meeting(engine) as met:
        met.shell.data_received(b"x" * 4 * MIN_SHARE_BYTES)
        assert len(engine.received) == MIN_SHARE_BYTES
        met.shell.abort()
        await met.shell.wait_closed()
        assert len(engine.received) == 4 * MIN_SHARE_BYTES
        assert engine.calls == ["lost"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_an_engine_keeps_of_a_read_is_taken_in_later_turns(script: Any, until: Any, is_lost: bool) -> None:
    turns: list[int] = []
    engine = script()
    async with meeting(engine) as met:

        def keep(_data: bytes) -> None:
            turns.append(met.turn.number)
            engine.has_more = len(turns) < 5

        engine.on_receive = keep
        met.shell.data_received(b"x")
        assert len(turns) == 1
        assert not met.shell.transport.is_reading()
        if is_lost:
            met.shell.abort()
            await met.shell.wait_closed()
        await until(lambda: len(turns) == 5)
        assert len(set(turns)) == 5
        assert engine.received == b"x"
        assert engine.calls == ["lost"] * is_lost
        if not is_lost:
            assert met.shell.transport.is_reading()


async def test_a_hold_that_ends_with_its_turn_does_not_leave_the_peer_unread(script: Any, until: Any) -> None:
    engine = script()
    calls: list[bytes] = []
    async with meeting(engine) as met:

        def hold(data: bytes) -> None:
            calls.append(data)
            engine.has_more, engine.is_held = len(calls) == 1, len(calls) == 2

        def give_credit(_now: float) -> None:
            if engine.is_held:
                engine.is_held = False
                engine.wake(engine)

        engine.on_receive = hold
        met.turn.add_hook(give_credit)
        await met.send(b"first")
        await until(lambda: len(calls) == 2)
        await met.send(b"second")
        await until(lambda: engine.received == b"firstsecond")
        assert met.shell.transport.is_reading()


async def test_bytes_that_were_lent_are_kept_until_the_engine_hears_them(script: Any, until: Any) -> None:
    engine = script()
    engine.on_receive = lambda _: time.sleep(2 * SHARE_S)
    async with meeting(engine) as met:
        lent = bytearray(random.Random(1).randbytes(4 * MIN_SHARE_BYTES))
        wanted = bytes(lent)
        met.shell.data_lent(memoryview(lent))
        lent[:] = bytes(len(lent))
        await until(lambda: len(engine.received) == len(wanted))
        assert engine.received == wanted


async def test_what_the_engine_says_first_is_written(script: Any) -> None:
    engine = script()
    engine.out.append(b"greetings")
    async with meeting(engine) as met:
        assert await met.read(9) == b"greetings"


async def test_the_socket_does_not_wait_to_fill_packets(script: Any) -> None:
    async with meeting(script()) as met:
        assert met.shell.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_answer_to_what_came_goes_out_in_the_same_turn(script: Any) -> None:
    engine = script()
    engine.on_receive = lambda data: engine.put(data.upper())
    async with meeting(engine) as met:
        await met.send(b"hello")
        assert await met.read(5) == b"HELLO"


async def test_the_peer_is_named(script: Any, tmp_path: Path) -> None:
    async with meeting(script()) as met:
        host, port = met.peer.getsockname()
        assert met.shell.peer == f"{host}:{port}"
    loop = asyncio.get_running_loop()
    shells: list[EngineProtocol] = []

    def make_shell() -> EngineProtocol:
        shells.append(EngineProtocol(Turn(loop), lambda _: script()))
        return shells[-1]

    listener = await loop.create_unix_server(make_shell, tmp_path / "x.sock")
    _, client = await loop.create_unix_connection(make_shell, str(tmp_path / "x.sock"))
    async with asyncio.timeout(60):
        while not shells[0].peer:
            await asyncio.sleep(0)
    assert {shell.peer for shell in shells} == {"unix"}
    client.abort()
    for shell in shells:
        await shell.wait_closed()
    listener.close()
    await listener.wait_closed()


async def test_a_peer_that_does_not_read_is_neither_written_to_nor_read(script: Any, until: Any) -> None:
    async with meeting(script()) as met:
        size = MORE_THAN_THE_KERNEL_TAKES
        met.engine.put(b"x" * size)
        await until(lambda: met.engine.is_paused)
        assert met.engine.calls == ["block"]
        await met.send(b"ignored for now")
        await asyncio.sleep(0.05)
        assert met.engine.received == b""
        assert len(await met.read(size)) == size
        await until(lambda: met.engine.received == b"ignored for now")
        assert met.engine.calls == ["block", "resume"]
        assert not met.engine.is_paused


async def test_a_shell_that_does_not_yield_reads_on(script: Any, until: Any) -> None:
    async with meeting(script(), yields=False) as met:
        size = MORE_THAN_THE_KERNEL_TAKES
        met.engine.put(b"x" * size)
        await until(lambda: met.engine.is_paused)
        await met.send(b"heard")
        await until(lambda: met.engine.received == b"heard")
        await met.read(size)
        await until(lambda: not met.engine.is_paused)


async def test_an_engine_that_blocked_itself_goes_on_in_the_next_turn(script: Any, until: Any) -> None:
    async with meeting(script()) as met:
        await asyncio.sleep(0.01)
        met.engine.put(b"enough for one turn")
        met.engine.is_blocked = True
        await asyncio.sleep(0)
        assert met.engine.calls == []
        await until(lambda: met.engine.calls == ["resume"])
        await asyncio.sleep(0.01)
        assert met.engine.calls == ["resume"]


@pytest.mark.parametrize("verb", ["receive", "pending_output", "handle_deadline", "block_output", "resume_output"])
async def test_an_engine_that_fails_costs_only_its_own_connection(
    script: Any, until: Any, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    loop = asyncio.get_running_loop()
    turn = Turn(loop)
    async with meeting(script(), turn) as broken, meeting(script(), turn) as healthy:
        await asyncio.sleep(0.01)

        def fail(*_: Any) -> None:
            raise RuntimeError("a bug")

        setattr(broken.engine, verb, fail)
        broken.engine.deadline = loop.time()
        if verb == "receive":
            await broken.send(b"x")
        elif verb == "block_output":
            broken.engine.put(b"x" * MORE_THAN_THE_KERNEL_TAKES)
        else:
            broken.engine.is_blocked = True
            broken.engine.put(b"x")
        await until(lambda: broken.shell.is_lost)
        assert "a bug" in caplog.text
        assert broken.engine.calls.count("lost") == 1
        await healthy.send(b"y")
        await until(lambda: healthy.engine.received == b"y")


async def test_a_failure_at_the_end_is_logged(script: Any, until: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with meeting(script()) as met:

        def fail() -> None:
            raise RuntimeError("a late bug")

        met.engine.lost = fail
        met.peer.close()
        await met.shell.wait_closed()
        assert "a late bug" in caplog.text


async def test_the_engine_is_called_at_its_deadline(script: Any, until: Any) -> None:
    engine = script()
    loop = asyncio.get_running_loop()
    engine.deadline = deadline = loop.time() + 0.03
    async with meeting(engine) as met:
        await until(lambda: met.engine.deadlines)
        assert engine.deadlines[0] >= deadline
        assert len(engine.deadlines) == 1


async def test_a_deadline_that_comes_closer_in_the_handshake_is_kept(script: Any, until: Any) -> None:
    engine = script()
    loop = asyncio.get_running_loop()
    engine.deadline = loop.time() + 1000
    async with meeting(engine) as met:
        await asyncio.sleep(0.01)
        engine.deadline = loop.time() + 0.01
        engine.put(b"our half of the handshake")
        await until(lambda: met.engine.deadlines)


async def test_a_deadline_that_moves_away_is_looked_at_again(script: Any, until: Any) -> None:
    engine = script()
    loop = asyncio.get_running_loop()
    engine.deadline = loop.time() + 0.01
    handled = engine.handle_deadline

    def handle(now: float) -> None:
        handled(now)
        engine.deadline = now + 0.01 if len(engine.deadlines) < 3 else None

    engine.handle_deadline = handle
    async with meeting(engine):
        await until(lambda: len(engine.deadlines) == 3)


async def test_a_peer_that_reads_slowly_is_alive(script: Any, until: Any) -> None:
    engine = script()
    loop = asyncio.get_running_loop()
    async with meeting(engine) as met:
        engine.put(b"x" * MORE_THAN_THE_KERNEL_TAKES)
        await until(lambda: engine.is_paused)
        heard = len(engine.receive_times)
        engine.deadline = loop.time() + 0.01
        met.shell._arm()
        await until(lambda: len(engine.deadlines) == 1)
        assert len(engine.receive_times) == heard
        await met.read(MORE_THAN_THE_KERNEL_TAKES // 2)
        engine.deadline = loop.time() + 0.05
        met.shell._arm()
        await until(lambda: len(engine.deadlines) == 2)
        assert len(engine.receive_times) == heard + 1
        assert engine.received == b""


async def test_last_words_are_written_before_the_socket_closes(script: Any) -> None:
    async with meeting(script()) as met:
        met.engine.closed = True
        met.engine.put(b"farewell")
        assert await met.read(100) == b"farewell"
        await met.shell.wait_closed()
        await met.shell.wait_closed()
        assert met.engine.calls == ["lost"]
        met.engine.put(b"too late")
        await asyncio.sleep(0.01)


async def test_a_peer_that_does_not_take_the_last_words_is_dropped(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.05)
    async with meeting(script()) as met:
        met.engine.closed = True
        met.engine.put(b"x" * MORE_THAN_THE_KERNEL_TAKES)
        await met.shell.wait_closed()
        assert met.shell.is_lost


def test_a_connection_over_tls_whose_peer_was_quicker_to_hang_up_can_be_dropped(script: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=authority.server("localhost"))
        trust = ssl.create_default_context(cafile=str(authority.ca_file))
        host, port = server.sockets[0].getsockname()
        engine = script()
        transport, shell = await loop.create_connection(
            lambda: EngineProtocol(Turn(loop), lambda _: engine), host, port, ssl=trust, server_hostname="localhost"
        )
        # TLS has heard that the socket is gone, and the shell has not yet.
        transport._ssl_protocol._transport.abort()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        engine.closed = True
        shell.flush()
        assert not shell.is_lost
        assert transport._ssl_protocol is not None, "Python 3.11.2 needs it to abort"  # type: ignore[attr-defined]
        shell.abort()
        await shell.wait_closed()
        server.close()
        await server.wait_closed()

    # The command line's loop is asyncio's own.
    asyncio.run(main())


async def test_the_engine_hears_that_the_peer_hung_up(script: Any, until: Any) -> None:
    async with meeting(script()) as met:
        met.peer.close()
        await until(lambda: met.engine.calls == ["lost"])
        met.shell.abort()


@pytest.mark.parametrize("is_put_off", [False, True])
async def test_a_peer_that_says_nothing_more_is_answered_what_it_said(script: Any, is_put_off: bool) -> None:
    """Whether its last words are taken in the turn in which the end of its input is heard, or in later ones."""
    engine = script()

    def answer(data: bytes) -> None:
        if is_put_off:
            time.sleep(2 * SHARE_S)
        engine.put(bytes(data))

    engine.on_receive = answer
    said = b"x" * (3 * MIN_SHARE_BYTES if is_put_off else 1)
    async with meeting(engine) as met:
        met.shell.data_received(said)
        assert (len(engine.received) < len(said)) is is_put_off
        assert met.shell.eof_received()
        assert await met.read(len(said) + 1) == said
        await met.shell.wait_closed()


async def test_a_peer_that_says_nothing_more_and_has_heard_all_is_closed(script: Any, until: Any) -> None:
    async with meeting(script()) as met:
        met.peer.shutdown(socket.SHUT_WR)
        await until(lambda: met.engine.calls == ["lost"])
        assert await met.read(1) == b""
