"""Messaging users in a whole installation: foreign clients come in by them, and no further than they may."""

from __future__ import annotations

import json
import os
import signal
import threading
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client import ConnectionDeniedError, Message, blocking
from enmasse.client.errors import RemoteError
from enmasse.errors import EnmasseError, UnavailableError
from tests.support.foreign_tools import require
from tests.support.installation import NODES, Installation
from tests.support.node_process import NodeProcess
from tests.support.polling import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
PATIENCE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def _proton() -> None:
    require("python-qpid-proton with SASL and TLS")


@pytest.fixture(scope="module")
def place(installation: Installation) -> Installation:
    """An installation with two guarded spaces, of which one has users; the last test stops it."""
    installation.be_empty()
    for space in ("shop", "factory"):
        installation.ok("create", "space", space, "--authentication", "standard")
        installation.ok("create", "address", "orders", "--type", "queue", "--space", space)
    for name, *more in (("maker", "--recv", "own/${username}/#"), ("boss", "--manage"), ("changer",)):
        installation.ok("create", "user", name, "--space", "shop", "--send", "orders", *more, stdin=PASSWORD)
    return installation


def knock(place: Installation, user: str, password: str, *, mechanism: str, is_private: bool = False) -> Any:
    """A connection of python-qpid-proton, if it is let in."""
    from proton import SSLDomain
    from proton.utils import BlockingConnection

    domain = None
    if is_private:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(place.data / "tls" / "authority" / "ca.crt"))
        domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
    port = place.url("amqp").rpartition(":")[2]
    return BlockingConnection(
        f"{'amqps' if is_private else 'amqp'}://127.0.0.1:{port}",
        user=user,
        password=password,
        allowed_mechs=mechanism,
        ssl_domain=domain,
        timeout=PATIENCE_S,
    )


def connect(url: str, user: str = "maker", password: str = PASSWORD, space: str = "shop") -> blocking.Connection:
    return blocking.connect(url, user=user, password=password, hostname=f"{space}.default", patience=PATIENCE_S)


def is_in(url: str, user: str = "maker", password: str = PASSWORD, space: str = "shop") -> bool:
    try:
        with blocking.connect(url, user=user, password=password, hostname=f"{space}.default", reconnect=False):
            return True
    except EnmasseError:
        return False


def test_foreign_clients_come_in_and_go_no_further(place: Installation) -> None:
    from proton import ConnectionException
    from proton import Message as ProtonMessage
    from proton.utils import LinkDetached

    for mechanism, is_private in (
        ("SCRAM-SHA-256", False),
        ("SCRAM-SHA-512", True),
        ("PLAIN", True),
        ("PLAIN", False),
    ):
        connection = knock(place, "maker@shop.default", PASSWORD, mechanism=mechanism, is_private=is_private)
        connection.create_sender("orders").send(ProtonMessage(body=mechanism))
        with pytest.raises(LinkDetached, match="unauthorized"):
            connection.create_receiver("orders")
        with pytest.raises(LinkDetached, match="unauthorized"):
            connection.create_sender("own/boss/1")
        connection.close()
    for user, password, mechanism, is_private in (
        ("maker@shop.default", "wrong", "SCRAM-SHA-256", False),
        ("maker@factory.default", PASSWORD, "SCRAM-SHA-256", False),
        ("nobody@shop.default", PASSWORD, "PLAIN", True),
    ):
        with pytest.raises(ConnectionException):
            knock(place, user, password, mechanism=mechanism, is_private=is_private)
    with connect(place.url("amqp")) as connection:
        # The name that it carries is the user's own; another's is none of its.
        with pytest.raises(RemoteError, match="not-found"):
            connection.receiver("own/maker/1")
        with pytest.raises(RemoteError, match="unauthorized"):
            connection.receiver("own/boss/1")


