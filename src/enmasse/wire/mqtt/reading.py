"""Reads packets, one function for each; the bytes are those after the fixed header.

Each raises ``PacketError`` for what MQTT does not allow.
"""

from __future__ import annotations

from enmasse.wire.mqtt.fields import Cursor, Properties, PropertyId, allowed, read_properties
from enmasse.wire.mqtt.packets import (
    DEFAULT_RECEIVE_MAXIMUM,
    MAX_FILTERS,
    NEVER_EXPIRES,
    Auth,
    Connack,
    ConnackProperties,
    Connect,
    Disconnect,
    Filter,
    PacketError,
    PacketType,
    PublishProperties,
    Reason,
    Subscribe,
    Unsubscribe,
    Version,
    Will,
    malformed,
    protocol_error,
)
from enmasse.wire.mqtt.reasons import CLIENTS_GOODBYES, REASONS, SERVERS_GOODBYES
from enmasse.wire.mqtt.topics import SHARE, check_filter, check_name

_P = PropertyId

_CONNECT = allowed(
    _P.SESSION_EXPIRY_INTERVAL, _P.RECEIVE_MAXIMUM, _P.MAXIMUM_PACKET_SIZE, _P.TOPIC_ALIAS_MAXIMUM,
    _P.REQUEST_RESPONSE_INFORMATION, _P.REQUEST_PROBLEM_INFORMATION, _P.AUTHENTICATION_METHOD, _P.AUTHENTICATION_DATA,
)  # fmt: skip
_MESSAGE = (
    _P.PAYLOAD_FORMAT_INDICATOR, _P.MESSAGE_EXPIRY_INTERVAL, _P.CONTENT_TYPE, _P.RESPONSE_TOPIC, _P.CORRELATION_DATA,
)  # fmt: skip
_WILL = allowed(_P.WILL_DELAY_INTERVAL, *_MESSAGE)
_PUBLISH = allowed(_P.TOPIC_ALIAS, _P.SUBSCRIPTION_IDENTIFIER, *_MESSAGE)
_CONNACK = allowed(
    _P.SESSION_EXPIRY_INTERVAL, _P.RECEIVE_MAXIMUM, _P.MAXIMUM_QOS, _P.RETAIN_AVAILABLE, _P.MAXIMUM_PACKET_SIZE,
    _P.ASSIGNED_CLIENT_IDENTIFIER, _P.TOPIC_ALIAS_MAXIMUM, _P.REASON_STRING, _P.WILDCARD_SUBSCRIPTION_AVAILABLE,
    _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, _P.SHARED_SUBSCRIPTION_AVAILABLE, _P.SERVER_KEEP_ALIVE,
    _P.RESPONSE_INFORMATION, _P.SERVER_REFERENCE, _P.AUTHENTICATION_METHOD, _P.AUTHENTICATION_DATA,
)  # fmt: skip
_SUBSCRIBE = allowed(_P.SUBSCRIPTION_IDENTIFIER)
_NOTHING_MORE = allowed()
_REASONED = allowed(_P.REASON_STRING)
_DISCONNECT = allowed(_P.SESSION_EXPIRY_INTERVAL, _P.REASON_STRING, _P.SERVER_REFERENCE)
_AUTH = allowed(_P.AUTHENTICATION_METHOD, _P.AUTHENTICATION_DATA, _P.REASON_STRING)

_NAMES = {b"MQTT": (Version.V3_1_1, Version.V5), b"MQIsdp": (Version.V3_1,)}
"""The protocol's names, and the versions that bear them."""

BRIDGE = 0x80
"""A bit of the level by which Mosquitto says that it is a bridge. It is not of MQTT; a bridge that is refused for it
connects without."""


class UnsupportedVersionError(PacketError):
    """A CONNECT of a version that is not spoken here.

    Attributes:
        is_late: true if it is a version after 3.1.1, which has CONNACK in the form of version 5.
    """

    def __init__(self, level: int) -> None:
        super().__init__(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            f"MQTT 3.1, 3.1.1 and 5.0 are spoken here (levels 3, 4 and 5), not the protocol's level {level}",
        )
        self.is_late = level & ~BRIDGE >= Version.V5


