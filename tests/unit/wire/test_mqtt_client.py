"""A client's end of an MQTT connection, alone and joined to a server's."""

from __future__ import annotations

import pytest

from enmasse.wire.mqtt.client import CONNACK_TIMEOUT_S
from enmasse.wire.mqtt.engine import LINGER_S
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
    Version,
)
from enmasse.wire.mqtt.writing import (
    encode_auth,
    encode_connack,
    encode_connect,
    encode_disconnect,
    encode_publish,
    encode_publish_properties,
)
from tests.conformance.clause_list import clause
from tests.unit.wire.mqtt_scene import V3, V4, V5, VERSIONS, ClientScene, Scene, packet, properties, text

CONNACK = {V3: b"\x20\2\0\0", V4: b"\x20\2\0\0", V5: b"\x20\3\0\0\0"}


class Pair:
    """A client and a server that are joined."""

    def __init__(self, version: Version, told: ConnackProperties | None = None, **fields: object) -> None:
        self.client = ClientScene(version, **fields)
        self.server = Scene(told)

    def talk(self) -> None:
        """Carry what each says to the other until nobody says more."""
        while True:
            there, back = self.client.said(), self.server.said()
            if not there and not back:
                return
            self.server.engine.receive(there, 0.0)
            self.client.engine.receive(back, 0.0)


@pytest.mark.parametrize("version", [V3, *VERSIONS])
def test_both_ends_speak_with_each_other(version: Version) -> None:
    pair = Pair(version)
    pair.talk()
    client, server = pair.client, pair.server
    assert client.heard == [("CONNACK", Connack(False, 0))]
    server.heard.clear()
    client.heard.clear()
    client.engine.put_subscribe(Subscribe(1, [Filter("a/#", 1)]))
    client.engine.put_unsubscribe(Unsubscribe(2, ["b"]))
    told = b"\0" if version is V5 else b""
    client.engine.put(encode_publish(b"t", b"x", 2, packet_id=3, properties=told))
    client.engine.put_pubrel(3)
    client.engine.put_ping()
    pair.talk()
    assert server.heard == [
        ("SUBSCRIBE", Subscribe(1, [Filter("a/#", 1)])),
        ("UNSUBSCRIBE", Unsubscribe(2, ["b"])),
        ("PUBLISH", "t", b"x", 4, 3, None),
        ("PUBREL", 3, 0),
    ]
    server.engine.put_suback(1, [1])
    server.engine.put_unsuback(2, [0])
    server.engine.put_pubrec(3)
    server.engine.put_pubcomp(3)
    server.engine.put(encode_publish(b"a/b", b"y", 1, packet_id=9, properties=told))
    pair.talk()
    assert client.heard == [
        ("PINGRESP",),
        ("SUBACK", 1, b"\1"),
        ("UNSUBACK", 2, b"\0" if version is V5 else b""),
        ("PUBREC", 3, 0),
        ("PUBCOMP", 3, 0),
        ("PUBLISH", "a/b", b"y", 2, 9, None),
    ]
    client.engine.disconnect()
    assert client.is_closed()
    pair.talk()
    assert server.heard[-2:] == [("DISCONNECT", 0, None), ("closed", None)]
    assert client.heard[-1] == ("closed", None)


@clause("mqtt5:3.1.0-1", "mqtt3:3.1.0-1")
def test_connect_is_the_first_thing_that_is_said() -> None:
    for version in (V3, *VERSIONS):
        scene = ClientScene(version, keep_alive_s=7)
        assert scene.said() == encode_connect(Connect(version, "c", keep_alive_s=7))


def test_a_server_tells_what_it_serves() -> None:
    told = ConnackProperties(
        60, 20, 1, False, 1000, "given", 5, "welcome", [("a", "1")], False, False, False, 90, "here", "other",
    )  # fmt: skip
    scene = ClientScene(V5)
    scene.said()
    assert scene.hear(encode_connack(V5, Connack(False, 0, told))) == [("CONNACK", Connack(False, 0, told))]
    engine = scene.engine
    assert (engine.peer_receive_maximum, engine.peer_maximum_packet_size, engine.keep_alive_s) == (20, 1000, 90)


