"""Topics: every subscription gets each message; what is stored is stored once for all of them.

Names below a topic are reached through it: a topic ``news`` takes messages for ``news/sport/chess``
and gives them to subscribers of ``news/#``. A receiver on the topic itself is a volatile subscriber,
unless it asks for a durable or shared subscription (``subscribing``). The sender's message is accepted
once it is stored for every durable subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import ACCEPTED, RELEASED, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.facts import Facts, known_facts
from enmasse.messaging.log import log_key
from enmasse.messaging.message_log import MessageLog
from enmasse.messaging.numbered_producer import NumberedProducer
from enmasse.messaging.numbering import producer_name
from enmasse.messaging.options import StoredOptions
from enmasse.messaging.patterns import matches
from enmasse.messaging.queue import MAX_CREDIT, Staged, grant_credit
from enmasse.messaging.queue_entry import DONE, MOVING, READY, Entry
from enmasse.messaging.redelivery import NOBODY
from enmasse.messaging.refusals import UNSUPPORTED_FORMAT, full, malformed
from enmasse.messaging.selector import SELECTOR_FILTER
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.stored_producer import StoredProducer
from enmasse.messaging.subscribing import Subscribing
from enmasse.messaging.subscription import Subscription, VolatileSubscription
from enmasse.wire.amqp.errors import DecodeError

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.space import Space
    from enmasse.wire.amqp.performatives import Rejected

__all__ = ["SharedRow", "Topic"]


class SharedRow:
    """One message that is written for several subscriptions."""

    __slots__ = ("_open", "_state", "entries", "is_durable", "payload", "producer", "producer_id")
    body_at = 0

    def __init__(self, payload: bytes, producer: Any, producer_id: int, *, is_durable: bool) -> None:
        self.payload = payload
        self.producer = producer
        self.producer_id = producer_id
        self.is_durable = is_durable
        self.entries: dict[Subscription, Entry] = {}
        self._open = 0
        self._state: Any = ACCEPTED

    def add(self, subscription: Subscription, entry: Entry) -> None:
        """A subscription wants it."""
        self.entries[subscription] = entry
        self._open += 1

    @property
    def state(self) -> int:
        """``DONE`` once no subscription has to give it to anybody."""
        return READY if any(entry.state != DONE for entry in self.entries.values()) else DONE

    def settle(self, _id: int, state: Any) -> None:
        """One subscription is finished with it before it was stored, or could not store it."""
        if state is not ACCEPTED:
            self._state = state
        self._open -= 1
        if not self._open:
            self._answer()

    def stored(self) -> None:
        """It is on disk."""
        for entry in self.entries.values():
            entry.producer = None
        self._answer()

    def _answer(self) -> None:
        producer = self.producer
        if producer is not None:
            self.producer = None
            producer.settle(self.producer_id, self._state)


class TopicProducer(StoredProducer):
    """A sender's end at a topic or at a name below it."""

    __slots__ = ("_stored", "_version", "_volatile")
    address: Topic

    def __init__(self, address: Topic, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self._version = -1
        self._stored: list[Subscription] = []
        self._volatile: list[VolatileSubscription] = []

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Give it to every subscription whose pattern matches."""
        topic = self.address
        refusal: Rejected | None = None
        if message_format:
            refusal = UNSUPPORTED_FORMAT
        else:
            try:
                facts = self.look(payload)
            except DecodeError as error:
                refusal = malformed(error)
        if self._version != topic.version:
            self._version = topic.version
            self._stored, self._volatile = topic.routes(self.target)
        if refusal is None and topic.options.full != "block" and not topic.make_room(self._stored, len(payload)):
            refusal = full(topic.name)
        if refusal is not None:
            if settled:
                topic.dropped += 1
            else:
                self.settle(delivery_id, refusal)
            return
        for subscription in self._volatile:
            if subscription.selector is None or subscription.wants(payload):
                subscription.offer(payload, facts)
        is_waiting = False
        if self._stored:
            producer = None if settled else self
            is_waiting = topic.store(self._stored, payload, facts, producer, delivery_id)
        if not settled and not is_waiting:
            self.settle(delivery_id, ACCEPTED)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take it if every subscription that holds senders back has room."""
        if self.address.options.full != "block" or self.address.window_for(1):
            self.on_message(payload, delivery_id, settled, message_format)
        elif settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class Topic(Address):
    """An address whose messages go to every subscription.

    Args:
        core: whose turn it takes part in.
        name: the address.
        log_id: under which messages for its durable subscriptions are kept.
        options: ``full`` and ``slow`` say what happens where a subscription has no room, ``storage`` what
            of it survives a restart.
    """

    kind = "topic"
    __slots__ = (
        "ended", "is_closed", "is_loaded", "log", "options", "space", "subscribing", "subscriptions", "version",
    )  # fmt: skip

    def __init__(self, core: Core, name: str, log_id: int, *, options: StoredOptions | None = None) -> None:
        super().__init__(core, name)
        self.options = options or StoredOptions()
        self.log = MessageLog(core, self, log_id)
        self.space: Space | None = None
        self.subscriptions: list[Subscription] = []
        self.is_closed = False
        """Whether it is deleted."""
        self.is_loaded = False
        self.version = 0
        """Changes whenever a subscription comes or goes."""
        self.ended = {"messagesOut": 0, "accepted": 0, "rejected": 0, "released": 0, "modified": 0, "dropped": 0}
        """What volatile subscriptions that are gone had counted."""
        self.subscribing = Subscribing(self)

    def configure(self, options: StoredOptions) -> None:
        """Change what it does beyond storing, and so do the subscriptions that its receivers made."""
        self.options = options
        self.subscribing.configure()
        self.due()

    def join(self, space: Space) -> None:
        """Be one of a space's addresses, with the subscriptions that are none."""
        self.space = space
        for subscription in self.subscriptions:
            if space.addresses.get(subscription.name) is not subscription:
                subscription.join(space)

    # Links

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins; topics always give credit, as far as durable subscriptions have room.

        Raises:
            AttachError: the name that it numbers its messages under is none.
        """
        name = producer_name(options)
        if name is not None:
            return self.add_producer(NumberedProducer(self, port, target, name))
        return self.add_producer(self.make_producer(port, target))

    def sequence_log(self) -> MessageLog:
        """What the sequences of numbered producers are kept with."""
        return self.log

    def refuses(self, payload: bytes, target: str) -> bool:
        """Whether a subscription has no room for a message, even after making some as the policy says."""
        return self.options.full != "block" and not self.make_room(self.routes(target)[0], len(payload))

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return TopicProducer(self, port, target)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """A selector; see ``Address``."""
        return (SELECTOR_FILTER,)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A subscriber joins; its source may be a pattern below the topic.

        Raises:
            AttachError: it asks for what does not fit, such as a malformed selector.
        """
        return self.subscribing.attach(port, options)

    def subscribe(self, subscription: Subscription) -> None:
        """Feed a subscription from now on."""
        subscription.topic = self
        if self.space is not None and subscription.space is None:
            subscription.join(self.space)
        if subscription.is_durable and subscription.log is None and subscription.options.storage != "memory":
            subscription.bind(self.log)
            subscription.configure(subscription.options)
        if self.is_loaded and subscription.is_durable:
            self._begin(subscription)
        self.subscriptions.append(subscription)
        self.version += 1
        self.due()

    def _begin(self, subscription: Subscription) -> None:
        """What comes from now on is for a subscription, what came before is not."""
        subscription.first_offset = self.log.next_offset
        mark = Operation(Table.MARK, log_key(*subscription.owner, 0), self.log.next_offset.to_bytes(8, "big"))
        self.log.marks[subscription] = mark
        self.core.store_in_time([mark], lambda: self._begun(subscription, mark))

    def _begun(self, subscription: Subscription, mark: Operation) -> None:
        """It is on disk where a subscription begins."""
        if self.log.marks.get(subscription) is mark:
            del self.log.marks[subscription]

    def unsubscribe(self, subscription: Subscription) -> None:
        """Feed it no longer; what only it needed is deleted."""
        subscription.topic = None
        self.subscriptions.remove(subscription)
        if subscription in self.log.owners:
            self.log.owners.remove(subscription)
            self.log.marks.pop(subscription, None)
            self.core.store_in_time(self.log.collect())
        self.version += 1
        self.due()

    def end_volatile(self, subscription: Subscription) -> None:
        """A volatile subscription has lost its last subscriber."""
        counts = subscription.counts()
        for name in self.ended:
            self.ended[name] += counts[name]
        self.subscribing.forget(subscription)
        self.unsubscribe(subscription)

    def routes(self, target: str) -> tuple[list[Subscription], list[VolatileSubscription]]:
        """The durable and the volatile subscriptions that want messages for a name."""
        found = [s for s in self.subscriptions if matches(s.pattern, target)]
        volatile = [s for s in found if isinstance(s, VolatileSubscription)]
        return [s for s in found if not isinstance(s, VolatileSubscription)], volatile

    # Messages

    def store(
        self,
        subscriptions: list[Subscription],
        payload: bytes,
        facts: Facts,
        producer: Any,
        producer_id: int,
        *,
        is_staged: bool = False,
    ) -> bool:
        """Give a message to durable subscriptions.

        Returns:
            Whether ``producer.settle(producer_id, state)`` will be called, when it is stored.
        """
        is_durable = facts.durable or self.options.storage == "durable"
        kept: SharedRow | None = None
        passing: SharedRow | None = None
        for subscription in subscriptions:
            if subscription.selector is not None and not subscription.wants(payload):
                continue
            if subscription.writes_durable if is_durable else subscription.writes_all:
                row = kept = kept or SharedRow(payload, producer, producer_id, is_durable=True)
            elif subscription.log is not None and (subscription.is_spilling or is_staged):
                row = passing = passing or SharedRow(payload, None, 0, is_durable=False)
            else:
                subscription.enqueue(payload, None, 0, durable=False, facts=facts)
                continue
            waits = row if row is kept or is_staged else None
            entry = subscription.enqueue(payload, waits, 0, durable=True, facts=facts, is_staged=is_staged, row=row)
            row.add(subscription, entry)
        if passing is not None:
            if is_staged:
                # Both rows share the transaction's fate; one of them tells it.
                passing.producer, passing.producer_id = (producer, producer_id) if kept is None else (NOBODY, 0)
            self.log.add(passing)
        if kept is not None:
            self.log.add(kept)
        return producer is not None and (kept is not None or (is_staged and passing is not None))

    def lose(self, row: Any) -> bool:
        """A row is not on disk: its sender is to send again, unless it was told already that it need not."""
        is_content = row.producer is None
        for subscription, entry in row.entries.items():
            if entry.state == DONE:
                continue
            entry.frame = None
            if is_content:
                continue
            if entry.sink is not None or entry.state == MOVING:
                entry.is_refused = True
            else:
                subscription.refuse(entry)
        return is_content and row.state != DONE

    def make_room(self, subscriptions: list[Subscription], size: int) -> bool:
        """Whether every durable subscription has room for a message, as its topic's policy makes some."""
        for subscription in subscriptions:
            while subscription.free_bytes < size + subscription.overhead:
                entry = subscription.next_entry() if self.options.full == "drop-oldest" else None
                if entry is None or self.core.is_pressed:
                    return False
                subscription.dropped += 1
                subscription.settle(entry)
        return True

    def window_for(self, senders: int) -> int:
        """Messages that each of so many senders may send now."""
        if self.options.full != "block":
            return MAX_CREDIT
        holding = [s for s in self.subscriptions if s.is_durable or getattr(s, "is_blocking", False)]
        return min((s.window_for(senders) for s in holding), default=MAX_CREDIT)

    def on_turn(self, now: float) -> None:
        """Let senders have what every durable subscription has room for."""
        if self.producers:
            grant_credit(self, self.window_for(len(self.producers)))

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more could be stored now, as far as that holds senders back."""
        return self.options.full == "drop-oldest" or self.window_for(1) > 0

    def enlist_message(self, payload: bytes, target: str, done: Callable[[str | None], None]) -> Log:
        """Have a message written with the next batch, and handed out only then.

        Args:
            payload: the message.
            target: the topic, or a name below it.
            done: told once it is stored, or why it is not.
        """
        facts = known_facts(payload)
        stored, volatile = self.routes(target)
        written = [subscription for subscription in stored if subscription.log is not None]

        def decided(problem: str | None) -> None:
            if problem is None:
                for subscription in stored:
                    if subscription.log is None and subscription.wants(payload):
                        subscription.enqueue(payload, None, 0, durable=False, facts=facts)
                for passing in volatile:
                    if passing.wants(payload):
                        passing.offer(payload, facts)
            done(problem)

        if not self.store(written, payload, facts, Staged(decided), 0, is_staged=True):
            self.log.stage(decided)
        return self.log

    # Start and end

    def load(self) -> None:
        """Take up what the journal holds, for every durable subscription."""
        storage = self.core.storage
        self.subscribing.load()
        owners = [s for s in self.subscriptions if s.is_durable and s.log is self.log]
        fresh = []
        for subscription in owners:
            mark = storage.get(Table.MARK, log_key(*subscription.owner, 0))
            subscription.first_offset = (1 << 63) if mark is None else int.from_bytes(mark[:8], "big")
            if mark is None:
                fresh.append(subscription)
        needed, forgotten = self.log.load(*owners)
        # An empty log goes on where its subscriptions begin, or they would take what comes for what was before them.
        begun = max((s.first_offset for s in owners if s not in fresh), default=0)
        self.log.next_offset = self.log.visible = max(self.log.next_offset, begun)
        if forgotten:
            self.core.store_in_time(forgotten)
        for subscription in fresh:
            self._begin(subscription)
        for subscription in owners:
            if subscription.depth:
                subscription.start_from(max(needed or 0, subscription.first_offset))
        self.is_loaded = True

    def close(self, condition: str, description: str) -> None:
        """The topic is gone, and what its subscriptions had of it."""
        self.is_closed = True
        for row in self.log.close():
            self.lose(row)
        self.log.owners.clear()
        self.subscribing.close()
        for subscription in list(self.subscriptions):
            if isinstance(subscription, VolatileSubscription):
                subscription.close(condition, description)
            else:
                subscription.abandon(condition, description)
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
        total["subscriptions"] = len(self.subscriptions)
        return total
