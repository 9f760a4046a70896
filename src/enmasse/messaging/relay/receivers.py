"""Receivers whose messages come from another container."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.messaging.delivery import FAILED, SMALL_BYTES, ConsumerPort, Delivery
from enmasse.messaging.direct.large import LargeDelivery, PassingConsumer, PassingProducer
from enmasse.messaging.relay.uplink import KEPT_BYTES, OVERHEAD_BYTES, ReceivingUpstream, end_with
from enmasse.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from enmasse.messaging.errors import AttachError
    from enmasse.messaging.relay.relay import Relay
    from enmasse.messaging.relay.uplink import RetiringUpstream


OUTCOMES = frozenset(kind.SYMBOL for kind in (Accepted, Rejected, Released, Modified))
"""The outcomes of AMQP with which a receiver may settle a message."""

_VOID = AmqpError(
    "amqp:link:detach-forced", "the connector has lost its connection before outcomes took effect there"
)


class _Outcomes:
    """Outcomes that a receiver wants to hear of once they have taken effect."""

    __slots__ = ("are_void", "count", "done")

    def __init__(self) -> None:
        self.count = 0
        self.are_void = False
        """True if one of them is of a message whose link was lost before, and so has no effect."""
        self.done: Callable[[], None] | None = None

    def took_effect(self) -> None:
        """Note that one of them has."""
        self.count -= 1
        if not self.count and self.done is not None:
            done, self.done = self.done, None
            done()


class Source(PassingProducer):
    """The link there on which a receiver's messages come, for their outcomes; without effect once it is lost."""

    __slots__ = ("forget",)

    def __init__(self, consumer: RelayConsumer, upstream: Any) -> None:
        super().__init__(consumer.address, upstream, "")
        self.forget = consumer.forget
        if consumer.settles_second:
            self.settle = consumer.settle_second
        elif not OUTCOMES.issubset(consumer.offered):
            self.settle = consumer.settle_as_known