@clause("mqtt5:3.2.2-17", "mqtt5:3.2.2-18")
def test_a_client_uses_as_many_aliases_as_the_server_takes() -> None:
    engine = ClientScene(V5).opened(b"\x22\0\1").engine
    assert [engine.alias(topic) for topic in (b"a", b"a", b"b")] == [(b"a", 1), (b"", 1), (b"b", 0)]
    assert ClientScene(V5).opened().engine.alias(b"a") == (b"a", 0)


@clause("mqtt5:3.2.2-7")
@pytest.mark.parametrize(("version", "code"), [(V4, 5), (V5, 0x87)])
def test_a_client_that_is_refused_hears_why_and_closes(version: Version, code: int) -> None:
    scene = ClientScene(version)
    scene.said()
    heard = scene.hear(encode_connack(version, Connack(False, code)))
    assert heard == [("CONNACK", Connack(False, code)), ("closed", None)]
    assert scene.is_closed()
    assert scene.said() == b""


@clause("mqtt5:3.2.2-4", "mqtt5:3.2.2-1", "mqtt5:3.2.2-6", "mqtt5:3.2.0-1", "mqtt5:4.12.0-5", "mqtt5:4.12.0-6")
@pytest.mark.parametrize(
    "data",
    [
        b"\x20\3\1\0\0",
        b"\x20\3\2\0\0",
        b"\x20\3\1\x87\0",
        b"\x20\2\0\0",
        b"\x20\4\0\0\0\0",
        b"\x21\3\0\0\0",
        packet(0x20, b"\0\0", properties(b"\x24\2")),
        packet(0x20, b"\0\0", properties(b"\x21\0\0")),
        packet(0x20, b"\0\0", properties(b"\x17\0")),
        packet(0x20, b"\0\0", properties(b"\x15\0\1X")),
        encode_publish(b"t", b"", properties=b"\0"),
        encode_auth(Reason.CONTINUE_AUTHENTICATION, "X"),
        b"\xd0\0",
        b"\xe0\0",
        b"\x10\0",
    ],
)
def test_what_is_no_answer_to_connect_ends_the_connection(data: bytes) -> None:
    scene = ClientScene(V5)
    scene.said()
    assert [what[0] for what in scene.hear(data)] == ["closed"]
    assert scene.said() == b""


@clause("mqtt5:3.2.0-2")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "data",
    [
        b"\x20\2\0\0",
        b"\x10\2\0\0",
        b"\x82\2\0\0",
        b"\xa2\2\0\0",
        b"\xc0\0",
        b"\x00\0",
        b"\xf0\0",
        b"\x90\2\0\1",
        b"\x90\3\0\0\0",
        b"\xd0\1\0",
        b"\x36\5\0\1t\0\1",
        b"\x30\4\0\2\0\0",
        b"\x31\3\0\1#",
    ],
)
def test_packets_that_may_not_come_end_the_connection(version: Version, data: bytes) -> None:
    scene = ClientScene(version).opened()
    assert [what[0] for what in scene.hear(data)] == ["closed"]
    said = scene.packets()
    assert [item[0] for item in said] == ([0xE0] if version is V5 else [])
    if said:
        scene.engine.handle_deadline(LINGER_S)
    assert scene.is_closed()


@pytest.mark.parametrize("version", [V3, V4])
@pytest.mark.parametrize("data", [b"\xe0\0", b"\xf0\0"])
def test_older_servers_have_neither_disconnect_nor_auth(version: Version, data: bytes) -> None:
    assert [what[0] for what in ClientScene(version).opened().hear(data)] == ["closed"]


