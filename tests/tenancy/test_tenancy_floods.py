"""One connection floods a node, or begins much and ends nothing: others are served, and memory is bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.message.codec import encode
from enmasse.message.composites import decode_composite, encode_composite
from enmasse.message.outcomes import Accepted
from enmasse.message.types import ULong
from enmasse.messaging.budget import Budget
from enmasse.messaging.transaction import TransactionLimits
from enmasse.net import lanes, transport
from enmasse.net.lanes import Quantum
from enmasse.net.loop import run
from enmasse.net.owed import ASSURED_BYTES
from enmasse.net.transport import EngineProtocol
from enmasse.node.connections.unfinished import GRAIN_BYTES, unfinished_budget
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.server import Server
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    TransactionalState,
    Transfer,
)

RED, BLUE = "red.team-a", "blue.team-b"

FLOOD_BYTES = 24 << 10
"""Few enough to be read at once, many more than are to be taken at once."""

WINDOW = 1 << 16

VALUE = b"\x00" + encode(ULong(0x77))

EXCEEDED = "amqp:resource-limit-exceeded"


class Peer:
    """The bare socket of a client, that says whatever a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0

    def say(self, *frames: Composite, payload: bytes = b"", channel: int = 0) -> None:
        self.say_bytes(b"".join(amqp_frame(channel, frame, len(payload)) + payload for frame in frames))

    def say_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def flush(self) -> None:
        await self._writer.drain()

    async def hear(self, *kinds: type[Composite]) -> Any:
        """The next frame of one of these kinds; others are let go."""
        while True:
            head = await self._reader.readexactly(8)
            if head.startswith(b"AMQP"):
                continue
            data = await self._reader.readexactly(int.from_bytes(head[:4], "big") - 8)
            if data:
                found, _ = decode_composite(data, 0, len(data))
                if isinstance(found, kinds):
                    return found

    def begin_message(self, size: int, *, handle: int = 0) -> None:
        """Send a part of a message whose end does not come."""
        self._sent += 1
        part = Transfer(handle=handle, delivery_id=self._sent, delivery_tag=b"%d" % self._sent, more=True)
        self.say(part, payload=bytes(size))

    async def attach(self, address: str = "q", handle: int = 0) -> None:
        target = Target(address=address)
        self.say(Attach(f"link-{handle}", handle, False, source=Source(), target=target, initial_delivery_count=0))
        await self.hear(Flow)

    async def declare(self, handle: int = 1) -> bytes:
        """Attach a control link, and begin a transaction."""
        target = Coordinator(("amqp:local-transactions",))
        self.say(Attach(f"control-{handle}", handle, False, source=Source(), target=target, initial_delivery_count=0))
        await self.hear(Flow)
        txn: bytes = (await self.control(Declare(), handle)).txn_id
        return txn

    async def control(self, asked: Composite, handle: int = 1) -> Any:
        self._sent += 1
        told = Transfer(handle=handle, delivery_id=self._sent, delivery_tag=b"%d" % self._sent)
        self.say(told, payload=VALUE + encode_composite(asked))
        return (await self.hear(Disposition)).state

    async def post(self, txn: bytes, size: int, handle: int = 0) -> Any:
        """Send a message within a transaction; its outcome."""
        self._sent += 1
        state = TransactionalState(txn)
        body = b"\x00Su\xb0" + size.to_bytes(4, "big") + bytes(size)
        told = Transfer(handle=handle, delivery_id=self._sent, delivery_tag=b"%d" % self._sent, state=state)
        self.say(told, payload=body)
        return (await self.hear(Disposition)).state.outcome

    async def send(self, size: int = 1, handle: int = 0) -> Any:
        """Send a message in parts; its outcome."""
        self._sent += 1
        body = b"\x00Su\xb0" + size.to_bytes(4, "big") + bytes(size)
        first: dict[str, Any] = {"delivery_id": self._sent, "delivery_tag": b"%d" % self._sent}
        for at in range(0, len(body), GRAIN_BYTES):
            part = body[at : at + GRAIN_BYTES]
            self.say(Transfer(handle=handle, more=at + GRAIN_BYTES < len(body), **first), payload=part)
            first = {}
        found = await self.hear(Disposition, Detach)
        return found.error if isinstance(found, Detach) else found.state

    def close(self) -> None:
        self._writer.close()


