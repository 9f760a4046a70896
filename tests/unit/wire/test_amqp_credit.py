"""Link credit: granting, taking back, crossing on the wire, drain and echo [AMQP 2.6.7]."""

from __future__ import annotations

import pytest

from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import MAX_CREDIT, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Detach, End, Flow, Transfer
from tests.support.raw_peer import RawPeer


class Receiving:
    """An engine that receives from a raw peer on handle 0."""

    def __init__(self, initial_delivery_count: int = 0) -> None:
        self.handler = Recorder()
        self.peer = RawPeer(Connection(self.handler, container_id="s", is_server=True, now=0.0))
        self.peer.greet()
        self.peer.begin()
        self.peer.attach_sender(initial_delivery_count=initial_delivery_count)
        link = self.handler.links[0]
        assert isinstance(link, ReceivingLink)
        self.link = link
        self.sink: RecordingSink = link.sink
        self.next_id = 0

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.peer.say(Transfer(0, self.next_id, b"t", 0, False), payload=b"m")
            self.next_id += 1

    def flow(self) -> tuple[int | None, int | None]:
        """The only flow that was told: delivery count and credit."""
        flow = self.peer.hear_one(Flow)
        return flow.delivery_count, flow.link_credit


class Sending:
    """An engine that sends to a raw peer on handle 0."""

    def __init__(self) -> None:
        self.handler = Recorder()
        self.peer = RawPeer(Connection(self.handler, container_id="s", is_server=True, now=0.0))
        self.peer.greet()
        self.peer.begin()
        self.peer.attach_receiver()
        link = self.handler.links[0]
        assert isinstance(link, SendingLink)
        self.link = link
        self.sink: RecordingSink = link.sink

    def flow(self, count: int | None, credit: int | None, *, drain: bool = False, echo: bool = False) -> None:
        self.peer.say(Flow(0, 1000, 0, 1000, 0, count, credit, drain=drain, echo=echo))


def test_credit_reaches_the_sender_and_is_used_up_by_sending() -> None:
    pair = RecordedPair()
    sink, link = pair.sender(pair.begin())
    link.grant(2)
    pair.pump()
    assert sink.credits == [(2, False)]
    assert isinstance(sink.link, SendingLink)
    sink.send(b"1")
    assert sink.link.credit == 1
    sink.send(b"2", settled=True)
    assert sink.link.credit == 0
    pair.pump()
    received = pair.sink_of(link)
    assert received.payloads == [b"1", b"2"]
    assert [item.settled for item in received.received] == [False, True]
    assert received.exhausted == 1
    assert link.credit == 0


def test_what_is_granted_in_one_turn_is_told_once() -> None:
    world = Receiving()
    for credit in (5, 7, 3):
        world.link.grant(credit)
    assert world.flow() == (0, 3)
    world.link.grant(3)
    assert world.peer.hear() == []


def test_granting_counts_from_what_has_come() -> None:
    world = Receiving(initial_delivery_count=100)
    world.link.grant(3)
    assert world.flow() == (100, 3)
    world.send(2)
    world.link.grant(3)
    assert world.flow() == (102, 3)
    world.send(3)
    assert world.sink.exhausted == 1
    assert world.link.credit == 0


def test_delivery_counts_wrap_around() -> None:
    world = Receiving(initial_delivery_count=0xFFFFFFFE)
    world.link.grant(5)
    assert world.flow() == (0xFFFFFFFE, 5)
    world.send(3)
    world.link.grant(5)
    assert world.flow() == (1, 5)
    world.send(5)
    assert len(world.sink.received) == 8


def test_credit_taken_back_is_told_at_once() -> None:
    world = Receiving()
    world.link.grant(10)
    assert world.flow() == (0, 10)
    world.link.grant(0)
    assert world.flow() == (0, 0)


def test_deliveries_that_crossed_on_the_wire_are_told_apart() -> None:
    world = Receiving()
    world.link.grant(5)
    world.peer.hear()
    world.send(2)
    world.link.grant(1)
    world.peer.hear()
    world.send(3)
    assert [item.crossed for item in world.sink.received] == [False, False, False, True, True]
    assert world.link.credit == 0
    world.link.grant(2)
    assert world.flow() == (5, 2)
    world.send(2)
    assert not world.sink.received[-1].crossed


def test_sending_beyond_all_that_was_ever_granted_detaches_the_link_only() -> None:
    world = Receiving()
    world.link.grant(2)
    world.peer.hear()
    world.link.grant(0)
    world.peer.hear()
    world.send(2)
    world.send(2)
    detach = world.peer.hear_one(Detach)
    assert detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    assert "delivery 3, 2 were granted" in (detach.error.description or "")
    assert len(world.sink.received) == 2
    world.peer.say(Detach(0, True))
    assert world.handler.calls("detached") == [("in", None, True)]
    assert world.handler.calls("ended") == []


def test_sending_without_any_credit_detaches_the_link_only() -> None:
    world = Receiving()
    world.send()
    error = world.peer.hear_one(Detach).error
    assert error is not None
    assert error.condition == "amqp:link:transfer-limit-exceeded"
    assert not world.sink.received


def test_not_even_a_part_is_taken_without_credit() -> None:
    world = Receiving()
    world.peer.say(Transfer(0, 0, b"t", 0, False, True), payload=b"x" * 1000)
    assert world.peer.hear_one(Detach).error is not None
    assert world.link.partial is None
    world.peer.say(Transfer(0, more=True), Transfer(0), payload=b"x" * 1000)
    assert world.peer.hear() == []
    assert world.handler.calls("ended") == []


