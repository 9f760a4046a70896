"""What every address has: its links, its counters, and its turn."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from enmasse.messaging.errors import AttachError
from enmasse.messaging.metering import Meter
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import Consumer, ConsumerPort, Producer, ProducerPort
    from enmasse.messaging.limits import AddressLimits

__all__ = ["Address", "AttachOptions"]


class AttachOptions:
    """What a receiver asked for, in the address layer's words; every protocol maps onto it.

    Attributes:
        presettle: whether messages are to come settled.
        filters: a filter's descriptor to its value, from the source's filter set.
        capabilities: the link's and the source's desired capabilities.
        properties: link properties.
        name: the link's name, and with ``container`` the identity of a durable subscription.
        container: the container id of the peer.
        source: the address as the receiver named it.
        url: how the node is reached, for answers that name it.
        browse: whether messages are to be looked at only (distribution mode ``copy``).
        is_durable: whether the source is to outlive the link (terminus durability).
        expiry_policy: what starts the time that it lasts then: ``link-detach``, ``session-end``,
            ``connection-close`` or ``never``.
        expiry_timeout_s: that time in seconds.
    """

    __slots__ = ("browse", "capabilities", "container", "expiry_policy", "expiry_timeout_s", "filters", "is_durable",
                 "name", "presettle", "properties", "source", "url")  # fmt: skip

    def __init__(
        self,
        *,
        presettle: bool = False,
        filters: dict[str, Any] | None = None,
        capabilities: tuple[str, ...] = (),
        properties: dict[str, Any] | None = None,
        name: str = "",
        container: str = "",
        source: str = "",
        url: str = "",
        browse: bool = False,
        is_durable: bool = False,
        expiry_policy: str = "session-end",
        expiry_timeout_s: int = 0,
    ) -> None:
        self.presettle = presettle
        self.filters = filters or {}
        self.capabilities = capabilities
        self.properties = properties or {}
        self.name = name
        self.container = container
        self.source = source
        self.url = url
        self.browse = browse
        self.is_durable = is_durable
        self.expiry_policy = expiry_policy
        self.expiry_timeout_s = expiry_timeout_s


class Address:
    """A named destination within one space.

    Args:
        core: whose turn it takes part in.
        name: the address.
    """

    kind: str = ""
    passes_large: bool = False
    """Whether its producers take a message while it is still coming (``on_large``)."""

    __slots__ = (
        "_turn", "consumers", "core", "dropped", "gone_counts", "is_due", "limits", "meter", "name", "producers",
    )  # fmt: skip

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.name = name
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.is_due = False
        self.dropped = 0
        """Messages that nobody was told the fate of: presettled ones without a taker, or expired ones."""
        self.gone_counts = {"in": 0, "out": 0, "accepted": 0, "rejected": 0, "released": 0, "modified": 0}
        """What links that are gone had counted."""
        self.limits: AddressLimits | None = None
        """What its links may have; nothing is without limits."""
        self.meter: Meter | None = None
        """The bucket of its senders, if their rate is limited."""
        self._turn = 0

    def limit(self, limits: AddressLimits | None) -> None:
        """Change what its links may have; for those that are there only the rates change."""
        self.limits = limits
        rates = (0, 0) if limits is None else (limits.message_rate, limits.byte_rate)
        if self.meter is not None:
            self.meter.configure(*rates)
        elif any(rates):
            self.meter = Meter(self.core, self.name, *rates)

    def due(self) -> None:
        """Have ``on_turn`` called once before the turn of the loop ends."""
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def on_turn(self, now: float) -> None:
        """Do what gathered in this turn: hand out, share credit."""

    def on_deadline(self, now: float) -> None:
        """The time given to ``core.schedule`` has come."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins.

        Raises:
            AttachError: this address takes no messages from senders.
        """
        raise AttachError("amqp:not-allowed", f"{self.kind} {self.name!r} takes no messages from senders")

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """The filters that a receiver with these options may ask for, by their descriptors."""
        return ()

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A receiver joins.

        Raises:
            AttachError: this address gives no messages to receivers, or not in the way asked for.
        """
        raise AttachError("amqp:not-allowed", f"{self.kind} {self.name!r} gives no messages to receivers")

    def add_consumer(self, consumer: Consumer) -> Consumer:
        """Keep a receiver's end."""
        self.consumers.append(consumer)
        self.due()
        return consumer

    def add_producer(self, producer: Producer) -> Producer:
        """Keep a sender's end."""
        self.producers.append(producer)
        self.due()
        return producer

    def remove_producer(self, producer: Producer) -> None:
        """A sender has gone."""
        if producer in self.producers:
            self.producers.remove(producer)
            self.gone_counts["in"] += producer.port.received
            self.due()

    def remove_consumer(self, consumer: Consumer) -> None:
        """A receiver has gone; what it had without an outcome is dealt with by the address type."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            counts = self.gone_counts
            counts["out"] += consumer.deliveries
            counts["accepted"] += consumer.accepted
            counts["rejected"] += consumer.rejected
            counts["released"] += consumer.released
            counts["modified"] += consumer.modified
            self.due()

    def choose(self) -> Consumer | None:
        """The receiver with credit that has the fewest unsettled deliveries, in turn among equals."""
        consumers = self.consumers
        if len(consumers) == 1:
            only = consumers[0]
            return only if only.port.credit > 0 and not only.is_blocked else None
        best: Consumer | None = None
        fewest = 1 << 62
        count = len(consumers)
        turn = at = self._turn
        for index in range(turn, turn + count):
            consumer = consumers[index % count]
            if consumer.unsettled < fewest and consumer.port.credit > 0 and not consumer.is_blocked:
                best = consumer
                fewest = consumer.unsettled
                at = index
                if not fewest:
                    break
        if best is not None:
            self._turn = (at + 1) % count
        return best

    def close(self, condition: str, description: str) -> None:
        """The address is gone: detach every link, receivers first, so that senders hear what becomes of theirs."""
        error = AmqpError(condition, description)
        for consumer in list(self.consumers):
            consumer.port.detach(error)
            consumer.gone()
        for producer in list(self.producers):
            producer.port.detach(error)
            producer.gone()

    def counts(self) -> dict[str, int]:
        """The counters of the address, by their management names."""
        gone = self.gone_counts
        consumers = self.consumers
        return {
            "senders": len(self.producers),
            "receivers": len(consumers),
            "messagesIn": gone["in"] + sum(p.port.received for p in self.producers),
            "messagesOut": gone["out"] + sum(c.deliveries for c in consumers),
            "accepted": gone["accepted"] + sum(c.accepted for c in consumers),
            "rejected": gone["rejected"] + sum(c.rejected for c in consumers),
            "released": gone["released"] + sum(c.released for c in consumers),
            "modified": gone["modified"] + sum(c.modified for c in consumers),
            "dropped": self.dropped,
            "creditAsked": sum(c.port.credit for c in consumers),
            "creditGranted": sum(p.credit for p in self.producers),
            "unsettled": sum(c.unsettled for c in consumers),
            "messagesStored": 0,
            "bytesStored": 0,
        }
