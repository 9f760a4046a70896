"""What of a transaction passes through a link: messages posted, outcomes told, and both answered [AMQP 4.4]."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.composites import decode_composite, encode_composite, from_described
from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, Rejected
from enmasse.message.types import Described, Symbol, ULong
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Received, Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import (
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    TransactionalState,
    Transfer,
)
from enmasse.wire.amqp.session import Session
from tests.support.raw_peer import RawPeer

STATE = TransactionalState(b"\x00\x01", Accepted())


def peer() -> tuple[RawPeer, Recorder]:
    """An engine with a session, and the peer that speaks to it."""
    handler = Recorder()
    found = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0))
    found.greet()
    found.begin(incoming_window=100_000)
    return found, handler


def posting(credit: int) -> tuple[RawPeer, Recorder, ReceivingLink, RecordingSink]:
    """An engine that receives on handle 0."""
    found, handler = peer()
    found.attach_sender()
    link = handler.links[0]
    assert isinstance(link, ReceivingLink)
    link.grant(credit)
    return found, handler, link, link.sink


def retiring(count: int) -> tuple[RawPeer, Recorder, Session, list[Any]]:
    """An engine that has sent messages, and what it sent."""
    found, handler = peer()
    found.attach_receiver()
    found.say(Flow(0, 100_000, 0, 1000, 0, 0, 100))
    sink = handler.links[0].sink
    sent = [sink.send(b"m") for _ in range(count)]
    found.hear()
    return found, handler, handler.sessions[0], sent


def test_a_state_is_known_by_number_and_by_symbol() -> None:
    encoded = b"\x00\x53\x34\xc0\x08\x02\xa0\x01\x37\x00\x53\x24\x45"
    assert decode_composite(encoded, 0, len(encoded))[0] == TransactionalState(b"7", Accepted())
    assert encode_composite(TransactionalState(b"7", Accepted())) == encoded
    by_symbol = Described(Symbol("amqp:discharge:list"), [b"7", True])
    assert from_described(by_symbol) == Discharge(b"7", True)
    assert from_described(Described(ULong(0x31), [])) == Declare()
    assert from_described(Described(Symbol("amqp:declared:list"), [b"7"])) == Declared(b"7")


@pytest.mark.parametrize("settled", [False, True])
def test_a_message_of_a_transaction_goes_to_the_handler_and_not_to_the_sink(settled: bool) -> None:
    found, handler, link, sink = posting(2)
    found.say(Transfer(0, 0, b"t", 0, settled, state=TransactionalState(b"7")), payload=b"body")
    assert handler.calls("posted") == [(b"7", Received(b"body", 0, settled, 0, crossed=False))]
    assert sink.received == []
    assert (link.received, link.credit, sink.exhausted) == (1, 1, 0)
    found.say(Transfer(0, 1, b"t", 0, settled, state=TransactionalState(b"7")), payload=b"more")
    assert (link.credit, sink.exhausted) == (0, 1)


def test_a_message_in_parts_belongs_to_the_transaction_of_its_first_or_any_part() -> None:
    found, handler, _, sink = posting(3)
    state = TransactionalState(b"7")
    found.say(Transfer(0, 0, b"t", 0, False, True, state=state), payload=b"a")
    found.say(Transfer(0, more=False), payload=b"b")
    found.say(Transfer(0, 1, b"t", 0, False, True), payload=b"c")
    found.say(Transfer(0, more=False, state=state), payload=b"d")
    found.say(Transfer(0, 2, b"t", 0, False, True), payload=b"e")
    found.say(Transfer(0, more=False), payload=b"f")
    assert [(txn, item.payload) for txn, item in handler.calls("posted")] == [(b"7", b"ab"), (b"7", b"cd")]
    assert sink.payloads == [b"ef"]


def test_a_message_of_a_transaction_needs_credit_like_any_other() -> None:
    found, handler, link, _ = posting(2)
    link.grant(0)
    transfer = Transfer(0, 0, b"t", 0, state=TransactionalState(b"7"))
    for number in range(2):
        transfer.delivery_id = number
        found.say(transfer, payload=b"crossed")
    assert len(handler.calls("posted")) == 2
    transfer.delivery_id = 2
    found.say(transfer, payload=b"too many")
    assert len(handler.calls("posted")) == 2
    error = found.hear_one(Detach).error
    assert error is not None
    assert error.condition == "amqp:link:transfer-limit-exceeded"


def test_another_state_of_a_transfer_changes_nothing() -> None:
    found, handler, _, sink = posting(2)
    found.say(Transfer(0, 0, b"t", 0, state=Accepted()), payload=b"a")
    found.say(Transfer(0, 1, b"t", 0, state=Described(ULong(0x99), [])), payload=b"b")
    assert sink.payloads == [b"a", b"b"]
    assert handler.calls("posted") == []


@pytest.mark.parametrize("settled", [False, True])
def test_an_outcome_within_a_transaction_goes_to_the_handler_which_decides(settled: bool) -> None:
    found, handler, session, sent = retiring(3)
    found.say(Disposition(True, 0, 1, settled, STATE))
    assert handler.calls("retired") == [(0, STATE, settled), (1, STATE, settled)]
    assert list(session.unsettled) == [0, 1, 2]
    assert found.hear_all(Disposition) == []
    found.say(Disposition(True, 2, None, True, Accepted()))
    assert sent[2].state is ACCEPTED


def test_what_comes_later_for_an_enlisted_delivery_goes_to_the_handler() -> None:
    found, handler, session, sent = retiring(4)
    for number in (0, 2):
        session.enlisted[number] = session.unsettled.pop(number)
    found.say(Disposition(True, 0, 3, True, Accepted()))
    assert handler.calls("retired") == [(0, ACCEPTED, True), (2, ACCEPTED, True)]
    assert [item.is_settled for item in sent] == [False, True, False, True]
    found.say(Disposition(True, 0, 0xFFFF, True, STATE))
    assert handler.calls("retired")[2:] == [(0, STATE, True), (2, STATE, True)]


def test_an_outcome_for_what_is_not_known_is_ignored() -> None:
    found, handler, _, _ = retiring(1)
    found.say(Disposition(True, 5, 9, True, STATE))
    assert handler.calls("retired") == []


def test_what_the_receiver_did_not_settle_is_settled_by_us() -> None:
    found, _, session, _ = retiring(1)
    session.settle_sent(0, ACCEPTED)
    assert found.hear_one(Disposition) == Disposition(False, 0, 0, True, ACCEPTED)


def test_credit_that_belongs_to_a_transaction_is_refused() -> None:
    found, _, _, _ = retiring(1)
    found.say(Flow(0, 100, 0, 100, 0, 1, 10, properties={Symbol("txn-id"): b"7"}))
    error = found.hear_one(Detach).error
    assert error is not None
    assert error.condition == "amqp:not-implemented"


def test_other_properties_of_a_flow_change_nothing() -> None:
    found, handler, _, _ = retiring(1)
    found.say(Flow(0, 100, 0, 100, 0, 1, 10, properties={Symbol("x"): 1}))
    assert handler.links[0].sink.credits[-1] == (-89, False)


@pytest.mark.parametrize("size", [10, 471, 2000])
def test_what_we_send_in_a_transaction_carries_its_id_in_every_part(size: int) -> None:
    pair = RecordedPair(server={"max_frame_size": 512})
    session = pair.begin()
    sink, link = pair.sender(session)
    link.grant(2)
    pair.pump()
    sent = sink.send(b"before")
    assert sink.link is not None
    sink.link.send_in_transaction(sent, b"x" * size, False, 0, TransactionalState(b"7" * 40))  # type: ignore[attr-defined]
    pair.pump()
    assert [(txn, len(item.payload)) for txn, item in pair.server_diary.calls("posted")] == [(b"7" * 40, size)]
    assert link.credit == 0
    link.settle(1, TransactionalState(b"7" * 40, ACCEPTED))
    pair.pump()
    assert pair.client_diary.calls("retired") == [(1, TransactionalState(b"7" * 40, ACCEPTED), True)]


def test_a_declared_transaction_is_an_outcome_even_unsettled() -> None:
    found, handler, _, sent = retiring(1)
    found.say(Disposition(True, 0, None, False, Declared(b"7")))
    assert sent[0].state == Declared(b"7")
    assert handler.calls("retired") == []
    assert found.hear_one(Disposition).settled


def test_states_within_a_transaction_hold_any_outcome() -> None:
    for outcome in (None, ACCEPTED, RELEASED, Rejected()):
        state = TransactionalState(b"7", outcome)
        encoded = encode_composite(state)
        assert decode_composite(encoded, 0, len(encoded))[0] == state