def read_version(cursor: Cursor) -> Version:
    """Read the beginning of a CONNECT: the protocol's name and level."""
    name = cursor.binary()
    versions = _NAMES.get(name)
    if versions is None:  # [MQTT-3.1.2-1]
        raise malformed(f"the protocol is MQTT, not {name[:20].decode(errors='replace')!r}")
    level = cursor.byte()
    if level not in versions:  # [MQTT-3.1.2-2]
        raise UnsupportedVersionError(level)
    return Version(level)


def read_connect(cursor: Cursor, version: Version) -> Connect:
    """Read a CONNECT after its version."""
    flags = cursor.byte()
    if flags & 1:  # [MQTT-3.1.2-3]
        raise malformed("the reserved flag of CONNECT is set")
    keep_alive_s = cursor.two()
    is_v5 = version is Version.V5
    found = read_properties(cursor, _CONNECT) if is_v5 else Properties()
    client_id = cursor.text()
    connect = Connect(version, client_id, bool(flags & 2), keep_alive_s)
    if flags & 4:
        connect.will = _read_will(cursor, flags, is_v5=is_v5)
    elif flags & 0x38:  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise malformed("CONNECT has no will, and yet says the will's QoS or RETAIN")
    if flags & 0x80:
        connect.user_name = cursor.text()
    elif flags & 0x40 and not is_v5:  # [MQTT-3.1.2-22] of 3.1.1
        raise malformed("CONNECT has a password, and no user name")
    if flags & 0x40:
        connect.password = cursor.binary()
    cursor.end()
    if is_v5:
        _take_connect_properties(connect, found)
    else:
        connect.session_expiry_s = 0 if connect.is_clean else NEVER_EXPIRES
        if not client_id and (not connect.is_clean or version is Version.V3_1):  # [MQTT-3.1.3-8] of 3.1.1
            raise PacketError(
                Reason.CLIENT_IDENTIFIER_NOT_VALID, "a client that is to be known again says its client identifier"
            )
    return connect


def _take_connect_properties(connect: Connect, found: Properties) -> None:
    connect.session_expiry_s = found.get(_P.SESSION_EXPIRY_INTERVAL, 0)
    connect.receive_maximum = found.get(_P.RECEIVE_MAXIMUM, DEFAULT_RECEIVE_MAXIMUM)
    connect.maximum_packet_size = found.get(_P.MAXIMUM_PACKET_SIZE, 0)
    connect.topic_alias_maximum = found.get(_P.TOPIC_ALIAS_MAXIMUM, 0)
    connect.wants_problem_information = bool(found.get(_P.REQUEST_PROBLEM_INFORMATION, 1))
    connect.wants_response_information = bool(found.get(_P.REQUEST_RESPONSE_INFORMATION, 0))
    connect.authentication_method = found.get(_P.AUTHENTICATION_METHOD)
    connect.authentication_data = found.get(_P.AUTHENTICATION_DATA)
    connect.user_properties = found.user()
    if connect.authentication_data is not None and connect.authentication_method is None:
        raise protocol_error("CONNECT has authentication data, and no authentication method")


def _read_will(cursor: Cursor, flags: int, *, is_v5: bool) -> Will:
    qos = flags >> 3 & 3
    if qos == 3:  # [MQTT-3.1.2-12]
        raise malformed("the will's QoS is 0, 1 or 2")
    found = read_properties(cursor, _WILL) if is_v5 else Properties()
    topic = cursor.text()
    payload = cursor.binary()
    check_name(topic)
    delay_s = found.get(_P.WILL_DELAY_INTERVAL, 0)
    return Will(topic, payload, qos, bool(flags & 0x20), delay_s, _message_properties(found))


