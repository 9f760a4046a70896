"""One node for all classes of holes: with users, and a space for everybody beside theirs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, create_app
from enmasse.client import blocking
from enmasse.control.access.accounts import Accounts, WebPasswords
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.authority import Authority
from tests.interop.test_interop_users import PASSWORD, run_user
from tests.support.node_process import NodeProcess

TIMEOUT_S = 30.0
MEGABYTE = 1 << 20
SHOP, OPEN = "shop.default", "open.default"
KINDS = {"stock": "queue", "other": "queue", "news": "topic", "log": "stream", "any": "anycast"}


@dataclass
class Place:
    """The node, and what strangers say to it."""

    node: NodeProcess
    users: Path
    authority: Authority
    management: Any

    def stored(self, space: str, address: str) -> int:
        found: int = self.management.read("io.enmasse.address", f"default/{space}.{address}")["messagesStored"]
        return found

    def socket(self, address: str = "127.0.0.1") -> socket.socket:
        """A connection from an address of the loopback interface."""
        made = socket.create_connection(("127.0.0.1", self.node.port), TIMEOUT_S, (address, 0))
        made.settimeout(TIMEOUT_S)
        return made

    def say(self, data: bytes, *, address: str = "127.0.0.1", enough: bytes | Callable[[bytes], bool] = b"") -> bytes:
        """Say something and nothing more; what is answered until the node hangs up, or enough was heard."""
        is_enough = enough if callable(enough) else (lambda heard: bool(enough) and enough in heard)
        with self.socket(address) as peer:
            heard = b""
            try:
                peer.sendall(data)
                if not enough:
                    peer.shutdown(socket.SHUT_WR)
                while not is_enough(heard) and (more := peer.recv(65_536)):
                    heard += more
            except TimeoutError:
                raise
            except OSError:
                pass  # it has hung up, maybe while it was spoken to
            return heard

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.path))

    def connect(self, space: str = OPEN, **options: Any) -> blocking.Connection:
        given: dict[str, Any] = {"hostname": space, "timeout": TIMEOUT_S, "reconnect": False}
        return blocking.connect(f"amqp://127.0.0.1:{self.node.port}", **(given | options))

    def lives(self) -> None:
        """Check that the node serves others as before: a message there and back."""
        with self.connect() as connection:
            receiver = connection.receiver("other")
            assert connection.sender("other").send(blocking.Message("still here")) == blocking.Outcome.ACCEPTED
            delivery = receiver.receive(TIMEOUT_S)
            assert delivery is not None
            assert delivery.message.body == "still here"
            delivery.accept()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("cve")
    authority = Authority(directory / "tls")
    authority.keep_server_certificate("default", ["127.0.0.1", "localhost", SHOP, OPEN])
    users = directory / "users.yaml"
    few = ("--space", "shop", "--users", str(users), "--iterations", "4096")
    own = ("--send", "own/${username}/#", "--recv", "own/${username}/#")
    run_user("add", "jo", *few, "--send", "stock", "--recv", "stock", "--recv", "news/open/#", *own)
    run_user("add", "press", *few, "--send", "news/#")
    for name in ("guessed", "+", ".*"):
        run_user("add", name, *few, *own)
    run_user("add", "card", *few, "--certificate", "card.example.com", "--recv", "stock")
    arguments = ("--users", str(users), "--tls", str(authority.directory), "--allow-insecure-plain")
    with NodeProcess(directory / "data", *arguments) as node:
        connection = blocking.connect(node.admin_url, timeout=TIMEOUT_S, patience=TIMEOUT_S)
        try:
            management = connection.management()
            for space, authentication in (("shop", "standard"), ("open", "none")):
                management.create("io.enmasse.space", f"default/{space}", {"authentication": authentication})
                for address, kind in KINDS.items():
                    asked = {"space": f"default/{space}", "address": address, "addressType": kind}
                    management.create("io.enmasse.address", f"default/{space}.{address}", asked)
            yield Place(node, users, authority, management)
        finally:
            connection.close()
        assert "Traceback" not in node.log, node.log


def basic(user: str, password: str = PASSWORD) -> str:
    """The value of ``Authorization``."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


__all__ = ["KINDS", "MEGABYTE", "OPEN", "PASSWORD", "SHOP", "Place", "basic"]


class Api:
    """The API of an installation with one account, ``tina``, which was granted nothing."""

    def __init__(self, directory: Path, app: Any, token: str) -> None:
        self.directory = directory
        self.token = token
        self._app = app

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, client=("192.0.2.7", 40_000))
            async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("api")
    passwords = WebPasswords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    with (
        ResourceStore(directory / "resources.db") as store,
        Accounts(directory / "access.db", now=lambda: 1_000.0) as accounts,
    ):
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: "uid")
        accounts.add("tina", password_hash=passwords.hash(PASSWORD))
        token = accounts.create_token("tina").secret
        authenticator = Authenticator(accounts, is_required=True, passwords=passwords)
        app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), authenticator=authenticator))
        yield Api(directory, app, token)
