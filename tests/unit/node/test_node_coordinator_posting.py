"""Messages that a client's links send within a transaction."""

from __future__ import annotations

import pytest

from enmasse.message.composites import encode_composite
from enmasse.message.outcomes import ACCEPTED, ROLLBACK, UNKNOWN_ID
from enmasse.message.sections import encode_message
from enmasse.messaging.dynamic import WAITING_BYTES
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Discharge, Source, Target, TransactionalState, Transfer
from tests.unit.node.coordinator_scene import VALUE, Client, Node, bodies


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


def test_a_direct_address_cannot_be_posted_to(node: Node, client: Client) -> None:
    client.receiver("a")
    sink = client.sender("a", "direct")
    txn = client.declare()
    answer = client.post(sink, txn)
    assert answer.outcome.error.condition == "amqp:not-implemented"
    assert "anycast 'a'" in answer.outcome.error.description
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "anycast 'a'" in answer.error.description


def reply_receiver(client: Client, credit: int = 100) -> tuple[RecordingSink, str]:
    """A receiver on a dynamic source, and the name of what it got."""
    sink = RecordingSink()
    sink.link = link = client.session.attach_receiver("replies", sink, Source(dynamic=True))
    client.go()
    link.grant(credit)
    client.go()
    assert link.remote_attach is not None
    assert link.remote_attach.source is not None
    return sink, link.remote_attach.source.address


@pytest.mark.parametrize("is_relayed", [True, False])
def test_a_reply_to_a_dynamic_address_comes_with_the_commit(node: Node, client: Client, is_relayed: bool) -> None:
    replies, address = reply_receiver(client)
    sink = client.sender(Target() if is_relayed else address, "answers")
    for body, fail in (("rolled back", True), ("committed", False)):
        txn = client.declare()
        assert client.post(sink, txn, body, to=address).outcome == ACCEPTED
        client.post(sink, txn, body, to=address, settled=True)
        assert replies.payloads == []
        assert client.say(Discharge(txn, fail)) == ACCEPTED
    assert bodies(replies) == ["committed", "committed"]


def test_a_reply_comes_once_what_is_stored_with_it_is_on_disk(node: Node, client: Client) -> None:
    replies, address = reply_receiver(client)
    client.fill("q", "request")
    requests = client.receiver("q", name="requests")
    sink = client.sender(Target(), "answers")
    txn = client.declare()
    client.post(sink, txn, "reply", to=address)
    client.retire(requests, txn)
    client.control.send(VALUE + encode_composite(Discharge(txn)))
    client.pump()
    assert replies.payloads == []
    client.go()
    assert bodies(replies) == ["reply"]
    assert node.stored("q") == 0


def test_a_reply_to_who_is_gone_rolls_its_transaction_back(node: Node, client: Client) -> None:
    replies, address = reply_receiver(client)
    client.fill("q", "request")
    requests = client.receiver("q", name="requests")
    sink = client.sender(Target(), "answers")
    txn = client.declare()
    client.post(sink, txn, "reply", to=address)
    client.retire(requests, txn, settled=False)
    assert replies.link is not None
    replies.link.detach()
    client.go()
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "deleted" in answer.error.description
    assert node.stored("q") == 1


def test_replies_of_transactions_are_bounded_like_others(client: Client) -> None:
    replies, address = reply_receiver(client, credit=0)
    sink = client.sender(Target(), "answers")
    half = "x" * (WAITING_BYTES // 2)
    # Each has room as long as the other is not committed.
    first, second = client.declare(), client.declare()
    for txn in (first, second):
        assert client.post(sink, txn, half, to=address).outcome == ACCEPTED
    assert client.post(sink, second, half, to=address).outcome.error.condition == "amqp:resource-limit-exceeded"
    third = client.declare()
    assert client.post(sink, third, half, to=address).outcome == ACCEPTED
    assert client.say(Discharge(first)) == ACCEPTED
    answer = client.say(Discharge(third))
    assert answer.error.condition == ROLLBACK
    assert "full" in answer.error.description
    assert isinstance(replies.link, ReceivingLink)
    replies.link.grant(10)
    client.go()
    assert bodies(replies) == [half]
    # One that is larger than what may wait need not.
    txn = client.declare()
    assert client.post(sink, txn, half * 3, to=address).outcome == ACCEPTED
    assert client.say(Discharge(txn)) == ACCEPTED
    assert bodies(replies) == [half, half * 3]


def test_a_settled_message_that_is_refused_shows_at_the_discharge(node: Node, client: Client) -> None:
    client.receiver("a")
    sink = client.sender("a", "direct")
    txn = client.declare()
    assert client.post(sink, txn, settled=True) is None
    assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_a_message_of_an_unknown_transaction_is_rejected_or_ends_its_link(client: Client) -> None:
    sink = client.sender("q")
    assert client.post(sink, b"none").error.condition == UNKNOWN_ID
    assert client.detached == {}
    client.post(sink, b"none", settled=True)
    assert client.detached == {"out": UNKNOWN_ID}


def test_a_sender_without_an_address_takes_part(node: Node, client: Client) -> None:
    sink = client.sender(Target())
    txn = client.declare()
    for number in range(250):
        assert client.post(sink, txn, to="qr"[number % 2]).outcome == ACCEPTED
    assert client.say(Discharge(txn)) == ACCEPTED
    assert (node.stored("q"), node.stored("r")) == (125, 125)
    for to, condition in (("nowhere", "amqp:not-found"), (None, "amqp:precondition-failed")):
        txn = client.declare()
        assert client.post(sink, txn, to=to).outcome.error.condition == condition
        assert client.say(Discharge(txn)).error.condition == ROLLBACK


def test_credit_is_granted_again_for_what_transactions_hold(node: Node, client: Client) -> None:
    sink = client.sender("q")
    txn = client.declare()
    link = sink.link
    assert isinstance(link, SendingLink)
    for _ in range(2_500):
        assert link.credit > 0
        client.post(sink, txn, settled=True) if link.credit % 500 == 0 else link.send_in_transaction(
            None, encode_message("x"), True, 0, TransactionalState(txn)
        )
        if link.credit == 0:
            client.go()
    client.go()
    client.say(Discharge(txn))
    assert node.stored("q") == 2_500


def test_frames_cannot_be_part_of_a_transaction(client: Client) -> None:
    sink = client.sender("s", desired_capabilities=("enmasse:frames",))
    txn = client.declare()
    answer = client.post(sink, txn)
    assert answer.outcome.error.condition == "amqp:not-implemented"


def test_a_discharge_in_the_middle_of_a_message_rolls_back(node: Node, client: Client) -> None:
    sink = client.sender("q")
    other = client.new_session()
    client.attach_control(session=other)
    txn = client.declare()
    link = sink.link
    assert link is not None
    client.client.put(
        amqp_frame(link.channel, Transfer(link.handle, 0, b"t", 0, more=True, state=TransactionalState(txn)))
    )
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "not come to its end" in answer.error.description


def test_a_message_to_the_control_link_cannot_be_part_of_a_transaction(client: Client) -> None:
    txn = client.declare()
    assert client.post(client.control, txn).outcome.error.condition == "amqp:not-implemented"
