"""Senders whose messages go on to another container."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Union, cast

from enmasse.message.outcomes import (
    ACCEPTED,
    RELEASED,
    ROLLBACK,
    TOO_LARGE,
    Accepted,
    AmqpError,
    Modified,
    Rejected,
    Released,
)
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.delivery import FAILED, Delivery, Producer, ProducerPort
from enmasse.messaging.direct.large import LargeDelivery, PartsPort, PassingProducer
from enmasse.messaging.relay.uplink import KEPT_BYTES, OVERHEAD_BYTES, SendingUpstream, TransactionThere, end_with
from enmasse.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from enmasse.messaging.errors import AttachError
    from enmasse.messaging.relay.relay import Relay
    from enmasse.messaging.relay.uplink import PostingUpstream


Held = Union[tuple[bytes, int, bool, int], LargeDelivery, "Posted"]
"""What waits on a sender's link."""

_LOST = AmqpError(ROLLBACK, "the connector has lost its link, and what the transaction had on it")

OUTCOMES = (Accepted, Rejected, Released, Modified)
"""What a sender understands."""

MAX_GUESTS = 1_000
"""Links of one connector for senders that name the address in each message: they may name as many as they like."""

LOOKED_AT = 32
"""Of these, those that are looked at for one that nobody needs, when another is wanted."""

IDLE_S = 60.0
"""Seconds after which the link of a sender that names the address in each message is detached, if none came."""


class _Unwritten:
    """A message that waits for the window of the other container's session."""

    __slots__ = ("_delivery", "_producer", "sink")

    def __init__(self, producer: RelayProducer, delivery: Delivery) -> None:
        self._producer = producer
        self._delivery = delivery
        self.sink = self

    def on_outcome(self, _unwritten: Any, state: Any) -> None:
        """Note that it has gone out."""
        if state is ACCEPTED:
            self._producer.unwritten.discard(self._delivery)


class _Told:
    """The producer of a message within a transaction: passes its outcome on as one that depends on that."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def settle(self, _delivery_id: int, state: Any) -> None:
        """Pass the outcome on; what has failed here is rolled back, so nobody has it."""
        self._tell(RELEASED if state is FAILED else state)


class _Awaited:
    """The producer of a message within a transaction whose end waits for the message's outcome."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: TransactionThere) -> None:
        self._transaction = transaction

    def settle(self, _delivery_id: int, state: Any) -> None:
        """Have the transaction go on, or fail if the message was not accepted."""
        if state is ACCEPTED:
            self._transaction.went_out()
        else:
            problem = f"a message was not accepted, but {type(state).__name__.lower()}"
            self._transaction.fail(getattr(state, "error", None) or AmqpError(ROLLBACK, problem))


class Posted(Delivery):
    """A message that counts once its transaction over there is committed.

    Args:
        payload: the message.
        settled: whether its sender has settled it.
        transaction: the transaction.
        tell: called with its outcome, unless it was settled; None: the transaction's end waits for that.
    """

    __slots__ = ("is_awaited", "transaction")

    def __init__(
        self, payload: bytes, settled: bool, transaction: TransactionThere, tell: Callable[[Any], None] | None
    ) -> None:
        producer = _Awaited(transaction) if tell is None else _Told(tell)
        super().__init__(payload, cast("Producer", producer), 0, settled, 0)
        self.transaction = transaction
        self.is_awaited = tell is None

    @property
    def size(self) -> int:
        """The bytes that it takes while it waits."""
        return len(self.payload) + OVERHEAD_BYTES

    def drop(self) -> None:
        """Tell that it is not sent, as its transaction is over."""
        producer, self.producer = self.producer, None
        if producer is not None and not self.settled:
            problem = self.transaction.problem
            producer.settle(0, RELEASED if problem is None else Rejected(problem))


class _Outgoing:
    """A message within a transaction that waits for the window of the other container's session."""

    __slots__ = ("_transaction", "sink")

    def __init__(self, transaction: TransactionThere) -> None:
        self._transaction = transaction
        self.sink = self

    def on_outcome(self, _outgoing: Any, state: Any) -> None:
        """Note that it has gone out, or never will."""
        if state is ACCEPTED:
            self._transaction.went_out()
        else:
            self._transaction.fail(_LOST)


