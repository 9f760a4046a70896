"""Bounds the messages that wait for credit, of protocols whose clients are not told how many they may send.

While they are few, the connection is read on, so that what comes behind them is served: pings, acknowledgements,
subscriptions. A connection with too many is not read.

Rules:
1. Each connection is assured ``ASSURED_BYTES``. Beyond, it takes bytes from a budget of the node.
2. A space takes from the budget as long as it has no more than what it leaves free: half of it alone, a third beside
   another that does the same. So nobody has to give up what waits, and no space can take all.
"""

from __future__ import annotations

from typing import Final

ASSURED_BYTES: Final = 1 << 20
"""The bytes that may wait of each connection, whatever others have."""

NODE_BYTES: Final = 64 << 20
"""The bytes that may wait beyond that, of all connections of a node."""

GRAIN_BYTES: Final = 64 << 10
"""The budget is given out in multiples of so many bytes."""


class WaitingBudget:
    """The bytes that the connections of a node share.

    Args:
        max_bytes: of all together.
    """

    __slots__ = ("_spaces", "held", "max_bytes")

    def __init__(self, max_bytes: int = NODE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held = 0
        """The bytes that are given out."""
        self._spaces: dict[str, int] = {}
        """The part of each space that has any."""

    def take(self, space: str, size: int) -> bool:
        """Give a space so many bytes more, or less than nothing back; return whether it may have them."""
        own = self._spaces.get(space, 0) + size
        if size > 0 and own > self.max_bytes - self.held - size:
            return False
        self.held += size
        if own:
            self._spaces[space] = own
        else:
            del self._spaces[space]
        return True


class WaitingRoom:
    """The place of one connection's waiting messages.

    Args:
        budget: the node's budget.
        space: the name of the connection's space.
    """

    __slots__ = ("_budget", "_held", "_space")

    def __init__(self, budget: WaitingBudget, space: str) -> None:
        self._budget = budget
        self._space = space
        self._held = 0

    def resize(self, size: int) -> bool:
        """Have room for so many bytes that wait now, and return whether there is."""
        wanted = -(-max(0, size - ASSURED_BYTES) // GRAIN_BYTES) * GRAIN_BYTES
        if wanted != self._held:
            if not self._budget.take(self._space, wanted - self._held):
                return False
            self._held = wanted
        return True
