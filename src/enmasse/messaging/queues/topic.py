"""Topics: every subscription gets each message; what is stored is stored once for all of them.

Of very many subscriptions it is stored once for as many as one batch takes account of (``topic_wave``).

Names below a topic are reached through it: a topic ``news`` takes messages for ``news/sport/chess``
and gives them to subscribers of ``news/#``, with that name in an annotation. A receiver on the topic
itself is a volatile subscriber, unless it asks for a durable or shared subscription (``subscribing``). The
sender's message is accepted once it is stored for every durable subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from enmasse.message.outcomes import AmqpError
from enmasse.message.sections import TOPIC_NAME, with_message_annotations
from enmasse.messaging.address import Address, AttachOptions, Declaration, DurableSource
from enmasse.messaging.delivery import Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.facts import Facts, known_facts
from enmasse.messaging.fan_out import FEW
from enmasse.messaging.log.entry import DONE
from enmasse.messaging.log.sequences import producer_name
from enmasse.messaging.log.shared_log import SharedLog
from enmasse.messaging.pattern_trie import PatternTrie
from enmasse.messaging.patterns import Pattern
from enmasse.messaging.queues.producers import NumberedProducer
from enmasse.messaging.queues.queue import MAX_CREDIT, Staged, grant_credit
from enmasse.messaging.queues.redelivery import NO_SENDER
from enmasse.messaging.queues.session_subscription import SessionSubscribing
from enmasse.messaging.queues.subscribing import Subscribing
from enmasse.messaging.queues.subscription import Subscription, VolatileSubscription
from enmasse.messaging.queues.topic_producer import SharedRow, TopicProducer, named
from enmasse.messaging.queues.topic_wave import TopicWave, WaveMessage
from enmasse.messaging.queues.windows import Windows
from enmasse.messaging.retained_log import RetainedLog
from enmasse.messaging.retaining import RETAINED_FILTER, is_clearing, why_not, without_retained
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.model.kinds.address_settings import AddressSettings

# Topics and their subscriptions know each other.
if TYPE_CHECKING:
    from enmasse.messaging.address import AddressSpace, Origin
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.owners import Holding


class Topic(Address):
    """An address whose messages go to every subscription.

    Args:
        core: the core whose turn it takes part in.
        name: the address.
        log_id: under which messages for its durable subscriptions are kept.
        options: ``full_policy`` and ``slow_policy`` say what happens where a subscription has no room,
            ``storage`` what of it survives a restart.
    """

    kind = "topic"
    owns_subtree = True
    can_resume = True
    __slots__ = (
        "__weakref__", "_stored", "_volatile", "_waves", "ended", "is_closed", "is_loaded", "log", "options",
        "retained", "sessions", "space", "subscribing", "subscriptions", "version", "windows",
    )  # fmt: skip

    def __init__(self, core: Core, name: str, log_id: int, *, options: AddressSettings | None = None) -> None:
        super().__init__(core, name)
        self.options = options or AddressSettings()
        self.log = SharedLog(core, self, log_id)
        self.retained = RetainedLog(core, name, log_id if self.options.storage != "memory" else 0)
        """The retained values of its name and those below it."""
        self.space: AddressSpace | None = None
        self.subscriptions: dict[Subscription, None] = {}
        """Every subscription, the oldest first."""
        self._stored: PatternTrie[Subscription] = PatternTrie()
        """The durable ones, by what they want."""
        self._volatile: PatternTrie[VolatileSubscription] = PatternTrie()
        self.is_closed = False
        """True if it is deleted."""
        self.is_loaded = False
        self.windows = Windows()
        """The room of the subscriptions that hold senders back."""
        self.version = 0
        """Changes whenever a subscription comes or goes, or messages begin to wait for their turns."""
        self._waves: list[TopicWave] = []
        """Messages that are still to be handed out, in turns; the oldest first."""
        self.ended = dict.fromkeys(
            ("messagesOut", "accepted", "rejected", "released", "modified", "dropped", "selectorsExceeded"), 0
        )
        """The counters of volatile subscriptions that ended."""
        self.subscribing = Subscribing(self)
        self.sessions = SessionSubscribing(self)

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the topic that a declaration describes; see ``Address``."""
        made = cls(core, name, declaration.log_id, options=declaration.settings)
        made.limit(declaration.settings)
        return made

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration."""
        super().apply(declaration)
        self.configure(declaration.settings)

    def configure(self, options: AddressSettings) -> None:
        """Change what it does beyond storing, and so do the subscriptions that its receivers made."""
        self.options = options
        self.subscribing.configure()
        self.sessions.configure()
        self.due()

    def join(self, space: AddressSpace) -> None:
        """Join a space, with the subscriptions that are no addresses of it."""
        self.space = space
        self.retained.join(space.retained)
        for subscription in self.subscriptions:
            if space.addresses.get(subscription.name) is not subscription:
                subscription.join(space)

    def on_added(self, space: AddressSpace) -> None:
        """Feed the subscriptions of the space that name it, and take over retained values of its names."""
        for address in space.addresses.values():
            if address.topic_name == self.name:
                self.subscribe(address)
        if len(space.retained):
            self.core.chores.add(self.retained.name, self.retained.take_along(owns_subtree=True))

    def extra_logs(self) -> Iterable[int]:
        """Return the logs of the subscriptions that its receivers made."""
        return self.subscribing.logs | self.sessions.logs

    def holdings(self) -> Iterable[Holding]:
        """Return the durable subscriptions that its receivers made."""
        return self.subscribing

    def lasting(self, container: str, link: str, owner: str, user: str, *, may_manage: bool) -> DurableSource | None:
        """Return the durable subscription that a container's link made here, if it is open to an owner of a name."""
        found = self.subscribing.find(container, link, owner, user, may_manage=may_manage)
        return None if found is None else found.durable_source

    def receivers(self) -> list[Consumer]:
        """Return every receiver of every subscription."""
        return [consumer for source in (self, *self.subscriptions) for consumer in source.consumers]

    # Links

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; topics always give credit, as far as durable subscriptions have room.

        Raises:
            AttachError: the name that it numbers its messages under is none.
        """
        name = producer_name(options)
        if name is not None:
            return self.add_producer(NumberedProducer(self, port, target, name))
        producer = TopicProducer(self, port, target)
        producer.origin = options.origin
        return self.add_producer(producer)

    def name_below(self, target: str) -> str:
        """Return the name that a sender has below the topic; empty if it sends to the topic itself."""
        return "" if target == self.name else target

    def annotate(self, payload: bytes, target: str) -> bytes:
        """Return the message with the name below the topic that it was sent to; see ``Address``."""
        name = self.name_below(target)
        payload = without_retained(payload)
        return named(payload, name, with_message_annotations(b"", {TOPIC_NAME: name}) if name else b"")

    def sequence_log(self) -> SharedLog:
        """Return the log that keeps the sequences of numbered producers."""
        return self.log

    def refuses(self, payload: bytes, target: str) -> bool:
        """Return whether a subscription has no room for a message, even after making some as the policy says."""
        if known_facts(payload).retain and self.why_not_retained(payload, target) is not None:
            return True
        return self.options.full_policy != "block" and not self.make_room(self.routes(target)[0], len(payload))

    def copies(self, target: str) -> int:
        """Return how many subscriptions have a part in a message; see ``Address``."""
        stored, volatile = self.routes(target)
        return max(1, len(stored) + len(volatile))

    def why_not_retained(self, payload: bytes, target: str) -> AmqpError | None:
        """Return why a message cannot be the retained value of its name; see ``Address``."""
        return why_not(self.retained, target, payload)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return TopicProducer(self, port, target)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filters for selectors and retained values; see ``Address``."""
        return (SELECTOR_FILTER, RETAINED_FILTER)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a subscriber; its source may be a pattern below the topic.

        Raises:
            AttachError: it asks for what does not fit, such as a malformed selector.
        """
        return self.subscribing.attach(port, options)

    def subscribe(self, subscription: Address) -> None:
        """Feed a subscription from now on."""
        assert isinstance(subscription, Subscription)
        subscription.topic = self
        if self.space is not None and subscription.space is None:
            subscription.join(self.space)
        if subscription.is_durable and subscription.log is None and subscription.options.storage != "memory":
            subscription.bind(self.log)
            subscription.configure(subscription.options)
        if self.is_loaded and subscription.share is not None and subscription.log is self.log:
            self.log.begin(subscription.share)
        self.subscriptions[subscription] = None
        if self.space is not None:
            self.space.usage.take(subscription.footprint)
        if subscription.holds_back:
            self.windows.update(subscription)
        for pattern in subscription.patterns:
            self.widen(subscription, pattern)
        self.version += 1
        self.due()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Feed it no longer; what only it needed is deleted."""
        subscription.topic = None
        del self.subscriptions[subscription]
        if self.space is not None:
            self.space.usage.give_back(subscription.footprint)
        self.windows.remove(subscription)
        for pattern in subscription.patterns:
            self.narrow(subscription, pattern)
        self.sessions.unpair(subscription)
        if subscription.share is not None and subscription.log is self.log:
            self.log.leave(subscription.share)
        self.version += 1
        self.due()

    def widen(self, subscription: Subscription, pattern: Pattern) -> None:
        """Feed a subscription what a pattern stands for; nothing comes twice that several of its patterns match."""
        if isinstance(subscription, VolatileSubscription):
            self._volatile.add(pattern, subscription)
        else:
            self._stored.add(pattern, subscription)
        self.version += 1

    def narrow(self, subscription: Subscription, pattern: Pattern) -> None:
        """Feed a subscription no longer what a pattern alone of its own stands for."""
        if isinstance(subscription, VolatileSubscription):
            self._volatile.remove(pattern, subscription)
        else:
            self._stored.remove(pattern, subscription)
        self.version += 1

    def end_volatile(self, subscription: Subscription) -> None:
        """End a volatile subscription that has lost its last subscriber."""
        counts = subscription.counts()
        for name in self.ended:
            self.ended[name] += counts[name]
        self.subscribing.forget(subscription)
        self.unsubscribe(subscription)

    def routes(
        self, target: str, origin: Origin | None = None
    ) -> tuple[list[Subscription], list[VolatileSubscription]]:
        """Return the durable and the volatile subscriptions that want messages for a name.

        Args:
            target: the name.
            origin: the session that sends them, if it is one.
        """
        stored, volatile = self._stored.find(target), self._volatile.find(target)
        if origin is not None and origin.has_no_local:
            stored = [s for s in stored if s.origin is not origin or origin.takes_own(s, target)]
            volatile = [s for s in volatile if s.origin is not origin or origin.takes_own(s, target)]
        greater = self.sessions.greater
        if greater and volatile:
            found: set[Subscription] = {*stored, *volatile}
            volatile = [s for s in volatile if greater.get(s) not in found]
        return stored, volatile

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
        kept, passing = self._give(
            subscriptions, payload, facts, producer, producer_id, None, None, is_staged=is_staged
        )
        if passing is not None:
            if is_staged:
                # Both rows share the transaction's outcome; one of them reports it.
                passing.producer, passing.producer_id = (producer, producer_id) if kept is None else (NO_SENDER, 0)
            self.log.add(passing)
        if kept is not None:
            self.log.add(kept)
        return producer is not None and (kept is not None or (is_staged and passing is not None))

    def fill(self, message: WaveMessage, subscriptions: list[Subscription]) -> None:
        """Give a message of a wave to some of its subscriptions; its rows are cut when all of them have it."""
        kept, passing = message.kept, message.passing
        message.kept, message.passing = self._give(
            subscriptions, message.payload, message.facts, message, 0, kept, passing, is_staged=message.is_staged
        )
        for row, before in ((message.passing, passing), (message.kept, kept)):
            if row is not None and row is not before:
                row.producer = None
                row.hold()
                self.log.add(row)

    def _give(
        self,
        subscriptions: list[Subscription],
        payload: bytes,
        facts: Facts,
        producer: Any,
        producer_id: int,
        kept: SharedRow | None,
        passing: SharedRow | None,
        *,
        is_staged: bool,
    ) -> tuple[SharedRow | None, SharedRow | None]:
        """Give a message to durable subscriptions; return its rows that are to be written, made if there is none."""
        is_durable = facts.durable or self.options.storage == "durable"
        for subscription in subscriptions:
            if subscription.selector is not None and not subscription.wants(payload):
                continue
            if not is_durable and subscription.skips_volatile:
                continue
            if subscription.writes_durable if is_durable else subscription.writes_all:
                row = kept = kept or SharedRow(payload, producer, producer_id, is_durable=True)
            elif subscription.log is not None and (subscription.is_spilling or is_staged):
                row = passing = passing or SharedRow(payload, None, 0, is_durable=False)
            else:
                subscription.enqueue(payload, None, 0, durable=False, facts=facts)
                if subscription.bytes_stored >= subscription.room_below:
                    self.windows.update(subscription)
                continue
            waits = row if row is kept or is_staged else None
            entry = subscription.enqueue(payload, waits, 0, durable=True, facts=facts, is_staged=is_staged, row=row)
            row.add(subscription, entry)
            if subscription.bytes_stored >= subscription.room_below:
                self.windows.update(subscription)
        return kept, passing

    # Waves

    @property
    def is_behind(self) -> bool:
        """True while messages that came before wait to be handed out to many subscriptions."""
        return bool(self._waves)

    def found_before(self, target: str) -> TopicWave | None:
        """Return a wave that a message for a name can join, whoever sends it; ``None`` if that is not known."""
        wave = self._waves[-1] if self._waves else None
        return wave if wave is not None and wave.found_for == (self.version, target) and not wave.is_begun else None

    def hand_out_later(
        self, stored: list[Subscription], volatile: list[VolatileSubscription], message: WaveMessage, target: str = ""
    ) -> None:
        """Give a message to many subscriptions in the turns to come, or to few behind what these wait for.

        Args:
            stored: those that store.
            volatile: the others.
            message: the message.
            target: the name that it was sent to, if it is for all who want messages for that.
        """
        waves = self._waves
        wave = waves[-1] if waves else None
        if wave is None or not wave.takes(stored, volatile):
            wave = TopicWave(self, stored, volatile)
            if not waves:
                # Senders are to ask from now on whether theirs has to wait behind it.
                self.version += 1
            waves.append(wave)
            self.core.fan_out.add(wave)
        if target:
            wave.found_for = self.version, target
        wave.join(message)

    def wave_over(self, wave: TopicWave) -> None:
        """Note that a wave is handed out."""
        self._waves.remove(wave)

    def lose(self, row: Any) -> bool:
        """Undo the storing of a row that is not on disk: its sender is to send again, unless that was accepted."""
        is_content = row.producer is None
        for subscription, entry in row.entries.items():
            if entry.state == DONE:
                continue
            entry.frame = None
            if is_content:
                continue
            subscription.unstore(entry)
        return is_content and row.state != DONE

    def make_room(self, subscriptions: list[Subscription], size: int) -> bool:
        """Return whether every durable subscription has room for a message, as its topic's policy makes some."""
        for subscription in subscriptions:
            while subscription.free_bytes < size + subscription.overhead:
                entry = subscription.next_entry() if self.options.full_policy == "drop-oldest" else None
                if entry is None or self.core.is_pressed:
                    return False
                subscription.dropped += 1
                subscription.settle(entry)
        return True

    def window_for(self, senders: int) -> int:
        """Return how many messages each of so many senders may send now."""
        if self.options.full_policy != "block" or not (self.windows or self.sessions):
            return MAX_CREDIT
        if self.core.is_pressed:
            return 0
        if not self.windows:
            return MAX_CREDIT
        window = self.windows.least(senders)
        space = self.space
        if not window or space is None or not space.max_bytes:
            return window
        free = space.max_bytes - space.bytes_stored
        return min(window, max(1, free // (senders * self.windows.average_bytes))) if free > 0 else 0

    def on_turn(self, now: float) -> None:
        """Let senders have what every durable subscription has room for."""
        if self.producers:
            grant_credit(self, self.window_for(len(self.producers)))

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more could be stored now, as far as that holds senders back."""
        return self.options.full_policy == "drop-oldest" or self.window_for(1) > 0

    def enlist_message(
        self, payload: bytes, target: str, done: Callable[[str | None], None], *, origin: Origin | None = None
    ) -> Log:
        """Have a message written with the next batch, and handed out only then.

        Args:
            payload: the message.
            target: the topic, or a name below it.
            done: called once it is stored, or with the reason why it is not.
            origin: the session that sends it, if it is one.
        """
        facts = known_facts(payload)
        stored, volatile = self.routes(target, origin)
        written = [subscription for subscription in stored if subscription.log is not None]
        unwritten = [subscription for subscription in stored if subscription.log is None]

        def decided(problem: str | None) -> None:
            if problem is None and (unwritten or volatile):
                self._hand_out(unwritten, volatile, payload, facts)
            done(problem)

        if self.is_behind or len(written) > FEW:
            self.hand_out_later(written, [], WaveMessage(payload, facts, Staged(decided), 0, is_staged=True))
        elif not self.store(written, payload, facts, Staged(decided), 0, is_staged=True):
            self.log.stage(decided)
        if facts.retain:
            # Its room was looked for when it came.
            value = None if is_clearing(payload) else payload
            self.retained.stage(target, value, facts, lambda _reason: None)
            self.core.write_together((self.retained, self.log))
        return self.log

    def _hand_out(
        self, stored: list[Subscription], volatile: list[VolatileSubscription], payload: bytes, facts: Facts
    ) -> None:
        """Hand out what is stored by now, or by nobody."""
        if self.is_behind or len(stored) + len(volatile) > FEW:
            self.hand_out_later(stored, volatile, WaveMessage(payload, facts, None, 0))
            return
        for passing in volatile:
            if passing.topic is self and passing.wants(payload):
                passing.offer(payload, facts)
        self.store([one for one in stored if one.topic is self], payload, facts, None, 0)

    # Start and end

    def load(self) -> None:
        """Load what the journal holds, for every durable subscription."""
        self.retained.load()
        self.subscribing.load()
        _, forgotten = self.log.load()
        if forgotten:
            self.core.store_in_time(forgotten)
        for subscription in self.subscriptions:
            if subscription.depth and subscription.share is not None and subscription.log is self.log:
                subscription.start_from(subscription.share.held.following(0))
                if subscription.holds_back:
                    self.windows.update(subscription)
        self.is_loaded = True

    def regrant(self, user: str) -> Iterator[int]:
        """Return the parts in which durable subscriptions keep to grants that have changed; see ``Address``."""
        return self.subscribing.regrant(user)

    def part(self, error: AmqpError) -> Iterator[int]:
        """Detach links and end subscriptions, if they are many; see ``Address``."""
        yield from super().part(error)
        yield from self.subscribing.part()

    def close(self, condition: str, description: str) -> None:
        """Close the topic, and delete its subscriptions' messages."""
        self.is_closed = True
        for row in self.log.close():
            self.lose(row)
        for wave in list(self._waves):
            wave.cancel()
        self.retained.close()
        self.subscribing.close()
        self.sessions.close()
        for subscription in list(self.subscriptions):
            subscription.abandon(condition, description)
        super().close(condition, description)

    def traffic(self) -> tuple[int, int]:
        """Return how many messages came, and went to volatile subscribers; of these no more is counted."""
        came, went = super().traffic()
        went += self.ended["messagesOut"]
        for subscription in self.subscriptions:
            if not subscription.is_durable:
                went += subscription.detached_counts["out"]
                for consumer in subscription.consumers:
                    went += consumer.deliveries
        return came, went

    def counts(self) -> dict[str, int]:
        """Return the counters of the topic and its volatile subscribers; subscription addresses have their own."""
        total = super().counts()
        for subscription in self.subscriptions:
            if not subscription.is_durable:
                for name, value in subscription.counts().items():
                    if name not in ("senders", "messagesIn", "creditGranted"):
                        total[name] = total.get(name, 0) + value
        for name, value in self.ended.items():
            total[name] = total.get(name, 0) + value
        total["subscriptions"] = len(self.subscriptions)
        return total
