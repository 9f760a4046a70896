"""Spaces of one node, as a client that is not ours finds them: by host, by port; and a brokered one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from enmasse.client import Message as OurMessage
from enmasse.client import blocking
from enmasse.client.management import ManagementError
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

DOMAIN = "messaging.example.org"
SHOP, FACTORY, BROKER = "default/shop", "default/factory", "default/broker"
TIMEOUT_S = 30


class Site:
    """A node with two spaces, both with a queue ``q``, and a brokered one."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        with blocking.connect(node.admin_url, timeout=TIMEOUT_S) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SHOP, {"hosts": ["MQ.example.org"]})
            management.create("io.enmasse.space", FACTORY, {})
            management.create("io.enmasse.space", BROKER, {"spaceType": "brokered"})
        for space in (SHOP, FACTORY):
            self.declare(space, "q", "queue")

    def declare(self, space: str, address: str, kind: str, **attributes: Any) -> None:
        with blocking.connect(self.node.admin_url, timeout=TIMEOUT_S) as connection:
            everything = {"space": space, "address": address, "addressType": kind, **attributes}
            connection.management().create("io.enmasse.address", f"{space}.{address}", everything)

    def space(self, name: str, **attributes: Any) -> dict[str, Any]:
        """Change a space, and tell what it is like."""
        with blocking.connect(self.node.admin_url, timeout=TIMEOUT_S) as connection:
            if attributes:
                connection.management().update("io.enmasse.space", name, attributes)
            return connection.management().read("io.enmasse.space", name)

    def stored(self, space: str) -> int:
        with blocking.connect(self.node.admin_url, timeout=TIMEOUT_S) as connection:
            return int(connection.management().read("io.enmasse.address", f"{space}.q")["messagesStored"])

    def send(self, host: str | None = None, port: int | None = None) -> None:
        """Send a message to ``q`` of whichever space that means."""
        url = self.node.url if port is None else f"amqp://127.0.0.1:{port}"
        with closing(BlockingConnection(url, timeout=TIMEOUT_S, virtual_host=host)) as connection:
            connection.create_sender("q").send(Message(body="x"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with NodeProcess(tmp_path_factory.mktemp("tenancy"), "--domain", DOMAIN) as node:
        yield Site(node)
        assert "Traceback" not in node.log, node.log


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_listening(port: int, *, is_open: bool) -> None:
    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    until(lambda: listens() is is_open)


@pytest.mark.parametrize(
    ("host", "space"),
    [
        (f"shop.default.{DOMAIN}", SHOP),
        (f"Factory.Default.{DOMAIN}", FACTORY),
        ("shop.default", SHOP),
        ("mq.example.org", SHOP),
    ],
)
def test_a_host_names_a_space(site: Site, host: str, space: str) -> None:
    before = {name: site.stored(name) for name in (SHOP, FACTORY)}
    site.send(host)
    after = {name: site.stored(name) for name in (SHOP, FACTORY)}
    assert after == {**before, space: before[space] + 1}


def test_an_unknown_host_below_the_domain_is_refused(site: Site) -> None:
    with pytest.raises(ConnectionException, match=r"amqp:not-found.*names no space"):
        site.send(f"nobody.default.{DOMAIN}")


@pytest.mark.parametrize("host", ["nobody.default", "shop.nowhere"])
def test_a_misspelt_space_is_refused(site: Site, host: str) -> None:
    with pytest.raises(ConnectionException, match=r"amqp:not-found.*names no space"):
        site.send(host)


def test_hosts_are_changed_while_the_node_runs_and_belong_to_one_space(site: Site) -> None:
    with pytest.raises(ManagementError, match=r"'mq\.example\.org' stands for another space already"):
        site.space(FACTORY, hosts=["mq.example.org"])
    site.space(FACTORY, hosts=["factory.example.org"])
    before = site.stored(FACTORY)
    site.send("factory.example.org")
    assert site.stored(FACTORY) == before + 1
    site.space(FACTORY, hosts=None)
    with pytest.raises(ConnectionException, match="names no space"):
        site.send("factory.example.org")


def test_a_space_has_a_port_of_its_own_while_the_node_runs(site: Site) -> None:
    port = free_port()
    site.space(FACTORY, port=port)
    until_listening(port, is_open=True)
    before = site.stored(FACTORY)
    site.send(port=port)
    assert site.stored(FACTORY) == before + 1
    for host in ("shop.default", "mq.example.org"):
        with pytest.raises(ConnectionException, match="amqp:not-allowed"):
            site.send(host, port)
    site.space(SHOP, port=port)
    until(lambda: "portProblem" in site.space(SHOP))
    problem = site.space(SHOP)["portProblem"]
    assert problem.startswith(f"port {port} belongs to another space already")
    with blocking.connect(site.node.admin_url, timeout=TIMEOUT_S) as connection:
        (health,) = connection.management().query("io.enmasse.health")
    assert (health["ready"], health["problems"]) == (True, [f"ports of spaces: {problem}"])
    site.space(FACTORY, port=0)
    site.space(SHOP, port=0)
    until_listening(port, is_open=False)


def test_a_brokered_space_keeps_order_and_has_transactions_over_all_of_it(site: Site) -> None:
    for address, kind, more in (
        ("q", "queue", {}),
        ("t", "topic", {}),
        ("s", "subscription", {"topic": "t"}),
        ("dead", "deadletter", {}),
    ):
        site.declare(BROKER, address, kind, **more)
    for kind in ("anycast", "multicast"):
        with pytest.raises(ManagementError, match="is brokered, which has queue, topic, subscription, deadletter"):
            site.declare(BROKER, kind, kind)
    host = f"broker.default.{DOMAIN}"
    with blocking.connect(site.node.url, hostname=host, timeout=TIMEOUT_S) as connection:
        with connection.sender("q") as queue, connection.sender("t") as topic:
            for number in range(300):
                queue.send(OurMessage(number, durable=True))
            with connection.transaction() as transaction:
                queue.send(OurMessage("both", durable=True), transaction=transaction)
                topic.send(OurMessage("both", durable=True), transaction=transaction)
            with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:  # noqa: PT012
                queue.send(OurMessage("never", durable=True), transaction=transaction)
                topic.send(OurMessage("never", durable=True), transaction=transaction)
                _ = 1 / 0
        found: dict[str, list[Any]] = {}
        for address, count in (("q", 301), ("s", 1)):
            with connection.receiver(address) as receiver:
                found[address] = []
                for _ in range(count):
                    delivery = receiver.receive(timeout=TIMEOUT_S)
                    assert delivery is not None
                    found[address].append(delivery.message.body)
                    delivery.accept()
        assert found == {"q": [*range(300), "both"], "s": ["both"]}
