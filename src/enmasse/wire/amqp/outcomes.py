"""The outcomes that are said most often, as single objects that can be compared by identity."""

from __future__ import annotations

from typing import Any

from enmasse.wire.amqp.performatives import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.wire.amqp.transactions import Declared

__all__ = ["ACCEPTED", "RELEASED", "SMALL_STATES", "TERMINAL", "TOO_LARGE", "known_outcome"]

ACCEPTED = Accepted()
RELEASED = Released()
TOO_LARGE = Rejected(
    AmqpError("amqp:link:message-size-exceeded", "the message is larger than the receiver's link takes")
)
"""The outcome of what could not even be sent."""

TERMINAL = (Accepted, Rejected, Released, Modified, Declared)
"""States after which a delivery has no other [AMQP 3.4, 4.5.5]."""

SMALL_STATES = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
}
"""How they look on the wire, so that nobody need decode them."""


def known_outcome(state: Any) -> Any:
    """A state as sinks expect it: accepted and released are compared by identity."""
    if isinstance(state, Accepted):
        return ACCEPTED
    return RELEASED if isinstance(state, Released) else state
