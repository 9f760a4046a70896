"""Anycast: each message to one receiver, whose outcome is the sender's.

Nothing is stored. A message that came within its credit and finds every receiver's connection full
waits in the backlog, which rule 1 of ``credit`` bounds in number and this file in bytes.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any, cast

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified
from enmasse.messaging.address import LOOKS_OF_UNIT, AttachOptions
from enmasse.messaging.core import MAX_UNITS
from enmasse.messaging.credit import CreditShare
from enmasse.messaging.delivery import FAILED, SMALL_BYTES, Consumer, ConsumerPort, Delivery, Producer, ProducerPort
from enmasse.messaging.direct.fallback import Direct
from enmasse.messaging.direct.large import WAITING_BYTES, LargeDelivery, PassingConsumer, PassingProducer

if TYPE_CHECKING:
    from enmasse.messaging.address import Declaration
    from enmasse.messaging.core import Core


BACKLOG_BYTES = 8 << 20
"""Above this, credit is called in: the receivers' connections are slower than their credit says."""

CROWD = 100
"""Receivers of whom one is chosen for each message as it comes; among more, that would be the work of a turn."""

DELIVERY_OVERHEAD_BYTES = 300
"""Bytes that a waiting delivery costs beside its payload."""


class AnycastProducer(PassingProducer):
    """A sender's end at an anycast address."""

    __slots__ = ()
    address: Anycast

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Hand the message to a receiver at once, if one can take it."""
        address = self.address
        # A receiver's outcome goes to the sender as it is, so what is handed out at once need not be kept.
        delivery = Delivery(b"", self, delivery_id, settled, message_format)
        consumers = address.consumers
        if len(consumers) == 1 and not address.backlog:
            consumer: Consumer | None = consumers[0]
            if consumer.port.credit <= 0 or consumer.is_blocked:  # type: ignore[union-attr]
                consumer = None
        else:
            # Among very many the choice is made at the end of the turn, once for all messages of that.
            consumer = None if address.backlog or len(consumers) > CROWD else address.choose()
        if consumer is None or (len(payload) > SMALL_BYTES and consumer.must_wait(len(payload))):
            delivery.payload = payload
            address.keep(delivery)
            return
        consumer.deliveries += 1
        if settled or consumer.presettle:
            consumer.send(delivery, payload, True, message_format)
            if consumer.is_blocked and address.follow(delivery, payload, consumer):
                return
            if not settled:
                self.settle(delivery_id, ACCEPTED)
            return
        consumer.unsettled += 1
        delivery.sink = consumer
        if address.acknowledges:
            address.acknowledge(delivery, payload)
        consumer.send(delivery, payload, False, message_format)

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Take the message if a receiver has credit that is not promised, or that can be called in."""
        address = self.address
        if address.unpromised() > 0 or address.give_way(self):
            self.on_message(payload, delivery_id, settled, message_format)
        elif address.fallback and address.fallback.take(
            self, payload, delivery_id, settled, message_format, is_within=False
        ):
            return
        elif settled:
            address.dropped += 1
        else:
            self.settle(delivery_id, RELEASED)

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeDelivery:
        """Pass a large message on while it comes, to a receiver that can take it now or soon."""
        address = self.address
        self.large = large = LargeDelivery(payload, self, delivery_id, settled, message_format)
        consumer = None if address.backlog else address.choose()
        if is_crossed and address.unpromised() <= 0 and not address.give_way(self):
            large.settle(delivery_id, RELEASED)
        elif consumer is None or consumer.must_wait(len(payload)):
            large.hold()
            address.keep(large)
        else:
            large.start(cast("AnycastConsumer", consumer))
        return large


