"""The bytes that wait for one peer to read them, whatever its protocol.

Rules:
1. ``ASSURED_BYTES`` may wait for any peer. More come of the budget that all peers of a server share, up to
   ``MAX_BYTES``: first those that the engine makes in one turn, then those that the socket does not take.
2. Room is given back once the socket has taken everything, and not before: a piece of output stays in memory until
   its last byte has gone.
3. Where there is no room, the peer's requests are not read and it is handed no messages until the socket has taken
   everything. What there is already counts nevertheless.
4. A large message is handed out where there is room for it beside what waits, and that is not more than ``MAX_BYTES``
   together. A larger one goes alone, or beside what is assured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

ASSURED_BYTES: Final = 64 << 10
"""The bytes that may wait for any peer, whatever waits for others."""

MAX_BYTES: Final = 1 << 20
"""The bytes that may wait for one peer; one message, or answer, may go beyond that."""

WRITE_BYTES: Final = 512
"""The memory that each write takes that waits, beside its bytes."""


class Room(Protocol):
    """A peer's place in the budget (``messaging.budget.Holder``)."""

    held: int

    @property
    def is_beyond(self) -> bool:
        """True if twice as much is given out as there is."""

    @property
    def is_alone(self) -> bool:
        """True if no other holds anything."""

    @property
    def is_wanted(self) -> bool:
        """True if others find no room."""

    def resize(self, size: int) -> bool:
        """Change how many bytes it holds, and return whether that was possible."""

    def hold(self, size: int) -> None:
        """Hold so many bytes, though there may be no room for them."""

    def go_short(self) -> None:
        """Be counted, until it leaves, among those that make do with what they have."""

    def leave(self) -> None:
        """Hold nothing."""


class Owed:
    """The room for what one peer is owed.

    Args:
        make_holder: returns its place in the budget; it is called once there is need of one.
    """

    __slots__ = ("_holder", "_make_holder", "has_read", "room", "waiting")

    def __init__(self, make_holder: Callable[[], Room]) -> None:
        self._make_holder = make_holder
        self._holder: Room | None = None
        self.room = ASSURED_BYTES
        """The bytes that may wait now."""
        self.waiting = 0
        """The bytes that wait for the socket, with the memory of their writes; 0 if it has taken everything."""
        self.has_read = False
        """True once the peer has read what waited for it beyond what is assured."""

    def has_room(self, size: int) -> bool:
        """Return true if so many bytes, which are there, may be kept beside some more."""
        if size < self.room:
            return True
        holder = self._holder
        if holder is None:
            holder = self._holder = self._make_holder()
        if size < MAX_BYTES:
            more = min(2 * size, MAX_BYTES)
            if holder.resize(more - ASSURED_BYTES):
                self.room = more
                return True
            holder.go_short()
        if size - ASSURED_BYTES > holder.held:
            holder.hold(size - ASSURED_BYTES)
        return False

    def admits(self, kept: int, more: int) -> bool:
        """Return true if a large message of so many bytes may be added to those that are kept."""
        size = kept + more
        if size > MAX_BYTES and kept > ASSURED_BYTES:
            return False
        if size < self.room:
            return True
        holder = self._holder
        if holder is None:
            holder = self._holder = self._make_holder()
        if not holder.resize(size - ASSURED_BYTES):
            is_next = self.has_read and kept <= ASSURED_BYTES and not holder.is_beyond
            if not (is_next or holder.is_alone):
                holder.go_short()
                return False
            # It may be larger than all that there is, or it would never be sent.
            holder.hold(size - ASSURED_BYTES)
        self.room = size + 1
        return True

    def release(self) -> None:
        """Give all room back, as the socket has taken everything."""
        self.waiting = 0
        if self._holder is not None:
            holder, self._holder = self._holder, None
            holder.leave()
            self.room = ASSURED_BYTES

    @property
    def is_needed(self) -> bool:
        """True if a peer that reads next to nothing is to give back the room that it holds.

        Because twice as much is given out as there is, as messages are not cut; or because others find no room, and
        this one has never shown that it reads at all.
        """
        holder = self._holder
        return holder is not None and (holder.is_beyond or (not self.has_read and holder.is_wanted))

    @property
    def is_extra(self) -> bool:
        """True if there is room of the budget to give back."""
        return self._holder is not None
