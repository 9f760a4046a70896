"""What a node's log tells of its clients, and the counts of it.

The events, their fields and what makes each are listed in ``docs/reference/logs.md``. No credentials are among
the fields: of who failed to authenticate only the name is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from enmasse.net.logs import log_event
from enmasse.node.binding import Binding
from enmasse.wire.amqp.link import Link, ReceivingLink
from enmasse.wire.amqp.performatives import AmqpError, Attach, Open

if TYPE_CHECKING:
    from enmasse.wire.amqp.connection import Connection
    from enmasse.wire.amqp.session import Session

__all__ = ["EVENTS", "LIMITS", "LoggedBinding", "Tally"]

EVENTS = (
    "connection-opened",
    "connection-refused",
    "connection-closed",
    "authentication-failed",
    "session-ended",
    "link-attached",
    "link-refused",
    "link-detached",
    "limit-hit",
)

LIMITS = frozenset(
    {
        "amqp:resource-limit-exceeded",
        "amqp:link:message-size-exceeded",
        "amqp:link:transfer-limit-exceeded",
        "amqp:session:window-violation",
    }
)
"""Conditions that say that a client went beyond a limit; such an event is named ``limit-hit``."""

_log = logging.getLogger("enmasse.node")


class Tally:
    """How often each event happened since the node was started."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = dict.fromkeys(EVENTS, 0)


class LoggedBinding(Binding):
    """A client's connection whose fate is logged and counted."""

    tally: Tally
    """The node's; set before the connection is used."""

    is_told = False
    """Whether the log has said that the connection was opened or refused."""

    def tell(self, event: str, error: AmqpError | None = None, level: int = logging.INFO, **fields: Any) -> None:
        """Log and count an event of this connection."""
        told: dict[str, Any] = {
            "connection": self.number or None,
            "space": self.space.name if self.space is not None else None,
            "container": self.container or None,
            "user": self.user,
            "host": self.peer,
            **fields,
        }
        if error is not None:
            level = logging.WARNING
            told |= {"condition": str(error.condition), "description": error.description}
            if error.condition in LIMITS:
                told["at"], event = event, "limit-hit"
        self.tally.counts[event] += 1
        log_event(_log, level, event, **told)

    @property
    def number(self) -> int:
        """By which management knows the connection; 0 once it is gone."""
        return self._connections.numbers.get(self, 0)

    def on_opened(self, connection: Connection, remote: Open) -> None:
        """Open it, or refuse it."""
        super().on_opened(connection, remote)
        if connection.is_close_sent:
            self.is_told = True
            self.tell("connection-refused", connection.error)
        elif connection.is_open_sent:
            self.is_told = True
            self.tell("connection-opened", hostname=remote.hostname, mechanism=self.admission.mechanism)

    def on_closed(self, error: AmqpError | None) -> None:
        """Tell how it ended; a socket that never said anything is not worth a line."""
        number, opened = self.number, self.opened_at_ms > 0
        super().on_closed(error)
        sasl = self.connection.sasl
        if opened:
            self.tell("connection-closed", error, connection=number)
        elif sasl is not None and sasl.error is not None:
            self.tell(
                "authentication-failed",
                level=logging.WARNING,
                connection=number or None,
                description=self.admission.refusal or sasl.error,
                mechanism=self.admission.mechanism,
                user=self.admission.named or None,
            )
        elif error is not None and not self.is_told:
            self.tell("connection-refused", error, connection=number or None)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """A session that ends with an error is told."""
        super().on_ended(session, error)
        if error is not None and not self.connection.closed:
            self.tell("session-ended", error, channel=session.channel)

    def on_attach(self, link: Link, attach: Attach) -> None:
        """Join the link to its address, or refuse it."""
        super().on_attach(link, attach)
        if link.is_detach_sent:
            self.tell("link-refused", link.error or AmqpError("amqp:internal-error"), **_about(link, attach))
        elif link.is_attached:
            self.tell("link-attached", **_about(link, attach))

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Take it from its address; links that end with their connection are not told one by one."""
        was_joined = link in self.links
        super().on_detached(link, error, closed)
        if was_joined and not self.connection.closed:
            self.tell("link-detached", link.error or error, **_about(link, link.remote_attach))


def _about(link: Link, attach: Attach | None) -> dict[str, Any]:
    """The link's fields, as the client sees itself."""
    is_sender = isinstance(link, ReceivingLink)
    terminus: Any = None
    if attach is not None:
        terminus = attach.target if is_sender else attach.source
    return {
        "link": link.name,
        "role": "sender" if is_sender else "receiver",
        "address": getattr(terminus, "address", None),
    }
