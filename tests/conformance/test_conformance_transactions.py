"""Part 4: transactions, as a controller and its resources see them."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.codec import encode
from enmasse.message.composites import Composite, encode_composite
from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.types import Symbol, ULong
from enmasse.wire.amqp.performatives import (
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Source,
    TransactionalState,
    Transfer,
)
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer, durable, message
from tests.conformance.server_scene import condition_of

VALUE = b"\x00" + encode(ULong(0x77))
CONTROL = 7
LOCAL = Symbol("amqp:local-transactions")


class Controller(NodePeer):
    """A peer with a link to the coordinator, a sender and a receiver."""

    def __init__(self, node: Node, **source: Any) -> None:
        super().__init__(node, "controller")
        self.attached = self.attach_sender("control", CONTROL, target=Coordinator((LOCAL,)), source=Source(**source))
        self.sender("q")
        self.hear()

    def ask(self, what: Composite, **fields: Any) -> Any:
        """The outcome of a message to the coordinator."""
        return self.deliver(VALUE + encode_composite(what), handle=CONTROL, **fields)

    def declare(self) -> bytes:
        answer = self.ask(Declare())
        assert isinstance(answer, Declared)
        return answer.txn_id

    def commit(self, txn_id: bytes) -> Any:
        return self.ask(Discharge(txn_id))

    def roll_back(self, txn_id: bytes) -> Any:
        return self.ask(Discharge(txn_id, fail=True))

    def post(self, txn_id: bytes, body: Any = "m", **fields: Any) -> Any:
        return self.deliver(durable(body), state=TransactionalState(txn_id), **fields)

    def retire(
        self, delivery_id: int | None, txn_id: bytes, outcome: Any = ACCEPTED, *, settled: bool = True
    ) -> None:
        assert delivery_id is not None
        self.say(Disposition(True, delivery_id, settled=settled, state=TransactionalState(txn_id, outcome)))


def condition(outcome: Any) -> str | None:
    """Why a message to the coordinator was rejected."""
    assert isinstance(outcome, Rejected)
    return condition_of(outcome)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Controller:
    return Controller(node)


@clause("4.1:coordinator-link", "4.5.1:capabilities")
def test_the_coordinator_tells_what_it_can(peer: Controller) -> None:
    target = peer.attached.target
    assert isinstance(target, Coordinator)
    assert target.capabilities is not None
    assert set(target.capabilities) >= {"amqp:local-transactions", "amqp:multi-txns-per-ssn"}


@clause("4.5.5:txn-id", "4.2:declare", "4.2:distinct-ids", "4.5.4:size", "4.5.7:multi-txns")
def test_every_declare_is_answered_with_an_id_of_its_own(peer: Controller) -> None:
    ids = {peer.declare() for _ in range(20)}
    assert len(ids) == 20
    assert all(0 < len(txn_id) <= 32 for txn_id in ids)


@clause("4.2:not-settled")
def test_a_settled_declare_detaches_the_link(peer: Controller) -> None:
    peer.send(VALUE + encode_composite(Declare()), handle=CONTROL, settled=True)
    assert condition_of(peer.hear_one(Detach)) == "amqp:not-allowed"


@clause("4.2:unknown-message", "4.1:refused")
def test_another_message_to_the_coordinator_is_rejected(peer: Controller) -> None:
    assert condition(peer.deliver(message("hello"), handle=CONTROL)) == "amqp:invalid-field"


@clause("4.5.2:global-id", "2.8.15:not-implemented")
def test_a_distributed_transaction_is_refused(peer: Controller) -> None:
    assert condition(peer.ask(Declare(b"global"))) == "amqp:not-implemented"


@clause("4.5.6:outcome", "4.3:commit", "4.4.1:not-before-commit", "4.4.1:state-answered")
def test_what_is_posted_is_there_after_the_commit(node: Node, peer: Controller) -> None:
    reader = node.peer("reader")
    reader.receiver("q")
    txn_id = peer.declare()
    for body in ("one", "two"):
        assert peer.post(txn_id, body) == TransactionalState(txn_id, ACCEPTED)
    assert reader.bodies() == []
    assert peer.commit(txn_id) == ACCEPTED
    assert reader.bodies() == ["one", "two"]


@clause("4.3:fail", "4.4.1:rolled-back")
def test_what_is_rolled_back_never_was(node: Node, peer: Controller) -> None:
    txn_id = peer.declare()
    peer.post(txn_id)
    assert peer.roll_back(txn_id) == ACCEPTED
    assert node.stored("q") == 0


@clause("4.3:unknown-id", "4.5.8:unknown-id")
def test_an_unknown_transaction_cannot_be_discharged(peer: Controller) -> None:
    txn_id = peer.declare()
    assert peer.commit(txn_id) == ACCEPTED
    assert condition(peer.commit(txn_id)) == "amqp:transaction:unknown-id"
    assert condition(peer.roll_back(b"never")) == "amqp:transaction:unknown-id"


@clause("4.3:no-rejected-outcome")
def test_who_knows_no_rejected_is_told_by_a_detach(node: Node) -> None:
    peer = Controller(node, outcomes=(Symbol("amqp:accepted:list"), Symbol("amqp:declared:list")))
    peer.send(VALUE + encode_composite(Discharge(b"never")), handle=CONTROL)
    assert condition_of(peer.hear_one(Detach)) == "amqp:transaction:unknown-id"


@clause("4.3:rollback-error")
@pytest.mark.parametrize("payload", [b"\xff no message", message() + message()])
def test_a_transaction_with_a_refused_message_is_rolled_back(node: Node, peer: Controller, payload: bytes) -> None:
    txn_id = peer.declare()
    peer.post(txn_id, "good")
    refused = peer.deliver(payload, state=TransactionalState(txn_id))
    assert isinstance(refused, TransactionalState)
    assert isinstance(refused.outcome, Rejected)
    assert isinstance(peer.commit(txn_id), Rejected)
    assert node.stored("q") == 0


@clause("4.3:link-close")
@pytest.mark.parametrize("how", ["detach", "cut"])
def test_transactions_end_with_their_control_link(node: Node, peer: Controller, how: str) -> None:
    txn_id = peer.declare()
    peer.post(txn_id)
    if how == "detach":
        peer.say(Detach(CONTROL, closed=True))
        peer.hear()
        assert isinstance(peer.post(txn_id), Rejected)
    else:
        peer.cut()
    assert node.stored("q") == 0


@clause("4.4.1:unknown-id", "4.5.8:unknown-id")
def test_a_message_of_an_unknown_transaction_is_refused(node: Node, peer: Controller) -> None:
    assert condition(peer.post(b"never")) == "amqp:transaction:unknown-id"
    assert node.stored("q") == 0


@clause("4.4.1:incomplete")
def test_a_message_that_is_not_complete_makes_the_commit_fail(node: Node, peer: Controller) -> None:
    txn_id = peer.declare()
    peer.post(txn_id, "whole")
    peer.send(durable("half"), state=TransactionalState(txn_id), more=True)
    assert condition(peer.commit(txn_id)) == "amqp:transaction:rollback"
    assert node.stored("q") == 0


@clause("4.4.1:not-before-commit", "2.6.14:parts")
def test_a_message_of_a_transaction_comes_in_parts(node: Node, peer: Controller) -> None:
    txn_id = peer.declare()
    payload = durable("in parts")
    state = TransactionalState(txn_id)
    peer.send(payload[:9], state=state, more=True)
    peer.say(Transfer(0, state=state), payload=payload[9:])
    peer.hear()
    assert peer.commit(txn_id) == ACCEPTED
    assert node.stored("q") == 1


@clause("4.4.4:settled-post")
def test_a_settled_message_takes_part(node: Node, peer: Controller) -> None:
    kept, lost = peer.declare(), peer.declare()
    assert peer.post(kept, settled=True) is None
    assert peer.post(lost, settled=True) is None
    assert node.stored("q") == 0
    assert peer.commit(kept) == ACCEPTED
    peer.roll_back(lost)
    assert node.stored("q") == 1


def given(node: Node, peer: Controller) -> Transfer:
    """A message that the controller has received."""
    filler = node.peer("filler")
    filler.sender("q")
    filler.deliver(durable("given"))
    peer.receiver("q", 1)
    ((transfer, _),) = peer.transfers()
    return transfer


@clause("4.4.2:outcome-at-commit")
def test_an_outcome_counts_from_the_commit_on(node: Node, peer: Controller) -> None:
    transfer = given(node, peer)
    txn_id = peer.declare()
    peer.retire(transfer.delivery_id, txn_id)
    assert node.stored("q") == 1
    assert peer.commit(txn_id) == ACCEPTED
    assert node.stored("q") == 0


@clause("4.4.2:rolled-back", "3.3.1:returned")
def test_an_outcome_that_is_rolled_back_counts_for_nothing(node: Node, peer: Controller) -> None:
    transfer = given(node, peer)
    txn_id = peer.declare()
    peer.retire(transfer.delivery_id, txn_id)
    peer.roll_back(txn_id)
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == ["given"]


@clause("4.4.2:rolled-back", "4.4.4:unsettled-retire")
def test_an_unsettled_outcome_that_is_rolled_back_may_be_told_anew(node: Node, peer: Controller) -> None:
    transfer = given(node, peer)
    txn_id = peer.declare()
    peer.retire(transfer.delivery_id, txn_id, settled=False)
    peer.roll_back(txn_id)
    peer.settle(transfer.delivery_id, ACCEPTED)
    assert node.stored("q") == 0


@clause("4.4.4:unsettled-retire")
def test_an_unsettled_outcome_is_settled_after_the_commit(node: Node, peer: Controller) -> None:
    transfer = given(node, peer)
    txn_id = peer.declare()
    peer.retire(transfer.delivery_id, txn_id, settled=False)
    assert [told for told in peer.hear_all(Disposition) if told.settled and not told.role] == []
    peer.send(VALUE + encode_composite(Discharge(txn_id)), handle=CONTROL)
    told = [told for told in peer.hear_all(Disposition) if not told.role]
    assert [(found.first, found.settled, found.state) for found in told] == [(transfer.delivery_id, True, ACCEPTED)]


@clause("4.4.2:unknown-id")
def test_an_outcome_of_an_unknown_transaction_does_not_count(node: Node, peer: Controller) -> None:
    transfer = given(node, peer)
    peer.retire(transfer.delivery_id, b"never")
    peer.hear()
    assert node.stored("q") == 1


@clause("4.4.3:refused", "2.8.15:not-implemented")
def test_credit_within_a_transaction_is_refused(peer: Controller) -> None:
    peer.receiver("q", 0)
    txn_id = peer.declare()
    peer.grant(1, properties={Symbol("txn-id"): txn_id})
    assert condition_of(peer.hear_one(Detach)) == "amqp:not-implemented"


@clause("4.5.7:multi-sessions")
def test_a_transaction_takes_in_several_sessions(node: Node, peer: Controller) -> None:
    peer.begin(1)
    peer.attach_sender("other", 0, channel=1)
    peer.hear_all(Flow)
    txn_id = peer.declare()
    peer.post(txn_id, "one")
    peer.say(Transfer(0, 0, b"x", state=TransactionalState(txn_id)), channel=1, payload=durable("two"))
    peer.hear()
    assert node.stored("q") == 0
    assert peer.commit(txn_id) == ACCEPTED
    assert node.stored("q") == 2


@clause("4.5.8:timeout", "4.3:rollback-error")
def test_a_transaction_that_takes_too_long_is_rolled_back(node: Node, peer: Controller) -> None:
    txn_id = peer.declare()
    peer.post(txn_id)
    node.harness.advance(61)
    assert condition(peer.commit(txn_id)) == "amqp:transaction:timeout"
    assert node.stored("q") == 0


@clause("4.1:refused")
def test_an_error_has_a_condition_and_a_description(peer: Controller) -> None:
    refused = peer.roll_back(b"never")
    assert isinstance(refused, Rejected)
    assert isinstance(refused.error, AmqpError)
    assert refused.error.description
