"""A client of MQTT that says and hears packets, and answers nothing by itself: for tests of what a node answers."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

from enmasse.wire.mqtt.client import ClientConnection
from enmasse.wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    Version,
)
from enmasse.wire.mqtt.writing import encode_publish, encode_publish_properties

__all__ = ["Heard", "MqttPeer", "MqttVoice"]

WAIT_S = 60.0


@dataclass(slots=True)
class Heard:
    """What a client is told.

    Attributes:
        kind: the packet's name, in lower case.
        reason: its reason code.
        codes: those of a SUBACK or UNSUBACK.
        said: the packet, where it has many fields.
    """

    kind: str
    packet_id: int = 0
    reason: int = 0
    codes: list[int] = field(default_factory=list)
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    is_retained: bool = False
    is_duplicate: bool = False
    properties: PublishProperties | None = None
    said: Any = None


class _Sink:
    is_lasting = True

    def __init__(self, voice: MqttVoice, topic: str, properties: PublishProperties | None) -> None:
        self._voice = voice
        self._topic = topic
        self._properties = properties

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        self._voice.heard.append(
            Heard(
                "publish",
                packet_id,
                topic=self._topic,
                payload=payload,
                qos=(flags >> 1) & 3,
                is_retained=bool(flags & 1),
                is_duplicate=bool(flags & 8),
                properties=self._properties,
            )
        )


class MqttVoice:
    """The engine of a client, without a socket, and what it was told.

    Args:
        connect: its CONNECT.
        now: the time.
    """

    def __init__(self, connect: Connect, now: float = 0.0) -> None:
        self.heard: deque[Heard] = deque()
        self.engine = ClientConnection(self, connect, now=now)
        self.is_closed = False
        self._packet_id = 0

    @property
    def is_v5(self) -> bool:
        """True if it speaks version 5."""
        return self.engine.version is Version.V5

    # What it says

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **options: Any) -> int:
        """Send a message, and return its packet identifier."""
        packet_id: int = options.pop("packet_id", 0)
        if qos and not packet_id:
            self._packet_id += 1
            packet_id = self._packet_id
        properties = options.pop("properties", None)
        encoded = encode_publish_properties(properties) if self.is_v5 else b""
        self.engine.put(
            encode_publish(topic.encode(), payload, qos, packet_id=packet_id, properties=encoded, **options)
        )
        return packet_id

    def subscribe(self, *filters: str | Filter, qos: int = 0, identifier: int = 0) -> None:
        """Ask for subscriptions."""
        self._packet_id += 1
        wanted = [Filter(one, qos) if isinstance(one, str) else one for one in filters]
        self.engine.put_subscribe(Subscribe(self._packet_id, wanted, identifier))

    def unsubscribe(self, *filters: str) -> None:
        """Ask for the end of subscriptions."""
        self._packet_id += 1
        self.engine.put_unsubscribe(Unsubscribe(self._packet_id, list(filters)))

    def acknowledge(self, message: Heard, reason: int = 0) -> None:
        """Answer a message: PUBACK, or PUBREC."""
        if message.qos == 1:
            self.engine.put_puback(message.packet_id, reason)
        else:
            self.engine.put_pubrec(message.packet_id, reason)

    # What it hears

    def make_sink(self, topic: str, properties: PublishProperties | None) -> Any:
        """Keep messages of a topic."""
        return _Sink(self, topic, properties)

    def _hear(self, kind: str, packet_id: int, reason: int) -> None:
        self.heard.append(Heard(kind, packet_id, reason))

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Keep a PUBACK."""
        self._hear("puback", packet_id, reason)

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Keep a PUBREC."""
        self._hear("pubrec", packet_id, reason)

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        """Keep a PUBREL."""
        self._hear("pubrel", packet_id, reason)

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        """Keep a PUBCOMP."""
        self._hear("pubcomp", packet_id, reason)

    def on_auth(self, auth: Auth) -> None:
        """Keep an AUTH."""
        self.heard.append(Heard("auth", reason=auth.reason, said=auth))

    def on_connack(self, connack: Connack) -> None:
        """Keep a CONNACK."""
        self.heard.append(Heard("connack", reason=connack.reason, said=connack))

    def on_suback(self, packet_id: int, reasons: bytes) -> None:
        """Keep a SUBACK."""
        self.heard.append(Heard("suback", packet_id, codes=list(reasons)))

    def on_unsuback(self, packet_id: int, reasons: bytes) -> None:
        """Keep an UNSUBACK."""
        self.heard.append(Heard("unsuback", packet_id, codes=list(reasons)))

    def on_pingresp(self) -> None:
        """Keep a PINGRESP."""
        self._hear("pingresp", 0, 0)

    def on_disconnect(self, disconnect: Disconnect) -> None:
        """Keep a DISCONNECT."""
        self.heard.append(Heard("disconnect", reason=disconnect.reason, said=disconnect))

    def on_blocked(self, is_blocked: bool) -> None:
        """Do nothing."""

    def on_written(self) -> None:
        """Do nothing."""

    def on_closed(self, error: Exception | None) -> None:
        """Note the end; an error would be the node's."""
        self.is_closed = True
        assert error is None, error


