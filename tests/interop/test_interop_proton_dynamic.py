"""Dynamic nodes as python-qpid-proton asks for them: lifetimes, kinds, and replies between its clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Described, Message, symbol, ulong
from proton.reactor import DynamicNodeProperties, ReceiverOption
from proton.utils import BlockingConnection, LinkDetached

from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

DELETE_ON_NO_LINKS, DELETE_ON_NO_LINKS_OR_MESSAGES = 0x2C, 0x2E


class Capability(ReceiverOption):
    """Asks for a kind of node."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_symbol(self.name)


def lifetime(code: int) -> Any:
    return DynamicNodeProperties({symbol("lifetime-policy"): Described(ulong(code), [])})


@pytest.fixture
def connection(node: NodeProcess) -> Iterator[Any]:
    with closing(BlockingConnection(node.url, timeout=30)) as found:
        yield found


def made(connection: Any, *options: Any) -> tuple[Any, str]:
    """A receiver on a node of its own, and the node's name."""
    receiver = connection.create_receiver(None, dynamic=True, options=list(options), credit=10)
    return receiver, str(receiver.link.remote_source.address)


def test_a_node_goes_with_its_receiver_unless_asked_otherwise(connection: Any, node: NodeProcess) -> None:
    receiver, name = made(connection)
    connection.create_sender(name)
    with pytest.raises(LinkDetached, match="resource-deleted"):
        # The client tells of whatever comes while it waits.
        receiver.close()
    with closing(BlockingConnection(node.url, timeout=30)) as other:
        lasting, kept = made(other, lifetime(DELETE_ON_NO_LINKS), Capability("temporary-queue"))
        keeper = connection.create_sender(kept)
        lasting.close()
        keeper.send(Message(body="kept"))
        again = connection.create_receiver(kept)
        assert again.receive().body == "kept"
        again.accept()
        again.close()
        keeper.close()
        with pytest.raises(LinkDetached, match="not-found"):
            connection.create_sender(kept)


def test_a_node_may_live_until_its_last_message_has_gone(connection: Any) -> None:
    receiver, name = made(connection, lifetime(DELETE_ON_NO_LINKS_OR_MESSAGES), Capability("temporary-queue"))
    receiver.close()
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender(name)
    receiver, name = made(connection, lifetime(DELETE_ON_NO_LINKS_OR_MESSAGES), Capability("temporary-queue"))
    sender = connection.create_sender(name)
    receiver.close()
    sender.send(Message(body="last"))
    sender.close()
    reader = connection.create_receiver(name)
    assert reader.receive().body == "last"
    reader.accept()
    reader.close()
    with pytest.raises(LinkDetached, match="not-found"):
        look_until_gone(connection, name)


def look_until_gone(connection: Any, name: str) -> None:
    """Attach to a node again and again, for half a minute at most."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        connection.create_receiver(name).close()
        time.sleep(0.05)


def test_a_topic_of_ones_own_copies_to_all(connection: Any) -> None:
    first, name = made(connection, DynamicNodeProperties({"supported-dist-modes": symbol("copy")}))
    second = connection.create_receiver(name)
    connection.create_sender(name).send(Message(body="news"))
    for receiver in (first, second):
        assert receiver.receive().body == "news"
        receiver.accept()


def test_a_wish_that_is_no_policy_is_refused(connection: Any) -> None:
    with pytest.raises(LinkDetached, match="lifetime-policy"):
        made(connection, lifetime(1))
