"""2.5 and 2.7.2: sessions, their windows and their ends."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import AmqpError
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.framing import amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.amqp.session_output import INCOMING_WINDOW
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, condition_of, flow, is_alive, kinds

TOP = 0xFFFFFFFF


# Begin and end


@clause("2.5.1:begin-answered", "2.5.1:channels-differ")
def test_a_begin_is_answered_with_the_peers_channel() -> None:
    scene = Scene()
    scene.say(Begin(None, 0, 1, 1), channel=9)
    (frame,) = scene.hear()
    assert frame.channel == 0
    assert isinstance(frame.performative, Begin)
    assert frame.performative.remote_channel == 9
    scene.attach_sender(channel=9)


@clause("2.5.1:answer-to-nothing")
def test_an_answer_to_no_begin_ends_the_connection() -> None:
    scene = Scene()
    scene.say(Begin(0, 0, 1, 1))
    assert condition_of(scene.hear_one(Close)) == "amqp:not-allowed"


@clause("2.5.1:channel-in-use")
def test_a_begin_on_a_channel_in_use_ends_the_connection() -> None:
    scene = Scene()
    scene.begin(4)
    scene.say(Begin(None, 0, 1, 1), channel=4)
    assert condition_of(scene.hear_one(Close)) == "amqp:not-allowed"


@clause("2.5.2:end-answered", "2.5.2:links-go-along", "2.7.8:error")
def test_an_end_is_answered_and_frees_the_channel() -> None:
    scene = Scene()
    scene.begin(2)
    scene.attach_sender(channel=2)
    scene.say(End(AmqpError("example:enough", "no more")), channel=2)
    assert scene.hear_one(End).error is None
    assert scene.diary.calls("detached") == [("in", "example:enough", False)]
    assert scene.diary.calls("ended") == [(0, "example:enough")]
    assert scene.begin(2).remote_channel == 2
    assert scene.attach_sender(channel=2).name == "in"


@clause("2.5.2:others-stay")
def test_the_end_of_one_session_leaves_the_others_alone() -> None:
    scene = Scene()
    scene.begin(1)
    scene.begin(2)
    scene.attach_sender(channel=2)
    scene.receiving().grant(1)
    scene.say(End(), channel=1)
    scene.say(Transfer(0, 0, b"t"), channel=2, payload=b"m")
    assert scene.sink("in").payloads == [b"m"]


@clause("2.5.3:crossed")
def test_ends_that_cross_are_enough() -> None:
    pair = RecordedPair()
    ours = pair.begin()
    theirs = pair.server_diary.sessions[0]
    ours.end()
    theirs.end()
    pair.pump()
    assert pair.client_diary.calls("ended") == [(0, None)]
    assert pair.server_diary.calls("ended") == [(0, None)]
    assert not pair.client.closed
    assert pair.begin().channel == 0


@clause("2.5.4:error-ends-session", "2.5.4:discarding", "2.8.17:unattached")
def test_a_breach_ends_the_session_and_what_still_comes_is_ignored() -> None:
    scene = Scene()
    scene.begin()
    sink = scene.sender()
    scene.say(Transfer(7, 0, b"t"), payload=b"lost")
    assert condition_of(scene.hear_one(End)) == "amqp:session:unattached-handle"
    scene.send(0)
    scene.say(Attach("late", 1, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    scene.say(flow(0, 1), Disposition(True, 0, settled=True), Detach(0, closed=True))
    assert scene.hear() == []
    assert sink.received == []
    scene.say(End())
    assert scene.hear() == []
    assert scene.begin().remote_channel == 0
    assert is_alive(scene)


@clause("2.5.4:unknown-channel")
@pytest.mark.parametrize("frame", [flow(None, None, count=None), Transfer(0, 0, b"t"), Detach(0), End()])
def test_a_frame_on_a_channel_without_session_ends_the_connection(frame: Flow | Transfer | Detach | End) -> None:
    scene = Scene()
    scene.say(frame, channel=3)
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"


# Flow control


@clause("2.5.6:initial-window", "2.5.6:no-transfer-beyond", "2.5.6:replenished", "2.5.6:counts-transfers")
def test_what_the_window_keeps_back_goes_out_in_order_when_it_opens() -> None:
    scene = Scene()
    scene.begin(incoming_window=2)
    sink = scene.receiver(credit=0)
    scene.say(flow(0, 10, incoming_window=2))
    for number in range(5):
        sink.send(b"%d" % number)
    assert [frame.payload for frame in scene.hear()] == [b"0", b"1"]
    assert sink.blocked[-1] is True
    scene.say(flow(None, None, count=None, next_incoming_id=2, incoming_window=1))
    assert [frame.payload for frame in scene.hear()] == [b"2"]
    scene.say(flow(None, None, count=None, next_incoming_id=3, incoming_window=100))
    assert [frame.payload for frame in scene.hear()] == [b"3", b"4"]
    assert sink.blocked[-1] is False


@clause("2.5.6:counts-transfers")
def test_the_parts_of_one_delivery_each_take_a_place_in_the_window() -> None:
    scene = Scene(Open("c", max_frame_size=512))
    scene.begin(incoming_window=2)
    sink = scene.receiver(credit=0)
    scene.say(flow(0, 10, incoming_window=2))
    sink.send(bytes(1200))
    first = [frame.performative for frame in scene.hear()]
    assert [isinstance(found, Transfer) and found.more for found in first] == [True, True]
    scene.say(flow(None, None, count=None, next_incoming_id=2, incoming_window=9))
    last = [frame.performative for frame in scene.hear()]
    assert [isinstance(found, Transfer) and found.more for found in last] == [False]


@clause("2.5.6:computed-window")
def test_a_flow_that_was_sent_before_our_transfers_came_opens_no_more_than_it_says() -> None:
    scene = Scene()
    scene.begin(incoming_window=3)
    sink = scene.receiver(credit=0)
    scene.say(flow(0, 10, incoming_window=3))
    sink.send(b"0")
    sink.send(b"1")
    scene.hear()
    # The peer has seen one of two: of its window of two one place is left.
    scene.say(flow(None, None, count=None, next_incoming_id=1, incoming_window=2))
    sink.send(b"2")
    sink.send(b"3")
    assert [frame.payload for frame in scene.hear()] == [b"2"]


@clause("2.5.6:first-flow-without-id")
def test_a_flow_of_a_peer_that_has_not_seen_our_begin_counts_from_our_first_id() -> None:
    scene = Scene()
    scene.begin(incoming_window=1)
    sink = scene.receiver(credit=0)
    scene.say(flow(0, 10, next_incoming_id=None, incoming_window=2))
    for number in range(4):
        sink.send(b"%d" % number)
    assert [frame.payload for frame in scene.hear()] == [b"0", b"1"]
    scene.say(flow(0, 10, next_incoming_id=None, incoming_window=3))
    assert [frame.payload for frame in scene.hear()] == [b"2"]


@clause("2.5.6:window-told-again", "2.7.4:ids-told", "2.1.2:ids-per-direction")
def test_our_window_is_told_again_before_it_is_used_up() -> None:
    scene = Scene()
    scene.begin(next_outgoing_id=100)
    scene.sender(credit=INCOMING_WINDOW)
    told = []
    for number in range(INCOMING_WINDOW):
        scene.send(number, settled=True)
        told += [(number, found) for found in scene.hear_all(Flow)]
    number, found = told[0]
    assert number < INCOMING_WINDOW - 1
    assert found.next_incoming_id == 100 + number + 1
    assert (found.incoming_window, found.next_outgoing_id) == (INCOMING_WINDOW, 0)


@clause("2.5.6:violation", "2.8.17:window")
def test_a_peer_beyond_our_window_has_its_session_ended() -> None:
    scene = Scene()
    scene.begin()
    scene.sender(credit=INCOMING_WINDOW + 10)
    # All in one read, so that we never get to tell a new window.
    frame = amqp_frame(0, Transfer(0, 0, b"t", settled=True), 1) + b"m"
    scene.say_bytes(frame * (INCOMING_WINDOW + 1))
    assert condition_of(scene.hear_all(End)[0]) == "amqp:session:window-violation"
    assert is_alive(scene)


@clause("2.8.9:serial", "2.5.6:wrap", "2.5.6:computed-window", "2.8.10:serial")
def test_transfer_ids_of_the_peer_wrap() -> None:
    scene = Scene()
    scene.begin(next_outgoing_id=TOP - 1)
    sink = scene.sender(credit=10)
    for number in range(4):
        scene.send(number)
    scene.say(flow(None, None, count=None, echo=True))
    assert [found.next_incoming_id for found in scene.hear_all(Flow)] == [2]
    assert len(sink.received) == 4


@clause("2.8.9:serial", "2.5.6:wrap", "2.8.10:serial")
def test_our_transfer_ids_wrap() -> None:
    scene = Scene()
    scene.begin(incoming_window=1000)
    sink = scene.receiver(credit=0)
    session = sink.link.session  # type: ignore[union-attr]
    session.next_outgoing_id = TOP - 1
    scene.say(flow(0, 10, next_incoming_id=TOP - 1, incoming_window=2))
    for number in range(5):
        sink.send(b"%d" % number)
    assert [frame.payload for frame in scene.hear()] == [b"0", b"1"]
    scene.say(flow(0, 10, next_incoming_id=0, incoming_window=2))
    assert [frame.payload for frame in scene.hear()] == [b"2", b"3"]
    scene.say(flow(None, None, count=None, next_incoming_id=2, incoming_window=2, echo=True))
    transfer, told = scene.heard()
    assert isinstance(transfer, Transfer)
    assert isinstance(told, Flow)
    assert told.next_outgoing_id == 3


@clause("2.6.7:echo-session", "2.7.4:handle-for-link-fields")
def test_an_echo_without_handle_is_answered_for_the_session() -> None:
    scene = Scene()
    scene.begin()
    scene.receiver(credit=3)
    scene.say(flow(None, 77, count=5, echo=True))
    (told,) = scene.hear_all(Flow)
    assert (told.handle, told.link_credit) == (None, None)
    assert scene.sending().credit == 3


@clause("2.7.4:unattached-handle", "2.6.2:unattached")
def test_a_flow_for_an_unattached_handle_ends_the_session() -> None:
    scene = Scene()
    scene.begin()
    scene.say(flow(5, 1))
    assert condition_of(scene.hear_one(End)) == "amqp:session:unattached-handle"


@clause("2.8.13:unknown", "2.7.4:properties")
def test_unknown_flow_properties_are_ignored() -> None:
    scene = Scene()
    scene.begin()
    scene.receiver(credit=0)
    scene.say(flow(0, 4, properties={"odd": 1}))
    assert scene.sending().credit == 4


@clause("2.7.2:handle-max")
def test_a_handle_above_our_handle_max_ends_the_connection() -> None:
    scene = Scene()
    handle_max = scene.begin().handle_max
    assert scene.attach_sender("top", handle_max).name == "top"
    scene.say(Attach("over", handle_max + 1, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"


@clause("2.7.2:handle-max", "2.8.15:resource-limit")
def test_the_peers_handle_max_binds_us() -> None:
    scene = Scene()
    scene.say(Begin(None, 0, 100, 100, handle_max=0))
    scene.hear()
    scene.attach_sender("one", 0)
    scene.say(Attach("two", 1, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    assert kinds(scene.heard()) == ["End"]
    assert is_alive(scene)


@clause("2.5.5:ending")
def test_a_channel_is_not_used_again_before_the_peers_end_has_come() -> None:
    scene = Scene()
    scene.begin(0)
    scene.say(Transfer(9, 0, b"t"), channel=0)
    assert kinds(scene.heard()) == ["End"]
    scene.say(Begin(None, 0, 1, 1), channel=1)
    assert [frame.channel for frame in scene.hear()] == [1]
    scene.say(End(), channel=0)
    scene.say(Begin(None, 0, 1, 1), channel=2)
    assert [frame.channel for frame in scene.hear()] == [0]
