"""Reads traces of MQTT: splits bytes into packets, masks secrets, and describes packets as text.

Rules:
1. Nothing is taken on trust: bytes that are no packets are counted and never shown, as they may hold anything.
2. Credentials are masked before a packet is kept or shown; lengths stay.
3. A packet is read by itself. Most do not say of which version they are; then it is told by what fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.fields import Cursor, PropertyId
from enmasse.wire.mqtt.packets import MAX_PACKET_BYTES, Connect, PacketType, Reason, Version, malformed
from enmasse.wire.mqtt.reading import (
    BRIDGE,
    read_auth,
    read_connack,
    read_connect,
    read_disconnect,
    read_publish_properties,
    read_subscribe,
    read_unsubscribe,
    read_version,
)

MAX_OBSERVED_BYTES = MAX_PACKET_BYTES + 5
"""The largest packet that the engine accepts, with its header."""

MAX_VALUE_CHARACTERS = 200
"""The most characters of one value in a description."""

MAX_VALUES = 10
"""The most topic filters in a description."""

_FLAGS = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
_DUP = 8


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Return where the packet at ``at`` has its fields, and its end; zeros if that is not known yet.

    Raises:
        PacketError: this is no packet.
    """
    if at >= len(data):
        return 0, 0
    kind, flags = data[at] >> 4, data[at] & 15
    if not kind or (kind != PacketType.PUBLISH and flags & ~_DUP != _FLAGS.get(PacketType(kind), 0)):
        raise malformed("no packet begins so")
    size = 0
    for place in range(at + 1, at + 5):
        if place >= len(data):
            return 0, 0
        size |= (data[place] & 127) << 7 * (place - at - 1)
        if data[place] < 128:
            if size > MAX_PACKET_BYTES:
                raise malformed("no packet is so large")
            return place + 1, place + 1 + size
    raise malformed("no packet has such a length")


class Splitter:
    """Splits the bytes of one direction into packets.

    Args:
        begun: the beginning of a packet that was received before.
    """

    __slots__ = ("_needed", "_rest", "is_lost")

    def __init__(self, begun: bytes = b"") -> None:
        self._rest = bytearray(begun)
        self._needed = 0
        self.is_lost = False
        """True after bytes that are no packet: packets after them cannot be found."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the packets that are complete now, in order; ``b""`` is the last before bytes that are no packet."""
        if self.is_lost:
            return []
        rest = self._rest
        rest += data
        if len(rest) < self._needed:
            return []
        data = bytes(rest)
        rest.clear()
        self._needed = 0
        found: list[bytes] = []
        at = 0
        while at < len(data):
            try:
                _, stop = _extent(data, at)
            except RemoteError:
                self.is_lost = True
                return [*found, b""]
            if not stop or stop > len(data):
                self._needed = max(0, stop - at)
                break
            found.append(data[at:stop])
            at = stop
        rest += data[at:]
        return found


# Masking


def mask(frame: bytes) -> bytes:
    """Return the packet with passwords and authentication data overwritten by ``*``."""
    kind = frame[0] >> 4 if frame else 0
    if kind not in (PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH):
        return frame
    begin = 0
    try:
        begin, stop = _extent(frame, 0)
        secrets = _secrets(PacketType(kind), Cursor(frame, begin, stop))
    except RemoteError:
        # It may have a secret anywhere.
        return frame[:begin] + b"*" * (len(frame) - begin)
    masked = bytearray(frame)
    for at, end in secrets:
        masked[at:end] = b"*" * (end - at)
    return bytes(masked)


def _secrets(kind: PacketType, cursor: Cursor) -> list[tuple[int, int]]:
    """Return the places of secrets in a packet, by beginning and end."""
    if kind == PacketType.CONNECT:
        return _connect_places(cursor)[0]
    if cursor.is_at_end():
        return []
    cursor.byte()
    if kind == PacketType.CONNACK:
        cursor.byte()
    found = [] if cursor.is_at_end() else _secret_properties(cursor)
    return [*found, (cursor.at, cursor.stop)]


def _connect_places(cursor: Cursor) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Return the places of secrets in a CONNECT, and that of its will's payload."""
    cursor.binary()
    is_v5 = cursor.byte() & ~BRIDGE >= Version.V5
    flags = cursor.byte()
    cursor.two()
    found = _secret_properties(cursor) if is_v5 else []
    cursor.binary()
    will = (0, 0)
    if flags & 4:
        if is_v5:
            found += _secret_properties(cursor)
        cursor.binary()
        will = _field(cursor)
    if flags & 0x80:
        cursor.binary()
    if flags & 0x40:
        found.append(_field(cursor))
    # No field is known that the rest could be.
    return [*found, (cursor.at, cursor.stop)], will


