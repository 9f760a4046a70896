"""2.2 to 2.4: headers, frames, open, close and silence."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import RemoteError
from enmasse.message.outcomes import AmqpError
from enmasse.message.types import Symbol
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    End,
    Flow,
    Open,
    SaslMechanisms,
    Source,
    Target,
    Transfer,
)
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, condition_of, flow, is_alive, kinds

TLS_HEADER = b"AMQP\x02\x01\x00\x00"


# 2.2 Version negotiation


@clause("2.2:header-first", "2.2:same-version", "2.8.19:ports")
def test_a_header_is_answered_with_the_same() -> None:
    scene = Scene(greets=False)
    assert scene.hear() == []
    assert scene.headers == []
    scene.say_bytes(AMQP_HEADER)
    assert scene.hear() == []
    assert scene.headers == [b"AMQP\x00\x01\x00\x00"]
    assert not scene.engine.closed


@clause("2.2:other-version", "2.2:no-frames-on-refusal")
@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x01\x00", b"AMQP\x01\x01\x00\x0a", b"AMQP\x63\x01\x00\x00"]
)
def test_another_version_is_answered_with_ours_and_the_socket_closes(header: bytes) -> None:
    scene = Scene(greets=False)
    scene.say_bytes(header + amqp_frame(0, Open("c")))
    assert scene.hear() == []
    assert scene.headers == [AMQP_HEADER]
    assert scene.engine.closed


@clause("5.2:refused")
def test_without_tls_its_header_is_refused() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(TLS_HEADER)
    assert scene.hear() == []
    assert (scene.headers, scene.engine.closed) == ([AMQP_HEADER], True)


@clause("2.2:not-amqp", "2.2:no-frames-on-refusal")
@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"AMQX\x00\x01\x00\x00", bytes(8), b"amqp\x00\x01\x00\x00"]
)
def test_what_is_no_header_is_answered_with_one(noise: bytes) -> None:
    scene = Scene(greets=False)
    scene.say_bytes(noise)
    assert scene.hear() == []
    assert (scene.headers, scene.engine.closed) == ([AMQP_HEADER], True)


@clause("2.2:cut-header")
def test_a_header_comes_in_pieces() -> None:
    scene = Scene(greets=False)
    for octet in AMQP_HEADER[:-1]:
        scene.say_bytes(bytes((octet,)))
        assert scene.hear() == []
    assert scene.headers == []
    scene.say_bytes(AMQP_HEADER[-1:])
    assert scene.hear() == []
    assert scene.headers == [AMQP_HEADER]


# 2.3 Framing


@clause("2.3.1:size", "2.8.16:framing")
@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_frame_has_at_least_8_octets(size: int) -> None:
    scene = Scene()
    scene.say_bytes(size.to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(8))
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"
    assert scene.engine.closed


@clause("2.3.1:doff")
@pytest.mark.parametrize("doff", [0, 1, 200])
def test_the_data_offset_lies_in_the_frame(doff: int) -> None:
    scene = Scene()
    frame = bytearray(amqp_frame(0, Begin(None, 0, 1, 1)))
    frame[4] = doff
    scene.say_bytes(bytes(frame))
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"


@clause("2.3.1:extended-header")
def test_an_extended_header_is_skipped() -> None:
    scene = Scene()
    frame = amqp_frame(0, Begin(None, 0, 1, 1))
    size = len(frame) + 8
    scene.say_bytes(size.to_bytes(4, "big") + b"\x04\x00\x00\x00" + b"whatever" + frame[8:])
    assert scene.hear_one(Begin).remote_channel == 0


@clause("2.3.1:extended-header", "2.3.2:one-performative")
def test_an_extended_header_of_a_transfer_is_skipped() -> None:
    scene = Scene()
    scene.begin()
    sink = scene.sender()
    frame = amqp_frame(0, Transfer(0, 0, b"t"), 1) + b"m"
    scene.say_bytes((len(frame) + 4).to_bytes(4, "big") + b"\x03" + frame[5:8] + b"more" + frame[8:])
    assert sink.payloads == [b"m"]


@clause("2.3.1:type")
def test_another_frame_type_is_refused() -> None:
    scene = Scene()
    scene.say_bytes(sasl_frame(SaslMechanisms(("PLAIN",))))
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"


@clause("2.3.1:pieces")
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_come_in_any_pieces(size: int) -> None:
    scene = Scene(greets=False)
    data = AMQP_HEADER + amqp_frame(0, Open("c")) + amqp_frame(0, Begin(None, 0, 9, 9)) + HEARTBEAT
    data += amqp_frame(0, Attach("in", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    for at in range(0, len(data), size):
        scene.say_bytes(data[at : at + size])
    assert kinds(scene.heard()) == ["Open", "Begin", "Attach"]
    scene.receiving().grant(5)
    transfers = b"".join(amqp_frame(0, Transfer(0, n, b"t%d" % n), 3) + b"m-%d" % n for n in range(5))
    for at in range(0, len(transfers), size):
        scene.say_bytes(transfers[at : at + size])
    assert scene.sink("in").payloads == [b"m-%d" % n for n in range(5)]


@clause("2.3.2:empty", "2.4.5:traffic-counts")
def test_an_empty_frame_on_whatever_channel_only_shows_life() -> None:
    scene = Scene(idle_timeout_s=10.0)
    for channel in (0, 7, 0xFFFF):
        scene.clock.advance(9.0)
        scene.say_bytes(HEARTBEAT[:6] + channel.to_bytes(2, "big"))
        scene.engine.handle_deadline(scene.clock.now)
    assert scene.hear() == []
    assert not scene.engine.closed


@clause("2.3.2:unknown-performative", "2.8.15:decode")
@pytest.mark.parametrize("body", [b"\x00\x53\x19\x45", b"\x00\x53\x77\xa1\x01x", b"\x40", b"\xa1\x03abc", b"\xff"])
def test_a_body_that_is_no_performative_ends_the_connection(body: bytes) -> None:
    scene = Scene()
    scene.begin()
    scene.say_bytes((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    assert condition_of(scene.hear_one(Close)) in ("amqp:decode-error", "amqp:connection:framing-error")


@clause("2.3.2:payload-size")
def test_payload_behind_another_performative_does_no_harm() -> None:
    scene = Scene()
    scene.say(Begin(None, 0, 1, 1), payload=b"more")
    assert scene.hear_one(Begin).remote_channel == 0


# 2.4 Connections


@clause("2.4.1:open-first", "2.8.15:not-allowed")
@pytest.mark.parametrize("early", [Begin(None, 0, 1, 1), Close(), End(), Flow(None, 1, 0, 1)])
def test_nothing_comes_before_open(early: Any) -> None:
    scene = Scene(greets=False)
    scene.say_bytes(AMQP_HEADER)
    scene.say(early)
    *_, last = scene.heard()
    assert isinstance(last, Close)
    assert condition_of(last) is not None
    assert scene.engine.closed


@clause("2.4.3:close-before-open")
def test_a_connection_that_is_refused_is_opened_and_closed() -> None:
    scene = Scene(greets=False)
    scene.diary.opens = False
    scene.say_bytes(AMQP_HEADER)
    scene.say(Open("c"))
    scene.engine.close(AmqpError("amqp:not-allowed", "not you"))
    opened, closed = scene.heard()
    assert isinstance(opened, Open)
    assert condition_of(closed) == "amqp:not-allowed"


@clause("2.4.1:open-once")
def test_a_second_open_ends_the_connection() -> None:
    scene = Scene()
    scene.say(Open("c"))
    assert condition_of(scene.hear_one(Close)) == "amqp:not-allowed"


@clause("2.4.1:max-frame-before", "2.7.1:max-frame-minimum")
def test_our_open_fits_the_smallest_frame() -> None:
    scene = Scene(greets=False, properties={Symbol("product"): "x" * 100}, offered_capabilities=("ANONYMOUS-RELAY",))
    scene.say_bytes(AMQP_HEADER + amqp_frame(0, Open("c", max_frame_size=512)))
    assert sum(map(len, scene.engine.pending_output())) - len(AMQP_HEADER) <= 512


@clause("2.7.1:max-frame-minimum", "2.8.15:invalid-field")
def test_a_max_frame_size_below_512_is_refused() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(AMQP_HEADER)
    scene.say(Open("c", max_frame_size=511))
    *_, last = scene.heard()
    assert condition_of(last) == "amqp:invalid-field"


@clause("2.7.1:max-frame-size", "2.4.1:each-own-limits", "2.6.14:split")
def test_no_frame_is_larger_than_the_peer_takes() -> None:
    scene = Scene(Open("c", max_frame_size=512))
    scene.begin()
    scene.receiver(credit=5)
    payload = bytes(range(256)) * 8
    scene.sink("out").send(payload)
    data = b"".join(bytes(chunk) for chunk in scene.engine.pending_output())
    sizes, at = [], 0
    while at < len(data):
        sizes.append(int.from_bytes(data[at : at + 4], "big"))
        at += sizes[-1]
    assert max(sizes) <= 512
    assert len(sizes) > 4


@clause("2.7.1:max-frame-size")
def test_a_frame_above_our_max_frame_size_ends_the_connection() -> None:
    scene = Scene(max_frame_size=1024)
    scene.begin()
    sink = scene.sender()
    scene.send(0, bytes(900))
    assert len(sink.received) == 1
    scene.send(1, bytes(1024))
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"
    assert len(sink.received) == 1


@clause("2.7.1:channel-max")
def test_a_channel_above_our_channel_max_ends_the_connection() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(AMQP_HEADER)
    scene.say(Open("c"))
    channel_max = scene.hear_one(Open).channel_max
    assert scene.begin(channel_max).remote_channel == channel_max
    scene.say(Begin(None, 0, 1, 1), channel=channel_max + 1)
    assert condition_of(scene.hear_one(Close)) == "amqp:connection:framing-error"


@clause("2.7.1:channel-max")
def test_the_peers_channel_max_binds_us() -> None:
    scene = Scene(Open("c", channel_max=0))
    scene.engine.begin()
    assert [frame.channel for frame in scene.hear()] == [0]
    with pytest.raises(RemoteError, match="channel"):
        scene.engine.begin()


@clause("2.7.1:capabilities", "2.7.1:properties", "2.7.2:unknown-ignored")
def test_what_a_peer_tells_and_wishes_beyond_our_knowledge_is_ignored() -> None:
    scene = Scene(
        Open("c", desired_capabilities=("strange",), offered_capabilities=("x",), properties={Symbol("odd"): [1]}),
        offered_capabilities=("ANONYMOUS-RELAY",),
    )
    scene.say(Begin(None, 0, 1, 1, desired_capabilities=("strange",), properties={Symbol("odd"): 1}))
    assert scene.hear_one(Begin).remote_channel == 0
    assert not scene.engine.closed


@clause("2.4.2:pipelined")
def test_everything_may_be_sent_without_waiting() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(
        AMQP_HEADER
        + amqp_frame(0, Open("c"))
        + amqp_frame(3, Begin(None, 0, 100, 100))
        + amqp_frame(3, Attach("out", 0, True, source=Source("q"), target=Target()))
        + amqp_frame(3, flow(0, 5, count=None, next_incoming_id=None))
    )
    assert kinds(scene.heard()) == ["Open", "Begin", "Attach"]
    assert scene.sending().credit == 5


@clause("2.4.2:pipelined", "2.4.3:close-answered")
def test_even_close_may_follow_at_once() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(AMQP_HEADER + amqp_frame(0, Open("c")) + amqp_frame(0, Close()))
    assert kinds(scene.heard()) == ["Open", "Close"]
    assert scene.engine.closed


@clause("2.4.3:close-answered", "2.4.3:close-implies-end", "2.4.3:nothing-after-close", "2.7.9:error")
def test_a_close_is_answered_and_takes_everything_along() -> None:
    scene = Scene()
    scene.begin()
    sink = scene.sender()
    scene.receiver(handle=1)
    scene.say(Close(AmqpError("amqp:connection:forced", "bye")))
    assert kinds(scene.heard()) == ["Close"]
    assert sorted(name for name, _, _ in scene.diary.calls("detached")) == ["in", "out"]
    assert scene.diary.calls("closed") == ["amqp:connection:forced"]
    sink.link.detach()  # type: ignore[union-attr]
    scene.say(Begin(None, 0, 1, 1), channel=1)
    assert scene.hear() == []


@clause("2.4.4:crossed")
def test_closes_that_cross_are_enough() -> None:
    pair = RecordedPair()
    pair.pump()
    pair.client.close()
    pair.server.close()
    pair.pump()
    assert (pair.client.closed, pair.server.closed) == (True, True)
    for diary in (pair.client_diary, pair.server_diary):
        assert diary.calls("closed") == [None]


@clause("2.4.3:error-closes", "2.4.6:discarding")
def test_after_an_error_nothing_is_looked_at() -> None:
    scene = Scene()
    scene.begin()
    sink = scene.sender()
    scene.say_bytes(amqp_frame(0, Open("again")) + amqp_frame(0, Transfer(0, 0, b"t"), 1) + b"m")
    assert kinds(scene.heard()) == ["Close"]
    scene.send(1)
    assert sink.received == []
    assert scene.engine.closed


# 2.4.5 Idle time-out


@clause("2.4.5:silent-peer", "2.4.5:half-told", "2.8.15:resource-limit")
def test_a_silent_peer_is_closed_after_more_than_it_was_told() -> None:
    scene = Scene(greets=False, idle_timeout_s=30.0)
    scene.say_bytes(AMQP_HEADER)
    scene.say(Open("c"))
    told = scene.hear_one(Open).idle_time_out
    assert told is not None
    scene.clock.advance(told / 1000 + 0.1)
    scene.engine.handle_deadline(scene.clock.now)
    assert not scene.engine.closed
    scene.clock.advance(30.0)
    scene.engine.handle_deadline(scene.clock.now)
    assert condition_of(scene.hear_one(Close)) == "amqp:resource-limit-exceeded"
    assert scene.engine.closed


@clause("2.4.5:heartbeats")
def test_the_peer_is_kept_awake() -> None:
    scene = Scene(Open("c", idle_time_out=10_000), idle_timeout_s=0)
    silence = longest = 0.0
    for _ in range(120):
        scene.clock.advance(0.5)
        silence += 0.5
        deadline = scene.engine.next_deadline()
        assert deadline is not None
        if deadline <= scene.clock.now:
            scene.engine.handle_deadline(scene.clock.now)
        if scene.hear():
            longest = max(longest, silence)
            silence = 0.0
    assert 0 < max(longest, silence) < 10.0


@clause("2.4.5:none-told")
@pytest.mark.parametrize("told", [None, 0])
def test_a_peer_that_tells_no_time_out_is_sent_nothing(told: int | None) -> None:
    scene = Scene(Open("c", idle_time_out=told), idle_timeout_s=0)
    assert scene.engine.next_deadline() is None
    scene.clock.advance(1000.0)
    scene.engine.handle_deadline(scene.clock.now)
    assert scene.hear() == []


@clause("2.4.5:too-short")
def test_a_time_out_that_cannot_be_kept_is_refused() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(AMQP_HEADER)
    scene.say(Open("c", idle_time_out=1))
    *_, last = scene.heard()
    assert condition_of(last) == "amqp:invalid-field"
    assert scene.engine.closed


@clause("5.3.2:no-amqp-before")
def test_the_header_of_sasl_is_refused_where_there_is_none() -> None:
    scene = Scene(greets=False)
    scene.say_bytes(SASL_HEADER)
    assert scene.hear() == []
    assert (scene.headers, scene.engine.closed) == ([AMQP_HEADER], True)


@clause("2.4.1:each-own-limits")
def test_the_connection_lives_on_after_all_that_is_allowed() -> None:
    assert is_alive(Scene(Open("c", max_frame_size=512, channel_max=60)))


@clause("2.7.1:locales")
def test_locales_do_no_harm() -> None:
    assert is_alive(Scene(Open("c", outgoing_locales=("de-DE",), incoming_locales=("fr-FR", "en-US"))))
