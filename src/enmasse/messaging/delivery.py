"""Deliveries and the ends of links as addresses see them.

Rules:
1. An address never sees a protocol. A sender's end is a ``ProducerPort``, a receiver's end is a
   ``ConsumerPort``; the AMQP engine's links are both without an adapter between.
2. Outcomes are AMQP's for every protocol: accepted, rejected, released, modified.
3. A delivery knows its producer, and once it is handed out the consumer that has it (``sink``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.wire.amqp.outcomes import ACCEPTED, RELEASED
from enmasse.wire.amqp.performatives import Modified, Rejected

if TYPE_CHECKING:
    from enmasse.messaging.address import Address

__all__ = ["ACCEPTED", "FAILED", "RELEASED", "Consumer", "ConsumerPort", "Delivery", "Producer", "ProducerPort"]

FAILED = Modified(delivery_failed=True)
"""The outcome of what was handed to a consumer that went away: it may have been processed."""


class ProducerPort(Protocol):
    """A sender's link."""

    received: int
    limit: int
    highest: int

    def grant(self, credit: int) -> None:
        """Set the sender's credit."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Tell the sender an outcome."""

    def detach(self, error: Any = None) -> None:
        """Close the link."""


class ConsumerPort(Protocol):
    """A receiver's link."""

    credit: int

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit."""

    def follow(self, delivery: Any) -> bool:
        """Have the end of the message that was just sent settled told, if it has not gone out.

        The delivery's sink hears ``ACCEPTED`` once it has gone, and ``RELEASED`` if it never does.

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
    """One message on its way through a direct address."""

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
        """What it takes while it waits, beside itself."""
        return len(self.payload)


def _settled_for_nobody(_delivery_id: int, _state: Any) -> None:
    """The sender is gone."""


class Producer:
    """A sender's end at an address: what the sender's link calls.

    Args:
        address: where the messages go.
        port: the sender's link.
        target: the address as the sender named it, which for a topic may be below the declared one.
    """

    __slots__ = (
        "accepted", "address", "is_user", "messages_in", "port", "rejected", "seen", "settle", "target",
    )  # fmt: skip

    def __init__(self, address: Address, port: ProducerPort, target: str) -> None:
        self.address = address
        self.port = port
        self.target = target
        self.settle: Callable[[int, Any], None] = port.settle
        self.is_user = True
        """Whether it uses the credit it is given; new ones have the benefit of the doubt."""
        self.seen = 0
        """Deliveries by the last look at who uses credit."""

    @property
    def credit(self) -> int:
        """What the sender may still send."""
        return self.port.limit - self.port.received

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message within the credit."""
        raise NotImplementedError

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message for credit that was taken back meanwhile."""
        raise NotImplementedError

    def on_exhausted(self) -> None:
        """The last credit has been used."""
        self.address.due()

    def on_given_up(self, credit: int) -> None:
        """Credit was used up without a message."""
        self.address.due()

    def on_available(self, available: int) -> None:
        """Messages wait for credit at the sender."""
        if available and not self.is_user:
            self.is_user = True
            self.address.due()

    def gone(self) -> None:
        """The link is detached: nobody hears outcomes any more."""
        self.settle = _settled_for_nobody
        self.address.remove_producer(self)


class Consumer:
    """A receiver's end at an address: what the receiver's link calls.

    Args:
        address: where the messages come from.
        port: the receiver's link.
        presettle: whether the receiver asked for settled messages.
    """

    __slots__ = (
        "address", "deliveries", "is_blocked", "modified", "port", "presettle", "rejected", "released", "send",
        "unsettled",
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
        """The receiver changed its credit."""
        raise NotImplementedError

    def count_available(self) -> int | None:
        """How many messages wait for the receiver's credit, as far as is known without a search."""
        return None

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """The receiver settled a delivery."""
        raise NotImplementedError

    def confirm(self, done: Callable[[], None]) -> None:
        """The receiver wants to know when the outcomes that it told are beyond doubt."""
        done()

    def on_blocked(self, blocked: bool) -> None:
        """The receiver's connection takes no more for now, or again."""
        self.is_blocked = blocked
        if not blocked:
            self.address.due()

    def gone(self, *, closed: bool = False) -> None:
        """The link is detached; or closed, and will not come again."""
        self.address.remove_consumer(self)