def test_nothing_is_granted_before_the_attach_is_answered() -> None:
    world = Receiving()
    world.handler.on_wish = lambda *_: None
    world.peer.say(Attach("late", 1, False, initial_delivery_count=0))
    late = world.handler.links[1]
    assert isinstance(late, ReceivingLink)
    late.grant(7)
    assert world.peer.hear() == []
    late.accept(RecordingSink(late))
    attach, flow = (frame.performative for frame in world.peer.hear())
    assert isinstance(attach, Attach)
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.link_credit) == (attach.handle, 7)


def test_nothing_is_granted_after_detach() -> None:
    world = Receiving()
    world.link.grant(5)
    world.link.detach()
    world.link.grant(9)
    assert [type(frame.performative) for frame in world.peer.hear()] == [Detach]


def test_a_senders_count_resynchronises_after_it_gave_up_credit() -> None:
    world = Receiving()
    world.link.grant(10)
    world.peer.hear()
    world.send(2)
    world.peer.say(Flow(0, 10, 2, 10, 0, 10, 0, available=0))
    assert world.sink.given_up == [8]
    assert world.link.credit == 0
    world.link.grant(1)
    assert world.flow() == (10, 1)


def test_a_sender_cannot_give_up_what_it_never_had() -> None:
    world = Receiving()
    world.link.grant(10)
    world.peer.hear()
    world.peer.say(Flow(0, 10, 0, 10, 0, 11, 0), Flow(0, 10, 0, 10, 0, 0xFFFFFFFF, 0))
    assert world.sink.given_up == []
    assert world.link.credit == 10


def test_a_sender_tells_how_much_waits() -> None:
    world = Receiving()
    world.peer.say(Flow(0, 10, 0, 10, 0, 0, 0, available=42))
    assert world.sink.available == [42]


def test_the_peer_grants_lowers_and_raises() -> None:
    world = Sending()
    world.flow(0, 5)
    world.sink.send(b"m")
    world.flow(0, 5)
    assert world.link.credit == 4, "the receiver had not seen the first yet"
    world.flow(1, 1)
    assert world.link.credit == 1
    world.flow(1, 0)
    assert world.link.credit == 0
    world.sink.send(b"crossed")
    world.flow(1, 0)
    assert world.link.credit == 0, "never below zero"
    world.flow(2, 3)
    assert world.link.credit == 3
    assert world.sink.credits[0] == (5, False)
    assert [sum(gained for gained, _ in world.sink.credits)] == [5]


def test_a_receiver_that_knows_no_count_grants_from_the_start() -> None:
    world = Sending()
    world.flow(None, 5)
    world.sink.send(b"m")
    world.flow(None, 5)
    assert world.link.credit == 4


def test_credit_stays_within_what_can_be_told() -> None:
    world = Sending()
    world.flow(5, 0xFFFFFFFF, echo=True)
    assert world.link.credit == 0xFFFFFFFF
    assert world.peer.hear_one(Flow).link_credit == 0xFFFFFFFF
    other = Receiving()
    other.link.grant(1 << 40)
    assert other.flow() == (0, MAX_CREDIT)
    assert other.link.credit == MAX_CREDIT


def test_a_flow_without_credit_changes_nothing() -> None:
    world = Sending()
    world.flow(0, 5)
    world.flow(0, None)
    assert world.link.credit == 5
    assert len(world.sink.credits) == 1


def test_drain_uses_up_the_credit_when_the_sink_says_so() -> None:
    world = Sending()
    world.flow(0, 10, drain=True)
    assert world.sink.credits == [(10, True)]
    world.sink.send(b"last")
    assert world.peer.hear_all(Flow) == []
    world.link.drained()
    world.link.drained()
    flow = world.peer.hear_one(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    assert world.link.credit == 0
    world.flow(10, 2)
    assert world.link.credit == 2


def test_a_link_that_need_not_drain_keeps_its_credit() -> None:
    world = Sending()
    world.flow(0, 10)
    world.link.drained()
    assert world.link.credit == 10
    assert world.peer.hear() == []


def test_a_drained_link_says_so_before_it_detaches() -> None:
    world = Sending()
    world.flow(0, 10, drain=True)
    world.link.drained()
    world.link.detach()
    flow, detach = (frame.performative for frame in world.peer.hear())
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit) == (10, 0)
    assert isinstance(detach, Detach)


@pytest.mark.parametrize("world", [Sending, Receiving])
def test_echo_of_a_link_is_answered_with_its_state(world: type[Sending | Receiving]) -> None:
    bench = world()
    bench.peer.say(Flow(0, 1000, 0, 1000, 0, 0, 4, echo=True))
    flow = bench.peer.hear_one(Flow)
    assert flow.handle == 0
    assert flow.link_credit == (4 if world is Sending else 0)
    assert not flow.echo


def test_echo_of_a_session_is_answered_without_a_link() -> None:
    world = Receiving()
    world.send()
    world.peer.hear()
    world.peer.say(Flow(0, 1000, 1, 1000, echo=True))
    flow = world.peer.hear_one(Flow)
    assert flow.handle is None
    assert flow.next_incoming_id == 1


def test_a_flow_for_a_link_that_was_just_ended_is_let_go() -> None:
    world = Sending()
    world.handler.sessions[0].end()
    world.flow(0, 5)
    assert [type(frame.performative) for frame in world.peer.hear()] == [End]
