"""Addresses of another container: each link of a client goes on as one link there, with its credit and outcomes.

Rules:
1. One link here is one link there. A sender has the credit that the other container grants, a receiver's credit is
   asked of it, and outcomes pass as they are, both ways: nothing is stored, and nothing acknowledged for another.
2. What comes for credit that was taken back meanwhile, as the two ends do not hear of it at once, is kept and goes
   first once there is credit again: containers that are not ours detach those who send more than was granted.
3. A link that is lost there is attached again, and has no credit here until then. What was written to it and has no
   outcome ends modified, with delivery-failed; what was not written is released. What a receiver has of it cannot be
   settled any more: the other container hands it out again.
4. A large message goes on while it comes, in either direction, so that none is held whole.
5. A receiver that settles second hears of an outcome once it has taken effect there. If the link there is lost
   before, its own link ends: nothing else could say that nobody knows.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError, Rejected
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import FAILED, SMALL_BYTES, Consumer, ConsumerPort, Delivery, Producer, ProducerPort
from enmasse.messaging.direct.large import LargeDelivery, PartsPort, PassingConsumer, PassingProducer
from enmasse.messaging.errors import AttachError
from enmasse.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from enmasse.messaging.core import Core


MAX_UNSETTLED = 10_000
"""Messages of a sender that may wait for the other container's outcome: it may grant credit and never settle."""

IDLE_S = 60.0
"""Seconds after which the link of a sender that names the address in each message is detached, if none came."""

KEPT_BYTES = 8 << 20
"""Bytes that may wait on one link for credit there, or for a receiver whose connection takes no more."""


class SendingUpstream(Protocol):
    """A link to the other container on which a sender's messages go on."""

    credit: int
    holds_back: bool

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit."""

    def send_while_it_comes(self, delivery: Any, settled: bool, message_format: int = 0) -> PartsPort:
        """Begin to send a message for one credit."""

    def follow(self, delivery: Any) -> bool:
        """Follow the message that was just sent, if it has not gone out; see ``ConsumerPort``."""

    def drained(self) -> None:
        """Use up the credit, if the other container asked for that."""

    def take_unsettled(self) -> list[Any]:
        """Remove and return what has no outcome yet."""


class ReceivingUpstream(Protocol):
    """A link to the other container on which a receiver's messages come."""

    credit: int

    def grant(self, credit: int) -> None:
        """Set the credit that the other container has."""

    def drain(self) -> None:
        """Have the credit used up, with messages or without."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Tell the other container an outcome."""

    def settle_after(self, delivery_id: int, state: Any, done: Callable[[], None]) -> None:
        """Tell the other container an outcome, and have ``done`` called once it has taken effect there."""

    def stall(self, is_stalled: bool) -> None:
        """Have nothing more sent for now, or again."""

    def hold_input(self, is_held: bool) -> None:
        """Leave what is sent unread, or read on."""


class Uplink(Protocol):
    """The way to the other container.

    It attaches the links of ends there, each with the end as its sink, and tells the end by ``on_upstream``,
    ``on_refused`` and ``on_lost``.
    """

    def attach_sender(self, end: RelayProducer, name: str, options: AttachOptions) -> None:
        """Attach a sender's link to an address of the other container; its end is told later, never at once.

        Raises:
            AttachError: the link has come through here before.
        """

    def attach_receiver(self, end: RelayConsumer, name: str, options: AttachOptions) -> None:
        """Attach a receiver's link to an address of the other container; see ``attach_sender``."""

    def detach(self, end: RelayProducer | RelayConsumer, *, closed: bool = True) -> None:
        """Detach what was attached for an end, or is being attached; what is not closed may be attached again."""


class _Unwritten:
    """A message that waits for the window of the other container's session."""

    __slots__ = ("delivery", "sink")

    def __init__(self, delivery: _Sent) -> None:
        self.delivery = delivery
        self.sink = self

    def on_outcome(self, _unwritten: Any, state: Any) -> None:
        """Note that it has gone out."""
        self.delivery.is_written = state is ACCEPTED


