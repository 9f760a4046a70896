"""Targets of MQTT: both ends of a connection, and its observer; whole and in pieces, streams must mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.client import ClientConnection
from enmasse.wire.mqtt.connection import Connection
from enmasse.wire.mqtt.engine import Engine
from enmasse.wire.mqtt.packets import (
    Auth,
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
    Will,
)
from enmasse.wire.mqtt.trace import Splitter, describe, mask, shorten
from enmasse.wire.mqtt.writing import (
    encode_auth,
    encode_connack,
    encode_connect,
    encode_disconnect,
    encode_publish,
    encode_publish_properties,
    encode_subscribe,
    encode_unsubscribe,
    encode_variable,
    with_properties,
)
from fuzz.engines import cut
from fuzz.target import BrokenBoundError, Target, held_bytes, is_measured

__all__ = ["MQTT_CLIENT_TARGET", "MQTT_TARGET", "MQTT_TRACE_TARGET"]

HELD_AT_ALL = 64 << 10
HELD_PER_BYTE = 200
"""What an engine may hold for what it was told: a topic that is cached has a sink and its properties."""

LARGEST_BYTES = 300
"""The largest input: packets are small, and a dozen of them reach what many do."""

V5, V4, V3 = Version.V5, Version.V3_1_1, Version.V3_1
VERSIONS = (V5, V4, V3, V5)

IS_OPENED = 8
"""A bit of an input's first byte: the conversation begins with CONNECT, or its answer."""

FULL = PublishProperties(1, 60, "text/plain", "answers", b"\1", [("a", "b"), ("a", "c")])
WILL = Will("gone", b"bye", 1, True, 5, FULL)
AUTHENTICATING = Connect(V5, "c", authentication_method="X", authentication_data=b"1")

_SHARED = (
    b"",
    encode_publish(b"t", b"x"),
    encode_publish(b"t", b"x", 1, packet_id=1),
    encode_publish(b"t/u", b"x" * 200, 2, True, True, 2),
    encode_publish(b"t", b"x", properties=b"\0"),
    encode_publish(b"t", b"x", 1, packet_id=1, properties=encode_publish_properties(FULL)),
    encode_publish(b"t", b"x", properties=encode_publish_properties(None, 1)),
    encode_publish(b"u", b"x", properties=encode_publish_properties(FULL, 1)),
    encode_publish(b"", b"x", 2, packet_id=3, properties=encode_publish_properties(None, 1)),
    encode_publish(b"hold", b"x", properties=b"\0"),
    encode_publish(b"hold", b"", 1, packet_id=4),
    b"\x40\2\0\1", b"\x50\2\0\2", b"\x62\2\0\3", b"\x70\2\0\4",
    b"\x40\3\0\1\x97", b"\x50\4\0\2\x10\0", b"\x62\7\0\3\x92\4\x1f\0\1x",
    encode_auth(Reason.CONTINUE_AUTHENTICATION, "X", b"2"),
    encode_disconnect(V5, Disconnect()),
    encode_disconnect(V5, Disconnect(Reason.UNSPECIFIED_ERROR, None, "why", None, [("a", "b")])),
)  # fmt: skip

CLIENTS_PACKETS = (
    *_SHARED,
    encode_connect(Connect(V5, "c", keep_alive_s=10)),
    encode_connect(Connect(V4, "c", False, 5, "me", b"secret", WILL)),
    encode_connect(Connect(V3, "c")),
    encode_connect(
        Connect(V5, "", False, 5, "me", b"secret", WILL, 60, 7, 1000, 5, False, True, "X", b"1", [("a", "b")])
    ),
    encode_connect(AUTHENTICATING),
    encode_connect(Connect(V5, "refused")),
    encode_subscribe(V5, Subscribe(5, [Filter("a/+/#", 2, True, True, 2), Filter("$share/g/t")], 7, [("a", "b")])),
    encode_subscribe(V4, Subscribe(6, [Filter("#", 1), Filter("+/b", 0)])),
    encode_unsubscribe(V5, Unsubscribe(7, ["a/+/#", "t"], [("a", "b")])),
    encode_unsubscribe(V4, Unsubscribe(8, ["t"])),
    b"\xc0\0",
    encode_auth(Reason.REAUTHENTICATE, "X"),
    encode_disconnect(V5, Disconnect(Reason.DISCONNECT_WITH_WILL, 0)),
    b"\x8a\6\0\1\0\1t\0",
    b"\xe0\0",
)  # fmt: skip
"""Words of a client."""

