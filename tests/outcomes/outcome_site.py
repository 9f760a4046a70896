"""Where the cells of the outcome matrix are proven: a node, its administrator, and clients over sockets."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Self

from enmasse.client import Connection, Outcome, Receiver, Sender, connect
from enmasse.client.management import Management
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import SALT_BYTES, User, make_keys
from enmasse.identity.users_file import write_users
from enmasse.node.patterns import matcher_of
from tests.support.node_process import NodeProcess

__all__ = ["BANK", "CONNECTOR", "OPEN", "PASSWORD", "Ground", "Site", "names_of"]

OPEN, BANK = "default/open", "default/bank"
"""A space for everybody, and one for its users."""

CONNECTOR = "mill"
"""The connector of both spaces, to the addresses of the open one."""

MECHANISM = "SCRAM-SHA-256"
PASSWORD = "correct horse"

_numbers = count(1)


class Ground:
    """A running node with both spaces.

    Args:
        directory: the node's data.

    Attributes:
        node: the process, which a test may kill if it starts it again.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        users = directory / "users.yaml"
        users.write_text(
            write_users(
                [
                    _user("owner", "#"),
                    _user("guest", "elsewhere"),
                    _user("miller", f"{CONNECTOR}/#"),
                    _user("nobody"),
                ],
                os.urandom(32),
            )
        )
        users.chmod(0o600)
        self.node = NodeProcess(
            directory, "--users", str(users), "--default-space", OPEN, "--allow-insecure-plain",
            "--connector-network", "127.0.0.1/32",
        )  # fmt: skip

    async def prepare(self) -> None:
        """Make the spaces."""
        async with connect(self.node.admin_url, timeout=30, patience=30) as admin:
            management = Management(admin)
            server = {"host": "127.0.0.1", "port": self.node.port}
            connectors = {CONNECTOR: {"servers": [server], "patterns": ["#"]}}
            for space, authentication in {OPEN: "none", BANK: "standard"}.items():
                attributes = {"spaceType": "standard", "authentication": authentication, "connectors": connectors}
                await management.create("io.enmasse.space", space, attributes)


def _user(name: str, *addresses: str) -> User:
    keys = {MECHANISM: make_keys(MECHANISM, PASSWORD, os.urandom(SALT_BYTES), 4_096)}
    grants = [Grant(("send", "recv"), addresses)] if addresses else []
    return User(name, BANK, Permissions(grants, matcher_of), keys)


class Site:
    """What one story uses; an async context manager that closes all of it.

    Attributes:
        management: the administrator's.
        connection: a client in the open space.
    """

    management: Management
    connection: Connection

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._stack = AsyncExitStack()

    @property
    def node(self) -> NodeProcess:
        """The node's process."""
        return self._ground.node

    async def __aenter__(self) -> Self:
        admin = await self._stack.enter_async_context(connect(self.node.admin_url, timeout=30, patience=30))
        self.management = Management(admin)
        self.connection = await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connect(self, *, user: str | None = None) -> Connection:
        """One more client: of the open space, or a user of the other."""
        proof: dict[str, Any] = {"user": user, "password": PASSWORD, "hostname": "bank.default"} if user else {}
        return await self._stack.enter_async_context(connect(self.node.url, timeout=30, reconnect=False, **proof))

    async def declare(self, kind: str, *, space: str = OPEN, **attributes: Any) -> str:
        """Create an address and return it; a subscription gets a topic of its own, ``<address>-topic``."""
        address = f"{kind}-{next(_numbers)}"
        if kind == "subscription":
            await self._create(f"{address}-topic", "topic", space, {})
            attributes["topic"] = f"{address}-topic"
        await self._create(address, kind, space, attributes)
        return address

    async def _create(self, address: str, kind: str, space: str, attributes: dict[str, Any]) -> None:
        asked = {"space": space, "address": address, "addressType": kind, **attributes}
        await self.management.create("io.enmasse.address", f"{space}.{address}", asked)

    async def delete(self, address: str) -> None:
        """Delete an address of the open space."""
        await self.management.delete("io.enmasse.address", f"{OPEN}.{address}")

    async def count(self, address: str, attribute: str) -> Any:
        """A counter of an address of the open space."""
        return (await self.management.read("io.enmasse.address", f"{OPEN}.{address}"))[attribute]

    async def sender(self, address: str | None, **options: Any) -> Sender:
        """A sender of the open space's client."""
        return await self.connection.sender(address, **options)

    async def receiver(self, address: str | None, **options: Any) -> Receiver:
        """A receiver of the open space's client."""
        return await self.connection.receiver(address, **options)

    async def settle(self) -> None:
        """Wait until the node has had a turn with all that was said before, and we have heard its answers."""
        for _ in range(2):
            async with self.connection.receiver(dynamic=True):
                pass

    async def credit(self, sender: Sender) -> int:
        """The credit of a sender once the node has answered."""
        await self.settle()
        return sender.credit


async def names_of(futures: list[asyncio.Future[Outcome]]) -> list[str]:
    """The names of outcomes that come."""
    return [(await future).name for future in futures]
