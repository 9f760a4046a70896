"""What an observer sees of an MQTT connection: every packet, no secret, and a line for each."""

from __future__ import annotations

import pytest

from enmasse.node.protocols import Frames
from enmasse.wire.mqtt import trace
from enmasse.wire.mqtt.packets import (
    Connack,
    ConnackProperties,
    Connect,
    Disconnect,
    Filter,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    Will,
)
from enmasse.wire.mqtt.trace import MAX_OBSERVED_BYTES, Splitter, describe, mask, shorten
from enmasse.wire.mqtt.writing import (
    encode_auth,
    encode_connack,
    encode_connect,
    encode_disconnect,
    encode_publish,
    encode_publish_properties,
    encode_subscribe,
    encode_unsubscribe,
)
from tests.unit.wire.mqtt_scene import V3, V4, V5, packet, text

SECRET = b"correct horse battery staple"
WILL = Will("gone", b"goodbye all", 1, True, 5, PublishProperties(1, 60, "text/plain", "a", b"1", [("a", "b")]))
FULL = encode_publish_properties(PublishProperties(1, 60, "text/plain", "answers", b"1", [("a", "b")]), 7)

CONNECTS = [
    encode_connect(
        Connect(V5, "c", False, 60, "me", SECRET, WILL, 60, 7, 1000, 5, False, True, "X", SECRET, [("a", "b")])
    ),
    encode_connect(Connect(V5, "c", password=SECRET)),
    encode_connect(Connect(V4, "c", True, 60, "me", SECRET, WILL)),
    encode_connect(Connect(V3, "c", True, 60, "me", SECRET)),
]  # fmt: skip
SECRETIVE = [
    *CONNECTS,
    encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", SECRET, "why"),
    encode_connack(V5, Connack(True, 0, ConnackProperties(
        60, 20, 1, False, 1000, "c", 5, "hi", [("a", "b")], False, False, False, 90, "here", "there", "X", SECRET,
    ))),
]  # fmt: skip
PACKETS = [
    *SECRETIVE,
    encode_connack(V4, Connack(False, 5)),
    encode_publish(b"a/b", b"payload", 1, True, True, 7, FULL),
    encode_publish(b"t", b"x" * 20_000),
    b"\x40\2\0\1",
    encode_subscribe(V5, Subscribe(5, [Filter("a/#", 1)])),
    b"\xc0\0",
    encode_disconnect(V5, Disconnect()),
]


def test_the_module_reads_traces() -> None:
    frames: Frames = trace
    assert frames.Splitter(b"\xc0").feed(b"\0") == [b"\xc0\0"]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_packets_are_found_however_they_come(size: int) -> None:
    data = b"".join(PACKETS)
    splitter = Splitter()
    found = [item for at in range(0, len(data), size) for item in splitter.feed(data[at : at + size])]
    assert found == PACKETS
    assert not splitter.is_lost


def test_packets_are_found_from_the_middle_of_one_on() -> None:
    data = b"".join(PACKETS[:8])
    for cut in range(0, len(data), 7):
        first = Splitter()
        before = first.feed(data[:cut])
        begun = data[sum(map(len, before)) : cut]
        assert before + Splitter(begun).feed(data[cut:]) == PACKETS[:8]


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\1\2", b"\x30\xff\xff\xff\xff\1", b"\x30\xff\xff\xff\x7f"]
)
def test_what_is_no_packet_is_told_once_and_not_shown(garbage: bytes) -> None:
    splitter = Splitter()
    assert splitter.feed(b"\xc0\0" + garbage) == [b"\xc0\0", b""]
    assert splitter.feed(b"\xc0\0") == []
    assert int.from_bytes(b"\x7f\xff\xff\xff", "big") > MAX_OBSERVED_BYTES


@pytest.mark.parametrize("index", range(len(SECRETIVE)))
def test_secrets_are_masked_and_lengths_stay(index: int) -> None:
    frame = SECRETIVE[index]
    masked = mask(frame)
    assert SECRET not in masked
    assert len(masked) == len(frame)
    assert masked.count(b"*" * len(SECRET)) == frame.count(SECRET)
    assert masked.replace(b"*" * len(SECRET), SECRET) == frame


@pytest.mark.parametrize(
    "frame",
    [
        packet(0x10, text("MQTT"), b"\5\xc2\0\0", b"\x7f", text("c"), text(SECRET)),
        packet(0x10, text("MQTT"), b"\5\xc2\0\0", b"\0", text("c"), text(SECRET)),
        packet(0x10, text("MQTT"), b"\4\2\0\0", text("c"), text(SECRET)),
        packet(0x10, text("MQTT"), b"\4\xc2\0\0", text("c"), text("me"), text(SECRET), SECRET),
        packet(0x10, text("MQTT"), b"\x09\xc2\0\0", text("c"), text("me"), text(SECRET)),
        packet(0x10, SECRET),
        packet(0x20, b"\0\0\x7f", b"\x16", text(SECRET)),
        packet(0xF0, b"\x18\x7f", b"\x16", text(SECRET)),
        packet(0xF0, b"\x18", b"\x03\x16\0\x1c", SECRET),
        packet(0xF0, b"\x18\0", b"\x16", text(SECRET)),
        b"\x10\xff\xff\xff\xff\xff" + SECRET,
    ],
)
def test_of_a_packet_with_a_breach_no_secret_is_shown(frame: bytes) -> None:
    masked = mask(frame)
    assert len(masked) == len(frame)
    assert SECRET not in masked
    assert SECRET[-10:] not in masked


