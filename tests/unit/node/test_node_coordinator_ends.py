"""Transactions whose links, connections or addresses go before they are through."""

from __future__ import annotations

import pytest

from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, ROLLBACK
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.wire.amqp.performatives import Discharge
from tests.unit.node.coordinator_scene import VALUE, Client, Node, bodies


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


@pytest.mark.parametrize("end", ["detach", "session", "connection"])
def test_what_is_not_discharged_is_rolled_back_with_its_control_link(node: Node, client: Client, end: str) -> None:
    client.fill("q", "one", "two")
    session = client.new_session() if end == "session" else client.session
    receiver = client.receiver("q", session=session)
    control = client.attach_control(session=session)
    txn = client.declare(control)
    client.post(client.sender("r", session=session), txn)
    client.retire(receiver, txn)
    client.retire(receiver, txn, index=1, settled=False)
    if end == "detach":
        assert control.link is not None
        control.link.detach()
    elif end == "session":
        session.end()
    else:
        client.server.lost()
    client.go()
    assert client.binding.limits.budget.held == 0
    assert (node.stored("q"), node.stored("r")) == (2, 0)
    if end == "detach":
        assert bodies(receiver) == ["one", "two", "one"]
    else:
        assert bodies(Client(node).receiver("q")) == ["one", "two"]
    assert node.harness.faults == []


@pytest.mark.parametrize("fail", [False, True])
def test_a_receiver_may_leave_before_the_discharge(node: Node, client: Client, fail: bool) -> None:
    client.fill("q", "one", "two")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.retire(receiver, txn, index=1, settled=False)
    assert receiver.link is not None
    receiver.link.detach()
    client.go()
    second = client.receiver("q", name="second")
    assert bodies(second) == []
    assert client.say(Discharge(txn, fail)) == ACCEPTED
    assert bodies(second) == (["one", "two"] if fail else [])
    assert node.stored("q") == (2 if fail else 0)
    assert node.harness.faults == []


def test_a_connection_lost_during_the_commit_does_not_undo_it(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.post(client.sender("r"), txn)
    client.retire(receiver, txn, settled=False)
    client.control.send(VALUE + encode_composite(Discharge(txn)))
    client.pump()
    node.harness.turn()
    client.server.lost()
    node.harness.commit()
    assert (node.stored("q"), node.stored("r")) == (0, 1)
    assert node.harness.faults == []


def test_a_connection_lost_during_a_commit_that_fails_gives_everything_back(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.control.send(VALUE + encode_composite(Discharge(txn)))
    client.pump()
    node.harness.turn()
    client.server.lost()
    node.harness.fail()
    node.harness.advance(1)
    assert bodies(Client(node).receiver("q")) == ["in"]


def test_a_queue_deleted_in_the_middle_is_no_trouble(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.post(client.sender("r"), txn)
    node.entities.delete(ADDRESS_TYPE, "ns/shop.q", node.answers.append)
    client.go()
    assert client.say(Discharge(txn)) == ACCEPTED
    assert node.stored("r") == 1
    assert node.harness.faults == []


def test_an_address_deleted_before_the_commit_rolls_back_what_was_posted_to_it(node: Node, client: Client) -> None:
    txn = client.declare()
    client.post(client.sender("q", "q"), txn)
    client.post(client.sender("r", "r"), txn)
    node.entities.delete(ADDRESS_TYPE, "ns/shop.q", node.answers.append)
    client.go()
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "'q' was deleted" in answer.error.description
    assert node.stored("r") == 0


def test_transactions_show_as_a_link(node: Node, client: Client) -> None:
    client.attach_control()
    (link,) = node.connections.links_of().page()
    assert (link["role"], link["address"]) == ("sender", "$coordinator")
    (connection,) = node.connections.connections_of().page()
    assert connection["transactions"] == 0
    client.declare()
    (connection,) = node.connections.connections_of().page()
    assert connection["transactions"] == 1