def _field(cursor: Cursor) -> tuple[int, int]:
    """Return the place of a field of binary data, and go on to its end."""
    size = len(cursor.binary())
    return cursor.at - size, cursor.at


_SIZES = {
    PropertyId.PAYLOAD_FORMAT_INDICATOR: 1, PropertyId.MESSAGE_EXPIRY_INTERVAL: 4,
    PropertyId.SESSION_EXPIRY_INTERVAL: 4, PropertyId.SERVER_KEEP_ALIVE: 2, PropertyId.REQUEST_PROBLEM_INFORMATION: 1,
    PropertyId.WILL_DELAY_INTERVAL: 4, PropertyId.REQUEST_RESPONSE_INFORMATION: 1, PropertyId.RECEIVE_MAXIMUM: 2,
    PropertyId.TOPIC_ALIAS_MAXIMUM: 2, PropertyId.TOPIC_ALIAS: 2, PropertyId.MAXIMUM_QOS: 1,
    PropertyId.RETAIN_AVAILABLE: 1, PropertyId.MAXIMUM_PACKET_SIZE: 4, PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
    PropertyId.SUBSCRIPTION_IDENTIFIER_AVAILABLE: 1, PropertyId.SHARED_SUBSCRIPTION_AVAILABLE: 1,
}  # fmt: skip
"""The bytes of properties whose values are numbers; of others, the values say how long they are."""


def _secret_properties(cursor: Cursor) -> list[tuple[int, int]]:
    """Return the places of secrets among properties, and go on to their end."""
    found = []
    size = cursor.variable()
    stop = cursor.at + size
    if stop > cursor.stop:
        raise malformed("the properties are longer than their packet")
    inner = Cursor(cursor.data, cursor.at, stop)
    while not inner.is_at_end():
        number = inner.variable()
        if number in _SIZES:
            for _ in range(_SIZES[PropertyId(number)]):
                inner.byte()
        elif number == PropertyId.SUBSCRIPTION_IDENTIFIER:
            inner.variable()
        else:
            place = _field(inner)
            if number == PropertyId.AUTHENTICATION_DATA:
                found.append(place)
            elif number == PropertyId.USER_PROPERTY:
                inner.binary()
    cursor.at = stop
    return found


# Messages


def _payload_at(frame: bytes) -> int:
    """Return where the payload of a PUBLISH begins."""
    begin, _ = _extent(frame, 0)
    cursor = Cursor(frame, begin, len(frame))
    cursor.binary()
    if frame[0] & 6:
        cursor.two()
    at = cursor.at
    try:
        read_publish_properties(cursor, is_from_client=False)
    except RemoteError:
        return at
    return cursor.at


def shorten(frame: bytes, payload_bytes: int) -> bytes:
    """Return the packet with at most so many bytes of its message; the rest of a will is overwritten by ``*``."""
    kind = frame[0] >> 4 if frame else 0
    try:
        if kind == PacketType.PUBLISH:
            return frame[: _payload_at(frame) + payload_bytes]
        if kind == PacketType.CONNECT:
            begin, stop = _extent(frame, 0)
            _, (at, end) = _connect_places(Cursor(frame, begin, stop))
            at = min(at + payload_bytes, end)
            return frame[:at] + b"*" * (end - at) + frame[end:]
    except RemoteError:
        # What can be read of a CONNECT is not its message; nobody knows where that of a PUBLISH begins.
        return frame[: 2 + payload_bytes] if kind == PacketType.PUBLISH else frame
    return frame


# Descriptions


def describe(frame: bytes, payload_bytes: int = 0) -> str:
    """Return the packet as one line: its type, its fields, the size of its payload, and so many bytes of that."""
    try:
        begin, stop = _extent(frame, 0)
        if not stop:
            raise malformed("it is cut short")
        kind = PacketType(frame[0] >> 4)
        if kind == PacketType.PUBLISH:
            return _describe_publish(frame, stop, payload_bytes)
        words = _words(kind, Cursor(frame, begin, min(stop, len(frame))))
    except RemoteError:
        return f"{len(frame)} bytes that are no packet"
    return " ".join([kind.name, *words])


