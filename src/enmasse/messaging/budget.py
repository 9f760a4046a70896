"""A budget of bytes for the connections or transactions of all spaces, shared so that none takes all of it.

Rules:
1. A request is granted while the whole is not used up.
2. After that the holder of the most gives up what it holds, if the one that asks would still have less: space
   is compared with space, then user with user of one space, then address with address of one user.
3. Else, and among holders that have all of that in common, the one that asks goes without, or waits. Of these
   one at a time goes on beyond the whole, as all may wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakMethod

MAX_WAITING: Final = 64
"""Each keeps what it had read: more are refused instead."""


class Party:
    """The holders that share one name: a space, a user of it, an address of that user's.

    Args:
        parent: the party that it is a part of.
        key: its name there.
    """

    __slots__ = ("children", "held", "key", "parent")

    def __init__(self, parent: Party | None, key: Hashable) -> None:
        self.parent = parent
        self.key = key
        self.held = 0
        """Bytes, in whole grains."""
        self.children: dict[Hashable, Party] = {}
        """The members that hold any bytes."""


class Holder(Party):
    """Something that holds bytes of a budget, beginning with none.

    Args:
        budget: the budget.
        path: the names of its owners: space, user, address ...
        give_up: the method of whom it belongs to that frees what it holds, or a part of that, as another is
            entitled to it. It is held weakly: whom it belongs to has it.
    """

    __slots__ = ("_budget", "_give_up", "_path")

    def __init__(self, budget: Budget, path: tuple[Hashable, ...], give_up: Callable[[], None]) -> None:
        # A name that nobody else has; itself, it would wait for the collector of cycles.
        super().__init__(None, object())
        self._budget = budget
        self._path = path
        self._give_up = WeakMethod(give_up)

    def resize(self, size: int) -> bool:
        """Change how many bytes it holds, and return whether that was possible; less always is."""
        budget = self._budget
        wanted = budget.grains(size) - self.held
        if not wanted:
            return True
        if wanted > 0 and not budget.make_room(self, self._path, wanted):
            return False
        self._change(wanted)
        return True

    def hold(self, size: int) -> None:
        """Hold so many bytes, though there may be no room for them: they are there already."""
        self._change(self._budget.grains(size) - self.held)

    def wait(self, size: int, go_on: Callable[[], None]) -> bool:
        """Wait until there is room for so many bytes; it is held once ``go_on`` is called, which may be at once.

        Returns:
            Whether there is a place to wait at.
        """
        budget = self._budget
        if budget.finishing is None:
            budget.finishing = self
            self._change(budget.grains(size) - self.held)
            go_on()
            return True
        if len(budget.waiting) >= MAX_WAITING:
            return False
        budget.waiting[self] = size, go_on
        return True

    def stop_waiting(self) -> None:
        """Wait for nothing."""
        self._budget.waiting.pop(self, None)

    def leave(self) -> None:
        """Hold nothing, and wait for nothing."""
        self.stop_waiting()
        budget = self._budget
        if self in budget.short:
            budget.short.remove(self)
            budget.short_by_path[self._path] -= 1
            if not budget.short_by_path[self._path]:
                del budget.short_by_path[self._path]
        self.resize(0)

    def go_short(self) -> None:
        """Be counted, until it leaves, among those that make do with what they have."""
        budget = self._budget
        if self not in budget.short:
            budget.short.add(self)
            budget.short_by_path[self._path] += 1

    @property
    def is_finishing(self) -> bool:
        """Return whether it may exceed the whole until it holds nothing any more."""
        return self._budget.finishing is self

    @property
    def is_alone(self) -> bool:
        """True if no other holds anything."""
        return self.held == self._budget.held

    @property
    def is_beyond(self) -> bool:
        """True if twice as much is given out as there is."""
        return self._budget.held > 2 * self._budget.max_bytes

    @property
    def is_wanted(self) -> bool:
        """True if others with the same owners make do with what they have."""
        return self._budget.short_by_path[self._path] > (self in self._budget.short)

    @property
    def has_rivals(self) -> bool:
        """True if others wait."""
        return bool(self._budget.waiting)

    def rank(self) -> tuple[int, ...]:
        """Return what its space holds, its user, and so on: the holder with less comes first."""
        party: Party | None = self._budget.root
        held = []
        for key in self._path:
            party = None if party is None else party.children.get(key)
            held.append(0 if party is None else party.held)
        return (*held, self.held)

    def give_up(self) -> None:
        """Free some bytes, as another is entitled to them."""
        give_up = self._give_up()
        if give_up is None:
            self.leave()
        else:
            give_up()

    def _change(self, size: int) -> None:
        budget = self._budget
        if self.held + size and self.parent is None:
            self.parent = budget.party(self._path)
        party: Party = self
        while (parent := party.parent) is not None:
            party.held += size
            if party.held == size:
                parent.children[party.key] = party
            elif not party.held:
                parent.children.pop(party.key, None)
                party.parent = None
            party = parent
        if party is not self:
            party.held += size
            budget.most_held = max(budget.most_held, party.held)
        if size < 0:
            budget.freed(self)


class Budget:
    """The bytes that all share.

    Args:
        max_bytes: the most bytes of all together.
        grain: it is given out in multiples of so many bytes.
    """

    __slots__ = (
        "_grain",
        "_is_making_room",
        "finishing",
        "given_up",
        "max_bytes",
        "most_held",
        "root",
        "short",
        "short_by_path",
        "waiting",
    )

    def __init__(self, max_bytes: int, grain: int) -> None:
        self.max_bytes = max_bytes
        self.root = Party(None, None)
        self.most_held = 0
        """The most bytes that were given out at a time."""
        self.given_up = 0
        """The number of times that a holder had to free bytes for another."""
        self.waiting: dict[Holder, tuple[int, Callable[[], None]]] = {}
        self.short: set[Holder] = set()
        """The holders that found no room for more, and make do with what they have."""
        self.short_by_path: Counter[tuple[Hashable, ...]] = Counter()
        """The number of these with each path."""
        self.finishing: Holder | None = None
        """The holder that may exceed the whole until it holds nothing any more."""
        self._grain = grain
        self._is_making_room = False

    @property
    def held(self) -> int:
        """Bytes that are given out."""
        return self.root.held

    def grains(self, size: int) -> int:
        """Return a size rounded up to whole grains."""
        return -(-size // self._grain) * self._grain

    def party(self, path: tuple[Hashable, ...]) -> Party:
        """Return the innermost of the parties of a path."""
        party = self.root
        for key in path:
            child = party.children.get(key)
            party = Party(party, key) if child is None else child
        return party

    def make_room(self, asking: Holder, path: tuple[Hashable, ...], size: int) -> bool:
        """Make room for so many bytes more, if they may have it (rule 2); return whether there is room now."""
        if self.finishing is asking:
            return True
        self._is_making_room = True
        try:
            while self.root.held + size > self.max_bytes:
                other = self._find_largest(path, size)
                if other is None:
                    return False
                before = self.root.held
                other.give_up()
                if self.root.held >= before:
                    return False
                self.given_up += 1
        finally:
            self._is_making_room = False
        return True

    def _find_largest(self, path: tuple[Hashable, ...], size: int) -> Holder | None:
        """Return the holder that is to give way to this one; ``None`` where no other has more than it would have."""
        party: Party = self.root
        for key in path:
            largest = max(party.children.values(), key=_held, default=None)
            if largest is None:
                return None
            if largest.key != key:
                own = party.children.get(key)
                if (0 if own is None else own.held) + size >= largest.held:
                    return None
                while not isinstance(largest, Holder):
                    largest = max(largest.children.values(), key=_held)
                return largest
            party = largest
        return None

    def freed(self, holder: Holder) -> None:
        """Continue waiting holders after one holds less, the holder with least first."""
        if self.finishing is holder and not holder.held:
            self.finishing = None
        while self.waiting and not self._is_making_room:
            first = min(self.waiting, key=Holder.rank)
            size, go_on = self.waiting[first]
            if not first.resize(size):
                if self.finishing is not None:
                    return
                self.finishing = first
                continue
            self.waiting.pop(first, None)
            go_on()


def _held(party: Party) -> int:
    return party.held
