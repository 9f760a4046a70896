"""Applies the limits of spaces and addresses to one connection: to itself, its links, and their rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from enmasse.messaging.delivery import Producer
from enmasse.messaging.direct.large import LARGE_BYTES
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import EXCEEDED, least
from enmasse.messaging.metering import MeteredPort
from enmasse.node.large_messages import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import ProducerPort
    from enmasse.messaging.space import Space
    from enmasse.node.connections.client_connection import ClientLink
    from enmasse.node.users.rights import Rights

MAX_CROSSED: Final = 10_000
"""Addresses that the patterns of a connection's receivers join, all together: as many as it may have links."""


class Bounds:
    """Counts one connection and its links against the limits of its space."""

    __slots__ = ("_container", "_crossed", "_space")

    def __init__(self) -> None:
        self._space: Space | None = None
        self._container = ""
        self._crossed = 0
        """The addresses that receivers of patterns have joined."""

    def enter(self, space: Space, container: str) -> None:
        """Count a connection that opens in a space.

        Raises:
            AttachError: the space has as many connections or devices as it may.
        """
        space.usage.enter(container)
        self._space, self._container = space, container

    def leave(self, links: Iterable[ClientLink]) -> None:
        """Take a closed connection and its remaining links off the count."""
        if self._space is not None:
            for link in links:
                self.detached(link)
            self._space.usage.leave(self._container)
            self._space = None

    def attach(self, space: Space, link: ClientLink, address: Address | None) -> None:
        """Count a link that is about to attach.

        Raises:
            AttachError: the space or the address has as many links as it may.
        """
        limits = None if address is None else address.limits
        space.usage.attach(address, limits, is_sender=link.is_sender)
        link.counted = [address]

    def join(self, link: ClientLink, address: Address) -> None:
        """Count a link at one more address, which its pattern reaches.

        Raises:
            AttachError: the address or the connection has as many receivers as it may.
        """
        if self._crossed >= MAX_CROSSED:
            raise AttachError(
                EXCEEDED,
                f"the connection's patterns stand for {MAX_CROSSED} addresses, as many as they may: narrow them",
            )
        if link.counted is not None and self._space is not None:
            self._space.usage.join(address, address.limits, is_sender=False)
            link.counted.append(address)
            self._crossed += 1

    def part(self, link: ClientLink, address: Address) -> None:
        """Take a link off the count of an address that its pattern has left."""
        if link.counted is not None and self._space is not None and address in link.counted:
            self._space.usage.part(address, is_sender=False)
            link.counted.remove(address)
            self._crossed -= 1

    def detached(self, link: ClientLink) -> None:
        """Take a link off the count that is detached, or could not attach."""
        if link.counted is not None and self._space is not None:
            address, *crossed = link.counted
            self._space.usage.detach(address, is_sender=link.is_sender)
            for one in crossed:
                if one is not None:
                    self._space.usage.part(one, is_sender=link.is_sender)
            self._crossed -= len(crossed)
        link.counted = None
        if link.metered is not None:
            link.metered.leave()
            link.metered = None

    # Messages

    def port(self, space: Space, link: ClientLink, address: Address | None) -> ProducerPort:
        """Return the port of a sender's link for its address, metered if a rate is limited."""
        meters = [m for m in (space.meter, None if address is None else address.meter) if m is not None]
        if not meters:
            return cast("ProducerPort", link.port)
        link.metered = MeteredPort(link.port, meters)
        return cast("ProducerPort", link.metered)

    @staticmethod
    def size_limit(space: Space, address: Address) -> int:
        """Return the largest message to an address in bytes; 0 is without limit."""
        return least(
            space.usage.limits.message_bytes, 0 if address.limits is None else address.limits.max_message_size
        )

    def sink(self, link: ClientLink, producer: Producer, most_bytes: int) -> tuple[Any, int | None]:
        """Return the sink that the link is to call, and the largest message that the peer is announced.

        Large messages are passed on while they are received if the address can do that.
        """
        passes = producer.address.passes_large and not 0 < most_bytes <= LARGE_BYTES
        if passes:
            link.port.passes_from = LARGE_BYTES
        announced = (most_bytes or None) if passes else least(most_bytes, MAX_MESSAGE_BYTES)
        if link.metered is None and passes and most_bytes:
            link.metered = MeteredPort(link.port, ())
        return producer if link.metered is None else MeteredSink(producer, link.metered, most_bytes), announced

    def meter(self, space: Space, links: Iterable[ClientLink]) -> None:
        """Apply a rate limit that is new to the senders among links."""
        for link in links:
            end, before = link.end, link.metered
            if not isinstance(end, Producer) or link.counted is None:
                continue
            address = link.counted[0]
            wanted = [m for m in (space.meter, None if address is None else address.meter) if m is not None]
            if before is not None and set(wanted) <= set(before.meters):
                continue
            port = link.metered = MeteredPort(link.port, wanted)
            if before is not None:
                port.take_over(before)
            end.port = cast("ProducerPort", port)
            most = link.port.sink.most_bytes if isinstance(link.port.sink, MeteredSink) else 0
            if link.port.sink is not None:
                # One that is not answered yet has none, and is given it then.
                link.port.sink = MeteredSink(end, port, most)


class PatternReach:
    """The bounds of a receiver of a pattern, as ``messaging.across`` asks for them.

    Args:
        bounds: those of its connection.
        rights: the connection's.
        is_bound: false for administrators, who are not counted.
    """

    __slots__ = ("_bounds", "_is_bound", "_rights", "link")

    def __init__(self, bounds: Bounds, rights: Rights, *, is_bound: bool) -> None:
        self._bounds = bounds
        self._rights = rights
        self._is_bound = is_bound
        self.link: ClientLink | None = None
        """The receiver's link, once it is counted."""

    @property
    def is_live(self) -> bool:
        """False once the link is left to its leases."""
        return not self._is_bound or (self.link is not None and self.link.counted is not None)

    def why_closed(self, address: Address) -> AttachError | None:
        """Return why a client that has not logged in may have nothing of an address; ``None`` if it may."""
        return self._rights.closed_problem("receive from", address)

    def enter(self, address: Address) -> None:
        """Count the receiver at an address.

        Raises:
            AttachError: the address or the connection has as many as it may.
        """
        if self._is_bound and self.link is not None:
            self._bounds.join(self.link, address)

    def leave(self, address: Address) -> None:
        """Take the receiver off the count of an address."""
        if self.link is not None:
            self._bounds.part(self.link, address)
