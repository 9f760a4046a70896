"""Deliveries: messages that came, and what we say to their sender."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from enmasse.client.errors import UnavailableError
from enmasse.client.message import Message
from enmasse.client.outgoing import RESENT
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.outcomes import ACCEPTED, RELEASED
from enmasse.wire.amqp.performatives import AmqpError, Modified, Rejected
from enmasse.wire.amqp.types import Symbol

if TYPE_CHECKING:
    from enmasse.client.receiver import Receiver
    from enmasse.client.transaction import Transaction

__all__ = ["Delivery"]


class _Done:
    """What is done already, and may be awaited all the same."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # type: ignore[return-value]


_DONE = _Done()


class Delivery:
    """One message that came.

    ``accept``, ``release``, ``reject`` and ``modify`` take effect at once, awaited or not, and go
    out together at the end of the loop's turn. They are without effect on a delivery that is
    settled, and on one whose connection is gone: its sender will send it again. Within a transaction the
    outcome counts once that is committed; if it is rolled back, the message comes again.

    Attributes:
        payload: the message's bytes.
        message_format: 0 for AMQP's own; else ``payload`` is not made of AMQP sections.
        settled: whether the sender knows the outcome, or does not want to know it.
        receiver: the receiver that it came through.
    """

    __slots__ = ("_id", "_link", "_message", "message_format", "payload", "receiver", "settled")

    def __init__(
        self,
        receiver: Receiver,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
    ) -> None:
        self.receiver = receiver
        self._link = link
        self.payload = payload
        self._id = delivery_id
        self.settled = settled
        self.message_format = message_format
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The message, decoded when it is first asked for.

        Raises:
            DecodeError: it is malformed, or not in AMQP's own format.
        """
        message = self._message
        if message is None:
            if self.message_format:
                raise DecodeError(f"message format {self.message_format:#x} has no AMQP sections; read the payload")
            message = self._message = Message.decode(self.payload)
        return message

    @property
    def may_be_repeated(self) -> bool:
        """Whether the message, or a failed delivery of it, may have been here before.

        A sender that does not flag what it sends again makes duplicates that look like any other message.
        """
        message = self.message
        return bool(message.delivery_count or message.annotations.get(RESENT))

    def accept(self, *, transaction: Transaction | None = None) -> _Done:
        """The message is taken care of, with a transaction once that is committed.

        Raises:
            EnmasseError: the transaction has ended, was lost, or is not of the delivery's connection.
        """
        if transaction is not None:
            return self._settle(ACCEPTED, transaction)
        if not self.settled:
            self.settled = True
            link = self._link
            if not link.is_detached:
                link.session.settle(self._id, ACCEPTED)
        return _DONE

    def release(self, *, transaction: Transaction | None = None) -> _Done:
        """The message was not processed; whoever wants may have it."""
        return self._settle(RELEASED, transaction)

    def reject(
        self,
        condition: str = "amqp:precondition-failed",
        description: str | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> _Done:
        """The message is invalid, for the reason given."""
        return self._settle(Rejected(AmqpError(condition, description)), transaction)

    def modify(
        self,
        *,
        failed: bool = True,
        undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
        transaction: Transaction | None = None,
    ) -> _Done:
        """The message was not processed to the end.

        Args:
            failed: whether to count it as a failed attempt.
            undeliverable_here: whether this receiver is not to have it again.
            annotations: to add to the message.
            transaction: as for ``accept``.
        """
        named = {Symbol(key): value for key, value in annotations.items()} if annotations else None
        return self._settle(Modified(failed, undeliverable_here, named), transaction)

    def _settle(self, state: Any, transaction: Transaction | None) -> _Done:
        if not self.settled:
            link = self._link
            if transaction is not None:
                transaction.check(link)
                if link.is_detached:
                    raise UnavailableError(f"the delivery was given back when {self.receiver} was detached")
                state = transaction.state(state)
            self.settled = True
            if not link.is_detached:
                link.session.settle(self._id, state)
        return _DONE

    def __repr__(self) -> str:
        kind = f"format {self.message_format:#x}" if self.message_format else "message"
        return f"<Delivery of a {kind} of {len(self.payload)} bytes through {self.receiver}>"
