"""The events of clients in a node's log, and their counts.

The events, their fields and what causes each are listed in ``docs/reference/logs.md``. No credentials are among
the fields: a failed login is logged with the name alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from enmasse.net.logs import log_event

if TYPE_CHECKING:
    from enmasse.errors import RemoteError
    from enmasse.node.connections.client_connection import ClientConnection


EVENTS = (
    "connection-opened",
    "connection-handed-over",
    "connection-refused",
    "connection-closed",
    "authentication-failed",
    "handover-failed",
    "session-ended",
    "link-attached",
    "link-refused",
    "link-detached",
    "limit-hit",
    "message-dropped",
)

LIMITS = frozenset(
    {
        "amqp:resource-limit-exceeded",
        "amqp:link:message-size-exceeded",
        "amqp:link:transfer-limit-exceeded",
        "amqp:session:window-violation",
    }
)
"""Conditions for a client that exceeded a limit; such an event is named ``limit-hit``."""

_log = logging.getLogger("enmasse.node")


class EventLog:
    """Logs events of connections, and counts each kind since the start of the node."""

    __slots__ = ("_dropped", "counts")

    def __init__(self) -> None:
        self._dropped: Counter[tuple[str | None, str, str]] = Counter()
        self.counts = dict.fromkeys(EVENTS, 0)

    def log(
        self,
        connection: ClientConnection,
        event: str,
        error: RemoteError | None = None,
        level: int = logging.INFO,
        /,
        **fields: Any,
    ) -> None:
        """Log and count an event of a connection.

        Args:
            connection: the connection, of any protocol.
            event: one of ``EVENTS``; an error of ``LIMITS`` makes it ``limit-hit``.
            error: the reason, if something went wrong.
            level: a level of ``logging``; with an error it is a warning.
            fields: further fields, beside those of the connection.
        """
        logged: dict[str, Any] = {
            "connection": connection.number or None,
            "space": connection.space.name if connection.space is not None else None,
            "container": connection.container or None,
            "user": connection.user,
            "host": connection.peer,
            **fields,
        }
        if error is not None:
            level = logging.WARNING
            logged |= {"condition": error.condition, "description": error.description or None}
            if error.condition in LIMITS:
                logged["at"], event = event, "limit-hit"
        self.counts[event] += 1
        log_event(_log, level, event, **logged)

    def note_dropped(self, space: str | None, address: str, reason: str) -> bool:
        """Count a message that was dropped; return true if it is the first since ``log_dropped``."""
        self.counts["message-dropped"] += 1
        is_first = not self._dropped
        self._dropped[space, address, reason] += 1
        return is_first

    def log_dropped(self) -> None:
        """Log the messages that were dropped since the last call: one event for each address and reason."""
        found, self._dropped = self._dropped, Counter()
        for (space, address, reason), number in found.items():
            told = {"space": space, "address": address, "reason": reason, "messages": number}
            log_event(_log, logging.WARNING, "message-dropped", **told)
