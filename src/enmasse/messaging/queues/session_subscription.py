"""Durable subscriptions of sessions: they lose their oldest messages where others would hold up the topic's senders.

Rules:
1. All subscriptions of a session have one account of bytes (``SessionRoom``). What would exceed it makes room: the
   subscription that gets a message loses its oldest first; one that has none lets the largest other lose its own.
2. What is not durable, and not stored by the topic in any case, is for connected clients only.
3. While nobody is connected messages wait on disk and not in memory, whatever their number.
4. What a session wants may have several sources, each a topic filter with a pattern in the topic's trie; a message is
   found once for all of them.
5. A connection that goes, and a node that dies, is no failed attempt: nothing becomes a dead letter of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from enmasse.messaging.facts import PLAIN, Facts
from enmasse.messaging.limits import SUBSCRIPTION_BYTES, Footprint, memory_of, patterns_memory
from enmasse.messaging.log.entry import Entry
from enmasse.messaging.part import Part
from enmasse.messaging.patterns import Pattern, is_cut, patterns_of
from enmasse.messaging.queues.subscription import Subscription, VolatileSubscription
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from enmasse.messaging.address import Address, AddressSpace
    from enmasse.messaging.core import Core
    from enmasse.messaging.queues.consumer import BacklogConsumer
    from enmasse.messaging.queues.topic import Topic
    from enmasse.model.kinds.address_settings import AddressSettings


ENDLESS_BYTES = 1 << 62
"""The room that a topic finds in a subscription which makes room by itself."""

OFFLINE_WINDOW = -1
"""The bytes in memory of a subscription without a client: no message stays there."""

Key = tuple[int, int]
"""The number of a session's log, and of its filter; 0 if it is for several together, or for a group."""


class SessionRoom:
    """The account of what a session's subscriptions store; it takes the place of their space.

    Args:
        space: the space, whose own account counts the same bytes.
    """

    __slots__ = ("_bytes", "dropped", "space", "subscriptions")

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.subscriptions: dict[SessionSubscription, None] = {}
        self.dropped = 0
        """Messages that were lost as the session was full."""
        self._bytes = 0

    @property
    def bytes_stored(self) -> int:
        """The bytes that the session stores."""
        return self._bytes

    @bytes_stored.setter
    def bytes_stored(self, value: int) -> None:
        if self.space.max_bytes:
            self.space.bytes_stored += value - self._bytes
        self._bytes = value

    @property
    def max_bytes(self) -> int:
        """The bytes that the session may store."""
        return self.space.max_session_bytes

    def exceeds(self, size: int) -> bool:
        """Return true if so many bytes more are too many, for the session or for the space."""
        space = self.space
        if self._bytes + size > space.max_session_bytes:
            return True
        return 0 < space.max_bytes < space.bytes_stored + size

    def balance(self, address: Address) -> None:
        """Do nothing: its subscriptions wait for nobody's room."""

    def make_room(self, size: int, wanted: SessionSubscription) -> None:
        """Lose messages until so many bytes fit, or until there is nothing in memory that could be lost."""
        while self.exceeds(size):
            loser = wanted
            if not wanted.depth:
                loser = max(self.subscriptions, key=lambda one: one.bytes_stored, default=wanted)
            if not loser.drop_oldest():
                return


