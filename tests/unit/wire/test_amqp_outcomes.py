"""Settlement: every outcome with its details, ranges, both settle modes, wrapping ids [AMQP 2.6.12]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Described, Symbol, ULong
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Disposition, End, Flow, Received, Source, Transfer
from enmasse.wire.amqp.session import Session
from tests.support.raw_peer import RawPeer

OUTCOMES = [
    ACCEPTED,
    RELEASED,
    Rejected(),
    Rejected(AmqpError("acme:invalid", "no amount", {Symbol("field"): "amount"})),
    Modified(),
    Modified(delivery_failed=True),
    Modified(True, True, {Symbol("x-opt-reason"): "tired", Symbol("x-opt-n"): ULong(3)}),
]
EXTENSION = Described(ULong(0x99), [b"state"])


def sending(rcv_settle_mode: int = 0) -> tuple[RawPeer, RecordingSink, Session]:
    """An engine that sends on handle 0 to a raw peer that granted plenty."""
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0))
    peer.greet()
    peer.begin(incoming_window=100_000)
    peer.attach_receiver(rcv_settle_mode=rcv_settle_mode)
    peer.say(Flow(0, 100_000, 0, 1000, 0, 0, 100_000))
    return peer, handler.links[0].sink, handler.sessions[0]


def receiving(**fields: Any) -> tuple[RawPeer, ReceivingLink]:
    """An engine that receives on handle 0 from a raw peer that has plenty of credit."""
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0))
    peer.greet()
    peer.begin()
    peer.attach_sender(**fields)
    link = handler.links[0]
    assert isinstance(link, ReceivingLink)
    link.grant(100)
    peer.hear()
    return peer, link


@pytest.mark.parametrize("state", OUTCOMES, ids=repr)
def test_every_outcome_reaches_the_sender_with_its_details(state: Any) -> None:
    pair = RecordedPair()
    sink, link = pair.sender(pair.begin())
    link.grant(5)
    pair.pump()
    delivery = sink.send(b"m")
    pair.pump()
    assert not delivery.is_settled
    link.settle(pair.sink_of(link).received[0].delivery_id, state)
    pair.pump()
    assert sink.outcomes == [(delivery, state)]
    assert sink.link is not None
    assert sink.link.session.unsettled == {}


@pytest.mark.parametrize("state", OUTCOMES, ids=repr)
def test_a_server_hears_every_outcome_of_what_it_sent(state: Any) -> None:
    pair = RecordedPair()
    link, sender = pair.receiver(pair.begin())
    link.grant(5)
    pair.pump()
    sender.send(b"a")
    sender.send(b"b")
    pair.pump()
    link.settle(0, state)
    link.settle(1, state)
    pair.pump()
    assert sender.states == [state, state]


def test_a_settled_message_has_no_outcome() -> None:
    pair = RecordedPair()
    sink, link = pair.sender(pair.begin(), snd_settle_mode=1)
    link.grant(5)
    pair.pump()
    sink.send(b"m", settled=True)
    pair.pump()
    assert pair.sink_of(link).received[0].settled
    assert sink.link is not None
    assert sink.link.session.unsettled == {}


def test_outcomes_of_a_turn_go_out_as_ranges() -> None:
    peer, link = receiving()
    for number in (0, 1, 2, 5, 6, 9):
        link.settle(number, ACCEPTED)
    link.settle(10, RELEASED)
    link.settle(11, RELEASED)
    link.settle(12, ACCEPTED)
    told = [(d.first, d.first if d.last is None else d.last, d.state) for d in peer.hear_all(Disposition)]
    assert told == [
        (0, 2, Accepted()),
        (5, 6, Accepted()),
        (9, 9, Accepted()),
        (10, 11, Released()),
        (12, 12, Accepted()),
    ]
    assert peer.hear() == []


def test_every_disposition_of_a_receiver_settles() -> None:
    peer, link = receiving()
    link.settle(0, ACCEPTED)
    link.settle(1, Rejected())
    for disposition in peer.hear_all(Disposition):
        assert disposition.role
        assert disposition.settled


@pytest.mark.parametrize("state", [*OUTCOMES, None])
def test_a_range_settles_every_delivery_in_it(state: Any) -> None:
    peer, sink, session = sending()
    deliveries = [sink.send(b"m") for _ in range(10)]
    peer.say(Disposition(True, 2, 6, True, state))
    assert [delivery for delivery, _ in sink.outcomes] == deliveries[2:7]
    assert set(map(repr, sink.states)) == {repr(state)}
    assert list(session.unsettled) == [0, 1, 7, 8, 9]


def test_a_range_wider_than_what_is_open_settles_what_is_open() -> None:
    peer, sink, session = sending()
    deliveries = [sink.send(b"m") for _ in range(5)]
    peer.say(Disposition(True, 1, 0x70000000, True, Accepted()))
    assert [delivery for delivery, _ in sink.outcomes] == deliveries[1:]
    assert list(session.unsettled) == [0]


def test_what_is_settled_twice_or_unknown_is_let_go() -> None:
    peer, sink, _ = sending()
    sink.send(b"m")
    for _ in range(2):
        peer.say(Disposition(True, 0, None, True, Accepted()))
    peer.say(Disposition(True, 77, None, True, Accepted()))
    assert len(sink.outcomes) == 1
    assert not peer.engine.closed


def test_a_range_that_runs_backwards_ends_the_session() -> None:
    peer, sink, _ = sending()
    sink.send(b"m")
    peer.say(Disposition(True, 5, 4, True, Accepted()))
    error = peer.hear_one(End).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert sink.outcomes == []


def test_ids_and_ranges_wrap_around() -> None:
    peer, sink, session = sending()
    session.next_delivery_id = 0xFFFFFFFD
    deliveries = [sink.send(b"m") for _ in range(6)]
    sent = [transfer.delivery_id for transfer in peer.hear_all(Transfer)]
    assert sent == [0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF, 0, 1, 2]
    peer.say(Disposition(True, 0xFFFFFFFE, 1, True, Accepted()))
    assert [delivery for delivery, _ in sink.outcomes] == deliveries[1:5]
    assert list(session.unsettled) == [0xFFFFFFFD, 2]
    peer.say(Disposition(True, 0xFFFFFF00, 0x00FFFFFF, True, Released()))
    assert session.unsettled == {}


def test_outcomes_of_ids_that_wrap_are_told_for_each_of_them() -> None:
    pair = RecordedPair()
    session = pair.begin()
    sink, link = pair.sender(session)
    link.grant(100)
    pair.pump()
    session.next_delivery_id = 0xFFFFFFFE
    deliveries = [sink.send(b"m") for _ in range(4)]
    pair.pump()
    received = pair.sink_of(link).received
    assert [item.delivery_id for item in received] == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    for item in received:
        link.settle(item.delivery_id, ACCEPTED)
    pair.pump()
    assert all(delivery.is_settled for delivery in deliveries)


def test_a_large_message_whose_id_wraps_comes_whole() -> None:
    pair = RecordedPair(server={"max_frame_size": 512})
    session = pair.begin()
    sink, link = pair.sender(session)
    link.grant(2)
    pair.pump()
    session.next_delivery_id = 0xFFFFFFFF
    sink.send(b"x" * 2000)
    sink.send(b"y" * 2000)
    pair.pump()
    assert [(item.delivery_id, len(item.payload)) for item in pair.sink_of(link).received] == [
        (0xFFFFFFFF, 2000),
        (0, 2000),
    ]


def test_a_state_that_is_not_final_settles_nothing() -> None:
    peer, sink, session = sending()
    delivery = sink.send(b"m")
    peer.say(Disposition(True, 0, None, False, Received(0, 0)))
    peer.say(Disposition(True, 0, None, False, None))
    peer.say(Disposition(True, 0, None, False, EXTENSION))
    assert not delivery.is_settled
    assert peer.hear_all(Disposition) == []
    peer.say(Disposition(True, 0, None, True, Received(0, 0)))
    assert delivery.state == Received(0, 0)
    assert session.unsettled == {}


def test_what_a_sender_says_of_its_own_deliveries_settles_nothing_of_ours() -> None:
    peer, sink, _ = sending()
    delivery = sink.send(b"m")
    peer.say(Disposition(False, 0, None, True, Accepted()))
    assert not delivery.is_settled


@pytest.mark.parametrize("state", OUTCOMES, ids=repr)
def test_a_receiver_that_settles_second_is_answered_by_our_settling(state: Any) -> None:
    peer, sink, _ = sending(rcv_settle_mode=1)
    deliveries = [sink.send(b"m") for _ in range(3)]
    peer.hear()
    peer.say(Disposition(True, 0, 2, False, state))
    assert [delivery.state for delivery in deliveries] == [state] * 3
    answer = peer.hear_one(Disposition)
    assert (answer.role, answer.first, answer.last, answer.settled, answer.state) == (False, 0, 2, True, state)
    peer.say(Disposition(True, 0, 2, True, state))
    assert len(sink.outcomes) == 3


def test_where_we_settle_second_the_sender_settles_first() -> None:
    peer, link = receiving(rcv_settle_mode=1)
    link.settle(0, ACCEPTED)
    link.settle(1, ACCEPTED)
    link.settle(2, Rejected(AmqpError("acme:bad")))
    told = peer.hear_all(Disposition)
    assert [(d.first, d.settled, d.state) for d in told] == [
        (0, False, Accepted()),
        (1, False, Accepted()),
        (2, False, Rejected(AmqpError("acme:bad"))),
    ]
    peer.say(Disposition(False, 0, 2, True, Accepted()))
    assert peer.hear() == []
    assert not peer.engine.closed


@pytest.mark.parametrize("rcv_settle_mode", [0, 1])
@pytest.mark.parametrize("snd_settle_mode", [0, 1, 2])
def test_two_engines_settle_in_every_mode(snd_settle_mode: int, rcv_settle_mode: int) -> None:
    pair = RecordedPair()
    session = pair.begin()
    sink, link = pair.sender(session, snd_settle_mode=snd_settle_mode, rcv_settle_mode=rcv_settle_mode)
    assert sink.link is not None
    assert sink.link.remote_attach is not None
    assert sink.link.remote_attach.snd_settle_mode == snd_settle_mode
    assert sink.link.remote_attach.rcv_settle_mode == rcv_settle_mode
    pair.sink_of(link).answer = ACCEPTED
    link.grant(10)
    pair.pump()
    for _ in range(5):
        sink.send(b"m", settled=snd_settle_mode == 1)
    pair.pump()
    assert len(pair.sink_of(link).received) == 5
    assert sink.states == ([] if snd_settle_mode == 1 else [Accepted()] * 5)
    assert session.unsettled == {}


@pytest.mark.parametrize("rcv_settle_mode", [0, 1])
def test_a_receiving_client_settles_in_either_mode(rcv_settle_mode: int) -> None:
    pair = RecordedPair()
    link, sender = pair.receiver(pair.begin(), rcv_settle_mode=rcv_settle_mode)
    link.grant(3)
    pair.pump()
    for _ in range(3):
        sender.send(b"m")
    pair.pump()
    for number in range(3):
        link.settle(number, ACCEPTED)
    pair.pump()
    assert sender.states == [Accepted()] * 3


def test_outcomes_of_two_links_do_not_mix() -> None:
    pair = RecordedPair()
    session = pair.begin()
    one, first = pair.sender(session, "one")
    two, second = pair.sender(session, "two")
    first.grant(10)
    second.grant(10)
    pair.pump()
    for _ in range(3):
        one.send(b"1")
        two.send(b"2")
    pair.pump()
    for item in pair.sink_of(first).received:
        first.settle(item.delivery_id, ACCEPTED)
    for item in pair.sink_of(second).received:
        second.settle(item.delivery_id, RELEASED)
    pair.pump()
    assert one.states == [Accepted()] * 3
    assert two.states == [Released()] * 3


def test_what_has_no_outcome_can_be_taken_back_when_the_link_is_gone() -> None:
    pair = RecordedPair()
    session = pair.begin()
    sink, link = pair.sender(session, "one")
    other, _ = pair.sender(session, "two")
    link.grant(10)
    pair.server_diary.links[1].grant(1)  # type: ignore[attr-defined]
    pair.pump()
    sent = [sink.send(b"m") for _ in range(3)]
    kept = other.send(b"n")
    pair.pump()
    link.settle(1, ACCEPTED)
    link.detach(AmqpError("acme:gone"))
    pair.pump()
    assert isinstance(sink.link, SendingLink)
    assert sink.link.take_unsettled() == [sent[0], sent[2]]
    assert sink.link.take_unsettled() == []
    assert list(session.unsettled.values()) == [kept]


def test_outcomes_due_go_out_before_detach_and_end() -> None:
    peer, link = receiving()
    link.settle(0, ACCEPTED)
    link.detach()
    link.settle(1, ACCEPTED)
    link.session.end()
    kinds = [type(frame.performative).__name__ for frame in peer.hear()]
    assert kinds == ["Disposition", "Detach", "Disposition", "End"]
    link.settle(2, ACCEPTED)
    assert peer.hear() == []


# A receiver that waits until its sender has settled


class Patient(RecordingSink):
    """A sender that settles what its receivers have answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def confirm(self, done: Callable[[], None]) -> None:
        """Keep it waiting."""
        self.waiting.append(done)


