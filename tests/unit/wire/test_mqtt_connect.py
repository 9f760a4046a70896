"""How a client of MQTT is let in or refused: CONNECT in each version, and what answers one that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.wire.mqtt.connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S
from enmasse.wire.mqtt.engine import LINGER_S
from enmasse.wire.mqtt.packets import (
    NEVER_EXPIRES,
    ConnackProperties,
    Connect,
    PublishProperties,
    Reason,
    Version,
    Will,
)
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import V3, V4, V5, VERSIONS, Scene, connect_packet, packet, properties, text

WILL = Will(
    "gone/c",
    b"\0bye",
    1,
    True,
    30,
    PublishProperties(1, 60, "text/plain", "answers", b"\1\2", [("b", "2"), ("a", "1"), ("b", "3")]),
)


def head(version: int, flags: int = 2, name: bytes = b"MQTT") -> bytes:
    """A CONNECT's variable header before properties."""
    return text(name) + bytes((version, flags)) + b"\0\0"


def raw(version: int, flags: int = 2, *fields: bytes, told: bytes = b"\0") -> bytes:
    """A CONNECT of a client ``c``."""
    return packet(0x10, head(version, flags), told if version == 5 else b"", text("c"), *fields)


@clause("mqtt5:3.1.3-1", "mqtt5:3.1.3-3", "mqtt5:3.1.2-9", "mqtt5:3.1.2-17", "mqtt5:3.1.2-19", "mqtt5:3.1.3-10")
def test_all_fields_of_a_connect_of_version_5_are_told() -> None:
    connect = Connect(
        V5, "c", False, 60, "me@there", b"secret", WILL, 3600, 20, 100_000, 7, False, True, "SCRAM-SHA-256", b"n,,",
        [("from", "here"), ("from", "there")],
    )  # fmt: skip
    scene = Scene(lets_in=False)
    fields = {name: getattr(connect, name) for name in Connect.__slots__ if name not in ("version", "client_id")}
    assert scene.hear(connect_packet(V5, **fields)) == [("CONNECT", connect)]
    assert scene.engine.peer_receive_maximum == 20
    assert scene.engine.peer_maximum_packet_size == 100_000


@clause("mqtt3:3.1.3-1", "mqtt3:3.1.3-3", "mqtt3:3.1.2-9", "mqtt3:3.1.2-19", "mqtt3:3.1.2-21")
@pytest.mark.parametrize("version", [V3, V4])
def test_all_fields_of_a_connect_of_the_older_versions_are_told(version: Version) -> None:
    will = Will("gone/c", b"bye", 2, False)
    connect = Connect(version, "c", False, 60, "me", b"\0secret", will, NEVER_EXPIRES)
    scene = Scene(lets_in=False)
    (told,) = scene.hear(
        connect_packet(version, is_clean=False, keep_alive_s=60, user_name="me", password=b"\0secret", will=will)
    )
    assert told == ("CONNECT", connect)
    assert scene.engine.version is version


@clause("mqtt5:3.1.4-5", "mqtt3:3.1.4-4", "mqtt5:3.2.2-1", "mqtt3:3.2.0-1", "mqtt5:3.2.0-1")
@pytest.mark.parametrize("version", [V3, *VERSIONS])
@pytest.mark.parametrize("is_present", [False, True])
def test_who_is_let_in_gets_connack_and_nothing_before(version: Version, is_present: bool) -> None:
    scene = Scene(lets_in=False)
    scene.hear(connect_packet(version))
    assert scene.said() == b""
    scene.engine.accept(is_present)
    # Version 3.1 has no such bit.
    told = is_present and version is not V3
    assert scene.said() == bytes((0x20, 3 if version is V5 else 2, told, 0)) + (b"\0" if version is V5 else b"")
    assert scene.engine.is_open


@clause("mqtt5:3.2.0-2")
def test_there_is_one_connack() -> None:
    scene = Scene().opened(V5)
    scene.engine.accept(True)
    scene.engine.refuse(Reason.NOT_AUTHORIZED)
    assert scene.said() == b""
    assert scene.engine.is_open


def test_a_client_is_told_what_the_server_serves() -> None:
    told = ConnackProperties(
        7, 20, 1, False, 1000, "given", 5, "welcome", [("a", "1"), ("a", "2")], False, False, False, 90, "here", "b",
        "X", b"proof",
    )  # fmt: skip
    scene = Scene(told)
    scene.hear(connect_packet(V5, authentication_method="X"))
    assert scene.connack().properties == told
    assert scene.engine.keep_alive_s == 90