def _message_properties(found: Properties) -> PublishProperties:
    response_topic = found.get(_P.RESPONSE_TOPIC)
    if response_topic is not None:  # [MQTT-3.3.2-14]
        check_name(response_topic)
    return PublishProperties(
        found.get(_P.PAYLOAD_FORMAT_INDICATOR),
        found.get(_P.MESSAGE_EXPIRY_INTERVAL),
        found.get(_P.CONTENT_TYPE),
        response_topic,
        found.get(_P.CORRELATION_DATA),
        found.user(),
        found.get(_P.SUBSCRIPTION_IDENTIFIER, []),
    )


def read_publish_properties(cursor: Cursor, *, is_from_client: bool) -> tuple[PublishProperties | None, int]:
    """Read the properties of a PUBLISH, and return them, if there are any, and the topic alias, or 0."""
    found = read_properties(cursor, _PUBLISH)
    if not found:
        return None, 0
    alias = found.pop(_P.TOPIC_ALIAS, None)
    if alias == 0:  # [MQTT-3.3.2-8]
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "a topic alias is not 0")
    if is_from_client and _P.SUBSCRIPTION_IDENTIFIER in found:  # [MQTT-3.3.4-6]
        raise protocol_error("a PUBLISH of a client has a subscription identifier")
    return (_message_properties(found) if found else None), alias or 0


def read_acknowledgement(cursor: Cursor, kind: int) -> tuple[int, int]:
    """Read a PUBACK, PUBREC, PUBREL or PUBCOMP of version 5; return packet identifier and reason code."""
    packet_id = cursor.packet_id()
    if cursor.is_at_end():
        return packet_id, 0
    reason = cursor.byte()
    if reason not in REASONS[kind]:  # [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1]
        raise protocol_error(f"{PacketType(kind).name} has no reason code {reason:#04x}")
    if not cursor.is_at_end():
        read_properties(cursor, _REASONED)
        cursor.end()
    return packet_id, reason


def read_subscribe(cursor: Cursor, version: Version) -> Subscribe:
    """Read a SUBSCRIBE."""
    subscribe = Subscribe(cursor.packet_id(), [])
    is_v5 = version is Version.V5
    if is_v5:
        found = read_properties(cursor, _SUBSCRIBE, once=(_P.SUBSCRIPTION_IDENTIFIER,))
        subscribe.identifier = found.get(_P.SUBSCRIPTION_IDENTIFIER, 0)
        subscribe.user_properties = found.user()
    filters = subscribe.filters
    while not cursor.is_at_end():
        _count_filter(len(filters))
        text = cursor.text()
        check_filter(text)
        options = cursor.byte()
        if options & (0xC0 if is_v5 else 0xFC):  # [MQTT-3.8.3-5], and [MQTT-3.8.3-4] of 3.1.1
            raise malformed("reserved bits of a subscription's options are set")
        if options & 3 == 3:
            raise protocol_error("a subscription's QoS is 0, 1 or 2")
        if options & 0x30 == 0x30:
            raise protocol_error("retain handling is 0, 1 or 2")
        no_local = bool(options & 4)
        if no_local and text.startswith(SHARE):  # [MQTT-3.8.3-4]
            raise protocol_error("a shared subscription has no local messages to leave out")
        filters.append(Filter(text, options & 3, no_local, bool(options & 8), options >> 4))
    if not filters:  # [MQTT-3.8.3-2]
        raise protocol_error("SUBSCRIBE has no topic filter")
    return subscribe


def read_unsubscribe(cursor: Cursor, version: Version) -> Unsubscribe:
    """Read an UNSUBSCRIBE."""
    unsubscribe = Unsubscribe(cursor.packet_id(), [])
    if version is Version.V5:
        unsubscribe.user_properties = read_properties(cursor, _NOTHING_MORE).user()
    filters = unsubscribe.filters
    while not cursor.is_at_end():
        _count_filter(len(filters))
        text = cursor.text()
        check_filter(text)
        filters.append(text)
    if not filters:  # [MQTT-3.10.3-2]
        raise protocol_error("UNSUBSCRIBE has no topic filter")
    return unsubscribe


def _count_filter(count: int) -> None:
    if count >= MAX_FILTERS:
        raise PacketError(Reason.QUOTA_EXCEEDED, f"a packet has up to {MAX_FILTERS} topic filters")


