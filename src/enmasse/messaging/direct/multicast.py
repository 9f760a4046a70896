"""Multicast: each message to every receiver, with one outcome of them all.

The sender's outcome is accepted if any receiver accepted, else rejected, modified, released, in that
order. Senders get the least credit among the receivers, less those that are set aside: a receiver
that has taken nothing for a second while others could is passed over until it can again, and copies
that waited for it are dropped. An address that is to ``block`` waits for every receiver instead.

A message that is to be retained is kept as the value of the address, and accepted also where nobody receives it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Self

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.credit import CreditShare
from enmasse.messaging.delivery import FAILED, SMALL_BYTES, Consumer, ConsumerPort, Producer, ProducerPort
from enmasse.messaging.direct.anycast import BACKLOG_BYTES, DELIVERY_OVERHEAD_BYTES
from enmasse.messaging.direct.fallback import Direct
from enmasse.messaging.fan_out import FEW, MAX_MESSAGES, RECEIVER_UNITS, STEP_UNITS, Wave
from enmasse.messaging.retained_log import RetainedLog
from enmasse.messaging.retaining import (
    NEVER,
    RETAIN_NAME,
    RETAINED_FILTER,
    copy_of,
    handling_of,
    plain_start,
    retain,
    retained_message,
    why_not,
)

if TYPE_CHECKING:
    from enmasse.messaging.address import AddressSpace, Declaration
    from enmasse.messaging.core import Core
    from enmasse.messaging.facts import Facts

_NO_MESSAGE = b"\xff"
"""No message begins so."""


SET_ASIDE_AFTER_S = 1.0
"""Seconds for which one receiver may hold up the others: longer than a pause for garbage collection."""


class _Spread:
    """A message for several receivers, and their outcomes so far."""

    __slots__ = ("best", "message_format", "open", "payload", "producer", "producer_id", "rank", "settled")

    def __init__(self, payload: bytes, producer: Any, producer_id: int, settled: bool, message_format: int) -> None:
        self.payload = payload
        self.producer = producer
        self.producer_id = producer_id
        self.settled = settled
        self.message_format = message_format
        self.open = 0
        self.best: Any = RELEASED
        self.rank = 0

    def report(self, state: Any) -> None:
        """Note one receiver's outcome; the last one settles the sender's delivery."""
        if state is ACCEPTED:
            rank = 3
        elif isinstance(state, Rejected):
            rank = 2
        elif isinstance(state, Modified):
            rank = 1
        else:
            rank = 0
        if rank > self.rank:
            self.rank = rank
            self.best = state
        self.open -= 1
        if not self.open:
            self.producer.settle(self.producer_id, self.best)


class _Copy:
    """One receiver's copy of a message."""

    __slots__ = ("sink", "spread")

    def __init__(self, spread: _Spread, sink: MulticastConsumer) -> None:
        self.spread = spread
        self.sink = sink


