"""What a space and an address may take, and what of a space is in use.

Limits are asked when a connection opens or a link attaches; rates act through credit (``metering``).
Lowering one concerns those who come later: nobody is sent away for it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.messaging.errors import AttachError

if TYPE_CHECKING:
    from enmasse.messaging.address import Address

__all__ = ["AddressLimits", "SpaceLimits", "Usage", "least"]

EXCEEDED = "amqp:resource-limit-exceeded"


class SpaceLimits(NamedTuple):
    """What the connections of a whole space may have together; 0 is without limit.

    Attributes:
        connections: at a time.
        devices: distinct container ids at a time.
        links: at a time, over all connections.
        message_rate: messages that senders send, per second.
        byte_rate: bytes of these, per second.
        message_bytes: of one message.
        ttl_ms: that a stored message may wait.
    """

    connections: int = 0
    devices: int = 0
    links: int = 0
    message_rate: int = 0
    byte_rate: int = 0
    message_bytes: int = 0
    ttl_ms: int = 0


class AddressLimits(NamedTuple):
    """What the links of one address may have together; 0 is without limit.

    Attributes:
        links: senders and receivers at a time.
        senders: at a time.
        receivers: at a time.
        message_rate: messages per second.
        byte_rate: bytes of these, per second.
        message_bytes: of one message.
    """

    links: int = 0
    senders: int = 0
    receivers: int = 0
    message_rate: int = 0
    byte_rate: int = 0
    message_bytes: int = 0


def least(*limits: int) -> int:
    """The lowest of some limits, of which 0 is none."""
    return min((limit for limit in limits if limit), default=0)


class Usage:
    """What of one space is in use.

    Args:
        space: the space's name.
    """

    __slots__ = ("connections", "devices", "limits", "links", "receivers", "senders", "space")

    def __init__(self, space: str) -> None:
        self.space = space
        self.limits = SpaceLimits()
        self.connections = 0
        self.devices: Counter[str] = Counter()
        """Container id to its connections."""
        self.links = 0
        self.senders: Counter[Address] = Counter()
        self.receivers: Counter[Address] = Counter()

    def enter(self, container: str) -> None:
        """A connection comes.

        Raises:
            AttachError: the space has as many as it may.
        """
        limits = self.limits
        if limits.connections and self.connections >= limits.connections:
            raise self._exceeded("connections", limits.connections, "close one")
        if limits.devices and container not in self.devices and len(self.devices) >= limits.devices:
            raise self._exceeded("devices (distinct container ids)", limits.devices, "disconnect one")
        self.connections += 1
        self.devices[container] += 1

    def leave(self, container: str) -> None:
        """A connection that entered has gone."""
        self.connections -= 1
        _decrease(self.devices, container)

    def attach(self, address: Address | None, limits: AddressLimits | None, *, is_sender: bool) -> None:
        """A link comes.

        Args:
            address: what it names, if that is there before it.
            limits: of the address.
            is_sender: whether it sends to the address.

        Raises:
            AttachError: the space or the address has as many links as it may.
        """
        most = self.limits.links
        if most and self.links >= most:
            raise self._exceeded("links", most, "detach one")
        if address is not None:
            if limits is not None:
                self._check_address(address, limits, is_sender=is_sender)
            (self.senders if is_sender else self.receivers)[address] += 1
        self.links += 1

    def _check_address(self, address: Address, limits: AddressLimits, *, is_sender: bool) -> None:
        senders, receivers = self.senders[address], self.receivers[address]
        word, count, most = (
            ("senders", senders, limits.senders) if is_sender else ("receivers", receivers, limits.receivers)
        )
        if not most or count < most:
            word, count, most = "links", senders + receivers, limits.links
        if most and count >= most:
            raise AttachError(
                EXCEEDED,
                f"address {address.name!r} of space {self.space!r} has {count} {word}, as many as its plan allows; "
                "detach one, or ask for a larger plan",
            )

    def detach(self, address: Address | None, *, is_sender: bool) -> None:
        """A link that attached has gone."""
        self.links -= 1
        if address is not None:
            _decrease(self.senders if is_sender else self.receivers, address)

    def _exceeded(self, what: str, most: int, remedy: str) -> AttachError:
        return AttachError(
            EXCEEDED,
            f"space {self.space!r} has {most} {what}, as many as its plan allows; {remedy}, or ask for a larger plan",
        )


def _decrease(counter: Counter[Any], key: Any) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
