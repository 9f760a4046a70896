"""The number of messages that the senders of a topic may send, as far as all its subscriptions have room.

Subscriptions are kept by the power of two of the messages that they have room for, and only those with the least
room are looked at: what others have, or do, costs nothing. A subscription is put elsewhere once its bytes have
changed by a part of its room, so that each message costs one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enmasse.messaging.queues.subscription import Subscription


FEW = 32
"""Subscriptions with the least room that are looked at one by one. Of more the least that they may have is taken."""

MAX_STEP_BYTES = 1 << 20
"""Bytes after which a subscription is put where it belongs now, however much room it has."""


class Windows:
    """The subscriptions of one topic that hold its senders back, by the room they have."""

    __slots__ = ("_by_room", "average_bytes")

    def __init__(self) -> None:
        self._by_room: dict[int, dict[Subscription, None]] = {}
        """By the bit length of the number of messages that they have room for."""
        self.average_bytes = 1024
        """The mean size of a message of the subscription whose room was noted last."""

    def __bool__(self) -> bool:
        """Return whether there is a subscription that holds senders back."""
        return bool(self._by_room)

    def update(self, subscription: Subscription) -> None:
        """Put a subscription where it belongs, by the room that it has now."""
        free = subscription.max_bytes - subscription.bytes_stored
        step = min(max(1, abs(free) >> 3), MAX_STEP_BYTES)
        subscription.room_above = subscription.bytes_stored - step
        subscription.room_below = subscription.bytes_stored + step
        if subscription.depth:
            subscription.average_bytes = max(1, subscription.bytes_stored // subscription.depth)
        self.average_bytes = subscription.average_bytes
        kind = subscription.room_for(1).bit_length()
        if kind == subscription.room_kind:
            return
        self.remove(subscription)
        subscription.room_kind = kind
        self._by_room.setdefault(kind, {})[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; one that is not there is no error."""
        kind = subscription.room_kind
        if kind < 0:
            return
        subscription.room_kind = -1
        others = self._by_room[kind]
        del others[subscription]
        if not others:
            del self._by_room[kind]

    def least(self, senders: int) -> int:
        """Return how many messages each of so many senders may send now; with many subscriptions perhaps fewer."""
        kind = min(self._by_room)
        subscriptions = self._by_room[kind]
        if len(subscriptions) <= FEW:
            return min(subscription.room_for(senders) for subscription in subscriptions)
        messages = (1 << kind) >> 1
        return max(1, messages // senders) if messages else 0