@clause("mqtt5:3.14.2-2", "mqtt5:3.14.4-2", "mqtt5:3.14.2-1")
def test_a_server_says_why_it_ends_the_connection() -> None:
    told = Disconnect(Reason.USE_ANOTHER_SERVER, None, "moved", "other:1883", [("a", "b")])
    scene = ClientScene(V5).opened()
    assert scene.hear(encode_disconnect(V5, told)) == [("DISCONNECT", told), ("closed", None)]
    for breach in (b"\4", b"\x19", b"\x86", b"\0" + properties(b"\x11\0\0\0\1")):
        scene = ClientScene(V5).opened()
        assert [what[0] for what in scene.hear(packet(0xE0, breach))] == ["closed"]


@clause("mqtt5:3.14.2-1")
def test_a_client_says_goodbye_with_reasons_of_its_own() -> None:
    scene = ClientScene(V5).opened()
    scene.engine.disconnect(Reason.DISCONNECT_WITH_WILL, "tired", session_expiry_s=5)
    assert scene.packets() == [encode_disconnect(V5, Disconnect(Reason.DISCONNECT_WITH_WILL, 5, "tired"))]
    scene = ClientScene(V5, topic_alias_maximum=1).opened()
    scene.refused_topic = "t"
    scene.hear(encode_publish(b"t", b"", properties=b"\0"))
    (said,) = scene.packets()
    assert said[2] == Reason.UNSPECIFIED_ERROR


@clause("mqtt5:3.3.2-10", "mqtt5:3.3.2-7")
def test_a_client_takes_as_many_aliases_as_it_said() -> None:
    scene = ClientScene(V5, topic_alias_maximum=2).opened()
    say = [(b"a", 1), (b"b", 2), (b"", 1), (b"", 2), (b"c", 3)]
    data = [encode_publish(topic, b"", properties=encode_publish_properties(None, alias)) for topic, alias in say]
    assert [what[1] for what in scene.hear(*data)[:4]] == ["a", "b", "a", "b"]
    assert [what[0] for what in scene.heard[4:]] == ["closed"]


@clause("mqtt5:3.3.4-9", "mqtt5:4.9.0-1")
def test_a_server_keeps_to_the_clients_receive_maximum() -> None:
    scene = ClientScene(V5, receive_maximum=1).opened()
    one = encode_publish(b"t", b"", 1, packet_id=1, properties=b"\0")
    assert [what[0] for what in scene.hear(one)] == ["PUBLISH"]
    scene.engine.put_puback(1)
    assert [what[0] for what in scene.hear(one, one)] == ["PUBLISH", "closed"]
    assert scene.packets()[-1][2] == Reason.RECEIVE_MAXIMUM_EXCEEDED


@clause("mqtt5:3.1.2-24")
def test_a_server_keeps_to_the_clients_maximum_packet_size() -> None:
    scene = ClientScene(V5, maximum_packet_size=20).opened()
    assert [what[0] for what in scene.hear(encode_publish(b"t", b"x" * 20, properties=b"\0"))] == ["closed"]
    assert scene.packets()[-1][2] == Reason.PACKET_TOO_LARGE


def test_subscription_identifiers_come_from_servers() -> None:
    told = PublishProperties(subscription_identifiers=[7, 300, 268_435_455])
    scene = ClientScene(V5).opened()
    data = encode_publish(b"t", b"", properties=encode_publish_properties(told))
    assert scene.hear(data) == [("PUBLISH", "t", b"", 0, 0, told)]


# Authentication


@clause("mqtt5:4.12.0-3", "mqtt5:4.12.0-5")
def test_authentication_goes_on_until_connack() -> None:
    scene = ClientScene(V5, authentication_method="X", authentication_data=b"1")
    scene.said()
    more = encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"2")
    assert scene.hear(more) == [("AUTH", Reason.CONTINUE_AUTHENTICATION, b"2")]
    scene.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"3")
    assert scene.said() == encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"3")
    told = ConnackProperties(authentication_method="X", authentication_data=b"4")
    assert scene.hear(encode_connack(V5, Connack(False, 0, told))) == [("CONNACK", Connack(False, 0, told))]
    scene.engine.put_auth(Reason.REAUTHENTICATE)
    assert scene.said() == encode_auth(Reason.REAUTHENTICATE, "X")
    assert scene.hear(encode_auth(Reason.SUCCESS, "X")) == [("AUTH", 0, None)]