def waiting(rcv_settle_mode: int = 1) -> tuple[RecordedPair, ReceivingLink, Patient]:
    """A client that has received five messages, and their sender."""
    pair = RecordedPair()
    sender = Patient()

    def accept(link: Link, attach: Attach) -> None:
        sender.link = link
        link.accept(sender, source=attach.source, target=attach.target)

    pair.server_diary.on_wish = accept
    sink = RecordingSink()
    link = pair.begin().attach_receiver("in", sink, Source("q"), rcv_settle_mode=rcv_settle_mode)
    sink.link = link
    link.grant(100)
    pair.pump()
    for _ in range(5):
        sender.send(b"m")
    pair.pump()
    assert [one.delivery_id for one in sink.received] == [0, 1, 2, 3, 4]
    return pair, link, sender


def test_a_receiver_may_wait_until_its_outcome_has_taken_effect() -> None:
    pair, link, sender = waiting()
    settled: list[int] = []
    for number in (1, 0, 3):
        link.settle_after(number, ACCEPTED, lambda number=number: settled.append(number))  # type: ignore[misc]
    pair.pump()
    assert sender.states == [ACCEPTED] * 3
    assert settled == []
    sender.waiting[1]()
    pair.pump()
    assert settled == [0]
    for done in (sender.waiting[0], sender.waiting[2]):
        done()
    pair.pump()
    assert settled == [0, 1, 3]
    assert link.session.awaited == {}