class MulticastConsumer(Consumer):
    """A receiver's end at a multicast address."""

    __slots__ = ("_retained", "is_aside", "is_gone", "starved_since", "waiting", "waiting_bytes")
    address: Multicast

    def __init__(self, address: Multicast, port: ConsumerPort, presettle: bool) -> None:
        super().__init__(address, port, presettle)
        self.waiting: deque[_Spread] = deque()
        """Copies that came for credit which this receiver has not."""
        self.waiting_bytes = 0
        self.is_aside = False
        self.is_gone = False
        """True once it is detached."""
        self.starved_since: float | None = None
        self._retained: dict[int, _Spread] = {}
        """The copies of the retained value that it was given last, by the numbers of filters that asked."""

    @property
    def can_take(self) -> bool:
        """True if a copy would go out at once."""
        return self.port.credit > 0 and not self.is_blocked

    def deliver(self, spread: _Spread) -> None:
        """Send one copy, for one credit."""
        self.deliveries += 1
        if spread.settled or self.presettle:
            self.send(None, spread.payload, True, spread.message_format)
            if not spread.settled:
                spread.report(ACCEPTED)
            return
        self.unsettled += 1
        self.send(_Copy(spread, self), spread.payload, False, spread.message_format)

    def take(self, spread: _Spread) -> None:
        """Send one copy, or let it wait behind those that do."""
        if self.port.credit > 0 and not self.is_blocked and not self.waiting and not self._must_hold(spread):
            self.deliver(spread)
        else:
            self.keep(spread)
            self.address.due()

    def _must_hold(self, spread: _Spread) -> bool:
        """Return true if a copy has to wait for room, as it is large."""
        return len(spread.payload) > SMALL_BYTES and self.must_wait(len(spread.payload))

    def keep(self, spread: _Spread) -> None:
        """Let a copy wait until this receiver can take it."""
        self.waiting.append(spread)
        self.waiting_bytes += len(spread.payload) + DELIVERY_OVERHEAD_BYTES

    def flush(self) -> None:
        """Send what waited, as far as credit goes."""
        waiting = self.waiting
        while waiting and self.can_take:
            if self._must_hold(waiting[0]):
                return
            spread = waiting.popleft()
            self.waiting_bytes -= len(spread.payload) + DELIVERY_OVERHEAD_BYTES
            self.deliver(spread)

    def miss(self, spread: _Spread) -> None:
        """Drop a copy for this receiver."""
        self.address.dropped += 1
        if not spread.settled:
            spread.report(RELEASED)

    def give_up(self) -> None:
        """Drop what waits for this receiver."""
        for spread in self.waiting:
            self.miss(spread)
        self.waiting.clear()
        self.waiting_bytes = 0

    def give_retained(self, number: int = 0) -> None:
        """Send the retained value of the address, once there is credit for it; one that still waits is enough.

        Args:
            number: the number of the filter that asks, where the receiver is for several.
        """
        address = self.address
        value = address.retained.get(address.name)
        if value is not None and self._retained.get(number) not in self.waiting:
            self._retained[number] = spread = _Spread(copy_of(value, address.core, number), None, 0, True, 0)
            self.keep(spread)
            self.flush()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Take more copies, and let the senders have more."""
        self.flush()
        self.address.due()
        if drain:
            self.port.drained()

    def on_blocked(self, blocked: bool) -> None:
        """Note that the connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.flush()
        self.address.due()

    def on_outcome(self, delivery: _Copy, state: Any) -> None:
        """Note one receiver's outcome."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)
        delivery.spread.report(state)


class MulticastWave(Wave):
    """Messages for more receivers than one turn bears."""

    __slots__ = ("_address", "_spreads", "targets")

    def __init__(self, address: Multicast, targets: list[MulticastConsumer]) -> None:
        super().__init__(address.space)
        self.targets = targets
        self._address = address
        self._spreads: list[_Spread] = []

    def join(self, spread: _Spread) -> None:
        """Add a message, behind the others."""
        self._spreads.append(spread)
        self._address.core.fan_out.joined(self, len(spread.payload), len(self.targets))

    def steps(self) -> Iterator[int]:
        """Hand out the messages; see ``Wave``."""
        spreads = self._spreads
        size = max(1, STEP_UNITS // (RECEIVER_UNITS + len(spreads)))
        for at in range(0, len(self.targets), size):
            part = self.targets[at : at + size]
            for consumer in part:
                if consumer.is_gone or (consumer.is_aside and not consumer.can_take):
                    for spread in spreads:
                        consumer.miss(spread)
                    continue
                for spread in spreads:
                    consumer.take(spread)
            yield len(part) * (RECEIVER_UNITS + len(spreads))

    def end(self) -> None:
        """Note that it is over."""
        if not self.is_over:
            self._address.waves.remove(self)
            self._spreads, self.targets = [], []
            super().end()
            self._address.due()


class MulticastProducer(Producer):
    """A sender's end at a multicast address."""

    __slots__ = ("_plain",)
    address: Multicast

    def __init__(self, address: Multicast, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self._plain = _NO_MESSAGE
        """The start of a message that is not retained, up to the code of the section behind its annotations."""

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send a copy to every receiver that is not set aside."""
        sender: Any = self
        if not payload.startswith(self._plain) and not message_format:
            payload, sender = self._look_at(payload, delivery_id, settled, is_within=True)
            if sender is None:
                return
        targets = self.address.active
        if not targets:
            self._refuse(payload, delivery_id, settled, message_format, is_within=True)
            return
        spread = _Spread(payload, sender, delivery_id, settled, message_format)
        spread.open = len(targets)
        if spread.open > FEW or self.address.waves:
            self.address.hand_out_later(targets, spread)
            return
        is_small = len(payload) <= SMALL_BYTES
        for consumer in targets:
            # The same as take() does, without the calls.
            if is_small and consumer.port.credit > 0 and not consumer.is_blocked and not consumer.waiting:
                consumer.deliver(spread)
            else:
                consumer.take(spread)

    def _look_at(self, payload: bytes, delivery_id: int, settled: bool, *, is_within: bool) -> tuple[bytes, Any]:
        """Look at a message that may be retained, as it begins in another way than the one before.

        Returns:
            The message for its receivers, and the object that gets their outcome; ``None`` for that if the
            message is dealt with.
        """
        self._plain = plain_start(payload) or _NO_MESSAGE
        if self._plain is not _NO_MESSAGE or RETAIN_NAME not in payload:
            return payload, self
        payload, facts = retained_message(payload)
        if not facts.retain:
            return payload, self
        address = self.address
        problem = why_not(address.retained, address.name, payload)
        if problem is None:
            return payload, self._retain(payload, delivery_id, settled, facts, is_within=is_within)
        if settled:
            address.dropped += 1
        else:
            self.settle(delivery_id, Rejected(problem))
        return payload, None

    def _retain(self, payload: bytes, delivery_id: int, settled: bool, facts: Facts, *, is_within: bool) -> Any:
        """Keep a message as the value of the address.

        Returns:
            The object that gets the outcome of its receivers; ``None`` if there are none, and it is dealt with.
        """
        address = self.address
        values, name, fallback = address.retained, address.name, address.fallback
        is_taken = (
            not address.active
            and fallback is not None
            and fallback.take(self, payload, delivery_id, settled, 0, is_within=is_within)
        )
        waits = facts.durable and not settled and not is_taken
        sender = retain(values, name, payload, facts, self, delivery_id, waits=waits)
        if is_taken and fallback is not None:
            # The queue answers the sender when what it has taken is on disk, and with that the value.
            fallback.write_with(values)
        elif not address.active and not settled:
            sender.settle(delivery_id, ACCEPTED)
        return sender if address.active else None

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take the message if every receiver has credit that is not promised, or that can be called in."""
        if self.address.unpromised() > 0 or self.address.give_way(self):
            self.on_message(payload, delivery_id, settled, message_format)
        elif not (self.address.active or message_format or payload.startswith(self._plain)):
            payload, sender = self._look_at(payload, delivery_id, settled, is_within=False)
            if sender is not None:
                self._refuse(payload, delivery_id, settled, message_format, is_within=False)
        else:
            self._refuse(payload, delivery_id, settled, message_format, is_within=False)

    def _refuse(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, *, is_within: bool
    ) -> None:
        fallback = self.address.fallback
        if fallback is not None and fallback.take(
            self, payload, delivery_id, settled, message_format, is_within=is_within
        ):
            return
        if settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)


