"""Anycast: each message to one receiver, and that receiver's outcome to the sender."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.messaging.address import AttachOptions, Declaration
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.direct import anycast
from enmasse.messaging.direct.anycast import BACKLOG_BYTES, Anycast, AnycastProducer
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort

OUTCOMES = [
    ACCEPTED,
    RELEASED,
    Rejected(AmqpError("shop:out-of-stock", "none left", {"item": 7})),
    Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-why": "busy"}),
]


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


@pytest.fixture
def address(harness: CoreHarness) -> Anycast:
    return Anycast(harness.core, "orders")


def granted_sender(harness: CoreHarness, address: Anycast) -> MemoryProducerPort:
    sender = harness.sender(address)
    harness.turn()
    assert sender.credit
    return sender


def test_a_message_goes_out_within_the_call_that_brings_it(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    sender.send(b"one", message_format=7)
    arrival = receiver.arrivals[0]
    assert (arrival.payload, arrival.settled, arrival.message_format) == (b"one", False, 7)
    assert sender.outcomes == []


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_the_receivers_own_outcome_reaches_the_sender_with_all_its_details(
    harness: CoreHarness, address: Anycast, outcome: Any
) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    delivery = sender.send(b"one")
    receiver.settle(outcome)
    assert sender.states[delivery] is outcome


def test_a_message_that_was_settled_without_an_outcome_is_released(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    sender.send(b"one")
    receiver.settle(None)
    assert sender.outcomes == [(0, RELEASED)]
    assert address.counts()["released"] == 1


def test_outcomes_are_counted_by_kind(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    for outcome in [*OUTCOMES, ACCEPTED]:
        sender.send(b"one")
        receiver.settle(outcome)
    sender.send(b"waits")
    counts = address.counts()
    assert {name: counts[name] for name in ("accepted", "released", "rejected", "modified", "unsettled")} == {
        "accepted": 2, "released": 1, "rejected": 1, "modified": 1, "unsettled": 1,
    }  # fmt: skip
    assert (counts["messagesIn"], counts["messagesOut"]) == (6, 6)
    assert (counts["senders"], counts["receivers"]) == (1, 1)
    receiver.accept()
    receiver.leave()
    sender.leave()
    after = address.counts()
    assert (after["accepted"], after["messagesIn"], after["messagesOut"]) == (3, 6, 6)
    assert (after["senders"], after["receivers"]) == (0, 0)


def test_each_message_goes_to_the_receiver_with_fewest_unsettled(harness: CoreHarness, address: Anycast) -> None:
    receivers = [harness.receiver(address, 10) for _ in range(3)]
    sender = granted_sender(harness, address)
    for _ in range(6):
        sender.send()
    receivers[1].accept(2)
    for _ in range(2):
        sender.send()
    assert [len(r.arrivals) for r in receivers] == [2, 4, 2]


def test_equal_receivers_take_turns(harness: CoreHarness, address: Anycast) -> None:
    receivers = [harness.receiver(address, 10) for _ in range(3)]
    sender = granted_sender(harness, address)
    for number in range(9):
        sender.send(b"%d" % number)
        for receiver in receivers:
            receiver.accept(len(receiver.unsettled))
    assert [len(r.arrivals) for r in receivers] == [3, 3, 3]
    assert receivers[0].payloads != [b"0", b"1", b"2"]


def test_a_receiver_without_credit_is_passed_over(harness: CoreHarness, address: Anycast) -> None:
    full, free = harness.receiver(address, 1), harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    for _ in range(6):
        sender.send()
    assert (len(full.arrivals), len(free.arrivals)) == (1, 5)


def test_a_receiver_whose_connection_is_full_is_passed_over(harness: CoreHarness, address: Anycast) -> None:
    full, free = harness.receiver(address, 5), harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    full.block()
    for _ in range(4):
        sender.send()
    assert (len(full.arrivals), len(free.arrivals)) == (0, 4)


def test_while_every_connection_is_full_messages_wait_in_order(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    receiver.block()
    for number in range(4):
        sender.send(b"%d" % number)
    harness.turn()
    assert receiver.arrivals == []
    assert address.counts()["backlog"] == 4
    receiver.block(False)
    sender.send(b"4")
    harness.turn()
    assert receiver.payloads == [b"0", b"1", b"2", b"3", b"4"]
    receiver.accept(5)
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 5


def test_no_new_credit_is_granted_for_receivers_whose_connection_is_full(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 0)
    sender = harness.sender(address)
    receiver.block()
    receiver.grant(10)
    harness.turn()
    assert sender.credit == 0
    receiver.block(False)
    harness.turn()
    assert sender.credit == 10


def test_when_the_last_receiver_leaves_what_waited_is_released(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    receiver.block()
    sender.send()
    sender.send(settled=True)
    receiver.leave()
    harness.turn()
    assert sender.outcomes == [(0, RELEASED)]
    assert address.counts()["dropped"] == 1
    assert sender.credit == 0


def test_what_a_receiver_held_when_it_left_has_failed(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    sender.send()
    sender.send()
    receiver.accept()
    receiver.leave()
    assert sender.outcomes == [(0, ACCEPTED), (1, FAILED)]
    assert sender.states[1].delivery_failed
    assert address.counts()["modified"] == 1


def test_what_waits_when_one_of_two_receivers_leaves_goes_to_the_other(
    harness: CoreHarness, address: Anycast
) -> None:
    first, second = harness.receiver(address, 5), harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    first.block()
    second.block()
    sender.send(b"one")
    first.leave()
    second.block(False)
    harness.turn()
    assert second.payloads == [b"one"]


def test_outcomes_for_a_sender_that_left_are_counted_and_told_to_nobody(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    sender.send()
    sender.leave()
    receiver.release()
    harness.turn()
    assert sender.outcomes == []
    assert address.counts()["released"] == 1
    assert harness.faults == []


def test_a_drained_receiver_gets_what_waits_and_then_has_no_credit(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    receiver.block()
    sender.send(b"one")
    receiver.block(False)
    receiver.drain(8)
    assert receiver.payloads == [b"one"]
    assert receiver.credit == 0
    harness.turn()
    assert sender.credit == 0


def test_a_message_that_crossed_a_call_in_takes_credit_that_nobody_was_promised(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    receiver.grant(2)
    harness.turn()
    assert sender.credit == 2
    sender.send(), sender.send()
    receiver.grant(1)
    sender.send(b"crossed")
    assert receiver.payloads[-1] == b"crossed"
    assert receiver.credit == 0


def test_a_message_that_crossed_takes_what_others_were_promised_and_have_not_used(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 10)
    sender = granted_sender(harness, address)
    receiver.grant(0)
    harness.turn()
    other = harness.sender(address)
    receiver.grant(3)
    harness.turn()
    assert (sender.credit, other.credit) == (1, 1)
    within, unpromised, promised = sender.send(), sender.send(), sender.send()
    assert len(receiver.arrivals) == 3
    assert other.credit == 0
    beyond, others = sender.send(), other.send()
    assert sender.outcomes == [(beyond, RELEASED)]
    assert other.outcomes == [(others, RELEASED)]
    receiver.accept(3)
    assert all(sender.states[number] is ACCEPTED for number in (within, unpromised, promised))
    assert address.counts()["creditExcess"] == 0


def test_a_settled_message_that_crossed_without_room_is_dropped_and_counted(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    receiver.grant(0)
    harness.turn()
    sender.send(settled=True)
    assert receiver.arrivals == []
    assert sender.outcomes == []
    assert address.counts()["dropped"] == 1


def test_a_sender_that_crossed_gets_credit_again(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    receiver.grant(0)
    harness.turn()
    sender.send()
    receiver.grant(5)
    harness.turn()
    assert sender.credit == 5


def test_a_settled_message_reaches_the_receiver_settled(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    sender.send(settled=True)
    assert receiver.arrivals[0].settled
    assert sender.outcomes == []
    assert address.counts()["accepted"] == 1


def test_a_receiver_that_asks_for_settled_messages_accepts_by_getting_them(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 5, presettle=True)
    sender = granted_sender(harness, address)
    sender.send()
    assert receiver.arrivals[0].settled
    assert sender.outcomes == [(0, ACCEPTED)]


@pytest.mark.parametrize(("settled", "presettle"), [(True, False), (False, True), (False, False)])
def test_what_waited_is_settled_as_what_goes_out_at_once(
    harness: CoreHarness, address: Anycast, settled: bool, presettle: bool
) -> None:
    receiver = harness.receiver(address, 5, presettle=presettle)
    sender = granted_sender(harness, address)
    receiver.block()
    sender.send(settled=settled, message_format=3)
    receiver.block(False)
    harness.turn()
    assert (receiver.arrivals[0].settled, receiver.arrivals[0].message_format) == (settled or presettle, 3)
    assert sender.outcomes == ([(0, ACCEPTED)] if presettle else [])
    assert len(receiver.unsettled) == address.counts()["unsettled"] == (0 if settled or presettle else 1)


def test_large_messages_that_wait_call_all_credit_in(harness: CoreHarness, address: Anycast) -> None:
    receiver = harness.receiver(address, 1_000)
    sender = granted_sender(harness, address)
    receiver.block()
    body = bytes(BACKLOG_BYTES // 8)
    for _ in range(8):
        sender.send(body)
    harness.turn()
    assert sender.credit == 0
    receiver.block(False)
    harness.turn()
    assert sender.credit == 992
    assert address.backlog_bytes == 0


def test_a_message_of_the_node_itself_waits_for_a_receiver_with_credit(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address)
    address.offer(b"answer")
    harness.turn()
    assert receiver.arrivals == []
    receiver.grant(1)
    harness.turn()
    assert (receiver.payloads, receiver.arrivals[0].settled) == ([b"answer"], True)


def test_a_message_of_the_node_itself_is_dropped_without_a_receiver(harness: CoreHarness, address: Anycast) -> None:
    address.offer(b"answer")
    harness.turn()
    assert harness.receiver(address, 1).arrivals == []
    assert address.counts()["dropped"] == 1


def test_deletion_detaches_every_link_and_answers_every_sender(harness: CoreHarness, address: Anycast) -> None:
    receiver, blocked = harness.receiver(address, 1), harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    sender.send()
    blocked.block()
    sender.send()
    address.close("amqp:resource-deleted", "gone")
    harness.turn()
    assert dict(sender.outcomes) == {0: FAILED, 1: RELEASED}
    for port in (receiver, blocked, sender):
        assert port.is_detached
        assert port.error.condition == "amqp:resource-deleted"
    assert (address.producers, address.consumers) == ([], [])


def test_an_anonymous_senders_message_takes_only_credit_that_nobody_was_promised(
    harness: CoreHarness, address: Anycast
) -> None:
    receiver = harness.receiver(address, 2)
    port = MemoryProducerPort()
    port.sink = AnycastProducer(address, port, address.name)
    port.highest = 10
    port.send(b"one")
    granted_sender(harness, address)
    port.send(b"two")
    assert receiver.payloads == [b"one"]
    assert port.outcomes == [(1, RELEASED)]


def test_a_receiver_learns_nothing_of_options_it_did_not_ask_for(harness: CoreHarness, address: Anycast) -> None:
    port = MemoryConsumerPort()
    port.sink = address.attach_consumer(port, AttachOptions(filters={"unknown": 1}, capabilities=("unknown",)))
    port.grant(1)
    granted_sender(harness, address).send(b"x")
    assert port.payloads == [b"x"]


@pytest.fixture
def acknowledging(harness: CoreHarness) -> Anycast:
    address = Anycast(harness.core, "orders")
    address.apply(Declaration(settings=AddressSettings(acknowledge="node")))
    return address


def test_a_node_that_acknowledges_accepts_what_a_receiver_has(harness: CoreHarness, acknowledging: Anycast) -> None:
    receiver = harness.receiver(acknowledging, 1)
    sender = granted_sender(harness, acknowledging)
    delivery = sender.send(b"one")
    assert sender.states[delivery] is ACCEPTED
    assert [arrival.settled for arrival in receiver.arrivals] == [False]
    receiver.settle(Rejected())
    assert sender.outcomes == [(delivery, ACCEPTED)]
    assert acknowledging.counts()["rejected"] == 1


@pytest.mark.parametrize("outcome", [RELEASED, FAILED], ids=["released", "failed"])
def test_what_the_node_has_acknowledged_goes_to_another_receiver(
    harness: CoreHarness, acknowledging: Anycast, outcome: Any
) -> None:
    first = harness.receiver(acknowledging, 1)
    sender = granted_sender(harness, acknowledging)
    sender.send(b"one")
    second = harness.receiver(acknowledging, 1)
    first.settle(outcome)
    harness.turn()
    assert second.payloads == [b"one"]
    first.leave()
    second.leave()
    harness.turn()
    assert len(sender.outcomes) == 1
    assert acknowledging.counts()["dropped"] == 1, "nobody is left to have it"


class LookedAt(MemoryConsumerPort):
    """A receiver's link that counts how often its credit is looked at."""

    looks = 0

    @property
    def credit(self) -> int:
        LookedAt.looks += 1
        return self._credit

    @credit.setter
    def credit(self, credit: int) -> None:
        self._credit = credit


