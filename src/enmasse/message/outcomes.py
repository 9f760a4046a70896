"""The outcomes of a delivery, and the errors that say why [AMQP 2.8.14, 3.4, 4.5.8].

Every protocol answers in these, whatever its own words are. The most frequent ones are single objects, which can be
compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enmasse.message.composites import BOOLEAN, FIELDS, NAME, STRING, Composite, composite, field_of, register


@dataclass(slots=True)
class AmqpError(Composite):
    """The reason that a connection, session, link or delivery ended [AMQP 2.8.14]."""

    CODE = 0x1D
    SYMBOL = "amqp:error:list"
    condition: str = field_of(NAME)
    description: str | None = field_of(STRING, None)
    info: dict[Any, Any] | None = field_of(FIELDS, None)


ERROR = composite("AmqpError")
"""The kind of a field that holds an error."""


@dataclass(slots=True)
class Accepted(Composite):
    """The message was processed [AMQP 3.4.2]."""

    CODE = 0x24
    SYMBOL = "amqp:accepted:list"


@dataclass(slots=True)
class Rejected(Composite):
    """The message is invalid [AMQP 3.4.3]."""

    CODE = 0x25
    SYMBOL = "amqp:rejected:list"
    error: AmqpError | None = field_of(ERROR, None)


@dataclass(slots=True)
class Released(Composite):
    """The message was not processed [AMQP 3.4.4]."""

    CODE = 0x26
    SYMBOL = "amqp:released:list"


@dataclass(slots=True)
class Modified(Composite):
    """The message was changed but not processed [AMQP 3.4.5]."""

    CODE = 0x27
    SYMBOL = "amqp:modified:list"
    delivery_failed: bool = field_of(BOOLEAN, False)
    undeliverable_here: bool = field_of(BOOLEAN, False)
    message_annotations: dict[Any, Any] | None = field_of(FIELDS, None)


register(AmqpError, Accepted, Rejected, Released, Modified)

ACCEPTED = Accepted()
RELEASED = Released()
TOO_LARGE = Rejected(
    AmqpError("amqp:link:message-size-exceeded", "the message is larger than the receiver's link takes")
)
"""The outcome of what could not even be sent."""

UNKNOWN_ID = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
"""Error conditions of transactions [AMQP 4.5.8]."""

IN_DOUBT = "enmasse:transaction:in-doubt"
"""The condition of a transaction of another container of which nobody knows whether it was committed."""


def known_outcome(state: Any) -> Any:
    """Return a state as sinks expect it: accepted and released are compared by identity."""
    if isinstance(state, Accepted):
        return ACCEPTED
    return RELEASED if isinstance(state, Released) else state