class SessionSubscription(Subscription):
    """A durable subscription of a session to one topic.

    Args:
        key: identifies its filter.

    Attributes:
        sources: the names that are wanted: a topic filter, which most have, or several with the number of the
            session's filters that want each; empty if there are none.
        is_retired: true if it gets nothing more, and ends with the last message that it has.
        has_cuts: true once grants covered a part of some source alone.
    """

    __slots__ = ("has_cuts", "is_retired", "is_trimming", "key", "room", "sources")
    holds_back = False

    def __init__(
        self,
        core: Core,
        name: str,
        log_id: int,
        *,
        topic: str,
        source: str,
        options: AddressSettings,
        key: Key,
    ) -> None:
        self.key = key
        self.sources: str | dict[str, int] = source
        self.has_cuts = is_cut(source)
        self.is_retired = False
        self.room: SessionRoom | None = None
        self.is_trimming = False
        super().__init__(core, name, log_id, topic=topic, pattern=(), options=options)
        self.window = OFFLINE_WINDOW

    @property
    def patterns(self) -> Iterable[Pattern]:
        """The patterns of the names that it wants."""
        return (pattern for source in sources_of(self) for pattern in patterns_of(source))

    @property
    def skips_volatile(self) -> bool:  # type: ignore[override]  # others never change
        """True while nobody is connected: what would be in memory alone is not kept."""
        return not self.consumers

    # Room

    @property
    def free_bytes(self) -> int:
        """The bytes that may still be stored: it makes room by itself."""
        return 0 if self.core.is_pressed else ENDLESS_BYTES

    def join(self, space: AddressSpace) -> None:
        """Join a space; what is stored counts once the session's account is known."""
        self.space = space
        if self.room is not None and space.max_bytes:
            space.bytes_stored += self.bytes_stored

    def belong(self, room: SessionRoom) -> None:
        """Count what is stored in a session's account from now on."""
        self.room = room
        room.subscriptions[self] = None
        self.budget = room
        room.bytes_stored += self.bytes_stored

    def enqueue(
        self,
        payload: bytes,
        producer: Any,
        producer_id: int,
        *,
        durable: bool,
        facts: Facts = PLAIN,
        is_staged: bool = False,
        row: Any = None,
    ) -> Entry:
        """Add a message at the end; the oldest make room for it."""
        room = self.room
        if room is not None:
            size = len(payload) + self.overhead
            if room.exceeds(size):
                room.make_room(size, self)
        if not (self.consumers or self.is_spilling or self.log is None):
            # Nothing that is written waits in memory for a client that may never come.
            self.is_spilling = True
        return super().enqueue(
            payload, producer, producer_id, durable=durable, facts=facts, is_staged=is_staged, row=row
        )

    def drop_oldest(self) -> bool:
        """Lose the oldest message; false if it has yet to come from disk."""
        entry = self.next_entry()
        if entry is None:
            if self.pager is not None and self.pager.at is not None:
                self.is_trimming = True
                self.due()
            return False
        self.dropped += 1
        if self.room is not None:
            self.room.dropped += 1
        self.settle(entry)
        return True

    def is_for_nobody(self, entry: Entry, consumer: BacklogConsumer) -> bool:
        """Return true if a message that is too large for a receiver is so for all others that are there, too."""
        order = self.order
        return all(
            other is consumer or (order is not None and order.is_excluded(entry, other)) for other in self.consumers
        )

    def on_turn(self, now: float) -> None:
        """Hand out; and lose what is too much and has come from disk."""
        if self.is_trimming:
            room = self.room
            while room is not None and room.exceeds(0) and self.drop_oldest():
                pass
            self.is_trimming = (
                room is not None and room.exceeds(0) and self.pager is not None and (self.pager.at is not None)
            )
        super().on_turn(now)
        if self.is_retired and not self.depth and self.topic is not None:
            self.topic.sessions.end(self)

    # Clients

    def connected(self) -> None:
        """Bring messages into memory, as there is a client that takes them."""
        self.window = self.core.window_bytes
        self.due()

    def disconnected(self) -> None:
        """Leave messages on disk, as no client is there any more."""
        if not self.consumers:
            self.window = OFFLINE_WINDOW

    def close(self, condition: str, description: str) -> None:
        """Close, as the session or its filter is over."""
        super().close(condition, description)
        self._leave()

    def abandon(self, condition: str, description: str) -> None:
        """Drop the messages, as the topic is deleted; the session may find another one of its name."""
        super().abandon(condition, description)
        self._leave()

    def _leave(self) -> None:
        if self.room is not None:
            self.room.subscriptions.pop(self, None)
            self.room = None


class SessionWatch(VolatileSubscription):
    """A subscription of a session to one topic that ends with its connection.

    Args:
        source: the names that are wanted, as a topic filter.

    Attributes:
        sources: the sources as those of a durable one.
        has_cuts: true once grants covered a part of some source alone.
    """

    __slots__ = ("has_cuts", "sources")

    def __init__(self, core: Core, source: str, *, topic: str) -> None:
        self.sources: str | dict[str, int] = source
        self.has_cuts = is_cut(source)
        super().__init__(core, str(source), 0, topic=topic, pattern=())

    @property
    def patterns(self) -> Iterable[Pattern]:
        """The patterns of the names that it wants."""
        return (pattern for source in sources_of(self) for pattern in patterns_of(source))


