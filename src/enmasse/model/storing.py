"""What an address that stores is told beyond storing: for how long, how much, how often."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enmasse.model.durations import Duration, milliseconds
from enmasse.model.schema import Model

__all__ = [
    "MAX_NUMBER",
    "Distribution",
    "FullPolicy",
    "MessageRedelivery",
    "MessageTtl",
    "Retention",
    "SlowPolicy",
    "Storage",
    "SubscriptionSpec",
]

Storage = Literal["message", "memory", "durable"]
FullPolicy = Literal["block", "reject", "drop-oldest"]
SlowPolicy = Literal["block", "drop-oldest", "spill", "drop"]
Distribution = Literal["balanced", "closest"]

MAX_NUMBER = (1 << 63) - 1
"""What every program that reads the resources can hold."""

_MAX_MULTIPLIER = 1000  # already the second repetition would come too late to be of use


class MessageTtl(Model):
    """Bounds, in milliseconds, on how long messages may wait."""

    minimum: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """A shorter time of a message is raised to it."""
    maximum: int | None = Field(default=None, ge=1, le=MAX_NUMBER)
    """A longer time of a message is lowered to it."""


class MessageRedelivery(Model):
    """How often and how soon a message is offered again."""

    maximum_delivery_attempts: int | None = Field(default=None, ge=-1, le=MAX_NUMBER)
    """-1 and 0: without limit."""
    redelivery_delay: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """Milliseconds before the first repetition."""
    redelivery_delay_multiplier: float | None = Field(default=None, ge=1, le=_MAX_MULTIPLIER)
    """What the delay is multiplied by after each attempt."""
    maximum_delivery_delay: int | None = Field(default=None, ge=0, le=MAX_NUMBER)
    """Milliseconds; 0: the delay grows without bound."""


class SubscriptionSpec(Model):
    """What a subscription allows."""

    max_consumers: int = Field(default=1, ge=1, le=1_000_000)
    """Receivers at a time."""


class Retention(Model):
    """How much of a stream is kept; what is beyond the first bound that is reached is deleted."""

    size: int | None = Field(default=None, ge=1, le=MAX_NUMBER, alias="bytes")
    """Stored bytes that are kept."""
    age: Duration | None = None
    """How long messages are kept: `30s`, `15m`, `12h`, `7d`."""

    @property
    def age_ms(self) -> int | None:
        """The age in milliseconds."""
        return None if self.age is None else milliseconds(self.age)