def test_older_versions_are_told_nothing_of_that() -> None:
    scene = Scene(ConnackProperties(maximum_qos=1, assigned_client_id="given", server_keep_alive_s=90))
    scene.hear(connect_packet(V4, keep_alive_s=10))
    assert scene.said() == b"\x20\2\0\0"
    assert scene.engine.keep_alive_s == 10


@clause("mqtt5:3.1.0-1", "mqtt3:3.1.0-1")
@pytest.mark.parametrize("first", [0x30, 0xC0, 0x20, 0xE0, 0xF0, 0x82])
def test_the_first_packet_is_connect_or_nothing_is_said(first: int) -> None:
    scene = Scene()
    assert scene.hear(packet(first, b"\0\1x")) == [("closed", "the first packet is CONNECT")]
    assert scene.said() == b""
    assert scene.is_closed()


@clause("mqtt5:3.1.0-1")
def test_what_is_no_mqtt_at_all_is_known_by_its_first_bytes() -> None:
    scene = Scene()
    assert scene.hear(b"GET / HTTP/1.1\r\n")[0][0] == "closed"
    assert scene.said() == b""


@clause("mqtt5:3.1.0-2", "mqtt3:3.1.0-2", "mqtt5:4.13.1-1", "mqtt3:4.8.0-1")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_connect_ends_the_connection(version: Version) -> None:
    scene = Scene().opened(version)
    assert scene.hear(connect_packet(version)) == [("closed", "CONNECT comes again")]
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (Reason.PROTOCOL_ERROR if version is V5 else None)


@clause("mqtt5:3.1.2-1", "mqtt3:3.1.2-1")
@pytest.mark.parametrize("name", [b"", b"mqtt", b"MQTTX", b"MQIsdp", b"\xff\xff"])
def test_another_protocol_name_is_not_handled(name: bytes) -> None:
    scene = Scene()
    assert scene.hear(packet(0x10, head(4, name=name), text("c")))[0][0] == "closed"
    if name != b"MQIsdp":
        assert scene.said() == b""
    assert not scene.engine.is_open


@clause("mqtt5:3.1.2-2", "mqtt3:3.1.2-2")
@pytest.mark.parametrize(
    ("level", "answer"),
    [(0, b"\x20\2\0\1"), (2, b"\x20\2\0\1"), (0x84, b"\x20\2\0\1"), (6, None), (0x85, None), (255, None)],
)
def test_a_level_that_is_not_served_is_answered_in_the_nearest_form(level: int, answer: bytes | None) -> None:
    scene = Scene()
    assert scene.hear(packet(0x10, head(level), text("c")))[0][0] == "closed"
    if answer is None:
        assert scene.connack().reason == Reason.UNSUPPORTED_PROTOCOL_VERSION
    else:
        assert scene.said() == answer


MALFORMED = {
    "the reserved flag": raw(5, 3),
    "will QoS without a will": raw(5, 2 | 8),
    "will RETAIN without a will": raw(5, 2 | 0x20),
    "will QoS 3": raw(5, 2 | 4 | 0x18, b"\0", text("t"), text("m")),
    "no will topic": raw(5, 2 | 4, b"\0"),
    "no will payload": raw(5, 2 | 4, b"\0", text("t")),
    "no user name": raw(5, 2 | 0x80),
    "no password": raw(5, 2 | 0xC0, text("me")),
    "a user name without its flag": raw(5, 2, text("me")),
    "a password without its flag": raw(5, 2 | 0x80, text("me"), text("secret")),
    "a client identifier that is not UTF-8": packet(0x10, head(5), b"\0", text(b"\xff")),
    "a surrogate": packet(0x10, head(5), b"\0", text(b"\xed\xa0\x80")),
    "a client identifier with U+0000": packet(0x10, head(5), b"\0", text("a\0b")),
    "no client identifier": packet(0x10, head(5), b"\0"),
    "a will topic that is not UTF-8": raw(5, 6, b"\0", text(b"\xc0\xaf"), text("m")),
    "a user name that is not UTF-8": raw(5, 2 | 0x80, text(b"\xfe")),
    "no properties": packet(0x10, head(5)),
    "properties beyond the end": raw(5, told=b"\x7f"),
    "an unknown property": raw(5, told=properties(b"\x04\1")),
    "a property of another packet": raw(5, told=properties(b"\x23\0\1")),
    "a property cut short": raw(5, told=properties(b"\x11\0\0")),
    "a length of properties with five bytes": raw(5, told=b"\x80\x80\x80\x80\1"),
    "a length of properties with a byte too many": raw(5, told=b"\x80\0"),
    "nothing after the level": packet(0x10, text("MQTT"), b"\5"),
}
PROTOCOL_ERRORS = {
    "a property twice": raw(5, told=properties(b"\x11\0\0\0\1\x11\0\0\0\1")),
    "receive maximum 0": raw(5, told=properties(b"\x21\0\0")),
    "maximum packet size 0": raw(5, told=properties(b"\x27\0\0\0\0")),
    "request problem information 2": raw(5, told=properties(b"\x17\2")),
    "request response information 2": raw(5, told=properties(b"\x19\2")),
    "authentication data without a method": raw(5, told=properties(b"\x16\0\1x")),
    "a will's payload format 2": raw(5, 6, properties(b"\1\2"), text("t"), text("m")),
}


