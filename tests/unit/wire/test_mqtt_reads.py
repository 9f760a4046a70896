"""Bytes from a client, however they come: reads of any sizes, packets without room, input that is held."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.mqtt.engine import FREE_BYTES, SLICE_BYTES
from enmasse.wire.mqtt.output import TURN_BYTES
from enmasse.wire.mqtt.packets import ConnackProperties, Filter, PublishProperties, Reason, Subscribe, Version
from enmasse.wire.mqtt.writing import (
    encode_publish,
    encode_publish_properties,
    encode_subscribe,
)
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import (
    FULL,
    PLAIN,
    V4,
    V5,
    VERSIONS,
    Noted,
    Scene,
    connect_packet,
    publish,
    text,
    topics,
)


class Asked:
    """Notes what it is asked, and says yes up to a limit."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.values: list[int] = []
        self._most = most

    def __call__(self, value: int) -> bool:
        self.values.append(value)
        return value < self._most


def transcript(version: Version) -> bytes:
    """What a client says in a while."""
    told = encode_publish_properties(FULL) if version is V5 else b""
    return b"".join(
        (
            publish(version), publish(version), publish(version, "a/b", b"y" * 300, 1, 7),
            encode_publish(b"t", b"", 2, True, True, 8, told or PLAIN[version]),
            encode_publish(b"t", b"z" * 130, 0, properties=told), publish(version),
            b"\x40\2\0\1\x50\2\0\2\x62\2\0\3\x70\2\0\4\xc0\0",
            encode_subscribe(version, Subscribe(5, [Filter("a/#", 1), Filter("b", 2)])), publish(version, "a/b", b""),
        )
    )  # fmt: skip


def told_of(version: Version, pieces: list[bytes]) -> tuple[list[tuple[object, ...]], bytes]:
    scene = Scene().opened(version)
    heard = scene.hear(*pieces)
    return heard, scene.said()


WHOLE = {version: told_of(version, [transcript(version)]) for version in VERSIONS}


