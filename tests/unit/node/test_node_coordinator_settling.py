"""Deliveries that a client's links settle within a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, RELEASED, ROLLBACK, UNKNOWN_ID, Modified, Rejected
from enmasse.message.sections import encode_message, header_of
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import Discharge, Disposition, Source
from tests.unit.node.coordinator_scene import VALUE, Client, Node, bodies


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("name", ["q", "sub"])
def test_what_is_received_is_gone_with_the_commit(node: Node, client: Client, settled: bool, name: str) -> None:
    client.fill("t" if name == "sub" else name, "in")
    receiver = client.receiver(name)
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=settled)
    client.post(client.sender("r"), txn)
    assert (node.stored(name), node.stored("r")) == (1, 0)
    assert client.say(Discharge(txn)) == ACCEPTED
    assert (node.stored(name), node.stored("r")) == (0, 1)
    (consumer,) = node[name].consumers
    assert (consumer.unsettled, consumer.accepted) == (0, 1)
    assert client.server.sessions[0].enlisted == {}
    assert delivery_id not in client.server.sessions[0].unsettled


def test_an_unsettled_delivery_is_settled_by_the_node_once_committed(client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    seen = len(client.to_client.carried)
    client.say(Discharge(txn))
    frame = amqp_frame(0, Disposition(False, delivery_id, delivery_id, True, ACCEPTED))
    assert frame in bytes(client.to_client.carried[seen:])


def test_what_was_settled_comes_again_after_a_rollback_as_a_failed_attempt(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in", "in"]
    header = header_of(receiver.payloads[1])
    assert header is not None
    assert header.delivery_count == 1


def test_what_was_not_settled_stays_with_its_receiver_after_a_rollback(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in"]
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.say(Discharge(txn))
    assert node.stored("q") == 0
    assert delivery_id not in client.server.sessions[0].unsettled


@pytest.mark.parametrize(
    ("outcome", "again"), [(RELEASED, 0), (Modified(delivery_failed=True), 1), (Rejected(), None)]
)
def test_other_outcomes_take_effect_with_the_commit(
    node: Node, client: Client, outcome: Any, again: int | None
) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    client.retire(receiver, txn, outcome)
    assert bodies(receiver) == ["in"]
    assert node.stored("q") == 1
    client.say(Discharge(txn))
    assert bodies(receiver)[1:] == ([] if again is None else ["in"])
    if again is not None:
        header = header_of(receiver.payloads[1])
        assert (header.delivery_count if header else 0) == again
    assert node.stored("q") == (0 if again is None else 1)


def test_what_is_read_from_a_stream_within_a_transaction_is_only_settled(node: Node, client: Client) -> None:
    client.fill("s", "in")
    sink = RecordingSink()
    source = Source(address="s", filter={"enmasse:start": "first"})
    link = client.session.attach_receiver("in", sink, source, snd_settle_mode=0)
    sink.link = link
    client.go()
    link.grant(10)
    client.go()
    txn = client.declare()
    client.retire(sink, txn, settled=False)
    client.say(Discharge(txn))
    assert node["s"].consumers[0].unsettled == 0
    assert node.stored("s") == 1


def test_a_later_outcome_outside_takes_a_delivery_out_of_the_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.tell(receiver, delivery_id, RELEASED, settled=True)
    assert bodies(receiver) == ["in", "in"]
    assert client.say(Discharge(txn)) == ACCEPTED
    assert node.stored("q") == 1


def test_a_delivery_may_be_settled_after_it_was_told_within_the_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    client.tell(receiver, delivery_id, None, settled=True)
    client.say(Discharge(txn, True))
    assert bodies(receiver) == ["in", "in"]


def test_a_delivery_may_change_its_transaction(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    first, second = client.declare(), client.declare()
    client.retire(receiver, first, settled=False)
    client.retire(receiver, second, settled=True)
    client.say(Discharge(first, True))
    assert bodies(receiver) == ["in"]
    client.say(Discharge(second))
    assert node.stored("q") == 0


def test_a_delivery_settled_while_its_commit_runs_needs_no_answer(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    txn = client.declare()
    delivery_id = client.retire(receiver, txn, settled=False)
    sent = client.control.send(VALUE + encode_composite(Discharge(txn)))
    client.pump()
    node.harness.turn()
    assert receiver.link is not None
    client.client.put(amqp_frame(0, Disposition(True, delivery_id, None, True, ACCEPTED)))
    client.pump()
    seen = len(client.to_client.carried)
    client.go()
    assert sent.state == ACCEPTED
    assert node.stored("q") == 0
    assert amqp_frame(0, Disposition(False, delivery_id, delivery_id, True, ACCEPTED)) not in bytes(
        client.to_client.carried[seen:]
    )


def test_a_direct_delivery_cannot_be_settled_within_a_transaction(node: Node, client: Client) -> None:
    receiver = client.receiver("a")
    sink = client.sender("a", "direct")
    sink.send(encode_message("x"))
    client.go()
    txn = client.declare()
    client.retire(receiver, txn)
    assert client.detached == {"in": "amqp:not-implemented"}
    assert sink.states == [Modified(delivery_failed=True)]
    assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_an_outcome_of_an_unknown_transaction_ends_the_link_and_the_message_comes_again(
    node: Node, client: Client
) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    client.retire(receiver, b"none")
    assert client.detached == {"in": UNKNOWN_ID}
    assert bodies(client.receiver("q", name="second")) == ["in"]
