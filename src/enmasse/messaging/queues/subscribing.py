"""Receivers on a topic: which subscription each of them belongs to.

Rules:
1. Without further options a receiver is a volatile subscriber of its own.
2. A source whose terminus is durable names a durable subscription by container id and link name. It
   outlives the link for as long as its expiry policy and time-out say [AMQP 3.5.3]; closing the link ends
   it, detaching does not.
3. With the capability ``shared`` several receivers of one container have a subscription together, with
   ``global`` too those of all containers; it is named by the link name up to its first ``|``.
4. With the capability ``enmasse:subtree`` the source stands for all names below it, too. A durable subscription to
   the source alone takes these from then on, and keeps what waits in it.
5. A receiver without a source, with the link name of a durable subscription of its container, joins that.
6. A receiver has what the grants of its user cover of its source (``shares``). Those that share a subscription name
   the same source.
7. A durable subscription belongs to the owner who made it (``owners``), and goes with that one: others need the right
   to manage the space. One of a version that kept nobody's name belongs to the first user who attaches to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import AmqpError
from enmasse.messaging.address import FEW_LINKS, DurableSource
from enmasse.messaging.chores import ENDING_UNITS
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import (
    SELECTOR_FACTOR,
    SUBSCRIPTION_BYTES,
    Footprint,
    memory_of,
    patterns_memory,
)
from enmasse.messaging.owners import is_open_to
from enmasse.messaging.part import Part
from enmasse.messaging.patterns import SUBTREE_CAPABILITY, is_cut, parse, patterns_at, subtree
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.queues.shares import AWAY, Shares, share_of
from enmasse.messaging.queues.subscription import Subscription, VolatileSubscription
from enmasse.messaging.retaining import ALWAYS, NEW, feed, handling_of
from enmasse.messaging.selectors.selector import compile_selector, selector_of
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.delivery import ConsumerPort
    from enmasse.messaging.queues.topic import Topic


MAX_NAME_BYTES = 320

STOLEN = AmqpError("amqp:link:stolen", "the subscription's link was attached anew")

REGRANT_UNITS = 20
"""The work of looking up what an owner may receive, in units of a turn (``core``)."""

PASSED_AT_ONCE = 1_000
"""Subscriptions of others that are passed by in one go."""

Name = tuple[str, str]
"""Container (empty for all) and name."""


class MemberConsumer(BacklogConsumer):
    """A receiver of a subscription that receivers make.

    Args:
        subscription: the subscription.
        port: its link.
        options: its wishes.
        capabilities: those that it knows.
    """

    __slots__ = ("owner", "source")
    address: Subscription
    lasting: Lasting | None = None
    """The durable subscription, if it is one."""

    def __init__(
        self,
        subscription: Subscription,
        port: ConsumerPort,
        options: AttachOptions,
        capabilities: Sequence[str] = (),
    ) -> None:
        super().__init__(subscription, port, options.presettle, None, capabilities)
        self.owner = options.owner
        self.source = options.source or subscription.topic_name
        """What it named, or what grants leave of that."""

    def recut(self, source: str) -> None:
        """Have what the user may receive of its source now."""
        self.source = source
        self.share()

    def share(self) -> None:
        """Have no more of the subscription than the user may receive, and so it no more than its receivers may."""
        subscription, lasting = self.address, self.lasting
        _share(subscription, self, self.source)
        if subscription.shares is not None:
            self.source = subscription.shares.known(self.source)
        if lasting is not None and lasting.is_told_by(self):
            lasting.grant(self.source)


class SubscriberConsumer(MemberConsumer):
    """A receiver of a durable subscription that it has made."""

    __slots__ = ("lasting",)
    lasting: Lasting

    def on_detached(self, *, closed: bool = False) -> None:
        """Note that the link is detached; closing it ends the subscription."""
        super().on_detached()
        self.lasting.left(closed=closed)


def _share(subscription: Subscription, sharer: object, source: str) -> None:
    """Note what one may have of a subscription; without a word where all may have all."""
    if subscription.shares is None:
        if share_of(subscription, source) is None:
            return
        subscription.shares = Shares(subscription)
    subscription.shares.put(subscription, sharer, source)


class Lasting:
    """A durable subscription that receivers have made, and when it ends."""

    __slots__ = (
        "_subscribing",
        "_waits",
        "is_shared",
        "name",
        "owner",
        "policy",
        "record",
        "source",
        "subscription",
        "timeout_s",
        "user",
    )

    def __init__(
        self, subscribing: Subscribing, name: Name, subscription: Subscription, record: dict[str, Any]
    ) -> None:
        self._subscribing = subscribing
        self.name = name
        self.subscription = subscription
        self.record = record
        self.source: str = record["source"]
        self.policy: str = record["policy"]
        self.timeout_s: int = record["timeout"]
        self.is_shared: bool = record["shared"]
        self.owner: str = record.get("ownerId", "")
        self.user: str = record.get("owner", "")
        self._waits = 0

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that a receiver asks for to join it."""
        return ("shared", "global") if self.is_shared and not self.name[0] else ("shared",) * self.is_shared

    @property
    def durable_source(self) -> DurableSource:
        """The subscription as its receiver named it."""
        selector = self.subscription.selector
        text = None if selector is None else selector.text
        return DurableSource(self.source, text, self.policy, self.timeout_s, self.capabilities)

    def is_open_to(self, owner: str, user: str, *, may_manage: bool) -> bool:
        """Return whether an owner of a name may read from it, and end it."""
        return may_manage or is_open_to(self, owner, user)

    def belong_to(self, owner: str, user: str) -> None:
        """Note whose it is."""
        self.owner, self.user = owner, user
        self.record |= {"owner": user, "ownerId": owner}

    def adopted(self) -> Operation | None:
        """Return the operation that writes it with its owner; ``None`` if it is over."""
        self.belong_to(self.owner, self.user)
        return self._subscribing.operation(self)

    def disown(self) -> None:
        """End the subscription, as its owner is gone."""
        self.end()

    def is_told_by(self, consumer: MemberConsumer) -> bool:
        """Return whether what a receiver may have says what the owner may."""
        return consumer.owner == self.owner and consumer.source == self.source

    def grant(self, source: str) -> None:
        """Gather what the owner may receive of its source, as far as it is known: all, or a part, or nothing."""
        _share(self.subscription, AWAY, source)

    def regrant(self) -> None:
        """Gather what the grants of the owner cover now, as far as they are known without a receiver."""
        space = self._subscribing.whole.space
        grants = None if space is None or not self.user else space.grants(self.owner, self.user)
        if grants is not None:
            self.grant(grants.of_client(self.record.get("client", self.name[0])).granted(self.source))

    def widen(self) -> None:
        """Take what is sent to names below the source, too, from now on; what waits stays.

        Its other receivers have what they named, and its owner what is known as that comes.
        """
        subscription, topic = self.subscription, self._subscribing.whole
        if subscription.shares is not None:
            subscription.shares.end(subscription)
            subscription.shares = None
        topic.narrow(subscription, subscription.pattern)
        self.source = self.record["source"] = subtree(self.source)
        subscription.pattern = parse(self.source)
        topic.widen(subscription, subscription.pattern)
        self._subscribing.keep(self)
        for consumer in subscription.consumers:
            assert isinstance(consumer, MemberConsumer)
            consumer.share()
        self.regrant()

    def left(self, *, closed: bool) -> None:
        """Note that a receiver was detached."""
        if self.subscription.consumers:
            return
        if closed:
            self.end()
        else:
            self.wait("link-detach")

    def wait(self, event: str) -> None:
        """Start the time-out, if this event is the one after which only that is left."""
        order = ("link-detach", "session-end", "connection-close")
        if self.policy not in order or order.index(event) < order.index(self.policy):
            return
        self._waits += 1
        mine = self._waits

        def over() -> None:
            if self._waits == mine and not self.subscription.consumers:
                self.end()

        self.subscription.core.call_later(self.timeout_s, over)

    def joined(self) -> None:
        """Note that a receiver has joined again."""
        self._waits += 1

    def end(self) -> None:
        """End the subscription."""
        self._subscribing.end(self)


