"""The base of both ends of an MQTT connection: bytes in, messages and their acknowledgements, the end.

Rules:
1. A packet is parsed in place. Only one that is cut by the end of a read is copied.
2. Messages go to a *sink*, cached by the bytes of topic and properties: a peer that says them again has them parsed
   once.
3. An error ends the connection [MQTT-4.13.1-1]. A peer of version 5 is told the reason; others see it close. What
   the peer still sends is ignored until it has had time to read that.
4. Nothing is sent after the last words [MQTT-3.14.4-1], whatever the handler still writes.
5. The engine has no clock: time comes with ``receive`` and ``handle_deadline``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from enmasse.errors import RemoteError, kept
from enmasse.wire.mqtt.fields import Cursor
from enmasse.wire.mqtt.handler import NOBODY, PeerHandler, PublishSink
from enmasse.wire.mqtt.output import PUBACK, PUBCOMP, PUBREC, PUBREL, Output
from enmasse.wire.mqtt.packets import (
    MAX_CONTROL_BYTES,
    MAX_PACKET_BYTES,
    PacketError,
    PacketType,
    Reason,
    Version,
    malformed,
    protocol_error,
    reason_of,
)
from enmasse.wire.mqtt.reading import read_acknowledgement, read_publish_properties
from enmasse.wire.mqtt.topics import check_name

SLICE_BYTES = 4 << 10
"""The bytes that are parsed before ``is_late`` is asked if other connections wait."""

MAX_SINKS = 256
"""The most sinks that a connection caches; most clients use a handful."""

MAX_KNOWN_BYTES = 2 << 10
"""The longest topic and properties that are cached: longer ones are hardly ever repeated."""

FREE_BYTES = 4 << 10
"""The bytes of an incomplete packet that need no room of a shared budget: mostly it was cut by the end of a read."""

LINGER_S = 1.0
"""Seconds for a peer to read the last words, as closing a socket with unread bytes discards what was sent."""

UNLIMITED = 1 << 30
"""A receive maximum where there is none, as before version 5."""

_ACKS = frozenset((PUBACK, PUBREC, PUBREL, PUBCOMP))

_FLAGS = dict.fromkeys(PacketType, 0) | {
    PacketType.PUBREL: 2,
    PacketType.SUBSCRIBE: 2,
    PacketType.UNSUBSCRIBE: 2,
}
"""The lower four bits of the first byte [MQTT-2.1.3-1]; those of PUBLISH have a meaning."""

_DUP = 8


class Phase(Enum):
    """The phase that a connection is in."""

    CONNECT = auto()
    """The first packet, CONNECT or its answer, has not come."""
    ASKED = auto()
    """This end has to answer CONNECT, or an AUTH before that."""
    AUTHENTICATING = auto()
    """The client has to send AUTH, before CONNECT is answered."""
    OPEN = auto()
    LINGER = auto()
    """The last words were sent; input is ignored."""
    DONE = auto()


class Engine(Output):
    """One end of an MQTT connection.

    Args:
        handler: acts on the peer's packets.
        now: the time in seconds.

    Attributes:
        error: the error for which this end closed the connection.
        more_room: called with a number of bytes; returns true if an incomplete packet may take that many. 0 gives the
            room back.
        keep_alive_s: the keep-alive that counts; 0 if there is none.
    """

    __slots__ = (
        "_alias_maximum", "_aliases", "_holds_room", "_last_received", "_linger_until",
        "_maximum_bytes", "_needed", "_phase", "_reads", "_receive_maximum", "_rest", "_sinks", "error", "has_more",
        "is_held", "is_late", "keep_alive_s", "more_room",
    )  # fmt: skip

    is_server: ClassVar[bool]

    def __init__(self, handler: PeerHandler, *, now: float) -> None:
        super().__init__(handler)
        self.error: RemoteError | None = None
        self.is_late: Callable[[bool], bool] = _never
        self.more_room: Callable[[int], bool] = _always
        self.has_more = False
        self.is_held = False
        self.keep_alive_s = 0
        self._phase = Phase.CONNECT
        self._reads = True
        """True while packets are handled: the connection has not ended, and its input is not held."""
        self._last_received = now
        self._linger_until = 0.0
        self._rest = bytearray()
        """The beginning of an incomplete packet; with ``has_more``, packets that were not parsed yet."""
        self._needed = 0
        """The bytes that are needed to go on with an incomplete packet."""
        self._holds_room = False
        self._maximum_bytes = MAX_PACKET_BYTES
        self._receive_maximum = UNLIMITED
        self._sinks: dict[bytes, PublishSink] = {}
        self._aliases: dict[int, tuple[str, list[bytes]]] = {}
        """The topics of the peer's aliases, and the keys with them whose sinks are good as long as that is so."""
        self._alias_maximum = 0

    @property
    def closed(self) -> bool:
        """True if the socket can be closed once the output is written."""
        return self._phase is Phase.DONE

    @property
    def is_open(self) -> bool:
        """True while the client is connected and admitted."""
        return self._phase is Phase.OPEN

    @property
    def unread(self) -> bytes:
        """The bytes of an incomplete packet, or of packets that were not parsed yet."""
        return bytes(self._rest)

    # What differs between the ends

    def _read_packet(self, first: int, data: bytes, begin: int, stop: int) -> None:
        """Handle a packet other than PUBLISH and its acknowledgements; ``begin`` is after its fixed header."""
        raise NotImplementedError

    def _require_allowed(self, kind: int) -> None:
        """Require that the peer may send a packet of this type now."""
        raise NotImplementedError

    def _last_words(self, error: RemoteError, reason: Reason, server_reference: str) -> bytes:
        """Return the packet that tells the peer why the connection ends; empty if there is none."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``, by the clock given to ``receive``."""
        raise NotImplementedError

    def handle_deadline(self, now: float) -> None:
        """Do what is due: mostly, end the connection of a peer that is late."""
        raise NotImplementedError

    # Input

    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer; all that follows is in ``out``, and the handler has been called."""
        self._last_received = now
        if self._phase in (Phase.LINGER, Phase.DONE):
            return
        if self.trace is not None and data:
            self.trace(False, data)
        rest = self._rest
        if self.is_held:
            if data:
                rest += data
                self.has_more = True
            return
        if rest:
            rest += data
            if not self.has_more and len(rest) < self._needed:
                try:
                    self._require_room()
                except PacketError as error:
                    self.fail(error)
                return
            data = bytes(rest)
            self._forget_rest()
        self.has_more = False
        if data:
            self._read(data)

    def _put_off(self, data: bytes, at: int) -> None:
        """Keep the rest for later, as others wait or as it cannot be handled now."""
        if at < len(data) and self._phase not in (Phase.LINGER, Phase.DONE):
            self._rest += data[at:]
            self.has_more = True

    def _keep(self, data: bytes, at: int, needed: int) -> None:
        """Keep the beginning of a packet, of which so many bytes are needed to go on."""
        self._rest += data[at:] if at else data
        self._needed = needed
        self._require_room()

    def _require_room(self) -> None:
        size = len(self._rest)
        if size > FREE_BYTES:
            self._holds_room = True
            if not self.more_room(size):
                raise PacketError(
                    Reason.QUOTA_EXCEEDED,
                    "there is no room for packets that are not complete: send smaller ones, or later",
                )

    def _forget_rest(self) -> None:
        self._rest.clear()
        if self._holds_room:
            self._holds_room = False
            self.more_room(0)

    def hold_input(self, is_held: bool) -> None:
        """Stop reading, or read on; for a handler that cannot pass messages on.

        Until CONNECT is answered, the input stays held.
        """
        if is_held is not self.is_held and (is_held or self._phase is not Phase.ASKED):
            self.is_held = is_held
            self._reads = not is_held and self._phase not in (Phase.LINGER, Phase.DONE)
            self.wake(self)

    def forget_sinks(self) -> None:
        """Drop the cached sinks, so that the handler is asked for new ones."""
        self._sinks.clear()
        for _, keys in self._aliases.values():
            keys.clear()

    # Packets

    def _read(self, data: bytes) -> None:
        """Handle the packets of ``data``, and keep the beginning of an incomplete last one."""
        at = 0
        end = len(data)
        mark = SLICE_BYTES
        is_hot = True
        sinks = self._sinks
        handler = self._handler
        is_open = self._phase is Phase.OPEN
        is_v5 = self.version is Version.V5
        maximum = self._maximum_bytes
        try:
            while at < end:
                if at >= mark:
                    if self.is_late(is_hot):
                        self._put_off(data, at)
                        return
                    mark = at + SLICE_BYTES
                    is_hot = True
                begin = at + 2
                if begin > end:
                    self._keep(data, at, 2)
                    return
                first = data[at]
                size = data[at + 1]
                if size > 127:
                    if begin < end and 0 < data[begin] < 128:
                        size += (data[begin] << 7) - 128
                        begin += 1
                    else:
                        begin, size = self._read_length(data, at)
                        if not begin:
                            self._keep(data, at, end - at + 1)
                            return
                stop = begin + size
                if stop > end or stop - at > maximum:
                    self._require_packet(first, stop - at)
                    self._keep(data, at, stop - at)
                    return
                if first >> 4 == 3:
                    if is_open and size > 2:
                        topic_end = begin + 2 + (data[begin] << 8) + data[begin + 1]
                        body_at = topic_end + 2 if first & 6 else topic_end
                        key = data[begin:topic_end]
                        if is_v5:
                            # Without properties, or with a length of two bytes, a key is none that is in the cache.
                            length = data[body_at] if body_at < stop else 128
                            if length:
                                key += data[body_at : body_at + length + 1]
                            body_at += length + 1
                        sink = sinks.get(key)
                        if sink is not None and body_at <= stop:
                            if first < 0x32:
                                at = stop
                                sink.on_publish(data[body_at:stop], first & 1, 0)
                                if self._reads:
                                    continue
                                self._put_off(data, at)
                                return
                            packet_id = (data[topic_end] << 8) + data[topic_end + 1] if 0 < first & 6 < 6 else 0
                            if packet_id:
                                at = stop
                                self._unanswered += 1
                                if self._unanswered > self._receive_maximum:
                                    raise self._too_many()
                                sink.on_publish(data[body_at:stop], first & 15, packet_id)
                                if self._reads:
                                    continue
                                self._put_off(data, at)
                                return
                elif size == 2 and is_open and first in _ACKS:
                    packet_id = (data[begin] << 8) + data[begin + 1]
                    if packet_id:
                        at = stop
                        if first == PUBACK:
                            handler.on_puback(packet_id, 0)
                        elif first == PUBREC:
                            handler.on_pubrec(packet_id, 0)
                        elif first == PUBREL:
                            handler.on_pubrel(packet_id, 0)
                        else:
                            handler.on_pubcomp(packet_id, 0)
                        if self._reads:
                            continue
                        self._put_off(data, at)
                        return
                self._require_packet(first, stop - at)
                mark = at = stop
                is_hot = False
                if first >> 4 == 3:
                    self._read_publish(first, data, begin, stop)
                elif 4 <= first >> 4 <= 7:
                    self._read_acknowledgement(first, data, begin, stop)
                else:
                    self._read_packet(first, data, begin, stop)
                if not self._reads:
                    self._put_off(data, at)
                    return
                is_open = self._phase is Phase.OPEN
                is_v5 = self.version is Version.V5
                maximum = self._maximum_bytes
        except RemoteError as error:
            self.fail(error)

    def _read_length(self, data: bytes, at: int) -> tuple[int, int]:
        """Return the end of the fixed header at ``at`` and its remaining length; zeros if it is incomplete."""
        size = data[at + 1] & 127
        for place in range(at + 2, at + 5):
            if place >= len(data):
                return 0, 0
            byte = data[place]
            size |= (byte & 127) << 7 * (place - at - 1)
            if byte < 128:
                if not byte and self.version is Version.V5:  # [MQTT-1.5.5-1]
                    raise malformed("the remaining length has more bytes than it takes")
                return place + 1, size
        raise malformed("the remaining length has more than four bytes")

    def _require_packet(self, first: int, size: int) -> None:
        """Require that a packet may come now, with these flags and this size, header included."""
        kind = first >> 4
        if not kind:
            raise malformed("there is no packet of type 0")
        self._require_allowed(kind)
        flags = first & 15
        if kind == PacketType.PUBLISH:
            if flags & 6 == 6:  # [MQTT-3.3.1-4]
                raise malformed("a message's QoS is 0, 1 or 2")
            if flags & _DUP and not flags & 6:  # [MQTT-3.3.1-2]
                raise malformed("a message of QoS 0 is not sent again, and yet DUP is set")
        else:
            required = _FLAGS[PacketType(kind)]
            if flags != required and not (self.version is Version.V3_1 and required and flags == required | _DUP):
                raise malformed(f"the flags of {PacketType(kind).name} are {required:#x}, not {flags:#x}")
        maximum = self._maximum_bytes
        if kind != PacketType.PUBLISH:
            maximum = min(maximum, MAX_CONTROL_BYTES)
        if size > maximum:
            raise PacketError(
                Reason.PACKET_TOO_LARGE, f"{PacketType(kind).name} has up to {maximum} bytes here, not {size}"
            )

    # Messages and their acknowledgements

    def _read_publish(self, first: int, data: bytes, begin: int, stop: int) -> None:
        """Handle a PUBLISH without a cached sink."""
        cursor = Cursor(data, begin, stop)
        topic = cursor.text()
        key_end = properties_at = cursor.at
        packet_id = 0
        if first & 6:
            packet_id = cursor.packet_id()
            properties_at = cursor.at
        properties, alias = None, 0
        if self.version is Version.V5:
            properties, alias = read_publish_properties(cursor, is_from_client=self.is_server)
        body_at = cursor.at
        if packet_id:
            self._unanswered += 1
            if self._unanswered > self._receive_maximum:
                raise self._too_many()
        if topic or not alias:
            check_name(topic)
        if alias:
            topic = self._resolve(topic, alias)
        sink = self._handler.make_sink(topic, properties)
        # One byte is a length of 0, which is no part of the key; lengths of more than one byte are not looked for.
        size = body_at - properties_at
        key = data[begin:key_end] + (data[properties_at:body_at] if size > 1 else b"")
        if sink.is_lasting and len(key) <= MAX_KNOWN_BYTES and size <= 128:
            if len(self._sinks) >= MAX_SINKS:
                self.forget_sinks()
            self._sinks[key] = sink
            if alias:
                self._aliases[alias][1].append(key)
        sink.on_publish(data[body_at:stop], first & 15, packet_id)

    def _resolve(self, topic: str, alias: int) -> str:
        """Return the topic of an alias, which a topic beside it defines."""
        if alias > self._alias_maximum:  # [MQTT-3.3.2-9], [MQTT-3.3.2-11]
            raise PacketError(
                Reason.TOPIC_ALIAS_INVALID, f"a topic alias is {self._alias_maximum} or less, not {alias}"
            )
        known = self._aliases.get(alias)
        if not topic:
            if known is None:
                raise protocol_error(f"the topic alias {alias} stands for nothing yet")
            return known[0]
        if known is None or known[0] != topic:
            if known is not None:
                for key in known[1]:
                    self._sinks.pop(key, None)
            self._aliases[alias] = topic, []
        return topic

    def _too_many(self) -> PacketError:
        return PacketError(
            Reason.RECEIVE_MAXIMUM_EXCEEDED,
            f"up to {self._receive_maximum} messages of QoS 1 and 2 may be without their answers",
        )

    def _read_acknowledgement(self, first: int, data: bytes, begin: int, stop: int) -> None:
        kind = first >> 4
        cursor = Cursor(data, begin, stop)
        if self.version is Version.V5:
            packet_id, reason = read_acknowledgement(cursor, kind)
        else:
            packet_id, reason = cursor.packet_id(), 0
            cursor.end()
        handler = self._handler
        if kind == PacketType.PUBACK:
            handler.on_puback(packet_id, reason)
        elif kind == PacketType.PUBREC:
            handler.on_pubrec(packet_id, reason)
        elif kind == PacketType.PUBREL:
            handler.on_pubrel(packet_id, reason)
        else:
            handler.on_pubcomp(packet_id, reason)

    # The end

    def fail(self, error: RemoteError, reason: Reason | None = None, *, server_reference: str = "") -> None:
        """End the connection, and tell the peer why if its version can.

        Args:
            error: the error.
            reason: the reason code; without it, the error's own.
            server_reference: another server to use.
        """
        if self._phase in (Phase.LINGER, Phase.DONE):
            return
        self.error = kept(error)
        self._leave(self._last_words(error, reason_of(error) if reason is None else reason, server_reference))

    def close(self) -> None:
        """Close the connection once the output is written, without a word."""
        if self._phase in (Phase.LINGER, Phase.DONE):
            self._end()
        else:
            self._leave(b"")

    def lost(self) -> None:
        """End the connection, as the socket is closed."""
        self.close()

    def _leave(self, words: bytes, *, lingers: bool = True) -> None:
        self._put_last(words)
        self._phase = Phase.LINGER if words and lingers else Phase.DONE
        self._linger_until = self._last_received + LINGER_S
        self.has_more = False
        self.is_held = False
        self._reads = False
        self._forget_rest()
        self.forget_sinks()
        self._aliases.clear()
        self._handler.on_closed(self.error)
        self._forget_handler()
        self.wake(self)

    def _forget_handler(self) -> None:
        """Let go of the handler, which knows this engine, as it has heard of the end."""
        self._handler = NOBODY
        self.more_room = _always

    def _end(self) -> None:
        if self._phase is not Phase.DONE:
            self._phase = Phase.DONE
            self.wake(self)


def _never(_is_hot: bool) -> bool:
    return False


def _always(_size: int) -> bool:
    return True
