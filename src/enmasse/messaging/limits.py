"""Limits of spaces and addresses, and the usage of a space.

Limits are asked when a connection opens or a link attaches; rates act through credit (``metering``).
Lowering one concerns later connections and links: none is closed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.messaging.errors import AttachError

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.patterns import Pattern
    from enmasse.model.kinds.address_settings import AddressSettings


EXCEEDED = "amqp:resource-limit-exceeded"

MAX_RETAINED = 100_000
"""Retained values of a space for which no number is set: one for each of 100,000 devices."""

MAX_RETAINED_BYTES = 64 << 20
"""Bytes of these: they are in memory, so there is always a bound. 600 for each of that number, a reading in JSON."""

MAX_SESSIONS = 100_000
"""Sessions of a space that outlive their connections, where no number is set: as many as one topic is made for."""

MAX_SESSION_BYTES = 16 << 20
"""Bytes that wait in one session, where no number is set: some 100,000 readings, a device's day at one a second."""

WILL_GRACE_MS = 5_000
"""The time that a will waits, where none is set, if the node has ended that its client had reached: clients connect
again at once, and a few seconds later if they are many."""

MAX_FILTER_ADDRESSES = 1_000
"""Addresses of one filter, where no number is set: each costs a subscription of its own, and a SUBSCRIBE one turn."""

MAX_SUBSCRIPTIONS = 100_000
"""Subscriptions of a space, where no number is set: one for each of that many sessions."""

MAX_SUBSCRIPTION_BYTES = 1 << 30
"""Bytes of memory of sessions, wills and subscriptions, where no number is set: room for 100,000 with one each."""

MAX_CONNECTOR_CONNECTIONS = 64
"""Connections of a space's connectors, where no number is set: four connectors with as many as each may have."""

MAX_CONNECTOR_SESSIONS = 10_000
"""Sessions on these, where no number is set: each connection of a client has one at each connector that it uses."""

MAX_CONNECTOR_UNSETTLED = 10_000
"""Messages of one sender without an outcome yet: another container may grant credit and never settle."""

MAX_CONNECTOR_BYTES = 64 << 20
"""Bytes that wait at a space's connectors, where no number is set: what large messages may have at an address."""

SESSION_BYTES = 3 << 10
FILTER_BYTES = 1 << 10
SUBSCRIPTION_BYTES = 4 << 10
"""Bytes of memory that one takes at least, as measured; one at a topic is a part of a filter, or by itself."""

PART_BYTES = 320
"""Bytes that one of the patterns takes at least, as measured, into which grants cut a filter."""

NAME_FACTOR = 4
WORD_BYTES = 64
"""Bytes of memory for a letter of a name, which is kept in several forms, and for each of its words in an index."""

SELECTOR_FACTOR = 200
"""Bytes of memory for each letter of a selector, most of which are a part of its tree in the worst case."""