def _describe_publish(frame: bytes, stop: int, payload_bytes: int) -> str:
    begin, _ = _extent(frame, 0)
    cursor = Cursor(frame, begin, len(frame))
    flags = frame[0] & 15
    words = [f"PUBLISH {_shown(cursor.text())} qos {flags >> 1 & 3}"]
    if flags & 6:
        words.append(f"id {cursor.two()}")
    words += [word for bit, word in ((_DUP, "dup"), (1, "retain")) if flags & bit]
    at = _payload_at(frame)
    words.append(f"payload {stop - at} bytes")
    if payload_bytes and at < len(frame):
        words.append(repr(frame[at : at + payload_bytes]))
    return " ".join(words)


def _words(kind: PacketType, cursor: Cursor) -> list[str]:
    """Return the fields of a packet other than PUBLISH."""
    size = cursor.stop - cursor.at
    if kind == PacketType.CONNECT:
        return _describe_connect(read_connect(cursor, read_version(cursor)))
    if kind == PacketType.CONNACK:
        connack = read_connack(cursor, Version.V5 if size > 2 else Version.V3_1_1)
        words = [_reason(connack.reason) if size > 2 else f"code {connack.reason}"]
        return [*words, "session present"] if connack.is_session_present else words
    if kind in (PacketType.PINGREQ, PacketType.PINGRESP):
        return []
    if kind == PacketType.DISCONNECT:
        return _describe_disconnect(cursor)
    if kind == PacketType.AUTH:
        auth = read_auth(cursor)
        return [_reason(auth.reason), f"method {_shown(auth.method)}"]
    if kind == PacketType.SUBSCRIBE:
        subscribe = _either(read_subscribe, cursor)
        texts = [f"{_shown(item.text)} qos {item.qos}" for item in subscribe.filters]
        return [f"id {subscribe.packet_id}", *_some(texts)]
    if kind == PacketType.UNSUBSCRIBE:
        unsubscribe = _either(read_unsubscribe, cursor)
        return [f"id {unsubscribe.packet_id}", *_some([_shown(text) for text in unsubscribe.filters])]
    words = [f"id {cursor.two()}"]
    rest = cursor.data[cursor.at : cursor.stop]
    if kind in (PacketType.SUBACK, PacketType.UNSUBACK):
        return [*words, f"codes {rest[-MAX_VALUES:].hex(' ')}"] if rest else words
    return [*words, _reason(rest[0])] if rest else words


def _describe_connect(connect: Connect) -> list[str]:
    words = [connect.version.text, f"client {_shown(connect.client_id)}", f"keep-alive {connect.keep_alive_s}"]
    if connect.is_clean:
        words.append("clean")
    if connect.user_name is not None:
        words.append(f"user {_shown(connect.user_name)}")
    if connect.password is not None:
        words.append("password")
    if connect.authentication_method is not None:
        words.append(f"method {_shown(connect.authentication_method)}")
    if connect.version is Version.V5:
        words.append(f"session-expiry {connect.session_expiry_s}")
    will = connect.will
    if will is not None:
        words.append(f"will {_shown(will.topic)} qos {will.qos} payload {len(will.payload)} bytes")
    return words


def _describe_disconnect(cursor: Cursor) -> list[str]:
    if cursor.is_at_end():
        return []
    reason = cursor.data[cursor.at]
    at = cursor.at
    for is_from_client in (False, True):
        cursor.at = at
        try:
            said = read_disconnect(cursor, Version.V5, is_from_client=is_from_client).reason_string
        except RemoteError:
            continue
        return [_reason(reason), *([_shown(said)] if said else ())]
    return [_reason(reason)]


_Read = TypeVar("_Read")


def _either(read: Callable[[Cursor, Version], _Read], cursor: Cursor) -> _Read:
    """Read a packet that does not say its version, by the version that it fits."""
    at = cursor.at
    try:
        return read(cursor, Version.V3_1_1)
    except RemoteError:
        cursor.at = at
        return read(cursor, Version.V5)


def _some(texts: list[str]) -> list[str]:
    return texts if len(texts) <= MAX_VALUES else [*texts[:MAX_VALUES], f"and {len(texts) - MAX_VALUES} more"]


def _shown(text: str) -> str:
    """Return a value, cut, in quotation marks if it has anything but plain characters."""
    cut = text[:MAX_VALUE_CHARACTERS]
    return cut if cut and cut.isprintable() and " " not in cut else repr(cut)


def _reason(code: int) -> str:
    try:
        return Reason(code).name.lower().replace("_", "-")
    except ValueError:
        return f"{code:#04x}"
