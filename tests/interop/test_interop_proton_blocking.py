"""python-qpid-proton's blocking utilities, as scripts use them, against a real node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, Timeout
from proton.utils import BlockingConnection, LinkDetached, SendException, SyncRequestResponse

from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def connection(node: NodeProcess) -> Iterator[Any]:
    with closing(BlockingConnection(node.url, timeout=30)) as found:
        yield found


def test_ten_lines_send_and_receive(connection: Any, addresses: Any) -> None:
    address = addresses.declare("queue")
    sender = connection.create_sender(address)
    for number in range(10):
        sender.send(Message(body=f"hello {number}"))
    receiver = connection.create_receiver(address)
    for number in range(10):
        assert receiver.receive().body == f"hello {number}"
        receiver.accept()


def test_the_tags_of_many_deliveries_can_be_read(connection: Any, addresses: Any) -> None:
    address = addresses.declare("queue")
    sender = connection.create_sender(address)
    for number in range(300):
        sender.send(Message(body=number))
    receiver = connection.create_receiver(address, credit=300)
    tags = set()
    for number in range(300):
        assert receiver.receive().body == number
        tags.add(receiver.fetcher.unsettled[-1].tag)
        receiver.accept()
    assert len(tags) == 300


def test_a_released_message_comes_again_and_a_rejected_one_does_not(connection: Any, addresses: Any) -> None:
    address = addresses.declare("queue")
    sender = connection.create_sender(address)
    sender.send(Message(body="a"))
    receiver = connection.create_receiver(address, credit=1)
    assert receiver.receive().body == "a"
    receiver.release(delivered=False)
    assert receiver.receive().body == "a"
    receiver.reject()
    with pytest.raises(Timeout):
        receiver.receive(timeout=0.5)


@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
def test_an_unknown_address_raises_and_the_connection_can_be_used_on(
    connection: Any, addresses: Any, create: str
) -> None:
    with pytest.raises(LinkDetached, match="no address 'nowhere'"):
        getattr(connection, create)("nowhere")
    connection.create_sender(addresses.declare("queue")).send(Message(body="alive"))


def test_a_sender_to_anycast_hears_what_a_receiver_elsewhere_decided(
    node: NodeProcess, connection: Any, addresses: Any
) -> None:
    address = addresses.declare("anycast")
    bodies: list[str] = []
    ready = threading.Event()

    def receive() -> None:
        with closing(BlockingConnection(node.url, timeout=30)) as other:
            receiver = other.create_receiver(address, credit=1)
            ready.set()
            bodies.append(str(receiver.receive().body))
            receiver.accept()
            bodies.append(str(receiver.receive().body))
            receiver.release(delivered=False)

    thread = threading.Thread(target=receive)
    thread.start()
    assert ready.wait(30)
    sender = connection.create_sender(address)
    sender.send(Message(body="first"))
    with pytest.raises(SendException):
        sender.send(Message(body="second"))
    thread.join(30)
    assert bodies == ["first", "second"]


def test_requests_are_answered(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    ready = threading.Event()

    def serve() -> None:
        with closing(BlockingConnection(node.url, timeout=30)) as other:
            receiver = other.create_receiver(address, credit=1)
            sender = other.create_sender(None)
            ready.set()
            for _ in range(3):
                asked = receiver.receive()
                receiver.accept()
                sender.send(
                    Message(address=asked.reply_to, correlation_id=asked.correlation_id, body=str(asked.body).upper())
                )

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(30)
    with closing(BlockingConnection(node.url, timeout=30)) as asking:
        client = SyncRequestResponse(asking, address)
        assert [client.call(Message(body=word)).body for word in ("one", "two", "three")] == ["ONE", "TWO", "THREE"]
    thread.join(30)


def test_management_tells_what_it_can_be_asked(connection: Any) -> None:
    client = SyncRequestResponse(connection, "$management")

    def asked(operation: str) -> Any:
        properties = {"operation": operation, "type": "org.amqp.management", "name": "self"}
        answer: Any = client.call(Message(properties=properties))
        assert answer.properties["statusCode"] == 200
        return answer.body

    types = asked("GET-TYPES")
    assert "io.enmasse.address" in types
    assert "creditAsked" in asked("GET-ATTRIBUTES")["io.enmasse.address"]
    assert asked("GET-OPERATIONS")["io.enmasse.address"]["MOVE"] == ["to", "selector", "search", "ids", "dryRun"]
    assert asked("GET-MGMT-NODES") == []


def test_a_user_may_name_the_space_by_host_or_realm(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    for options in (
        {"virtual_host": "interop.default"},
        {"user": "ann@interop.default", "password": "x", "allowed_mechs": "PLAIN", "allow_insecure_mechs": True},
    ):
        with closing(BlockingConnection(node.url, timeout=30, **options)) as found:
            found.create_sender(address).send(Message(body="x"))
    assert addresses.read(address)["messagesStored"] == 2
