"""Errors of the client.

EnmasseError
├── ConfigError
│   ├── UrlError               a URL that names no place to connect to
│   └── TlsError               one of the two ends does not trust the other, or speaks no TLS
├── LocalError
│   └── ClosedError            used after it was closed
├── ResourceError
│   ├── FullError              too many messages wait to be sent
│   └── TooLargeError          a message larger than the peer takes
├── UnavailableError           the connection is lost or cannot be made
│   └── DeadlineError          what was waited for did not come in time (also a TimeoutError)
└── RemoteError                carries the peer's condition and description
    ├── ConnectionDeniedError  the peer ended the connection, and said why
    ├── LinkRefusedError       the peer did not let a link attach
    ├── LinkDetachedError      the peer ended a link that was attached
    └── TransactionError       a transaction was refused, or rolled back

``management`` adds ``ManagementError``, a ``RemoteError`` with the status of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enmasse.errors import ConfigError, LocalError, RemoteError, ResourceError, UnavailableError

__all__ = [
    "ClosedError",
    "ConnectionDeniedError",
    "DeadlineError",
    "FullError",
    "LinkDetachedError",
    "LinkRefusedError",
    "RemoteError",
    "TlsError",
    "TooLargeError",
    "TransactionError",
    "UnavailableError",
    "UrlError",
]


class UrlError(ConfigError):
    """A URL that names no place to connect to."""


class TlsError(ConfigError):
    """One of the two ends does not trust the other, or speaks no TLS; the message says what to change."""


class ClosedError(LocalError):
    """A connection, sender or receiver was used after it was closed."""


class FullError(ResourceError):
    """As many messages as allowed wait for credit already; wait for some of them."""


class TooLargeError(ResourceError):
    """The message is larger than the peer said it takes."""


class DeadlineError(UnavailableError, TimeoutError):
    """The time of a call is over; also a ``TimeoutError``."""


class _ExplainedError(RemoteError):
    """A condition of the peer's, with words for where it happened."""

    def __init__(
        self, condition: str, description: str, where: str = "", info: Mapping[Any, Any] | None = None
    ) -> None:
        super().__init__(condition, description)
        self.info = dict(info or {})
        """The fields of the peer's error, such as the target of a redirect."""
        if where:
            self.args = (f"{where}: {condition}: {description}" if description else f"{where}: {condition}",)


class ConnectionDeniedError(_ExplainedError):
    """The peer ended the connection, and said why.

    Attributes:
        condition: the AMQP condition, such as ``amqp:unauthorized-access``.
        description: the peer's words.
    """


class LinkRefusedError(_ExplainedError):
    """The peer did not let a link attach.

    Attributes:
        condition: the AMQP condition, such as ``amqp:not-found``.
        description: the peer's words.
    """


class LinkDetachedError(_ExplainedError):
    """The peer ended a link that was attached.

    Attributes:
        condition: the AMQP condition, such as ``amqp:resource-deleted``.
        description: the peer's words.
    """


class TransactionError(_ExplainedError):
    """A transaction was not begun, or was rolled back: nothing of it has taken effect.

    Attributes:
        condition: the AMQP condition, such as ``amqp:transaction:timeout``.
        description: the peer's words.
    """
