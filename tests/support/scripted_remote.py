"""A container on our own engine that does what a test scripts, right or wrong; by default it takes every message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from enmasse.message.outcomes import ACCEPTED, AmqpError
from enmasse.net.loop import Turn
from enmasse.net.transport import EngineProtocol
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Open
from enmasse.wire.amqp.sasl import SaslServer
from enmasse.wire.amqp.session import Session


class Message:
    """A message that was sent, and its outcome."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink


class Sink:
    """The sink of every link: hands what comes to the remote."""

    def __init__(self, remote: ScriptedRemote, link: Any) -> None:
        self.remote = remote
        self.link = link

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, _message_format: int) -> None:
        self.remote.on_message(self.link, payload, delivery_id, settled)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, _message_format: int) -> None:
        self.remote.on_message(self.link, payload, delivery_id, settled)

    def on_exhausted(self) -> None: ...

    def on_given_up(self, credit: int) -> None: ...

    def on_available(self, available: int) -> None: ...

    def on_credit(self, gained: int, drain: bool) -> None:
        self.remote.on_credit(self.link, gained, drain)

    def count_available(self) -> int | None:
        return None

    def on_blocked(self, blocked: bool) -> None: ...

    def confirm(self, done: Callable[[], None]) -> None:
        done()

    def on_outcome(self, _delivery: Message, state: Any) -> None:
        self.remote.outcomes.append(state)

    def send(self, payload: bytes, *, settled: bool = False) -> None:
        self.link.send(None if settled else Message(self), payload, settled)


class ScriptedRemote:
    """A listener whose connections, sessions and links are answered by methods that a script overrides."""

    credit = 100
    properties: Mapping[str, str] = MappingProxyType({})

    def __init__(self) -> None:
        self.turn = Turn(asyncio.get_running_loop())
        self.shells: list[EngineProtocol] = []
        self.engines: list[Connection] = []
        self.attaches: list[Attach] = []
        self.links: list[Link] = []
        self.detached: list[tuple[str, bool]] = []
        self.arrived: list[bytes] = []
        self.outcomes: list[Any] = []
        self._listener: asyncio.Server | None = None

    async def listen(self) -> None:
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: EngineProtocol(self.turn, self._engine), "127.0.0.1", 0
        )

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def _engine(self, shell: EngineProtocol) -> Connection:
        self.shells.append(shell)
        engine = Connection(
            self,  # type: ignore[arg-type]
            container_id="remote",
            is_server=True,
            now=self.turn.now,
            properties=dict(self.properties),
            sasl=SaslServer(["ANONYMOUS"], lambda *_login: True, is_optional=True),
        )
        self.engines.append(engine)
        self.on_connected(engine)
        return engine

    async def close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for shell in self.shells:
            shell.abort()
        for shell in self.shells:
            await shell.wait_closed()
        await self._listener.wait_closed()

    @property
    def open_sessions(self) -> int:
        return sum(len(engine.sessions) for engine in self.engines if not engine.closed)

    @property
    def open_links(self) -> int:
        live = [engine for engine in self.engines if not engine.closed]
        return sum(len(session.handles) for engine in live for session in engine.sessions.values())

    @staticmethod
    def name_of(link: Link) -> str:
        """The address that the peer has named."""
        attach = link.remote_attach
        assert attach is not None
        terminus: Any = attach.target if isinstance(link, ReceivingLink) else attach.source
        return str(terminus.address)

    # What a script overrides

    def on_connected(self, engine: Connection) -> None: ...

    def on_opened(self, connection: Connection, _remote: Open) -> None:
        connection.open()

    def on_begun(self, session: Session) -> None: ...

    def on_attach(self, link: Link, attach: Attach) -> None:
        self.attaches.append(attach)
        self.links.append(link)
        link.accept(Sink(self, link), source=attach.source, target=attach.target)
        if isinstance(link, ReceivingLink):
            link.grant(self.credit)

    def on_message(self, link: ReceivingLink, payload: bytes, delivery_id: int, settled: bool) -> None:
        self.arrived.append(payload)
        if not settled:
            link.settle(delivery_id, ACCEPTED)
        if 2 * link.credit < self.credit:
            link.grant(self.credit)

    def on_credit(self, link: SendingLink, gained: int, drain: bool) -> None: ...

    def on_attached(self, link: Link) -> None: ...

    def on_detached(self, link: Link, _error: AmqpError | None, closed: bool) -> None:
        self.detached.append((link.name, closed))

    def on_ended(self, session: Session, error: AmqpError | None) -> None: ...

    def on_closed(self, error: AmqpError | None) -> None: ...


@asynccontextmanager
async def listening(remote: ScriptedRemote) -> AsyncIterator[ScriptedRemote]:
    """Have a remote listen for as long as it is needed."""
    await remote.listen()
    try:
        yield remote
    finally:
        await remote.close()
