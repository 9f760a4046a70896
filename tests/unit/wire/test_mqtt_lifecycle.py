"""How connections live and end: keep-alive, authentication, DISCONNECT, and what may come after the end."""

from __future__ import annotations

import pytest

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.connection import CONNECT_TIMEOUT_S
from enmasse.wire.mqtt.engine import LINGER_S
from enmasse.wire.mqtt.packets import Auth, ConnackProperties, Disconnect, Reason, Version, reason_of
from enmasse.wire.mqtt.writing import encode_auth, encode_disconnect, encode_publish
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import V4, V5, VERSIONS, Scene, connect_packet, packet, properties, text

PUBLISH = {V4: encode_publish(b"t", b"x"), V5: encode_publish(b"t", b"x", properties=b"\0")}
METHOD = b"\x15" + text("X")


# Keep-alive


@clause("mqtt5:3.12.4-1", "mqtt3:3.12.4-1")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_ping_is_answered(version: Version) -> None:
    scene = Scene().opened(version)
    assert scene.hear(b"\xc0\0" * 3) == []
    assert scene.said() == b"\xd0\0" * 3
    assert scene.hear(b"\xc0\1x")[0][0] == "closed"


@clause("mqtt5:3.1.2-22", "mqtt3:3.1.2-24", "mqtt5:3.2.2-22")
@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_silent_for_one_and_a_half_keep_alives_is_gone(version: Version) -> None:
    scene = Scene().opened(version, keep_alive_s=10)
    engine = scene.engine
    assert engine.next_deadline() == 15.0
    engine.receive(b"\xc0\0", 14.0)
    engine.handle_deadline(15.0)
    assert engine.is_open
    assert engine.next_deadline() == 29.0
    scene.said()
    engine.handle_deadline(29.0)
    assert scene.heard == [("closed", "no packet within 15 s, one and a half times the keep-alive")]
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (Reason.KEEP_ALIVE_TIMEOUT if version is V5 else None)
    engine.handle_deadline(29.0 + LINGER_S)
    assert engine.closed


@clause("mqtt5:3.1.2-21", "mqtt5:3.2.2-21")
def test_the_servers_keep_alive_counts() -> None:
    scene = Scene(ConnackProperties(server_keep_alive_s=4)).opened(V5, keep_alive_s=10)
    assert scene.engine.next_deadline() == 6.0
    scene = Scene(ConnackProperties(server_keep_alive_s=0)).opened(V5, keep_alive_s=10)
    assert scene.engine.next_deadline() is None


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_keep_alive_a_client_may_be_silent(version: Version) -> None:
    scene = Scene().opened(version)
    assert scene.engine.next_deadline() is None
    scene.engine.handle_deadline(10_000_000.0)
    assert scene.engine.is_open


# What may not come


@clause(
    "mqtt5:4.13.1-1", "mqtt3:4.8.0-1", "mqtt5:2.1.3-1", "mqtt3:2.2.2-1", "mqtt3:2.2.2-2", "mqtt5:3.14.1-1",
    "mqtt3:3.14.1-1", "mqtt5:3.15.1-1",
)  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\0", Reason.MALFORMED_PACKET),
        (b"\x0f\0", Reason.MALFORMED_PACKET),
        (b"\x20\2\0\0", Reason.PROTOCOL_ERROR),
        (b"\x90\3\0\1\0", Reason.PROTOCOL_ERROR),
        (b"\xb0\2\0\1", Reason.PROTOCOL_ERROR),
        (b"\xd0\0", Reason.PROTOCOL_ERROR),
        (b"\x41\2\0\1", Reason.MALFORMED_PACKET),
        (b"\x52\2\0\1", Reason.MALFORMED_PACKET),
        (b"\x78\2\0\1", Reason.MALFORMED_PACKET),
        (b"\xc1\0", Reason.MALFORMED_PACKET),
        (b"\xe1\0", Reason.MALFORMED_PACKET),
        (b"\xe8\0", Reason.MALFORMED_PACKET),
        (b"\xf1\0", Reason.MALFORMED_PACKET),
        (b"\xf0\0", Reason.PROTOCOL_ERROR),
    ],
)
def test_packets_that_may_not_come_end_the_connection(version: Version, data: bytes, reason: Reason) -> None:
    scene = Scene().opened(version)
    assert scene.hear(data, PUBLISH[version])[0][0] == "closed"
    assert len(scene.heard) == 1
    goodbye = scene.goodbye()
    assert (goodbye and goodbye.reason) == (reason if version is V5 else None)


