"""Receivers on a topic: which subscription each of them belongs to.

Rules:
1. Without further wishes a receiver is a volatile subscriber of its own.
2. A source whose terminus is durable names a durable subscription by container id and link name. It
   outlives the link for as long as its expiry policy and time-out say [AMQP 3.5.3]; closing the link ends
   it, detaching does not.
3. With the capability ``shared`` several receivers of one container have a subscription together, with
   ``global`` too those of all containers; it is named by the link name up to its first ``|``.
4. A receiver without a source, with the link name of a durable subscription of its container, joins that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enmasse.messaging.backlog import BacklogConsumer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log import delete_log
from enmasse.messaging.patterns import parse
from enmasse.messaging.selector import compile_selector, selector_of
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.subscription import Subscription, VolatileSubscription
from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.delivery import ConsumerPort
    from enmasse.messaging.topic import Topic

__all__ = ["SubscriberConsumer", "Subscribing"]

MAX_SUBSCRIPTIONS = 10_000
"""Durable subscriptions of one topic that receivers may have made."""

MAX_NAME_BYTES = 320

STOLEN = AmqpError("amqp:link:stolen", "the subscription's link was attached anew")

Name = tuple[str, str]
"""Container (empty for all) and name."""


class SubscriberConsumer(BacklogConsumer):
    """A receiver of a durable subscription that it has made."""

    __slots__ = ("lasting",)
    lasting: Lasting

    def gone(self, *, closed: bool = False) -> None:
        """The link is detached; closing it ends the subscription."""
        super().gone()
        self.lasting.left(closed=closed)


class Lasting:
    """A durable subscription that receivers have made, and when it ends."""

    __slots__ = ("_subscribing", "_waits", "is_shared", "name", "policy", "source", "subscription", "timeout_s")

    def __init__(
        self, subscribing: Subscribing, name: Name, subscription: Subscription, record: dict[str, Any]
    ) -> None:
        self._subscribing = subscribing
        self.name = name
        self.subscription = subscription
        self.source: str = record["source"]
        self.policy: str = record["policy"]
        self.timeout_s: int = record["timeout"]
        self.is_shared: bool = record["shared"]
        self._waits = 0

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What a receiver asks for to join it."""
        return ("shared", "global") if self.is_shared and not self.name[0] else ("shared",) * self.is_shared

    def left(self, *, closed: bool) -> None:
        """A receiver has gone."""
        if self.subscription.consumers:
            return
        if closed:
            self.end()
        else:
            self.wait("link-detach")

    def wait(self, event: str) -> None:
        """Something happened after which the subscription may have only its time-out left."""
        order = ("link-detach", "session-end", "connection-close")
        if self.policy not in order or order.index(event) < order.index(self.policy):
            return
        self._waits += 1
        mine = self._waits

        def over() -> None:
            if self._waits == mine and not self.subscription.consumers:
                self.end()

        self._subscribing.topic.core.call_later(self.timeout_s, over)

    def joined(self) -> None:
        """A receiver is there again."""
        self._waits += 1

    def end(self) -> None:
        """The subscription is over."""
        self._subscribing.end(self)


