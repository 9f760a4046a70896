"""Transactions as a client's links see them: declared, discharged, bounded and lapsed."""

from __future__ import annotations

import pytest

from enmasse.message.composites import Composite, encode_composite
from enmasse.message.outcomes import ACCEPTED, ROLLBACK, TIMEOUT, UNKNOWN_ID, AmqpError, Rejected
from enmasse.message.sections import Header, encode_message
from enmasse.messaging.budget import Budget
from enmasse.messaging.transaction import TransactionLimits
from enmasse.node.amqp.coordinator import CAPABILITIES
from enmasse.node.management.entities import Entities
from enmasse.wire.amqp.performatives import Coordinator, Declare, Discharge, Source, TransactionalState
from tests.unit.node.coordinator_scene import VALUE, Client, Node, bodies


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


# Declaring and discharging


def test_a_control_link_says_what_the_coordinator_can(client: Client) -> None:
    control = client.attach_control()
    assert control.link is not None
    answer = control.link.remote_attach
    assert answer is not None
    assert answer.target == Coordinator(CAPABILITIES)
    assert control.credits[-1] == (100, False)


def test_messages_to_several_addresses_appear_with_the_commit(node: Node, client: Client) -> None:
    txn = client.declare()
    senders = [client.sender(name, name) for name in ("q", "r", "s", "t")]
    for sink in senders:
        assert client.post(sink, txn) == TransactionalState(txn, ACCEPTED)
    assert [node.stored(name) for name in ("q", "r", "s", "sub")] == [0, 0, 0, 0]
    assert client.say(Discharge(txn)) == ACCEPTED
    assert [node.stored(name) for name in ("q", "r", "s", "sub")] == [1, 1, 1, 1]
    assert node.harness.core.batches_failed == 0
    again = node.harness.restarted()
    found = Entities(again.core, lambda: "id", lambda _: None)
    found.load()
    addresses = found.spaces["ns/shop"].addresses
    assert [addresses[name].counts()["messagesStored"] for name in ("q", "r", "s", "sub")] == [1, 1, 1, 1]


def test_nothing_of_a_transaction_remains_after_a_rollback(node: Node, client: Client) -> None:
    txn = client.declare()
    sink = client.sender("q")
    client.post(sink, txn)
    assert client.say(Discharge(txn, True)) == ACCEPTED
    assert node.stored("q") == 0
    assert client.say(Discharge(txn)).error.condition == UNKNOWN_ID


def test_transactions_do_not_see_each_other(node: Node, client: Client) -> None:
    sink = client.sender("q")
    first, second = client.declare(), client.declare()
    assert first != second
    client.post(sink, first, "first")
    client.post(sink, second, "second")
    sink.send(encode_message("between", header=Header(durable=True)))
    client.go()
    client.say(Discharge(second))
    client.say(Discharge(first, True))
    assert bodies(client.receiver("q")) == ["between", "second"]


def test_a_commit_that_fails_is_told_and_leaves_everything_as_before(node: Node, client: Client) -> None:
    client.fill("q", "in")
    receiver = client.receiver("q")
    sink = client.sender("s")
    txn = client.declare()
    client.retire(receiver, txn, settled=False)
    client.post(sink, txn)
    sent = client.control.send(VALUE + encode_composite(Discharge(txn)))
    client.pump()
    node.harness.fail()
    client.pump()
    assert sent.state.error.condition == ROLLBACK
    assert "disk is full" in sent.state.error.description
    assert (node.stored("q"), node.stored("s")) == (1, 0)
    assert node["q"].consumers[0].unsettled == 1
    node.harness.advance(1)
    client.tell(receiver, receiver.received[0].delivery_id, ACCEPTED, settled=True)
    assert node.stored("q") == 0
    assert node.harness.faults == []


def test_a_settled_discharge_takes_effect_without_an_answer(node: Node, client: Client) -> None:
    txn = client.declare()
    client.post(client.sender("q"), txn)
    assert client.say(Discharge(txn), settled=True) is None
    assert node.stored("q") == 1