# DISCONNECT


@clause("mqtt5:3.14.4-2", "mqtt3:3.14.4-1", "mqtt5:3.14.4-1", "mqtt3:3.14.4-2")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_goodbye_ends_the_connection_without_a_word(version: Version) -> None:
    scene = Scene().opened(version)
    assert scene.hear(b"\xe0\0" + PUBLISH[version], PUBLISH[version]) == [("DISCONNECT", 0, None), ("closed", None)]
    assert scene.is_closed()
    assert scene.said() == b""


@clause("mqtt5:3.14.2-1")
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (b"\0", (0, None)),
        (b"\4", (4, None)),
        (b"\x80\0", (0x80, None)),
        (b"\4" + properties(b"\x11\0\0\0\5"), (4, 5)),
        (
            b"\0" + properties(b"\x11\xff\xff\xff\xff", b"\x1f", text("bye"), b"\x26", text("a"), text("b")),
            (0, 2**32 - 1),
        ),
    ],
)
def test_a_goodbye_of_version_5_says_why_and_how_long_the_session_lasts(
    fields: bytes, told: tuple[int, int | None]
) -> None:
    scene = Scene().opened(V5, session_expiry_s=1)
    assert scene.hear(packet(0xE0, fields)) == [("DISCONNECT", *told), ("closed", None)]


@clause("mqtt5:3.14.2-1", "mqtt5:4.13.1-1")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (b"\x01", Reason.PROTOCOL_ERROR),
        (b"\x8e", Reason.PROTOCOL_ERROR),
        (b"\0\5", Reason.MALFORMED_PACKET),
        (b"\0\0\0", Reason.MALFORMED_PACKET),
        (b"\0" + properties(b"\x11\0\0\0\5"), Reason.PROTOCOL_ERROR),
        (b"\0" + properties(b"\x15\0\1X"), Reason.MALFORMED_PACKET),
        (b"\0" + properties(b"\x1f\0\0\x1f\0\0"), Reason.PROTOCOL_ERROR),
    ],
)
def test_a_goodbye_with_a_breach_is_none(fields: bytes, reason: Reason) -> None:
    scene = Scene().opened(V5)
    assert [what[0] for what in scene.hear(packet(0xE0, fields))] == ["closed"]
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == reason


@clause("mqtt3:3.14.1-1")
def test_a_goodbye_of_an_older_version_has_no_fields() -> None:
    scene = Scene().opened(V4)
    assert [what[0] for what in scene.hear(b"\xe0\1\0")] == ["closed"]


@clause(
    "mqtt5:3.14.4-1", "mqtt5:3.14.4-2", "mqtt5:4.13.2-1", "mqtt5:3.14.2-1", "mqtt5:3.14.2-2",
)  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_that_ends_the_connection_says_why_and_nothing_after_that(version: Version) -> None:
    scene = Scene().opened(version, session_expiry_s=1) if version is V5 else Scene().opened(version)
    engine = scene.engine
    engine.put_puback(7)
    engine.disconnect(Reason.SESSION_TAKEN_OVER, "another came")
    engine.put_puback(8)
    engine.put(PUBLISH[version])
    engine.disconnect(Reason.SERVER_BUSY)
    assert scene.heard == [("closed", "another came")]
    packets = scene.packets()
    assert packets[0] == b"\x40\2\0\7"
    if version is V5:
        assert packets[1:] == [encode_disconnect(V5, Disconnect(Reason.SESSION_TAKEN_OVER, None, "another came"))]
        assert not engine.closed
        assert scene.hear(PUBLISH[V5]) == []
        engine.handle_deadline(LINGER_S / 2)
        assert not engine.closed
        engine.handle_deadline(LINGER_S)
    else:
        assert len(packets) == 1
    assert engine.closed
    engine.put_puback(9)
    assert scene.said() == b""