class SpaceLimits(NamedTuple):
    """Limits on all connections of a space together, and on what it keeps for them; 0 is no limit.

    Attributes:
        connections: at a time.
        devices: distinct container ids at a time.
        links: at a time, over all connections.
        message_rate: messages that senders send, per second.
        byte_rate: bytes of these, per second.
        message_bytes: the bytes of one message.
        ttl_ms: that a stored message may wait.
        retained: retained values at a time.
        retained_bytes: the bytes of these, with their names.
        sessions: the sessions that outlive their connections, at a time.
        session_bytes: the bytes of messages that wait in one session.
        session_expiry_ms: that a session is kept without its client.
        will_grace_ms: that a will waits if the node has ended that its client had reached.
        filter_addresses: that one filter with wildcards may stand for.
        subscriptions: filters of sessions, and subscriptions that other receivers make, at a time.
        subscription_bytes: the bytes of memory that these, sessions and wills take together.
        connector_connections: connections to other containers at a time.
        connector_sessions: sessions on these.
        connector_unsettled: messages of one sender that another container has not decided about.
        connector_bytes: bytes that wait for other containers, or for receivers of what comes from there.
        mqtt_packet_bytes: the bytes of a packet that a client of MQTT sends.
        mqtt_receive_maximum: messages of QoS 1 and 2 that such a client sends without their answers.
        mqtt_keep_alive_s: the longest keep-alive of such a client, in seconds.
        mqtt_inflight: messages of QoS 1 and 2 that such a client is sent without its answers.
    """

    connections: int = 0
    devices: int = 0
    links: int = 0
    message_rate: int = 0
    byte_rate: int = 0
    message_bytes: int = 0
    ttl_ms: int = 0
    retained: int = MAX_RETAINED
    retained_bytes: int = MAX_RETAINED_BYTES
    sessions: int = MAX_SESSIONS
    session_bytes: int = MAX_SESSION_BYTES
    session_expiry_ms: int = 0
    will_grace_ms: int = WILL_GRACE_MS
    filter_addresses: int = MAX_FILTER_ADDRESSES
    subscriptions: int = MAX_SUBSCRIPTIONS
    subscription_bytes: int = MAX_SUBSCRIPTION_BYTES
    connector_connections: int = MAX_CONNECTOR_CONNECTIONS
    connector_sessions: int = MAX_CONNECTOR_SESSIONS
    connector_unsettled: int = MAX_CONNECTOR_UNSETTLED
    connector_bytes: int = MAX_CONNECTOR_BYTES
    mqtt_packet_bytes: int = 0
    mqtt_receive_maximum: int = 0
    mqtt_keep_alive_s: int = 0
    mqtt_inflight: int = 0


def least(*limits: int) -> int:
    """Return the lowest of some limits, of which 0 is none."""
    return min((limit for limit in limits if limit), default=0)


class Footprint(NamedTuple):
    """The cost of one session, will, filter or subscription to its space.

    Attributes:
        subscriptions: 1 if it is a subscription in the eyes of a client, 0 if it is a part of one or something else.
        size: bytes of memory that it takes.
    """

    subscriptions: int
    size: int


NO_FOOTPRINT = Footprint(0, 0)
"""The footprint of what is declared, and counts as an address."""


def memory_of(least: int, *names: str) -> int:
    """Return the bytes of memory that something takes with its names, which clients choose.

    Args:
        least: bytes that it takes without them.
        names: client ids, filters and the like.
    """
    return least + sum(NAME_FACTOR * len(name) + WORD_BYTES * name.count("/") for name in names)


def patterns_memory(patterns: Iterable[Pattern]) -> int:
    """Return the bytes of memory that something takes for what grants leave of its filter, beside the filter."""
    return sum(memory_of(PART_BYTES, "/".join(map(str, pattern))) for pattern in patterns)


def filter_footprint(text: str) -> Footprint:
    """Return what a filter of a client counts for, beside its parts at topics."""
    return Footprint(1, memory_of(FILTER_BYTES, text))