SERVERS_PACKETS = (
    *_SHARED,
    encode_connack(V5, Connack(True, 0, ConnackProperties(60, 20, 1, False, 1000, "c", 5, "hi", [("a", "b")]))),
    encode_connack(V5, Connack(False, 0, ConnackProperties(server_keep_alive_s=7, authentication_method="X"))),
    encode_connack(V5, Connack(False, Reason.NOT_AUTHORIZED)),
    encode_connack(V4, Connack(False, 0)),
    encode_connack(V4, Connack(False, 5)),
    encode_publish(b"t", b"x", 0, True, properties=with_properties(encode_publish_properties(FULL), 1, (1, 300))),
    b"\x90\5\0\5\0\1\x80", b"\x90\3\0\5\2", b"\xb0\5\0\7\0\0\x11", b"\xb0\2\0\7", b"\xd0\0",
)  # fmt: skip
"""Words of a server."""

_PIECES = (b"\0", b"\xff", b"#", b"+", b"/", b"\x80", b"\0\0", b"\x26\0\1a\0\1b", b"\x23\0\1", b"\x0b\1", b"\x21\0\1")


def split_packets(data: bytes) -> list[bytes]:
    """Cut bytes where packets end, if they are packets; what is none is one piece."""
    found = []
    at = 0
    while at < len(data):
        size = shift = 0
        place = at + 1
        while place < len(data) and place < at + 5:
            size |= (data[place] & 127) << shift
            shift += 7
            place += 1
            if data[place - 1] < 128:
                break
        stop = min(place + size, len(data))
        found.append(data[at:stop])
        at = stop
    return found


