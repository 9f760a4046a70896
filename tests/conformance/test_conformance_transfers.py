"""2.6.11 to 2.6.14 and 2.7.5: messages are transferred, in one piece or several."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import ACCEPTED, TOO_LARGE
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.performatives import Attach, Detach, Disposition, End, Flow, Open, Source, Target, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, condition_of, flow, is_alive

TOP = 0xFFFFFFFF


def scene(open_with: Open | None = None) -> Scene:
    made = Scene(open_with)
    made.begin()
    return made


@clause("2.6.11:any-format", "2.7.5:message-format", "2.8.11:zero")
@pytest.mark.parametrize("message_format", [0, 1, 0x80013700])
def test_the_message_format_is_carried_and_the_payload_not_looked_at(message_format: int) -> None:
    pair = RecordedPair()
    sink, theirs = pair.sender(pair.begin())
    theirs.grant(2)
    pair.pump()
    sink.send(b"\xff not AMQP", message_format=message_format)
    pair.pump()
    (received,) = pair.sink_of(theirs).received
    assert (received.payload, received.message_format) == (b"\xff not AMQP", message_format)


@clause("2.6.12:id-per-session", "2.7.5:id-on-first", "2.7.5:tag-on-first", "2.6.12:tag-unique", "2.7.5:id-order")
def test_our_delivery_ids_rise_over_all_links_of_the_session() -> None:
    peer = scene()
    one = peer.receiver(name="one", handle=0)
    two = peer.receiver(name="two", handle=1)
    for sink in (one, two, one, two, two):
        sink.send(b"m")
    found = peer.hear_all(Transfer)
    assert [transfer.delivery_id for transfer in found] == [0, 1, 2, 3, 4]
    assert [transfer.handle for transfer in found] == [0, 1, 0, 1, 1]
    assert len({transfer.delivery_tag for transfer in found}) == 5
    assert all(transfer.delivery_tag and len(transfer.delivery_tag) <= 32 for transfer in found)


@clause("2.8.7:size", "2.7.5:tag-size")
def test_tags_of_0_to_32_octets_are_taken() -> None:
    peer = scene()
    sink = peer.sender(credit=50)
    for size in range(33):
        peer.say(Transfer(0, size, b"x" * size, settled=True), payload=b"m")
    assert len(sink.received) == 33


@clause("2.7.5:id-on-first")
def test_a_delivery_without_id_ends_the_session() -> None:
    peer = scene()
    peer.sender()
    peer.say(Transfer(0, None, b"t"), payload=b"m")
    assert condition_of(peer.hear_one(End)) == "amqp:invalid-field"


@clause("2.6.12:settled-forgotten", "2.8.2:settled")
def test_a_settled_delivery_gets_no_disposition() -> None:
    peer = scene()
    sink = peer.sender()
    sink.answer = ACCEPTED
    peer.send(0, settled=True)
    assert sink.received[0].settled
    assert peer.hear_all(Disposition) == []
    sending = peer.receiver(name="out", handle=1)
    sending.send(b"m", settled=True)
    assert peer.hear_one(Transfer).settled is True
    assert sending.link is not None
    assert sending.link.session.unsettled == {}


@clause("2.6.12:settle-first")
def test_in_mode_first_the_receiver_settles_with_its_outcome() -> None:
    peer = scene()
    sink = peer.sender(rcv_settle_mode=0)
    sink.answer = ACCEPTED
    peer.send(0)
    told = peer.hear_one(Disposition)
    assert (told.role, told.first, told.settled, told.state) == (True, 0, True, ACCEPTED)


@clause("2.6.12:settle-second")
def test_in_mode_second_the_sender_settles() -> None:
    peer = scene()
    receiving = peer.sender(rcv_settle_mode=1)
    receiving.answer = ACCEPTED
    peer.send(0)
    told = peer.hear_one(Disposition)
    assert (told.settled, told.state) == (False, ACCEPTED)
    sending = peer.receiver(name="out", handle=1, rcv_settle_mode=1)
    sending.send(b"m")
    peer.hear()
    peer.say(Disposition(True, 0, settled=False, state=ACCEPTED))
    told = peer.hear_one(Disposition)
    assert (told.role, told.first, told.settled) == (False, 0, True)
    assert sending.states == [ACCEPTED]


@clause("2.6.12:unsettled-kept")
def test_a_delivery_without_outcome_stays_unsettled() -> None:
    peer = scene()
    sink = peer.receiver()
    sink.send(b"m")
    peer.say(flow(0, 100, count=1), Disposition(False, 0, settled=True, state=ACCEPTED))
    assert sink.link is not None
    assert list(sink.link.session.unsettled) == [0]
    assert sink.outcomes == []


# Parts


@clause("2.6.14:parts", "2.6.14:continuation", "2.7.5:id-order")
def test_a_message_comes_in_parts() -> None:
    peer = scene()
    sink = peer.sender()
    peer.send(5, b"one ", more=True)
    peer.say(Transfer(0, more=True), payload=b"two ")
    peer.say(Transfer(0, 5, more=True), payload=b"three ")
    assert sink.received == []
    peer.say(Transfer(0, 5, b"t5", 0, False), payload=b"four")
    (received,) = sink.received
    assert (received.payload, received.delivery_id, received.settled) == (b"one two three four", 5, False)
    assert peer.receiving().credit == 9


@clause("2.6.14:parts")
def test_the_last_part_may_be_empty() -> None:
    peer = scene()
    sink = peer.sender()
    peer.send(0, b"all", more=True)
    peer.say(Transfer(0))
    assert sink.payloads == [b"all"]


@clause("2.6.14:interleaved")
def test_parts_of_two_links_are_mixed() -> None:
    peer = scene()
    one = peer.sender(name="one", handle=0)
    two = peer.sender(name="two", handle=1)
    peer.send(0, b"a", more=True, handle=0)
    peer.send(1, b"A", more=True, handle=1)
    peer.say(Transfer(0, more=True), payload=b"b")
    peer.say(Transfer(1), payload=b"B")
    peer.say(Transfer(0), payload=b"c")
    assert (one.payloads, two.payloads) == ([b"abc"], [b"AB"])


@clause("2.6.14:not-on-one-link", "2.7.5:id-order")
def test_another_delivery_within_a_delivery_ends_the_session() -> None:
    peer = scene()
    peer.sender()
    peer.send(0, b"a", more=True)
    peer.send(1, b"b")
    assert condition_of(peer.hear_one(End)) == "amqp:invalid-field"
    assert is_alive(peer)


@clause("2.7.5:settled-default", "2.6.14:settled-any")
def test_any_part_may_settle_the_delivery() -> None:
    peer = scene()
    sink = peer.sender()
    peer.send(0, b"a", more=True, settled=True)
    peer.say(Transfer(0), payload=b"b")
    peer.send(1, b"a", more=True)
    peer.say(Transfer(0, settled=True), payload=b"b")
    peer.send(2, b"a", more=True)
    peer.say(Transfer(0), payload=b"b")
    assert [item.settled for item in sink.received] == [True, True, False]


@clause("2.6.14:abort", "2.6.14:abort-credit")
def test_an_aborted_delivery_leaves_no_trace_but_its_credit() -> None:
    peer = scene()
    sink = peer.sender(credit=2)
    peer.send(0, b"lost", more=True)
    peer.say(Transfer(0, aborted=True), payload=b"ignored")
    assert (sink.received, sink.given_up, peer.receiving().credit) == ([], [1], 1)
    peer.send(1, b"kept")
    assert sink.payloads == [b"kept"]
    peer.send(2)
    assert condition_of(peer.hear_one(Detach)) == "amqp:link:transfer-limit-exceeded"


@clause("2.6.14:abort")
def test_a_delivery_may_be_aborted_with_its_first_transfer() -> None:
    peer = scene()
    sink = peer.sender(credit=2)
    peer.send(0, b"x", aborted=True)
    peer.send(1, b"kept")
    assert sink.payloads == [b"kept"]
    assert not peer.engine.closed


@clause("2.6.14:split", "2.6.14:parts", "2.6.14:continuation")
def test_what_does_not_fit_a_frame_goes_out_in_parts() -> None:
    peer = scene(Open("c", max_frame_size=512))
    sink = peer.receiver()
    payload = bytes(range(256)) * 6
    sink.send(payload)
    frames = [frame for frame in peer.hear() if isinstance(frame.performative, Transfer)]
    parts = [frame.performative for frame in frames]
    assert b"".join(frame.payload for frame in frames) == payload
    assert [part.more for part in parts if isinstance(part, Transfer)] == [True] * (len(parts) - 1) + [False]
    first = parts[0]
    assert isinstance(first, Transfer)
    assert (first.delivery_id, first.message_format) == (0, 0)
    assert first.delivery_tag


@clause("2.6.14:parts")
def test_a_link_that_is_detached_within_a_delivery_drops_it() -> None:
    peer = scene()
    sink = peer.sender()
    peer.send(0, b"a", more=True)
    peer.say(Detach(0, closed=True))
    assert sink.received == []
    again = peer.sender()
    peer.send(1, b"b")
    assert again.payloads == [b"b"]


@clause("2.7.5:batchable")
def test_batchable_and_the_mode_of_a_transfer_change_nothing() -> None:
    peer = scene()
    sink = peer.sender()
    sink.answer = ACCEPTED
    peer.send(0, batchable=True)
    peer.send(1, rcv_settle_mode=0)
    assert sink.payloads == [b"m", b"m"]
    told = peer.hear_one(Disposition)
    assert (told.first, told.last) == (0, 1)


@clause("2.6.14:parts", "2.5.6:counts-transfers")
def test_a_message_in_many_parts_passes_between_two_engines() -> None:
    pair = RecordedPair(client={"max_frame_size": 512}, server={"max_frame_size": 512})
    sink, theirs = pair.sender(pair.begin())
    theirs.grant(1)
    pair.pump()
    payload = bytes(range(256)) * 400
    sink.send(payload)
    pair.pump()
    assert pair.sink_of(theirs).payloads == [payload]


@clause("2.8.8:serial", "2.6.12:id-per-session", "2.8.10:serial")
def test_delivery_ids_of_both_directions_wrap() -> None:
    peer = scene()
    sink = peer.sender()
    for number in (TOP, 0, 1):
        peer.send(number)
    assert [item.delivery_id for item in sink.received] == [TOP, 0, 1]
    sending = peer.receiver(name="out", handle=1)
    assert sending.link is not None
    sending.link.session.next_delivery_id = TOP
    for _ in range(2):
        sending.send(b"m")
    assert [found.delivery_id for found in peer.hear_all(Transfer)] == [TOP, 0]


@clause("2.6.14:abort-credit", "2.7.4:ids-told")
def test_aborted_transfers_count_in_the_window() -> None:
    peer = scene()
    peer.sender()
    peer.send(0, aborted=True)
    peer.say(flow(None, None, count=None, echo=True))
    assert peer.hear_all(Flow)[-1].next_incoming_id == 1


@clause("2.8.2:settled", "2.8.2:unsettled")
def test_attaching_for_settled_or_unsettled_is_answered_in_kind() -> None:
    peer = scene()
    for handle, mode in enumerate((0, 1)):
        peer.say(Attach(f"n{mode}", handle, True, mode, source=Source("q"), target=Target()))
        assert peer.hear_one(Attach).snd_settle_mode == mode


@clause("2.7.3:max-message-size", "2.8.18:size")
@pytest.mark.parametrize("max_frame_size", [512, 0xFFFFFFFF])
def test_no_message_is_larger_than_the_receivers_link_takes(max_frame_size: int) -> None:
    peer = Scene(Open("c", max_frame_size=max_frame_size))
    peer.begin()
    sink = peer.receiver(max_message_size=600)
    for number, size in enumerate((600, 601, 5000, 10)):
        sink.send(bytes((number,)) * size)
    frames = [frame for frame in peer.hear() if isinstance(frame.performative, Transfer)]
    assert b"".join(frame.payload for frame in frames) == bytes(600) + b"\x03" * 10
    ids = [frame.performative.delivery_id for frame in frames if isinstance(frame.performative, Transfer)]
    assert [number for number in ids if number is not None] == [0, 1]
    assert sink.states == [TOO_LARGE, TOO_LARGE]
    assert (peer.sending().credit, peer.sending().delivery_count) == (8, 2)


@clause("2.7.3:max-message-size")
def test_a_max_message_size_of_0_is_any_size() -> None:
    peer = scene()
    sink = peer.receiver(max_message_size=0)
    sink.send(bytes(100_000))
    assert len(peer.hear_all(Transfer)) == 1
    assert sink.outcomes == []


@clause("2.7.3:max-message-size")
@pytest.mark.parametrize("end", ["detach", "session", "connection"])
def test_what_was_too_large_is_told_before_the_link_is_gone(end: str) -> None:
    peer = scene()
    sink = peer.receiver(max_message_size=10)
    sink.send(bytes(11))
    if end == "connection":
        peer.engine.lost()
    else:
        peer.say(Detach(0, closed=True) if end == "detach" else End())
    assert sink.states == [TOO_LARGE]


@clause("2.7.5:role")
def test_a_receiver_does_not_send() -> None:
    peer = scene()
    peer.receiver(name="out", handle=3)
    peer.say(Transfer(3, 0, b"t"), payload=b"m")
    assert condition_of(peer.hear_one(End)) == "amqp:session:unattached-handle"