@pytest.mark.parametrize("credit", [0, 50], ids=["without credit", "that settle nothing"])
def test_very_many_receivers_are_looked_through_once_in_a_turn_for_all_messages_of_that(
    harness: CoreHarness, address: Anycast, credit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anycast, "CROWD", 8)
    ports = [LookedAt() for _ in range(50)]
    for port in ports:
        port.sink = address.attach_consumer(port, AttachOptions())
        port.grant(credit)
    able = harness.receiver(address, 100)
    sender = granted_sender(harness, address)
    messages = 100
    LookedAt.looks = 0
    for number in range(messages):
        sender.send(bytes((number,)))
    looks = [LookedAt.looks]
    while harness.step():
        looks.append(LookedAt.looks - sum(looks))
    # A choice, with a look at who is chosen for each message, and the senders' shares.
    assert max(looks) <= 4 * len(ports) + 3 * messages
    got = [len(port.arrivals) for port in ports]
    assert sum(got) + len(able.arrivals) == messages
    if credit:
        assert max(*got, len(able.arrivals)) - min(*got, len(able.arrivals)) <= 1
    sender_order = [arrival.payload[0] for arrival in able.arrivals]
    assert sender_order == sorted(sender_order)


def test_among_very_many_receivers_the_one_that_has_least_to_do_is_chosen(
    harness: CoreHarness, address: Anycast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anycast, "CROWD", 8)
    monkeypatch.setattr(anycast, "MAX_UNITS", 15)
    ports = [harness.receiver(address, 3) for _ in range(20)]
    sender = granted_sender(harness, address)
    for number in range(20):
        sender.send(bytes((number,)))
    turns = 0
    while harness.step():
        turns += 1
    assert turns > 3, "a turn hands out what it bears"
    assert [len(port.arrivals) for port in ports] == [1] * 20
    ports[7].accept()
    ports[13].block()
    sender.send(b"x")
    harness.turn()
    assert [arrival.payload for arrival in ports[7].arrivals][1:] == [b"x"]
    for _ in range(19):
        sender.send(b"y")
        harness.turn()
    assert len(ports[13].arrivals) == 1
    assert sorted(len(port.arrivals) for port in ports) == [1] + [2] * 18 + [3]