def test_a_receiver_does_not_wait_for_a_sender_that_does_not_settle_second() -> None:
    pair, link, sender = waiting(rcv_settle_mode=0)
    settled: list[int] = []
    link.settle_after(2, RELEASED, lambda: settled.append(2))
    assert settled == [2]
    pair.pump()
    assert sender.states == [RELEASED]


@pytest.mark.parametrize(
    ("first", "last", "settled"),
    [
        (0, 4, [1, 2, 4]),
        (0, 0x7FFFFFFF, [1, 2, 4]),
        (2, 4, [2, 4]),
        (0xFFFFFFFF, 1, [1]),
        (3, 3, []),
        (5, 9, []),
    ],
)
def test_a_sender_may_settle_ranges(first: int, last: int, settled: list[int]) -> None:
    peer, link = receiving(rcv_settle_mode=1)
    for number in range(5):
        peer.say(Transfer(0, number, b"t"), payload=b"m")
    found: list[int] = []
    for number in (1, 2, 4):
        link.settle_after(number, ACCEPTED, lambda number=number: found.append(number))  # type: ignore[misc]
    peer.say(Disposition(False, first, last, False, ACCEPTED))
    assert found == []
    peer.say(Disposition(False, first, last, True, ACCEPTED))
    assert sorted(found) == settled
    peer.say(Disposition(False, first, last, True))
    assert sorted(found) == settled


def test_a_sender_that_settles_backwards_is_ended() -> None:
    peer, link = receiving(rcv_settle_mode=1)
    peer.say(Transfer(0, 0, b"t"), payload=b"m")
    link.settle_after(0, ACCEPTED, lambda: None)
    peer.hear()
    peer.say(Disposition(False, 5, 4, True))
    assert peer.hear_one(End).error is not None


@pytest.mark.parametrize("way", ["detach", "end", "cut"])
def test_a_receiver_whose_link_ends_waits_no_longer(way: str) -> None:
    pair, link, sender = waiting()
    settled: list[int] = []
    link.settle_after(0, ACCEPTED, lambda: settled.append(0))
    pair.pump()
    if way == "detach":
        link.detach()
    elif way == "end":
        link.session.end()
    else:
        pair.cut()
    pair.pump()
    assert link.session.awaited == {}
    sender.waiting[0]()
    pair.pump()
    assert settled == []
