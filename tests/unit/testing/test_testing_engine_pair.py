"""The tools that join engines in memory do what tests rely on."""

from __future__ import annotations

import pytest

from enmasse.testing.clock import ManualClock
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT
from enmasse.wire.amqp.performatives import Begin, Open
from tests.support.raw_peer import RawPeer


def test_a_clock_moves_forward_only() -> None:
    clock = ManualClock(5.0)
    assert clock.advance(1.5) == 6.5
    assert clock.now == 6.5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_nothing_moves_before_pump() -> None:
    pair = RecordedPair()
    assert pair.server_diary.diary == []
    pair.to_server.collect()
    assert b"".join(pair.to_server.waiting).startswith(AMQP_HEADER)
    assert pair.server_diary.diary == []
    pair.pump()
    assert pair.server_diary.calls("opened") == ["client"]
    assert bytes(pair.to_server.carried).startswith(AMQP_HEADER)


def test_a_lane_cuts_what_it_carries() -> None:
    pair = RecordedPair()
    pair.to_server.chunk_bytes = 3
    pair.to_server.collect()
    sizes = {len(chunk) for chunk in pair.to_server.waiting[:-1]}
    assert sizes == {3}
    assert pair.to_server.deliver(2) == 2
    assert bytes(pair.to_server.carried) == AMQP_HEADER[:6]


def test_a_held_lane_keeps_everything() -> None:
    pair = RecordedPair()
    pair.to_server.is_held = True
    pair.pump()
    pair.tick(1.0)
    assert pair.server_diary.diary == []
    pair.to_server.is_held = False
    pair.pump()
    assert pair.server_diary.calls("opened") == ["client"]


def test_a_slow_lane_delivers_when_the_time_has_come() -> None:
    pair = RecordedPair()
    pair.to_server.delay_s = 2.0
    pair.tick(1.9)
    assert pair.server_diary.diary == []
    pair.tick(0.2)
    assert pair.server_diary.calls("opened") == ["client"]
    assert pair.clock.now == pytest.approx(2.1)


def test_a_lane_can_be_reordered_dropped_and_tampered_with() -> None:
    pair = RecordedPair()
    lane = pair.to_server
    lane.chunk_bytes = 4
    lane.tamper = lambda data: data[:8] + b"1234"
    lane.collect()
    lane.reorder([1, 2, 0])
    assert lane.waiting == [AMQP_HEADER[4:], b"1234", AMQP_HEADER[:4]]
    with pytest.raises(ValueError, match="no order"):
        lane.reorder([0, 0, 1])
    lane.drop()
    assert lane.waiting == []
    assert lane.next_arrival() is None


def test_a_cut_is_told_to_both_ends() -> None:
    pair = RecordedPair()
    pair.begin()
    pair.cut()
    assert pair.client.closed
    assert pair.server.closed


def test_a_raw_peer_reads_frames_and_headers_as_they_come() -> None:
    peer = RawPeer(Connection(Recorder(), container_id="s", is_server=True, now=0.0))
    peer.greet(open_with=Open("me"))
    peer.say(Begin(incoming_window=1, outgoing_window=1), channel=3)
    peer.engine.put(HEARTBEAT[:5])
    (begin,) = peer.hear()
    assert isinstance(begin.performative, Begin)
    assert begin.performative.remote_channel == 3
    peer.engine.put(HEARTBEAT[5:])
    assert peer.hear()[0].performative is None
    assert peer.headers == [AMQP_HEADER]
