"""A node's account of its connections and links, as management shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.messaging.delivery import Producer
from enmasse.node.entity_types import CONNECTION_TYPE, LINK_TYPE
from enmasse.node.recovery import Recovery
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.net.transport import EngineProtocol
    from enmasse.node.binding import Binding
    from enmasse.node.space_desk import SpaceDesk
    from enmasse.wire.amqp.link import Link

__all__ = ["Connections"]


class Watcher(Protocol):
    """Who hears of connections as they come and go."""

    def on_connected(self, binding: Binding, number: int) -> None:
        """A socket is connected; nothing was read or written yet."""

    def on_opened(self, binding: Binding, number: int) -> None:
        """Its client has opened the connection; the container is known."""

    def on_closed(self, binding: Binding) -> None:
        """It is gone."""


class Connections:
    """Every open connection of a node.

    Args:
        wall_ms: gives the wall clock in milliseconds since 1970 UTC.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.shells: dict[Binding, EngineProtocol] = {}
        """Every connected socket, from its first byte on."""
        self.numbers: dict[Binding, int] = {}
        """Of every connected socket; never given twice."""
        self.watchers: list[Watcher] = []
        self.recovery = Recovery()
        """What is kept for links that are detached and may come back."""
        self.desk: SpaceDesk | None = None
        """Answers what users ask of their space."""
        self._open: dict[Binding, int] = {}
        self._last_number = 0
        self._wall_ms = wall_ms

    def connected(self, binding: Binding, shell: EngineProtocol) -> None:
        """A socket is connected."""
        self.shells[binding] = shell
        self._last_number += 1
        self.numbers[binding] = self._last_number
        for watcher in self.watchers:
            watcher.on_connected(binding, self._last_number)

    def opened(self, binding: Binding) -> None:
        """Its client has opened the connection and belongs to a space."""
        binding.opened_at_ms = self._wall_ms()
        number = self._open[binding] = self.numbers[binding]
        for watcher in self.watchers:
            watcher.on_opened(binding, number)

    def closed(self, binding: Binding) -> None:
        """The connection is gone."""
        self._open.pop(binding, None)
        self.shells.pop(binding, None)
        self.numbers.pop(binding, None)
        for watcher in self.watchers:
            watcher.on_closed(binding)

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def links(self) -> int:
        """How many links are attached."""
        return sum(len(binding.links) for binding in self._open)

    def close_space(self, space: Space) -> None:
        """A space is deleted: its clients are to come again, should it be made anew."""
        for binding in [b for b in self._open if b.space is space]:
            binding.connection.close(AmqpError("amqp:connection:forced", f"space {space.name!r} was deleted"))

    def meter(self, space: Space) -> None:
        """Rates of a space are limited from now on: so they are for the senders that are there."""
        for binding in self._open:
            if binding.space is space:
                binding.bounds.meter(space, binding.links)

    def close(self, name: str, reason: str, space: Space | None = None) -> bool:
        """Close the connection of a number, if there is one (in a space); its client may come again at once."""
        for binding, number in self._open.items():
            if str(number) == name and (space is None or binding.space is space):
                binding.connection.close(AmqpError("amqp:connection:forced", reason))
                return True
        return False

    def connections_of(self, space: Space) -> Iterator[dict[str, Any]]:
        """The connections of a space, with their counters."""
        return (self._connection(binding, number) for binding, number in self._of(space))

    def links_of(self, space: Space) -> Iterator[dict[str, Any]]:
        """The links of a space, with their counters."""
        return (
            self._link(binding, number, link, end)
            for binding, number in self._of(space)
            for link, end in list(binding.links.items())
        )

    def _of(self, space: Space) -> list[tuple[Binding, int]]:
        return [(binding, number) for binding, number in self._open.items() if binding.space is space]

    def read_connections(self) -> list[dict[str, Any]]:
        """Every connection, with its counters."""
        return [self._connection(binding, number) for binding, number in self._open.items()]

    def _connection(self, binding: Binding, number: int) -> dict[str, Any]:
        ends = list(binding.links.items())
        producers = [end for _, end in ends if isinstance(end, Producer)]
        shell = self.shells[binding]
        return {
            "type": CONNECTION_TYPE,
            "identity": str(number),
            "name": str(number),
            "container": binding.container,
            "host": binding.peer,
            "space": binding.space.name if binding.space is not None else None,
            "user": binding.user,
            "mechanism": binding.admission.mechanism,
            "openedAt": binding.opened_at_ms,
            "senders": len(producers),
            "receivers": len(ends) - len(producers),
            "bytesIn": shell.bytes_in,
            "bytesOut": shell.bytes_out,
            "messagesIn": sum(producer.port.received for producer in producers),
            "transactions": binding.transactions,
            "messagesOut": sum(end.deliveries for _, end in ends if not isinstance(end, Producer)),
        }

    def read_links(self) -> list[dict[str, Any]]:
        """Every link, with its counters, as the client sees itself."""
        return [
            self._link(binding, number, link, end)
            for binding, number in self._open.items()
            for link, end in binding.links.items()
        ]

    @staticmethod
    def _link(binding: Binding, number: int, link: Link, end: Any) -> dict[str, Any]:
        is_receiver = isinstance(link, SendingLink)
        common = {
            "type": LINK_TYPE,
            "identity": f"{number}/{link.channel}/{link.handle}",
            "name": link.name,
            "connection": str(number),
            "role": "receiver" if is_receiver else "sender",
            "address": end.address.name if is_receiver else end.target,
            "space": binding.space.name if binding.space is not None else None,
        }
        if is_receiver:
            counts = {
                "credit": end.port.credit,
                "unsettled": end.unsettled,
                "deliveries": end.deliveries,
                "accepted": end.accepted,
                "rejected": end.rejected,
                "released": end.released,
                "modified": end.modified,
            }
        else:
            # What the peer was told, which buckets may have made less than its address grants.
            assert isinstance(link, ReceivingLink)
            counts = {"credit": link.credit, "deliveries": end.port.received}
        return common | counts
