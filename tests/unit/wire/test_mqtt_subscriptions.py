"""SUBSCRIBE and UNSUBSCRIBE: filters, their options, and the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.packets import MAX_CONTROL_BYTES, MAX_FILTERS, Filter, Reason, Subscribe, Unsubscribe, Version
from enmasse.wire.mqtt.topics import check_filter
from enmasse.wire.mqtt.writing import encode_subscribe, encode_unsubscribe
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import V3, V4, V5, VERSIONS, Scene, packet, properties, text

NONE = {V3: b"", V4: b"", V5: b"\0"}


def subscribe(version: Version, *filters: bytes, told: bytes = b"\0") -> bytes:
    """A SUBSCRIBE with the packet identifier 5."""
    return packet(0x82, b"\0\5", told if version is V5 else b"", *filters)


def unsubscribe(version: Version, *filters: bytes) -> bytes:
    """An UNSUBSCRIBE with the packet identifier 6."""
    return packet(0xA2, b"\0\6", NONE[version], *filters)


def test_the_filters_of_a_subscribe_are_told_with_their_options() -> None:
    wanted = Subscribe(
        5,
        [Filter("a/+/#", 2, True, True, 2), Filter("$share/g/a", 1), Filter("b", 0, False, True, 1)],
        268_435_455,
        [("a", "1"), ("a", "2")],
    )
    scene = Scene().opened(V5)
    assert scene.hear(encode_subscribe(V5, wanted)) == [("SUBSCRIBE", wanted)]


def test_older_versions_have_a_qos_alone() -> None:
    wanted = Subscribe(5, [Filter("a/+/#", 2), Filter("$share/g/a", 1), Filter("b", 0)])
    for version in (V3, V4):
        assert Scene().opened(version).hear(encode_subscribe(version, wanted)) == [("SUBSCRIBE", wanted)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_filters_of_an_unsubscribe_are_told(version: Version) -> None:
    wanted = Unsubscribe(6, ["a/+/#", "$share/g/a"], [("a", "1")] if version is V5 else [])
    assert Scene().opened(version).hear(encode_unsubscribe(version, wanted)) == [("UNSUBSCRIBE", wanted)]


BAD_SUBSCRIBES = {
    "no filter": (b"", Reason.PROTOCOL_ERROR),
    "no options": (text("a"), Reason.MALFORMED_PACKET),
    "an empty filter": (text("") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a filter that is not UTF-8": (text(b"\xff") + b"\0", Reason.MALFORMED_PACKET),
    "a filter with U+0000": (text("a\0") + b"\0", Reason.MALFORMED_PACKET),
    "a filter beyond the end": (b"\0\x09a\0", Reason.MALFORMED_PACKET),
    "QoS 3": (text("a") + b"\3", Reason.PROTOCOL_ERROR),
    "a reserved bit": (text("a") + b"\x40", Reason.MALFORMED_PACKET),
    "another reserved bit": (text("a") + b"\x80", Reason.MALFORMED_PACKET),
    "a wildcard in a level": (text("a#") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a wildcard before the end": (text("#/a") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a + in a level": (text("a/b+") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a share without a name": (text("$share//a") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a share without a filter": (text("$share/g") + b"\0", Reason.TOPIC_FILTER_INVALID),
    "a good filter before a bad one": (text("a") + b"\0" + text("#b") + b"\0", Reason.TOPIC_FILTER_INVALID),
}


@clause(
    "mqtt5:3.8.3-1", "mqtt5:3.8.3-2", "mqtt5:3.8.3-5", "mqtt5:4.7.1-1", "mqtt5:4.7.1-2", "mqtt5:4.7.3-1",
    "mqtt5:4.7.3-2", "mqtt5:4.8.2-1", "mqtt5:4.8.2-2", "mqtt5:4.13.1-1", "mqtt3:3.8.3-1", "mqtt3:3.8.3-3",
    "mqtt3:3.8.3-4", "mqtt3:4.7.1-2", "mqtt3:4.7.1-3", "mqtt3:4.7.3-1", "mqtt3:4.7.3-2", "mqtt3:4.8.0-1",
)  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("breach", BAD_SUBSCRIBES)
def test_a_subscribe_with_a_breach_ends_the_connection(version: Version, breach: str) -> None:
    filters, reason = BAD_SUBSCRIBES[breach]
    scene = Scene().opened(version)
    ((kind, _),) = scene.hear(subscribe(version, filters))
    assert kind == "closed"
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (reason if version is V5 else None)


@clause("mqtt5:3.8.3-4")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (subscribe(V5, text("$share/g/a") + b"\4"), Reason.PROTOCOL_ERROR),
        (subscribe(V5, text("a") + b"\x30"), Reason.PROTOCOL_ERROR),
        (subscribe(V5, text("a") + b"\0", told=properties(b"\x0b\0")), Reason.PROTOCOL_ERROR),
        (subscribe(V5, text("a") + b"\0", told=properties(b"\x0b\1\x0b\2")), Reason.PROTOCOL_ERROR),
        (subscribe(V5, text("a") + b"\0", told=properties(b"\x1f\0\1x")), Reason.MALFORMED_PACKET),
        (packet(0x82, b"\0\0\0", text("a"), b"\0"), Reason.PROTOCOL_ERROR),
        (packet(0x82, b"\0"), Reason.MALFORMED_PACKET),
        (packet(0xA2, b"\0\0\0", text("a")), Reason.PROTOCOL_ERROR),
        (packet(0xA2, b"\0\1", properties(b"\x0b\1"), text("a")), Reason.MALFORMED_PACKET),
    ],
)
def test_options_and_properties_with_a_breach_end_the_connection(data: bytes, reason: Reason) -> None:
    scene = Scene().opened(V5)
    assert scene.hear(data)[0][0] == "closed"
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == reason


@clause("mqtt3:3.8.3-4")
@pytest.mark.parametrize("options", [3, 4, 8, 0x10, 0x80])
def test_older_versions_have_no_options_but_a_qos(options: int) -> None:
    scene = Scene().opened(V4)
    assert scene.hear(subscribe(V4, text("a") + bytes((options,))))[0][0] == "closed"


@clause("mqtt5:3.10.3-1", "mqtt5:3.10.3-2", "mqtt3:3.10.3-1", "mqtt3:3.10.3-2")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("filters", [b"", text(""), text(b"\xff"), text("a") + text("b\0"), b"\0\5a", text("a/#/b")])
def test_an_unsubscribe_with_a_breach_ends_the_connection(version: Version, filters: bytes) -> None:
    scene = Scene().opened(version)
    ((kind, _),) = scene.hear(unsubscribe(version, filters))
    assert kind == "closed"
    assert (scene.goodbye() is None) is (version is not V5)


@clause(
    "mqtt5:3.8.1-1", "mqtt5:3.10.1-1", "mqtt3:3.8.1-1", "mqtt3:3.10.1-1", "mqtt5:2.1.3-1", "mqtt3:2.2.2-1",
    "mqtt3:2.2.2-2",
)  # fmt: skip
@pytest.mark.parametrize("flags", [0, 1, 3, 4, 0xA, 0xF])
@pytest.mark.parametrize("kind", [0x80, 0xA0])
def test_both_have_flags_of_their_own(flags: int, kind: int) -> None:
    for version in (V3, *VERSIONS):
        data = packet(kind | flags, b"\0\1", NONE[version], text("a"), b"\0" if kind == 0x80 else b"")
        is_taken = version is V3 and flags == 0xA
        scene = Scene().opened(version)
        assert (scene.hear(data)[0][0] == "closed") is not is_taken
        goodbye = scene.goodbye()
        assert (goodbye and goodbye.reason) == (Reason.MALFORMED_PACKET if version is V5 else None)


@clause(
    "mqtt5:3.8.4-2", "mqtt5:3.8.4-6", "mqtt5:3.9.3-1", "mqtt5:2.2.1-6", "mqtt3:3.8.4-2", "mqtt3:3.8.4-5",
    "mqtt3:3.9.3-1", "mqtt3:3.9.3-2", "mqtt3:2.3.1-7",
)  # fmt: skip
def test_suback_has_the_packet_identifier_and_a_code_for_each_filter() -> None:
    codes = [0, 2, 1, Reason.NOT_AUTHORIZED, 0]
    scene = Scene().opened(V5)
    scene.engine.put_suback(0x1234, codes)
    assert scene.said() == b"\x90\x08\x12\x34\0\0\2\1\x87\0"
    scene = Scene().opened(V4)
    scene.engine.put_suback(0x1234, codes)
    assert scene.said() == b"\x90\x07\x12\x34\0\2\1\x80\0"


@clause("mqtt5:3.9.3-2", "mqtt5:3.11.3-2")
def test_answers_have_codes_of_their_packet_alone() -> None:
    scene = Scene().opened(V5)
    scene.engine.put_suback(1, [Reason.PACKET_TOO_LARGE, Reason.TOPIC_NAME_INVALID, Reason.SERVER_BUSY])
    scene.engine.put_unsuback(1, [Reason.NO_SUBSCRIPTION_EXISTED, Reason.QUOTA_EXCEEDED])
    assert scene.said() == b"\x90\6\0\1\0\x97\x8f\x80\xb0\5\0\1\0\x11\x83"


@clause("mqtt5:3.11.3-1", "mqtt5:2.2.1-6", "mqtt3:2.3.1-7")
def test_unsuback_has_the_packet_identifier_and_codes_in_version_5_alone() -> None:
    scene = Scene().opened(V5)
    scene.engine.put_unsuback(0x1234, [0, Reason.NO_SUBSCRIPTION_EXISTED], "x")
    assert scene.said() == b"\xb0\x09\x12\x34\4\x1f\0\1x\0\x11"
    scene = Scene().opened(V4)
    scene.engine.put_unsuback(0x1234, [0, Reason.NO_SUBSCRIPTION_EXISTED], "x")
    assert scene.said() == b"\xb0\2\x12\x34"


@clause("mqtt5:3.1.2-24")
def test_a_client_that_takes_no_suback_so_large_loses_its_connection() -> None:
    scene = Scene().opened(V5, maximum_packet_size=30)
    scene.engine.put_suback(1, [0] * 30)
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == Reason.PACKET_TOO_LARGE


def test_a_flood_of_filters_is_bounded() -> None:
    most = text("a") + b"\0"
    scene = Scene().opened(V5)
    assert len(scene.hear(subscribe(V5, most * MAX_FILTERS))[0][1].filters) == MAX_FILTERS
    for data, reason in (
        (subscribe(V5, most * (MAX_FILTERS + 1)), Reason.QUOTA_EXCEEDED),
        (unsubscribe(V5, text("a") * (MAX_FILTERS + 1)), Reason.QUOTA_EXCEEDED),
        (subscribe(V5, b"x" * MAX_CONTROL_BYTES), Reason.PACKET_TOO_LARGE),
        (subscribe(V5, b"x" * MAX_CONTROL_BYTES)[:10], Reason.PACKET_TOO_LARGE),
    ):
        scene = Scene().opened(V5)
        assert scene.hear(data)[0][0] == "closed"
        goodbye = scene.goodbye()
        assert goodbye is not None
        assert goodbye.reason == reason


@clause("mqtt5:4.7.3-3", "mqtt3:4.7.3-3", "mqtt5:4.7.3-4", "mqtt3:4.7.3-4")
@pytest.mark.parametrize(
    "name", ["x" * 65_535, "+/" * 10_000 + "#", "/" * 10_000, "/", "+", "#", "+/+", "/+", "a//b", "$SYS/#", "\u212b"]
)
def test_filters_are_long_and_deep_and_stay_as_they_are(name: str) -> None:
    for version in VERSIONS:
        scene = Scene().opened(version)
        ((_, told),) = scene.hear(subscribe(version, text(name) + b"\1"))
        assert told.filters == [Filter(name, 1)]


def is_filter(name: str) -> bool:
    """What the specification says of filters, level by level."""
    if name.startswith("$share/"):
        group, slash, name = name.removeprefix("$share/").partition("/")
        if not group or not slash or {"+", "#"} & set(group):
            return False
    levels = name.split("/")
    return bool(name) and all(
        level in ("#", "+") or not {"#", "+"} & set(level) for level in levels
    ) and "#" not in levels[:-1]  # fmt: skip


@given(st.lists(st.sampled_from(["a", "#", "+", "/", "$share/", "b", "+a", "//"]), max_size=6).map("".join))
def test_a_filter_is_what_the_specification_says(name: str) -> None:
    try:
        check_filter(name)
    except RemoteError:
        assert not is_filter(name)
    else:
        assert is_filter(name)
