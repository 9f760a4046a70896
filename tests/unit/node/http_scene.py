"""A node that is asked by HTTP over sockets, with an open space, and one for its users."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client import Connection, connect
from enmasse.client.link import Opening
from enmasse.drivers.authority import Authority
from enmasse.identity.login import TokenAuthority
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.net.loop import run
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.patterns import matcher_of
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from enmasse.node.users.gate import GateOptions

SCRAM = "SCRAM-SHA-256"
SHOP, OPEN = "ns/shop", "ns/open"
ADDRESSES = {"orders": "queue", "a/b\u00fc": "queue", "any": "anycast", "log": "stream", "news": "topic"}


def user(name: str, *addresses: str, certificates: tuple[str, ...] = ()) -> User:
    """A user whose password is its name and ``-secret``."""
    keys = {SCRAM: make_keys(SCRAM, f"{name}-secret", b"salt", 4096)}
    return User(
        name, SHOP, Permissions([Grant(("send", "recv"), addresses)], matcher_of), keys, certificates=certificates
    )


class Scene:
    """A running node."""

    is_http2 = False
    """True if its clients speak HTTP/2."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.port = 0

    async def create(self, kind: str, name: str, **attributes: Any) -> None:
        stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.server.entities.create(kind, name, attributes, stored.set_result)
        assert await stored is None

    def set_users(self, *users: User) -> None:
        self.server._set_users(Users(users, b"seed"))

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.directory / "authority" / "ca.crt"))

    def client(self, space: str = "open.ns", **options: Any) -> httpx.AsyncClient:
        """A client whose paths begin behind ``addresses``."""
        base = f"{'https' if 'verify' in options else 'http'}://localhost:{self.port}/v1/spaces/{space}/addresses/"
        # One that speaks no TLS need not read all authorities, which takes longer than most tests.
        further = {"http1": not self.is_http2, "http2": self.is_http2, "verify": False}
        return httpx.AsyncClient(base_url=base, timeout=60, trust_env=False, **(further | options))

    def amqp(self) -> Opening[Connection]:
        """A client of AMQP in the open space."""
        return connect(f"amqp://127.0.0.1:{self.port}", hostname="open.ns", reconnect=False)


@pytest.fixture(autouse=True, params=["HTTP/1.1", "HTTP/2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version that the clients of a scene speak."""
    monkeypatch.setattr(Scene, "is_http2", request.param == "HTTP/2")
    found: str = request.param
    return found


def play(
    directory: Path, story: Callable[[Scene], Awaitable[None]], tokens: TokenAuthority | None = None, **options: Any
) -> None:
    """Have a story told at a node of its own."""

    async def main() -> None:
        tls = directory / "tls"
        Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1"))
        gate = GateOptions(allow_insecure_plain=True)
        server = Server(directory / "node", "node", ports=PortOptions(tls=tls, **options), gate=gate, tokens=tokens)
        await server.load()
        try:
            async with asyncio.timeout(60):
                scene = Scene(server, tls)
                scene.port = await server.listen("127.0.0.1", 0, protocol="http")
                await scene.create(SPACE_TYPE, SHOP, authentication="standard")
                await scene.create(SPACE_TYPE, OPEN)
                for space in (SHOP, OPEN):
                    for address, kind in ADDRESSES.items():
                        await scene.create(
                            ADDRESS_TYPE, f"{space}.{address}", space=space, address=address, addressType=kind
                        )
                await story(scene)
        finally:
            await server.stop()

    run(main())


def basic(name: str) -> dict[str, str]:
    """The header that proves a user."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{name}-secret".encode()).decode()}
