"""Session windows, messages in several frames, their size, and holding back output."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from enmasse.message.outcomes import Accepted
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import HEARTBEAT, amqp_frame
from enmasse.wire.amqp.link import TURN_BYTES, Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Begin, Detach, Disposition, End, Flow, Open, Transfer
from enmasse.wire.amqp.session_output import INCOMING_WINDOW
from tests.support.raw_peer import RawPeer


def server(**options: Any) -> tuple[RawPeer, Recorder]:
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0, **options))
    return peer, handler


def receiving(*, max_message_size: int | None = None, next_outgoing_id: int = 0) -> tuple[RawPeer, RecordingSink]:
    """An engine that receives on handle 0 with plenty of credit."""
    peer, handler = server()

    def accept(link: Link, _attach: Attach) -> None:
        link.accept(RecordingSink(link), max_message_size=max_message_size)

    handler.on_wish = accept
    peer.greet()
    peer.begin(next_outgoing_id=next_outgoing_id)
    peer.attach_sender()
    link = handler.links[0]
    assert isinstance(link, ReceivingLink)
    link.grant(100_000)
    peer.hear()
    return peer, link.sink


def sending(*, window: int = 1000, max_frame_size: int = 100_000) -> tuple[RawPeer, RecordingSink]:
    """An engine that sends on handle 0 with plenty of credit."""
    peer, handler = server()
    peer.greet(open_with=Open("raw", max_frame_size=max_frame_size))
    peer.begin(incoming_window=window)
    peer.attach_receiver()
    peer.say(Flow(0, window, 0, 1000, 0, 0, 1000))
    return peer, handler.links[0].sink


def transfers(peer: RawPeer) -> list[tuple[Transfer, bytes]]:
    return [(f.performative, f.payload) for f in peer.hear() if isinstance(f.performative, Transfer)]


# The peer's window


def test_sending_pauses_at_the_peers_window_and_goes_on_when_it_opens() -> None:
    peer, sink = sending(window=3)
    for number in range(3):
        sink.send(b"%d" % number)
    assert sink.blocked == []
    sink.send(b"3")
    sink.send(b"4")
    assert sink.blocked == [True]
    assert [payload for _, payload in transfers(peer)] == [b"0", b"1", b"2"]
    peer.say(Flow(2, 2, 0, 1000))
    assert [payload for _, payload in transfers(peer)] == [b"3"]
    assert sink.blocked == [True]
    peer.say(Flow(4, 10, 0, 1000))
    assert [payload for _, payload in transfers(peer)] == [b"4"]
    assert sink.blocked == [True, False]
    peer.say(Disposition(True, 0, 4, True, Accepted()))
    assert len(sink.outcomes) == 5


def test_a_peer_that_counts_more_transfers_than_it_got_is_not_stopped_for_ever() -> None:
    peer, sink = sending(window=2)
    for number in range(4):
        sink.send(b"%d" % number)
    assert len(transfers(peer)) == 2
    peer.say(Flow(3, 1, 0, 1000))
    assert [payload for _, payload in transfers(peer)] == [b"2", b"3"]


def kept(peer: RawPeer) -> int:
    """The bytes that wait for windows, which are all that is left once the output is taken."""
    peer.hear()
    assert peer.engine.out_bytes == peer.engine.kept_bytes
    return peer.engine.kept_bytes


def test_what_a_window_holds_back_is_counted_until_it_goes_or_is_dropped() -> None:
    peer, sink = sending(window=1, max_frame_size=1000)
    sink.send(bytes(200_000), settled=True)
    assert kept(peer) > 199_000
    peer.say(Flow(1, 50, 0, 1000))
    assert 150_000 < kept(peer) < 220_000
    peer.say(Flow(51, 1000, 0, 1000))
    assert kept(peer) == 0
    peer.say(Flow(peer.engine.sessions[0].next_outgoing_id, 1, 0, 1000))
    sink.send(bytes(200_000), settled=True)
    peer.say(Detach(0, True))
    assert kept(peer) == 0


def test_what_a_window_holds_back_blocks_all_links_where_there_is_no_room_for_it() -> None:
    peer, sink = sending(window=1, max_frame_size=1000)
    peer.hear()
    peer.engine.out_room = 64 << 10
    asked: list[int] = []

    def more_out(size: int) -> bool:
        asked.append(size)
        return False

    peer.engine.more_out = more_out
    sink.send(bytes(200_000), settled=True)
    assert asked[-1] > 199_000
    assert peer.engine.is_blocked


@pytest.mark.parametrize("size", [40_000, 200_000])
def test_a_session_that_takes_nothing_of_much_is_ended(size: int) -> None:
    peer, sink = sending(window=1, max_frame_size=1000)
    peer.hear()
    sink.send(bytes(size))
    for second in range(0, 111, 10):
        peer.clock.now = float(second)
        peer.say_bytes(HEARTBEAT)
        if second == 50:
            # A single frame is enough.
            peer.say(Flow(1, 1, 0, 1000))
        peer.engine.handle_deadline(peer.clock.now)
        ended = peer.hear_all(End)
        assert bool(ended) is (second == 110 and size > 64 << 10)
    if ended:
        assert ended[0].error is not None
        assert ended[0].error.condition == "amqp:resource-limit-exceeded"
        assert kept(peer) == 0
        assert sink.link is not None
        assert sink.link.is_detached


def test_delivery_ids_keep_their_order_across_a_pause() -> None:
    peer, sink = sending(window=1)
    for number in range(4):
        sink.send(b"%d" % number)
    sent = transfers(peer)
    for seen in range(1, 4):
        peer.say(Flow(seen, 1, 0, 1000))
        sent += transfers(peer)
    assert [(transfer.delivery_id, payload) for transfer, payload in sent] == [(n, b"%d" % n) for n in range(4)]


def test_a_window_of_nothing_holds_everything_back() -> None:
    peer, sink = sending(window=0)
    sink.send(b"m")
    assert transfers(peer) == []
    peer.say(Flow(None, 1, 0, 1000))
    assert [payload for _, payload in transfers(peer)] == [b"m"]


def test_a_link_attached_while_the_session_holds_back_is_told_so() -> None:
    peer, sink = sending(window=1)
    sink.send(b"1")
    sink.send(b"2")
    peer.attach_receiver("other", 1)
    other = sink.link.session.connection.handler.links[1].sink if sink.link else None  # type: ignore[attr-defined]
    assert other is not None
    assert other.blocked == [True]
    peer.say(Flow(1, 5, 0, 1000))
    assert other.blocked == [True, False]


def test_what_the_window_kept_back_is_dropped_with_its_link() -> None:
    peer, sink = sending(window=1)
    peer.attach_receiver("other", 1)
    assert sink.link is not None
    other = sink.link.session.connection.handler.links[1].sink  # type: ignore[attr-defined]
    peer.say(Flow(0, 1, 0, 1000, 1, 0, 10))
    sink.send(b"1")
    sink.send(b"lost")
    other.send(b"kept")
    sink.link.detach()
    assert [type(frame.performative) for frame in peer.hear()] == [Transfer, Detach]
    peer.say(Flow(1, 100, 0, 1000))
    assert [payload for _, payload in transfers(peer)] == [b"kept"]
    peer.say(Detach(0, True))
    assert [delivery.is_settled for delivery in sink.link.take_unsettled()] == [False, False]  # type: ignore[attr-defined]


# Our own window


def test_our_window_is_opened_again_before_it_closes() -> None:
    peer, sink = receiving(next_outgoing_id=0xFFFFFF00)
    half = INCOMING_WINDOW // 2
    frame = Transfer(0, 0, b"t", 0, True)
    for _ in range(half - 1):
        peer.say(frame)
    assert peer.hear() == []
    peer.say(frame)
    flow = peer.hear_one(Flow)
    assert flow.next_incoming_id == (0xFFFFFF00 + half) & 0xFFFFFFFF
    assert flow.incoming_window == INCOMING_WINDOW
    assert flow.handle is None
    assert len(sink.received) == half


def test_sending_beyond_our_window_ends_the_session() -> None:
    peer, sink = receiving()
    for number in range(INCOMING_WINDOW):
        peer.say(Transfer(0, number, b"t", 0, True))
    assert len(sink.received) == INCOMING_WINDOW
    peer.say(Transfer(0, INCOMING_WINDOW, b"t", 0, True))
    assert len(sink.received) == INCOMING_WINDOW
    error = peer.hear_one(End).error
    assert error is not None
    assert error.condition == "amqp:session:window-violation"
    assert not peer.engine.closed


def test_engines_exchange_more_than_both_windows() -> None:
    pair = RecordedPair()
    sink, link = pair.sender(pair.begin())
    received = pair.sink_of(link)
    received.answer = Accepted()
    count = 3 * INCOMING_WINDOW
    link.grant(count)
    pair.pump()
    for at in range(0, count, 1000):
        for number in range(at, min(at + 1000, count)):
            sink.send(number.to_bytes(4, "big"))
        pair.pump()
    assert [int.from_bytes(payload, "big") for payload in received.payloads] == list(range(count))
    assert len(sink.outcomes) == count


# Several frames


@pytest.mark.parametrize("size", [0, 1, 400, 464, 465, 470, 512, 2000, 100_000])
@pytest.mark.parametrize("settled", [False, True])
def test_messages_of_any_size_pass_through_frames_of_512_bytes(size: int, settled: bool) -> None:
    pair = RecordedPair(server={"max_frame_size": 512})
    sink, link = pair.sender(pair.begin())
    link.grant(10)
    pair.pump()
    payload = bytes(number % 251 for number in range(size))
    delivery = sink.send(payload, settled=settled, message_format=0x1234)
    pair.to_server.collect()
    data = b"".join(pair.to_server.waiting)
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        assert length <= 512
        at += length
    pair.pump()
    received = pair.sink_of(link)
    assert received.payloads == [payload]
    assert received.received[0].settled is settled
    assert received.received[0].message_format == 0x1234
    if not settled:
        link.settle(0, Accepted())
        pair.pump()
        assert delivery.state == Accepted()


def test_a_large_message_waits_for_the_window_in_the_middle() -> None:
    peer, sink = sending(window=2, max_frame_size=512)
    payload = bytes(range(256)) * 8
    sink.send(payload)
    first = transfers(peer)
    assert [transfer.more for transfer, _ in first] == [True, True]
    assert first[0][0].delivery_id == 0
    peer.say(Flow(2, 100, 0, 1000))
    rest = transfers(peer)
    assert not rest[-1][0].more
    assert b"".join(part for _, part in first + rest) == payload
    assert sink.blocked == [True, False]


def test_parts_of_two_links_may_alternate() -> None:
    peer, sink = receiving()
    peer.attach_sender("other", 1)
    other = sink.link.session.connection.handler.links[1]  # type: ignore[union-attr]
    other.grant(1)
    peer.hear()
    peer.say(Transfer(0, 0, b"a", 0, False, True), payload=b"a1")
    peer.say(Transfer(1, 1, b"b", 0, False, True), payload=b"b1")
    peer.say(Transfer(0, 0, more=True), payload=b"a2")
    peer.say(Transfer(1, settled=True), payload=b"b2")
    peer.say(Transfer(0), payload=b"")
    assert sink.received[0][:3] == (b"a1a2", 0, False)
    assert other.sink.received[0][:3] == (b"b1b2", 1, True)


def test_a_delivery_cannot_begin_inside_another() -> None:
    peer, sink = receiving()
    peer.say(Transfer(0, 0, b"a", 0, False, True), Transfer(0, 1, b"b", 0, False, True), payload=b"x")
    error = peer.hear_one(End).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert not sink.received


@pytest.mark.parametrize("more", [False, True])
def test_a_delivery_begins_with_an_id(more: bool) -> None:
    peer, sink = receiving()
    peer.say(Transfer(0, None, b"a", 0, False, more), payload=b"x")
    error = peer.hear_one(End).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    assert not sink.received


def test_an_aborted_delivery_is_forgotten_but_used_a_credit() -> None:
    peer, sink = receiving()
    link = sink.link
    assert isinstance(link, ReceivingLink)
    link.grant(2)
    peer.hear()
    peer.say(Transfer(0, 0, b"a", 0, False, True), payload=b"part")
    peer.say(Transfer(0, aborted=True), payload=b"ignored")
    assert not sink.received
    assert sink.given_up == [1]
    peer.say(Transfer(0, 1, b"b", 0, False), payload=b"whole")
    assert sink.payloads == [b"whole"]
    assert link.credit == 0
    assert sink.exhausted == 1


def test_an_aborted_delivery_above_a_lowered_credit_is_counted_too() -> None:
    peer, sink = receiving()
    link = sink.link
    assert isinstance(link, ReceivingLink)
    link.grant(0)
    peer.hear()
    peer.say(Transfer(0, 0, b"a", 0, False, True), Transfer(0, aborted=True))
    assert sink.given_up == []
    link.grant(1)
    assert peer.hear_one(Flow).delivery_count == 1


def test_a_delivery_in_parts_may_cross_with_a_lower_credit_and_use_up_the_last() -> None:
    peer, sink = receiving()
    link = sink.link
    assert isinstance(link, ReceivingLink)
    link.grant(1)
    peer.hear()
    peer.say(Transfer(0, 0, b"a", 0, False, True), Transfer(0), payload=b"x")
    assert (sink.exhausted, sink.received[0].crossed) == (1, False)
    peer.say(Transfer(0, 1, b"b", 0, False, True), payload=b"y")
    link.grant(0)
    peer.say(Transfer(0), payload=b"z")
    assert sink.received[1][:2] == (b"yz", 1)
    assert sink.received[1].crossed


def test_a_sender_that_gives_up_its_credit_in_the_middle_of_a_delivery_has_none_for_the_rest() -> None:
    peer, sink = receiving()
    peer.say(Transfer(0, 0, b"a", 0, False, True), payload=b"x")
    peer.say(Flow(0, 10, 1, 10, 0, 100_000, 0))
    assert sink.given_up == [100_000]
    peer.say(Transfer(0), payload=b"y")
    error = peer.hear_one(Detach).error
    assert error is not None
    assert error.condition == "amqp:link:transfer-limit-exceeded"
    assert not sink.received


def test_settled_in_any_part_settles_the_whole() -> None:
    peer, sink = receiving()
    peer.say(Transfer(0, 0, b"a", 0, True, True), Transfer(0, settled=False), payload=b"x")
    assert sink.received[0].settled


# Size


@pytest.mark.parametrize("parts", [1, 2, 20])
def test_a_message_above_the_links_size_detaches_the_link_only(parts: int) -> None:
    peer, sink = receiving(max_message_size=1000)
    peer.say(Transfer(0, 0, b"a", 0, True), payload=b"x" * 1000)
    assert len(sink.received) == 1
    piece = b"x" * (1000 // parts + 1)
    for number in range(parts):
        more = number < parts - 1
        peer.say(Transfer(0, 1 if number == 0 else None, b"b", 0, False, more), payload=piece)
    peer.say(Transfer(0, 2, b"c", 0, True), payload=b"late")
    detach = peer.hear_one(Detach)
    assert detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:message-size-exceeded"
    assert "1000 bytes" in (detach.error.description or "")
    assert len(sink.received) == 1
    handler = sink.link.session.connection.handler if sink.link else None
    assert isinstance(handler, Recorder)
    peer.say(Detach(0, True))
    assert handler.calls("detached") == [("in", None, True)]
    assert handler.calls("ended") == []


def test_parts_of_nothing_take_no_room() -> None:
    peer, sink = receiving(max_message_size=1000)
    peer.say(Transfer(0, 0, b"a", 0, False, True))
    for _ in range(1000):
        peer.say(Transfer(0, more=True))
    link = sink.link
    assert isinstance(link, ReceivingLink)
    assert link.partial is not None
    assert sum(map(sys.getsizeof, link.partial)) < 100
    peer.say(Transfer(0), payload=b"end")
    assert sink.payloads == [b"end"]


def test_our_own_links_bound_messages_as_well() -> None:
    pair = RecordedPair()
    session = pair.begin()
    link, sender = pair.receiver(session, max_message_size=100)
    link.grant(5)
    pair.pump()
    assert isinstance(sender.link, SendingLink)
    assert sender.link.remote_attach is not None
    assert sender.link.remote_attach.max_message_size == 100
    sender.send(b"x" * 100)
    sender.link.limit_messages(None)  # as one that does not keep to it
    sender.send(b"x" * 101)
    pair.pump()
    assert pair.server_diary.calls("detached") == [("in", "amqp:link:message-size-exceeded", True)]
    assert len(pair.sink_of(link).received) == 1


# Holding back


def test_links_hold_back_when_a_turn_has_put_out_enough() -> None:
    peer, sink = sending()
    _, other = sending()
    for _ in range(TURN_BYTES // 50_000 + 1):
        sink.send(b"x" * 50_000)
    assert sink.blocked == [True]
    assert peer.engine.is_blocked
    assert other.blocked == []
    peer.engine.pending_output()
    peer.engine.resume_output()
    assert sink.blocked == [True, False]


def test_output_and_window_hold_back_independently() -> None:
    peer, sink = sending(window=2)
    sink.send(b"1")
    sink.send(b"2")
    sink.send(b"3")
    assert sink.blocked == [True]
    peer.engine.block_output()
    assert sink.blocked == [True], "it is told once"
    peer.say(Flow(2, 100, 0, 1000))
    assert sink.blocked == [True], "the output still holds back"
    peer.engine.resume_output()
    assert sink.blocked == [True, False]


def test_a_session_begun_by_the_peer_takes_the_window_it_told() -> None:
    peer, handler = server()
    peer.greet()
    peer.say(Begin(next_outgoing_id=7, incoming_window=4, outgoing_window=1))
    assert handler.sessions[0].remote_window == 4


@pytest.mark.parametrize("beside", [40_000, 400_000])
def test_what_a_part_was_read_with_is_kept_only_if_that_is_little(beside: int) -> None:
    peer, sink = receiving()
    part = amqp_frame(0, Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), 40_000) + bytes(40_000)
    peer.say_bytes(part + HEARTBEAT * (beside // len(HEARTBEAT)))
    assert isinstance(sink.link, ReceivingLink)
    assert sink.link.partial is not None
    assert sum(map(len, sink.link.partial)) == 40_000
    kept = [len(bytes(piece.obj)) if isinstance(piece, memoryview) else len(piece) for piece in sink.link.partial]
    assert sum(kept) <= 4 * 40_000