@clause(
    "mqtt5:3.1.4-1", "mqtt5:3.1.2-3", "mqtt5:3.1.2-11", "mqtt5:3.1.2-12", "mqtt5:3.1.2-13", "mqtt5:3.1.2-16",
    "mqtt5:3.1.2-17", "mqtt5:3.1.2-18", "mqtt5:3.1.2-19", "mqtt5:3.1.3-4", "mqtt5:3.1.3-11", "mqtt5:3.1.3-12",
    "mqtt5:1.5.4-1", "mqtt5:1.5.4-2", "mqtt5:1.5.5-1", "mqtt5:2.2.2-1", "mqtt5:3.14.0-1", "mqtt5:3.2.2-6",
    "mqtt5:3.2.2-7", "mqtt5:3.1.2-9",
)  # fmt: skip
@pytest.mark.parametrize("breach", [*MALFORMED, *PROTOCOL_ERRORS])
def test_a_connect_of_version_5_with_a_breach_has_connack_and_the_end(breach: str) -> None:
    scene = Scene()
    data = (MALFORMED | PROTOCOL_ERRORS)[breach]
    ((kind, _),) = scene.hear(data)
    assert kind == "closed"
    connack = scene.connack()
    assert connack.reason == (Reason.MALFORMED_PACKET if breach in MALFORMED else Reason.PROTOCOL_ERROR)
    assert not connack.is_session_present
    assert connack.properties.reason_string
    scene.engine.handle_deadline(LINGER_S)
    assert scene.is_closed()


def without_properties(data: bytes) -> bytes:
    """The same CONNECT in version 3.1.1, if it has neither properties nor a will's."""
    body = data[2:]
    return packet(0x10, body[:6], b"\4", body[7:10], body[11:])


@clause(
    "mqtt3:3.1.4-1", "mqtt3:3.1.2-3", "mqtt3:3.1.2-11", "mqtt3:3.1.2-13", "mqtt3:3.1.2-14", "mqtt3:3.1.2-15",
    "mqtt3:3.1.2-18", "mqtt3:3.1.2-19", "mqtt3:3.1.2-20", "mqtt3:3.1.2-21", "mqtt3:3.1.2-22", "mqtt3:3.1.3-4",
    "mqtt3:3.1.3-10", "mqtt3:3.1.3-11", "mqtt3:1.5.3-1", "mqtt3:1.5.3-2", "mqtt3:3.2.2-6", "mqtt3:3.1.2-9",
)  # fmt: skip
@pytest.mark.parametrize(
    "data",
    [
        *(
            pytest.param(without_properties(data), id=breach)
            for breach, data in MALFORMED.items()
            if data[12:13] == b"\0" and "will" not in breach and "properties" not in breach
        ),
        pytest.param(raw(4, 2 | 4 | 0x18, text("t"), text("m")), id="will QoS 3"),
        pytest.param(raw(4, 2 | 4 | 8), id="no will topic"),
        pytest.param(raw(4, 2 | 4, text("t")), id="no will payload"),
        pytest.param(raw(4, 2 | 8), id="will QoS without a will"),
        pytest.param(raw(4, 2 | 0x20), id="will RETAIN without a will"),
        pytest.param(raw(4, 2 | 4, text(b"\xff"), text("m")), id="a will topic that is not UTF-8"),
        pytest.param(raw(4, 2 | 0x40, text("secret")), id="a password without a user name"),
    ],
)
def test_an_older_connect_with_a_breach_has_no_answer(data: bytes) -> None:
    scene = Scene()
    ((kind, _),) = scene.hear(data)
    assert kind == "closed"
    assert scene.said() == b""
    assert scene.is_closed()