class Subscribing:
    """The subscriptions of one topic that its receivers make."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._lasting: dict[Name, Lasting] = {}
        self._shared: dict[Name, VolatileSubscription] = {}

    # Receivers

    def attach(self, port: ConsumerPort, options: AttachOptions) -> BacklogConsumer:
        """A receiver joins.

        Raises:
            AttachError: its selector is malformed, or a limit is reached.
        """
        is_shared = "shared" in options.capabilities
        container = "" if "global" in options.capabilities else options.container
        name = container, options.name.partition("|")[0] if is_shared else options.name
        if options.is_durable:
            return self._attach_lasting(port, options, name, is_shared=is_shared)
        subscription = self._shared.get(name) if is_shared else None
        if subscription is None:
            subscription = self._make_volatile(options)
            if is_shared:
                self._shared[name] = subscription
        consumer = BacklogConsumer(subscription, port, options.presettle, None)
        subscription.add_consumer(consumer)
        return consumer

    def _make_volatile(self, options: AttachOptions) -> VolatileSubscription:
        topic = self.topic
        source = options.source or topic.name
        policy = topic.options.slow
        subscription = VolatileSubscription(
            topic.core,
            source,
            topic.core.new_volatile_log() if policy == "spill" else 0,
            topic=topic.name,
            pattern=parse(source),
            policy=policy,
            selector=selector_of(options.filters),
        )
        topic.subscribe(subscription)
        return subscription

    def _attach_lasting(
        self, port: ConsumerPort, options: AttachOptions, name: Name, *, is_shared: bool
    ) -> SubscriberConsumer:
        if not name[1] or len("".join(name).encode()) > MAX_NAME_BYTES:
            raise AttachError(
                "amqp:invalid-field",
                f"a durable subscription's container id and link name have 1 to {MAX_NAME_BYTES} bytes",
            )
        selector = selector_of(options.filters)
        source = options.source or self.topic.name
        lasting = self._lasting.get(name)
        text = "" if selector is None else selector.text
        if lasting is not None and not lasting.subscription.consumers:
            before = lasting.subscription.selector
            is_other = lasting.is_shared is not is_shared
            if is_other or lasting.source != source or ("" if before is None else before.text) != text:
                # Another pattern or selector makes it another subscription [JMS 2.0 8.3.3].
                lasting.end()
                lasting = None
        if lasting is None:
            lasting = self._make_lasting(name, source, text, options)
        subscription = lasting.subscription
        if subscription.consumers and not is_shared:
            for consumer in list(subscription.consumers):
                consumer.port.detach(STOLEN)
                subscription.remove_consumer(consumer)
        lasting.joined()
        consumer = SubscriberConsumer(subscription, port, options.presettle, None)
        consumer.lasting = lasting
        subscription.add_consumer(consumer)
        return consumer

    def find(self, container: str, link: str) -> Lasting | None:
        """The durable subscription that a link name alone stands for."""
        name = link.partition("|")[0]
        keys = ((container, link), (container, name), ("", name))
        return next((self._lasting[key] for key in keys if key in self._lasting), None)

    def forget(self, subscription: Subscription) -> None:
        """A volatile subscription has ended."""
        for name in [name for name, shared in self._shared.items() if shared is subscription]:
            del self._shared[name]

    # Durable ones

    def _make_lasting(self, name: Name, source: str, selector: str, options: AttachOptions) -> Lasting:
        if len(self._lasting) >= MAX_SUBSCRIPTIONS:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"topic {self.topic.name!r} has {MAX_SUBSCRIPTIONS} durable subscriptions, its limit",
            )
        log_id, _ = self.topic.core.new_log()
        record = {
            "container": name[0],
            "name": name[1],
            "log": log_id,
            "source": source,
            "selector": selector,
            "policy": options.expiry_policy,
            "timeout": options.expiry_timeout_s,
            "shared": "shared" in options.capabilities,
        }
        lasting = self._build(record)
        self._keep(lasting, Operation(Table.SUBSCRIPTION, self._key(log_id), json.dumps(record).encode()))
        return lasting

    def _keep(self, lasting: Lasting, record: Operation) -> None:
        """Have a subscription survive a restart, once that can be written and unless it has ended by then."""
        core = self.topic.core

        def decided(reason: str | None) -> None:
            if reason is not None and self._lasting.get(lasting.name) is lasting:
                self._keep(lasting, record)

        # Of the numbers in use, the journal is told the latest each time: others were given meanwhile.
        core.store([core.log_counter(), record], decided)

    def _key(self, log_id: int) -> bytes:
        return self.topic.log.log_id.to_bytes(4, "big") + log_id.to_bytes(4, "big")

    def _build(self, record: dict[str, Any]) -> Lasting:
        topic = self.topic
        subscription = Subscription(
            topic.core,
            f"{topic.name}::{record['name']}",
            record["log"],
            topic=topic.name,
            pattern=parse(record["source"]),
            options=topic.options,
            selector=compile_selector(record["selector"]) if record["selector"] else None,
        )
        name = record["container"], record["name"]
        lasting = Lasting(self, name, subscription, record)
        self._lasting[name] = lasting
        topic.subscribe(subscription)
        return lasting

    @property
    def logs(self) -> set[int]:
        """The numbers under which durable subscriptions keep their accounts."""
        return {lasting.subscription.log_id for lasting in self._lasting.values()}

    def load(self) -> None:
        """Take up the durable subscriptions that the journal holds."""
        first = self.topic.log.log_id.to_bytes(4, "big")
        last = (self.topic.log.log_id + 1).to_bytes(4, "big")
        found = self.topic.core.storage.scan(Table.SUBSCRIPTION, first, last, 1 << 30)
        for _, value in found:
            self._build(json.loads(value)).wait("connection-close")

    def configure(self) -> None:
        """The topic's options have changed, and with them those of its durable subscriptions."""
        for lasting in self._lasting.values():
            lasting.subscription.configure(self.topic.options)

    def close(self) -> None:
        """The topic is deleted."""
        for lasting in list(self._lasting.values()):
            lasting.end()

    def end(self, lasting: Lasting) -> None:
        """A durable subscription is over: nothing of it is kept."""
        if self._lasting.get(lasting.name) is not lasting:
            return
        del self._lasting[lasting.name]
        topic = self.topic
        subscription = lasting.subscription
        topic.unsubscribe(subscription)
        subscription.close("amqp:resource-deleted", f"subscription {lasting.name[1]!r} is over")
        log_id = subscription.log_id

        def deleted() -> None:
            topic.core.store_in_time(list(delete_log(topic.core.storage, log_id)))

        topic.core.store_in_time([Operation(Table.SUBSCRIPTION, self._key(log_id), None)], deleted)