def sources_of(subscription: SessionSubscription | SessionWatch) -> list[str]:
    """Return what a subscription of a session wants, as topic filters."""
    sources = subscription.sources
    return [sources] if isinstance(sources, str) and sources else list(sources)


def footprint_at(source: str) -> Footprint:
    """Return what a filter's part at one topic counts for, beside the filter."""
    return Footprint(0, memory_of(SUBSCRIPTION_BYTES, source) + memory_of_cut(source))


def memory_of_cut(source: str) -> int:
    """Return the memory that a cut filter takes beside its text."""
    return patterns_memory(patterns_of(source)) if is_cut(source) else 0


class SessionSubscribing(Part["Topic"]):
    """The subscriptions of sessions to one topic."""

    __slots__ = ("_kept", "_options", "greater")

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.greater: dict[Subscription, Subscription] = {}
        """By subscriptions for QoS 0, those of the same sessions for QoS 1 and 2, which have what both want."""
        self._kept: dict[Key, SessionSubscription] = {}
        self._options: AddressSettings | None = None

    def __len__(self) -> int:
        """The number of durable ones."""
        return len(self._kept)

    @property
    def logs(self) -> set[int]:
        """The numbers under which they keep their accounts."""
        return {subscription.log_id for subscription in self._kept.values()}

    @property
    def kept(self) -> list[SessionSubscription]:
        """The durable ones."""
        return list(self._kept.values())

    def find(self, key: Key) -> SessionSubscription | None:
        """Return the subscription that a session's filter has here."""
        return self._kept.get(key)

    def subscribe(self, key: Key, source: str, name: str) -> SessionSubscription:
        """Make a durable subscription; it is on disk with the next batch.

        Args:
            key: identifies the filter.
            source: the names that are wanted, as a topic filter; empty if ``widen`` is to say.
            name: the name of it in a report.
        """
        topic = self.whole
        log_id, _ = topic.core.new_log()
        subscription = self._build(key, log_id, source, name)
        self._write(subscription, str(source))
        return subscription

    def _write(self, subscription: SessionSubscription, source: str) -> None:
        """Have a subscription written, once that is possible and unless it has ended or is another's by then."""
        key, log_id = subscription.key, subscription.log_id
        record = {"session": key[0], "filter": key[1], "log": log_id, "source": source}
        value = json.dumps(record, separators=(",", ":")).encode()

        def decided(reason: str | None) -> None:
            if reason is not None and self._kept.get(key) is subscription:
                self._write(subscription, source)

        core = self.whole.core
        # Of the numbers in use, the journal is given the latest each time: others were given meanwhile.
        core.store([core.log_counter(), Operation(Table.SUBSCRIPTION, self._record_key(log_id), value)], decided)

    def rename(self, subscription: SessionSubscription, key: Key) -> None:
        """Have a subscription be that of another key, with no source yet: an older version made it for one filter."""
        del self._kept[subscription.key]
        for source in sources_of(subscription):
            self.narrow(subscription, source)
        subscription.key = key
        self._kept[key] = subscription
        self._write(subscription, "")

    def retire(self, subscription: SessionSubscription) -> None:
        """Have a subscription get nothing more; it ends with the last message that it has."""
        for source in sources_of(subscription):
            self.narrow(subscription, source)
        subscription.is_retired = True
        subscription.due()

    def widen(self, subscription: SessionSubscription | SessionWatch, source: str) -> None:
        """Have a subscription get what one more filter of its session wants."""
        sources = subscription.sources
        subscription.has_cuts = subscription.has_cuts or is_cut(source)
        if not sources:
            subscription.sources = source
        else:
            if isinstance(sources, str):
                sources = subscription.sources = {sources: 1}
            sources[source] = sources.get(source, 0) + 1
            if sources[source] > 1:
                self.recut(subscription, source)
                return
        for pattern in patterns_of(source):
            self.whole.widen(subscription, pattern)
        self._count(subscription, memory_of(0, source) + memory_of_cut(source))

    def recut(self, subscription: SessionSubscription | SessionWatch, source: str) -> None:
        """Have a subscription get what is left of a filter of its own by other grants, if they are."""
        if not (subscription.has_cuts or is_cut(source)):
            return
        subscription.has_cuts = True
        sources = subscription.sources
        before = next((one for one in sources_of(subscription) if one == source), None)
        if before is None or patterns_of(before) == patterns_of(source):
            return
        if isinstance(sources, str):
            subscription.sources = source
        else:
            # A key that is equal stays as it is.
            sources[source] = sources.pop(before)
        self._forget(subscription, before)
        for pattern in patterns_of(source):
            self.whole.widen(subscription, pattern)
        self._count(subscription, memory_of_cut(source) - memory_of_cut(before))

    def _forget(self, subscription: SessionSubscription | SessionWatch, source: str) -> None:
        """Have a subscription get no more what a filter stands for, unless what is left of others does, too."""
        left: set[Pattern] = set()
        if subscription.has_cuts:
            left.update(subscription.patterns)
        for pattern in patterns_of(source):
            if pattern not in left:
                self.whole.narrow(subscription, pattern)

    def narrow(self, subscription: SessionSubscription | SessionWatch, source: str) -> None:
        """Have a subscription get no more what a filter of its session wants, unless another does."""
        sources = subscription.sources
        before = source
        if isinstance(sources, str):
            before, subscription.sources = sources, ""
        else:
            sources[source] -= 1
            if sources[source]:
                return
            if subscription.has_cuts:
                before = next(one for one in sources if one == source)
            del sources[source]
        self._forget(subscription, before)
        self._count(subscription, -memory_of(0, before) - memory_of_cut(before))

    def _count(self, subscription: SessionSubscription | SessionWatch, change: int) -> None:
        """Correct the memory that a subscription counts for."""
        before = subscription.footprint
        subscription.footprint = Footprint(0, before.size + change)
        space = self.whole.space
        if space is not None:
            space.usage.give_back(before)
            space.usage.take(subscription.footprint)

    def pair(self, greater: Subscription, lesser: Subscription) -> None:
        """Have a session's subscription for QoS 0 not get what the one for QoS 1 and 2 gets."""
        if self.greater.get(lesser) is not greater:
            self.greater[lesser] = greater
            self.whole.version += 1

    def unpair(self, lesser: Subscription) -> None:
        """Have a session's subscription for QoS 0 get all that it wants."""
        if self.greater.pop(lesser, None) is not None:
            self.whole.version += 1

    def load(self, record: dict[str, Any]) -> None:
        """Take up a durable subscription of an earlier run of the node."""
        source = record["source"]
        self._build((record["session"], record["filter"]), record["log"], source, source)

    def _build(self, key: Key, log_id: int, source: str, name: str) -> SessionSubscription:
        topic = self.whole
        subscription = SessionSubscription(
            topic.core, name, log_id, topic=topic.name, source=source, options=self.options, key=key
        )
        subscription.footprint = footprint_at(source)
        self._kept[key] = subscription
        topic.subscribe(subscription)
        return subscription

    def watch(self, source: str) -> SessionWatch:
        """Make a subscription that ends with its connection."""
        topic = self.whole
        subscription = SessionWatch(topic.core, source, topic=topic.name)
        subscription.footprint = footprint_at(source)
        topic.subscribe(subscription)
        return subscription

    def end(self, subscription: SessionSubscription) -> None:
        """End a durable subscription, and delete everything of it."""
        if self._kept.get(subscription.key) is not subscription:
            return
        del self._kept[subscription.key]
        topic = self.whole
        topic.unsubscribe(subscription)
        subscription.close("amqp:resource-deleted", "the session's subscription is over")
        core, log_id = topic.core, subscription.log_id
        core.store_in_time(
            [Operation(Table.SUBSCRIPTION, self._record_key(log_id), None)], lambda: core.clear(log_id)
        )

    def _record_key(self, log_id: int) -> bytes:
        return self.whole.log.log_id.to_bytes(4, "big") + log_id.to_bytes(4, "big")

    @property
    def options(self) -> AddressSettings:
        """The settings of the topic as they are for a session."""
        if self._options is None:
            self._options = replace(
                self.whole.options,
                full_policy="drop-oldest",
                max_attempts=0,
                redelivery_delay=0,
                reject_policy="deadletter",
                max_consumers=0,
                exclusive=False,
            )
        return self._options

    def configure(self) -> None:
        """Apply the topic's changed options."""
        self._options = None
        for subscription in self._kept.values():
            subscription.configure(self.options)

    def close(self) -> None:
        """Close, as the topic is deleted."""
        for subscription in self.kept:
            self.end(subscription)