@pytest.mark.parametrize(
    ("what", "condition"),
    [
        (Declare(global_id=b"xa"), "amqp:not-implemented"),
        (Discharge(b"nonsense"), UNKNOWN_ID),
        (AmqpError("a:b"), "amqp:invalid-field"),
    ],
)
def test_what_a_coordinator_does_not_do_is_rejected(client: Client, what: Composite, condition: str) -> None:
    client.attach_control()
    answer = client.say(what)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.condition == condition
    client.declare()


@pytest.mark.parametrize("payload", [b"", b"garbage", VALUE + b"\x40", VALUE + b"\x00\x53\x32\x45"])
def test_a_control_message_that_cannot_be_read_is_rejected(client: Client, payload: bytes) -> None:
    client.attach_control()
    sent = client.control.send(payload)
    client.go()
    assert sent.state.error.condition == "amqp:invalid-field"


def test_a_settled_declare_cannot_be_answered(client: Client) -> None:
    client.attach_control()
    client.say(Declare(), settled=True)
    assert client.detached["control"] == "amqp:not-allowed"


def test_a_control_link_that_knows_no_rejection_is_detached_instead(node: Node, client: Client) -> None:
    source = Source(outcomes=("amqp:accepted:list",))
    control = client.attach_control(source=source)
    txn = client.declare()
    client.post(client.sender("q"), txn)
    client.say(Discharge(b"nonsense"), control=control)
    assert client.detached["control"] == UNKNOWN_ID
    assert node.stored("q") == 0
    assert client.binding._coordinator is not None
    assert client.binding._coordinator.transactions == {}


def test_a_control_link_may_be_used_for_ever(client: Client) -> None:
    client.attach_control()
    for _ in range(300):
        assert client.say(Discharge(client.declare(), True)) == ACCEPTED


# Bounds


def test_a_connection_has_so_many_transactions_at_once(node: Node) -> None:
    client = Client(node, TransactionLimits(max_open=2))
    first = client.declare()
    client.declare()
    answer = client.say(Declare())
    assert answer.error.condition == "amqp:resource-limit-exceeded"
    client.say(Discharge(first))
    client.declare()
    Client(node, TransactionLimits(max_open=2)).declare()


def test_a_transaction_that_holds_too_much_rolls_back(node: Node) -> None:
    budget = Budget(1 << 20, grain=1)
    client = Client(node, TransactionLimits(max_bytes=2_000, budget=budget))
    sink = client.sender("q")
    txn = client.declare()
    client.post(sink, txn, "x" * 1_000)
    answer = client.post(sink, txn, "x" * 1_000)
    assert answer.outcome.error.condition == "amqp:resource-limit-exceeded"
    answer = client.say(Discharge(txn))
    assert answer.error.condition == ROLLBACK
    assert "2000 bytes" in answer.error.description
    assert (node.stored("q"), budget.held) == (0, 0)


def test_a_transaction_lapses_in_time(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=60))
    client.fill("q", "one", "two")
    receiver = client.receiver("q")
    sink = client.sender("r")
    late = client.declare()
    client.post(sink, late)
    client.retire(receiver, late)
    kept = client.retire(receiver, late, index=1, settled=False)
    node.harness.advance(30)
    good = client.declare()
    client.post(sink, good)
    node.harness.advance(31)
    client.go()
    assert client.post(sink, late).error.condition == TIMEOUT
    assert bodies(receiver) == ["one", "two", "one"]
    client.retire(receiver, late, index=2)
    assert bodies(receiver)[3:] == ["one"]
    assert client.say(Discharge(good)) == ACCEPTED
    assert client.say(Discharge(late)).error.condition == TIMEOUT
    assert client.say(Discharge(late)).error.condition == UNKNOWN_ID
    client.tell(receiver, kept, ACCEPTED, settled=True)
    assert (node.stored("q"), node.stored("r")) == (1, 1)


def test_a_rollback_of_what_has_lapsed_is_no_error(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=1))
    txn = client.declare()
    node.harness.advance(2)
    assert client.say(Discharge(txn, True)) == ACCEPTED


def test_transactions_may_have_all_the_time_there_is(node: Node) -> None:
    client = Client(node, TransactionLimits(timeout_s=0))
    txn = client.declare()
    node.harness.advance(100_000)
    assert client.say(Discharge(txn)) == ACCEPTED
