"""Our client and a real node: TLS, WebSocket, users, and what is said when something is wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import (
    ConnectionDeniedError,
    LinkRefusedError,
    Message,
    Outcome,
    TlsError,
    TlsOptions,
    UnavailableError,
    blocking,
)
from enmasse.drivers.authority import Authority
from tests.interop.test_interop_users import PASSWORD, declare, run_user
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow


class Guarded:
    """A node with TLS and users, and how to reach it."""

    def __init__(self, node: NodeProcess, authority: Authority) -> None:
        self.node = node
        self.trust = TlsOptions(ca_file=authority.path)

    def connect(self, scheme: str = "amqps", **options: Any) -> blocking.Connection:
        asked: dict[str, Any] = {
            "tls": self.trust, "user": "jo", "password": PASSWORD, "hostname": "shop.default",
            "timeout": 30, **options,
        }  # fmt: skip
        return blocking.connect(f"{scheme}://127.0.0.1:{self.node.port}", **asked)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory / "tls")
    authority.keep_server_certificate("default", ["127.0.0.1", "localhost", "mq.example.org"])
    users = directory / "users.yaml"
    may = ("--send", "orders", "--recv", "orders")
    run_user("add", "jo", "--space", "shop", "--users", str(users), *may)
    with NodeProcess(directory / "data", "--users", str(users), "--tls", str(directory / "tls")) as node:
        with blocking.connect(node.admin_url, timeout=30, patience=30) as connection:
            declare(connection.management())
        yield Guarded(node, authority)
        assert "Traceback" not in node.log, node.log


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "amqpws", "amqpwss", "ws", "wss"])
def test_messages_travel_over_every_transport(guarded: Guarded, scheme: str) -> None:
    with guarded.connect(scheme) as connection:
        bodies = [bytes([n]) * 10 ** (n % 6) for n in range(12)]
        outcomes = connection.sender("orders").send_all((Message(body) for body in bodies), timeout=30)
        assert set(outcomes) == {Outcome.ACCEPTED}
        receiver = connection.receiver("orders")
        for body in bodies:
            delivery = receiver.receive(timeout=30)
            assert delivery is not None
            assert delivery.message.body == body
            delivery.accept()


def test_an_unknown_authority_is_told(guarded: Guarded, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    stranger.keep_server_certificate("default", ["localhost"])
    for tls in (None, TlsOptions(ca_file=stranger.path)):
        with pytest.raises(TlsError, match=r"authority that is not known here: give TlsOptions\(ca_file="):
            guarded.connect(tls=tls)


def test_bad_credentials_are_told(guarded: Guarded) -> None:
    with pytest.raises(ConnectionDeniedError, match=r"refused the credentials \(SCRAM-SHA-512\)") as caught:
        guarded.connect(password="wrong", patience=30)
    assert caught.value.condition == "amqp:unauthorized-access"
    assert "wrong" not in str(caught.value)
    with pytest.raises(ConnectionDeniedError, match="nobody in without a name: give user= and password="):
        guarded.connect(user=None, password=None)


def test_an_address_that_is_unknown_or_forbidden_is_told(guarded: Guarded) -> None:
    with guarded.connect() as connection:
        with pytest.raises(LinkRefusedError, match=r"'orders\.typo'") as caught:
            connection.sender("orders.typo")
        assert caught.value.condition in {"amqp:not-found", "amqp:unauthorized-access"}
        with pytest.raises(LinkRefusedError, match="'stock'") as caught:
            connection.receiver("stock")
        assert caught.value.condition == "amqp:unauthorized-access"
        connection.sender("orders").send(Message(b"the connection is fine"), timeout=30)


def test_a_port_where_nobody_listens_is_told() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for scheme in ("amqp", "amqps", "amqpws"):
            url = f"{scheme}://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(UnavailableError, match="connection refused: nothing listens there") as caught:
                blocking.connect(url)
            assert url in str(caught.value)


def test_a_node_comes_back_over_tls_and_websocket(guarded: Guarded) -> None:
    for scheme in ("amqps", "amqpwss"):
        with guarded.connect(scheme) as connection:
            sender = connection.sender("orders", resume=True)
            guarded.node.kill()
            waiting = sender.send_nowait(Message(b"patient", durable=True))
            guarded.node.start()
            assert waiting.result(60) == Outcome.ACCEPTED