def test_version_5_takes_a_password_without_a_user_name() -> None:
    scene = Scene()
    ((_, connect),) = scene.hear(connect_packet(V5, password=b"token"))
    assert (connect.user_name, connect.password) == (None, b"token")


@clause("mqtt5:3.3.2-2", "mqtt5:4.7.3-1")
@pytest.mark.parametrize(("topic", "version"), [("a/#", V4), ("+", V5), ("", V5), ("", V4)])
def test_a_will_goes_to_a_topic_name(topic: str, version: Version) -> None:
    scene = Scene()
    assert scene.hear(connect_packet(version, will=Will(topic, b"")))[0][0] == "closed"
    assert scene.connack().reason == (Reason.TOPIC_NAME_INVALID if version is V5 else 5)


@clause("mqtt5:3.1.3-5", "mqtt3:3.1.3-5")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name", ["a", "0123456789abcdefghijklm", "ABCDEFGHIJKLMNOPQRSTUVW", "nopqrstuvwxyzXYZ", "a b/ü" * 99]
)
def test_client_identifiers_are_taken(version: Version, name: str) -> None:
    scene = Scene()
    ((_, connect),) = scene.hear(connect_packet(version, client_id=name))
    assert connect.client_id == name
    assert scene.engine.is_open


@clause(
    "mqtt3:3.1.3-7",
    "mqtt3:3.1.3-8",
    "mqtt3:3.1.3-9",
    "mqtt3:3.2.2-4",
    "mqtt3:3.2.2-5",
)
@pytest.mark.parametrize(
    ("version", "is_clean", "is_taken"), [(V5, True, True), (V5, False, True), (V4, True, True), (V4, False, False)]
)
def test_who_has_no_identifier_gets_one_unless_it_is_to_be_known_again(
    version: Version, is_clean: bool, is_taken: bool
) -> None:
    scene = Scene()
    told = scene.hear(connect_packet(version, client_id="", is_clean=is_clean))
    assert told[0][0] == ("CONNECT" if is_taken else "closed")
    if not is_taken:
        assert scene.said() == b"\x20\2\0\2"


def test_the_byte_order_mark_is_a_character() -> None:
    scene = Scene()
    ((_, connect),) = scene.hear(connect_packet(V5, client_id="\ufeffa"))
    assert connect.client_id == "\ufeffa"


@clause(
    "mqtt5:3.1.4-2",
    "mqtt5:3.1.3-8",
    "mqtt5:3.2.2-7",
    "mqtt5:3.2.2-8",
    "mqtt5:4.13.2-1",
    "mqtt3:3.2.2-4",
    "mqtt3:3.2.2-5",
)
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.BANNED, 5),
        (Reason.SERVER_BUSY, 3),
        (Reason.QUOTA_EXCEEDED, 3),
        (Reason.SERVER_UNAVAILABLE, 3),
    ],
)
def test_who_is_refused_is_told_why_and_then_closed(reason: Reason, code: int) -> None:
    for version in VERSIONS:
        scene = Scene(lets_in=False)
        scene.hear(connect_packet(version))
        scene.engine.refuse(reason, "not you")
        assert scene.heard[-1] == ("closed", "not you")
        connack = scene.connack()
        assert not connack.is_session_present
        assert connack.reason == (reason if version is V5 else code)
        assert connack.properties.reason_string == ("not you" if version is V5 else None)
        assert not scene.is_closed()
        scene.engine.handle_deadline(LINGER_S)
        assert scene.is_closed()
        scene.engine.lost()
        assert [what[0] for what in scene.heard].count("closed") == 1


def test_who_is_refused_may_be_sent_elsewhere() -> None:
    scene = Scene(lets_in=False)
    scene.hear(connect_packet(V5))
    scene.engine.refuse(Reason.USE_ANOTHER_SERVER, server_reference="other:1883")
    assert scene.connack().properties.server_reference == "other:1883"


