"""What senders hear of messages that a stored address does not take."""

from __future__ import annotations

from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import AmqpError, Rejected

__all__ = ["UNSUPPORTED_FORMAT", "full", "malformed"]

UNSUPPORTED_FORMAT = Rejected(AmqpError("amqp:not-implemented", "only messages of format 0 can be stored"))


def full(name: str) -> Rejected:
    """There is no room for the message."""
    return Rejected(AmqpError("amqp:resource-limit-exceeded", f"{name!r} is full; receive from it, or ask for more"))


def malformed(error: DecodeError) -> Rejected:
    """The message cannot be read."""
    return Rejected(AmqpError("amqp:decode-error", str(error)))
