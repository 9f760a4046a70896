"""More than the order of arrival: priorities, selectors, groups, and receivers that cannot take a message.

Rules:
1. Of what suits a receiver, the highest priority goes first, and the oldest of it.
2. Messages of one group go to one receiver as long as it is attached, in their order.
3. What suits no receiver stays, and holds up nothing else.
4. Each turn bears so much work (``core.MAX_UNITS``). Messages for which it is too short wait for their places, and
   what would go after them waits, too; a receiver whose selector is new has its first message when all that were
   there when it came have been looked at.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from enmasse.messaging.address import LOOKS_OF_UNIT
from enmasse.messaging.core import MAX_UNITS
from enmasse.messaging.delivery import SMALL_BYTES
from enmasse.messaging.log.entry import OUT, READY, Entry
from enmasse.messaging.part import Part
from enmasse.messaging.queues.consumer import BacklogConsumer

if TYPE_CHECKING:
    from enmasse.messaging.delivery import Consumer
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.queues.shares import NameSelector
    from enmasse.messaging.selectors.selector import Selector


MAX_GROUPS = 65_536
"""Groups whose receiver is remembered one by one; beyond, a new group may share with another."""

LEAST_CLEANED = 1_024

LOOKS_UNITS = MAX_UNITS // 2
"""The work of a turn that is for places and new selectors; the rest is for handing out."""

_Key = tuple[int, int]


def place_of(entry: Entry) -> _Key:
    """Return what the order goes by."""
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
        for _ in range(LEAST_CLEANED):
            if not items:
                return None
            entry = items[0][2]
            if entry.state == READY:
                return entry
            heappop(items)
            self._members.discard(entry)
        self._clean()
        return self._items[0][2] if self._items else None

    def pop(self) -> None:
        """Remove what ``top`` gave."""
        self._members.discard(heappop(self._items)[2])

    def absorb(self, other: _Heap) -> None:
        """Take over what is in another heap, and nowhere else."""
        self._items += other._items
        heapify(self._items)
        self._members |= other._members

    @property
    def members(self) -> set[Entry]:
        """The entries, and those of them that were taken elsewhere, too."""
        return self._members


class Ordering(Part["Backlog"]):
    """The messages of a queue or subscription that can be handed out, in an order beyond that of arrival."""

    __slots__ = (
        "_all", "_before", "_excluded", "_groups", "_kept", "_left", "_parked", "_selected", "_selecting",
        "_selectors", "_unplaced", "_unseen",
    )  # fmt: skip

    def __init__(self, backlog: Backlog, entries: list[Entry]) -> None:
        super().__init__(backlog)
        self._left = 0
        """The work that is left for this turn."""
        self._before = deque(entries)
        """Messages that were there before this, and have no places yet; they are in order."""
        self._unplaced = _Heap()
        """Messages that came since then, and have none."""
        self._unseen: dict[str, list[Entry]] = {}
        """Messages that a new selector has yet to look at, by its text."""
        self._all = _Heap()
        self._selected: dict[str, _Heap] = {}
        """By the selector's text."""
        self._selectors: dict[str, Selector | NameSelector] = {}
        self._selecting: dict[str, set[BacklogConsumer]] = {}
        """The receivers that have each."""
        self._groups: dict[str, BacklogConsumer] = {}
        """The receivers of groups."""
        self._parked: dict[BacklogConsumer, _Heap] = {}
        """Messages of a receiver's groups, which wait for its credit."""
        self._excluded: dict[Entry, set[BacklogConsumer]] = {}
        """The receivers that sent a message back as undeliverable there."""
        self._kept: NameSelector | None = None
        """Selects what may be for some receiver; anything else is dropped as it is to get its place."""

    # What comes and goes

    def add(self, entry: Entry) -> None:
        """Add a message that can be handed out."""
        # Whoever adds it may have more to do with it before it can be dropped.
        if self._left > 0 and self._kept is None:
            self._place(entry)
        else:
            self._unplaced.push(entry)

    def _place(self, entry: Entry) -> None:
        self._left -= 1
        if self._kept is not None and not self._matches(self._kept, entry):
            self.whole.dropped += 1
            self.whole.settle(entry)
            return
        owner = None if entry.group is None else self._groups.get(self._bucket(entry.group))
        if owner is not None and self._wants(owner, entry):
            self._parked.setdefault(owner, _Heap()).push(entry)
            return
        self._all.push(entry)
        for text, selector in self._selectors.items():
            if self._matches(selector, entry):
                self._selected[text].push(entry)

    def _matches(self, selector: Selector | NameSelector, entry: Entry) -> bool:
        is_match = selector.matches(entry.payload, entry.attempts)
        self._left -= selector.cost(entry.payload)
        return is_match

    def _wants(self, owner: BacklogConsumer, entry: Entry) -> bool:
        """Return whether the receiver of a group takes this message of it."""
        if owner in self._excluded.get(entry, ()):
            return False
        return owner.selector is None or self._matches(owner.selector, entry)

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
        self._selecting.setdefault(selector.text, set()).add(consumer)
        if selector.text not in self._selectors:
            self._selected[selector.text] = _Heap()
            self._selectors[selector.text] = selector
            self._unseen[selector.text] = list(self._all.members)

    def reselect(self, consumer: BacklogConsumer, selector: NameSelector | None) -> None:
        """Have a receiver get what another selector selects from now on; ``None``: all."""
        self._deselect(consumer)
        consumer.selector = selector
        if selector is not None:
            self.select(consumer)
        self._unpark(consumer)
        self.whole.due()

    def keep(self, wanted: NameSelector | None) -> None:
        """Drop what is not selected before it is handed out, what is there included; ``None``: drop nothing more."""
        self._kept = wanted
        if wanted is None:
            return
        # All get their places anew, in turns.
        self._before = deque(sorted((entry for entry in self.entries() if entry.state == READY), key=place_of))
        self._unplaced, self._all = _Heap(), _Heap()
        self._parked.clear()
        self._unseen.clear()
        self._selected = {text: _Heap() for text in self._selected}
        self.whole.core.units += len(self._before) // LOOKS_OF_UNIT
        self.whole.due()

    def look_on(self) -> bool:
        """Begin with a turn: give places, and look through messages for new selectors; return whether that is all."""
        self._left = LOOKS_UNITS
        # Who is new must not wait for ever where much comes.
        least = LOOKS_UNITS // 2 if self._unseen else 0
        while self._left > least and (entry := self._first_unplaced()) is not None:
            if self._before and entry is self._before[0]:
                self._before.popleft()
            else:
                self._unplaced.pop()
            self._place(entry)
        for text, entries in list(self._unseen.items()):
            heap, selector = self._selected[text], self._selectors[text]
            while entries and self._left > 0:
                entry = entries.pop()
                self._left -= 1
                if entry.state == READY and self._matches(selector, entry):
                    heap.push(entry)
            if not entries:
                del self._unseen[text]
        self.whole.core.units += LOOKS_UNITS - self._left
        self._left = MAX_UNITS - LOOKS_UNITS + max(0, self._left)
        if self._first_unplaced() is None and not self._unseen:
            return True
        self.whole.due()
        return False

    def _first_unplaced(self) -> Entry | None:
        before, top = self._before, self._unplaced.top()
        while before and before[0].state != READY:
            before.popleft()
        if before and (top is None or place_of(before[0]) < place_of(top)):
            return before[0]
        return top

    def remove(self, consumer: BacklogConsumer) -> None:
        """Remove a receiver: its groups are free for others."""
        for group in [group for group, owner in self._groups.items() if owner is consumer]:
            del self._groups[group]
        self._unpark(consumer)
        for excluded in self._excluded.values():
            excluded.discard(consumer)
        self._deselect(consumer)

    def _unpark(self, consumer: BacklogConsumer) -> None:
        """Give the messages of a receiver's groups their places anew."""
        parked = self._parked.pop(consumer, None)
        if parked is not None:
            self._unplaced.absorb(parked)

    def _deselect(self, consumer: BacklogConsumer) -> None:
        """Forget the selector of a receiver, unless others have it, too."""
        text = "" if consumer.selector is None else consumer.selector.text
        others = self._selecting.get(text)
        if others is None:
            return
        others.discard(consumer)
        if not others:
            del self._selecting[text], self._selectors[text], self._selected[text]
            self._unseen.pop(text, None)

    # Handing out

    def entries(self) -> list[Entry]:
        """Return all, in no order, and those that were handed out meanwhile, too."""
        heaps = self._unplaced, self._all, *self._parked.values()
        return list(set(self._before).union(*(heap.members for heap in heaps)))

    def take_oldest(self) -> Entry | None:
        """Take the message that would go first, whatever its receivers."""
        tops = [self._first_unplaced(), *(heap.top() for heap in (self._all, *self._parked.values()))]
        entries = [entry for entry in tops if entry is not None]
        if not entries:
            return None
        entry = min(entries, key=place_of)
        entry.state = OUT
        return entry

    def dispatch(self) -> bool:
        """Hand out what waits, as far as receivers take it; return whether that is all, and not only one turn's."""
        idle: set[BacklogConsumer] = set()
        backlog, before = self.whole, self._left
        takers = self._takers(idle)
        while takers and self._left > 0:
            _, place, consumer = heappop(takers)
            were_idle = len(idle)
            entry = self.take_for(consumer, idle)
            if len(idle) < were_idle:
                # There is something for one that had nothing.
                takers = self._takers(idle)
            if entry is None:
                idle.add(consumer)
                continue
            self._left -= 1
            if len(entry.payload) > SMALL_BYTES and consumer.must_wait(len(entry.payload)):
                backlog.put_back(entry)
            else:
                backlog.deliver(entry, consumer)
            if consumer.port.credit > 0 and not consumer.is_blocked:
                heappush(takers, (consumer.unsettled, place, consumer))
        backlog.core.units += before - self._left
        is_all = not takers and self._left > 0
        if not is_all:
            backlog.due()
        return is_all

    def _takers(self, idle: set[BacklogConsumer]) -> list[tuple[int, int, BacklogConsumer]]:
        """Return receivers for which there may be something: a heap, the fewest unsettled deliveries first."""
        consumers = self.whole.consumers[:1] if self.whole.options.exclusive else self.whole.consumers
        self._left -= min(len(consumers) // LOOKS_OF_UNIT, LOOKS_UNITS // 2)
        found = []
        for place, consumer in enumerate(consumers):
            assert isinstance(consumer, BacklogConsumer)
            if consumer.port.credit > 0 and not consumer.is_blocked and consumer not in idle:
                parked = self._parked.get(consumer)
                if self._common(consumer).top() is not None or (parked is not None and parked.top() is not None):
                    found.append((consumer.unsettled, place, consumer))
        heapify(found)
        return found

    def _common(self, consumer: BacklogConsumer) -> _Heap:
        """Return the messages that are not for one receiver alone and suit this one."""
        return self._all if consumer.selector is None else self._selected[consumer.selector.text]

    def take_for(self, consumer: BacklogConsumer, idle: set[BacklogConsumer]) -> Entry | None:
        """Take the message that goes to a receiver next; a receiver that is not idle any more leaves ``idle``."""
        entry = self._next(consumer, idle)
        if entry is not None:
            entry.state = OUT
        return entry

    def _next(self, consumer: BacklogConsumer, idle: set[BacklogConsumer]) -> Entry | None:
        selector = consumer.selector
        if selector is not None and selector.text in self._unseen:
            return None
        common = self._common(consumer)
        passed: list[tuple[_Heap, Entry]] = []
        found = None
        unplaced = self._first_unplaced()
        while found is None:
            parked = self._parked.get(consumer)
            mine = None if parked is None else parked.top()
            other = common.top()
            if mine is None and other is None:
                break
            if other is None or (mine is not None and place_of(mine) < place_of(other)):
                assert parked is not None
                assert mine is not None
                heap, entry = parked, mine
            else:
                heap, entry = common, other
            if unplaced is not None and place_of(unplaced) < place_of(entry):
                break
            heap.pop()
            if consumer in self._excluded.get(entry, ()):
                passed.append((heap, entry))
            elif entry.group is None or self._may_have(consumer, entry, idle):
                found = entry
            else:
                self._left -= 1
                if self._left <= 0:
                    # The rest of them is parked in the next turn.
                    self.whole.due()
                    break
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