class AnycastConsumer(PassingConsumer):
    """A receiver's end at an anycast address."""

    __slots__ = ()
    address: Anycast

    def count_available(self) -> int | None:
        """Return the messages that came for credit of receivers whose connections take no more for now."""
        return len(self.address.backlog)

    def on_credit(self, gained: int, drain: bool) -> None:
        """Give more to the senders, or call some in."""
        address = self.address
        if not address.is_due:
            address.is_due = True
            address.core.due(address)
        if drain:
            address.dispatch()
            self.port.drained()

    def on_outcome(self, delivery: Delivery, state: Any) -> None:
        """Pass the receiver's outcome to the sender."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)
            if state is None:
                state = RELEASED
        if delivery.settled:
            if state is RELEASED:
                # It has not gone out: another receiver may have it.
                self.address.keep(delivery)
            return
        producer = delivery.producer
        if producer is not None:
            producer.settle(delivery.producer_id, state)
        elif state is RELEASED or isinstance(state, Modified):
            # It is the node's to deliver: another receiver may have it.
            self.address.keep(delivery)


class Anycast(Direct):
    """A direct address whose messages go to one receiver each."""

    kind = "anycast"
    room_bytes = WAITING_BYTES
    __slots__ = ("acknowledges", "backlog", "backlog_bytes", "share")

    def __init__(self, core: Core, name: str) -> None:
        super().__init__(core, name)
        self.acknowledges = False
        """True if a message is accepted as soon as a receiver has it, and not only when that accepts it."""
        self.share: CreditShare[Producer] = CreditShare()
        self.producers = self.share.producers
        self.backlog: deque[Delivery] = deque()
        self.backlog_bytes = 0

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration."""
        super().apply(declaration)
        self.acknowledges = declaration.settings.acknowledge == "node"

    @property
    def passes_large(self) -> bool:  # type: ignore[override]  # others never change
        """True if messages may be passed on while they come: who may have to hand them out again needs them whole."""
        return not (self.fallback_name or self.acknowledges)

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; it gets credit with the next turn, if receivers have some."""
        producer = self.make_producer(port, target)
        self.share.add(producer)
        self.due()
        return producer

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return AnycastProducer(self, port, target)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver."""
        return self.add_consumer(AnycastConsumer(self, port, options.presettle))

    def offer(self, payload: bytes) -> None:
        """Give a message of the node itself to a receiver, when one can take it."""
        self.keep(Delivery(payload, None, 0, True, 0))

    def keep(self, delivery: Delivery) -> None:
        """Let a delivery wait for a receiver that can take it, if there is one."""
        if self.fallback is not None and not self.consumers and self._fall_back(delivery):
            return
        self.backlog.append(delivery)
        self.backlog_bytes += len(delivery.payload) + DELIVERY_OVERHEAD_BYTES
        self.due()

    def _fall_back(self, delivery: Delivery) -> bool:
        """Give a delivery without a receiver to the fallback queue; return whether there is one."""
        producer = delivery.producer
        if self.fallback is None or producer is None or isinstance(delivery, LargeDelivery):
            return False
        return self.fallback.take(
            producer,
            delivery.payload,
            delivery.producer_id,
            delivery.settled,
            delivery.message_format,
            is_within=True,
        )

    def forget(self, delivery: Delivery) -> None:
        """Let a delivery wait no longer, if it does."""
        if delivery in self.backlog:
            self.backlog.remove(delivery)
            self.backlog_bytes -= delivery.waiting_bytes + DELIVERY_OVERHEAD_BYTES

    def unpromised(self) -> int:
        """Return the receivers' credit that neither a sender holds nor a waiting delivery needs."""
        return self.asked() - self.share.promised - len(self.backlog)

    def give_way(self, producer: Producer) -> bool:
        """Call in what others hold unused, for a message of a sender whose own credit was called in meanwhile.

        So what was sent in time is not released as long as a receiver takes anything. Senders on the
        anonymous terminus were promised nothing, and take nothing from others.
        """
        backlog = len(self.backlog)
        if self.asked() <= backlog or producer not in self.producers:
            return False
        self.share.call_in(1 - self.unpromised())
        return self.unpromised() > 0

    def asked(self) -> int:
        """Return the receivers' unused credit."""
        return sum(c.port.credit for c in self.consumers)

    def dispatch(self) -> None:
        """Hand out what waits, oldest first, as far as receivers can take it."""
        backlog = self.backlog
        if len(self.consumers) > CROWD:
            self._dispatch_in_crowd()
            return
        while backlog:
            consumer = self.choose()
            if consumer is None:
                return
            size = backlog[0].waiting_bytes
            if size > SMALL_BYTES and consumer.must_wait(size):
                continue
            self._hand_out(backlog.popleft(), consumer)

    def _dispatch_in_crowd(self) -> None:
        """Hand out what waits, as far as the turn bears it: those who can take something are looked for once."""
        core, backlog, consumers = self.core, self.backlog, self.consumers
        if not backlog:
            return
        if core.units > MAX_UNITS:
            self.due()
            return
        turn, count = self._turn, len(consumers)
        core.units += count // LOOKS_OF_UNIT
        # The one with the fewest unsettled deliveries comes first, and of equals the one whose turn is next.
        ready = [
            (consumer.unsettled, (at - turn) % count, consumer)
            for at, consumer in enumerate(consumers)
            if consumer.port.credit > 0 and not consumer.is_blocked
        ]
        heapify(ready)
        while backlog and ready:
            if core.units > MAX_UNITS:
                self.due()
                return
            _, place, consumer = ready[0]
            if consumer.port.credit <= 0 or consumer.is_blocked:
                heappop(ready)
                continue
            core.units += 1
            size = backlog[0].waiting_bytes
            if size > SMALL_BYTES and consumer.must_wait(size):
                continue
            self._hand_out(backlog.popleft(), consumer)
            self._turn = (turn + place + 1) % count
            heapreplace(ready, (consumer.unsettled, place + count, consumer))

    def _hand_out(self, delivery: Delivery, consumer: Consumer) -> None:
        """Send a message that has waited to a receiver that can take it."""
        self.backlog_bytes -= delivery.waiting_bytes + DELIVERY_OVERHEAD_BYTES
        if isinstance(delivery, LargeDelivery) and not delivery.is_complete:
            delivery.start(cast("AnycastConsumer", consumer))
            return
        consumer.deliveries += 1
        payload, delivery.payload = delivery.payload, b""
        if not (delivery.settled or consumer.presettle):
            consumer.unsettled += 1
            delivery.sink = consumer
            if self.acknowledges:
                self.acknowledge(delivery, payload)
            consumer.send(delivery, payload, False, delivery.message_format)
            return
        consumer.send(delivery, payload, True, delivery.message_format)
        if consumer.is_blocked and self.follow(delivery, payload, consumer):
            return
        if not delivery.settled and delivery.producer is not None:
            delivery.producer.settle(delivery.producer_id, ACCEPTED)

    @staticmethod
    def acknowledge(delivery: Delivery, payload: bytes) -> None:
        """Accept a message that a receiver is handed now, and keep it until the receiver has accepted it, too."""
        delivery.payload = payload
        producer, delivery.producer = delivery.producer, None
        if producer is not None:
            producer.settle(delivery.producer_id, ACCEPTED)

    @staticmethod
    def follow(delivery: Delivery, payload: bytes, consumer: Consumer) -> bool:
        """Keep what was sent settled as long as it has not gone out; false if it has."""
        if not consumer.port.follow(delivery):
            return False
        consumer.unsettled += 1
        delivery.sink = consumer
        delivery.payload = payload
        return True

    def on_turn(self, now: float) -> None:
        """Hand out what waits, then share what receivers can take."""
        if self.backlog:
            self.dispatch()
            if self.backlog and not self.consumers:
                self._release_backlog()
        self.core.units += (len(self.consumers) + len(self.producers)) // LOOKS_OF_UNIT
        if self.fallback is not None and self.fallback.lends(wanted=not self.consumers):
            self.share.deadline = None
            return
        asked = usable = 0
        for consumer in self.consumers:
            credit = consumer.port.credit
            asked += credit
            if not consumer.is_blocked:
                usable += credit
        if self.backlog_bytes > BACKLOG_BYTES:
            asked = usable = len(self.backlog)
        share = self.share
        share.share(now, asked, usable, len(self.backlog))
        if share.deadline is not None:
            self.core.schedule(self, share.deadline)

    def on_deadline(self, now: float) -> None:
        """Call in what idle senders hold while others wait."""
        deadline = self.share.deadline
        if deadline is not None and now >= deadline:
            self.share.reclaim(self.asked())
            self.due()

    def _release_backlog(self) -> None:
        for delivery in self.backlog:
            if isinstance(delivery, LargeDelivery) and not delivery.is_complete:
                delivery.settle(delivery.producer_id, RELEASED)
                continue
            if self._fall_back(delivery):
                continue
            if delivery.settled:
                self.dropped += 1
            elif delivery.producer is not None:
                delivery.producer.settle(delivery.producer_id, RELEASED)
            else:
                self.dropped += 1
        self.backlog.clear()
        self.backlog_bytes = 0

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a receiver: its unsettled deliveries may have been processed, so they failed."""
        assert isinstance(consumer, AnycastConsumer)
        if consumer.large is not None:
            consumer.large.lost()
        for delivery in consumer.port.take_unsettled():
            consumer.on_outcome(delivery, FAILED)
        super().remove_consumer(consumer)

    def close(self, condition: str, description: str) -> None:
        """Close the address and give back everything that waits."""
        self._release_backlog()
        for producer in self.producers:
            if isinstance(producer, AnycastProducer) and producer.large is not None:
                producer.large.abort()
        super().close(condition, description)

    def counts(self) -> dict[str, int]:
        """Return the counters, with the credit that was ever granted beyond what receivers asked for."""
        return super().counts() | {"creditExcess": self.share.most_excess, "backlog": len(self.backlog)}