class Usage:
    """The connections, links and subscriptions of one space.

    Args:
        space: the space's name.
    """

    __slots__ = (
        "connections", "connector_bytes", "devices", "limits", "links", "receivers", "senders", "space",
        "subscription_bytes", "subscriptions",
    )  # fmt: skip

    def __init__(self, space: str) -> None:
        self.space = space
        self.limits = SpaceLimits()
        self.connections = 0
        self.devices: Counter[str] = Counter()
        """Container id to its connections."""
        self.links = 0
        self.senders: Counter[Address] = Counter()
        self.receivers: Counter[Address] = Counter()
        self.subscriptions = 0
        self.subscription_bytes = 0
        """Bytes of memory of subscriptions, sessions and wills."""
        self.connector_bytes = 0
        """Bytes that wait at connectors."""

    def enter(self, container: str) -> None:
        """Count a connection.

        Raises:
            AttachError: the space has as many as it may.
        """
        limits = self.limits
        if limits.connections and self.connections >= limits.connections:
            raise self.exceeded("connections", limits.connections, "close one")
        if limits.devices and container not in self.devices and len(self.devices) >= limits.devices:
            raise self.exceeded("devices (distinct container ids)", limits.devices, "disconnect one")
        self.connections += 1
        self.devices[container] += 1

    def leave(self, container: str) -> None:
        """Note that a connection was closed."""
        self.connections -= 1
        _decrease(self.devices, container)

    def attach(self, address: Address | None, limits: AddressSettings | None, *, is_sender: bool) -> None:
        """Count a link.

        Args:
            address: the address that it names, if that exists before it.
            limits: the limits of the address.
            is_sender: whether it sends to the address.

        Raises:
            AttachError: the space or the address has as many links as it may.
        """
        most = self.limits.links
        if most and self.links >= most:
            raise self.exceeded("links", most, "detach one")
        if address is not None:
            self.join(address, limits, is_sender=is_sender)
        self.links += 1

    def join(self, address: Address, limits: AddressSettings | None, *, is_sender: bool) -> None:
        """Count a link at an address, beside those where it is counted already.

        Raises:
            AttachError: the address has as many links as it may.
        """
        if limits is not None:
            self._check_address(address, limits, is_sender=is_sender)
        (self.senders if is_sender else self.receivers)[address] += 1

    def part(self, address: Address, *, is_sender: bool) -> None:
        """Note that a link has left an address."""
        _decrease(self.senders if is_sender else self.receivers, address)

    def _check_address(self, address: Address, limits: AddressSettings, *, is_sender: bool) -> None:
        senders, receivers = self.senders[address], self.receivers[address]
        word, count, most = (
            ("senders", senders, limits.max_senders) if is_sender else ("receivers", receivers, limits.max_receivers)
        )
        if not most or count < most:
            word, count, most = "links", senders + receivers, limits.max_links
        if most and count >= most:
            raise AttachError(
                EXCEEDED,
                f"address {address.name!r} of space {self.space!r} has {count} {word}, as many as its plan allows; "
                "detach one, or ask for a larger plan",
            )

    def detach(self, address: Address | None, *, is_sender: bool) -> None:
        """Note that a link was detached."""
        self.links -= 1
        if address is not None:
            self.part(address, is_sender=is_sender)

    # Subscriptions, sessions and wills

    def take(self, footprint: Footprint) -> None:
        """Count what has come, or was there before."""
        self.subscriptions += footprint.subscriptions
        self.subscription_bytes += footprint.size

    def give_back(self, footprint: Footprint) -> None:
        """Note that it is gone."""
        self.subscriptions -= footprint.subscriptions
        self.subscription_bytes -= footprint.size

    def require_room(self, footprint: Footprint) -> None:
        """Check that there is room for something new.

        Raises:
            AttachError: the space has as many subscriptions as it may, or they take as much memory.
        """
        limits = self.limits
        if footprint.subscriptions and 0 < limits.subscriptions <= self.subscriptions:
            raise self.exceeded("subscriptions", limits.subscriptions, "end one")
        if limits.subscription_bytes and self.subscription_bytes + footprint.size > limits.subscription_bytes:
            raise AttachError(
                EXCEEDED,
                f"sessions, wills and subscriptions of space {self.space!r} take {self.subscription_bytes} bytes of "
                f"memory, and {footprint.size} more are beyond the {limits.subscription_bytes} that its plan allows; "
                "end some, use shorter names, or ask for a larger plan",
            )

    def exceeded(self, what: str, most: int, remedy: str) -> AttachError:
        """Return the error for one more than the space may have."""
        return AttachError(
            EXCEEDED,
            f"space {self.space!r} has {most} {what}, as many as its plan allows; {remedy}, or ask for a larger plan",
        )


def _decrease(counter: Counter[Any], key: Any) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
