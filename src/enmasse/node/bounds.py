"""What limits mean for one connection: whether it may come in, which links it may have, how they are metered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from enmasse.messaging.delivery import Producer
from enmasse.messaging.large import LARGE_BYTES
from enmasse.messaging.limits import least
from enmasse.messaging.metered_sink import MeteredSink
from enmasse.messaging.metering import MeteredPort

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.delivery import ProducerPort
    from enmasse.messaging.space import Space
    from enmasse.wire.amqp.link import Link, ReceivingLink

__all__ = ["MAX_MESSAGE_BYTES", "Bounds"]

MAX_MESSAGE_BYTES = 16 << 20
"""What is stored or copied is held whole; an anycast address passes a message of any size on while it comes."""


class Bounds:
    """One connection's account with its space."""

    __slots__ = ("_container", "_links", "_ports", "_space")

    def __init__(self) -> None:
        self._space: Space | None = None
        self._container = ""
        self._links: dict[Link, tuple[Address | None, bool]] = {}
        """Links that count, with the address that they named and whether they send to it."""
        self._ports: dict[Link, MeteredPort] = {}

    def enter(self, space: Space, container: str) -> None:
        """The connection opens in a space.

        Raises:
            AttachError: the space has as many connections or devices as it may.
        """
        space.usage.enter(container)
        self._space, self._container = space, container

    def leave(self) -> None:
        """The connection is gone."""
        if self._space is not None:
            for link in list(self._links):
                self.detached(link)
            self._space.usage.leave(self._container)
            self._space = None

    def attach(self, space: Space, link: Link, address: Address | None) -> None:
        """Count a link that comes.

        Raises:
            AttachError: the space or the address has as many links as it may.
        """
        is_sender = not link.is_sender
        limits = None if address is None else address.limits
        space.usage.attach(address, limits, is_sender=is_sender)
        self._links[link] = address, is_sender

    def detached(self, link: Link) -> None:
        """A link is gone, or was not let in after all."""
        counted = self._links.pop(link, None)
        if counted is not None and self._space is not None:
            address, is_sender = counted
            self._space.usage.detach(address, is_sender=is_sender)
        port = self._ports.pop(link, None)
        if port is not None:
            port.leave()

    # Messages

    def port(self, space: Space, link: ReceivingLink, address: Address | None) -> ProducerPort:
        """A sender's link as its address sees it: behind the buckets that it has to keep to."""
        meters = [m for m in (space.meter, None if address is None else address.meter) if m is not None]
        if not meters:
            return link
        port = self._ports[link] = MeteredPort(link, meters)
        return cast("ProducerPort", port)

    @staticmethod
    def size_limit(space: Space, address: Address) -> int:
        """What messages to an address may have in bytes; 0 is without limit."""
        return least(space.usage.limits.message_bytes, 0 if address.limits is None else address.limits.message_bytes)

    def sink(self, link: ReceivingLink, producer: Producer, most_bytes: int) -> tuple[Any, int | None]:
        """What the link is to call, and the size of its messages that the peer is told.

        Large messages are passed on from now on, where the address does that and may.
        """
        passes = producer.address.passes_large and not 0 < most_bytes <= LARGE_BYTES
        if passes:
            link.passes_from = LARGE_BYTES
        told = (most_bytes or None) if passes else least(most_bytes, MAX_MESSAGE_BYTES)
        port = self._ports.get(link)
        if port is None and passes and most_bytes:
            port = self._ports[link] = MeteredPort(link, ())
        return producer if port is None else MeteredSink(producer, port, most_bytes), told

    def meter(self, space: Space, ends: dict[Link, Any]) -> None:
        """A rate is limited from now on: so it is for the senders that are there."""
        for link, end in ends.items():
            if not isinstance(end, Producer) or link not in self._links:
                continue
            address = self._links[link][0]
            wanted = [m for m in (space.meter, None if address is None else address.meter) if m is not None]
            before = self._ports.get(link)
            if before is not None and set(wanted) <= set(before.meters):
                continue
            receiving = cast("ReceivingLink", link)
            port = self._ports[link] = MeteredPort(receiving, wanted)
            if before is not None:
                port.take_over(before)
            end.port = cast("ProducerPort", port)
            most = link.sink.most_bytes if isinstance(link.sink, MeteredSink) else 0
            link.sink = MeteredSink(end, port, most)
