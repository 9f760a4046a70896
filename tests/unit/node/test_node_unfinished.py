"""What is begun on a connection and not ended is bounded, and ends in time."""

from __future__ import annotations

import pytest

from enmasse.node.connections.unfinished import (
    CHECK_S,
    FREE_BYTES,
    GRAIN_BYTES,
    GROWTH_BYTES,
    HURRY_S,
    unfinished_budget,
)
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import Transfer
from tests.unit.node.coordinator_scene import Client, Node


@pytest.fixture
def node() -> Node:
    return Node()


def pass_time(node: Node, client: Client, seconds: float = CHECK_S) -> None:
    node.harness.advance(seconds)
    client.go()


def send_part(client: Client, size: int, *, more: bool = True, first: bool = False, handle: int = 0) -> None:
    transfer = Transfer(handle=handle, more=True)
    if first:
        transfer.delivery_id, transfer.delivery_tag = 0, b"t"
    while size > 0:
        part = min(size, 4000)
        size -= part
        transfer.more = more or size > 0
        client.server.receive(amqp_frame(0, transfer, part) + b"\0" * part, client.clock.now)
        transfer = Transfer(handle=handle, more=True)
    client.go()


def test_few_bytes_are_free_and_more_come_from_the_budget_until_the_message_ends(node: Node) -> None:
    client = Client(node)
    client.sender("q")
    budget = node.connections.unfinished
    send_part(client, FREE_BYTES, first=True)
    assert budget.held == 0
    send_part(client, 3 * GRAIN_BYTES)
    assert 3 * GRAIN_BYTES <= budget.held <= 4 * GRAIN_BYTES
    send_part(client, 1, more=False)
    assert (budget.held, client.server.partial_bytes) == (0, 0)


def test_what_a_connection_has_begun_goes_with_it(node: Node) -> None:
    client = Client(node)
    client.sender("q")
    send_part(client, 2 * GRAIN_BYTES, first=True)
    assert node.connections.unfinished.held
    client.server.lost()
    assert node.connections.unfinished.held == 0


def test_a_message_that_does_not_go_on_ends_its_link(node: Node) -> None:
    client = Client(node)
    client.sender("q")
    send_part(client, GRAIN_BYTES, first=True)
    for _ in range(3):
        pass_time(node, client)
    assert client.detached == {"out": "amqp:resource-limit-exceeded"}
    assert node.connections.unfinished.held == 0


def test_a_message_that_goes_on_has_its_time(node: Node) -> None:
    client = Client(node)
    client.sender("q")
    send_part(client, GRAIN_BYTES, first=True)
    for _ in range(4):
        pass_time(node, client)
        send_part(client, GROWTH_BYTES)
    assert client.detached == {}


def test_a_frame_that_does_not_go_on_ends_its_connection(node: Node) -> None:
    client = Client(node)
    client.server.max_frame_size = 1 << 20
    client.server.idle_timeout_s = 0
    head = amqp_frame(0, Transfer(handle=0, more=True), 1 << 19)
    client.server.receive(head + bytes(GRAIN_BYTES), client.clock.now)
    client.go()
    for _ in range(3):
        pass_time(node, client)
    error = client.binding.engine.error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert node.connections.unfinished.held == 0


def test_whoever_finds_no_room_is_left_unread_until_there_is_some(node: Node) -> None:
    node.connections.unfinished = unfinished_budget(2 * GRAIN_BYTES)
    clients = [Client(node) for _ in range(3)]
    for client in clients:
        client.sender("q")
        send_part(client, FREE_BYTES, first=True)
    for client in clients:
        send_part(client, 2 * GRAIN_BYTES)
    assert [client.server.is_held for client in clients] == [False, False, True], "one goes beyond the whole"
    assert [bool(each["paused"]) for each in node.connections.connections_of().page()] == [False, False, True]
    assert node.connections.unfinished.held == 4 * GRAIN_BYTES
    send_part(clients[0], 1, more=False)
    assert [client.server.is_held for client in clients] == [False, False, True]
    send_part(clients[1], 1, more=False)
    assert [client.server.is_held for client in clients] == [False, False, False]
    send_part(clients[2], 1, more=False)
    assert node.connections.unfinished.held == 0
    assert all(client.detached == {} for client in clients)


def test_whoever_has_others_wait_is_to_hurry(node: Node) -> None:
    node.connections.unfinished = unfinished_budget(GRAIN_BYTES)
    clients = [Client(node) for _ in range(3)]
    for client in clients:
        client.sender("q")
        send_part(client, FREE_BYTES + GRAIN_BYTES, first=True)
    assert [client.server.is_held for client in clients] == [False, False, True], "one goes beyond the whole"
    pass_time(node, clients[1], HURRY_S)
    assert clients[1].detached == {"out": "amqp:resource-limit-exceeded"}
    assert not clients[2].server.is_held
    send_part(clients[0], 1, more=False)
    send_part(clients[2], 1, more=False)
    assert node.connections.unfinished.held == 0


def test_a_message_that_waits_for_a_receiver_counts_until_it_is_taken(node: Node) -> None:
    client, other = Client(node), Client(node)
    client.sender("a")
    assert other.receiver("a", credit=1).link is not None
    other.server.is_blocked = True
    for link in other.binding.links:
        link.sink.on_blocked(True)
    send_part(client, (1 << 20) + 4 * GRAIN_BYTES, first=True)
    held = client.server.partial_bytes
    assert (1 << 20) < held <= node.connections.unfinished.held + FREE_BYTES
    other.server.resume_output()
    client.go()
    assert (client.server.partial_bytes, node.connections.unfinished.held) == (0, 0)
