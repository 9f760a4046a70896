"""A bounded queue that is shared fairly: by spaces first, then by the hosts of each space.

Rules:
1. Spaces take turns, and so do the hosts of a space: one that has much in the queue waits for itself alone.
2. A space may have as many in the queue as there are places left, a host half as many. So one that floods leaves room
   for another, and that for a third, however many there are; alone, a space has half of the queue and a host a third.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _Space(Generic[T]):
    """The items of one space that wait."""

    __slots__ = ("count", "hosts", "name", "order")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.hosts: dict[str, deque[T]] = {}
        self.order: deque[str] = deque()
        """The hosts that have something in the queue, the next one first."""


class FairQueue(Generic[T]):
    """A queue with a bound.

    Args:
        most: the most that it holds.
    """

    __slots__ = ("_count", "_most", "_order", "_spaces")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._spaces: dict[str, _Space[T]] = {}
        self._order: deque[_Space[T]] = deque()

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def put(self, space: str, host: str, item: T) -> bool:
        """Put one behind the others of its host; return false if there is no place for it."""
        room = self._most - self._count
        waiting = self._spaces.get(space)
        if waiting is None:
            if room <= 0:
                return False
            waiting = self._spaces[space] = _Space(space)
            self._order.append(waiting)
        same_host = waiting.hosts.get(host)
        if waiting.count >= room or (same_host is not None and 2 * len(same_host) >= room):
            return False
        if same_host is None:
            same_host = waiting.hosts[host] = deque()
            waiting.order.append(host)
        same_host.append(item)
        waiting.count += 1
        self._count += 1
        return True

    def take(self) -> T | None:
        """Take the next one out, None if there is none."""
        if not self._order:
            return None
        space = self._order.popleft()
        host = space.order.popleft()
        same_host = space.hosts[host]
        item = same_host.popleft()
        if same_host:
            space.order.append(host)
        else:
            del space.hosts[host]
        space.count -= 1
        self._count -= 1
        if space.count:
            self._order.append(space)
        else:
            del self._spaces[space.name]
        return item