def _shared_otherwise(name: Name, source: str, asked: str) -> AttachError:
    """Return the reason why a receiver may not join a subscription that others have [JMS 2.0 8.3.2]."""
    return AttachError(
        "amqp:not-allowed",
        f"the subscription {name[1]!r:.200} has receivers, and is of {source!r:.200}, not of {asked!r:.200} or of "
        "another kind: take another name, or ask for the same, shared as theirs",
    )


def _memory_of_cut(source: str) -> int:
    """Return the bytes of memory that a source takes beside its text, as grants cover it in part."""
    return patterns_memory(patterns_at(source)) if is_cut(source) else 0


class Subscribing(Part["Topic"]):
    """The subscriptions of one topic that its receivers make."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._lasting: dict[Name, Lasting] = {}
        self._shared: dict[Name, VolatileSubscription] = {}
        """Volatile subscriptions that several receivers may have together."""
        self._names: dict[Subscription, Name] = {}
        """The names of these."""

    # Receivers

    def attach(self, port: ConsumerPort, options: AttachOptions) -> BacklogConsumer:
        """Attach a receiver.

        Raises:
            AttachError: its selector is malformed, a limit is reached, or the subscription belongs to another user or
                is shared by receivers of another source.
        """
        is_shared = "shared" in options.capabilities
        container = "" if "global" in options.capabilities else options.container
        name = container, options.name.partition("|")[0] if is_shared else options.name
        if options.is_durable:
            return self._attach_lasting(port, options, name, is_shared=is_shared)
        wanted = handling_of(options.filters)
        subscription = self._shared.get(name) if is_shared else None
        is_new = subscription is None
        source = options.source or self.whole.name
        if subscription is not None and subscription.name != source:
            raise _shared_otherwise(name, subscription.name, source)
        if subscription is None:
            subscription = self._make_volatile(options)
            if is_shared:
                self._shared[name] = subscription
                self._names[subscription] = name
        else:
            self._require_room_beside(subscription, source)
        consumer = MemberConsumer(subscription, port, options, options.capabilities)
        subscription.add_consumer(consumer)
        consumer.share()
        if wanted == ALWAYS or (wanted == NEW and is_new):
            feed(subscription, within=options.source)
        return consumer

    def _make_volatile(self, options: AttachOptions) -> VolatileSubscription:
        topic = self.whole
        source = options.source or topic.name
        selector = selector_of(options.filters)
        footprint = self._footprint("" if selector is None else selector.text, source)
        if options.is_part:
            footprint = Footprint(0, footprint.size)
        self._require_room(Footprint(footprint.subscriptions, footprint.size + _memory_of_cut(source)))
        policy = topic.options.slow_policy
        subscription = VolatileSubscription(
            topic.core,
            str(source),
            topic.core.new_volatile_log() if policy == "spill" else 0,
            topic=topic.name,
            pattern=parse(source),
            policy=policy,
            selector=selector,
        )
        subscription.footprint = footprint
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
        wanted = handling_of(options.filters)
        source = options.source or self.whole.name
        lasting = self._lasting.get(name)
        owner, user = options.owner, options.user
        space = self.whole.space
        if lasting is not None and lasting.owner != owner and space is not None and space.owners.is_gone(lasting):
            lasting.disown()
            lasting = None
        if lasting is not None and not lasting.is_open_to(owner, user, may_manage=options.may_manage):
            raise AttachError(
                "amqp:unauthorized-access",
                f"the durable subscription {name[1]!r} of container {name[0]!r} belongs to another user: "
                "take another link name or container id, or let a user with the permission manage end it",
            )
        text = "" if selector is None else selector.text
        is_subtree = SUBTREE_CAPABILITY in options.capabilities
        if lasting is not None and is_subtree and lasting.source != source == subtree(lasting.source):
            lasting.widen()
        if lasting is not None and not (is_shared or lasting.is_shared):
            for one in list(lasting.subscription.consumers):
                one.port.detach(STOLEN)
                lasting.subscription.remove_consumer(one)
        if lasting is not None and lasting.subscription.consumers:
            if not (is_shared and lasting.is_shared) or lasting.source != source:
                raise _shared_otherwise(name, lasting.source, source)
        elif lasting is not None:
            before = lasting.subscription.selector
            is_other = lasting.is_shared is not is_shared
            if is_other or lasting.source != source or ("" if before is None else before.text) != text:
                # Another pattern or selector makes it another subscription [JMS 2.0 8.3.3].
                lasting.end()
                lasting = None
        wants_values = wanted == ALWAYS or (wanted == NEW and lasting is None)
        if lasting is None:
            lasting = self._make_lasting(name, str(source), text, options)
        elif owner and lasting.owner in ("", owner) and (lasting.owner, lasting.user) != (owner, user):
            # An older version knew no owner; and at a provider a person may get another name.
            lasting.belong_to(owner, user)
            self.keep(lasting)
        subscription = lasting.subscription
        self._require_room_beside(subscription, source)
        lasting.joined()
        consumer = SubscriberConsumer(subscription, port, options)
        consumer.lasting = lasting
        subscription.add_consumer(consumer)
        consumer.share()
        if subscription.shares is not None:
            subscription.shares.sift(subscription)
        if wants_values:
            feed(subscription, within=options.source)
        return consumer

    def find(self, container: str, link: str, owner: str, user: str, *, may_manage: bool) -> Lasting | None:
        """Return the durable subscription that a link name alone stands for, if it is open to an owner of a name."""
        name = link.partition("|")[0]
        found = [self._lasting.get(key) for key in ((container, link), (container, name), ("", name))]
        open_ones = (one for one in found if one is not None and one.is_open_to(owner, user, may_manage=may_manage))
        return next(open_ones, None)

    def __iter__(self) -> Iterator[Lasting]:
        """Iterate over the durable subscriptions."""
        return iter(self._lasting.values())

    def forget(self, subscription: Subscription) -> None:
        """Forget a volatile subscription that has ended."""
        name = self._names.pop(subscription, None)
        if name is not None:
            del self._shared[name]

    # Durable ones

    @staticmethod
    def _footprint(selector: str, *names: str) -> Footprint:
        return Footprint(1, memory_of(SUBSCRIPTION_BYTES, *names) + SELECTOR_FACTOR * len(selector))

    def _require_room(self, footprint: Footprint) -> None:
        if self.whole.space is not None:
            self.whole.space.usage.require_room(footprint)

    def _require_room_beside(self, subscription: Subscription, source: str) -> None:
        """Check that there is room for a receiver's share, unless the subscription has some of who was there last."""
        if is_cut(source) and (subscription.consumers or subscription.shares is None):
            self._require_room(Footprint(0, _memory_of_cut(source)))

    def _make_lasting(self, name: Name, source: str, selector: str, options: AttachOptions) -> Lasting:
        self._require_room(self._footprint(selector, *name, source))
        log_id, _ = self.whole.core.new_log()
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
        if not name[0]:
            record["client"] = options.container
        lasting = self._build(record)
        if options.owner:
            lasting.belong_to(options.owner, options.user)
        self.keep(lasting)
        return lasting

    def keep(self, lasting: Lasting) -> None:
        """Have a subscription survive a restart, once that can be written and unless it has ended by then."""
        core = self.whole.core
        record = self.operation(lasting)
        assert record is not None

        def decided(reason: str | None) -> None:
            if reason is not None and self._lasting.get(lasting.name) is lasting:
                self.keep(lasting)

        # Of the numbers in use, the journal is given the latest each time: others were given meanwhile.
        core.store([core.log_counter(), record], decided)

    def operation(self, lasting: Lasting) -> Operation | None:
        """Return the operation that writes a subscription; ``None`` if it is over."""
        if self._lasting.get(lasting.name) is not lasting:
            return None
        return Operation(
            Table.SUBSCRIPTION, self._key(lasting.subscription.log_id), json.dumps(lasting.record).encode()
        )

    def _key(self, log_id: int) -> bytes:
        return self.whole.log.log_id.to_bytes(4, "big") + log_id.to_bytes(4, "big")

    def _build(self, record: dict[str, Any]) -> Lasting:
        topic = self.whole
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
        subscription.footprint = self._footprint(record["selector"], *name, record["source"])
        lasting = Lasting(self, name, subscription, record)
        self._lasting[name] = lasting
        topic.subscribe(subscription)
        return lasting

    @property
    def logs(self) -> set[int]:
        """The numbers under which durable subscriptions keep their accounts."""
        return {lasting.subscription.log_id for lasting in self._lasting.values()}

    def load(self) -> None:
        """Load the durable subscriptions that the journal holds."""
        first = self.whole.log.log_id.to_bytes(4, "big")
        last = (self.whole.log.log_id + 1).to_bytes(4, "big")
        found = self.whole.core.storage.scan(Table.SUBSCRIPTION, first, last, 1 << 30)
        for _, value in found:
            record = json.loads(value)
            if "session" in record:
                self.whole.sessions.load(record)
            else:
                lasting = self._build(record)
                lasting.regrant()
                lasting.wait("connection-close")
                if not lasting.owner and self.whole.space is not None:
                    self.whole.space.owners.adopt(lasting)

    def regrant(self, user: str) -> Iterator[int]:
        """Return the parts in which durable subscriptions gather what grants of one user, or of all, cover now."""
        for number, lasting in enumerate(list(self._lasting.values())):
            if user in ("", lasting.user) and self._lasting.get(lasting.name) is lasting:
                lasting.regrant()
                yield REGRANT_UNITS
            elif not number % PASSED_AT_ONCE:
                yield 1

    def configure(self) -> None:
        """Apply the topic's changed options to its durable subscriptions."""
        for lasting in self._lasting.values():
            lasting.subscription.configure(self.whole.options)

    def part(self) -> Iterator[int]:
        """End durable subscriptions, if they are many, as the topic is about to be closed; see ``Address.part``."""
        if len(self._lasting) > FEW_LINKS:
            for lasting in list(self._lasting.values()):
                lasting.end()
                yield ENDING_UNITS

    def close(self) -> None:
        """Close, as the topic is deleted."""
        for lasting in list(self._lasting.values()):
            lasting.end()

    def end(self, lasting: Lasting) -> None:
        """End a durable subscription, and delete everything of it."""
        if self._lasting.get(lasting.name) is not lasting:
            return
        del self._lasting[lasting.name]
        topic = self.whole
        subscription = lasting.subscription
        topic.unsubscribe(subscription)
        subscription.close("amqp:resource-deleted", f"subscription {lasting.name[1]!r} is over")
        core, log_id = topic.core, subscription.log_id
        core.store_in_time([Operation(Table.SUBSCRIPTION, self._key(log_id), None)], lambda: core.clear(log_id))
