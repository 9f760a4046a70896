"""Topics and their subscriptions: every subscription gets its copy and is a queue of its own.

Names below a topic are reached through it: a topic ``news`` takes messages for ``news/sport/chess``
and gives them to subscribers of ``news/#``. A receiver on the topic itself is a volatile subscriber:
what it does not take in time is dropped for it alone. A ``subscription`` address is durable: the
sender's message is accepted once every such subscription has stored it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, RELEASED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import Pattern, matches, parse
from enmasse.messaging.queue import MAX_CREDIT, UNSUPPORTED_FORMAT, Queue, QueueConsumer
from enmasse.messaging.queue_entry import ENTRY_OVERHEAD_BYTES
from enmasse.wire.amqp.sections import is_durable

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["Subscription", "Topic"]

VOLATILE_BYTES = 8 << 20
"""What may wait for one volatile subscriber before its oldest messages are dropped."""


class _FanOut:
    """One message on its way into several durable subscriptions."""

    __slots__ = ("open", "producer", "producer_id", "state")

    def __init__(self, producer: Producer, producer_id: int, count: int) -> None:
        self.producer = producer
        self.producer_id = producer_id
        self.open = count
        self.state: Any = ACCEPTED

    def settle(self, _id: int, state: Any) -> None:
        """One subscription has stored it, or could not: then the sender sends again."""
        if state is not ACCEPTED:
            self.state = state
        self.open -= 1
        if not self.open:
            self.producer.settle(self.producer_id, self.state)


class TopicProducer(Producer):
    """A sender's end at a topic or at a name below it."""

    __slots__ = ("_routes", "_version")
    address: Topic

    def __init__(self, address: Topic, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self._version = -1
        self._routes: list[Subscription] = []

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Give a copy to every subscription whose pattern matches."""
        if message_format:
            if not settled:
                self.settle(delivery_id, UNSUPPORTED_FORMAT)
            return
        topic = self.address
        if self._version != topic.version:
            self._version = topic.version
            self._routes = topic.routes(self.target)
        routes = self._routes
        if is_durable(payload):
            stored = sum(1 for s in routes if s.is_durable)
            if stored:
                ack = None if settled else _FanOut(self, delivery_id, stored)
                for subscription in routes:
                    subscription.offer(payload, ack if subscription.is_durable else None, durable=True)
                return
        for subscription in routes:
            subscription.offer(payload, None, durable=False)
        if not settled:
            self.settle(delivery_id, ACCEPTED)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if every durable subscription has room."""
        if self.address.window(1):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class Subscription(Queue):
    """A queue that is fed by a topic.

    Args:
        topic: the topic's address.
        pattern: which names below it are wanted.
    """

    kind = "subscription"
    deleted_state: Any = ACCEPTED
    __slots__ = ("pattern", "topic", "topic_name")

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        topic: str,
        pattern: Pattern,
        max_bytes: int = 0,
        max_consumers: int = 0,
        is_durable: bool = True,
    ) -> None:
        super().__init__(core, name, log_id, max_bytes=max_bytes, max_consumers=max_consumers, is_durable=is_durable)
        self.topic: Topic | None = None
        self.pattern = pattern
        self.topic_name = topic

    def offer(self, payload: bytes, producer: Any, *, durable: bool) -> None:
        """Take a copy; a volatile subscriber's oldest ones make room."""
        if self.is_durable:
            self.enqueue(payload, producer, 0, durable=durable)
            return
        while self.bytes_stored + len(payload) + ENTRY_OVERHEAD_BYTES > self.max_bytes:
            entry = self.next_entry()
            if entry is None:
                self.dropped += 1
                return
            self.settle(entry)
            self.dropped += 1
        self.enqueue(payload, None, 0, durable=False)

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Nobody sends into a subscription but its topic.

        Raises:
            AttachError: always.
        """
        raise AttachError("amqp:not-allowed", f"send to topic {self.topic_name!r}, not to {self.name!r}")

    def on_turn(self, now: float) -> None:
        """Hand out; what became free lets the topic's senders go on."""
        super().on_turn(now)
        if self.topic is not None and self.is_durable and self.topic.producers:
            self.topic.due()


class VolatileConsumer(QueueConsumer):
    """A receiver on the topic itself, with the queue that is its own."""

    __slots__ = ()

    def gone(self) -> None:
        """The subscription ends with its receiver."""
        super().gone()
        subscription = self.address
        assert isinstance(subscription, Subscription)
        if subscription.topic is not None:
            subscription.topic.end_volatile(subscription)


class Topic(Address):
    """An address whose messages go to every subscription."""

    kind = "topic"
    __slots__ = ("ended", "subscriptions", "version")

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.subscriptions: list[Subscription] = []
        self.version = 0
        """Changes whenever a subscription comes or goes."""
        self.ended = {"messagesOut": 0, "accepted": 0, "rejected": 0, "released": 0, "modified": 0, "dropped": 0}
        """What volatile subscriptions that are gone had counted."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins; topics always give credit, as far as durable subscriptions have room."""
        return self.add_producer(self.make_producer(port, target))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return TopicProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A volatile subscriber joins; its source may be a pattern below the topic."""
        pattern = parse(options.source or self.name)
        subscription = Subscription(
            self.core,
            options.source or self.name,
            0,
            topic=self.name,
            pattern=pattern,
            max_bytes=VOLATILE_BYTES,
            is_durable=False,
        )
        self.subscribe(subscription)
        return subscription.add_consumer(VolatileConsumer(subscription, port, options.presettle))

    def subscribe(self, subscription: Subscription) -> None:
        """Feed a subscription from now on."""
        subscription.topic = self
        self.subscriptions.append(subscription)
        self.version += 1
        self.due()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Feed it no longer."""
        subscription.topic = None
        self.subscriptions.remove(subscription)
        self.version += 1
        self.due()

    def end_volatile(self, subscription: Subscription) -> None:
        """A volatile subscriber has gone."""
        counts = subscription.counts()
        for name in self.ended:
            self.ended[name] += counts[name]
        self.unsubscribe(subscription)

    def routes(self, target: str) -> list[Subscription]:
        """The subscriptions that want messages for a name."""
        return [s for s in self.subscriptions if matches(s.pattern, target)]

    def window(self, senders: int) -> int:
        """Messages that each of so many senders may send now."""
        stored = [s for s in self.subscriptions if s.is_durable]
        return min((s.window(senders) for s in stored), default=MAX_CREDIT)

    def on_turn(self, now: float) -> None:
        """Let senders have what every durable subscription has room for."""
        producers = self.producers
        if not producers:
            return
        window = min(MAX_CREDIT, self.window(len(producers)))
        if not window and self.core.is_pressed:
            self.core.hold(self)
        for producer in producers:
            port = producer.port
            credit = port.limit - port.received
            if 2 * credit <= window or credit > 2 * window:
                port.grant(window)

    def close(self, condition: str, description: str) -> None:
        """The topic is gone, and its volatile subscribers with it."""
        for subscription in list(self.subscriptions):
            if subscription.is_durable:
                subscription.topic = None
            else:
                subscription.close(condition, description)
        super().close(condition, description)

    def counts(self) -> dict[str, int]:
        """Of the topic and its volatile subscribers; subscription addresses have their own."""
        total = super().counts()
        for subscription in self.subscriptions:
            if not subscription.is_durable:
                for name, value in subscription.counts().items():
                    if name not in ("senders", "messagesIn", "creditGranted"):
                        total[name] = total.get(name, 0) + value
        for name, value in self.ended.items():
            total[name] += value
        return total
