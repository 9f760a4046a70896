"""Messages and their acknowledgements: sinks, topic aliases, receive maximum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.mqtt.engine import MAX_SINKS
from enmasse.wire.mqtt.output import MAX_ALIASED_BYTES, MAX_ALIASES
from enmasse.wire.mqtt.packets import ConnackProperties, PublishProperties, Reason, Version
from enmasse.wire.mqtt.writing import (
    encode_publish,
    encode_publish_properties,
)
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import (
    FULL,
    PLAIN,
    V3,
    V4,
    V5,
    VERSIONS,
    Scene,
    packet,
    properties,
    publish,
    text,
    topics,
)


def aliased(topic: str, alias: int, payload: bytes = b"x") -> bytes:
    """A PUBLISH with a topic alias."""
    return encode_publish(topic.encode(), payload, properties=encode_publish_properties(None, alias))


@clause("mqtt5:3.3.2-1", "mqtt3:3.3.2-1", "mqtt5:2.2.1-2", "mqtt3:2.3.1-5")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x2, 0x3, 0xA, 0x4, 0x5, 0xC, 0xD])
@pytest.mark.parametrize("payload", [b"", b"x", b"y" * 125, b"y" * 200, b"\0" * 20_000])
def test_a_message_is_told_with_its_flags_and_its_packet_identifier(
    version: Version, flags: int, payload: bytes
) -> None:
    scene = Scene().opened(version)
    number = b"\1\2" if flags & 6 else b""
    data = packet(0x30 | flags, text("a/b"), number, PLAIN[version], payload)
    told = ("PUBLISH", "a/b", payload, flags, 0x102 if number else 0, None)
    assert scene.hear(data, data, data) == [told] * 3
    assert scene.sinks == 1


@clause("mqtt5:3.3.2-13", "mqtt5:3.3.2-19", "mqtt5:1.5.7-1")
def test_the_properties_of_a_message_are_told_in_their_order() -> None:
    scene = Scene().opened(V5)
    data = encode_publish(b"t", b"x", 1, packet_id=7, properties=encode_publish_properties(FULL))
    assert scene.hear(data, data) == [("PUBLISH", "t", b"x", 2, 7, FULL)] * 2
    assert scene.sinks == 1


@pytest.mark.parametrize("size", [0, 100, 120, 130, 1000, 20_000])
def test_properties_of_any_size_are_told(size: int) -> None:
    told = PublishProperties(content_type="x" * size)
    scene = Scene().opened(V5)
    data = encode_publish(b"t", b"\0y", properties=encode_publish_properties(told))
    assert scene.hear(data + data + publish(V5)) == [
        *[("PUBLISH", "t", b"\0y", 0, 0, told)] * 2, ("PUBLISH", "t", b"x", 0, 0, None),
    ]  # fmt: skip


def test_topics_that_differ_have_sinks_of_their_own_and_few_are_kept() -> None:
    scene = Scene().opened(V4)
    names = [f"t/{number}" for number in range(MAX_SINKS + 10)]
    assert topics(scene.hear(b"".join(publish(V4, name) for name in names))) == names
    assert topics(scene.hear(publish(V4, names[-1]))) == [names[-1]]
    assert scene.sinks == len(names)
    scene.hear(publish(V4, names[0]))
    assert scene.sinks == len(names) + 1
    scene.engine.forget_sinks()
    scene.hear(publish(V4, names[0]))
    assert scene.sinks == len(names) + 2


def test_an_answer_of_the_handler_ends_the_connection() -> None:
    for version in VERSIONS:
        scene = Scene().opened(version)
        scene.refused_topic = "mine"
        assert scene.hear(publish(version, "mine") * 2) == [("closed", "mine is not yours")]
        goodbye = scene.goodbye()
        assert (goodbye and goodbye.reason) == (Reason.NOT_AUTHORIZED if version is V5 else None)


BAD_PUBLISHES = {
    "QoS 3": (packet(0x36, text("t"), b"\0\1"), Reason.MALFORMED_PACKET),
    "DUP and QoS 0": (packet(0x38, text("t")), Reason.MALFORMED_PACKET),
    "a wildcard #": (packet(0x30, text("a/#")), Reason.TOPIC_NAME_INVALID),
    "a wildcard +": (packet(0x30, text("a/+/b")), Reason.TOPIC_NAME_INVALID),
    "no topic": (packet(0x30, text("")), Reason.TOPIC_NAME_INVALID),
    "no topic at all": (packet(0x30), Reason.MALFORMED_PACKET),
    "half a length": (packet(0x30, b"\0"), Reason.MALFORMED_PACKET),
    "a topic beyond the end": (packet(0x30, b"\0\5abc"), Reason.MALFORMED_PACKET),
    "a topic with U+0000": (packet(0x30, text("a\0b")), Reason.MALFORMED_PACKET),
    "a topic that is not UTF-8": (packet(0x30, text(b"\xe2\x28")), Reason.MALFORMED_PACKET),
    "a topic with a surrogate": (packet(0x30, text(b"\xed\xbf\xbf")), Reason.MALFORMED_PACKET),
    "packet identifier 0": (packet(0x32, text("t"), b"\0\0"), Reason.PROTOCOL_ERROR),
    "no packet identifier": (packet(0x32, text("t")), Reason.MALFORMED_PACKET),
    "half a packet identifier": (packet(0x34, text("t"), b"\1"), Reason.MALFORMED_PACKET),
}


def with_no_properties(data: bytes) -> bytes:
    """The same PUBLISH in version 5, if it is long enough to have properties."""
    return packet(data[0], data[2:], b"\0")


@clause(
    "mqtt5:3.3.1-2", "mqtt5:3.3.1-4", "mqtt5:3.3.2-1", "mqtt5:3.3.2-2", "mqtt5:4.7.0-1", "mqtt5:4.7.3-1",
    "mqtt5:4.7.3-2", "mqtt5:2.2.1-3", "mqtt5:1.5.4-1", "mqtt5:1.5.4-2", "mqtt3:3.3.1-2", "mqtt3:3.3.1-4",
    "mqtt3:3.3.2-1", "mqtt3:3.3.2-2", "mqtt3:4.7.1-1", "mqtt3:4.7.3-1", "mqtt3:4.7.3-2", "mqtt3:2.3.1-1",
    "mqtt3:1.5.3-1", "mqtt3:1.5.3-2", "mqtt3:4.8.0-1", "mqtt5:4.13.1-1",
)  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("breach", BAD_PUBLISHES)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_message_with_a_breach_ends_the_connection(version: Version, breach: str, is_known: bool) -> None:
    data, reason = BAD_PUBLISHES[breach]
    if version is V5 and reason is not Reason.MALFORMED_PACKET:
        data = with_no_properties(data)
    scene = Scene().opened(version)
    known = publish(version) if is_known else b""
    heard = scene.hear(known + data, publish(version))
    assert topics(heard) == (["t", "closed"] if is_known else ["closed"])
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (reason if version is V5 else None)
    assert scene.is_closed() is (version is not V5)


BAD_PROPERTIES = {
    "none at all": (b"", Reason.MALFORMED_PACKET),
    "beyond the end": (b"\x20\1\1", Reason.MALFORMED_PACKET),
    "payload format 2": (properties(b"\1\2"), Reason.PROTOCOL_ERROR),
    "payload format twice": (properties(b"\1\1\1\1"), Reason.PROTOCOL_ERROR),
    "expiry twice": (properties(b"\2\0\0\0\1\2\0\0\0\1"), Reason.PROTOCOL_ERROR),
    "topic alias twice": (properties(b"\x23\0\1\x23\0\1"), Reason.PROTOCOL_ERROR),
    "topic alias 0": (properties(b"\x23\0\0"), Reason.TOPIC_ALIAS_INVALID),
    "topic alias above the maximum": (properties(b"\x23\0\6"), Reason.TOPIC_ALIAS_INVALID),
    "response topic with a wildcard": (properties(b"\x08", text("a/#")), Reason.TOPIC_NAME_INVALID),
    "response topic that is not UTF-8": (properties(b"\x08", text(b"\xff")), Reason.MALFORMED_PACKET),
    "content type that is not UTF-8": (properties(b"\3", text(b"\xff")), Reason.MALFORMED_PACKET),
    "user property that is not UTF-8": (properties(b"\x26", text("a"), text(b"\xff")), Reason.MALFORMED_PACKET),
    "user property with U+0000": (properties(b"\x26", text("a\0"), text("b")), Reason.MALFORMED_PACKET),
    "user property without a value": (properties(b"\x26", text("a")), Reason.MALFORMED_PACKET),
    "a subscription identifier": (properties(b"\x0b\1"), Reason.PROTOCOL_ERROR),
    "a property of CONNECT": (properties(b"\x11\0\0\0\1"), Reason.MALFORMED_PACKET),
    "an unknown property": (properties(b"\x7f\0"), Reason.MALFORMED_PACKET),
    "too many user properties": (properties(b"\x26\0\0\0\0" * 1001), Reason.QUOTA_EXCEEDED),
}


@clause(
    "mqtt5:2.2.2-1", "mqtt5:1.5.7-1", "mqtt5:3.3.2-8", "mqtt5:3.3.2-9", "mqtt5:3.3.2-13", "mqtt5:3.3.2-14",
    "mqtt5:3.3.2-19", "mqtt5:3.3.4-6", "mqtt5:4.13.1-1", "mqtt5:4.13.2-1",
)  # fmt: skip
@pytest.mark.parametrize("breach", BAD_PROPERTIES)
def test_properties_with_a_breach_end_the_connection(breach: str) -> None:
    told, reason = BAD_PROPERTIES[breach]
    scene = Scene(ConnackProperties(topic_alias_maximum=5)).opened(V5)
    assert topics(scene.hear(publish(V5) + packet(0x30, text("t"), told))) == ["t", "closed"]
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == reason
    assert goodbye.reason_string


@clause("mqtt5:4.7.3-3", "mqtt3:4.7.3-3", "mqtt5:4.7.3-4", "mqtt3:4.7.3-4", "mqtt5:1.5.4-3", "mqtt3:1.5.3-3")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "topic", ["x" * 65_535, "/" * 10_000, "a/" * 32_000, "\ufeffa", "a\u0301/\u00e1", " ", "$a", "a//b", "\U0010ffff"]
)
def test_a_topic_may_be_long_and_deep_and_stays_as_it_is(version: Version, topic: str) -> None:
    scene = Scene().opened(version)
    assert topics(scene.hear(publish(version, topic), publish(version, topic))) == [topic, topic]


# Topic aliases


@clause("mqtt5:3.3.2-12", "mqtt5:3.3.2-7")
def test_an_alias_stands_for_its_topic_until_it_is_given_another() -> None:
    scene = Scene(ConnackProperties(topic_alias_maximum=3)).opened(V5)
    data = (
        aliased("a", 1), aliased("", 1), aliased("b", 3), aliased("", 3), aliased("", 1), aliased("c", 1),
        aliased("", 1), aliased("", 3), aliased("a", 1), aliased("", 1), publish(V5, "b"),
    )  # fmt: skip
    expected = ["a", "a", "b", "b", "a", "c", "c", "b", "a", "a", "b"]
    assert topics(scene.hear(*data)) == expected
    again = Scene(ConnackProperties(topic_alias_maximum=3)).opened(V5)
    assert topics(again.hear(b"".join(data))) == expected
    assert topics(Scene(ConnackProperties(topic_alias_maximum=3)).opened(V5).hear(aliased("", 1))) == ["closed"]


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 3)), max_size=40))
def test_aliases_mean_what_they_were_last_given(said: list[tuple[str, int]]) -> None:
    scene = Scene(ConnackProperties(topic_alias_maximum=3)).opened(V5)
    known: dict[int, str] = {}
    expected: list[object] = []
    for topic, alias in said:
        if not topic and alias not in known:
            expected.append("closed")
            break
        known[alias] = topic or known[alias]
        expected.append(known[alias])
    assert topics(scene.hear(b"".join(aliased(topic, alias) for topic, alias in said))) == expected


@clause("mqtt5:3.2.2-18")
def test_where_the_server_takes_no_aliases_one_is_an_error() -> None:
    scene = Scene().opened(V5)
    scene.hear(aliased("a", 1))
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == Reason.TOPIC_ALIAS_INVALID


@clause("mqtt5:3.1.2-26", "mqtt5:3.1.2-27", "mqtt5:3.3.2-11", "mqtt5:3.3.2-7")
def test_aliases_towards_a_client_are_as_many_as_it_takes() -> None:
    assert Scene().opened(V5).engine.alias(b"a") == (b"a", 0)
    assert Scene().opened(V4).engine.alias(b"a") == (b"a", 0)
    engine = Scene().opened(V5, topic_alias_maximum=2).engine
    assert [engine.alias(topic) for topic in (b"a", b"b", b"a", b"c", b"b")] == [
        (b"a", 1), (b"b", 2), (b"", 1), (b"c", 0), (b"", 2),
    ]  # fmt: skip
    engine = Scene().opened(V5, topic_alias_maximum=65_535).engine
    assert engine.alias(b"x" * (MAX_ALIASED_BYTES + 1))[1] == 0
    assert max(engine.alias(b"%d" % number)[1] for number in range(2 * MAX_ALIASES)) == MAX_ALIASES


# Acknowledgements


@clause("mqtt5:2.2.1-5", "mqtt3:2.3.1-6")
@pytest.mark.parametrize("version", VERSIONS)
def test_answers_carry_the_packet_identifier(version: Version) -> None:
    scene = Scene().opened(version)
    engine = scene.engine
    for put in (engine.put_puback, engine.put_pubrec, engine.put_pubrel, engine.put_pubcomp):
        put(0x1234)
    assert scene.packets() == [b"\x40\2\x12\x34", b"\x50\2\x12\x34", b"\x62\2\x12\x34", b"\x70\2\x12\x34"]


def test_older_versions_have_no_reasons() -> None:
    scene = Scene().opened(V4)
    scene.engine.put_puback(1, Reason.QUOTA_EXCEEDED, "too much")
    assert scene.said() == b"\x40\2\0\1"


@clause("mqtt5:3.4.2-1", "mqtt5:3.5.2-1", "mqtt5:3.6.2-1", "mqtt5:3.7.2-1")
def test_answers_have_reasons_and_only_those_of_their_packet() -> None:
    scene = Scene().opened(V5)
    engine = scene.engine
    engine.put_puback(1, Reason.NO_MATCHING_SUBSCRIBERS)
    engine.put_puback(1, Reason.PACKET_TOO_LARGE)
    engine.put_puback(1, Reason.SERVER_BUSY)
    engine.put_puback(1, 0x55)
    engine.put_pubrec(2, Reason.QUOTA_EXCEEDED, "no")
    engine.put_pubrel(3, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    engine.put_pubcomp(4, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    assert scene.packets() == [
        b"\x40\3\0\1\x10", b"\x40\3\0\1\x97", b"\x40\3\0\1\x80", b"\x40\3\0\1\x80",
        b"\x50\x09\0\2\x97\5\x1f\0\2no", b"\x62\3\0\3\x92",
        b"\x70\3\0\4\x92",
    ]  # fmt: skip


@clause("mqtt5:3.1.2-29")
def test_a_client_that_wants_no_reason_strings_gets_none() -> None:
    scene = Scene().opened(V5, wants_problem_information=False)
    scene.engine.put_puback(1, Reason.QUOTA_EXCEEDED, "no")
    scene.engine.put_puback(1, 0, "no")
    scene.engine.put_suback(1, [0x80], "no")
    scene.engine.put_unsuback(1, [0x80], "no")
    assert b"no" not in scene.said()
    scene.engine.disconnect(Reason.SERVER_SHUTTING_DOWN, "no")
    assert b"no" in scene.said()


@clause(
    "mqtt5:3.4.2-2", "mqtt5:3.5.2-2", "mqtt5:3.6.2-2", "mqtt5:3.7.2-2", "mqtt5:3.9.2-1", "mqtt5:3.11.2-1",
    "mqtt5:3.14.2-3",
)  # fmt: skip
def test_reason_strings_are_left_out_where_the_client_takes_no_such_packet() -> None:
    scene = Scene().opened(V5, maximum_packet_size=20)
    engine = scene.engine
    for put in (engine.put_puback, engine.put_pubrec, engine.put_pubrel, engine.put_pubcomp):
        put(1, Reason.PACKET_IDENTIFIER_NOT_FOUND, "it is gone and nobody knows")
    engine.put_suback(1, [0], "it is gone and nobody knows")
    engine.put_unsuback(1, [0], "it is gone and nobody knows")
    engine.disconnect(Reason.SERVER_BUSY, "it is gone and nobody knows")
    packets = scene.packets()
    assert len(packets) == 7
    assert max(map(len, packets)) <= 20


@clause("mqtt5:3.4.2-1", "mqtt5:3.5.2-1", "mqtt5:3.6.2-1", "mqtt5:3.7.2-1")
@pytest.mark.parametrize(("first", "name"), [(0x40, "PUBACK"), (0x50, "PUBREC"), (0x62, "PUBREL"), (0x70, "PUBCOMP")])
def test_acknowledgements_are_told_with_their_reasons(first: int, name: str) -> None:
    bad = 0x92 if first > 0x60 else 0x97
    for version in VERSIONS:
        scene = Scene().opened(version)
        assert scene.hear(packet(first, b"\1\2") * 2) == [(name, 0x102, 0)] * 2
    scene = Scene().opened(V5)
    assert scene.hear(
        packet(first, b"\0\3\0"),
        packet(first, b"\0\3", bytes((bad,))),
        packet(first, b"\0\3", bytes((bad,)), properties(b"\x1f", text("no"), b"\x26", text("a"), text("b"))),
        packet(first, b"\0\3", bytes((bad,)), b"\0"),
    ) == [(name, 3, 0), (name, 3, bad), (name, 3, bad), (name, 3, bad)]
    for breach in (
        b"\0\0", b"\1", b"", b"\0\1\x01", b"\0\1\0\5", b"\0\1\0\0\0", b"\0\1\0" + properties(b"\x11\0\0\0\1"),
    ):  # fmt: skip
        scene = Scene().opened(V5)
        assert scene.hear(packet(first, breach))[-1][0] == "closed"
        assert scene.goodbye() is not None
    for breach in (b"\0\0", b"\1", b"", b"\0\1\0"):
        scene = Scene().opened(V4)
        assert scene.hear(packet(first, breach))[-1][0] == "closed"
        assert scene.said() == b""


@clause("mqtt5:3.6.1-1", "mqtt3:3.6.1-1", "mqtt5:2.1.3-1", "mqtt3:2.2.2-1", "mqtt3:2.2.2-2")
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 0xA, 0xF])
def test_pubrel_has_flags_of_its_own(flags: int) -> None:
    for version in VERSIONS:
        scene = Scene().opened(version)
        assert scene.hear(packet(0x60 | flags, b"\0\1"))[0][0] == "closed"
    scene = Scene().opened(V3)
    assert scene.hear(packet(0x60 | flags, b"\0\1"))[0][0] == ("PUBREL" if flags == 0xA else "closed")


@clause("mqtt5:4.9.0-1", "mqtt5:4.9.0-3", "mqtt5:3.3.4-7")
def test_no_more_messages_may_wait_for_their_answer_than_the_server_takes() -> None:
    for qos in (1, 2):
        scene = Scene(ConnackProperties(receive_maximum=2)).opened(V5)
        messages = [publish(V5, "t", b"x", qos, number) for number in range(1, 9)]
        assert topics(scene.hear(*messages[:2])) == ["t", "t"]
        if qos == 1:
            scene.engine.put_puback(1)
        else:
            scene.engine.put_pubrec(1, Reason.QUOTA_EXCEEDED)
            scene.engine.put_pubrec(2)
        assert topics(scene.hear(messages[2], b"\x40\2\0\1")) == ["t", "PUBACK"]
        scene.said()
        assert topics(scene.hear(publish(V5), messages[3])) == ["t", "closed"]
        goodbye = scene.goodbye()
        assert goodbye is not None
        assert goodbye.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    scene = Scene(ConnackProperties(receive_maximum=1)).opened(V5)
    assert topics(scene.hear(publish(V5, "t", b"x", 1, 1), publish(V5, "u", b"x", 1, 2))) == ["t", "closed"]


def test_pubcomp_makes_room_and_one_too_many_makes_no_more() -> None:
    scene = Scene(ConnackProperties(receive_maximum=1)).opened(V5)
    scene.engine.put_pubcomp(9)
    scene.engine.put_pubcomp(9)
    assert topics(scene.hear(publish(V5, "t", b"x", 2, 1))) == ["t"]
    scene.engine.put_pubcomp(1)
    assert topics(scene.hear(publish(V5, "t", b"x", 2, 1), publish(V5, "t", b"x", 2, 2))) == ["t", "closed"]


def test_older_versions_have_no_receive_maximum() -> None:
    scene = Scene(ConnackProperties(receive_maximum=1)).opened(V4)
    assert topics(scene.hear(*[publish(V4, "t", b"x", 1, number) for number in range(1, 100)])) == ["t"] * 99