class _Sent(Delivery):
    """A message of a sender that has gone on, and whether it may have left this machine."""

    __slots__ = ("is_written",)

    def __init__(self, producer: RelayProducer, producer_id: int, message_format: int) -> None:
        super().__init__(b"", producer, producer_id, False, message_format)
        self.sink = producer  # type: ignore[assignment]  # outcomes of what goes on come to the sender's end
        self.is_written = True


class RelayProducer(PassingProducer):
    """A sender's end whose messages go on to another container; the sink of the link there."""

    presettle = False
    __slots__ = ("_held", "_held_bytes", "_is_blocked", "_passing", "granted", "opening", "unsettled", "upstream")
    address: Relay

    def __init__(self, address: Relay, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.opening: Pending[AttachError | None] = Pending()
        self.granted: Any = None
        self.upstream: SendingUpstream | None = None
        self.unsettled = 0
        self._is_blocked = False
        """True while the other container's connection takes no more, or a large message is being sent there."""
        self._passing: LargeDelivery | None = None
        """The large message that is being sent there."""
        self._held: deque[tuple[bytes, int, bool, int] | LargeDelivery] = deque()
        self._held_bytes = 0

    # The sender's link

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send the message on."""
        upstream, is_blocked = self.upstream, self._is_blocked
        if upstream is None or upstream.credit <= 0 or is_blocked or self._held:
            self._hold(payload, delivery_id, settled, message_format)
            return
        if settled:
            upstream.send(None, payload, True, message_format)
            return
        delivery = _Sent(self, delivery_id, message_format)
        self.unsettled += 1
        upstream.send(delivery, payload, False, message_format)
        if self._is_blocked:
            delivery.is_written = not upstream.follow(_Unwritten(delivery))

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Keep the message until there is credit again."""
        self.on_message(payload, delivery_id, settled, message_format)

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> LargeDelivery:
        """Send a large message on while it comes."""
        self.large = large = LargeDelivery(payload, self, delivery_id, settled, message_format)
        upstream = self.upstream
        if upstream is not None and upstream.credit > 0 and not (self._is_blocked or self._held):
            large.start(self)
        else:
            large.hold()
            self._hold_large(large)
        return large

    def on_exhausted(self) -> None:
        """Do nothing: the other container grants more."""

    def on_refused(self) -> None:
        """Grant the credit again that a message used up here which goes nowhere."""
        self._grant()

    def on_given_up(self, credit: int) -> None:
        """Grant the credit again that the sender gave up."""
        self._grant()

    def on_available(self, available: int) -> None:
        """Do nothing: credit is the other container's."""

    def on_detached(self) -> None:
        """Note that the sender is gone, and with it its link there."""
        if self.large is not None:
            self.large.abort()
        self.address.uplink.detach(self)
        self._let_go(RELEASED)
        self.upstream = None
        super().on_detached()

    def _hold(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        if (self._is_lost and not settled) or self._held_bytes + len(payload) > KEPT_BYTES:
            self._turn_away(delivery_id, settled, RELEASED)
            return
        self._held.append((payload, delivery_id, settled, message_format))
        self._held_bytes += len(payload)

    @property
    def _is_lost(self) -> bool:
        return self.upstream is None and self.opening.answer is not None

    def _hold_large(self, large: LargeDelivery) -> None:
        if self._is_lost and not large.settled:
            large.settle(large.producer_id, RELEASED)
        else:
            self._held.append(large)
            self.address.backlog_bytes += large.waiting_bytes

    def forget(self, large: LargeDelivery) -> None:
        """Let a large message wait no longer, if it does."""
        if large in self._held:
            self._held.remove(large)
            self.address.backlog_bytes -= large.waiting_bytes

    def _turn_away(self, delivery_id: int, settled: bool, state: Any) -> None:
        if settled:
            self.address.dropped += 1
        else:
            self.settle(delivery_id, state)

    def _let_go(self, state: Any) -> None:
        """Give what waits here an outcome."""
        for item in self._take_held():
            if not isinstance(item, LargeDelivery):
                self._turn_away(item[1], item[2], state)
            else:
                self.address.dropped += item.settled
                item.settle(item.producer_id, state)

    def _take_held(self) -> Iterable[tuple[bytes, int, bool, int] | LargeDelivery]:
        """Remove and return what waits here."""
        held, self._held, self._held_bytes = self._held, deque(), 0
        for item in held:
            if isinstance(item, LargeDelivery):
                self.address.backlog_bytes -= item.waiting_bytes
        return held

    def _grant(self) -> None:
        upstream = self.upstream
        if upstream is None or self._is_blocked:
            self.port.grant(0)
        else:
            self.port.grant(max(0, min(upstream.credit, MAX_UNSETTLED - self.unsettled) - len(self._held)))

    # The link there

    def on_upstream(self, upstream: SendingUpstream) -> None:
        """Note that the link is attached there."""
        self.upstream = upstream
        self._is_blocked = upstream.holds_back
        self.opening.settle(None)
        self._go_on()

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Note that the other container refuses the link, or has detached it."""
        self.on_lost()
        self._let_go(Rejected(error))
        _end(self, error)

    def on_lost(self) -> None:
        """Note that the link there is lost with its connection: tell the outcomes that will not come any more."""
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        if self._passing is not None:
            self._passing.lost()
        for sent in upstream.take_unsettled():
            self.on_outcome(sent, RELEASED if isinstance(sent, _Sent) and not sent.is_written else FAILED)
        self._grant()
        for item in self._take_held():
            if isinstance(item, LargeDelivery):
                self._hold_large(item)
            else:
                self._hold(*item)

    def on_credit(self, _gained: int, drain: bool) -> None:
        """Pass on the credit that the other container grants, or takes back."""
        self._go_on()
        if drain and self.upstream is not None:
            # What the sender still has on its way for this credit waits here for the next.
            self.port.grant(0)
            self.upstream.drained()

    def count_available(self) -> int | None:
        """Return how many messages wait for credit, as far as it is known here."""
        return len(self._held)

    def on_outcome(self, delivery: Delivery, state: Any) -> None:
        """Pass the other container's outcome to the sender."""
        self.unsettled -= 1
        producer = delivery.producer
        if producer is not None:
            producer.settle(delivery.producer_id, RELEASED if state is None else state)
        if self.unsettled == MAX_UNSETTLED // 2:
            self._grant()

    def on_blocked(self, blocked: bool) -> None:
        """Have the sender wait while the other container's connection takes no more."""
        if self._passing is not None:
            self._passing.on_blocked(blocked)
        else:
            self._is_blocked = blocked
            self._go_on()

    @property
    def holds_back(self) -> bool:
        """True while the other container's connection takes no more."""
        return self.upstream is not None and self.upstream.holds_back

    def begin_large(self, large: LargeDelivery, is_settled: bool) -> PartsPort:
        """Begin to send a message there while it comes."""
        upstream = self.upstream
        assert upstream is not None
        if not is_settled:
            self.unsettled += 1
        self._passing = large
        self._is_blocked = True
        return upstream.send_while_it_comes(large, is_settled, large.message_format)

    def end_large(self, *, has_failed: bool) -> None:
        """Note that nothing more of the message comes."""
        if has_failed:
            self.unsettled -= 1
        self._passing = None
        self._is_blocked = self.holds_back
        self._go_on()

    def _go_on(self) -> None:
        """Send what waited, as far as there is credit, and grant what is left."""
        upstream = self.upstream
        held, self._held = self._held, deque()
        while held and upstream is not None and upstream.credit > 0 and not self._is_blocked:
            item = held.popleft()
            if not isinstance(item, LargeDelivery):
                self._held_bytes -= len(item[0])
                self.on_message(*item)
                continue
            self.address.backlog_bytes -= item.waiting_bytes
            if item.is_complete:
                self.on_message(item.payload, item.producer_id, item.settled, item.message_format)
            else:
                item.start(self)
        self._held = held
        self._grant()


class _Guest:
    """The port of a sender that was promised no credit here, as it names the address in each message."""

    __slots__ = ("_port", "settle")
    received = limit = highest = 0

    def __init__(self, port: ProducerPort) -> None:
        self._port = port
        self.settle = port.settle

    def grant(self, credit: int) -> None:
        """Grant nothing: the sender has its credit from elsewhere."""

    def detach(self, error: Any = None) -> None:
        """Do nothing: the sender has other addresses."""


class RelayGuest(RelayProducer):
    """The end of a sender that names the address in each message, or sends a single one.

    Its link is attached for the first message, and detached once there was none for a while.
    """

    __slots__ = ("_is_used", "_is_wanted", "_name")

    def __init__(self, address: Relay, port: ProducerPort, target: str, name: str) -> None:
        super().__init__(address, _Guest(port), target)
        self._name = name
        self._is_wanted = False
        self._is_used = False

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send the message on, once there is a link."""
        self._is_used = True
        if not self._is_wanted:
            self._is_wanted = True
            self.opening = Pending()
            self.address.uplink.attach_sender(self, self._name, AttachOptions())
            self.address.core.call_later(IDLE_S, self._look)
        super().on_message(payload, delivery_id, settled, message_format)

    on_crossed = on_message

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Reject what waits, as the other container refuses the link."""
        self.on_lost()
        self._is_wanted = False
        self._let_go(Rejected(error))

    def _look(self) -> None:
        """Detach the link if nobody needs it any more."""
        if not self._is_wanted:
            return
        if self._is_used or self.unsettled or self._held:
            self._is_used = False
            self.address.core.call_later(IDLE_S, self._look)
        else:
            self.address.uplink.detach(self)
            self._is_wanted = False
            self.upstream = None


class _Outcomes:
    """Outcomes that a receiver wants to hear of once they have taken effect."""

    __slots__ = ("count", "done")

    def __init__(self) -> None:
        self.count = 0
        self.done: Callable[[], None] | None = None

    def took_effect(self) -> None:
        """Note that one of them has."""
        self.count -= 1
        if not self.count and self.done is not None:
            self.done()


class _Source(PassingProducer):
    """The link there on which a receiver's messages come, for their outcomes; without effect once it is lost."""

    __slots__ = ("forget",)

    def __init__(self, consumer: RelayConsumer, upstream: Any) -> None:
        super().__init__(consumer.address, upstream, "")
        self.forget = consumer.forget
        if consumer.settles_second:
            self.settle = consumer.settle_second


class RelayConsumer(PassingConsumer):
    """A receiver's end whose messages come from another container; the sink of the link there.

    Args:
        address: the names there.
        port: the receiver's link.
        presettle: whether the receiver asked for settled messages.
        settles_second: whether the receiver waits until its outcomes have taken effect.
    """

    __slots__ = (
        "_awaited", "_backlog", "_backlog_bytes", "_is_draining", "_is_stalled", "_outcomes", "_source",
        "granted", "opening", "settles_second", "upstream",
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
        self._source: _Source | None = None
        self._backlog: deque[tuple[bytes, Delivery]] = deque()
        self._backlog_bytes = 0
        self._is_draining = False
        self._is_stalled = False

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
        _settle(delivery, state)

    def settle_second(self, delivery_id: int, state: Any) -> None:
        """Tell the other container an outcome, and hear once it has taken effect."""
        if self.upstream is not None:
            self._outcomes.count += 1
            self.upstream.settle_after(delivery_id, state, self._outcomes.took_effect)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the outcomes since the last call have taken effect there, for who settles second."""
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
        self.address.uplink.detach(self, closed=closed)
        self.upstream = None
        self._leave_source()
        super().on_detached(closed=closed)

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

    def _pass_backlog(self) -> None:
        while self._backlog and not self.is_blocked and self.port.credit > 0:
            payload, delivery = self._backlog[0]
            size = len(payload) + delivery.waiting_bytes
            if size > SMALL_BYTES and self.must_wait(size):
                return
            self._backlog.popleft()
            self._backlog_bytes -= len(payload)
            self.address.backlog_bytes -= delivery.waiting_bytes
            if isinstance(delivery, LargeDelivery):
                if not delivery.is_complete:
                    delivery.start(self)
                    continue
                payload, delivery.payload = delivery.payload, b""
            self._pass(payload, delivery)

    def _take_backlog(self) -> Iterable[tuple[bytes, Delivery]]:
        """Remove and return what waits here."""
        backlog, self._backlog, self._backlog_bytes = self._backlog, deque(), 0
        for _, delivery in backlog:
            self.address.backlog_bytes -= delivery.waiting_bytes
        return backlog

    def forget(self, large: Delivery) -> None:
        """Let a large message wait no longer, if it does."""
        if (b"", large) in self._backlog:
            self._backlog.remove((b"", large))
            self.address.backlog_bytes -= large.waiting_bytes

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
        self._source = _Source(self, upstream)
        self.opening.settle(None)
        self._ask()

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Note that the other container refuses the link, or has detached it."""
        self._awaited.clear()
        self.on_lost()
        _end(self, error)

    def on_lost(self) -> None:
        """Note that the link there is lost with its connection: it hands out again what nobody has settled."""
        self.upstream = None
        self._outcomes = _Outcomes()
        self._is_stalled = False
        self._leave_source()
        for payload, delivery in self._take_backlog():
            if delivery.settled:
                self._keep(payload, delivery)
        if self._awaited:
            # Nothing else could tell the receiver that nobody knows whether they have taken effect.
            problem = "the connector has lost its connection before outcomes took effect there"
            self.on_refused_upstream(AmqpError("amqp:link:detach-forced", problem))
        else:
            self._ask()

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Hand the message to the receiver."""
        delivery = Delivery(b"", self._source, delivery_id, settled, message_format)
        if self._must_keep(len(payload)):
            if self._backlog_bytes + len(payload) > KEPT_BYTES:
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
        self._backlog_bytes += len(payload)
        self.address.backlog_bytes += delivery.waiting_bytes

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Give the message back: the receiver has taken its credit back."""
        if self._is_wanted(settled):
            self.on_message(payload, delivery_id, settled, message_format)
        else:
            self._turn_away(Delivery(b"", self._source, delivery_id, settled, message_format))

    def _is_wanted(self, settled: bool) -> bool:
        return self.is_blocked or self.port.credit > 0 or settled

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
        """Tell a receiver that drains that nothing more comes."""
        self._drained()

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


def _end(end: RelayProducer | RelayConsumer, error: AmqpError) -> None:
    """Refuse an end that was not attached yet; detach it else."""
    if end.opening.answer is None:
        end.opening.settle(AttachError(error.condition, error.description or ""))
    else:
        end.port.detach(error)
        end.on_detached()


class Relay(Address):
    """All addresses of another container, below one name: ``<name>/<address there>``.

    Args:
        core: the core whose turn it takes part in.
        name: the name of the connector.
        uplink: the way to the other container.
        reaches: returns whether an address of the other container may be reached.
    """

    kind = "connector"
    owns_subtree: ClassVar[bool] = True
    names_apart: ClassVar[bool] = True
    passes_large = True
    __slots__ = ("backlog_bytes", "reaches", "uplink")

    def __init__(self, core: Core, name: str, uplink: Uplink, reaches: Callable[[str], bool]) -> None:
        super().__init__(core, name)
        self.uplink = uplink
        self.reaches = reaches
        self.backlog_bytes = 0
        """Bytes of the large messages that wait."""

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender; the other container answers later."""
        name = self._name_there(target)
        producer = RelayProducer(self, port, target)
        self.uplink.attach_sender(producer, name, options)
        return self.add_producer(producer)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit; what it sends waits for the other container's."""
        return RelayGuest(self, port, target, self._name_there(target))

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver; the other container answers later."""
        name = self._name_there(options.source)
        settles_second = options.attach is not None and options.attach.rcv_settle_mode == 1
        consumer = RelayConsumer(self, port, options.presettle, settles_second)
        self.uplink.attach_receiver(consumer, name, options)
        return self.add_consumer(consumer)

    def forget(self, delivery: Delivery) -> None:
        """Let a large message wait no longer, if it does."""
        assert isinstance(delivery, LargeDelivery)
        assert isinstance(delivery.sender, RelayProducer | _Source)
        delivery.sender.forget(delivery)

    def _name_there(self, name: str) -> str:
        there = name.removeprefix(f"{self.name}/")
        if there == name or not there:
            problem = f"{self.name!r} is a connector: name an address behind it, such as '{self.name}/orders'"
            raise AttachError("amqp:not-found", problem)
        if not self.reaches(there):
            problem = f"connector {self.name!r} does not reach {there!r}: none of its addresses has a pattern for it"
            raise AttachError("amqp:not-found", problem)
        return there
