"""Says which reason codes a packet may have, and finds one for a packet that may not have the one that is meant."""

from __future__ import annotations

from enmasse.wire.mqtt.packets import PacketType, Reason

_R = Reason

_MESSAGES = frozenset(
    (
        _R.SUCCESS, _R.NO_MATCHING_SUBSCRIBERS, _R.UNSPECIFIED_ERROR, _R.IMPLEMENTATION_SPECIFIC_ERROR,
        _R.NOT_AUTHORIZED, _R.TOPIC_NAME_INVALID, _R.PACKET_IDENTIFIER_IN_USE, _R.QUOTA_EXCEEDED,
        _R.PAYLOAD_FORMAT_INVALID,
    )
)  # fmt: skip
_RELEASES = frozenset((_R.SUCCESS, _R.PACKET_IDENTIFIER_NOT_FOUND))

_CONNACKS = frozenset(
    (
        _R.SUCCESS, _R.UNSPECIFIED_ERROR, _R.MALFORMED_PACKET, _R.PROTOCOL_ERROR, _R.IMPLEMENTATION_SPECIFIC_ERROR,
        _R.UNSUPPORTED_PROTOCOL_VERSION, _R.CLIENT_IDENTIFIER_NOT_VALID, _R.BAD_USER_NAME_OR_PASSWORD,
        _R.NOT_AUTHORIZED, _R.SERVER_UNAVAILABLE, _R.SERVER_BUSY, _R.BANNED, _R.BAD_AUTHENTICATION_METHOD,
        _R.TOPIC_NAME_INVALID, _R.PACKET_TOO_LARGE, _R.QUOTA_EXCEEDED, _R.PAYLOAD_FORMAT_INVALID,
        _R.RETAIN_NOT_SUPPORTED, _R.QOS_NOT_SUPPORTED, _R.USE_ANOTHER_SERVER, _R.SERVER_MOVED,
        _R.CONNECTION_RATE_EXCEEDED,
    )
)  # fmt: skip

_SHARED_GOODBYES = (
    _R.SUCCESS, _R.UNSPECIFIED_ERROR, _R.MALFORMED_PACKET, _R.PROTOCOL_ERROR, _R.IMPLEMENTATION_SPECIFIC_ERROR,
    _R.TOPIC_NAME_INVALID, _R.RECEIVE_MAXIMUM_EXCEEDED, _R.TOPIC_ALIAS_INVALID, _R.PACKET_TOO_LARGE,
    _R.MESSAGE_RATE_TOO_HIGH, _R.QUOTA_EXCEEDED, _R.ADMINISTRATIVE_ACTION, _R.PAYLOAD_FORMAT_INVALID,
)  # fmt: skip
CLIENTS_GOODBYES = frozenset((*_SHARED_GOODBYES, _R.DISCONNECT_WITH_WILL))
"""The reason codes of a client's DISCONNECT [MQTT-3.14.2-1]."""

SERVERS_GOODBYES = frozenset(
    (
        *_SHARED_GOODBYES, _R.NOT_AUTHORIZED, _R.SERVER_BUSY, _R.SERVER_SHUTTING_DOWN, _R.KEEP_ALIVE_TIMEOUT,
        _R.SESSION_TAKEN_OVER, _R.TOPIC_FILTER_INVALID, _R.RETAIN_NOT_SUPPORTED, _R.QOS_NOT_SUPPORTED,
        _R.USE_ANOTHER_SERVER, _R.SERVER_MOVED, _R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, _R.CONNECTION_RATE_EXCEEDED,
        _R.MAXIMUM_CONNECT_TIME, _R.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, _R.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    )
)  # fmt: skip
"""The reason codes of a server's DISCONNECT [MQTT-3.14.2-1]."""

