"""Multicast: a copy for every receiver, one outcome of them all, and no receiver holds up the others for long."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from enmasse.messaging.delivery import FAILED
from enmasse.messaging.direct.anycast import BACKLOG_BYTES
from enmasse.messaging.direct.multicast import SET_ASIDE_AFTER_S, Multicast
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort

REJECTED = Rejected(AmqpError("shop:no", "no"))
MODIFIED = Modified(undeliverable_here=True)


@pytest.fixture
def harness() -> CoreHarness:
    return CoreHarness()


@pytest.fixture
def address(harness: CoreHarness) -> Multicast:
    return Multicast(harness.core, "news")


def granted_sender(harness: CoreHarness, address: Multicast) -> MemoryProducerPort:
    sender = harness.sender(address)
    harness.turn()
    assert sender.credit
    return sender


def receivers(harness: CoreHarness, address: Multicast, *credits_: int) -> list[MemoryConsumerPort]:
    return [harness.receiver(address, credit) for credit in credits_]


def test_every_receiver_gets_a_copy(harness: CoreHarness, address: Multicast) -> None:
    all_of_them = receivers(harness, address, 5, 5, 5)
    sender = granted_sender(harness, address)
    sender.send(b"one", message_format=9)
    for receiver in all_of_them:
        arrival = receiver.arrivals[0]
        assert (arrival.payload, arrival.settled, arrival.message_format) == (b"one", False, 9)
    assert address.counts()["messagesOut"] == 3


def test_senders_get_the_least_credit_among_the_receivers(harness: CoreHarness, address: Multicast) -> None:
    few, *_ = receivers(harness, address, 3, 10, 7)
    sender = granted_sender(harness, address)
    assert sender.credit == 3
    few.grant(9)
    sender.send(), sender.send(), sender.send()
    harness.turn()
    assert sender.credit == 4


def test_senders_get_no_credit_without_receivers(harness: CoreHarness, address: Multicast) -> None:
    sender = harness.sender(address)
    harness.advance(3)
    assert sender.grants == []


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (order, expected)
        for outcomes, expected in [
            ((RELEASED, MODIFIED, REJECTED, ACCEPTED), ACCEPTED),
            ((RELEASED, MODIFIED, REJECTED), REJECTED),
            ((RELEASED, MODIFIED), MODIFIED),
            ((RELEASED, None), RELEASED),
            ((None, None), RELEASED),
        ]
        for order in list(permutations(outcomes))[:: max(1, len(outcomes) - 1)]
    ],
)
def test_the_senders_outcome_is_the_best_of_all_once_the_last_is_known(
    harness: CoreHarness, address: Multicast, outcomes: tuple[Any, ...], expected: Any
) -> None:
    all_of_them = receivers(harness, address, *[5] * len(outcomes))
    sender = granted_sender(harness, address)
    sender.send()
    for receiver, outcome in zip(all_of_them, outcomes, strict=True):
        assert sender.outcomes == []
        receiver.settle(outcome)
    assert sender.outcomes == [(0, expected)]


def test_of_several_rejections_the_first_is_told(harness: CoreHarness, address: Multicast) -> None:
    all_of_them = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    sender.send()
    all_of_them[0].settle(REJECTED)
    all_of_them[1].settle(Rejected(AmqpError("shop:other", "no")))
    assert sender.states[0] is REJECTED


def test_a_settled_message_reaches_all_and_is_answered_by_nobody(harness: CoreHarness, address: Multicast) -> None:
    all_of_them = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    sender.send(b"x", settled=True)
    assert all(receiver.arrivals[0].settled for receiver in all_of_them)
    assert sender.outcomes == []


def test_a_receiver_of_settled_messages_accepts_by_getting_them(harness: CoreHarness, address: Multicast) -> None:
    harness.receiver(address, 5, presettle=True)
    other = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    sender.send()
    assert sender.outcomes == []
    other.settle(REJECTED)
    assert sender.outcomes == [(0, ACCEPTED)]


def test_a_receiver_that_leaves_counts_as_failed_for_what_it_held(harness: CoreHarness, address: Multicast) -> None:
    leaver, other = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    sender.send()
    sender.send()
    other.accept()
    other.release()
    leaver.leave()
    assert sender.outcomes == [(0, ACCEPTED), (1, FAILED)]
    assert address.counts()["modified"] == 2


def test_a_receiver_that_leaves_releases_what_waited_for_it(harness: CoreHarness, address: Multicast) -> None:
    leaver, other = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    leaver.block()
    sender.send()
    other.release()
    assert sender.outcomes == []
    leaver.leave()
    assert sender.outcomes == [(0, RELEASED)]


def test_the_last_receivers_leaving_takes_all_credit_back(harness: CoreHarness, address: Multicast) -> None:
    (only,) = receivers(harness, address, 5)
    sender = granted_sender(harness, address)
    only.leave()
    harness.turn()
    assert sender.credit == 0
    crossed = sender.send()
    assert sender.states[crossed] is RELEASED


def test_a_late_joiner_takes_nothing_from_the_others_before_its_first_credit(
    harness: CoreHarness, address: Multicast
) -> None:
    first = harness.receiver(address, 5)
    sender = granted_sender(harness, address)
    late = harness.receiver(address)
    harness.turn()
    assert sender.credit == 5
    sender.send(b"one")
    first.accept()
    assert sender.outcomes == [(0, ACCEPTED)]
    late.grant(2)
    harness.turn()
    assert sender.credit == 2
    sender.send(b"two")
    assert late.payloads == [b"two"]


def test_a_receiver_without_credit_holds_the_others_up_for_a_second_at_most(
    harness: CoreHarness, address: Multicast
) -> None:
    slow, quick = receivers(harness, address, 1, 10)
    sender = granted_sender(harness, address)
    sender.send(b"one")
    quick.accept()
    harness.turn()
    assert sender.credit == 0
    harness.advance(SET_ASIDE_AFTER_S - 0.01)
    assert sender.credit == 0
    harness.advance(0.02)
    assert sender.credit == 9
    sender.send(b"two")
    assert quick.payloads == [b"one", b"two"]
    assert slow.payloads == [b"one"]


def test_a_receiver_that_was_set_aside_is_counted_again_from_its_next_credit_on(
    harness: CoreHarness, address: Multicast
) -> None:
    slow, _quick = receivers(harness, address, 1, 10)
    sender = granted_sender(harness, address)
    sender.send(b"one")
    harness.advance(SET_ASIDE_AFTER_S + 0.1)
    sender.send(b"two")
    slow.grant(4)
    harness.turn()
    assert sender.credit == 4
    sender.send(b"three")
    assert slow.payloads == [b"one", b"three"]


def test_nobody_is_set_aside_while_nobody_can_take_anything(harness: CoreHarness, address: Multicast) -> None:
    first, second = receivers(harness, address, 1, 1)
    sender = granted_sender(harness, address)
    sender.send()
    harness.advance(10 * SET_ASIDE_AFTER_S)
    first.grant(5)
    harness.turn()
    assert sender.credit == 0
    harness.advance(SET_ASIDE_AFTER_S / 2)
    second.grant(5)
    harness.turn()
    assert sender.credit == 5


def test_a_pause_that_ends_in_time_starts_the_second_anew(harness: CoreHarness, address: Multicast) -> None:
    slow, _quick = receivers(harness, address, 1, 10)
    sender = granted_sender(harness, address)
    for _ in range(3):
        sender.send()
        harness.advance(0.7 * SET_ASIDE_AFTER_S)
        slow.grant(1)
        harness.turn()
    assert len(slow.arrivals) == 3
    assert sender.credit == 1


def test_copies_wait_for_a_receiver_whose_connection_is_full(harness: CoreHarness, address: Multicast) -> None:
    full, free = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    full.block()
    sender.send(b"one")
    sender.send(b"two")
    harness.turn()
    assert free.payloads == [b"one", b"two"]
    assert full.payloads == []
    assert address.counts()["backlog"] == 2
    full.block(False)
    assert full.payloads == [b"one", b"two"]
    full.accept(2)
    free.accept(2)
    assert sender.outcomes == [(0, ACCEPTED), (1, ACCEPTED)]


def test_a_full_connection_is_set_aside_and_what_waited_for_it_is_released(
    harness: CoreHarness, address: Multicast
) -> None:
    full, free = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    full.block()
    sender.send()
    sender.send(settled=True)
    free.accept()
    assert sender.outcomes == []
    harness.advance(SET_ASIDE_AFTER_S + 0.1)
    assert sender.outcomes == [(0, ACCEPTED)]
    assert address.counts()["dropped"] == 2
    assert sender.credit == 3
    full.block(False)
    harness.turn()
    assert full.arrivals == []


def test_large_copies_that_wait_call_all_credit_in(harness: CoreHarness, address: Multicast) -> None:
    full, _free = receivers(harness, address, 1_000, 1_000)
    sender = granted_sender(harness, address)
    full.block()
    body = bytes(BACKLOG_BYTES // 4)
    for _ in range(4):
        sender.send(body)
    harness.turn()
    assert sender.credit == 0
    full.block(False)
    harness.turn()
    assert sender.credit == 996


def test_a_drained_receiver_has_no_credit_left(harness: CoreHarness, address: Multicast) -> None:
    (receiver,) = receivers(harness, address, 5)
    sender = granted_sender(harness, address)
    receiver.drain()
    harness.turn()
    assert (receiver.credit, sender.credit) == (0, 0)


def test_a_message_that_crossed_takes_what_every_receiver_still_takes(
    harness: CoreHarness, address: Multicast
) -> None:
    first, second = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    first.grant(1)
    harness.turn()
    sender.send()
    first.grant(1)
    taken = sender.send(b"crossed")
    refused = sender.send()
    assert first.payloads[-1] == second.payloads[-1] == b"crossed"
    first.accept(2)
    second.accept(2)
    assert sender.states == {0: ACCEPTED, taken: ACCEPTED, refused: RELEASED}


def test_a_message_that_crossed_takes_what_others_were_promised_and_have_not_used(
    harness: CoreHarness, address: Multicast
) -> None:
    first, second = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    first.grant(0)
    harness.turn()
    other = harness.sender(address)
    first.grant(3)
    harness.turn()
    assert (sender.credit, other.credit) == (1, 1)
    sent = [sender.send() for _ in range(3)]
    assert other.credit == 0
    for receiver in (first, second):
        receiver.accept(3)
    assert all(sender.states[number] is ACCEPTED for number in sent)
    assert address.counts()["creditExcess"] == 0


def test_a_settled_message_that_crossed_without_room_is_dropped_and_counted(
    harness: CoreHarness, address: Multicast
) -> None:
    (receiver,) = receivers(harness, address, 5)
    sender = granted_sender(harness, address)
    receiver.grant(0)
    harness.turn()
    sender.send(settled=True)
    assert receiver.arrivals == []
    assert address.counts()["dropped"] == 1


def test_senders_share_the_least_credit_equally(harness: CoreHarness, address: Multicast) -> None:
    receivers(harness, address, 12, 30)
    senders = [harness.sender(address) for _ in range(3)]
    harness.turn()
    assert [sender.credit for sender in senders] == [4, 4, 4]


def test_what_a_sender_leaves_unused_is_called_in_for_one_that_waits(
    harness: CoreHarness, address: Multicast
) -> None:
    receivers(harness, address, 4)
    granted_sender(harness, address)
    newcomer = harness.sender(address)
    harness.advance(0.05)
    assert newcomer.credit >= 2


def test_deletion_detaches_every_link_and_answers_every_sender(harness: CoreHarness, address: Multicast) -> None:
    first, second = receivers(harness, address, 5, 5)
    sender = granted_sender(harness, address)
    sender.send()
    first.release()
    address.close("amqp:resource-deleted", "gone")
    assert sender.outcomes == [(0, FAILED)]
    assert all(port.error.condition == "amqp:resource-deleted" for port in (first, second, sender))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_credit_is_never_beyond_the_least_and_every_message_is_answered(seed: int) -> None:
    random = Random(seed)
    harness = CoreHarness()
    address = Multicast(harness.core, "news")
    senders: list[MemoryProducerPort] = []
    consumers: list[MemoryConsumerPort] = []
    for _ in range(250):
        action = random.randrange(10)
        if action == 0 and len(senders) < 5:
            senders.append(harness.sender(address))
        elif action == 1 and len(consumers) < 5:
            consumers.append(harness.receiver(address, random.randrange(8)))
        elif action == 2 and senders and random.random() < 0.2:
            senders.pop(random.randrange(len(senders))).leave()
        elif action == 3 and consumers and random.random() < 0.2:
            consumers.pop(random.randrange(len(consumers))).leave()
        elif action == 4 and consumers:
            consumers[random.randrange(len(consumers))].block(random.random() < 0.4)
        elif action == 5 and consumers:
            consumer = random.choice(consumers)
            (consumer.drain if random.random() < 0.2 else consumer.grant)(random.randrange(12))
        elif action in (6, 7):
            for sender in senders:
                if sender.received < sender.highest:
                    sender.send(settled=random.random() < 0.2)
        elif action == 8:
            for consumer in consumers:
                if consumer.unsettled:
                    consumer.settle(random.choice([ACCEPTED, RELEASED, REJECTED, MODIFIED, None]))
        else:
            harness.advance(random.choice([0.0, 0.005, 0.3, 1.5]))
        harness.turn()
        least = min((c.port.credit for c in address.active), default=0)
        assert sum(sender.credit for sender in senders) <= max(0, least - address.backlog())
        assert address.share.most_excess == 0
    for consumer in consumers:
        consumer.leave()
    harness.turn()
    assert not any(sender.unsettled or sender.credit for sender in senders)
    assert harness.faults == []
