"""Credit at a direct address: never promised twice, shared equally, and nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.direct.anycast import Anycast
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from tests.support.chance import examples

MANY = 1_000


class Direct:
    """An anycast address whose grants are checked one by one."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        self.address = Anycast(self.harness.core, "orders")
        self.senders: list[MemoryProducerPort] = []
        self.receivers: list[MemoryConsumerPort] = []

    def sender(self) -> MemoryProducerPort:
        port = self.harness.sender(self.address)
        port.on_raise = self.check
        self.senders.append(port)
        return port

    def receiver(self, credit: int) -> MemoryConsumerPort:
        port = self.harness.receiver(self.address, credit)
        self.receivers.append(port)
        return port

    @property
    def promised(self) -> int:
        return sum(port.credit for port in self.senders)

    @property
    def asked(self) -> int:
        return sum(port.credit for port in self.receivers)

    def check(self) -> None:
        """Rule 1: whenever credit is granted, nobody was promised what no receiver asked for."""
        assert self.promised + len(self.address.backlog) <= self.asked

    def look(self) -> None:
        """Let the share's deadline pass, and no more."""
        deadline = self.address.share.deadline
        assert deadline is not None
        self.harness.advance(deadline - self.harness.clock.now)

    def shares(self) -> list[int]:
        self.harness.turn()
        return [port.credit for port in self.senders]


