"""Fair shares of a fixed number of slots: a lone owner may have all, and of several none keeps more than the others.

An owner is a path, such as a user and an address of that user: slots are shared among users first, then among
each user's addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

Owner = tuple[str, ...]

T = TypeVar("T")


class Shares(Generic[T]):
    """Slots of which each owner keeps a fair share.

    Args:
        most: the number of slots.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: dict[Owner, dict[T, None]] = {}
        self._counts: Counter[Owner] = Counter()
        """Slots taken below each beginning of a path."""

    def __len__(self) -> int:
        """Return the number of slots that are taken."""
        return self._counts[()]

    def __iter__(self) -> Iterator[T]:
        """Iterate over everything that holds a slot."""
        return iter([holding for held in self._held.values() for holding in held])

    @property
    def is_full(self) -> bool:
        """True if a newcomer needs a slot of somebody else."""
        return len(self) >= self.most

    def take(self, owner: Owner, holding: T) -> None:
        """Give an owner a slot."""
        self._held.setdefault(owner, {})[holding] = None
        for depth in range(len(owner) + 1):
            self._counts[owner[:depth]] += 1

    def leave(self, owner: Owner, holding: T) -> bool:
        """Take a slot back; return false if it was not held any more."""
        held = self._held.get(owner, {})
        if holding not in held:
            return False
        del held[holding]
        if not held:
            del self._held[owner]
        for depth in range(len(owner) + 1):
            beginning = owner[:depth]
            self._counts[beginning] -= 1
            if not self._counts[beginning]:
                del self._counts[beginning]
        return True

    def of(self, owner: Owner) -> tuple[T, ...]:
        """Return an owner's holdings, in the order in which they came."""
        return tuple(self._held.get(owner, ()))

    def richer_than(self, owner: Owner) -> Iterator[T]:
        """Iterate over the holdings of the owner that has to give up a slot for another one, oldest first.

        There are none unless an owner would still have as many slots as the other after losing one.
        """
        beginning: Owner = ()
        for depth in range(1, len(owner) + 1):
            richest = self._richest(beginning)
            mine = owner[:depth]
            if self._counts[richest] > self._counts[mine] + 1:
                while richest not in self._held:
                    richest = self._richest(richest)
                return iter(self.of(richest))
            beginning = mine
        return iter(())

    def _richest(self, beginning: Owner) -> Owner:
        depth = len(beginning)
        below = (owner for owner in self._counts if len(owner) == depth + 1 and owner[:depth] == beginning)
        return max(below, key=self._counts.__getitem__, default=beginning)
