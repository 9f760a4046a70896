"""Writes packets: PUBLISH and its acknowledgements quickly, the others plainly.

Text that MQTT cannot carry is made to fit where it only explains (reason strings), and left out where it is a
property of a message: no more than 65,535 bytes, and no U+0000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from enmasse.wire.mqtt.fields import PropertyId
from enmasse.wire.mqtt.packets import (
    DEFAULT_RECEIVE_MAXIMUM,
    Connack,
    ConnackProperties,
    Connect,
    Disconnect,
    PacketType,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    UserProperties,
    Version,
    Will,
)

MAX_FIELD_BYTES = 0xFFFF
MAX_REASON_CHARACTERS = 1000
"""The most characters of a reason string: more help nobody."""

NO_PROPERTIES = b"\0"
"""The properties of version 5 where there are none."""

PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
PINGRESP = bytes((PacketType.PINGRESP << 4, 0))

_P = PropertyId
_Properties = Iterable[tuple[int, bytes]]

encode_short_ack = Struct(">BBH").pack
"""Writes an acknowledgement of four bytes, from its first byte, 2 and the packet identifier."""

_head_1 = Struct(">BBH").pack
_head_2 = Struct(">BBBH").pack
_number = Struct(">H").pack


def encode_variable(value: int) -> bytes:
    """Return a variable byte integer [MQTT 5.0, 1.5.5]."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_packet(first: int, *parts: bytes) -> bytes:
    """Return a packet of these parts behind its fixed header."""
    body = b"".join(parts)
    return bytes((first,)) + encode_variable(len(body)) + body


# Fields


def _two(value: int) -> bytes:
    return value.to_bytes(2, "big")


