"""Errors of the AMQP 1.0 engine.

EnmasseError
├── LocalError                 a command given in a state that does not allow it
└── RemoteError
    ├── FramingError           amqp:connection:framing-error: bytes that are no frame
    ├── SessionError           ends only the session
    └── LinkError              detaches only the link
"""

from __future__ import annotations

from enmasse.errors import LocalError, RemoteError

__all__ = ["FramingError", "LinkError", "LocalError", "RemoteError", "SessionError"]


class FramingError(RemoteError):
    """Bytes that are no frame [AMQP 2.8.16]."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:connection:framing-error", description)


class SessionError(RemoteError):
    """A breach that ends the session and leaves the connection alone [AMQP 2.8.17]."""


class LinkError(RemoteError):
    """A breach that detaches the link and leaves the session alone [AMQP 2.8.18]."""
