"""Limits in real units: what an operator grants with a plan, and a tenant may narrow.

Rules:
1. A limit that is left out is none.
2. A space or an address may say less than its plan, never more: the least of both holds.
3. Rates are taken over a second; what exceeds them waits, it is not refused.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from enmasse.model.durations import Duration, milliseconds
from enmasse.model.schema import Model
from enmasse.model.storing import MAX_NUMBER

__all__ = ["AddressLimits", "SpaceLimits"]

_Amount = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class AddressLimits(Model):
    """How much an address takes."""

    max_bytes: _Amount | None = None
    """Stored bytes; of what stores."""
    max_consumers: _Count | None = None
    """Receivers at a time; of a queue. A subscription says it in a field of its own."""
    message_rate: _Amount | None = None
    """Messages a second that it takes from all senders together."""
    byte_rate: _Amount | None = None
    """Bytes a second that it takes from all senders together."""
    message_size: _Amount | None = None
    """Bytes of the largest message that it takes."""
    links: _Count | None = None
    """Senders and receivers at a time, all together."""


class SpaceLimits(Model):
    """How much a space takes, with all its addresses together."""

    connections: _Count | None = None
    """Connections at a time."""
    devices: _Count | None = None
    """Connected devices at a time: different container ids."""
    links: _Count | None = None
    """Senders and receivers at a time, all together."""
    addresses: _Count | None = None
    """Addresses that may be declared."""
    users: _Count | None = None
    """Messaging users that may be declared."""
    message_rate: _Amount | None = None
    """Messages a second that it takes from all senders together."""
    byte_rate: _Amount | None = None
    """Bytes a second that it takes from all senders together."""
    max_bytes: _Amount | None = None
    """Stored bytes of its queues, subscriptions and streams together."""
    message_size: _Amount | None = None
    """Bytes of the largest message that it takes."""
    ttl: Duration | None = None
    """How long a message may wait at most: `30s`, `15m`, `12h`, `7d`."""

    @property
    def ttl_ms(self) -> int | None:
        """The longest time to live in milliseconds."""
        return None if self.ttl is None else milliseconds(self.ttl)