def _four(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _binary(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _text(text: str) -> bytes:
    return _binary(text.encode())


def _reason_text(text: str) -> bytes:
    return _text(text[:MAX_REASON_CHARACTERS].encode(errors="replace").decode().replace("\0", "\ufffd"))


def is_encodable(text: str) -> bool:
    """Return true if a field of a packet can hold this text."""
    if len(text) > MAX_FIELD_BYTES or "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        return len(text.encode()) <= MAX_FIELD_BYTES
    except UnicodeEncodeError:
        return False


def encode_properties(properties: _Properties) -> bytes:
    """Return properties, given by identifier and value, with their length."""
    body = b"".join([bytes((number,)) + value for number, value in properties])
    return encode_variable(len(body)) + body


def _user_properties(pairs: UserProperties) -> _Properties:
    for name, value in pairs:
        if is_encodable(name) and is_encodable(value):
            yield _P.USER_PROPERTY, _text(name) + _text(value)


def _message(properties: PublishProperties) -> Iterator[tuple[int, bytes]]:
    if properties.payload_format is not None:  # [MQTT-3.3.2-4]
        yield _P.PAYLOAD_FORMAT_INDICATOR, bytes((properties.payload_format,))
    if properties.message_expiry_s is not None:
        yield _P.MESSAGE_EXPIRY_INTERVAL, _four(min(properties.message_expiry_s, 0xFFFF_FFFF))
    if properties.content_type is not None and is_encodable(properties.content_type):
        yield _P.CONTENT_TYPE, _text(properties.content_type)
    if properties.response_topic is not None and is_encodable(properties.response_topic):
        yield _P.RESPONSE_TOPIC, _text(properties.response_topic)
    if properties.correlation_data is not None and len(properties.correlation_data) <= MAX_FIELD_BYTES:
        yield _P.CORRELATION_DATA, _binary(properties.correlation_data)
    yield from _user_properties(properties.user_properties)
    for identifier in properties.subscription_identifiers:
        yield _P.SUBSCRIPTION_IDENTIFIER, encode_variable(identifier)


# PUBLISH


def encode_publish_properties(properties: PublishProperties | None, alias: int = 0) -> bytes:
    """Return the properties of a PUBLISH of version 5, with their length, and with a topic alias unless that is 0."""
    if properties is None:
        return encode_properties([(_P.TOPIC_ALIAS, _two(alias))]) if alias else NO_PROPERTIES
    fields = list(_message(properties))
    if alias:
        fields.append((_P.TOPIC_ALIAS, _two(alias)))
    return encode_properties(fields)


def with_properties(properties: bytes, alias: int = 0, identifiers: Sequence[int] = ()) -> bytes:
    """Return encoded properties of a PUBLISH with a topic alias, unless that is 0, and subscription identifiers.

    Args:
        properties: the bytes that ``encode_publish_properties`` returned.
        alias: the topic alias.
        identifiers: the subscription identifiers.
    """
    added = b"".join([b"\x0b" + encode_variable(identifier) for identifier in identifiers])
    if alias:
        added += b"\x23" + _two(alias)
    body = properties[_length_of_length(properties) :]
    return encode_variable(len(body) + len(added)) + body + added


def _length_of_length(properties: bytes) -> int:
    at = 0
    while properties[at] > 127:
        at += 1
    return at + 1


def encode_publish(
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: bytes = b"",
) -> bytes:
    """Return a PUBLISH.

    Args:
        topic: the topic name in UTF-8; empty if the properties have the alias of one.
        payload: the payload.
        qos: 0, 1 or 2.
        retain: the RETAIN flag.
        dup: whether the message was sent before.
        packet_id: 0 for QoS 0.
        properties: the properties as ``encode_publish_properties`` returns them; empty before version 5.
    """
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    length = len(topic)
    size = 2 + length + len(properties) + len(payload)
    if qos:
        size += 2
    if size < 128:
        head = _head_1(first, size, length)
    elif size < 16384:
        head = _head_2(first, size & 127 | 128, size >> 7, length)
    else:
        head = bytes((first,)) + encode_variable(size) + _number(length)
    if qos:
        return b"".join((head, topic, _number(packet_id), properties, payload))
    return b"".join((head, topic, properties, payload))


def publish_around(topic: bytes, payload: bytes, properties: bytes = b"") -> tuple[bytes, bytes]:
    """Return what precedes and what follows the packet identifier in a PUBLISH of QoS 1 or 2.

    The first byte, which holds the flags, comes before both: many subscribers are sent the same but for these.
    """
    size = 4 + len(topic) + len(properties) + len(payload)
    return encode_variable(size) + _two(len(topic)) + topic, properties + payload


# Acknowledgements


def encode_acknowledgement(first: int, packet_id: int, reason: int, text: str) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP of version 5, with a reason string unless that is empty."""
    if text:
        properties = encode_properties([(_P.REASON_STRING, _reason_text(text))])
        return encode_packet(first, _two(packet_id), bytes((reason,)), properties)
    if reason:
        return bytes((first, 3)) + _two(packet_id) + bytes((reason,))
    return encode_short_ack(first, 2, packet_id)


def encode_codes(first: int, version: Version, packet_id: int, codes: bytes, text: str = "") -> bytes:
    """Return a SUBACK or UNSUBACK with a code for each topic filter, and in version 5 a reason string."""
    if version is not Version.V5:
        return encode_packet(first, _two(packet_id), codes)
    properties = encode_properties([(_P.REASON_STRING, _reason_text(text))]) if text else NO_PROPERTIES
    return encode_packet(first, _two(packet_id), properties, codes)


# The beginning and the end


def encode_connack(version: Version, connack: Connack) -> bytes:
    """Return a CONNACK; before version 5, without its properties."""
    # In 3.1 that byte is reserved.
    head = bytes((connack.is_session_present and version is not Version.V3_1, connack.reason))
    if version is not Version.V5:
        return encode_packet(PacketType.CONNACK << 4, head)
    return encode_packet(PacketType.CONNACK << 4, head, encode_properties(_connack(connack.properties)))


def _connack(properties: ConnackProperties) -> Iterator[tuple[int, bytes]]:
    if properties.session_expiry_s is not None:
        yield _P.SESSION_EXPIRY_INTERVAL, _four(properties.session_expiry_s)
    if properties.receive_maximum != DEFAULT_RECEIVE_MAXIMUM:
        yield _P.RECEIVE_MAXIMUM, _two(properties.receive_maximum)
    if properties.maximum_qos < 2:
        yield _P.MAXIMUM_QOS, bytes((properties.maximum_qos,))
    if properties.maximum_packet_size:
        yield _P.MAXIMUM_PACKET_SIZE, _four(properties.maximum_packet_size)
    if properties.assigned_client_id is not None:
        yield _P.ASSIGNED_CLIENT_IDENTIFIER, _text(properties.assigned_client_id)
    if properties.topic_alias_maximum:
        yield _P.TOPIC_ALIAS_MAXIMUM, _two(properties.topic_alias_maximum)
    if properties.reason_string:
        yield _P.REASON_STRING, _reason_text(properties.reason_string)
    yield from _user_properties(properties.user_properties)
    for number, is_available in (
        (_P.RETAIN_AVAILABLE, properties.has_retain),
        (_P.WILDCARD_SUBSCRIPTION_AVAILABLE, properties.has_wildcards),
        (_P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, properties.has_subscription_identifiers),
        (_P.SHARED_SUBSCRIPTION_AVAILABLE, properties.has_shared_subscriptions),
    ):
        if not is_available:
            yield number, b"\0"
    if properties.server_keep_alive_s is not None:
        yield _P.SERVER_KEEP_ALIVE, _two(properties.server_keep_alive_s)
    if properties.response_information is not None:
        yield _P.RESPONSE_INFORMATION, _text(properties.response_information)
    if properties.server_reference:
        yield _P.SERVER_REFERENCE, _text(properties.server_reference)
    yield from _authentication(properties.authentication_method, properties.authentication_data)


def _authentication(method: str | None, data: bytes | None) -> Iterator[tuple[int, bytes]]:
    if method is not None:
        yield _P.AUTHENTICATION_METHOD, _text(method)
        if data is not None:
            yield _P.AUTHENTICATION_DATA, _binary(data)


def encode_auth(reason: int, method: str, data: bytes | None = None, text: str = "") -> bytes:
    """Return an AUTH."""
    fields = list(_authentication(method, data))
    if text:
        fields.append((_P.REASON_STRING, _reason_text(text)))
    return encode_packet(PacketType.AUTH << 4, bytes((reason,)), encode_properties(fields))


def encode_disconnect(version: Version, disconnect: Disconnect) -> bytes:
    """Return a DISCONNECT; before version 5, without any fields."""
    fields: list[tuple[int, bytes]] = []
    if disconnect.session_expiry_s is not None:
        fields.append((_P.SESSION_EXPIRY_INTERVAL, _four(disconnect.session_expiry_s)))
    if disconnect.reason_string:
        fields.append((_P.REASON_STRING, _reason_text(disconnect.reason_string)))
    if disconnect.server_reference:
        fields.append((_P.SERVER_REFERENCE, _text(disconnect.server_reference)))
    fields += _user_properties(disconnect.user_properties)
    first = PacketType.DISCONNECT << 4
    if version is not Version.V5 or (disconnect.reason == Reason.SUCCESS and not fields):
        return bytes((first, 0))
    if not fields:
        return bytes((first, 1, disconnect.reason))
    return encode_packet(first, bytes((disconnect.reason,)), encode_properties(fields))


# A client's packets


def encode_connect(connect: Connect) -> bytes:
    """Return a CONNECT."""
    is_v5 = connect.version is Version.V5
    will = connect.will
    flags = connect.is_clean << 1
    parts = [_text(connect.client_id)]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.is_retained << 5
        if is_v5:
            parts.append(encode_properties(_will(will)))
        parts += (_text(will.topic), _binary(will.payload))
    if connect.user_name is not None:
        flags |= 0x80
        parts.append(_text(connect.user_name))
    if connect.password is not None:
        flags |= 0x40
        parts.append(_binary(connect.password))
    name = "MQIsdp" if connect.version is Version.V3_1 else "MQTT"
    head = _text(name) + bytes((connect.version, flags)) + _two(connect.keep_alive_s)
    if is_v5:
        head += encode_properties(_connect(connect))
    return encode_packet(PacketType.CONNECT << 4, head, *parts)


def _connect(connect: Connect) -> Iterator[tuple[int, bytes]]:
    if connect.session_expiry_s:
        yield _P.SESSION_EXPIRY_INTERVAL, _four(connect.session_expiry_s)
    if connect.receive_maximum != DEFAULT_RECEIVE_MAXIMUM:
        yield _P.RECEIVE_MAXIMUM, _two(connect.receive_maximum)
    if connect.maximum_packet_size:
        yield _P.MAXIMUM_PACKET_SIZE, _four(connect.maximum_packet_size)
    if connect.topic_alias_maximum:
        yield _P.TOPIC_ALIAS_MAXIMUM, _two(connect.topic_alias_maximum)
    if not connect.wants_problem_information:
        yield _P.REQUEST_PROBLEM_INFORMATION, b"\0"
    if connect.wants_response_information:
        yield _P.REQUEST_RESPONSE_INFORMATION, b"\1"
    yield from _authentication(connect.authentication_method, connect.authentication_data)
    yield from _user_properties(connect.user_properties)


def _will(will: Will) -> Iterator[tuple[int, bytes]]:
    if will.delay_s:
        yield _P.WILL_DELAY_INTERVAL, _four(will.delay_s)
    yield from _message(will.properties)


def encode_subscribe(version: Version, subscribe: Subscribe) -> bytes:
    """Return a SUBSCRIBE."""
    parts = [_two(subscribe.packet_id)]
    if version is Version.V5:
        fields = list(_user_properties(subscribe.user_properties))
        if subscribe.identifier:
            fields.append((_P.SUBSCRIPTION_IDENTIFIER, encode_variable(subscribe.identifier)))
        parts.append(encode_properties(fields))
    for item in subscribe.filters:
        options = item.qos | item.no_local << 2 | item.retain_as_published << 3 | item.retain_handling << 4
        parts.append(_text(item.text) + bytes((options,)))
    return encode_packet(PacketType.SUBSCRIBE << 4 | 2, *parts)


def encode_unsubscribe(version: Version, unsubscribe: Unsubscribe) -> bytes:
    """Return an UNSUBSCRIBE."""
    parts = [_two(unsubscribe.packet_id)]
    if version is Version.V5:
        parts.append(encode_properties(_user_properties(unsubscribe.user_properties)))
    return encode_packet(PacketType.UNSUBSCRIBE << 4 | 2, *parts, *map(_text, unsubscribe.filters))