@given(st.sampled_from(VERSIONS), st.data())
def test_reads_of_any_sizes_tell_the_same(version: Version, draw: st.DataObject) -> None:
    data = transcript(version)
    cuts = draw.draw(st.lists(st.integers(1, len(data) - 1), max_size=20))
    ends = [0, *sorted(cuts), len(data)]
    assert told_of(version, [data[a:b] for a, b in pairwise(ends)]) == WHOLE[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_come_one_by_one_tell_the_same(version: Version) -> None:
    data = transcript(version)
    assert told_of(version, [data[at : at + 1] for at in range(len(data))]) == WHOLE[version]
    assert len(WHOLE[version][0]) == 12


def test_a_large_message_that_comes_in_pieces_needs_room() -> None:
    data = publish(V4, "t", b"x" * 100_000)
    scene = Scene().opened(V4)
    scene.engine.more_room = asked = Asked()
    heard = scene.hear(*(data[at : at + 10_000] for at in range(0, len(data), 10_000)))
    assert topics(heard) == ["t"]
    assert asked.values == [*range(10_000, 100_001, 10_000), 0]
    scene.hear(data[: FREE_BYTES // 2], data[FREE_BYTES // 2 :])
    assert len(asked.values) == 11


@clause("mqtt3:4.8.0-2")
def test_without_room_the_connection_ends_and_gives_its_room_back() -> None:
    for version in VERSIONS:
        scene = Scene().opened(version)
        scene.engine.more_room = asked = Asked(20_000)
        data = publish(version, "t", b"x" * 100_000)
        heard = scene.hear(*(data[at : at + 9_000] for at in range(0, 50_000, 9_000)))
        assert topics(heard) == ["closed"]
        assert asked.values == [9_000, 18_000, 27_000, 0]
        assert scene.engine.unread == b""
        goodbye = scene.goodbye()
        assert (goodbye and goodbye.reason) == (Reason.QUOTA_EXCEEDED if version is V5 else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_packet_that_is_too_large_is_refused_by_its_header(version: Version, is_whole: bool) -> None:
    scene = Scene(ConnackProperties(maximum_packet_size=1000)).opened(version)
    fits = publish(version, "t", b"x" * (993 if version is V5 else 994))
    assert len(fits) == 1000
    assert topics(scene.hear(fits)) == ["t"]
    larger = publish(version, "t", b"x" * (994 if version is V5 else 995))
    assert topics(scene.hear(larger if is_whole else larger[:20])) == ["closed"]
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (Reason.PACKET_TOO_LARGE if version is V5 else None)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\1", b"\x80\x80\x80\x80\0", b"\xff\xff\xff\xff\xff\xff"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_remaining_length_of_five_bytes_is_malformed(version: Version, length: bytes) -> None:
    scene = Scene().opened(version)
    assert scene.hear(b"\x30", length)[0][0] == "closed"
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (Reason.MALFORMED_PACKET if version is V5 else None)


@clause("mqtt5:1.5.5-1")
@pytest.mark.parametrize("length", [b"\x84\0", b"\x84\x80\0", b"\x84\x80\x80\0"])
def test_a_remaining_length_with_bytes_to_spare_is_an_error_in_version_5_alone(length: bytes) -> None:
    for version in VERSIONS:
        scene = Scene().opened(version)
        assert topics(scene.hear(b"\x30" + length + text("t") + (b"\0" if version is V5 else b"x"))) == [
            "closed" if version is V5 else "t"
        ]


def test_others_that_wait_have_their_turn_between_packets() -> None:
    scene = Scene().opened(V4)
    scene.engine.is_late = asked = Asked()
    one = publish(V4, "t", b"x" * 100)
    assert len(scene.hear(one * 100)) == 1
    assert asked.values == [False]
    scene.engine.receive(b"", 0.0)
    assert SLICE_BYTES / len(one) <= len(scene.heard) < 100
    assert asked.values == [False, True]
    for _ in range(100):
        scene.engine.receive(b"", 0.0)
    assert len(scene.heard) == 100
    assert not scene.engine.has_more


def test_a_handler_that_holds_the_input_is_told_no_more_until_it_lets_go() -> None:
    scene = Scene().opened(V5)
    engine = scene.engine
    seen: list[object] = []
    engine.wake = seen.append
    engine.hold_input(True)
    assert scene.hear(publish(V5) * 3) == []
    assert engine.has_more
    engine.hold_input(False)
    assert seen == [engine, engine]
    assert topics(scene.hear(b"")) == ["t", "t", "t"]


@pytest.mark.parametrize(
    "data",
    [publish(V5), publish(V5, "t", b"x", 1, 1), publish(V5, "u"), b"\x40\2\0\1", b"\x62\2\0\1", b"\x62\3\0\1\0"],
)
@pytest.mark.parametrize("ends", [False, True])
def test_a_handler_may_hold_the_input_or_end_the_connection_at_any_packet(data: bytes, ends: bool) -> None:
    class Holding(Scene):
        def hold(self) -> None:
            if self.is_holding:
                self.is_holding = False
                if ends:
                    self.engine.disconnect(Reason.SERVER_BUSY)
                else:
                    self.engine.hold_input(True)

        def make_sink(self, topic: str, told: PublishProperties | None) -> Noted:
            holding = self

            class Sink(Noted):
                def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
                    super().on_publish(payload, flags, packet_id)
                    holding.hold()

            return Sink(self.heard, topic, told)

        def on_puback(self, packet_id: int, reason: int) -> None:
            super().on_puback(packet_id, reason)
            self.hold()

        def on_pubrel(self, packet_id: int, reason: int) -> None:
            super().on_pubrel(packet_id, reason)
            self.hold()

        is_holding = False

    scene = Holding().opened(V5)
    scene.hear(publish(V5), publish(V5, "t", b"x", 1, 1))
    scene.is_holding = True
    heard = scene.hear(data + publish(V5, "after"), publish(V5, "after"))
    assert len(heard) == (2 if ends else 1)
    assert (heard[-1][0] == "closed") is ends
    if not ends:
        scene.engine.hold_input(False)
        assert [what[1] for what in scene.hear(b"")] == ["after", "after"]


def test_a_connection_that_is_traced_shows_its_bytes() -> None:
    scene = Scene().opened(V4)
    seen: list[tuple[bool, bytes]] = []
    scene.engine.trace = lambda is_outgoing, data: seen.append((is_outgoing, data))
    scene.hear(b"\xc0", b"\0", b"")
    scene.said()
    scene.said()
    assert seen == [(False, b"\xc0"), (False, b"\0"), (True, b"\xd0\0")]


def test_much_output_blocks_the_handler_until_it_is_written() -> None:
    scene = Scene().opened(V4)
    scene.engine.put(b"\x30" + b"x" * TURN_BYTES)
    scene.engine.block_output()
    assert scene.heard == [("blocked", True)]
    scene.said()
    scene.engine.resume_output()
    scene.engine.resume_output()
    assert scene.heard == [("blocked", True), ("blocked", False)]


def test_the_first_packets_may_come_in_one_read() -> None:
    for version in VERSIONS:
        scene = Scene()
        heard = scene.hear(connect_packet(version) + publish(version) * 2 + b"\xc0\0")
        assert [what[0] for what in heard] == ["CONNECT", "PUBLISH", "PUBLISH"]
        assert [item[0] for item in scene.packets()] == [0x20, 0xD0]