class Scene:
    """A node that serves two spaces, of which red is the attackers'."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self._port = port

    async def declare(self) -> None:
        for space in ("team-a/red", "team-b/blue"):
            await self._create(SPACE_TYPE, space, {"authentication": "none"})
            for name in ("q", "flood"):
                await self._create(
                    ADDRESS_TYPE, f"{space}.{name}", {"space": space, "address": name, "addressType": "queue"}
                )

    async def _create(self, kind: str, name: str, attributes: dict[str, Any]) -> None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.server.entities.create(kind, name, attributes, done.set_result)
        answer = await done
        assert not isinstance(answer, Exception), answer

    @asynccontextmanager
    async def peer(self, host: str, *, small: bool = False) -> AsyncIterator[Peer]:
        """A client with a session; its socket may take few bytes that it does not read."""
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        peer = Peer(*await asyncio.open_connection(sock=sock, limit=1024 if small else 1 << 20))
        try:
            peer.say_bytes(AMQP_HEADER)
            peer.say(
                Open(f"c-{id(peer)}", hostname=host),
                Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW),
            )
            await peer.hear(Begin)
            yield peer
        finally:
            peer.close()

    @property
    def last(self) -> EngineProtocol:
        """The node's end of the connection that came last."""
        return list(self.server.connections.shells.values())[-1]

    def unfinished_bytes(self) -> int:
        """What the node has of messages and frames that are not complete."""
        engines = [connection.engine for connection in self.server.connections.shells]
        return sum(engine.partial_bytes for engine in engines if isinstance(engine, Connection))


def play(directory: Path, story: Callable[[Scene], Awaitable[None]], limits: TransactionLimits | None = None) -> None:
    async def main() -> None:
        server = Server(directory, "node", limits=limits)
        await server.load()
        try:
            scene = Scene(server, await server.listen("127.0.0.1", 0))
            await scene.declare()
            async with asyncio.timeout(60):
                await story(scene)
        finally:
            await server.stop()

    run(main())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0)


ATTACH = Attach("flood", 0, False, source=Source(), target=Target(address="flood"), initial_delivery_count=0)
FLOODS: dict[str, list[Composite]] = {
    "attach": [ATTACH, Detach(handle=0, closed=True)],
    "begin": [Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW), End()],
    "flow": [Flow(None, WINDOW, 0, WINDOW, echo=True)],
}


def test_of_a_flood_of_any_kind_each_turn_takes_a_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every frame takes longer than may be, so that the order does not hang on how fast the machine is.
    monkeypatch.setattr(transport, "ALONE", Quantum(1e-9, transport.MIN_SHARE_BYTES))
    monkeypatch.setattr(lanes, "SHARED_QUANTUM", Quantum(1e-9, 32 << 10))
    monkeypatch.setattr(lanes, "CONTENDED_QUANTUM", Quantum(1e-9, 32 << 10))

    async def story(scene: Scene) -> None:
        for kind, pair in FLOODS.items():
            async with scene.peer(RED) as honest, scene.peer(RED) as flooder:
                engine = scene.last.engine
                assert isinstance(engine, Connection)
                channel = 1 if kind == "begin" else 0
                frames = b"".join(amqp_frame(channel, frame) for frame in pair)
                count = FLOOD_BYTES // len(frames)
                flooder.say_bytes(frames * count)
                honest.say(Flow(None, WINDOW, 0, WINDOW, echo=True))
                await honest.hear(Flow)
                assert len(engine.unread) > FLOOD_BYTES * 3 // 4, kind
                await honest.attach()
                assert isinstance(await honest.send(), Accepted), kind
                assert engine.unread, kind

    play(tmp_path, story)


