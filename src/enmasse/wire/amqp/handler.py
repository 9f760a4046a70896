"""The handler of a connection, called for what is not hot; what is hot goes to the ``sinks`` of its links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.performatives import Attach, Open

if TYPE_CHECKING:
    from enmasse.wire.amqp.connection import Connection
    from enmasse.wire.amqp.link import Link, ReceivingLink
    from enmasse.wire.amqp.session import Session


class ConnectionHandler(Protocol):
    """The handler of a connection."""

    def on_opened(self, connection: Connection, remote: Open) -> None:
        """The peer's open has come. A server may now ``open`` or ``close`` with an error."""

    def on_begun(self, session: Session) -> None:
        """A session runs in both directions."""

    def on_attach(self, link: Link, attach: Attach) -> None:
        """The peer wants a link: ``accept`` or ``refuse`` it, now or later."""

    def on_attached(self, link: Link) -> None:
        """The peer has answered our attach; a detach follows if it refused."""

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """The link is detached."""

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """The session has ended, after its links."""

    def on_closed(self, error: AmqpError | None) -> None:
        """The connection has ended, after its sessions; ``error`` is the peer's or our own."""

    def on_transactional_message(
        self,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        txn_id: bytes,
    ) -> None:
        """A message has arrived that counts only if its transaction is committed [AMQP 4.4.1]."""

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """A receiver has sent an outcome that concerns a transaction [AMQP 4.4.2].

        Args:
            session: its ``unsettled`` or ``enlisted`` has the delivery, and both stay as they are.
            delivery_id: the id of the delivery.
            state: a ``TransactionalState``; any other state, or none, for a delivery that is enlisted.
            settled: whether the receiver has forgotten the delivery.
        """


class _Nobody(ConnectionHandler):
    """Takes the place of the handler of a connection that has ended, which knows its engine, and hears no more."""


NOBODY: Final = _Nobody()  # type: ignore[abstract]  # that its methods do nothing is what they are for
