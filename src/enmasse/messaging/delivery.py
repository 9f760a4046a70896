"""Deliveries and the ends of links as addresses see them.

Rules:
1. An address never sees a protocol. A sender's end is a ``ProducerPort``, a receiver's end is a
   ``ConsumerPort``; the AMQP engine's links are both without an adapter between.
2. Outcomes are AMQP's for every protocol: accepted, rejected, released, modified.
3. A delivery knows its producer, and once it is handed out the consumer that has it (``sink``).
4. An end whose attach somebody else has to answer first says so by ``opening``, which is not settled before the end
   is returned. Until it is, the end grants and sends nothing, and is told of no message, credit or outcome. However
   it is answered, it is told in the end that it is detached, as any end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from enmasse.message.outcomes import Modified, Rejected, Released
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import is_cut

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.pending import Pending


FAILED = Modified(delivery_failed=True)
"""The outcome of what was handed to a consumer that went away: it may have been processed."""

UNSTORED = Released()
"""The outcome of what could not be written while a consumer has it and keeps it; it is not sent again by itself, as
the consumer would have one more each time."""


_PLACES = count(1)
_PLACE = attrgetter("place")


class ProducerPort(Protocol):
    """A sender's link."""

    received: int
    limit: int
    highest: int

    def grant(self, credit: int) -> None:
        """Set the sender's credit."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Send an outcome to the sender."""

    def detach(self, error: Any = None) -> None:
        """Close the link."""


class NoPort:
    """The sender of what the node sends by itself, as an address sees it: one message, and nobody waits for it."""

    received = limit = highest = 0

    def grant(self, credit: int) -> None:
        """Ignore credit: there is one message."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Ignore the outcome: nobody waits for it."""

    def detach(self, error: Any = None) -> None:
        """Ignore the end of the address."""


SMALL_BYTES = 64 << 10
"""The largest message that a receiver is handed without a look at the room that there is for it."""


class ConsumerPort(Protocol):
    """A receiver's link."""

    credit: int

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit."""

    def admits(self, size: int) -> bool:
        """Return true if a message of more than ``SMALL_BYTES`` may be sent now; the port blocks for a while else."""

    def follow(self, delivery: Any) -> bool:
        """Follow the message that was just sent settled, if it has not gone out.

        The delivery's sink is called with ``ACCEPTED`` once it has gone, and ``RELEASED`` if it never does.

        Returns:
            Whether it waits to go out; only while the receiver is blocked.
        """

    def drained(self) -> None:
        """Use up the credit, if the receiver asked for that."""

    def take_unsettled(self) -> list[Any]:
        """Remove and return what has no outcome yet."""

    def detach(self, error: Any = None) -> None:
        """Close the link."""


class Delivery:
    """A message on its way through a direct address."""

    __slots__ = ("message_format", "payload", "producer", "producer_id", "settled", "sink")

    def __init__(
        self, payload: bytes, producer: Producer | None, producer_id: int, settled: bool, message_format: int
    ) -> None:
        self.payload = payload
        self.producer = producer
        self.producer_id = producer_id
        self.settled = settled
        self.message_format = message_format
        self.sink: Consumer | None = None

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that it takes while it waits, beside itself."""
        return len(self.payload)


class _Detached:
    """The port of an end whose link is detached: it has no credit, takes nothing and tells nobody."""

    __slots__ = ()
    credit = received = limit = highest = 0
    is_detached = is_detach_sent = True
    holds_back = is_limited = False
    sink = None

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send nothing: there is no credit."""

    def publish(self, packet_id: int, payload: bytes, qos: int, is_duplicate: bool) -> None:
        """Send nothing: it stays in flight."""

    def admits(self, size: int) -> bool:
        """Return true: nothing is sent."""
        return True

    def follow(self, delivery: Any) -> bool:
        """Return false: nothing waits to go out."""
        return False

    def drained(self) -> None:
        """Do nothing: no credit is left."""

    def take_unsettled(self) -> list[Any]:
        """Return nothing: all of it was taken as the link was detached."""
        return []

    def grant(self, credit: int) -> None:
        """Grant nothing."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Tell nobody."""

    def stall(self, is_stalled: bool) -> None:
        """Do nothing: nothing comes any more."""

    def hold_input(self, is_held: bool) -> None:
        """Do nothing: nothing comes any more."""

    def detach(self, error: Any = None) -> None:
        """Do nothing: it is detached."""


DETACHED: Any = _Detached()
"""The port that all ends have whose links are detached: a link knows its end, so the end must not keep the link."""


def _ignore_outcome(_delivery_id: int, _state: Any) -> None:
    """Ignore the outcome, as the sender is detached."""