def test_who_does_not_read_the_answers_is_read_no_more(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.peer(RED, small=True) as flooder:
            shell = scene.last
            scene.server.connections.unread.max_bytes = 0
            shell.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            pair = b"".join(amqp_frame(1, frame) for frame in FLOODS["begin"])
            count = (4 * ASSURED_BYTES) // len(pair)
            flooder.say_bytes(pair * count)
            await until(lambda: shell.engine.is_paused)
            async with scene.peer(RED) as honest:
                await honest.attach()
                assert isinstance(await honest.send(), Accepted)
                came = shell.bytes_in
                assert isinstance(await honest.send(), Accepted)
                assert shell.bytes_in == came, "it is not read"
                assert shell.engine.is_paused
                assert shell.transport.get_write_buffer_size() < 2 * ASSURED_BYTES
            for _ in range(count):
                await flooder.hear(End)

    play(tmp_path, story)


@pytest.mark.parametrize("kind", ["messages", "frames"])
def test_what_is_begun_and_never_ended_gives_way_to_others(tmp_path: Path, kind: str) -> None:
    async def story(scene: Scene) -> None:
        budget = scene.server.connections.unfinished = unfinished_budget(16 * GRAIN_BYTES)
        size = 3 * GRAIN_BYTES
        async with AsyncExitStack() as stack:
            red = [await stack.enter_async_context(scene.peer(RED)) for _ in range(8)]
            engines = [shell.engine for shell in set(scene.server.connections.shells.values())]
            blue = await stack.enter_async_context(scene.peer(BLUE))
            await blue.attach()
            for one in red:
                await one.attach()
                if kind == "messages":
                    one.begin_message(size)
                else:
                    one.say_bytes(amqp_frame(0, Transfer(handle=0, delivery_id=1, delivery_tag=b"t"), 4 * size))
                    one.say_bytes(bytes(size))
            await until(lambda: sum(engine.is_held for engine in engines) == 2)
            assert budget.held <= budget.max_bytes + 4 * GRAIN_BYTES
            assert scene.unfinished_bytes() <= budget.max_bytes + 8 * (256 << 10), "what was being read comes on top"
            for _ in range(3):
                assert isinstance(await blue.send(8 * GRAIN_BYTES), Accepted)
            assert budget.given_up
            for ended in asyncio.as_completed([one.hear(Detach, Close) for one in red]):
                # Whoever had more under way may be told by a reset alone.
                with suppress(ConnectionResetError):
                    told = await ended
                    break
            assert told.error.condition == EXCEEDED
            assert "unfinished" in told.error.description
        await until(lambda: not budget.held)

    play(tmp_path, story)


def test_large_messages_of_many_at_once_all_arrive(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        budget = scene.server.connections.unfinished = unfinished_budget(8 * GRAIN_BYTES)
        async with AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(scene.peer(BLUE)) for _ in range(6)]
            for one in crowd:
                await one.attach()
            outcomes = await asyncio.gather(*(one.send(6 * GRAIN_BYTES) for one in crowd))
            assert [type(outcome) for outcome in outcomes] == [Accepted] * 6
        assert (budget.held, budget.given_up) == (0, 0)

    play(tmp_path, story)


def test_transactions_that_hold_all_there_is_give_way_to_others(tmp_path: Path) -> None:
    limits = TransactionLimits(budget=Budget(16 * GRAIN_BYTES, GRAIN_BYTES))

    async def story(scene: Scene) -> None:
        async with scene.peer(RED) as red, scene.peer(RED) as beside, scene.peer(BLUE) as blue:
            for one in (red, beside, blue):
                await one.attach()
            mine = await red.declare()
            for _ in range(8):
                assert isinstance(await red.post(mine, 2 * GRAIN_BYTES - 1000), Accepted)
            larger = await red.declare(2)
            assert not isinstance(await red.post(larger, GRAIN_BYTES), Accepted), "its own connection has all"
            for one in (beside, blue):
                txn = await one.declare()
                assert isinstance(await one.post(txn, 2 * GRAIN_BYTES), Accepted)
                assert isinstance(await one.control(Discharge(txn)), Accepted)
            assert limits.budget.given_up == 1
            answer = await red.control(Discharge(mine))
            assert answer.error.condition == "amqp:transaction:rollback"
            assert EXCEEDED in answer.error.description
        await until(lambda: not limits.budget.held)

    play(tmp_path, story, limits)