def test_who_may_use_an_address_is_told_why_it_is_not_there_yet(place: Installation) -> None:
    waiting = {"address": "own/maker/later", "type": "queue", "plan": "nope"}
    document = {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": {"name": "shop.later"}}
    place.ok("apply", "-f", "-", stdin=json.dumps(document | {"spec": waiting}))

    def said(user: str, form: str) -> str:
        login: dict[str, Any] = {"user": user, "password": PASSWORD, "hostname": "shop.default", "reconnect": False}
        with blocking.connect(place.url("amqp"), **login) as connection, pytest.raises(RemoteError) as refused:
            getattr(connection, form)("own/maker/later", timeout=10)
        return str(refused.value)

    try:
        until(lambda: "unknown address plan 'nope'" in said("maker", "receiver"))
        for user, form in (("maker", "sender"), ("changer", "receiver")):
            told = said(user, form)
            assert "may not" in told
            assert "plan" not in told
    finally:
        place.ok("delete", "address", "shop.later")


def test_what_changes_of_a_user_reaches_its_connections(place: Installation, tmp_path: Path) -> None:
    url = place.url("amqp")
    connection = blocking.connect(url, user="changer", password=PASSWORD, hostname="shop.default", reconnect=False)
    sender = connection.sender("orders")
    sender.send(Message("one"))
    manifest = tmp_path / "changer.json"
    user = json.loads(place.ok("get", "user", "shop.changer", "-o", "json"))
    user["spec"]["authorization"] = [{"operations": ["recv"], "addresses": ["orders"]}]
    manifest.write_text(json.dumps({key: user[key] for key in ("apiVersion", "kind", "metadata", "spec")}))
    place.ok("apply", "-f", str(manifest))

    def is_refused() -> bool:
        try:
            sender.send(Message("more"), timeout=PATIENCE_S)
        except RemoteError as error:
            return "unauthorized" in str(error)
        return False

    until(is_refused)
    assert connection.receiver("orders").receive(timeout=PATIENCE_S) is not None

    place.ok("passwd", "shop.changer", stdin="another one\n")
    until(lambda: is_in(url, "changer", "another one"))
    assert not is_in(url, "changer")
    with pytest.raises(EnmasseError):
        connection.sender("orders")
    connection.close()

    third = connect(url, "changer", "another one")
    place.ok("delete", "user", "changer", "--space", "shop")
    until(lambda: not is_in(url, "changer", "another one"))
    third.close()
    assert b"another one" not in b"".join(path.read_bytes() for path in place.data.rglob("*") if path.is_file())


def test_who_manages_a_space_does_so_by_its_own_management(place: Installation) -> None:
    url = place.url("amqp")
    place.ok("create", "address", "orders-too", "--type", "queue", "--space", "factory")
    with connect(url, "boss") as boss, connect(url) as maker:
        sender = boss.sender("orders")
        desk = boss.management()
        desk.purge("orders")
        for number in range(3):
            sender.send(Message(str(number)))
        (orders,) = desk.query("io.enmasse.address", ["address", "space", "messagesStored"])
        assert orders == {"address": "orders", "space": "default/shop", "messagesStored": 3}
        assert {item["user"] for item in desk.query("io.enmasse.connection")} == {"boss", "maker"}
        assert desk.purge("orders") == 3
        with pytest.raises(RemoteError, match="404"):
            desk.purge("default/factory.orders")
        with pytest.raises(RemoteError, match="unauthorized"):
            maker.management().query("io.enmasse.address")


def test_users_are_all_there_after_control_was_killed_on_the_way(place: Installation, tmp_path: Path) -> None:
    place.ok("create", "space", "yard", "--authentication", "standard")
    names = [f"u{number}" for number in range(40)]
    password = b64encode(PASSWORD.encode()).decode()
    manifest = tmp_path / "users.yaml"
    manifest.write_text(
        "---\n".join(
            f"apiVersion: user.enmasse.io/v1beta1\nkind: MessagingUser\nmetadata: {{name: yard.{name}}}\n"
            f"spec: {{username: {name}, authentication: {{type: password, password: {password}}}}}\n"
            for name in names
        )
    )
    killed = threading.Timer(0.7, lambda: os.kill(place.pid("control"), signal.SIGKILL))
    killed.start()
    place.run("apply", "-f", str(manifest))
    killed.join()
    place.ok("status", "--wait", "150")
    until(lambda: place.run("apply", "-f", str(manifest)).code == 0)

    def all_active() -> bool:
        done = place.run("get", "users", "-o", "json")
        items = json.loads(done.out)["items"] if done.code == 0 else []
        phases = {item["spec"]["username"]: item.get("status", {}).get("phase") for item in items}
        return all(phases.get(name) == "Active" for name in names)

    until(all_active)
    url = place.url("amqp")
    assert is_in(url, names[0], space="yard")
    assert is_in(url, names[-1], space="yard")
    place.ok("delete", "space", "yard")
    until(lambda: "yard." not in place.ok("get", "users", "-o", "json"))
    with pytest.raises((ConnectionDeniedError, UnavailableError, RemoteError)):
        blocking.connect(url, user=names[0], password=PASSWORD, hostname="yard.default", reconnect=False)


@pytest.mark.skipif(NODES > 1, reason="it starts the first node alone, where no space is at home")
def test_a_node_lets_users_in_without_control(place: Installation) -> None:
    until(lambda: is_in(place.url("amqp"), "boss"))
    place.stop()
    with NodeProcess(place.data) as node:
        with connect(node.url, "boss") as connection:
            connection.sender("orders").send(Message("still here"))
        assert not is_in(node.url, "boss", "wrong")
        node.kill()
        node.start()
        assert is_in(node.url, "boss")