_SUBACKS = frozenset(
    (
        _R.SUCCESS, _R.GRANTED_QOS_1, _R.GRANTED_QOS_2, _R.UNSPECIFIED_ERROR, _R.IMPLEMENTATION_SPECIFIC_ERROR,
        _R.NOT_AUTHORIZED, _R.TOPIC_FILTER_INVALID, _R.PACKET_IDENTIFIER_IN_USE, _R.QUOTA_EXCEEDED,
        _R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, _R.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        _R.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    )
)  # fmt: skip
_UNSUBACKS = frozenset(
    (
        _R.SUCCESS, _R.NO_SUBSCRIPTION_EXISTED, _R.UNSPECIFIED_ERROR, _R.IMPLEMENTATION_SPECIFIC_ERROR,
        _R.NOT_AUTHORIZED, _R.TOPIC_FILTER_INVALID, _R.PACKET_IDENTIFIER_IN_USE,
    )
)  # fmt: skip

REASONS: dict[int, frozenset[Reason]] = {
    PacketType.CONNACK: _CONNACKS,  # [MQTT-3.2.2-8]
    PacketType.PUBACK: _MESSAGES,  # [MQTT-3.4.2-1]
    PacketType.PUBREC: _MESSAGES,  # [MQTT-3.5.2-1]
    PacketType.PUBREL: _RELEASES,  # [MQTT-3.6.2-1]
    PacketType.PUBCOMP: _RELEASES,  # [MQTT-3.7.2-1]
    PacketType.SUBACK: _SUBACKS,  # [MQTT-3.9.3-2]
    PacketType.UNSUBACK: _UNSUBACKS,  # [MQTT-3.11.3-2]
    PacketType.DISCONNECT: SERVERS_GOODBYES,
    PacketType.AUTH: frozenset((_R.SUCCESS, _R.CONTINUE_AUTHENTICATION, _R.REAUTHENTICATE)),  # [MQTT-3.15.2-1]
}
"""The reason codes of packets; DISCONNECT is a server's."""

_NEAREST = {
    _R.BAD_USER_NAME_OR_PASSWORD: _R.NOT_AUTHORIZED,
    _R.BANNED: _R.NOT_AUTHORIZED,
    _R.BAD_AUTHENTICATION_METHOD: _R.NOT_AUTHORIZED,
    _R.SERVER_UNAVAILABLE: _R.SERVER_BUSY,
    _R.SERVER_SHUTTING_DOWN: _R.SERVER_UNAVAILABLE,
    _R.PACKET_TOO_LARGE: _R.QUOTA_EXCEEDED,
    _R.MESSAGE_RATE_TOO_HIGH: _R.QUOTA_EXCEEDED,
    _R.QUOTA_EXCEEDED: _R.IMPLEMENTATION_SPECIFIC_ERROR,
    _R.TOPIC_NAME_INVALID: _R.TOPIC_FILTER_INVALID,
}
"""The reason that is nearest to one which a packet may not have."""


def permitted(kind: int, reason: int) -> int:
    """Return a reason code, or the nearest to it that a packet of this type may have."""
    codes = REASONS[kind]
    if reason in codes:
        return reason
    try:
        nearest = _NEAREST.get(Reason(reason))
    except ValueError:
        nearest = None
    return nearest if nearest in codes else Reason.UNSPECIFIED_ERROR


_RETURN_CODES = {
    _R.UNSUPPORTED_PROTOCOL_VERSION: 1,
    _R.CLIENT_IDENTIFIER_NOT_VALID: 2,
    _R.BAD_USER_NAME_OR_PASSWORD: 4,
    _R.NOT_AUTHORIZED: 5,
    _R.BANNED: 5,
    _R.BAD_AUTHENTICATION_METHOD: 5,
    _R.TOPIC_NAME_INVALID: 5,
    _R.QOS_NOT_SUPPORTED: 5,
    _R.RETAIN_NOT_SUPPORTED: 5,
}
_UNSPOKEN = (_R.MALFORMED_PACKET, _R.PROTOCOL_ERROR, _R.PACKET_TOO_LARGE)


def return_code(reason: Reason) -> int | None:
    """Return the code of a CONNACK before version 5 for a reason: 3, not available, for most.

    Returns:
        None if what the client sent was no CONNECT, which has no answer [MQTT-3.1.4-1].
    """
    return None if reason in _UNSPOKEN else _RETURN_CODES.get(reason, 3)


FAILED = 0x80
"""The code in SUBACK, before version 5, of a filter that is refused."""