class MqttPeer(MqttVoice):
    """A connection over a socket; an async context manager that connects and waits for CONNACK.

    Args:
        port: on the loopback interface.
        client_id: its name.
        version: of the protocol.
        is_refused: whether that is what is expected.
        tls: the context for TLS; None: in the clear.
        options: of CONNECT.
    """

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(
        self,
        port: int,
        client_id: str = "",
        version: Version = Version.V5,
        *,
        is_refused: bool = False,
        tls: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        super().__init__(Connect(version, client_id, **options))
        self._port = port
        self._tls = tls
        self._is_refused = is_refused
        self.connack: Heard | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await self.dial()
        try:
            self.connack = await self.next("connack")
            assert bool(self.connack.reason) is self._is_refused, self.connack
        except BaseException:
            self._writer.close()
            raise
        return self

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket."""
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def flush(self) -> None:
        """Write what it has to say."""
        self._writer.writelines(self.engine.pending_output())

    async def next(self, *kinds: str) -> Heard:
        """The next packet, which has one of these names."""
        self.flush()
        async with asyncio.timeout(WAIT_S):
            while not self.heard:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError(f"the connection has ended, and {kinds} did not come")
                self.engine.receive(data, 0.0)
        found = self.heard.popleft()
        assert found.kind in kinds, found
        return found

    async def subscribed(self, *filters: str | Filter, qos: int = 0) -> list[int]:
        """Subscribe, and return the codes."""
        self.subscribe(*filters, qos=qos)
        return (await self.next("suback")).codes

    async def answer(self, topic: str, payload: bytes = b"x", qos: int = 1, **options: Any) -> int:
        """Publish with QoS 1 or 2, and return the reason code of the answer."""
        self.publish(topic, payload, qos, **options)
        return (await self.next("puback" if qos == 1 else "pubrec")).reason

    async def message(self) -> Heard:
        """Return the next message, acknowledged."""
        message = await self.next("publish")
        if message.qos:
            self.acknowledge(message)
            self.flush()
        return message

    async def ended(self) -> Heard | None:
        """Wait until the node has closed the connection, and return its DISCONNECT, if it has said one."""
        self.flush()
        last: Heard | None = None
        async with asyncio.timeout(WAIT_S):
            while data := await self._reader.read(65536):
                self.engine.receive(data, 0.0)
        while self.heard:
            found = self.heard.popleft()
            last = found if found.kind == "disconnect" else last
        return last

    def leave(self, reason: int = Reason.SUCCESS, expiry_s: int | None = None) -> None:
        """Say goodbye."""
        self.engine.disconnect(Reason(reason)) if reason else self.engine.put(b"\xe0\x00")
        self.flush()