class Multicast(Direct):
    """A direct address whose messages go to every receiver."""

    kind = "multicast"
    __slots__ = ("active", "retained", "share", "slow", "times_set_aside", "waves")

    def __init__(self, core: Core, name: str, log_id: int = 0) -> None:
        super().__init__(core, name)
        self.retained = RetainedLog(core, name, log_id)
        """The retained value of its name."""
        self.share: CreditShare[Producer] = CreditShare()
        self.producers = self.share.producers
        self.slow = "drop"
        """The policy for a receiver that takes nothing: ``drop`` sets it aside, ``block`` waits for it."""
        self.times_set_aside = 0
        self.active: list[MulticastConsumer] = []
        """Receivers that are not set aside; another list as soon as it is changed."""
        self.waves: list[MulticastWave] = []
        """Messages that are still to be handed out, in turns; the oldest first."""

    @classmethod
    def declared(cls, core: Core, name: str, declaration: Declaration) -> Self:
        """Return the address that a declaration describes; see ``Address``."""
        made = cls(core, name, declaration.log_id)
        made.apply(declaration)
        return made

    def join(self, space: AddressSpace) -> None:
        """Join a space."""
        super().join(space)
        self.retained.join(space.retained)

    def on_added(self, space: AddressSpace) -> None:
        """Take over the retained value of its name."""
        if len(space.retained):
            self.core.chores.add(self.retained.name, self.retained.take_along(owns_subtree=False))

    def load(self) -> None:
        """Load the retained value."""
        self.retained.load()

    def close(self, condition: str, description: str) -> None:
        """Close the address."""
        self.retained.close()
        super().close(condition, description)

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration."""
        super().apply(declaration)
        self.slow = "block" if declaration.settings.slow_policy == "block" else "drop"

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; it gets credit once every receiver has some."""
        producer = MulticastProducer(self, port, target)
        self.share.add(producer)
        self.due()
        return producer

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return MulticastProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver; senders wait for it from its first credit on."""
        wanted = handling_of(options.filters)
        consumer = MulticastConsumer(self, port, options.presettle)
        # Until it grants credit for the first time it must not take the others' away.
        consumer.is_aside = True
        if wanted != NEVER:
            consumer.give_retained()
        return self.add_consumer(consumer)

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filter for retained values; see ``Address``."""
        return (RETAINED_FILTER,)

    def asked(self) -> int:
        """Return the least unused credit among the receivers that count."""
        return min((c.port.credit for c in self.active), default=0)

    def backlog(self) -> int:
        """Return the largest number of copies that wait for one receiver, or may still come to do so."""
        return max((len(c.waiting) for c in self.active), default=0) + sum(wave.size for wave in self.waves)

    def unpromised(self) -> int:
        """Return the credit of every receiver that no sender holds."""
        return self.asked() - self.share.promised - self.backlog()

    def give_way(self, producer: Producer) -> bool:
        """Call in what others hold unused, for a sender whose own credit was called in meanwhile."""
        if self.asked() <= self.backlog() or producer not in self.producers:
            return False
        self.share.call_in(1 - self.unpromised())
        return self.unpromised() > 0

    def on_turn(self, now: float) -> None:
        """Decide which receivers count, then share the least of their credit."""
        consumers: list[MulticastConsumer] = self.consumers  # type: ignore[assignment]
        some_can = any(c.can_take for c in consumers)
        next_check: float | None = None
        for consumer in consumers:
            if consumer.can_take:
                consumer.is_aside = False
                consumer.starved_since = None
            elif not consumer.is_aside and some_can and self.slow != "block":
                if consumer.starved_since is None:
                    consumer.starved_since = now
                if now >= consumer.starved_since + SET_ASIDE_AFTER_S:
                    consumer.is_aside = True
                    self.times_set_aside += 1
                    consumer.give_up()
                else:
                    due = consumer.starved_since + SET_ASIDE_AFTER_S
                    next_check = due if next_check is None else min(next_check, due)
            elif not some_can:
                consumer.starved_since = None
        active = [c for c in consumers if not c.is_aside]
        if active != self.active:
            self.active = active
        if self.fallback is not None and self.fallback.lends(wanted=not consumers):
            self.share.deadline = None
            return
        asked = self.asked()
        usable = 0 if any(c.is_blocked for c in self.active) else asked
        if any(c.waiting_bytes > BACKLOG_BYTES for c in self.active):
            asked = usable = self.backlog()
        share = self.share
        share.share(now, asked, usable, self.backlog())
        for deadline in (share.deadline, next_check):
            if deadline is not None:
                self.core.schedule(self, deadline)

    def hand_out_later(self, targets: list[MulticastConsumer], spread: _Spread) -> None:
        """Give a message to many receivers in the turns to come, or to few behind what these wait for."""
        waves = self.waves
        wave = waves[-1] if waves else None
        if wave is None or wave.is_begun or wave.size >= MAX_MESSAGES or wave.targets is not targets:
            wave = MulticastWave(self, targets)
            waves.append(wave)
            self.core.fan_out.add(wave)
        wave.join(spread)

    def on_deadline(self, now: float) -> None:
        """Check idle senders and slow receivers."""
        if self.share.deadline is not None and now >= self.share.deadline:
            self.share.reclaim(self.asked())
        self.due()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a receiver: its unsettled deliveries may have been processed, what waited was not."""
        assert isinstance(consumer, MulticastConsumer)
        for copy in consumer.port.take_unsettled():
            consumer.on_outcome(copy, FAILED)
        consumer.is_gone = True
        consumer.give_up()
        self.active = [c for c in self.active if c is not consumer]
        super().remove_consumer(consumer)

    def counts(self) -> dict[str, int]:
        """Return the counters, with those of credit and of receivers that were too slow."""
        return super().counts() | {
            "creditExcess": self.share.most_excess,
            "backlog": self.backlog(),
            "receiversAside": len(self.consumers) - len(self.active),
            "timesSetAside": self.times_set_aside,
        }
