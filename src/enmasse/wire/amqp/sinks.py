"""The sinks of links, which a link calls directly for messages, credit and outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from enmasse.message.outcomes import AmqpError
from enmasse.message.passage import Passage
from enmasse.wire.amqp.performatives import Transfer


class Outgoing(Protocol):
    """A delivery, given to ``SendingLink.send`` and given back with its outcome."""

    sink: Any
    """The sink of the link that it was sent on."""


class SendingSink(Protocol):
    """The sink of a link on which we send."""

    def on_credit(self, gained: int, drain: bool) -> None:
        """The link's credit has changed by ``gained``, which may be negative.

        With ``drain``, call the link's ``drained`` when nothing is left to send.
        """

    def count_available(self) -> int | None:
        """Return how many messages wait for credit of the link; ``None`` where that is not known."""

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """The peer settled a delivery, or sent its final state; ``None`` settles without a state."""

    def confirm(self, done: Callable[[], None]) -> None:
        """The peer waits for us to settle what ``on_outcome`` just got: call ``done`` once it is safe."""

    def on_blocked(self, blocked: bool) -> None:
        """Sending is to stop for now, whatever the credit, or may go on."""


class ReceivingSink(Protocol):
    """The sink of a link on which we receive."""

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has arrived within the credit."""

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """A message has arrived for credit that was taken back while it was on its way."""

    def on_exhausted(self) -> None:
        """The message that just came used up the last credit."""

    def on_large(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, is_crossed: bool
    ) -> Passage:
        """The beginning of a message above the link's ``passes_from`` has arrived.

        Asked only of sinks whose link was given one; ``is_crossed`` as in ``on_crossed``.
        """

    def on_given_up(self, credit: int) -> None:
        """The sender used up credit without sending, as after a drain."""

    def on_available(self, available: int) -> None:
        """The sender has this many messages waiting for credit."""


class MessageGuard(Protocol):
    """Looks at the messages of a link before its sink does.

    It is not asked of messages like the one that it has told the link of by ``known_size`` and ``known_head``.
    """

    def problem(self, payload: bytes, message_format: int) -> AmqpError | None:
        """Return why a message may not pass; None: it may."""

    def admits(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> bool:
        """Return whether a message may pass; one that may not has been answered."""

    def passage(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, begin: Callable[[], Passage]
    ) -> Passage:
        """Return what takes the rest of a large message: what ``begin`` gives, as long as the message may pass."""


class DeliveryTracker(Protocol):
    """Follows the deliveries of a link that may be resumed."""

    def takes(self, transfer: Transfer) -> bool:
        """Look at a transfer, and say whether nothing more is to be done about it.

        Raises:
            SessionError: it starts a delivery without what every delivery has.
        """
