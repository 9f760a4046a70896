"""A small AMQP server on a real socket, a node without processes, and coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.message.sections import to_of
from enmasse.messaging.core import Core
from enmasse.messaging.transaction import TransactionLimits
from enmasse.net.loop import Turn, run
from enmasse.net.transport import EngineProtocol
from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.connections import Connections
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.memory_storage import MemoryStorage
from enmasse.wire.amqp.connection import Connection as Engine
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Coordinator, Open, Source
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.amqp.session import Session
from enmasse.wire.sasl.mechanisms import Verdict, plain_credentials
from tests.support.polling import until_async


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(_supervise(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})))
    return True


async def _supervise(test: Coroutine[Any, Any, None]) -> None:
    """Run a test, and see that it leaves no task behind."""
    async with asyncio.timeout(30):
        await test
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Stored:
    """A message in the server; what the engine hands back with its outcome."""

    def __init__(self, payload: bytes, message_format: int) -> None:
        self.payload = payload
        self.message_format = message_format
        self.sink: Any = None


class Incoming:
    """The sink of a link on which clients send."""

    def __init__(self, server: Server, link: ReceivingLink, address: str | None) -> None:
        self.server = server
        self.link = link
        self.address = address

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        address = self.address or (to_of(payload) if not message_format else None) or ""
        server = self.server
        server.arrived[address] += 1
        state: Any = server.outcomes.get(address, ACCEPTED)
        if state is None:
            return
        if state is ACCEPTED:
            server.messages[address].append(Stored(payload, message_format))
            server.dispatch(address)
        if not settled:
            self.link.settle(delivery_id, state)
        if self.link.credit < 50 and server.credit:
            self.link.grant(server.credit)

    on_crossed = on_message

    def on_exhausted(self) -> None: ...

    def on_given_up(self, credit: int) -> None: ...

    def on_available(self, available: int) -> None: ...


class Outbound:
    """The sink of a link on which clients receive."""

    def __init__(self, server: Server, link: SendingLink, address: str, settled: bool) -> None:
        self.server = server
        self.link = link
        self.address = address
        self.settled = settled
        self.is_blocked = False

    def on_credit(self, gained: int, drain: bool) -> None:
        self.server.dispatch(self.address)
        if self.server.drains:
            self.link.drained()

    def count_available(self) -> int | None:
        return None

    def on_blocked(self, blocked: bool) -> None:
        self.is_blocked = blocked
        self.server.dispatch(self.address)

    def confirm(self, done: Callable[[], None]) -> None:
        """Nothing has to be stored for what was told."""
        done()

    def on_outcome(self, delivery: Stored, state: Any) -> None:
        self.server.seen[self.address].append(state)
        if state is RELEASED:
            self.server.messages[self.address].appendleft(delivery)
            self.server.dispatch(self.address)


class Handler:
    def __init__(self, server: Server) -> None:
        self.server = server

    def on_opened(self, connection: Engine, remote: Open) -> None:
        self.server.opens.append(remote)
        connection.open()
        if self.server.denial is not None:
            connection.close(self.server.denial)

    def on_begun(self, session: Session) -> None: ...

    def on_attach(self, link: Link, attach: Attach) -> None:
        server = self.server
        server.attaches.append(attach)
        if isinstance(attach.target, Coordinator):
            link.refuse("amqp:not-implemented", "no transactions here")
            return
        if isinstance(link, ReceivingLink):
            address = attach.target.address if attach.target else None
        else:
            assert attach.source is not None
            address = f"temporary-{next(server.numbers)}" if attach.source.dynamic else attach.source.address
        if address == "silent":
            return
        if address in server.moved:
            error = server.moved[address]
            link.refuse(error.condition, error.description or "", error.info)
        elif address in server.unknown:
            link.refuse("amqp:not-found", f"there is no address {address!r}")
        elif isinstance(link, ReceivingLink):
            sink = Incoming(server, link, address)
            server.links.append(link)
            link.accept(
                sink, source=attach.source, target=attach.target,
                max_message_size=server.max_message_size, properties={"seen": attach.properties},
            )  # fmt: skip
            link.grant(0 if address in server.without_credit else server.credit)
        elif isinstance(link, SendingLink):
            outbound = Outbound(server, link, address or "", attach.snd_settle_mode == 1)
            server.links.append(link)
            server.consumers[outbound.address].append(outbound)
            link.accept(outbound, source=Source(address=address), target=attach.target)

    def on_attached(self, link: Link) -> None: ...

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        sink = link.sink
        if isinstance(sink, Outbound):
            self.server.consumers[sink.address].remove(sink)
            for delivery in sink.link.take_unsettled():
                self.server.messages[sink.address].append(delivery)

    def on_ended(self, session: Session, error: AmqpError | None) -> None: ...

    def on_closed(self, error: AmqpError | None) -> None: ...

    def on_transactional_message(self, link: ReceivingLink, *_message: Any) -> None: ...

    def on_transactional_outcome(self, *_outcome: Any) -> None: ...


class Server:
    """Takes every message, keeps it by address, and hands it to whoever receives."""

    def __init__(self) -> None:
        self.turn = Turn(asyncio.get_running_loop())
        self.credit = 100
        self.max_message_size: int | None = None
        self.messages: defaultdict[str, deque[Stored]] = defaultdict(deque)
        self.consumers: defaultdict[str, list[Outbound]] = defaultdict(list)
        self.arrived: defaultdict[str, int] = defaultdict(int)
        self.seen: defaultdict[str, list[Any]] = defaultdict(list)
        self.outcomes: dict[str, Any] = {
            "bad": Rejected(AmqpError("x:bad", "no good")),
            "empty": RELEASED,
            "mute": None,
        }
        self.unknown = {"nowhere"}
        self.moved: dict[str | None, AmqpError] = {}
        self.without_credit: set[str] = {"full"}
        self.drains = True
        self.handle_max = 4_095
        self.denial: AmqpError | None = None
        self.users = {"ann": "secret"}
        self.mechanisms = ["ANONYMOUS", "PLAIN"]
        self.verdict: Verdict | None = None
        self.mechanisms_used: list[str] = []
        self.opens: list[Open] = []
        self.attaches: list[Attach] = []
        self.links: list[Link] = []
        self.shells: list[EngineProtocol] = []
        self.numbers = count(1)
        self.url = ""
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int = 0, path: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        if path is not None:
            self._listener = await loop.create_unix_server(self._shell, path)
            self.url = f"amqp+unix://{path}"
            return
        self._listener = await loop.create_server(self._shell, "127.0.0.1", port, ssl=tls)
        self.url = f"amqp{'' if tls is None else 's'}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def _shell(self) -> EngineProtocol:
        return EngineProtocol(self.turn, self._engine)

    def _engine(self, shell: EngineProtocol) -> Engine:
        self.shells.append(shell)
        engine = Engine(
            Handler(self), container_id="server", is_server=True, now=self.turn.now,
            sasl=SaslServer(self.mechanisms, self._admit, is_optional=True),
        )  # fmt: skip
        engine.handle_max = min(engine.handle_max, self.handle_max)
        return engine

    def _admit(self, mechanism: str, response: bytes, hostname: str | None) -> Verdict:
        self.mechanisms_used.append(mechanism)
        if mechanism in ("ANONYMOUS", "EXTERNAL"):
            return True
        if self.verdict is not None:
            return self.verdict
        user, password = plain_credentials(response) or ("", "")
        return self.users.get(user) == password

    def dispatch(self, address: str) -> None:
        waiting = self.messages[address]
        for consumer in self.consumers[address]:
            while waiting and consumer.link.credit > 0 and not consumer.is_blocked:
                stored = waiting.popleft()
                stored.sink = consumer
                consumer.link.send(stored, stored.payload, consumer.settled, stored.message_format)

    async def drop(self) -> None:
        """Cut every connection."""
        shells, self.shells = self.shells, []
        for shell in shells:
            shell.abort()
        for shell in shells:
            await shell.wait_closed()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            await self.drop()
            await self._listener.wait_closed()
            self._listener = None


@asynccontextmanager
async def serving(path: Path | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    await server.listen(path=path, tls=tls)
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture(name="serving")
def serving_fixture() -> Any:
    return serving


@pytest.fixture(name="until")
def until_fixture() -> Any:
    return until_async


class MemoryNode:
    """A node without processes: its real addresses and links, over a storage in memory.

    Attributes:
        fails: how many of the next commits fail.
        holds: whether nothing is committed for now.
        limits: what transactions may take.
    """

    def __init__(self) -> None:
        self._ids = count(1)
        self.turn = Turn(asyncio.get_running_loop())
        self.storage = MemoryStorage()
        self.core = Core(self.storage, self._request_turn, self._on_fault)
        self.storage.listener = self.core
        self.connections = Connections(lambda: 0)
        self.entities = Entities(self.core, lambda: f"id{next(self._ids)}", self.connections.close_space)
        self.fails = 0
        self.holds = False
        self.limits = TransactionLimits()
        self.url = ""
        self._shells: list[EngineProtocol] = []
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.turn.add_hook(self._run)

    def _request_turn(self) -> None:
        self.turn.begin()

    def _on_fault(self, name: str, error: Exception) -> None:
        raise AssertionError(f"{name} failed") from error

    def _run(self, now: float) -> None:
        self.core.run_turn(now, int(self.turn.wall * 1_000_000))
        if self.storage.pending and not self.holds:
            self.turn.loop.call_soon(self._commit)
        deadline = self.core.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
        if deadline is not None:
            self._timer = self.turn.loop.call_at(deadline, self._on_deadline, deadline)

    def _on_deadline(self, deadline: float) -> None:
        self.core.handle_deadline(max(self.turn.begin(), deadline))

    def _commit(self) -> None:
        while self.storage.pending:
            if self.fails:
                self.fails -= 1
                self.storage.fail()
            else:
                self.storage.commit()

    async def open(self, **addresses: str) -> None:
        """Declare addresses of these types, and listen."""
        self.entities.load()
        wanted: list[tuple[str, str, dict[str, Any]]] = [(SPACE_TYPE, "ns/shop", {})]
        for name, kind in addresses.items():
            asked = {"space": "ns/shop", "address": name, "addressType": kind}
            wanted.append((ADDRESS_TYPE, f"ns/shop.{name}", asked))
        for entity_type, name, asked in wanted:
            done: asyncio.Future[Any] = self.turn.loop.create_future()
            self.entities.create(entity_type, name, asked, done.set_result)
            assert await done is None
        self._listener = await self.turn.loop.create_server(self._shell, "127.0.0.1")
        self.url = f"amqp://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def __getitem__(self, name: str) -> Any:
        return self.entities.spaces["ns/shop"].addresses[name]

    def stored(self, *names: str) -> list[int]:
        return [self[name].counts()["messagesStored"] for name in names]

    def _shell(self) -> EngineProtocol:
        shell = EngineProtocol(self.turn, self._engine)
        self._shells.append(shell)
        return shell

    def _engine(self, shell: EngineProtocol) -> Engine:
        binding = Binding(
            self.connections,
            spaces=lambda: self.entities.spaces,
            fixed=None,
            default=None,
            url=self.url,
            peer=shell.peer,
            limits=self.limits,
        )
        binding.engine = Engine(binding, container_id="node", is_server=True, now=self.turn.now, sasl=binding.sasl())
        self.connections.connected(binding, shell)
        return binding.engine

    def cut(self, container: str) -> None:
        """Cut one client's connection."""
        for shell in self._shells:
            engine: Any = shell.engine
            if engine.remote_open.container_id == container:
                shell.abort()

    async def drop(self) -> None:
        """Cut every connection."""
        shells, self._shells = self._shells, []
        for shell in shells:
            shell.abort()
        for shell in shells:
            await shell.wait_closed()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            await self.drop()
            await self._listener.wait_closed()
        if self._timer is not None:
            self._timer.cancel()


@asynccontextmanager
async def noding(**addresses: str) -> AsyncIterator[MemoryNode]:
    node = MemoryNode()
    await node.open(**addresses)
    try:
        yield node
    finally:
        await node.close()


@pytest.fixture(name="noding")
def noding_fixture() -> Any:
    return noding
