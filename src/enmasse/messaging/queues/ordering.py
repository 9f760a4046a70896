"""More than the order of arrival: priorities, selectors, groups, and receivers that cannot take a message.

Rules:
1. Of what suits a receiver, the highest priority goes first, and the oldest of it.
2. Messages of one group go to one receiver as long as it is attached, in their order.
3. What suits no receiver stays, and holds up nothing else.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from enmasse.messaging.address import LOOKS_OF_UNIT, MAX_LOOKS
from enmasse.messaging.delivery import SMALL_BYTES
from enmasse.messaging.log.entry import OUT, READY, Entry
from enmasse.messaging.part import Part
from enmasse.messaging.queues.consumer import BacklogConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.selectors.selector import Selector


MAX_GROUPS = 65_536
"""Groups whose receiver is remembered one by one; beyond, a new group may share with another."""

LEAST_CLEANED = 1_024

_Key = tuple[int, int]


def _key(entry: Entry) -> _Key:
    return -entry.priority, entry.seq


class _Heap:
    """Entries by priority and place; what was taken from elsewhere is passed over."""

    __slots__ = ("_items", "_members", "_most")

    def __init__(self) -> None:
        self._items: list[tuple[int, int, Entry]] = []
        self._members: set[Entry] = set()
        self._most = LEAST_CLEANED

    def push(self, entry: Entry) -> None:
        if entry not in self._members:
            self._members.add(entry)
            heappush(self._items, (-entry.priority, entry.seq, entry))
            if len(self._items) > self._most:
                self._clean()

    def _clean(self) -> None:
        """Remove entries that were taken elsewhere, now and then."""
        self._items = [item for item in self._items if item[2].state == READY]
        heapify(self._items)
        self._members = {item[2] for item in self._items}
        self._most = max(LEAST_CLEANED, 2 * len(self._items))

    def top(self) -> Entry | None:
        """Return the first that can be handed out."""
        items = self._items
        while items:
            entry = items[0][2]
            if entry.state == READY:
                return entry
            heappop(items)
            self._members.discard(entry)
        return None

    def pop(self) -> None:
        """Remove what ``top`` gave."""
        self._members.discard(heappop(self._items)[2])

    def entries(self) -> Iterator[Entry]:
        """Return all that can be handed out, in no order."""
        return (entry for entry in self._members if entry.state == READY)


class Ordering(Part["Backlog"]):
    """The messages of a queue or subscription that can be handed out, in an order beyond that of arrival."""

    __slots__ = ("_all", "_excluded", "_groups", "_parked", "_selected", "_selectors")

    def __init__(self, backlog: Backlog) -> None:
        super().__init__(backlog)
        self._all = _Heap()
        self._selected: dict[str, _Heap] = {}
        """By the selector's text."""
        self._selectors: dict[str, Selector] = {}
        self._groups: dict[str, BacklogConsumer] = {}
        """The receivers of groups."""
        self._parked: dict[BacklogConsumer, _Heap] = {}
        """Messages of a receiver's groups, which wait for its credit."""
        self._excluded: dict[Entry, set[BacklogConsumer]] = {}
        """The receivers that sent a message back as undeliverable there."""

    # What comes and goes

    def add(self, entry: Entry) -> None:
        """Add a message that can be handed out."""
        owner = None if entry.group is None else self._groups.get(self._bucket(entry.group))
        if owner is not None and self._wants(owner, entry):
            self._parked.setdefault(owner, _Heap()).push(entry)
            return
        self._all.push(entry)
        for text, selector in self._selectors.items():
            if selector.matches(entry.payload, entry.attempts):
                self._selected[text].push(entry)

    def _wants(self, owner: BacklogConsumer, entry: Entry) -> bool:
        """Return whether the receiver of a group takes this message of it."""
        if owner in self._excluded.get(entry, ()):
            return False
        return owner.selector is None or owner.selector.matches(entry.payload, entry.attempts)

    def _bucket(self, group: str) -> str:
        if group in self._groups or len(self._groups) < MAX_GROUPS:
            return group
        return f"\0{hash(group) % MAX_GROUPS}"

    def exclude(self, entry: Entry, consumer: BacklogConsumer) -> None:
        """Never give a message to this receiver again."""
        self._excluded.setdefault(entry, set()).add(consumer)

    def is_excluded(self, entry: Entry, consumer: Consumer) -> bool:
        """Return true if a message is never given to a receiver again."""
        return consumer in self._excluded.get(entry, ())

    def forget(self, entry: Entry) -> None:
        """Forget a message that is finished with."""
        self._excluded.pop(entry, None)

    def select(self, consumer: BacklogConsumer) -> None:
        """Add a receiver with a selector."""
        selector = consumer.selector
        assert selector is not None
        if selector.text not in self._selectors:
            heap = self._selected[selector.text] = _Heap()
            self._selectors[selector.text] = selector
            for entry in self._all.entries():
                if selector.matches(entry.payload, entry.attempts):
                    heap.push(entry)

    def remove(self, consumer: BacklogConsumer) -> None:
        """Remove a receiver: its groups are free for others."""
        for group in [group for group, owner in self._groups.items() if owner is consumer]:
            del self._groups[group]
        parked = self._parked.pop(consumer, None)
        if parked is not None:
            for entry in list(parked.entries()):
                self.add(entry)
        for excluded in self._excluded.values():
            excluded.discard(consumer)
        others = [getattr(other, "selector", None) for other in self.whole.consumers if other is not consumer]
        used = {selector.text for selector in others if selector is not None}
        for text in [text for text in self._selectors if text not in used]:
            del self._selectors[text]
            del self._selected[text]

    # Handing out

    def entries(self) -> list[Entry]:
        """Return all that can be handed out, by their places."""
        found = {entry for heap in (self._all, *self._parked.values()) for entry in heap.entries()}
        return sorted(found, key=_key)

    def take_oldest(self) -> Entry | None:
        """Take the message that would go first, whatever its receivers."""
        tops = [heap.top() for heap in (self._all, *self._parked.values())]
        entries = [entry for entry in tops if entry is not None]
        if not entries:
            return None
        entry = min(entries, key=_key)
        entry.state = OUT
        return entry

    def dispatch(self) -> bool:
        """Hand out what waits, as far as receivers take it; return whether that is all, and not only one turn's."""
        idle: set[BacklogConsumer] = set()
        backlog = self.whole
        most = MAX_LOOKS // (len(backlog.consumers) or 1) + 1
        for number in range(most):
            consumer = self._choose(idle)
            if consumer is None:
                backlog.core.units += number
                return True
            entry = self.take_for(consumer, idle)
            if entry is None:
                idle.add(consumer)
            elif len(entry.payload) > SMALL_BYTES and consumer.must_wait(len(entry.payload)):
                backlog.put_back(entry)
            else:
                backlog.deliver(entry, consumer)
        backlog.core.units += MAX_LOOKS // LOOKS_OF_UNIT
        backlog.due()
        return False

    def _choose(self, idle: set[BacklogConsumer]) -> BacklogConsumer | None:
        """Return the receiver with credit that has the fewest unsettled deliveries, except idle ones."""
        best: BacklogConsumer | None = None
        for consumer in self.whole.consumers:
            assert isinstance(consumer, BacklogConsumer)
            is_free = consumer.port.credit > 0 and not consumer.is_blocked and consumer not in idle
            if is_free and (best is None or consumer.unsettled < best.unsettled):
                best = consumer
            if self.whole.options.exclusive:
                break
        return best

    def take_for(self, consumer: BacklogConsumer, idle: set[BacklogConsumer]) -> Entry | None:
        """Take the message that goes to a receiver next; a receiver that is not idle any more leaves ``idle``."""
        entry = self._next(consumer, idle)
        if entry is not None:
            entry.state = OUT
        return entry

    def _next(self, consumer: BacklogConsumer, idle: set[BacklogConsumer]) -> Entry | None:
        selector = consumer.selector
        common = self._all if selector is None else self._selected[selector.text]
        passed: list[tuple[_Heap, Entry]] = []
        found = None
        while found is None:
            parked = self._parked.get(consumer)
            mine = None if parked is None else parked.top()
            other = common.top()
            if mine is None and other is None:
                break
            if other is None or (mine is not None and _key(mine) < _key(other)):
                assert parked is not None
                assert mine is not None
                heap, entry = parked, mine
            else:
                heap, entry = common, other
            heap.pop()
            if consumer in self._excluded.get(entry, ()):
                passed.append((heap, entry))
            elif entry.group is None or self._may_have(consumer, entry, idle):
                found = entry
        for heap, entry in passed:
            heap.push(entry)
        return found

    def _may_have(self, consumer: BacklogConsumer, entry: Entry, idle: set[BacklogConsumer]) -> bool:
        """Return whether a message's group is this receiver's; if it is another's, the message waits for that."""
        assert entry.group is not None
        bucket = self._bucket(entry.group)
        owner = self._groups.setdefault(bucket, consumer)
        if owner is consumer:
            return True
        if not self._wants(owner, entry):
            return True
        self._parked.setdefault(owner, _Heap()).push(entry)
        idle.discard(owner)
        return False