def _mutate(data: bytes, most: int, chance: Random, words: Sequence[bytes]) -> bytes:
    """An input with packets added, taken away or changed."""
    head, packets = data[:1] or b"\0", split_packets(data[1:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(packets) + 1)
        match chance.randrange(7):
            case 0 | 1:
                packets.insert(at, chance.choice(words))
            case 2 if at < len(packets):
                del packets[at]
            case 3 if at < len(packets) and packets[at]:
                # Its length stays right, so that the rest is read.
                whole = packets[at]
                body = whole[2:]
                place = chance.randrange(len(body) + 1)
                body = body[:place] + chance.choice(_PIECES) + body[place + chance.randint(0, 2) :]
                packets[at] = whole[:1] + encode_variable(len(body)) + body
            case 4 if at < len(packets) and packets[at]:
                place = chance.randrange(len(packets[at]))
                packets[at] = packets[at][:place] + bytes((chance.randrange(256),)) + packets[at][place + 1 :]
            case 5 if at < len(packets):
                packets.insert(at, packets[at])
            case _:
                head = bytes((chance.randrange(256),))
    return (head + b"".join(packets))[:most]


def mutate_clients_packets(data: bytes, most: int, chance: Random) -> bytes:
    """An input with a client's packets added, taken away or changed."""
    return _mutate(data, most, chance, CLIENTS_PACKETS)


def mutate_servers_packets(data: bytes, most: int, chance: Random) -> bytes:
    """An input with a server's packets added, taken away or changed."""
    return _mutate(data, most, chance, SERVERS_PACKETS)


def mutate_any_packets(data: bytes, most: int, chance: Random) -> bytes:
    """An input with packets of either end added, taken away or changed."""
    return _mutate(data, most, chance, (*CLIENTS_PACKETS, *SERVERS_PACKETS))


class Peer:
    """Notes what is said; every seventh topic is refused, every second message of QoS 1 and 2 has its answer."""

    engine: Any

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.is_closed = False
        self.is_holding = False

    def make_sink(self, topic: str, told: PublishProperties | None) -> Sink:
        assert topic, "a topic of no characters"
        assert not {"+", "#", "\0"} & set(topic), "a topic that is none"
        if len(self.heard) % 7 == 6:
            raise RemoteError("amqp:not-allowed", "not today")
        return Sink(self, topic, told)

    def on_puback(self, packet_id: int, reason: int) -> None:
        self.note("PUBACK", packet_id, reason)

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        self.note("PUBREC", packet_id, reason)
        self.engine.put_pubrel(packet_id)

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        self.note("PUBREL", packet_id, reason)
        self.engine.put_pubcomp(packet_id)

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        self.note("PUBCOMP", packet_id, reason)

    def on_auth(self, auth: Auth) -> None:
        self.note("AUTH", auth)

    def on_blocked(self, is_blocked: bool) -> None:
        self.note("blocked", is_blocked)

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        assert not self.is_closed, "an end that is told twice"
        self.heard.append(("closed", str(error)))
        self.is_closed = True

    def note(self, *what: Any) -> None:
        assert not self.is_closed, "something is told after the end"
        if isinstance(what[1], int) and what[0].startswith("PUB"):
            assert what[1], "a packet identifier of 0"
        self.heard.append(what)


class Sink:
    """Hears of messages."""

    def __init__(self, peer: Peer, topic: str, told: PublishProperties | None) -> None:
        self.is_lasting = len(peer.heard) % 5 != 4
        self._peer = peer
        self._topic = topic
        self._told = told

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        peer = self._peer
        assert (flags & 6 > 0) is (packet_id > 0)
        peer.note("PUBLISH " + self._topic, payload, flags, packet_id, self._told)
        if self._topic == "hold":
            peer.is_holding = True
            peer.engine.hold_input(True)
        if len(peer.heard) % 2:
            if flags & 6 == 2:
                peer.engine.put_puback(packet_id, Reason.QUOTA_EXCEEDED, "later")
            elif flags & 6 == 4:
                peer.engine.put_pubrec(packet_id)


class Server(Peer):
    """Lets everybody in but those who are called ``refused``; every fifth SUBSCRIBE is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Connection(self, now=0.0)

    def on_connect(self, connect: Connect) -> None:
        self.note("CONNECT", connect)
        if connect.client_id == "refused":
            self.engine.refuse(Reason.BANNED, "go away")
        elif connect.authentication_method is not None:
            self.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"more", "please")
        else:
            self._accept()

    def _accept(self) -> None:
        self.engine.accept(
            False, ConnackProperties(receive_maximum=3, maximum_packet_size=1500, topic_alias_maximum=2)
        )

    def on_auth(self, auth: Auth) -> None:
        super().on_auth(auth)
        if self.engine.is_open:
            self.engine.put_auth(Reason.SUCCESS)
        else:
            self._accept()

    def on_subscribe(self, subscribe: Subscribe) -> None:
        self.note("SUBSCRIBE", subscribe)
        if len(self.heard) % 5 == 4:
            raise RemoteError("amqp:resource-limit-exceeded", "too much")
        self.engine.put_suback(subscribe.packet_id, [item.qos for item in subscribe.filters], "so be it")

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        self.note("UNSUBSCRIBE", unsubscribe)
        self.engine.put_unsuback(unsubscribe.packet_id, [Reason.NO_SUBSCRIPTION_EXISTED] * len(unsubscribe.filters))

    def on_disconnect(self, reason: int, session_expiry_s: int | None) -> bool:
        self.note("DISCONNECT", reason, session_expiry_s)
        return True


class Client(Peer):
    """A client that subscribes, and goes on with any authentication."""

    def __init__(self, version: Version) -> None:
        super().__init__()
        connect = Connect(version, "c", keep_alive_s=10)
        if version is V5:
            connect = Connect(V5, "c", keep_alive_s=10, receive_maximum=3, maximum_packet_size=1500,
                              topic_alias_maximum=2, authentication_method="X")  # fmt: skip
        self.engine = ClientConnection(self, connect, now=0.0)

    def on_connack(self, connack: Connack) -> None:
        self.note("CONNACK", connack)
        if not connack.reason:
            self.engine.put_subscribe(Subscribe(1, [Filter("#")]))

    def on_auth(self, auth: Auth) -> None:
        super().on_auth(auth)
        self.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, b"3")

    def on_suback(self, packet_id: int, reasons: bytes) -> None:
        self.note("SUBACK", packet_id, reasons)

    def on_unsuback(self, packet_id: int, reasons: bytes) -> None:
        self.note("UNSUBACK", packet_id, reasons)

    def on_pingresp(self) -> None:
        self.note("PINGRESP", True)

    def on_disconnect(self, disconnect: Disconnect) -> None:
        self.note("DISCONNECT", disconnect)


def _talk(engine: Engine, peer: Peer, pieces: Sequence[bytes]) -> bytes:
    """Give an engine all pieces, and return what it says."""
    for piece in pieces:
        engine.receive(piece, 0.0)
        while peer.is_holding:
            peer.is_holding = False
            engine.hold_input(False)
            engine.receive(b"", 0.0)
    said = b"".join(engine.pending_output())
    if is_measured():
        held = held_bytes(engine, peer)
        fed = sum(map(len, pieces))
        if held > HELD_AT_ALL + HELD_PER_BYTE * fed:
            raise BrokenBoundError(f"an engine holds {held} bytes after {fed} bytes of input")
    for now in (1.0, 20.0, 200.0, 400.0):
        engine.handle_deadline(now)
    engine.lost()
    assert engine.closed
    assert engine.next_deadline() is None
    assert peer.is_closed
    return said


def _run(data: bytes, *, is_server: bool) -> None:
    if not data:
        return
    version = VERSIONS[data[0] >> 4 & 3]
    opening = b""
    if data[0] & IS_OPENED:
        if is_server:
            opening = encode_connect(Connect(version, "c", keep_alive_s=10, topic_alias_maximum=3))
        else:
            told = ConnackProperties(authentication_method="X" if version is V5 else None)
            opening = encode_connack(version, Connack(False, 0, told))
    results = []
    for head in sorted({0, data[0] & 7 or 1}):
        peer = Server() if is_server else Client(version)
        said = _talk(peer.engine, peer, [opening, *cut(head, data[1:])] if opening else cut(head, data[1:]))
        results.append((peer.heard, said))
    assert results[0] == results[-1], f"cut, a stream means something else: {results!r:.2000}"
    splitter = Splitter()
    packets = splitter.feed(results[0][1])
    assert not splitter.is_lost, "an engine says what is no packet"
    assert sum(map(len, packets)) == len(results[0][1]), "an engine says an incomplete packet"


def run_server(data: bytes) -> None:
    """However a client's stream is cut, it means the same; little is held, and the end is in order."""
    _run(data, is_server=True)


def run_client(data: bytes) -> None:
    """The same for a server's stream."""
    _run(data, is_server=False)


def run_trace(data: bytes) -> None:
    """However bytes come, an observer finds the same packets, and can mask, shorten and describe each."""
    if not data:
        return
    whole = Splitter().feed(data[1:])
    splitter = Splitter()
    assert whole == [item for piece in cut(data[0] & 7 or 1, data[1:]) for item in splitter.feed(piece)]
    for item in whole:
        masked = mask(item)
        assert len(masked) == len(item), "masking changes the length"
        assert describe(masked, 5)
        assert describe(shorten(masked, 3), 3)


def _seeds(words: Sequence[bytes]) -> list[bytes]:
    opened = [bytes((IS_OPENED | version << 4 | 1,)) + word for version in range(3) for word in words]
    return [b"\1" + word for word in words] + opened


MQTT_TARGET = Target("mqtt", run_server, lambda: _seeds(CLIENTS_PACKETS), LARGEST_BYTES, mutate_clients_packets)
MQTT_CLIENT_TARGET = Target(
    "mqtt-client", run_client, lambda: _seeds(SERVERS_PACKETS), LARGEST_BYTES, mutate_servers_packets
)
MQTT_TRACE_TARGET = Target(
    "mqtt-trace", run_trace, lambda: _seeds((*CLIENTS_PACKETS, *SERVERS_PACKETS)), LARGEST_BYTES, mutate_any_packets
)
