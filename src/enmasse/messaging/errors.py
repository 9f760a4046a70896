"""Errors of the messaging core, and the outcomes of messages that a stored address does not take.

EnmasseError
└── RemoteError
    └── AttachError         a link is refused; carries the AMQP condition
        └── SelectorError   its selector is not understood
"""

from __future__ import annotations

from enmasse.errors import LocalError, RemoteError
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError, Rejected


class AttachError(RemoteError):
    """A link cannot be attached: unknown address, wrong role, limit reached."""


class SelectorError(AttachError):
    """A selector that cannot be understood.

    Attributes:
        position: the place in its text, counted in characters from 1; 0 if it is about the whole.
    """

    def __init__(self, description: str, position: int = 0) -> None:
        place = f" at character {position}" if position else ""
        super().__init__("amqp:invalid-field", f"the selector is not understood{place}: {description}")
        self.position = position


class DamagedFrameError(LocalError):
    """Raised when a frame on disk is not what was written; ``enmasse journal check`` gives details."""


UNSUPPORTED_FORMAT = Rejected(AmqpError("amqp:not-implemented", "only messages of format 0 can be stored"))


def full(name: str) -> Rejected:
    """Return the outcome for a message for which there is no room."""
    return Rejected(AmqpError("amqp:resource-limit-exceeded", f"{name!r} is full; receive from it, or ask for more"))


def malformed(error: DecodeError) -> Rejected:
    """Return the outcome for a message that cannot be read."""
    return Rejected(AmqpError("amqp:decode-error", str(error)))