class RelayProducer(PassingProducer):
    """A sender's end whose messages go on to another container; the sink of the link there."""

    presettle = False
    __slots__ = (
        "_held", "_held_bytes", "_is_blocked", "_is_leaving", "_most", "_passing", "granted", "opening", "unsettled",
        "unwritten", "upstream",
    )  # fmt: skip
    address: Relay

    def __init__(self, address: Relay, port: ProducerPort, target: str) -> None:
        super().__init__(address, port, target)
        self.opening: Pending[AttachError | None] = Pending()
        self.granted: Any = None
        self.upstream: SendingUpstream | None = None
        self.unsettled = 0
        self._most = address.usage.limits.connector_unsettled
        """Messages that may wait for the other container's outcome: it may grant credit and never settle."""
        self.unwritten: set[Delivery] = set()
        """Those of the messages without an outcome that cannot have left this machine yet."""
        self._is_blocked = False
        """True while the other container's connection takes no more, or a large message is being sent there."""
        self._passing: LargeDelivery | None = None
        """The large message that is being sent there."""
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._is_leaving = False
        """True once the sender is gone, while messages of a transaction that was not are to be sent yet."""

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
        delivery = Delivery(b"", self, delivery_id, False, message_format)
        delivery.sink = self  # type: ignore[assignment]  # outcomes of what goes on come to the sender's end
        self.unsettled += 1
        upstream.send(delivery, payload, False, message_format)
        if self._is_blocked and upstream.follow(_Unwritten(self, delivery)):
            self.unwritten.add(delivery)

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
        """Grant what is left of the other container's credit, which may be more than may be unsettled here."""
        self._grant()

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
        held = self._take_held()
        for item in held:
            if isinstance(item, Posted):
                self._hold_post(item)
        self._let_go(RELEASED, (item for item in held if not isinstance(item, Posted)))
        super().on_detached()
        self._is_leaving = True
        self._look_after_posts()

    def _look_after_posts(self) -> None:
        """Detach the link there if its sender is gone, and nothing is to be sent any more."""
        if not self._is_leaving:
            return
        for item in list(self._held):
            if isinstance(item, Posted) and item.transaction.is_over:
                self._held.remove(item)
                self._release_post(item)
                item.drop()
        if self._held:
            return
        self._is_leaving = False
        self.address.uplink.detach(self)
        if self.upstream is not None:
            self.upstream.take_unsettled()
        self.upstream = None

    def post(self, posted: Posted) -> AmqpError | None:
        """Send a message on within a transaction, in its place among the others.

        Returns:
            Why that cannot be.
        """
        if self._is_lost:
            return _LOST
        address = self.address
        if self._held_bytes + posted.size > KEPT_BYTES or address.backlog_bytes + posted.size > address.room_bytes:
            problem = "there is no room for more messages that wait for credit of the other container"
            return AmqpError("amqp:resource-limit-exceeded", problem)
        self._hold_post(posted)
        self.go_on()
        return None

    def drop_posts(self, transaction: TransactionThere) -> None:
        """Let go of the messages of a transaction that is over."""
        dropped = [item for item in self._held if isinstance(item, Posted) and item.transaction is transaction]
        for posted in dropped:
            self._held.remove(posted)
            self._release_post(posted)
            posted.drop()
        if dropped:
            self.go_on()

    def _hold_post(self, posted: Posted) -> None:
        self._held.append(posted)
        self._held_bytes += posted.size
        self.address.backlog_bytes += posted.size

    def _release_post(self, posted: Posted) -> None:
        self._held_bytes -= posted.size
        self.address.backlog_bytes -= posted.size

    def _hold(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        size, address = len(payload) + OVERHEAD_BYTES, self.address
        is_full = self._held_bytes + size > KEPT_BYTES or address.backlog_bytes + size > address.room_bytes
        if is_full or (self._is_lost and not settled):
            self._turn_away(delivery_id, settled, RELEASED)
            return
        self._held.append((payload, delivery_id, settled, message_format))
        self._held_bytes += size
        address.backlog_bytes += size

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

    def _let_go(self, state: Any, held: Iterable[Held] | None = None) -> None:
        """Give what waits here, or some of it that was taken, an outcome."""
        for item in self._take_held() if held is None else held:
            if isinstance(item, LargeDelivery):
                self.address.dropped += item.settled
                item.settle(item.producer_id, state)
            elif isinstance(item, Posted):
                item.transaction.fail(getattr(state, "error", None) or _LOST)
                item.drop()
            else:
                self._turn_away(item[1], item[2], state)

    def _take_held(self) -> deque[Held]:
        """Remove and return what waits here."""
        held, self._held = self._held, deque()
        self.address.backlog_bytes -= self._held_bytes
        self._held_bytes = 0
        for item in held:
            if isinstance(item, LargeDelivery):
                self.address.backlog_bytes -= item.waiting_bytes
        return held

    def _grant(self) -> None:
        upstream = self.upstream
        if upstream is None or self._is_blocked:
            self.port.grant(0)
        else:
            self.port.grant(max(0, min(upstream.credit, self._most - self.unsettled) - len(self._held)))

    # The link there

    def on_upstream(self, upstream: SendingUpstream) -> None:
        """Note that the link is attached there."""
        self.upstream = upstream
        self._is_blocked = upstream.holds_back
        self.opening.settle(None)
        self.go_on()

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Note that the other container refuses the link, or has detached it."""
        self.on_lost()
        self._let_go(Rejected(error))
        if self._is_leaving:
            self._look_after_posts()
        else:
            end_with(self, error)

    def on_lost(self) -> None:
        """Note that the link there is lost with its connection: tell the outcomes that will not come any more."""
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        if self._passing is not None:
            self._passing.lost()
        for sent in upstream.take_unsettled():
            if isinstance(sent, Posted):
                sent.transaction.fail(_LOST)
            self.on_outcome(sent, RELEASED if sent in self.unwritten else FAILED)
        self.unwritten.clear()
        self._grant()
        for item in self._take_held():
            if isinstance(item, LargeDelivery):
                self._hold_large(item)
            elif isinstance(item, Posted):
                self._let_go(RELEASED, (item,))
            else:
                self._hold(*item)
        self._look_after_posts()

    def on_credit(self, _gained: int, drain: bool) -> None:
        """Pass on the credit that the other container grants, or takes back."""
        self.go_on()
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
        if state is None:
            state = RELEASED
        elif state is not ACCEPTED and not isinstance(state, OUTCOMES):
            state = FAILED  # such as that of a transaction, which there is not
        if producer is not None:
            producer.settle(delivery.producer_id, state)
        if self.unsettled == self._most // 2:
            self._grant()

    def confirm(self, done: Callable[[], None]) -> None:
        """Settle at once: nothing is kept of what was told."""
        done()

    def on_blocked(self, blocked: bool) -> None:
        """Have the sender wait while the other container's connection takes no more."""
        if self._passing is not None:
            self._passing.on_blocked(blocked)
        else:
            self._is_blocked = blocked
            self.go_on()

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
        self.go_on()

    def go_on(self) -> None:
        """Send what waited, as far as there is credit, and grant what is left."""
        upstream = self.upstream
        held, self._held = self._held, deque()
        while held and upstream is not None and upstream.credit > 0 and not self._is_blocked:
            item = held[0]
            if isinstance(item, Posted):
                if item.transaction.posted is None and not item.transaction.is_over:
                    break
                held.popleft()
                self._release_post(item)
                self._send_within(item, upstream)
                continue
            held.popleft()
            if not isinstance(item, LargeDelivery):
                size = len(item[0]) + OVERHEAD_BYTES
                self._held_bytes -= size
                self.address.backlog_bytes -= size
                self.on_message(*item)
                continue
            self.address.backlog_bytes -= item.waiting_bytes
            if item.is_complete:
                self.on_message(item.payload, item.producer_id, item.settled, item.message_format)
            else:
                item.start(self)
        self._held = held
        self._grant()
        self._look_after_posts()

    def _send_within(self, posted: Posted, upstream: SendingUpstream) -> None:
        """Send a message within its transaction."""
        transaction, link = posted.transaction, cast("PostingUpstream", upstream)
        if not transaction.is_over and not transaction.carries(upstream):
            problem = "the other container has this link on another connection than its transaction"
            transaction.fail(AmqpError("amqp:not-implemented", problem))
        elif not transaction.is_over and 0 < link.max_message_size < len(posted.payload):
            assert TOO_LARGE.error is not None
            transaction.fail(TOO_LARGE.error)
        if transaction.is_over:
            posted.drop()
            return
        payload, posted.payload = posted.payload, b""
        if not posted.settled:
            self.unsettled += 1
            posted.sink = self  # type: ignore[assignment]  # as of what goes on without
        delivery = None if posted.settled else posted
        link.send_in_transaction(delivery, payload, posted.settled, 0, transaction.posted)
        if not posted.is_awaited and not upstream.follow(_Outgoing(transaction)):
            transaction.went_out()


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

    __slots__ = ("_is_looking", "_is_used", "_is_wanted", "_name", "client")

    def __init__(self, address: Relay, port: ProducerPort, target: str, name: str) -> None:
        super().__init__(address, _Guest(port), target)
        self.client: object = None
        """The client's connection, if its links are kept together there."""
        self._name = name
        self._is_wanted = False
        self._is_used = False
        self._is_looking = False

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Send the message on, once there is a link."""
        if self._want():
            super().on_message(payload, delivery_id, settled, message_format)
        elif (unreached := self._unreached()) is not None:
            self._turn_away(delivery_id, settled, Rejected(unreached))
        else:
            self._turn_away(delivery_id, settled, RELEASED)

    on_crossed = on_message

    def post(self, posted: Posted) -> AmqpError | None:
        """Send a message on within a transaction, once there is a link."""
        if not self._want():
            if (unreached := self._unreached()) is not None:
                return unreached
            problem = f"connector {self.address.name!r} has {MAX_GUESTS} links for messages that name their address"
            return AmqpError("amqp:resource-limit-exceeded", f"{problem}: attach a link to this one")
        return super().post(posted)

    def _want(self) -> bool:
        """Attach the link if there is none; return whether the address is reached and there is room for it."""
        self._is_used = True
        if not self._is_wanted:
            if not (self.address.reaches(self._name) and self._has_room()):
                return False
            self.opening = Pending()
            self.address.uplink.attach_sender(self, self._name, AttachOptions(connection=self.client))
            self._is_wanted = True
            self.address.guests[self] = None
            if not self._is_looking:
                self._is_looking = True
                self.address.core.call_later(IDLE_S, self._look)
        return True

    def _unreached(self) -> AmqpError | None:
        """Return why the address is not reached any more, if so."""
        address = self.address
        return None if address.reaches(self._name) else AmqpError("amqp:not-found", address.problem_of(self._name))

    def _has_room(self) -> bool:
        """Return whether there may be one more link, after one that nobody needs was detached if need be."""
        guests = self.address.guests
        for _ in range(LOOKED_AT):
            if len(guests) < MAX_GUESTS:
                break
            oldest = next(iter(guests))
            del guests[oldest]
            if oldest.is_needed:
                guests[oldest] = None  # as the latest one
            else:
                oldest.rest()
        return len(guests) < MAX_GUESTS

    def on_refused_upstream(self, error: AmqpError) -> None:
        """Reject what waits, as the other container refuses the link."""
        self.on_lost()
        self._forget_link()
        self._let_go(Rejected(error))

    def on_detached(self) -> None:
        """Note that the sender is gone: nobody needs the link any more."""
        self._forget_link()
        self.client = None
        super().on_detached()

    def _look(self) -> None:
        """Detach the link if nobody needs it any more."""
        self._is_looking = False
        if not self._is_wanted:
            return
        if self._is_used or self.is_needed:
            self._is_used = False
            self._is_looking = True
            self.address.core.call_later(IDLE_S, self._look)
        else:
            self.rest()

    @property
    def is_needed(self) -> bool:
        """True while messages wait for the link, or for outcomes."""
        return bool(self.unsettled or self._held)

    def rest(self) -> None:
        """Detach the link until there is another message."""
        self.address.uplink.detach(self)
        self._forget_link()
        self.upstream = None

    def _forget_link(self) -> None:
        self._is_wanted = False
        self.address.guests.pop(self, None)