class RelayConsumer(PassingConsumer):
    """A receiver's end whose messages come from another container; the sink of the link there.

    Args:
        address: the names there.
        port: the receiver's link.
        presettle: whether the receiver asked for settled messages.
        settles_second: whether the receiver waits until its outcomes have taken effect.
    """

    __slots__ = (
        "_awaited", "_backlog", "_backlog_bytes", "_closes", "_is_draining", "_is_leaving", "_is_stalled",
        "_outcomes", "_retiring", "_source",
        "granted", "keeps_crossed", "offered", "opening", "settles_second", "upstream",
    )  # fmt: skip
    address: Relay

    def __init__(self, address: Relay, port: ConsumerPort, presettle: bool, settles_second: bool) -> None:
        super().__init__(address, port, presettle)
        self.settles_second = settles_second
        self._outcomes = _Outcomes()
        """Those that the receiver has told and not asked about."""
        self._awaited: set[_Outcomes] = set()
        """Those that the receiver waits for."""
        self.opening: Pending[AttachError | None] = Pending()
        self.granted: Any = None
        self.upstream: ReceivingUpstream | None = None
        self.keeps_crossed = False
        """True if messages beyond the credit are kept until there is more: given back, they come out of order."""
        self.offered: Collection[str] = OUTCOMES
        """The outcomes that the other container understands."""
        self._source: Source | None = None
        self._backlog: deque[tuple[bytes, Delivery]] = deque()
        self._backlog_bytes = 0
        self._is_draining = False
        self._is_stalled = False
        self._retiring = 0
        """Outcomes that wait for a transaction to be declared there."""
        self._is_leaving = False
        """True once the receiver is gone."""
        self._closes = False
        """True if its link has gone for good."""

    # The receiver's link

    def on_credit(self, gained: int, drain: bool) -> None:
        """Ask the other container for as much."""
        self._is_draining = drain
        self._pass_backlog()
        self._ask()

    def count_available(self) -> int | None:
        """Return None: the other container knows what waits there."""
        return None

    def on_outcome(self, delivery: Delivery, state: Any) -> None:
        """Pass the receiver's outcome to the other container, if the message came on a link that is still there."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)
            if state is None:
                state = RELEASED
        producer = delivery.producer
        if producer is not None and not delivery.settled:
            producer.settle(delivery.producer_id, state)

    def retire(self, delivery: Delivery, state: Any, is_settled: bool) -> bool:
        """Tell the other container an outcome that counts once its transaction there is committed.

        Returns:
            Whether the delivery can have one: it is complete, and its link is still there.
        """
        source = delivery.producer
        if isinstance(delivery, LargeDelivery):
            source = delivery.sender if delivery.is_complete else None
        if self.upstream is None or source is None or source is not self._source:
            return False
        cast("RetiringUpstream", self.upstream).settle_within(delivery.producer_id, state, is_settled)
        if is_settled:
            # It needs nothing more from here, whatever becomes of the transaction.
            delivery.producer = None
        return True

    def await_retiring(self, count: int) -> None:
        """Count up or down the outcomes that wait for a transaction to be declared."""
        self._retiring += count
        if self._is_leaving and not self._retiring:
            for _, delivery in self._take_backlog():
                self._turn_away(delivery)
            self._leave_upstream()

    def retired(self, delivery: Delivery, outcome: Any) -> None:
        """Count an outcome that has taken effect with its transaction."""
        self.unsettled -= 1
        if outcome is not ACCEPTED:
            self.count(outcome)
        delivery.producer = None

    def settle_second(self, delivery_id: int, state: Any) -> None:
        """Tell the other container an outcome, and hear once it has taken effect."""
        if self.upstream is not None:
            self._outcomes.count += 1
            self.upstream.settle_after(delivery_id, self.known(state), self._outcomes.took_effect)

    def settle_as_known(self, delivery_id: int, state: Any) -> None:
        """Tell the other container an outcome, by one that it offers."""
        if self.upstream is not None:
            self.upstream.settle(delivery_id, self.known(state))

    def known(self, state: Any) -> Any:
        """Return an outcome, or released in place of one that would be an error there."""
        symbol = getattr(state, "SYMBOL", "")
        return RELEASED if symbol in OUTCOMES and symbol not in self.offered else state

    def _settle_void(self, _delivery_id: int, _state: Any) -> None:
        self._outcomes.are_void = True

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the outcomes since the last call have taken effect there, for who settles second."""
        if self._outcomes.are_void:
            end_with(self, _VOID)
            return
        if not self._outcomes.count:
            done()
            return
        outcomes, self._outcomes = self._outcomes, _Outcomes()
        self._awaited.add(outcomes)

        def confirmed() -> None:
            self._awaited.discard(outcomes)
            done()

        outcomes.done = confirmed

    def on_blocked(self, blocked: bool) -> None:
        """Have the other container wait while the receiver's connection takes no more."""
        if self.large is not None:
            self.large.on_blocked(blocked)
            return
        self.is_blocked = blocked
        if not blocked:
            self._pass_backlog()
        self._ask()

    def end_large(self, *, has_failed: bool) -> None:
        """Hand out what has waited for the end of the message."""
        super().end_large(has_failed=has_failed)
        self._pass_backlog()
        self._ask()

    def on_detached(self, *, closed: bool = False) -> None:
        """Note that the receiver is gone, and with it its link there."""
        for delivery in self.port.take_unsettled():
            _settle(delivery, FAILED)
        for _, delivery in self._take_backlog():
            self._turn_away(delivery)
        self._go_on_reading()
        self._is_leaving, self._closes = True, closed
        if not self._retiring:
            self._leave_upstream()
        elif self.upstream is not None:
            self.upstream.grant(0)
        for outcomes in self._awaited:
            outcomes.done = None
        self._awaited.clear()
        super().on_detached(closed=closed)

    def _leave_upstream(self) -> None:
        self.address.uplink.detach(self, closed=self._closes)
        self.upstream = None
        self._leave_source()

    def _ask(self) -> None:
        """Set the credit of the other container, which it can use once a large message has ended."""
        if self.large is not None:
            return
        upstream = self.upstream
        if upstream is None:
            credit = 0
        else:
            credit = 0 if self.is_blocked else max(0, self.port.credit - len(self._backlog))
            upstream.grant(credit)
            if self._is_stalled != self.is_blocked:
                self._is_stalled = self.is_blocked
                upstream.stall(self._is_stalled)
            if self._is_draining and credit:
                upstream.drain()
        if self._is_draining and not credit and not self._backlog:
            self._is_draining = False
            self.port.drained()

    def _go_on_reading(self) -> None:
        """Have nothing of the session there wait for this receiver any more."""
        if self._is_stalled and self.upstream is not None:
            self.upstream.stall(False)
        self._is_stalled = False

    def _pass_backlog(self) -> None:
        while self._backlog and not self.is_blocked and self.port.credit > 0:
            payload, delivery = self._backlog[0]
            size = len(payload) + delivery.waiting_bytes
            if size > SMALL_BYTES and self.must_wait(size):
                return
            self._backlog.popleft()
            kept = len(payload) + OVERHEAD_BYTES
            self._backlog_bytes -= kept
            self.address.backlog_bytes -= kept + delivery.waiting_bytes
            if isinstance(delivery, LargeDelivery):
                if not delivery.is_complete:
                    delivery.start(self)
                    continue
                payload, delivery.payload = delivery.payload, b""
            self._pass(payload, delivery)

    def _take_backlog(self) -> Iterable[tuple[bytes, Delivery]]:
        """Remove and return what waits here."""
        backlog, self._backlog, self._backlog_bytes = self._backlog, deque(), 0
        for payload, delivery in backlog:
            self.address.backlog_bytes -= len(payload) + OVERHEAD_BYTES + delivery.waiting_bytes
        return backlog

    def forget(self, large: Delivery) -> None:
        """Let a large message wait no longer, if it does."""
        if (b"", large) in self._backlog:
            self._backlog.remove((b"", large))
            self._backlog_bytes -= OVERHEAD_BYTES
            self.address.backlog_bytes -= OVERHEAD_BYTES + large.waiting_bytes
            self._ask()  # a receiver that drains may have waited for it alone

    def _leave_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.on_detached()

    def _turn_away(self, delivery: Delivery) -> None:
        if delivery.settled:
            self.address.dropped += 1
        _settle(delivery, RELEASED)

    def _pass(self, payload: bytes, delivery: Delivery) -> None:
        self.deliveries += 1
        if not (delivery.settled or self.presettle):
            self.unsettled += 1
            delivery.sink = self
            self.send(delivery, payload, False, delivery.message_format)
            return
        self.send(delivery, payload, True, delivery.message_format)
        if self.is_blocked and self.port.follow(delivery):
            self.unsettled += 1
            delivery.sink = self
        else:
            _settle(delivery, ACCEPTED)

    # The link there

    def on_upstream(self, upstream: ReceivingUpstream) -> None:
        """Note that the link is attached there."""
        self.upstream = upstream
        self._source = Source(self, upstream)
        self.opening.settle(None)
        self._ask()

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Note that the other container refuses the link, or has detached it."""
        self._lose_upstream()
        end_with(self, error)

    def on_lost(self) -> None:
        """Note that the link there is lost with its connection: it hands out again what nobody has settled."""
        self._lose_upstream()
        if self._awaited or self._outcomes.count:
            # Nothing else could tell the receiver that nobody knows whether they have taken effect.
            end_with(self, _VOID)
        else:
            self._ask()

    def _lose_upstream(self) -> None:
        self._go_on_reading()
        self.upstream = None
        source = self._source
        self._leave_source()
        if self.settles_second and source is not None:
            source.settle = self._settle_void
        for payload, delivery in self._take_backlog():
            if delivery.settled:
                self._keep(payload, delivery)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Hand the message to the receiver."""
        delivery = Delivery(b"", self._source, delivery_id, settled, message_format)
        is_plain = not (settled or self.presettle or self.is_blocked or self._backlog) and self.port.credit > 0
        if is_plain and len(payload) <= SMALL_BYTES:
            # Most messages: as by what follows, without its calls.
            self.deliveries += 1
            self.unsettled += 1
            delivery.sink = self
            self.send(delivery, payload, False, message_format)
            return
        if self._must_keep(len(payload)):
            size, address = len(payload) + OVERHEAD_BYTES, self.address
            if self._backlog_bytes + size > KEPT_BYTES or address.backlog_bytes + size > address.room_bytes:
                self._turn_away(delivery)
            else:
                self._keep(payload, delivery)
            return
        self._pass(payload, delivery)

    def _must_keep(self, size: int) -> bool:
        if self.is_blocked or self._backlog or self.port.credit <= 0:
            return True
        return size > SMALL_BYTES and self.must_wait(size)

    def _keep(self, payload: bytes, delivery: Delivery) -> None:
        self._backlog.append((payload, delivery))
        size = len(payload) + OVERHEAD_BYTES
        self._backlog_bytes += size
        self.address.backlog_bytes += size + delivery.waiting_bytes

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Give the message back, as the receiver has taken its credit back, unless it is to wait."""
        if self._is_wanted(settled):
            self.on_message(payload, delivery_id, settled, message_format)
        else:
            self._turn_away(Delivery(b"", self._source, delivery_id, settled, message_format))

    def _is_wanted(self, settled: bool) -> bool:
        return self.is_blocked or self.port.credit > 0 or settled or self.keeps_crossed

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeDelivery:
        """Hand a large message to the receiver while it comes."""
        source = self._source
        assert source is not None
        source.large = large = LargeDelivery(payload, source, delivery_id, settled, message_format)
        if is_crossed and not self._is_wanted(settled):
            large.settle(delivery_id, RELEASED)
        elif self._must_keep(len(payload)):
            large.hold()
            self._keep(b"", large)
        else:
            large.start(self)
        return large

    def on_exhausted(self) -> None:
        """Tell a receiver that drains that all of its credit is used up."""
        self._drained()

    def on_given_up(self, credit: int) -> None:
        """Tell a receiver that drains that nothing more comes; ask anew for one that has changed its mind."""
        self._drained()
        if not self._is_draining:
            self._ask()

    def on_refused(self) -> None:
        """Do nothing: no message of the other container is refused before it comes here."""

    def on_available(self, available: int) -> None:
        """Do nothing: the receiver's credit is all that is asked for."""

    def _drained(self) -> None:
        upstream = self.upstream
        if self._is_draining and upstream is not None and upstream.credit <= 0 and not self._backlog:
            self._is_draining = False
            self.port.drained()


def _settle(delivery: Delivery, state: Any) -> None:
    """Tell the other container the outcome of a message that came from there."""
    producer = delivery.producer
    if producer is not None and not delivery.settled:
        producer.settle(delivery.producer_id, state)
