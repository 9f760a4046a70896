"""Multicast: each message to every receiver, with one outcome of them all.

The sender's outcome is accepted if any receiver accepted, else rejected, modified, released, in that
order. Senders get the least credit among the receivers, less those that are set aside: a receiver
that has taken nothing for a second while others could is passed over until it can again, and copies
that waited for it are dropped. An address that is to ``block`` waits for every receiver instead.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.anycast import BACKLOG_BYTES, DELIVERY_OVERHEAD_BYTES
from enmasse.messaging.credit import CreditShare
from enmasse.messaging.delivery import (
    ACCEPTED,
    FAILED,
    RELEASED,
    Consumer,
    ConsumerPort,
    Producer,
    ProducerPort,
)
from enmasse.messaging.fallback import Direct
from enmasse.wire.amqp.performatives import Modified, Rejected

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["Multicast"]

SET_ASIDE_AFTER_S = 1.0
"""How long one receiver may hold up the others: longer than a pause for garbage collection."""


class _Spread:
    """One message and what its receivers have said of it so far."""

    __slots__ = ("best", "message_format", "open", "payload", "producer", "producer_id", "rank", "settled")

    def __init__(
        self, payload: bytes, producer: Producer, producer_id: int, settled: bool, message_format: int
    ) -> None:
        self.payload = payload
        self.producer = producer
        self.producer_id = producer_id
        self.settled = settled
        self.message_format = message_format
        self.open = 0
        self.best: Any = RELEASED
        self.rank = 0

    def tell(self, state: Any) -> None:
        """One receiver's outcome; the last one settles the sender's delivery."""
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
    """One receiver's share of a message."""

    __slots__ = ("sink", "spread")

    def __init__(self, spread: _Spread, sink: MulticastConsumer) -> None:
        self.spread = spread
        self.sink = sink


class MulticastConsumer(Consumer):
    """A receiver's end at a multicast address."""

    __slots__ = ("is_aside", "starved_since", "waiting", "waiting_bytes")
    address: Multicast

    def __init__(self, address: Multicast, port: ConsumerPort, presettle: bool) -> None:
        super().__init__(address, port, presettle)
        self.waiting: deque[_Spread] = deque()
        """Copies that came for credit which this receiver has not."""
        self.waiting_bytes = 0
        self.is_aside = False
        self.starved_since: float | None = None

    @property
    def can_take(self) -> bool:
        """Whether a copy would go out at once."""
        return self.port.credit > 0 and not self.is_blocked

    def deliver(self, spread: _Spread) -> None:
        """Send one copy, for one credit."""
        self.deliveries += 1
        if spread.settled or self.presettle:
            self.send(None, spread.payload, True, spread.message_format)
            if not spread.settled:
                spread.tell(ACCEPTED)
            return
        self.unsettled += 1
        self.send(_Copy(spread, self), spread.payload, False, spread.message_format)

    def keep(self, spread: _Spread) -> None:
        """Let a copy wait until this receiver can take it."""
        self.waiting.append(spread)
        self.waiting_bytes += len(spread.payload) + DELIVERY_OVERHEAD_BYTES

    def flush(self) -> None:
        """Send what waited, as far as credit goes."""
        waiting = self.waiting
        while waiting and self.can_take:
            spread = waiting.popleft()
            self.waiting_bytes -= len(spread.payload) + DELIVERY_OVERHEAD_BYTES
            self.deliver(spread)

    def give_up(self) -> None:
        """Drop what waits for this receiver."""
        for spread in self.waiting:
            self.address.dropped += 1
            if not spread.settled:
                spread.tell(RELEASED)
        self.waiting.clear()
        self.waiting_bytes = 0

    def on_credit(self, gained: int, drain: bool) -> None:
        """Take more copies, and let the senders have more."""
        self.flush()
        self.address.due()
        if drain:
            self.port.drained()

    def on_blocked(self, blocked: bool) -> None:
        """The connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.flush()
        self.address.due()

    def on_outcome(self, delivery: _Copy, state: Any) -> None:
        """One receiver's outcome."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)
        delivery.spread.tell(state)


class MulticastProducer(Producer):
    """A sender's end at a multicast address."""

    __slots__ = ()
    address: Multicast

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send a copy to every receiver that is not set aside."""
        spread = _Spread(payload, self, delivery_id, settled, message_format)
        targets = self.address.active
        if not targets:
            self._refuse(payload, delivery_id, settled, message_format, is_within=True)
            return
        spread.open = len(targets)
        for consumer in targets:
            if consumer.port.credit > 0 and not consumer.is_blocked and not consumer.waiting:
                consumer.deliver(spread)
            else:
                consumer.keep(spread)
                self.address.due()

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take the message if every receiver has credit that nobody was promised, or that can be called in."""
        if self.address.unpromised() > 0 or self.address.give_way(self):
            self.on_message(payload, delivery_id, settled, message_format)
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
    __slots__ = ("active", "share", "slow", "times_set_aside")

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.share = CreditShare()
        self.producers = self.share.producers
        self.slow = "drop"
        """What happens to a receiver that takes nothing: ``drop`` sets it aside, ``block`` waits for it."""
        self.times_set_aside = 0
        self.active: list[MulticastConsumer] = []
        """Receivers that are not set aside."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender joins; it gets credit once every receiver has some."""
        producer = MulticastProducer(self, port, target)
        self.share.add(producer)
        self.due()
        return producer

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return MulticastProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A receiver joins; it is waited for from its first credit on."""
        consumer = MulticastConsumer(self, port, options.presettle)
        # Until it grants credit for the first time it must not take the others' away.
        consumer.is_aside = True
        return self.add_consumer(consumer)

    def asked(self) -> int:
        """The least unused credit among the receivers that count."""
        return min((c.port.credit for c in self.active), default=0)

    def backlog(self) -> int:
        """The most copies that wait for one receiver."""
        return max((len(c.waiting) for c in self.active), default=0)

    def unpromised(self) -> int:
        """Credit of every receiver that no sender holds."""
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
        look_again: float | None = None
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
                    look_again = due if look_again is None else min(look_again, due)
            elif not some_can:
                consumer.starved_since = None
        self.active = [c for c in consumers if not c.is_aside]
        if self.fallback is not None and self.fallback.lends(wanted=not consumers):
            self.share.deadline = None
            return
        asked = self.asked()
        usable = 0 if any(c.is_blocked for c in self.active) else asked
        if any(c.waiting_bytes > BACKLOG_BYTES for c in self.active):
            asked = usable = self.backlog()
        share = self.share
        share.share(now, asked, usable, self.backlog())
        for deadline in (share.deadline, look_again):
            if deadline is not None:
                self.core.schedule(self, deadline)

    def on_deadline(self, now: float) -> None:
        """Look again at idle senders and slow receivers."""
        if self.share.deadline is not None and now >= self.share.deadline:
            self.share.reclaim(self.asked())
        self.due()

    def remove_consumer(self, consumer: Consumer) -> None:
        """A receiver has gone: what it had may have been processed, what waited was not."""
        assert isinstance(consumer, MulticastConsumer)
        for copy in consumer.port.take_unsettled():
            consumer.on_outcome(copy, FAILED)
        consumer.give_up()
        self.active = [c for c in self.active if c is not consumer]
        super().remove_consumer(consumer)

    def counts(self) -> dict[str, int]:
        """With the account of credit, and of receivers that were too slow."""
        return super().counts() | {
            "creditExcess": self.share.most_excess,
            "backlog": self.backlog(),
            "receiversAside": len(self.consumers) - len(self.active),
            "timesSetAside": self.times_set_aside,
        }
