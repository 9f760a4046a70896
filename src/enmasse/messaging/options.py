"""What an address that stores is told to do beyond storing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_MAX_BYTES", "FULL_POLICIES", "MEMORY_MAX_BYTES", "SLOW_POLICIES", "STORAGES", "StoredOptions"]

DEFAULT_MAX_BYTES = 4 << 30
"""What a queue or subscription may store unless it is told otherwise."""

MEMORY_MAX_BYTES = 128 << 20
"""The same of one that keeps its messages in memory alone."""

FULL_POLICIES = ("block", "reject", "drop-oldest")
SLOW_POLICIES = ("block", "drop-oldest", "spill")
STORAGES = ("message", "memory", "durable")


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """The wishes of one queue, topic or subscription; times are in milliseconds.

    Attributes:
        max_bytes: what may be stored; 0 is the default.
        full: when that is reached: ``block`` grants no credit, ``reject`` refuses what comes,
            ``drop-oldest`` makes room.
        storage: what survives a restart: durable messages (``message``), nothing (``memory``: never
            written), everything (``durable``).
        ttl_minimum: a message's own time to live is raised to it; 0 is none.
        ttl_maximum: it is lowered to it, and given to messages that have none; 0 is none.
        max_attempts: failed deliveries after which a message is a dead letter; 0 is without limit.
        redelivery_delay: wait before the second attempt.
        redelivery_multiplier: grows the wait with each further attempt.
        max_redelivery_delay: bounds the wait; 0 is none.
        dead_letter: address for dead letters; without one they are dropped and counted.
        expiry: address for expired messages; without one they are dropped and counted.
        max_consumers: receivers at the same time; 0 is without limit.
        exclusive: whether one receiver gets everything while the others stand by.
        last_value_key: keep only the latest message of each key: ``subject`` or the name of an
            application property; empty keeps all.
        slow: what bounds a volatile subscriber that falls behind.
    """

    max_bytes: int = 0
    full: str = "block"
    storage: str = "message"
    ttl_minimum: int = 0
    ttl_maximum: int = 0
    max_attempts: int = 0
    redelivery_delay: int = 0
    redelivery_multiplier: float = 1.0
    max_redelivery_delay: int = 0
    dead_letter: str = ""
    expiry: str = ""
    max_consumers: int = 0
    exclusive: bool = False
    last_value_key: str = ""
    slow: str = "drop-oldest"
