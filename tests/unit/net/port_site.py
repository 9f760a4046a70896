"""A port over real sockets whose engines are scripts, and its peers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from enmasse.drivers.authority import Authority
from enmasse.net.certificates import CertificateStore
from enmasse.net.connection_limiter import ConnectionLimiter, ConnectionLimits
from enmasse.net.listener import Port
from enmasse.net.loop import Turn
from enmasse.net.origins import host_refusal
from enmasse.net.proxy_layer import Proxies
from enmasse.net.transport import EngineProtocol
from enmasse.node.health_port import HealthHandler
from enmasse.node.protocols import PROTOCOLS

HEADER = b"AMQP\x00\x01\x00\x00"

AMQP = PROTOCOLS["amqp"].signature


class Site:
    """A port whose engines are scripts."""

    def __init__(
        self, port: int, limiter: ConnectionLimiter, directory: Path | None, store: CertificateStore | None
    ) -> None:
        self.port = port
        self.limiter = limiter
        self.directory = directory
        self.store = store
        self.shells: list[EngineProtocol] = []
        self.engines: list[Any] = []
        self.peers: list[Peer] = []
        self.proxies: Any = None

    async def connect(
        self, tls: ssl.SSLContext | None = None, name: str = "localhost", address: str = "127.0.0.1"
    ) -> Peer:
        host = None if tls is None else name
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname=host, local_addr=(address, 0)
        )
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]

    def trusting(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        assert self.directory is not None
        context = ssl.create_default_context(cafile=str(self.directory / "authority" / "ca.crt"))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes) -> bytes:
        """Say something, and hear everything until the end."""
        self.writer.write(data)
        return await self.hear()

    async def hear(self) -> bytes:
        try:
            async with asyncio.timeout(60):
                return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@asynccontextmanager
async def site(
    script: Any,
    directory: Path | None = None,
    limits: ConnectionLimits | None = None,
    proxies: Proxies | None = None,
) -> AsyncIterator[Site]:
    loop = asyncio.get_running_loop()
    turn = Turn(loop)
    limiter = ConnectionLimiter(turn, limits or ConnectionLimits())
    if directory is not None:
        Authority(directory).keep_server_certificate("default", ("localhost", "127.0.0.1"))
    store = None if directory is None else CertificateStore(directory)
    made = Site(0, limiter, directory, store)

    def make_engine(shell: EngineProtocol) -> Any:
        engine = script()
        made.shells.append(shell)
        made.engines.append(engine)
        return engine

    def answer(target: str) -> tuple[int, str] | None:
        return (200, f"{target} is well\n") if target == "/healthz" else None

    def refuse_host(host: str | None, _transport: object) -> str | None:
        return host_refusal(host, ("127.0.0.1", 1), lambda name: name == "here", is_open=False)

    def make_http(shell: EngineProtocol) -> Any:
        return HealthHandler(turn.now, answer, lambda host: refuse_host(host, shell.transport)).engine

    made_by = {AMQP: make_engine, PROTOCOLS["http"].signature: make_http}
    context = None if store is None else store.context
    own = Port(turn, {PROTOCOLS["http"].signature: make_http}, limiter, refuse_host, context)
    port = Port(turn, made_by, limiter, refuse_host, context, proxies=None if proxies is None else (proxies, own))
    server = await loop.create_server(port.make_protocol, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        for peer in made.peers:
            await peer.close()
        if proxies is not None:
            proxies.shut()
        limiter.shut()
        for shell in made.shells:
            shell.abort()
            await shell.wait_closed()
        async with asyncio.timeout(60):
            while len(limiter):
                await asyncio.sleep(0.01)
        server.close()
        await server.wait_closed()
        if store is not None:
            store.close()
