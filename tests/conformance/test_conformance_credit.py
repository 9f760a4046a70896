"""2.6.7 to 2.6.10: credit, drain and echo."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.types import Described, Symbol
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.performatives import Detach, Flow, Source, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer, durable
from tests.conformance.server_scene import Scene, condition_of, flow, is_alive

TOP = 0xFFFFFFFF


def scene() -> Scene:
    made = Scene()
    made.begin()
    return made


# We send


@clause("2.6.7:no-credit")
def test_a_new_link_has_no_credit_in_either_direction() -> None:
    peer = scene()
    peer.attach_receiver("out", 0)
    assert peer.sending().credit == 0
    peer.attach_sender("in", 1)
    assert peer.receiving().credit == 0
    assert peer.hear_all(Flow) == []


@clause("2.6.7:credit-is-limit")
def test_credit_counts_from_what_the_receiver_has_seen() -> None:
    peer = scene()
    sink = peer.receiver(credit=5)
    for _ in range(3):
        sink.send(b"m")
    # The receiver had seen one of the three when it granted five.
    peer.say(flow(0, 5, count=1))
    assert peer.sending().credit == 3


@clause("2.6.7:reduce", "2.6.10:stop")
def test_credit_may_be_taken_back() -> None:
    peer = scene()
    sink = peer.receiver(credit=5)
    sink.send(b"m")
    peer.say(flow(0, 0, count=0))
    assert peer.sending().credit == 0
    assert sink.credits[-1] == (-4, False)


@clause("2.6.7:count-unknown")
def test_credit_of_a_receiver_that_knows_no_count_counts_from_the_start() -> None:
    peer = scene()
    sink = peer.receiver(credit=4)
    sink.send(b"m")
    peer.say(flow(0, 4, count=None))
    assert peer.sending().credit == 3


@clause("2.6.7:count-wraps", "2.8.10:serial")
def test_our_delivery_count_wraps() -> None:
    peer = scene()
    sink = peer.receiver(credit=0)
    link = peer.sending()
    link.delivery_count = TOP - 1
    peer.say(flow(0, 4, count=TOP - 1))
    for _ in range(4):
        sink.send(b"m")
    assert len(peer.hear_all(Transfer)) == 4
    peer.say(flow(0, 3, count=1, next_incoming_id=4, echo=True))
    assert link.credit == 2
    assert peer.hear_one(Flow).delivery_count == 2


@clause("2.6.7:drain", "2.6.7:drain-empty")
def test_a_drained_sender_sends_what_it_has_and_gives_up_the_rest() -> None:
    peer = scene()
    sink = peer.receiver(credit=0)
    peer.say(flow(0, 10, drain=True))
    assert sink.credits[-1] == (10, True)
    sink.send(b"last")
    peer.sending().drained()
    transfer, told = peer.heard()
    assert isinstance(transfer, Transfer)
    assert isinstance(told, Flow)
    assert (told.delivery_count, told.link_credit, told.drain) == (10, 0, True)
    assert peer.sending().credit == 0


@clause("2.6.7:drain", "2.6.8:drain-get")
def test_credit_of_one_with_drain_gives_a_message_or_a_flow() -> None:
    peer = scene()
    sink = peer.receiver(credit=0)
    peer.say(flow(0, 1, drain=True))
    sink.send(b"m")
    peer.sending().drained()
    found = peer.heard()
    assert isinstance(found[0], Transfer)
    peer.say(flow(0, 1, count=1, next_incoming_id=1, drain=True))
    peer.sending().drained()
    told = peer.hear_one(Flow)
    assert (told.delivery_count, told.link_credit) == (2, 0)


@clause("2.6.9:credit-once")
def test_credit_that_was_granted_once_lasts_until_it_is_used_up() -> None:
    peer = scene()
    sink = peer.receiver(credit=3)
    for left in (2, 1, 0):
        peer.clock.advance(5.0)
        sink.send(b"m")
        assert len(peer.hear_all(Transfer)) == 1
        assert peer.sending().credit == left


@clause("2.6.7:echo", "2.7.4:ids-told")
@pytest.mark.parametrize("is_sender", [True, False])
def test_an_echo_tells_the_links_state(is_sender: bool) -> None:
    peer = scene()
    if is_sender:
        peer.sender(credit=7)
        peer.send(0)
        peer.say(flow(0, None, count=1, next_incoming_id=0, echo=True))
        told = peer.hear_one(Flow)
        assert (told.delivery_count, told.link_credit, told.next_incoming_id) == (1, 6, 1)
    else:
        sink = peer.receiver(credit=7)
        sink.send(b"m")
        peer.say(flow(0, 7, echo=True))
        told = peer.hear_all(Flow)[-1]
        assert (told.delivery_count, told.link_credit, told.next_outgoing_id) == (1, 6, 1)
    assert told.handle == 0


# We receive


@clause("2.6.7:exceeded", "2.8.18:limit")
@pytest.mark.parametrize("credit", [0, 1, 3])
def test_a_sender_beyond_its_credit_is_detached(credit: int) -> None:
    peer = scene()
    sink = peer.sender(credit=credit)
    for number in range(credit + 1):
        peer.send(number)
    assert condition_of(peer.hear_one(Detach)) == "amqp:link:transfer-limit-exceeded"
    assert len(sink.received) == credit
    assert is_alive(peer)


@clause("2.6.7:reduce", "2.6.10:stop")
def test_what_crossed_with_credit_taken_back_still_comes() -> None:
    peer = scene()
    sink = peer.sender(credit=3)
    peer.receiving().grant(0)
    peer.send(0)
    peer.send(1)
    assert [item.crossed for item in sink.received] == [True, True]
    assert peer.hear_all(Flow)[-1].link_credit == 0
    assert peer.hear_all(Detach) == []


@clause("2.6.7:count-wraps", "2.8.10:serial")
@pytest.mark.parametrize("initial", [0, 5, 0x7FFFFFFF, TOP - 2, TOP])
def test_a_senders_delivery_count_starts_anywhere_and_wraps(initial: int) -> None:
    peer = scene()
    sink = peer.sender(credit=6, initial_delivery_count=initial)
    for number in range(5):
        peer.send(number)
    assert len(sink.received) == 5
    peer.receiving().grant(6)
    told = peer.hear_one(Flow)
    assert (told.delivery_count, told.link_credit) == ((initial + 5) & TOP, 6)
    for number in range(5, 12):
        peer.send(number)
    assert condition_of(peer.hear_one(Detach)) == "amqp:link:transfer-limit-exceeded"
    assert len(sink.received) == 11


@clause("2.6.7:only-receiver-sets")
def test_a_senders_flow_does_not_change_its_credit() -> None:
    peer = scene()
    peer.sender(credit=2)
    peer.say(flow(0, 1000, count=0))
    assert peer.receiving().credit == 2


@clause("2.6.7:drain-empty")
def test_a_sender_that_was_drained_has_no_credit_left() -> None:
    peer = scene()
    sink = peer.sender(credit=8, initial_delivery_count=TOP)
    peer.say(flow(0, 0, count=(TOP + 8) & TOP, drain=True))
    assert (peer.receiving().credit, sink.given_up) == (0, [8])


@clause("2.6.7:available")
def test_what_a_sender_has_waiting_is_heard() -> None:
    peer = scene()
    sink = peer.sender(credit=0)
    peer.say(flow(0, 0, available=12))
    assert sink.available == [12]


def told(peer: NodePeer) -> list[int | None]:
    """What a receiver is told that waits for its credit."""
    return [found.available for found in peer.hear_all(Flow) if found.handle is not None]


@clause("2.6.7:available", "2.6.7:echo")
@pytest.mark.parametrize(("address", "before"), [("q", 5), ("t", 0), ("s", 5)])
def test_a_receiver_that_asks_is_told_how_many_messages_wait(address: str, before: int) -> None:
    node = Node()
    sender, peer = node.peer("sender"), node.peer("receiver")
    sender.sender(address)
    for _ in range(before):
        sender.deliver(durable())
    start = {Symbol("enmasse:start"): "first"} if address == "s" else None
    peer.receiver(Source(address, filter=start), credit=0)
    peer.hear()
    peer.grant(0, echo=True)
    assert told(peer) == [before]
    for _ in range(5 - before):
        sender.deliver(durable())
    peer.grant(1, echo=True)
    ((count, waiting),) = [(f.delivery_count, f.available) for f in peer.hear_all(Flow) if f.handle is not None]
    assert (count or 0) + (waiting or 0) == 5


@clause("2.6.7:available", "2.6.7:drain", "2.6.7:echo")
@pytest.mark.parametrize("address", ["q", "a", "s"])
@pytest.mark.parametrize("echo", [False, True])
def test_a_drain_tells_what_waits_and_after_all_that_nothing_does(address: str, echo: bool) -> None:
    node = Node()
    sender, peer = node.peer("sender"), node.peer("receiver")
    peer.receiver(address, credit=0)
    peer.hear()
    if address != "a":
        sender.sender(address)
        for _ in range(3):
            sender.deliver(durable())
    count, found = 0, []
    for credit in (2, 5, 1):
        peer.grant(credit, count=count, drain=True, echo=echo)
        (flow,) = [flow for flow in peer.hear_all(Flow) if flow.handle is not None][-1:]
        count = flow.delivery_count or 0
        assert (flow.link_credit, flow.drain) == (0, True)
        found.append(flow.available)
    assert count == 8
    assert found == ([0, 0, 0] if address == "a" else [1, 0, 0])


@clause("2.6.7:available")
@pytest.mark.parametrize("address", ["q", "m"])
def test_what_waits_is_not_told_where_it_is_not_known(address: str) -> None:
    peer = Node().peer()
    selector = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "color = 'blue'")}
    peer.receiver(Source(address, filter=selector if address == "q" else None), credit=0)
    peer.hear()
    peer.grant(0, echo=True)
    assert told(peer) == [None]


@clause("2.6.7:drain", "2.6.7:drain-empty", "2.6.7:credit-is-limit")
def test_two_engines_agree_on_credit_after_a_drain() -> None:
    pair = RecordedPair()
    link, sink = pair.receiver(pair.begin())
    link.grant(4)
    pair.pump()
    theirs: Any = sink.link
    sink.send(b"m")
    pair.pump()
    assert (link.credit, theirs.credit) == (3, 3)
    theirs.drain = True
    theirs.drained()
    pair.pump()
    assert (link.credit, theirs.credit) == (0, 0)
    link.grant(2)
    pair.pump()
    assert (link.credit, theirs.credit) == (2, 2)
