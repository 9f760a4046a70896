"""Two nodes and an address whose home is the second: links that come to the first are sent there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client import Message, Outcome, blocking
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    with NodeProcess(tmp_path / "front") as front, NodeProcess(tmp_path / "home") as home:
        yield front, home


def declare(node: NodeProcess, **attributes: str) -> None:
    """Make the queue ``orders`` on a node."""
    with blocking.connect(node.admin_url, timeout=30, patience=30) as admin:
        management = admin.management()
        management.create("io.enmasse.space", "default/shop", {"spaceType": "standard", "authentication": "none"})
        asked = {"space": "default/shop", "address": "orders", "addressType": "queue", **attributes}
        management.create("io.enmasse.address", "default/shop.orders", asked)


def stored(node: NodeProcess) -> int:
    with blocking.connect(node.admin_url, timeout=30, patience=30) as admin:
        return int(admin.management().read("io.enmasse.address", "default/shop.orders")["messagesStored"])


def test_a_client_is_sent_to_the_home_of_an_address(nodes: tuple[NodeProcess, NodeProcess]) -> None:
    front, home = nodes
    declare(front, home=home.url)
    declare(home)
    with blocking.connect(front.url, timeout=30) as connection:
        sender = connection.sender("orders")
        assert sender.send(Message("to the home"), timeout=30) == Outcome.ACCEPTED
        assert (stored(front), stored(home)) == (0, 1)
        delivery = connection.receiver("orders").receive(30)
        assert delivery is not None
        assert delivery.message.body == "to the home"
        delivery.accept()
        # A message says its address by itself; the link stays, so the sender is told where to send it.
        outcome = connection.sender(None).send(Message("m", to="orders"), timeout=30)
        assert (outcome.name, outcome.condition) == ("rejected", "amqp:link:redirect")


def test_links_move_when_the_home_moves(nodes: tuple[NodeProcess, NodeProcess]) -> None:
    front, home = nodes
    for node in nodes:
        declare(node)
    with blocking.connect(front.url, timeout=30) as connection:
        sender = connection.sender("orders")
        assert sender.send(Message("here"), timeout=30) == Outcome.ACCEPTED
        with blocking.connect(front.admin_url, timeout=30) as admin:
            admin.management().update("io.enmasse.address", "default/shop.orders", {"home": home.url})
        assert sender.send(Message("there"), timeout=30) == Outcome.ACCEPTED
        assert (stored(front), stored(home)) == (1, 1)