def read_disconnect(cursor: Cursor, version: Version, *, is_from_client: bool) -> Disconnect:
    """Read a DISCONNECT."""
    if version is not Version.V5:
        cursor.end()
        return Disconnect()
    if cursor.is_at_end():
        return Disconnect()
    reason = cursor.byte()
    if reason not in (CLIENTS_GOODBYES if is_from_client else SERVERS_GOODBYES):  # [MQTT-3.14.2-1]
        raise protocol_error(f"DISCONNECT has no reason code {reason:#04x}")
    found = Properties() if cursor.is_at_end() else read_properties(cursor, _DISCONNECT)
    cursor.end()
    session_expiry_s = found.get(_P.SESSION_EXPIRY_INTERVAL)
    if session_expiry_s is not None and not is_from_client:  # [MQTT-3.14.2-2]
        raise protocol_error("a server's DISCONNECT has a session expiry")
    return Disconnect(
        reason, session_expiry_s, found.get(_P.REASON_STRING), found.get(_P.SERVER_REFERENCE), found.user()
    )


def read_auth(cursor: Cursor) -> Auth:
    """Read an AUTH."""
    if cursor.is_at_end():
        raise protocol_error("AUTH has no authentication method")
    reason = cursor.byte()
    if reason not in REASONS[PacketType.AUTH]:  # [MQTT-3.15.2-1]
        raise protocol_error(f"AUTH has no reason code {reason:#04x}")
    found = Properties() if cursor.is_at_end() else read_properties(cursor, _AUTH)
    cursor.end()
    method = found.get(_P.AUTHENTICATION_METHOD)
    if method is None:
        raise protocol_error("AUTH has no authentication method")
    return Auth(reason, method, found.get(_P.AUTHENTICATION_DATA), found.get(_P.REASON_STRING), found.user())


def read_connack(cursor: Cursor, version: Version) -> Connack:
    """Read a CONNACK."""
    flags = cursor.byte()
    if flags & 0xFE:  # [MQTT-3.2.2-1]
        raise malformed("reserved flags of CONNACK are set")
    connack = Connack(bool(flags), cursor.byte())
    if version is Version.V5:
        found = read_properties(cursor, _CONNACK)
        connack.properties = ConnackProperties(
            found.get(_P.SESSION_EXPIRY_INTERVAL),
            found.get(_P.RECEIVE_MAXIMUM, DEFAULT_RECEIVE_MAXIMUM),
            found.get(_P.MAXIMUM_QOS, 2),
            bool(found.get(_P.RETAIN_AVAILABLE, 1)),
            found.get(_P.MAXIMUM_PACKET_SIZE, 0),
            found.get(_P.ASSIGNED_CLIENT_IDENTIFIER),
            found.get(_P.TOPIC_ALIAS_MAXIMUM, 0),
            found.get(_P.REASON_STRING),
            found.user(),
            bool(found.get(_P.WILDCARD_SUBSCRIPTION_AVAILABLE, 1)),
            bool(found.get(_P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1)),
            bool(found.get(_P.SHARED_SUBSCRIPTION_AVAILABLE, 1)),
            found.get(_P.SERVER_KEEP_ALIVE),
            found.get(_P.RESPONSE_INFORMATION),
            found.get(_P.SERVER_REFERENCE),
            found.get(_P.AUTHENTICATION_METHOD),
            found.get(_P.AUTHENTICATION_DATA),
        )
    cursor.end()
    if connack.is_session_present and connack.reason:  # [MQTT-3.2.2-6]
        raise protocol_error("CONNACK has an error, and yet a session")
    return connack


def read_codes(cursor: Cursor, version: Version, *, has_codes: bool = True) -> tuple[int, bytes]:
    """Read a SUBACK or UNSUBACK; return packet identifier and codes."""
    packet_id = cursor.packet_id()
    if version is Version.V5:
        read_properties(cursor, _REASONED)
    if not has_codes:
        cursor.end()
        return packet_id, b""
    codes = cursor.data[cursor.at : cursor.stop]
    if not codes:
        raise malformed("an answer has a code for each topic filter")
    return packet_id, codes