@clause("mqtt5:3.14.2-1")
@pytest.mark.parametrize(
    ("meant", "said"),
    [
        (Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED),
        (Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY),
        (Reason.UNSUPPORTED_PROTOCOL_VERSION, Reason.UNSPECIFIED_ERROR),
        (Reason.ADMINISTRATIVE_ACTION, Reason.ADMINISTRATIVE_ACTION),
    ],
)
def test_disconnect_has_reasons_of_its_own(meant: Reason, said: Reason) -> None:
    scene = Scene().opened(V5)
    scene.engine.disconnect(meant, server_reference="other:1883")
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert (goodbye.reason, goodbye.server_reference) == (said, "other:1883")


def test_errors_of_other_rooms_have_reasons() -> None:
    assert reason_of(RemoteError("amqp:unauthorized-access", "no")) is Reason.NOT_AUTHORIZED
    assert reason_of(RemoteError("amqp:resource-limit-exceeded", "no")) is Reason.QUOTA_EXCEEDED
    assert reason_of(RemoteError("else", "no")) is Reason.UNSPECIFIED_ERROR


def test_a_lost_connection_is_told_once() -> None:
    scene = Scene().opened(V5)
    scene.engine.receive(PUBLISH[V5][:3], 0.0)
    scene.engine.lost()
    scene.engine.lost()
    scene.engine.close()
    assert scene.heard == [("closed", None)]
    assert scene.is_closed()
    assert scene.engine.unread == b""
    assert scene.hear(PUBLISH[V5]) == []


# Enhanced authentication


def authenticating(told: ConnackProperties | None = None) -> Scene:
    """A server that has asked a client for more."""
    scene = Scene(told, lets_in=False)
    scene.hear(connect_packet(V5, authentication_method="X", authentication_data=b"1"))
    scene.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"2", "go on")
    assert scene.said() == encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"2", "go on")
    return scene


@clause("mqtt5:4.12.0-2", "mqtt5:4.12.0-3", "mqtt5:4.12.0-5", "mqtt5:3.15.2-1")
def test_authentication_goes_on_until_the_client_is_let_in() -> None:
    scene = authenticating()
    more = encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"3")
    assert scene.hear(more) == [("AUTH", Reason.CONTINUE_AUTHENTICATION, b"3")]
    assert scene.engine.is_held
    scene.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"4")
    assert scene.hear(more + PUBLISH[V5]) == [("AUTH", Reason.CONTINUE_AUTHENTICATION, b"3")]
    scene.said()
    scene.engine.accept(False, ConnackProperties(authentication_data=b"5"))
    connack = scene.connack()
    assert (connack.properties.authentication_method, connack.properties.authentication_data) == ("X", b"5")
    assert scene.hear(b"")[0][0] == "PUBLISH"


@clause("mqtt5:4.12.0-1", "mqtt5:4.12.0-4")
def test_authentication_may_be_refused_at_any_time() -> None:
    scene = authenticating()
    scene.engine.refuse(Reason.BAD_AUTHENTICATION_METHOD)
    assert scene.connack().reason == Reason.BAD_AUTHENTICATION_METHOD
    assert scene.heard[-1][0] == "closed"