@clause("mqtt5:4.12.0-5", "mqtt5:4.12.0-7")
@pytest.mark.parametrize(
    "data",
    [
        encode_auth(Reason.SUCCESS, "X"),
        encode_auth(Reason.REAUTHENTICATE, "X"),
        encode_auth(Reason.CONTINUE_AUTHENTICATION, "Y"),
        CONNACK[V5],
    ],
)
def test_an_exchange_with_a_breach_ends_the_connection(data: bytes) -> None:
    scene = ClientScene(V5, authentication_method="X")
    scene.said()
    assert [what[0] for what in scene.hear(data)] == ["closed"]
    other = ClientScene(V5)
    other.said()
    other.engine.put_auth(Reason.CONTINUE_AUTHENTICATION)
    assert other.said() == b""


# Time


@clause("mqtt5:3.1.2-20", "mqtt3:3.1.2-23")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_is_never_silent_for_its_keep_alive(version: Version) -> None:
    scene = ClientScene(version, keep_alive_s=10).opened()
    engine = scene.engine
    silent_since = now = 0.0
    for step in range(1, 20):
        deadline = engine.next_deadline()
        assert deadline is not None
        now = deadline
        engine.handle_deadline(now)
        if step % 3 == 0:
            engine.put(encode_publish(b"t", b"", properties=b"\0" if version is V5 else b""))
        said = scene.said()
        if said:
            assert now - silent_since <= 10.0
            silent_since = now
        if b"\xc0\0" in said:
            engine.receive(b"\xd0\0", now)
    assert engine.is_open


@clause("mqtt5:3.1.2-21", "mqtt5:3.2.2-21")
def test_a_client_keeps_to_the_servers_keep_alive() -> None:
    scene = ClientScene(V5, keep_alive_s=100).opened(b"\x13\0\4")
    assert scene.engine.next_deadline() == 2.0
    scene.engine.handle_deadline(2.0)
    scene.engine.handle_deadline(4.0)
    assert scene.said() == b"\xc0\0"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_that_does_not_answer_pings_is_gone(version: Version) -> None:
    scene = ClientScene(version, keep_alive_s=10).opened()
    for now in (5.0, 10.0, 15.0):
        scene.engine.handle_deadline(now)
        assert scene.said() == (b"\xc0\0" if now == 10.0 else b"")
        assert scene.engine.is_open
    scene.engine.handle_deadline(20.0)
    assert scene.heard == [("closed", "no PINGRESP within 10 s")]


def test_a_server_that_sends_messages_is_not_gone() -> None:
    scene = ClientScene(V4, keep_alive_s=10).opened()
    for now in range(5, 100, 5):
        scene.engine.handle_deadline(float(now))
        scene.engine.receive(encode_publish(b"t", b""), now + 0.5)
    assert scene.engine.is_open


def test_connack_is_awaited_for_a_while() -> None:
    scene = ClientScene(V5)
    assert scene.engine.next_deadline() == CONNACK_TIMEOUT_S
    scene.engine.handle_deadline(CONNACK_TIMEOUT_S - 1)
    assert not scene.is_closed()
    scene.engine.handle_deadline(CONNACK_TIMEOUT_S)
    assert scene.is_closed()
    assert scene.engine.next_deadline() is None


def test_without_a_keep_alive_nothing_is_due() -> None:
    assert ClientScene(V4).opened().engine.next_deadline() is None


def test_all_fields_of_codes_are_read() -> None:
    scene = ClientScene(V5).opened()
    told = properties(b"\x1f", text("why"), b"\x26", text("a"), text("b"))
    assert scene.hear(packet(0x90, b"\0\7", told, b"\0\x87"), packet(0xB0, b"\0\x08", told, b"\x11")) == [
        ("SUBACK", 7, b"\0\x87"),
        ("UNSUBACK", 8, b"\x11"),
    ]