def test_what_has_no_secret_stays_as_it_is() -> None:
    for frame in PACKETS[len(SECRETIVE) :]:
        assert mask(frame) == frame
    assert mask(b"") == b""


def test_a_payload_is_shortened_and_nothing_else() -> None:
    for told in (b"", b"\0", FULL):
        for qos in (0, 1):
            frame = encode_publish(b"t", b"payload", qos, packet_id=qos, properties=told)
            head = frame.removesuffix(b"payload")
            assert shorten(frame, 3) == head + b"pay"
            assert shorten(frame, 0) == head
            assert shorten(frame, 100) == frame
    assert shorten(b"\x40\2\0\1", 0) == b"\x40\2\0\1"
    assert shorten(b"", 0) == b""


def test_the_payload_of_a_will_is_overwritten() -> None:
    for frame in (CONNECTS[0], CONNECTS[2]):
        assert shorten(frame, 4) == frame.replace(b"goodbye all", b"good*******")
        assert shorten(frame, 100) == frame
    assert shorten(CONNECTS[1], 0) == CONNECTS[1]


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (
            mask(CONNECTS[1]), "CONNECT 5.0 client c keep-alive 0 clean password session-expiry 0"
        ),
        (
            mask(CONNECTS[2]),
            "CONNECT 3.1.1 client c keep-alive 60 clean user me password will gone qos 1 payload 11 bytes",
        ),
        (
            encode_connect(Connect(V5, "a b", authentication_method="X")),
            "CONNECT 5.0 client 'a b' keep-alive 0 clean method X session-expiry 0",
        ),
        (mask(CONNECTS[3]), "CONNECT 3.1 client c keep-alive 60 clean user me password"),
        (encode_connack(V5, Connack(True, 0)), "CONNACK success session present"),
        (encode_connack(V5, Connack(False, 0x87)), "CONNACK not-authorized"),
        (encode_connack(V4, Connack(False, 5)), "CONNACK code 5"),
        (encode_publish(b"a/b", b"xyz", 1, True, True, 7), "PUBLISH a/b qos 1 id 7 dup retain payload 3 bytes b'xy'"),
        (encode_publish(b"a b", b"xyz", 0, properties=FULL), "PUBLISH 'a b' qos 0 payload 3 bytes b'xy'"),
        (b"\x40\2\0\1", "PUBACK id 1"),
        (b"\x40\3\0\1\x97", "PUBACK id 1 quota-exceeded"),
        (b"\x62\3\0\1\x55", "PUBREL id 1 0x55"),
        (encode_subscribe(V4, Subscribe(5, [Filter("a/#", 1), Filter("b", 2)])), "SUBSCRIBE id 5 a/# qos 1 b qos 2"),
        (encode_subscribe(V5, Subscribe(5, [Filter("a/#", 1)], 7)), "SUBSCRIBE id 5 a/# qos 1"),
        (encode_unsubscribe(V5, Unsubscribe(6, [f"t/{n}" for n in range(12)])),
         "UNSUBSCRIBE id 6 t/0 t/1 t/2 t/3 t/4 t/5 t/6 t/7 t/8 t/9 and 2 more"),
        (b"\x90\4\0\5\0\1", "SUBACK id 5 codes 00 01"),
        (b"\xb0\2\0\6", "UNSUBACK id 6"),
        (b"\xc0\0", "PINGREQ"),
        (encode_disconnect(V5, Disconnect()), "DISCONNECT"),
        (encode_disconnect(V5, Disconnect(Reason.SERVER_BUSY)), "DISCONNECT server-busy"),
        (encode_disconnect(V5, Disconnect(0, 5, "bye now")), "DISCONNECT success 'bye now'"),
        (b"\xe0\1\x55", "DISCONNECT 0x55"),
        (mask(encode_auth(Reason.REAUTHENTICATE, "X", SECRET)), "AUTH reauthenticate method X"),
        (packet(0x10, text("MQTT"), b"\4\2\0"), "11 bytes that are no packet"),
        (b"\1\2", "2 bytes that are no packet"),
        (b"", "0 bytes that are no packet"),
    ],
)  # fmt: skip
def test_a_packet_is_a_line(frame: bytes, line: str) -> None:
    assert describe(shorten(frame, 2), 2) == line
