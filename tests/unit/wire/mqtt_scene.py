"""A server's end of an MQTT connection, a client's, and handlers that note what they are told."""

from __future__ import annotations

from typing import Any, Self

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.client import ClientConnection
from enmasse.wire.mqtt.connection import Connection
from enmasse.wire.mqtt.fields import Cursor
from enmasse.wire.mqtt.packets import (
    Auth,
    Connack,
    ConnackProperties,
    Connect,
    Disconnect,
    PublishProperties,
    Subscribe,
    Unsubscribe,
    Version,
)
from enmasse.wire.mqtt.reading import read_connack, read_disconnect
from enmasse.wire.mqtt.trace import Splitter
from enmasse.wire.mqtt.writing import NO_PROPERTIES, encode_connect, encode_publish

V5, V4, V3 = Version.V5, Version.V3_1_1, Version.V3_1
VERSIONS = (V4, V5)
FULL = PublishProperties(1, 60, "text/plain", "answers", b"\0\1", [("b", "2"), ("a", "1"), ("b", "3")])
PLAIN = {V3: b"", V4: b"", V5: NO_PROPERTIES}


def packet(first: int, *parts: bytes) -> bytes:
    """A packet, whatever it holds."""
    body = b"".join(parts)
    size = len(body)
    length = b""
    while size > 127:
        length += bytes((size & 127 | 128,))
        size >>= 7
    return bytes((first,)) + length + bytes((size,)) + body


def text(data: str | bytes) -> bytes:
    """A length of two bytes and text."""
    data = data.encode() if isinstance(data, str) else data
    return len(data).to_bytes(2, "big") + data


def properties(*parts: bytes) -> bytes:
    """Properties with their length."""
    body = b"".join(parts)
    return packet(0, body)[1:]


def connect_packet(version: Version = V4, **fields: Any) -> bytes:
    """A CONNECT of a client ``c``."""
    return encode_connect(Connect(version, fields.pop("client_id", "c"), **fields))


def publish(version: Version, topic: str = "t", payload: bytes = b"x", qos: int = 0, packet_id: int = 0) -> bytes:
    """A PUBLISH without properties."""
    return encode_publish(topic.encode(), payload, qos, packet_id=packet_id, properties=PLAIN[version])


def topics(heard: list[tuple[object, ...]]) -> list[object]:
    """The topics of messages that were told."""
    return [what[1] if what[0] == "PUBLISH" else what[0] for what in heard]


class Noted:
    """Takes messages with the same topic and properties."""

    def __init__(self, heard: list[tuple[Any, ...]], topic: str, told: PublishProperties | None) -> None:
        self.is_lasting = True
        self._heard = heard
        self._topic = topic
        self._told = told

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        self._heard.append(("PUBLISH", self._topic, payload, flags, packet_id, self._told))


class Peer:
    """What handlers of both ends note."""

    engine: Any

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.auths: list[Auth] = []
        self.sinks = 0
        self.refused_topic = ""

    def is_closed(self) -> bool:
        """Whether the socket can go."""
        return bool(self.engine.closed)

    def said(self) -> bytes:
        """What the engine has put out."""
        return b"".join(self.engine.pending_output())

    def packets(self) -> list[bytes]:
        """The packets that the engine has put out."""
        splitter = Splitter()
        found = splitter.feed(self.said())
        assert not splitter.is_lost
        return found

    def hear(self, *data: bytes, now: float = 0.0) -> list[tuple[Any, ...]]:
        """Give bytes to the engine, and return what the handler was told of them."""
        self.heard.clear()
        for piece in data:
            self.engine.receive(piece, now)
        return list(self.heard)

    def make_sink(self, topic: str, told: PublishProperties | None) -> Noted:
        self.sinks += 1
        if topic == self.refused_topic:
            raise RemoteError("amqp:unauthorized-access", f"{topic} is not yours")
        return Noted(self.heard, topic, told)

    def on_puback(self, packet_id: int, reason: int) -> None:
        self.heard.append(("PUBACK", packet_id, reason))

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        self.heard.append(("PUBREC", packet_id, reason))

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        self.heard.append(("PUBREL", packet_id, reason))

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        self.heard.append(("PUBCOMP", packet_id, reason))

    def on_auth(self, auth: Auth) -> None:
        self.auths.append(auth)
        self.heard.append(("AUTH", auth.reason, auth.data))

    def on_blocked(self, is_blocked: bool) -> None:
        self.heard.append(("blocked", is_blocked))

    def on_written(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self.heard.append(("closed", None if error is None else str(error).partition(": ")[2]))


class Scene(Peer):
    """A server that lets everybody in, unless told otherwise."""

    engine: Connection

    def __init__(self, told: ConnackProperties | None = None, *, lets_in: bool = True) -> None:
        super().__init__()
        self._told = told
        self._lets_in = lets_in
        self.engine = Connection(self, now=0.0)

    def opened(self, version: Version = V4, **fields: Any) -> Self:
        """With a client that is connected."""
        self.engine.receive(connect_packet(version, **fields), 0.0)
        assert self.packets()[0][0] == 0x20
        self.heard.clear()
        return self

    def goodbye(self) -> Disconnect | None:
        """The DISCONNECT that the engine has put out as its only packet; None if there was nothing."""
        said = self.packets()
        if not said:
            return None
        (only,) = said
        assert only[0] == 0xE0
        return read_disconnect(Cursor(only, 2, len(only)), self.engine.version, is_from_client=False)

    def connack(self) -> Connack:
        """The CONNACK that the engine has put out as its only packet."""
        (only,) = self.packets()
        assert only[0] == 0x20
        return read_connack(Cursor(only, 2, len(only)), V5 if len(only) > 4 else V4)

    def on_connect(self, connect: Connect) -> None:
        self.heard.append(("CONNECT", connect))
        if self._lets_in:
            self.engine.accept(False, self._told)

    def on_subscribe(self, subscribe: Subscribe) -> None:
        self.heard.append(("SUBSCRIBE", subscribe))

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        self.heard.append(("UNSUBSCRIBE", unsubscribe))

    def on_disconnect(self, reason: int, session_expiry_s: int | None) -> bool:
        self.heard.append(("DISCONNECT", reason, session_expiry_s))
        return True


class ClientScene(Peer):
    """A client."""

    engine: ClientConnection

    def __init__(self, version: Version = V5, **fields: Any) -> None:
        super().__init__()
        self.engine = ClientConnection(self, Connect(version, fields.pop("client_id", "c"), **fields), now=0.0)

    def opened(self, *told: bytes) -> Self:
        """With a server that has let it in, and told it these properties."""
        self.said()
        rest = properties(*told) if self.engine.version is V5 else b""
        self.engine.receive(packet(0x20, b"\0\0", rest), 0.0)
        assert self.engine.is_open
        self.heard.clear()
        return self

    def on_connack(self, connack: Connack) -> None:
        self.heard.append(("CONNACK", connack))

    def on_suback(self, packet_id: int, reasons: bytes) -> None:
        self.heard.append(("SUBACK", packet_id, reasons))

    def on_unsuback(self, packet_id: int, reasons: bytes) -> None:
        self.heard.append(("UNSUBACK", packet_id, reasons))

    def on_pingresp(self) -> None:
        self.heard.append(("PINGRESP",))

    def on_disconnect(self, disconnect: Disconnect) -> None:
        self.heard.append(("DISCONNECT", disconnect))
