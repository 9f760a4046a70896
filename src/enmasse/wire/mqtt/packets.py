"""The fields of MQTT packets: versions, types of packets, reason codes, and a class for each packet with many fields.

Fields that a packet does not have keep their defaults, which mean what MQTT says of an absent property.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from enmasse.errors import RemoteError

MAX_PACKET_BYTES = (16 << 20) + (64 << 10)
"""The largest packet, header aside, that any connection takes, as messages are held whole."""

MAX_CONTROL_BYTES = 512 << 10
"""The largest packet other than PUBLISH: room for CONNECT with all its fields of 64 KiB."""

MAX_FILTERS = 4096
"""The most filters of a SUBSCRIBE or UNSUBSCRIBE: all of a packet's are handled in one go."""

MAX_USER_PROPERTIES = 1000
"""The most user properties of a packet: all are read in one go."""

DEFAULT_RECEIVE_MAXIMUM = 65_535
NEVER_EXPIRES = 0xFFFF_FFFF
"""The session expiry of a session that does not expire."""

UserProperties = list[tuple[str, str]]


class Version(IntEnum):
    """A version of the protocol, by its level in CONNECT."""

    V3_1 = 3
    V3_1_1 = 4
    V5 = 5

    @property
    def text(self) -> str:
        """The version as it is called."""
        return {3: "3.1", 4: "3.1.1", 5: "5.0"}[self]


class PacketType(IntEnum):
    """A type of packets: the upper four bits of the first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """A reason code of version 5; those below 0x80 are no errors."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class PacketError(RemoteError):
    """Bytes that are no packet, or a packet that may not come now or not with these values.

    Attributes:
        reason: the reason code for a peer of version 5.
    """

    def __init__(self, reason: Reason, description: str) -> None:
        super().__init__(f"mqtt:{reason.name.lower().replace('_', '-')}", description)
        self.reason = reason


def malformed(description: str) -> PacketError:
    """Return the error for bytes that are no packet."""
    return PacketError(Reason.MALFORMED_PACKET, description)


def protocol_error(description: str) -> PacketError:
    """Return the error for a packet that may not come now, or not with its values."""
    return PacketError(Reason.PROTOCOL_ERROR, description)


_REASONS = {
    "amqp:unauthorized-access": Reason.NOT_AUTHORIZED,
    "amqp:not-allowed": Reason.NOT_AUTHORIZED,
    "amqp:not-found": Reason.TOPIC_NAME_INVALID,
    "amqp:resource-limit-exceeded": Reason.QUOTA_EXCEEDED,
    "amqp:link:message-size-exceeded": Reason.PACKET_TOO_LARGE,
    "amqp:connection:forced": Reason.ADMINISTRATIVE_ACTION,
    "amqp:connection:redirect": Reason.USE_ANOTHER_SERVER,
    "amqp:decode-error": Reason.MALFORMED_PACKET,
    "amqp:not-implemented": Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    "amqp:precondition-failed": Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    "amqp:invalid-field": Reason.PROTOCOL_ERROR,
}


def reason_of(error: RemoteError) -> Reason:
    """Return the reason code that tells a client of an error."""
    if isinstance(error, PacketError):
        return error.reason
    return _REASONS.get(error.condition, Reason.UNSPECIFIED_ERROR)


@dataclass(slots=True)
class PublishProperties:
    """The properties of a message, but for the topic alias, which is the connection's own affair.

    Attributes:
        payload_format: 1 if the payload is UTF-8, 0 if it is said to be bytes; None if nothing is said.
        message_expiry_s: the seconds after which the message is worth nothing; None if it is always worth something.
        response_topic: the topic for an answer; None if none is asked for.
        correlation_data: the bytes that an answer is to carry.
        subscription_identifiers: of the subscriptions that a message to a client matches; none from clients.
    """

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = field(default_factory=list)
    subscription_identifiers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Will:
    """The message to send when the client is gone.

    Attributes:
        delay_s: the seconds to wait for the client to return.
    """

    topic: str
    payload: bytes
    qos: int = 0
    is_retained: bool = False
    delay_s: int = 0
    properties: PublishProperties = field(default_factory=PublishProperties)