@clause("mqtt5:3.1.4-6", "mqtt3:3.1.4-5")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_follows_connect_waits_for_the_answer_and_is_ignored_after_a_refusal(version: Version) -> None:
    publish = packet(0x30, text("t"), b"\0" if version is V5 else b"", b"x")
    for is_let_in in (True, False):
        scene = Scene(lets_in=False)
        assert len(scene.hear(connect_packet(version) + publish, publish)) == 1
        scene.engine.hold_input(False)
        assert scene.engine.is_held
        scene.heard.clear()
        if is_let_in:
            scene.engine.accept(False)
        else:
            scene.engine.refuse(Reason.NOT_AUTHORIZED)
        scene.engine.receive(publish, 0.1)
        assert [what[0] for what in scene.heard] == (["PUBLISH"] * 3 if is_let_in else ["closed"])


@clause("mqtt5:3.2.2-19", "mqtt5:3.1.2-24")
def test_a_reason_is_left_out_where_connack_would_be_too_large() -> None:
    for size, is_said in ((9, False), (100, True)):
        scene = Scene(lets_in=False)
        scene.hear(connect_packet(V5, maximum_packet_size=size))
        scene.engine.refuse(Reason.NOT_AUTHORIZED, "because of this")
        connack = scene.packets()[0]
        assert len(connack) <= size
        assert (b"because" in connack) is is_said


@clause("mqtt5:3.2.2-19", "mqtt5:3.2.2-20")
def test_what_only_explains_is_left_out_where_connack_would_be_too_large() -> None:
    for size, is_said in ((40, False), (100, True)):
        told = ConnackProperties(
            topic_alias_maximum=5, reason_string="welcome " * 3, user_properties=[("a", "b" * 20)]
        )
        scene = Scene(told)
        scene.hear(connect_packet(V5, maximum_packet_size=size))
        found = scene.connack().properties
        assert found.topic_alias_maximum == 5
        assert (found.reason_string is not None) is is_said
        assert bool(found.user_properties) is is_said
        assert scene.engine.is_open


def test_a_client_for_which_even_connack_is_too_large_is_not_let_in() -> None:
    scene = Scene(ConnackProperties(assigned_client_id="x" * 50))
    scene.hear(connect_packet(V5, maximum_packet_size=20, client_id=""))
    assert scene.connack().reason == Reason.PACKET_TOO_LARGE
    assert not scene.engine.is_open


def test_connect_is_awaited_for_a_while() -> None:
    scene = Scene()
    assert scene.engine.next_deadline() == CONNECT_TIMEOUT_S
    scene.hear(connect_packet()[:5], now=20.0)
    scene.engine.handle_deadline(CONNECT_TIMEOUT_S - 1)
    assert not scene.is_closed()
    scene.engine.handle_deadline(CONNECT_TIMEOUT_S)
    assert scene.is_closed()
    assert scene.said() == b""
    assert scene.engine.next_deadline() is None


def test_a_login_that_never_ends_is_given_up() -> None:
    scene = Scene(lets_in=False)
    scene.hear(connect_packet(V5), now=7.0)
    assert scene.engine.next_deadline() == 7.0 + ANSWER_TIMEOUT_S
    scene.engine.handle_deadline(7.0 + ANSWER_TIMEOUT_S)
    assert scene.connack().reason == Reason.SERVER_BUSY


@clause("mqtt5:1.5.5-1")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_padded_remaining_length_is_an_error_in_version_5_alone(version: Version) -> None:
    data = connect_packet(version)
    scene = Scene()
    scene.hear(data[:1] + bytes((data[1] | 128, 0x80, 0)) + data[2:])
    assert scene.engine.is_open is (version is V4)
    if version is V5:
        assert scene.connack().reason == Reason.MALFORMED_PACKET


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields", [{}, {"user_name": "me", "password": b"x" * 3000, "will": Will("t", b"y" * 3000), "keep_alive_s": 5}]
)
def test_a_connect_that_comes_byte_by_byte_means_the_same(version: Version, fields: dict[str, Any]) -> None:
    data = connect_packet(version, **fields)
    whole, cut = Scene(), Scene()
    assert whole.hear(data) == cut.hear(*(data[at : at + 1] for at in range(len(data))))
    assert whole.said() == cut.said()