class Producer:
    """A sender's end at an address: what the sender's link calls.

    Args:
        address: the address to which the messages go.
        port: the sender's link.
        target: the address as the sender named it, which for a topic may be below the declared one.
    """

    is_plain = True
    """True if each message stands for itself, and so can be part of a transaction."""
    opening: Pending[AttachError | None] | None = None
    """The answer to the attach, or the reason why it is refused, if that comes later; None: it is attached."""
    granted: Any = None
    """The attach by which others have answered that of the client (``AttachOptions.attach``), if they have."""

    __slots__ = (
        "accepted", "address", "is_user", "messages_in", "place", "port", "rejected", "seen", "settle", "target",
    )  # fmt: skip

    def __init__(self, address: Address, port: ProducerPort, target: str) -> None:
        self.address = address
        self.port = port
        self.target = target
        self.settle: Callable[[int, Any], None] = port.settle
        self.is_user = True
        """True if it uses the credit it is given; a new sender is assumed to."""
        self.seen = 0
        """Deliveries at the last check of credit use."""
        self.place = next(_PLACES)
        """Its place among the senders of the address."""

    @property
    def reaches_any(self) -> bool:
        """False if the latest message went to nobody, as a topic has no subscription to its name."""
        return True

    @property
    def credit(self) -> int:
        """Return the number of messages that the sender may still send."""
        return self.port.limit - self.port.received

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Handle a message within the credit."""
        raise NotImplementedError

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Handle a message for credit that was taken back meanwhile."""
        raise NotImplementedError

    def on_exhausted(self) -> None:
        """Note that the last credit has been used."""
        self.address.due()

    def on_refused(self) -> None:
        """Note that a message within the credit was refused before it came here."""
        self.address.due()

    def on_given_up(self, credit: int) -> None:
        """Note that credit was used up without a message."""
        self.address.due()

    def on_available(self, available: int) -> None:
        """Note that messages wait for credit at the sender."""
        if available and not self.is_user:
            self.is_user = True
            self.address.due()

    def on_detached(self) -> None:
        """Note that the link is detached: outcomes are not sent any more."""
        self.settle = _ignore_outcome
        self.address.remove_producer(self)
        self.port = DETACHED


class Consumer:
    """A receiver's end at an address: what the receiver's link calls.

    Args:
        address: the address from which the messages come.
        port: the receiver's link.
        presettle: whether the receiver asked for settled messages.
    """

    opening: Pending[AttachError | None] | None = None
    """The answer to the attach, or the reason why it is refused, if that comes later; None: it is attached."""
    granted: Any = None
    """The attach by which others have answered that of the client (``AttachOptions.attach``), if they have."""

    __slots__ = (
        "address", "deliveries", "is_blocked", "modified", "place", "port", "presettle", "rejected", "released",
        "send", "unsettled",
    )  # fmt: skip

    def __init__(self, address: Address, port: ConsumerPort, presettle: bool) -> None:
        self.address = address
        self.port = port
        self.presettle = presettle
        self.send = port.send
        self.is_blocked = False
        self.unsettled = 0
        self.deliveries = 0
        self.rejected = 0
        self.released = 0
        self.modified = 0
        self.place = next(_PLACES)
        """Its place among the receivers of the address."""

    @property
    def accepted(self) -> int:
        """Deliveries that were settled and neither rejected nor released nor modified."""
        return self.deliveries - self.unsettled - self.rejected - self.released - self.modified

    def count(self, state: Any) -> None:
        """Count an outcome other than accepted; one that says nothing of the message is a release."""
        if isinstance(state, Rejected):
            self.rejected += 1
        elif isinstance(state, Modified):
            self.modified += 1
        else:
            self.released += 1

    def on_credit(self, gained: int, drain: bool) -> None:
        """Note that the receiver changed its credit."""
        raise NotImplementedError

    def count_available(self) -> int | None:
        """Return how many messages wait for the receiver's credit, as far as is known without a search."""
        return None

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Handle the receiver's outcome of a delivery."""
        raise NotImplementedError

    def recut(self, source: str) -> None:
        """Note what the user may receive of its source now, as grants have changed.

        Raises:
            AttachError: that is a part, and the receiver has to have all or nothing.
        """
        if is_cut(source):
            raise AttachError(
                "amqp:unauthorized-access",
                f"the grants cover a part of {source!r:.200} alone, and this {self.address.kind} gives all of it or "
                "nothing: name what they cover",
            )

    def must_wait(self, size: int) -> bool:
        """Return true if there is no room for a large message on its way to the receiver, which is blocked then."""
        return not self.port.admits(size) and self.is_blocked

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the outcomes of this receiver are on disk."""
        done()

    def on_blocked(self, blocked: bool) -> None:
        """Note that the receiver's connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.address.due()

    def on_detached(self, *, closed: bool = False) -> None:
        """Note that the link is detached; or closed, and will not be resumed."""
        self.address.remove_consumer(self)
        self.port = DETACHED
        self.send = DETACHED.send


EndT = TypeVar("EndT", Producer, Consumer)


def add_end(ends: list[EndT], end: EndT) -> None:
    """Add the end of a link to those of an address, as the last one."""
    if ends and ends[-1].place > end.place:
        end.place = next(_PLACES)
    ends.append(end)


def remove_end(ends: list[EndT], end: EndT) -> bool:
    """Remove the end of a link from those of an address, without a look at each of them.

    Returns:
        Whether it was there.
    """
    at = bisect_left(ends, end.place, key=_PLACE)
    if at == len(ends) or ends[at] is not end:
        return False
    del ends[at]
    return True
