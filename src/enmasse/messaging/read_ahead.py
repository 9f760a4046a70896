"""The account of the records that were read for receivers and not taken yet, for all addresses of a node.

Rules:
1. A receiver says after it was served what it keeps. Where all together keep more than ``MAX_BYTES``, those that were
   served longest ago drop what they have: it is on disk, and is read again once they take more.
2. Who was served last keeps what it has, however large: one receiver after the other goes on, also where there are
   very many, and where each message is large.
"""

from __future__ import annotations

from typing import Final, Protocol

MAX_BYTES: Final = 16 << 20
"""The bytes that are kept of all; as many as may wait for clients that do not read (``node/connections``)."""


class Keeper(Protocol):
    """A receiver that may have read more than it has sent."""

    def drop(self) -> None:
        """Drop what it has read, and not sent."""


class ReadAhead:
    """The account of what the receivers of a node keep.

    Args:
        max_bytes: the most bytes that all receivers together may keep.
    """

    __slots__ = ("_kept", "held", "max_bytes")

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held = 0
        """The bytes that are kept."""
        self._kept: dict[Keeper, int] = {}
        """By receiver, the one that was served longest ago first."""

    def keep(self, keeper: Keeper, size: int) -> None:
        """Note that a receiver that has just been served keeps so many bytes."""
        kept = self._kept
        self.held += size - kept.pop(keeper, 0)
        if not size:
            return
        kept[keeper] = size
        while self.held > self.max_bytes:
            other = next(iter(kept))
            if other is keeper:
                return
            self.held -= kept.pop(other)
            other.drop()
