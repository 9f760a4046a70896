"""2.7.6: dispositions, their ranges and their states."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Symbol
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.performatives import Composite, Disposition, End, Received
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, condition_of, is_alive

TOP = 0xFFFFFFFF


def scene(messages: int, first: int = 0) -> tuple[Scene, RecordingSink]:
    """A peer that has received some messages and settled none."""
    peer = Scene()
    peer.begin()
    sink = peer.receiver(credit=100)
    assert sink.link is not None
    sink.link.session.next_delivery_id = first
    for _ in range(messages):
        sink.send(b"m")
    peer.hear()
    return peer, sink


def unsettled(sink: RecordingSink) -> list[int]:
    assert sink.link is not None
    return list(sink.link.session.unsettled)


@clause("2.7.6:last-absent")
def test_without_last_a_disposition_is_about_first() -> None:
    peer, sink = scene(3)
    peer.say(Disposition(True, 1, settled=True, state=Accepted()))
    assert unsettled(sink) == [0, 2]
    assert sink.states == [ACCEPTED]


@clause("2.7.6:range")
def test_a_range_is_about_everything_in_between() -> None:
    peer, sink = scene(5)
    peer.say(Disposition(True, 1, 3, settled=True, state=Released()))
    assert unsettled(sink) == [0, 4]
    assert sink.states == [RELEASED] * 3


@clause("2.8.8:serial", "2.7.6:range-wraps", "2.8.10:serial")
def test_a_range_goes_over_the_top() -> None:
    peer, sink = scene(5, first=TOP - 1)
    peer.say(Disposition(True, TOP, 1, settled=True, state=Accepted()))
    assert unsettled(sink) == [TOP - 1, 2]


@clause("2.7.6:first-after-last")
@pytest.mark.parametrize(("first", "last"), [(2, 1), (1, 0), (5, TOP)])
def test_a_range_that_runs_backwards_ends_the_session(first: int, last: int) -> None:
    peer, sink = scene(3)
    peer.say(Disposition(True, first, last, settled=True, state=Accepted()))
    assert condition_of(peer.hear_one(End)) == "amqp:invalid-field"
    assert sink.outcomes == []
    assert is_alive(peer)


@clause("2.7.6:unknown-ids")
def test_ids_that_mean_nothing_do_no_harm() -> None:
    peer, sink = scene(2)
    peer.say(Disposition(True, 40, 60, settled=True, state=Accepted()))
    peer.say(Disposition(True, 0, 0x7FFFFFFE, settled=True, state=Accepted()))
    peer.say(Disposition(True, 0, 1, settled=True, state=Released()))
    assert sink.states == [ACCEPTED, ACCEPTED]
    assert peer.hear() == []
    assert is_alive(peer)


@clause("2.7.6:role", "2.8.1:values")
def test_a_senders_disposition_is_not_about_what_we_sent() -> None:
    peer, sink = scene(2)
    peer.say(Disposition(False, 0, 1, settled=True, state=Accepted()))
    assert unsettled(sink) == [0, 1]


@clause("2.7.6:not-terminal", "3.4.1:not-final")
def test_received_unsettled_changes_nothing() -> None:
    peer, sink = scene(1)
    peer.say(Disposition(True, 0, settled=False, state=Received(0, 17)))
    assert (unsettled(sink), sink.outcomes) == ([0], [])
    peer.say(Disposition(True, 0, settled=True, state=Accepted()))
    assert sink.states == [ACCEPTED]


@clause("2.7.6:settled-without-state")
def test_a_delivery_that_is_settled_without_a_state_is_forgotten() -> None:
    peer, sink = scene(1)
    peer.say(Disposition(True, 0, settled=True))
    assert unsettled(sink) == []
    assert sink.states == [None]


@clause("2.7.6:batchable")
def test_batchable_changes_no_outcome() -> None:
    peer, sink = scene(2)
    peer.say(Disposition(True, 0, settled=True, state=Accepted(), batchable=True))
    peer.say(Disposition(True, 1, 1, settled=True, state=Modified(True, True), batchable=True))
    assert sink.states == [ACCEPTED, Modified(True, True)]


@clause("2.7.6:range", "3.4.3:error-passed")
@pytest.mark.parametrize(
    "state",
    [
        Accepted(),
        Released(),
        Rejected(),
        Rejected(AmqpError("example:bad", "why", {Symbol("k"): 1})),
        Modified(),
        Modified(True, False, {Symbol("x-opt-a"): "b"}),
    ],
)
def test_every_outcome_is_told_as_it_is_in_both_directions(state: Composite) -> None:
    peer, sink = scene(1)
    peer.say(Disposition(True, 0, settled=True, state=state))
    assert sink.states == [state]
    receiving = peer.sender(name="in", handle=1)
    receiving.answer = state
    for number in range(3):
        peer.send(number, handle=1)
    told: list[Any] = [(d.first, d.last, d.settled, d.state) for d in peer.hear_all(Disposition)]
    assert told == [(0, 2, True, state)]


@clause("2.7.6:range", "2.8.10:serial")
def test_our_ranges_do_not_span_what_is_not_settled() -> None:
    peer = Scene()
    peer.begin()
    sink = peer.sender()
    for number in range(6):
        peer.send(number)
    link = peer.receiving()
    for number in (0, 1, 3, 4):
        link.settle(number, ACCEPTED)
    link.settle(5, RELEASED)
    told = [(d.first, d.last, d.state) for d in peer.hear_all(Disposition)]
    assert told == [(0, 1, ACCEPTED), (3, 4, ACCEPTED), (5, 5, RELEASED)]
    assert len(sink.received) == 6