@dataclass(slots=True)
class Connect:
    """A CONNECT.

    Attributes:
        version: the version that the client speaks.
        is_clean: Clean Session of 3.1.1, Clean Start of 5.
        keep_alive_s: the longest time without a packet of the client; 0 if it may be silent.
        session_expiry_s: 0 ends the session with the connection. Before version 5 it is 0 or ``NEVER_EXPIRES``, by
            ``is_clean``.
        receive_maximum: the number of messages of QoS 1 and 2 that the client takes without having answered.
        maximum_packet_size: in bytes with the header; 0 if there is none.
        topic_alias_maximum: the number of aliases that may be used towards the client.
        wants_problem_information: whether reason strings may come in other packets than CONNACK and DISCONNECT.
    """

    version: Version
    client_id: str
    is_clean: bool = True
    keep_alive_s: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    session_expiry_s: int = 0
    receive_maximum: int = DEFAULT_RECEIVE_MAXIMUM
    maximum_packet_size: int = 0
    topic_alias_maximum: int = 0
    wants_problem_information: bool = True
    wants_response_information: bool = False
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_properties: UserProperties = field(default_factory=list)


@dataclass(slots=True)
class ConnackProperties:
    """The properties of CONNACK; versions before 5 have none.

    Attributes:
        session_expiry_s: the session's expiry, if it is not what the client asked for.
        receive_maximum: the number of messages of QoS 1 and 2 that the server takes without having answered.
        maximum_packet_size: in bytes with the header; 0 if there is none.
        assigned_client_id: the client's identifier, if it gave none.
        topic_alias_maximum: the number of aliases that the client may use.
        server_keep_alive_s: the keep-alive that counts instead of the client's.
        server_reference: another server to use.
    """

    session_expiry_s: int | None = None
    receive_maximum: int = DEFAULT_RECEIVE_MAXIMUM
    maximum_qos: int = 2
    has_retain: bool = True
    maximum_packet_size: int = 0
    assigned_client_id: str | None = None
    topic_alias_maximum: int = 0
    reason_string: str | None = None
    user_properties: UserProperties = field(default_factory=list)
    has_wildcards: bool = True
    has_subscription_identifiers: bool = True
    has_shared_subscriptions: bool = True
    server_keep_alive_s: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None


@dataclass(slots=True)
class Connack:
    """A CONNACK, as a client reads it.

    Attributes:
        reason: the reason code; of versions before 5, the return code, which is 0 to 5.
    """

    is_session_present: bool
    reason: int
    properties: ConnackProperties = field(default_factory=ConnackProperties)


@dataclass(slots=True)
class Filter:
    """A topic filter with its options; before version 5, only ``qos`` is ever set.

    Attributes:
        no_local: whether the client's own messages are left out.
        retain_as_published: whether messages keep their RETAIN flag.
        retain_handling: the time at which retained messages are sent: 0 always, 1 for a new subscription, 2 never.
    """

    text: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """A SUBSCRIBE; its SUBACK has a code for each filter, in order.

    Attributes:
        identifier: the subscription identifier; 0 if there is none.
    """

    packet_id: int
    filters: list[Filter]
    identifier: int = 0
    user_properties: UserProperties = field(default_factory=list)


@dataclass(slots=True)
class Unsubscribe:
    """An UNSUBSCRIBE."""

    packet_id: int
    filters: list[str]
    user_properties: UserProperties = field(default_factory=list)


@dataclass(slots=True)
class Auth:
    """An AUTH.

    Attributes:
        reason: ``CONTINUE_AUTHENTICATION`` within an exchange, ``REAUTHENTICATE`` at the beginning of another.
    """

    reason: int
    method: str
    data: bytes | None = None
    reason_string: str | None = None
    user_properties: UserProperties = field(default_factory=list)


@dataclass(slots=True)
class Disconnect:
    """A DISCONNECT.

    Attributes:
        session_expiry_s: the session's new expiry; None if it stays.
    """

    reason: int = Reason.SUCCESS
    session_expiry_s: int | None = None
    reason_string: str | None = None
    server_reference: str | None = None
    user_properties: UserProperties = field(default_factory=list)
