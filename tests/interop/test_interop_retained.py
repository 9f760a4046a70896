"""Retained values over sockets: set by Qpid Proton or STOMP, read by the other, also after a crash, and cleared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, symbol
from proton.reactor import AtMostOnce, Filter
from proton.utils import BlockingConnection

from tests.interop.test_interop_stomp import Client, client, connect  # noqa: F401  fixtures
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

WAIT_S = 60.0
Put = Callable[[str, bytes], None]
Read = Callable[[str], list[tuple[bytes, bool]]]


class Proton:
    """A client by Qpid Proton."""

    def __init__(self, node: NodeProcess) -> None:
        # Its annotations are narrower than what it takes and gives.
        self._connection: Any = BlockingConnection(node.url, timeout=WAIT_S)

    def put(self, name: str, body: bytes) -> None:
        message = Message(address=name, body=body, durable=True, annotations={symbol("x-opt-retain"): True})
        message.inferred = True
        sender = self._connection.create_sender(None)
        sender.send(message)
        sender.close()

    def read(self, name: str) -> list[tuple[bytes, bool]]:
        filters: Any = {symbol("enmasse:retained"): "always"}
        receiver = self._connection.create_receiver(name, credit=10, options=Filter(filters))
        found: list[tuple[bytes, bool]] = []
        # What comes behind the values says that there are no more.
        self.mark(name)
        while True:
            message = receiver.receive(timeout=WAIT_S)
            if receiver.fetcher.unsettled:
                receiver.accept()
            if bytes(message.body) == b"mark":
                receiver.close()
                return found
            found.append((bytes(message.body), message.annotations[symbol("x-opt-retained")]))

    def mark(self, name: str) -> None:
        sender = self._connection.create_sender(name, options=AtMostOnce())
        message = Message(body=b"mark")
        message.inferred = True
        sender.send(message)
        sender.close()


class Stomp:
    """A client by stomp.py."""

    def __init__(self, node: NodeProcess, made: Any) -> None:
        self._client: Client = made(node.port)
        self._count = 0

    def put(self, name: str, body: bytes) -> None:
        self._count += 1
        self._client.send(name, body, x_opt_retain="true", persistent="true", receipt=f"put-{self._count}")
        assert self._client.told.next("receipt").headers["receipt-id"] == f"put-{self._count}"

    def read(self, name: str) -> list[tuple[bytes, bool]]:
        self._count += 1
        number = str(self._count)
        self._client.connection.subscribe(name, number, headers={"retained": "always"})
        self._client.send(name, b"mark")
        found: list[tuple[bytes, bool]] = []
        while True:
            frame = self._client.told.messages(1)[0]
            if frame.body == "mark":
                self._client.connection.unsubscribe(number)
                return found
            found.append((frame.body.encode(), frame.headers["x-opt-retained"] == "true"))


@pytest.mark.parametrize("reader", ["amqp", "stomp"])
@pytest.mark.parametrize(("writer", "kind"), [("amqp", "topic"), ("stomp", "topic"), ("amqp", "multicast")])
def test_what_one_sets_the_other_reads_until_it_is_cleared(
    node: NodeProcess,
    connect: Any,  # noqa: F811  as above
    addresses: Any,
    writer: str,
    reader: str,
    kind: str,
) -> None:
    name = addresses.declare(kind)

    def clients() -> dict[str, Any]:
        return {"amqp": Proton(node), "stomp": Stomp(node, connect)}

    each = clients()
    each[writer].put(name, b"on")
    assert each[reader].read(name) == [(b"on", True)]
    node.kill()
    node.start()
    each = clients()
    assert each[reader].read(name) == [(b"on", True)]
    each[writer].put(name, b"")
    assert each[reader].read(name) == []
