"""The way to the other container, as the ends of links use it, and the bounds and the end that both ends have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from enmasse.messaging.errors import AttachError

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.message.outcomes import AmqpError
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.delivery import Delivery
    from enmasse.messaging.direct.large import PartsPort
    from enmasse.messaging.relay.receivers import RelayConsumer
    from enmasse.messaging.relay.senders import Posted, RelayProducer


KEPT_BYTES = 8 << 20
"""Bytes that may wait on one link for credit there, or for a receiver whose connection takes no more."""

OVERHEAD_BYTES = 300
"""Bytes that a message takes while it waits, beside its own."""


class TransactionThere(Protocol):
    """A transaction of the other container, which is that of a client here."""

    problem: AmqpError | None
    """The reason why it can only be rolled back."""
    is_over: bool
    """True once nothing more can be part of it."""
    posted: Any
    """The state that its messages are sent with, once it is declared; None before."""

    def carries(self, upstream: SendingUpstream) -> bool:
        """Return true if a link is one of those that it can be used on: those of its connection."""

    def went_out(self) -> None:
        """Note that a message of it has gone out."""

    def fail(self, problem: AmqpError) -> None:
        """Have it rolled back, for the first reason that was given."""

    def post(self, end: RelayProducer, posted: Posted) -> AmqpError | None:
        """Have a message sent within it by a sender's end.

        Returns:
            Why that cannot be.
        """

    def retire(self, delivery: Delivery, outcome: Any, is_settled: bool) -> AmqpError | None:
        """Have an outcome of a delivery that came from there told within it.

        Args:
            delivery: the delivery, as its receiver was sent it.
            outcome: its outcome.
            is_settled: whether the receiver has settled it; else it stays the receiver's if all is rolled back.

        Returns:
            Why that cannot be.
        """

    def forget(self, delivery: Delivery) -> None:
        """Have an outcome not told that was not yet, as its receiver has another one."""

    def end(self, fail: bool, done: Callable[[AmqpError | None], None]) -> None:
        """Commit it, or roll it back.

        Args:
            fail: whether it is to be rolled back.
            done: called with nothing, or with the reason why it was not committed, or why nobody knows
                (``IN_DOUBT``).
        """


class ControlThere(Protocol):
    """A link on which the transactions of one client are declared and discharged over there."""

    is_over: bool
    """True once it is detached."""

    def begin(self) -> TransactionThere:
        """Declare a transaction, which may be used before it is declared.

        Raises:
            AttachError: too many are not ended.
        """

    def leave(self) -> None:
        """Detach it, which rolls back what is not committed."""


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

    @property
    def credit(self) -> int:
        """The messages that the other container may still send."""

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


class PostingUpstream(Protocol):
    """A link for a sender's messages within transactions, beside what every ``SendingUpstream`` can do."""

    max_message_size: int
    """Bytes that the other container takes in one message; 0 is any number."""

    def send_in_transaction(
        self, delivery: Any, payload: bytes, settled: bool, message_format: int, state: Any
    ) -> None:
        """Send one message for one credit that counts once its transaction is committed."""


class RetiringUpstream(Protocol):
    """A link for outcomes within transactions, beside what every ``ReceivingUpstream`` can do."""

    def settle_within(self, delivery_id: int, state: Any, is_settled: bool) -> None:
        """Tell the other container an outcome that counts once its transaction is committed."""


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

    def attach_control(self, client: object) -> ControlThere:
        """Attach a link for the transactions of a client, on the connection that its other links have.

        Raises:
            AttachError: there is no room for it.
        """

    def detach(self, end: RelayProducer | RelayConsumer, *, closed: bool = True) -> None:
        """Detach what was attached for an end, or is being attached; what is not closed may be attached again."""


def end_with(end: RelayProducer | RelayConsumer, error: AmqpError) -> None:
    """Refuse an end that was not attached yet; detach it else."""
    if end.opening.answer is None:
        end.opening.settle(AttachError(error.condition, error.description or ""))
    else:
        end.port.detach(error)
        end.on_detached()