@clause("mqtt5:3.1.2-30", "mqtt5:3.15.1-1", "mqtt5:3.15.2-1", "mqtt5:4.12.0-3", "mqtt5:4.12.0-5")
@pytest.mark.parametrize(
    "data",
    [
        PUBLISH[V5],
        b"\xc0\0",
        encode_auth(Reason.REAUTHENTICATE, "X"),
        encode_auth(Reason.SUCCESS, "X"),
        encode_auth(Reason.CONTINUE_AUTHENTICATION, "Y"),
        packet(0xF0, b""),
        packet(0xF0, b"\x18"),
        packet(0xF0, b"\x18\0"),
        packet(0xF0, b"\x17", properties(METHOD)),
        packet(0xF0, b"\x18", properties(METHOD, METHOD)),
        packet(0xF0, b"\x18", properties(METHOD), b"\0"),
        packet(0xF2, b"\x18", properties(METHOD)),
    ],
)
def test_what_is_no_answer_to_auth_ends_the_connection(data: bytes) -> None:
    scene = authenticating()
    assert [what[0] for what in scene.hear(data)] == ["closed"]
    assert scene.connack().reason in (Reason.PROTOCOL_ERROR, Reason.MALFORMED_PACKET)


def test_a_client_may_give_up() -> None:
    assert authenticating().hear(b"\xe0\0") == [("DISCONNECT", 0, None), ("closed", None)]


def test_an_answer_to_auth_is_awaited_for_a_while() -> None:
    scene = authenticating()
    assert scene.engine.next_deadline() == CONNECT_TIMEOUT_S
    scene.engine.handle_deadline(CONNECT_TIMEOUT_S)
    assert scene.connack().reason == Reason.NOT_AUTHORIZED


@clause("mqtt5:4.12.0-6", "mqtt5:4.12.0-7")
def test_without_a_method_there_is_no_auth() -> None:
    scene = Scene(lets_in=False)
    scene.hear(connect_packet(V5))
    scene.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"2")
    assert scene.said() == b""
    scene.engine.accept(False)
    assert scene.connack().properties.authentication_method is None
    assert scene.hear(encode_auth(Reason.REAUTHENTICATE, "X"))[0][0] == "closed"


@clause("mqtt5:4.12.1-1", "mqtt5:4.12.1-2")
def test_a_client_may_authenticate_again_while_messages_go_on() -> None:
    scene = Scene().opened(V5, authentication_method="X")
    again = encode_auth(Reason.REAUTHENTICATE, "X", b"1")
    more = encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"3")
    heard = scene.hear(again + PUBLISH[V5])
    assert [what[0] for what in heard] == ["AUTH", "PUBLISH"]
    scene.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"2")
    assert scene.hear(more) == [("AUTH", Reason.CONTINUE_AUTHENTICATION, b"3")]
    scene.engine.put_auth(Reason.SUCCESS, b"4")
    assert scene.packets()[-1] == encode_auth(Reason.SUCCESS, "X", b"4")
    assert scene.hear(again)[0][0] == "AUTH"
    scene.engine.disconnect(Reason.NOT_AUTHORIZED)
    goodbye = scene.goodbye()
    assert goodbye is not None
    assert goodbye.reason == Reason.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "said",
    [
        [encode_auth(Reason.CONTINUE_AUTHENTICATION, "X")],
        [encode_auth(Reason.REAUTHENTICATE, "Y")],
        [encode_auth(Reason.REAUTHENTICATE, "X"), encode_auth(Reason.REAUTHENTICATE, "X")],
    ],
)
def test_another_exchange_begins_once_and_by_its_method(said: list[bytes]) -> None:
    scene = Scene().opened(V5, authentication_method="X")
    assert scene.hear(*said)[-1][0] == "closed"


def test_all_fields_of_auth_are_told() -> None:
    told = Auth(Reason.REAUTHENTICATE, "X", b"1", "why", [("a", "b")])
    fields = (METHOD, b"\x16", text(b"1"), b"\x1f", text("why"), b"\x26", text("a"), text("b"))
    scene = Scene().opened(V5, authentication_method="X")
    scene.hear(packet(0xF0, b"\x19", properties(*fields)))
    assert scene.auths == [told]


@clause("mqtt5:3.15.2-2")
def test_a_reason_is_left_out_where_auth_would_be_too_large() -> None:
    scene = Scene().opened(V5, authentication_method="X", maximum_packet_size=20)
    scene.engine.put_auth(Reason.SUCCESS, b"1", "because it is so")
    (said,) = scene.packets()
    assert said == encode_auth(Reason.SUCCESS, "X", b"1")