class CreditMachine(RuleBasedStateMachine):
    """Anything may happen at any time; the promises hold after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.direct = Direct()
        self.sent = 0
        self.presettled = 0
        self.told_to_the_gone = 0
        self.blocked: set[int] = set()

    @rule()
    def a_sender_joins(self) -> None:
        self.direct.sender()

    @rule(credit=st.integers(0, 12))
    def a_receiver_joins(self, credit: int) -> None:
        self.direct.receiver(credit)

    @precondition(lambda self: self.direct.senders)
    @rule(data=st.data())
    def a_sender_leaves(self, data: st.DataObject) -> None:
        port = self.direct.senders.pop(data.draw(st.integers(0, len(self.direct.senders) - 1)))
        port.leave()

    @precondition(lambda self: self.direct.receivers)
    @rule(data=st.data())
    def a_receiver_leaves(self, data: st.DataObject) -> None:
        port = self.direct.receivers.pop(data.draw(st.integers(0, len(self.direct.receivers) - 1)))
        port.leave()

    @precondition(lambda self: self.direct.receivers)
    @rule(data=st.data(), credit=st.integers(0, 12), drain=st.booleans())
    def a_receiver_changes_its_credit(self, data: st.DataObject, credit: int, drain: bool) -> None:
        port = data.draw(st.sampled_from(self.direct.receivers))
        if drain:
            port.drain(credit)
        else:
            port.grant(credit)

    @precondition(lambda self: self.direct.receivers)
    @rule(data=st.data(), blocked=st.booleans())
    def a_connection_is_blocked_or_free(self, data: st.DataObject, blocked: bool) -> None:
        data.draw(st.sampled_from(self.direct.receivers)).block(blocked)

    @precondition(lambda self: any(port.received < port.highest for port in self.direct.senders))
    @rule(data=st.data(), settled=st.booleans(), count=st.integers(1, 5))
    def a_sender_sends(self, data: st.DataObject, settled: bool, count: int) -> None:
        port = data.draw(st.sampled_from([p for p in self.direct.senders if p.received < p.highest]))
        for _ in range(min(count, port.highest - port.received)):
            port.send(b"x", settled=settled)

    @precondition(lambda self: any(port.unsettled for port in self.direct.receivers))
    @rule(data=st.data(), state=st.sampled_from([ACCEPTED, RELEASED, Rejected(), FAILED, None]))
    def a_receiver_settles(self, data: st.DataObject, state: object) -> None:
        port = data.draw(st.sampled_from([p for p in self.direct.receivers if p.unsettled]))
        port.settle(state, at=data.draw(st.integers(0, len(port.unsettled) - 1)))

    @precondition(lambda self: self.direct.senders)
    @rule(data=st.data(), available=st.integers(0, 3))
    def a_sender_tells_of_itself(self, data: st.DataObject, available: int) -> None:
        port = data.draw(st.sampled_from(self.direct.senders))
        if available:
            port.sink.on_available(available)
        elif port.credit:
            port.give_up()

    @rule(seconds=st.sampled_from([0.0, 0.003, 0.010, 0.1, 2.0]))
    def time_passes(self, seconds: float) -> None:
        self.direct.harness.advance(seconds)

    @invariant()
    def no_credit_beyond_what_receivers_asked_for(self) -> None:
        direct = self.direct
        direct.harness.turn()
        backlog = len(direct.address.backlog)
        assert direct.promised <= max(0, direct.asked - backlog)
        assert direct.address.share.most_excess == 0

    @invariant()
    def every_unsettled_message_is_with_a_receiver_or_waits_for_one(self) -> None:
        direct = self.direct
        assert direct.harness.faults == []
        held = [arrival.delivery for port in direct.receivers for arrival in port.unsettled]
        ids = {id(port): set() for port in direct.senders}  # type: ignore[var-annotated]
        for delivery in [*held, *direct.address.backlog]:
            if not delivery.settled and id(delivery.producer.port) in ids:
                ids[id(delivery.producer.port)].add(delivery.producer_id)
        assert ids == {id(port): port.unsettled for port in direct.senders}

    def teardown(self) -> None:
        direct = self.direct
        while direct.receivers:
            direct.receivers.pop().leave()
        direct.harness.turn()
        assert direct.promised == 0
        assert not any(port.unsettled for port in direct.senders)
        assert direct.harness.faults == []


TestCreditMachine = CreditMachine.TestCase
TestCreditMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_senders_get_no_credit_while_no_receiver_is_attached() -> None:
    direct = Direct()
    sender = direct.sender()
    direct.harness.advance(5)
    assert sender.grants == []


def test_senders_get_no_credit_while_receivers_have_none() -> None:
    direct = Direct()
    direct.receiver(0)
    direct.sender()
    assert direct.shares() == [0]


def test_a_lone_sender_gets_all_that_receivers_ask_for() -> None:
    direct = Direct()
    direct.sender()
    direct.receiver(7)
    direct.receiver(5)
    assert direct.shares() == [12]


def test_credit_is_shared_equally_among_senders() -> None:
    direct = Direct()
    for _ in range(4):
        direct.sender()
    direct.receiver(100)
    assert direct.shares() == [25, 25, 25, 25]


def test_a_share_is_topped_up_when_half_of_it_is_used() -> None:
    direct = Direct()
    first, _ = direct.sender(), direct.sender()
    receiver = direct.receiver(20)
    direct.harness.turn()
    for _ in range(4):
        first.send()
    receiver.grant(20)
    assert direct.shares() == [6, 10]
    first.send()
    receiver.grant(20)
    assert direct.shares() == [10, 10]


def test_what_a_receiver_takes_back_is_called_in_at_once() -> None:
    direct = Direct()
    direct.sender(), direct.sender()
    receiver = direct.receiver(20)
    assert direct.shares() == [10, 10]
    receiver.grant(6)
    assert sum(direct.shares()) == 6
    receiver.leave()
    assert direct.shares() == [0, 0]


def test_what_is_called_in_comes_from_those_that_hold_most() -> None:
    direct = Direct()
    first, second = direct.sender(), direct.sender()
    receiver = direct.receiver(20)
    direct.harness.turn()
    for _ in range(4):
        second.send()
    assert (first.credit, second.credit) == (10, 6)
    receiver.grant(12)
    assert direct.shares() == [6, 6]


def test_a_newcomer_gets_an_equal_share_once_the_others_left_theirs_unused() -> None:
    direct = Direct()
    idle = direct.sender()
    direct.receiver(10)
    assert direct.shares() == [10]
    newcomer = direct.sender()
    assert direct.shares() == [10, 0]
    direct.look()
    assert (idle.credit, newcomer.credit) == (1, 9)


def test_an_active_holder_keeps_what_it_uses_and_shares_the_rest() -> None:
    direct = Direct()
    active = direct.sender()
    direct.receiver(40)
    direct.harness.turn()
    newcomer = direct.sender()
    direct.harness.turn()
    for _ in range(5):
        active.send()
    direct.look()
    assert active.credit == 10
    assert newcomer.credit == 17


def test_what_is_left_unused_is_called_in_after_10_ms_doubling_to_a_second_while_nobody_sends() -> None:
    direct = Direct()
    direct.receiver(10)
    for _ in range(11):
        direct.sender()
    direct.harness.turn()
    waits = []
    for _ in range(22):
        before = direct.harness.clock.now
        direct.look()
        waits.append(round(direct.harness.clock.now - before, 3))
    rounds = waits[1::2]
    assert rounds == sorted(rounds)
    assert waits[0] == 0.01
    assert {0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0} <= set(rounds)
    assert max(waits) == 1.0


def test_a_message_makes_the_looks_frequent_again() -> None:
    direct = Direct()
    receiver = direct.receiver(2)
    for _ in range(3):
        direct.sender()
    direct.harness.advance(20)
    holder = max(direct.senders, key=lambda port: port.credit)
    holder.send()
    receiver.grant(2)
    direct.harness.turn()
    for _ in range(2):
        before = direct.harness.clock.now
        direct.look()
        assert direct.harness.clock.now - before == pytest.approx(0.01)


def test_a_newcomer_makes_the_looks_frequent_again() -> None:
    direct = Direct()
    direct.receiver(1)
    direct.sender(), direct.sender()
    direct.harness.advance(20)
    direct.look()
    newcomer = direct.sender()
    direct.harness.turn()
    direct.harness.advance(1.05)
    assert newcomer.grants


def test_nothing_is_called_in_while_nobody_waits() -> None:
    direct = Direct()
    direct.receiver(10)
    direct.sender(), direct.sender()
    assert direct.shares() == [5, 5]
    assert direct.address.share.deadline is None
    direct.harness.advance(10)
    assert direct.shares() == [5, 5]


def time_until_it_can_send(direct: Direct, sender: MemoryProducerPort, patience_s: float) -> float:
    start = direct.harness.clock.now
    while not sender.credit and direct.harness.clock.now < start + patience_s:
        direct.harness.advance(0.005)
    assert sender.credit, f"no credit within {patience_s} s"
    return direct.harness.clock.now - start


@pytest.mark.parametrize("idle_for_s", [0.0, 60.0])
@pytest.mark.slow
def test_a_thousand_idle_senders_do_not_starve_a_newcomer(idle_for_s: float) -> None:
    direct = Direct()
    direct.receiver(10)
    for _ in range(MANY):
        direct.sender()
    direct.harness.advance(idle_for_s)
    time_until_it_can_send(direct, direct.sender(), 3)


@pytest.mark.slow
def test_a_thousand_idle_senders_do_not_starve_one_of_them_that_wakes_up() -> None:
    direct = Direct()
    direct.receiver(10)
    for _ in range(MANY):
        direct.sender()
    direct.harness.advance(60)
    waiting = next(port for port in direct.senders if not port.credit)
    time_until_it_can_send(direct, waiting, 15)


def test_a_sender_that_says_what_it_has_is_preferred_to_idle_ones() -> None:
    direct = Direct()
    direct.receiver(10)
    for _ in range(100):
        direct.sender()
    direct.harness.advance(60)
    waiting = next(port for port in direct.senders if not port.credit)
    waiting.sink.on_available(3)
    time_until_it_can_send(direct, waiting, 1)
    assert waiting.credit > 1


def test_a_busy_sender_does_not_starve_idle_ones_that_wake_up() -> None:
    direct = Direct()
    receiver = direct.receiver(10)
    senders = [direct.sender() for _ in range(21)]
    busy = senders[7]

    def work(seconds: float) -> None:
        for _ in range(int(seconds / 0.002)):
            while busy.credit:
                busy.send()
                receiver.accept()
            direct.harness.turn()
            receiver.grant(10)
            direct.harness.advance(0.002)

    work(1)
    for sender in senders:
        if sender is busy:
            continue
        before = len(sender.grants)
        for _ in range(100):
            if len(sender.grants) > before:
                break
            work(0.01)
        assert len(sender.grants) > before


@pytest.mark.parametrize("credit", [1, 2, 10])
def test_idle_senders_do_not_keep_all_credit_from_a_busy_one(credit: int) -> None:
    direct = Direct()
    receiver = direct.receiver(credit)
    busy, *_ = (direct.sender() for _ in range(1 + credit))
    for _ in range(100):
        time_until_it_can_send(direct, busy, 1)
        busy.send()
        receiver.accept()
        receiver.grant(credit)
        direct.harness.advance(0.005)


def test_a_thousand_senders_get_their_messages_through_a_credit_of_ten() -> None:
    direct = Direct()
    receiver = direct.receiver(10)
    senders = [direct.sender() for _ in range(MANY)]
    left = set(range(MANY))
    rounds = 0
    while left:
        rounds += 1
        assert rounds < 2 * MANY
        direct.harness.turn()
        for index in [index for index in left if senders[index].credit]:
            senders[index].send(b"%d" % index)
            left.discard(index)
        receiver.accept(len(receiver.unsettled))
        receiver.grant(10)
    direct.harness.turn()
    assert sorted(map(int, receiver.payloads)) == list(range(MANY))
    assert all(port.outcomes == [(0, ACCEPTED)] for port in senders)
    assert direct.address.share.most_excess == 0


def test_busy_senders_get_equal_parts_in_the_long_run() -> None:
    direct = Direct()
    receiver = direct.receiver(30)
    for _ in range(3):
        direct.sender()
    for _ in range(200):
        direct.harness.advance(0.001)
        for sender in direct.senders:
            while sender.credit:
                sender.send()
        receiver.accept(len(receiver.unsettled))
        receiver.grant(30)
    sent = [sender.received for sender in direct.senders]
    assert max(sent) - min(sent) <= 10
    assert sum(sent) == len(receiver.arrivals) > 5_000


@pytest.mark.parametrize("credit", [1, 2, 10])
@pytest.mark.slow
def test_idle_senders_take_no_more_than_an_eighth_from_a_busy_one(credit: int) -> None:
    direct = Direct()
    receiver = direct.receiver(credit)
    senders = [direct.sender() for _ in range(5)]
    direct.harness.advance(5)
    busy = senders[2]
    busy.sink.on_available(1)
    sent = []
    for _ in range(2_000):
        direct.harness.advance(0.001)
        sent.append(busy.credit)
        while busy.credit:
            busy.send()
            receiver.accept()
        receiver.grant(credit)
    assert sum(sent[1_000:]) >= 1_000 * credit * 0.75


def test_credit_of_a_sender_that_leaves_goes_to_the_others() -> None:
    direct = Direct()
    first, second = direct.sender(), direct.sender()
    direct.receiver(10)
    direct.harness.turn()
    first.leave()
    direct.senders.remove(first)
    assert direct.shares() == [10]
    assert second.credit == 10


def test_credit_that_a_sender_gave_up_is_shared_anew() -> None:
    direct = Direct()
    first, second = direct.sender(), direct.sender()
    direct.receiver(10)
    direct.harness.turn()
    first.give_up()
    assert direct.shares() == [5, 5]
    assert second.credit == 5
