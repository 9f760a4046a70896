"""Messages that ask for more than their turn: when they expire, when they may go, and what they replace.

Rules:
1. A message's own time to live is raised to the address's minimum and lowered to its maximum. One that has
   none is given the maximum, or the minimum where that alone is set.
2. Time runs from the arrival that the journal keeps, so a restart does not extend the time to live. While the
   node runs, times to live and delays keep their length although the wall clock may be set
   (``Core.steady_us``); times of day are the wall clock's.
3. Nothing is handed out after its time; what has expired goes to the expiry address, or is dropped and
   counted.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.sections import Sections
from enmasse.messaging.facts import known_facts
from enmasse.messaging.log.entry import OUT, READY, Entry, SpecialEntry, with_ttl
from enmasse.messaging.part import Part
from enmasse.messaging.queues.jobs import JOBS_UNITS, TAKE_UNITS, Search
from enmasse.messaging.queues.redelivery import move

if TYPE_CHECKING:
    from enmasse.messaging.facts import Facts
    from enmasse.messaging.queues.backlog import Backlog


SWEEP_US = 30_000_000
"""The longest time between two searches for expired messages in the part of a queue that is on disk."""

LEAST_SWEEP_US = 1_000_000
"""The shortest."""

RETRY_US = 1_000_000
"""Microseconds until another check of a message that expired while a receiver had it."""


class Timing(Part["Backlog"]):
    """The special messages of one queue or subscription."""

    __slots__ = (
        "_arrived", "_count", "_dates", "_heap", "_held", "_is_sweeping", "_noted", "_soonest_us",
        "_sweep_us", "has_ttl", "is_wanted",
    )  # fmt: skip

    def __init__(self, backlog: Backlog) -> None:
        super().__init__(backlog)
        # Most have no such messages: the lists are made when they are needed.
        self._held: list[tuple[int, Entry]] | tuple[()] = ()
        """Messages given back in this turn, and how long they are to wait from its end."""
        self._noted: list[SpecialEntry] | tuple[()] = ()
        """Messages that came in this turn, and wait for their commit."""
        self._arrived: list[SpecialEntry] | tuple[()] = ()
        """Messages that came in this turn, whose clock starts at its end."""
        self._heap: list[tuple[int, int, bool, Entry]] | tuple[()] = ()
        """Times by the steady clock, a number, true for an expiry and false for a wait, and the message."""
        self._dates: list[tuple[int, int, bool, Entry]] | tuple[()] = ()
        """The same by the wall clock."""
        self._count = 0
        self._is_sweeping = False
        self._sweep_us = 0
        self._soonest_us = 0
        """The time when the next message on disk expires, as far as the sweep that runs has seen; 0 is never."""
        self.has_ttl = False
        """True if messages with a time to live may lie on disk."""
        self.is_wanted = False
        """True if there is anything to do in a turn, or for every message."""

    def configure(self) -> None:
        """Apply the address's changed options."""
        options = self.whole.options
        if options.ttl_maximum or options.ttl_minimum or options.last_value_key:
            self.is_wanted = True
        if options.ttl_maximum or options.ttl_minimum:
            self.has_ttl = True

    def loaded(self) -> None:
        """Note that messages lie on disk since before the node's start, which were not searched for expired ones."""
        self.is_wanted = self.has_ttl = True

    def make_entry(self, payload: bytes, producer: Any, producer_id: int, facts: Facts, since_us: int = 0) -> Entry:
        """Return an entry for a message that is not plain, or of an address that checks every message.

        Args:
            payload: the message.
            producer: as of an entry.
            producer_id: as of an entry.
            facts: its wishes.
            since_us: the time at which it arrived, by the core's steady clock; 0 is in this turn.
        """
        options = self.whole.options
        if facts.is_plain and not (options.ttl_maximum or options.ttl_minimum or options.last_value_key):
            return Entry(payload, producer, producer_id)
        self.is_wanted = True
        entry = SpecialEntry(payload, producer, producer_id, facts)
        entry.since_us = since_us
        if facts.ttl_ms or facts.expires_ms:
            self.has_ttl = True
        if options.last_value_key:
            entry.key = key_of(payload, options.last_value_key)
        return entry

    def note(self, entry: Entry) -> None:
        """Note a message that is to be written before anything else."""
        if isinstance(entry, SpecialEntry):
            self._noted = self._noted or []
            self._noted.append(entry)

    def arrived(self, entry: Entry) -> None:
        """Note that a special message is in memory and in order."""
        assert isinstance(entry, SpecialEntry)
        facts = entry.facts
        if entry.key is not None:
            self._replace(entry)
        if entry.priority != 4 or entry.group is not None:
            # Also for one that is held: when its time comes, it is put back as any other.
            self.whole.arrange()
        options = self.whole.options
        is_held = bool(facts.delivery_time_ms or facts.delivery_delay_ms)
        if is_held or facts.ttl_ms or facts.expires_ms or options.ttl_maximum or options.ttl_minimum:
            self._arrived = self._arrived or []
            self._arrived.append(entry)
        if is_held:
            entry.state = OUT
        else:
            self._release(entry)

    def _replace(self, entry: SpecialEntry) -> None:
        """Replace an older message of the same key, as only the latest is kept."""
        backlog = self.whole
        before = backlog.latest.get(entry.key)
        backlog.latest[entry.key] = entry
        if before is not None and before.state == READY:
            backlog.settle(before)

    def forget(self, entry: Entry) -> None:
        """Forget a special message that is finished with."""
        backlog = self.whole
        if entry.key is not None and backlog.latest.get(entry.key) is entry:
            del backlog.latest[entry.key]
        if backlog.order is not None:
            backlog.order.forget(entry)

    def _release(self, entry: SpecialEntry) -> None:
        """Make a message available."""
        backlog = self.whole
        entry.state = READY
        if backlog.order is None:
            backlog.line_up(entry)
        else:
            backlog.order.add(entry)

    def hold(self, entry: Entry, wait_us: int) -> None:
        """Hand a message out again, but not now."""
        entry.state = OUT
        self.is_wanted = True
        self._held = self._held or []
        self._held.append((wait_us, entry))
        self.whole.due()

    def held(self) -> list[Entry]:
        """Return the messages in memory that are not to be handed out yet."""
        waits = [entry for _, _, is_end, entry in (*self._heap, *self._dates) if not is_end]
        waits += self._arrived
        waits += [entry for _, entry in self._held]
        return [entry for entry in dict.fromkeys(waits) if entry.state == OUT and entry.sink is None]

    def _push(self, when: int, entry: Entry, *, is_end: bool, is_dated: bool = False) -> None:
        self._count += 1
        heap = self._dates if is_dated else self._heap
        if isinstance(heap, tuple):
            heap = []
            if is_dated:
                self._dates = heap
            else:
                self._heap = heap
        heappush(heap, (when, self._count, is_end, entry))

    def run(self, now: float) -> None:
        """Do what is due; the core's clocks are those of this turn."""
        backlog = self.whole
        core = backlog.core
        steady = core.steady_us
        if self._noted:
            noted, self._noted = self._noted, ()
            for special in noted:
                special.since_us = special.since_us or steady
        if self._arrived:
            arrived, self._arrived = self._arrived, ()
            for special in arrived:
                self._start(special, steady)
        if self._held:
            held, self._held = self._held, ()
            for wait_us, back in held:
                self._push(steady + wait_us, back, is_end=False)
        left = JOBS_UNITS
        for is_dated, clock in ((False, steady), (True, core.wall_us)):
            heap = self._dates if is_dated else self._heap
            while heap and heap[0][0] <= clock and left > 0:
                left -= TAKE_UNITS
                _, _, is_end, entry = heappop(heap)
                if is_end:
                    self._end(entry, steady)
                elif entry.state == OUT and entry.sink is None:
                    backlog.put_back(entry)
            if heap:
                core.schedule(backlog, now + max(0, heap[0][0] - clock) / 1e6)
        core.units += JOBS_UNITS - left
        pager = backlog.pager
        if pager is None:
            return
        for scheduled in pager.scheduled:
            wait_us = scheduled.take_due()
            if wait_us:
                core.schedule(backlog, now + wait_us / 1e6)
        if self.has_ttl and pager.is_behind:
            if steady >= self._sweep_us and not self._is_sweeping:
                self._is_sweeping = True
                self._soonest_us = 0
                # What comes meanwhile, or is seen, says so again; what is on its way to the disk may not be seen.
                options = backlog.options
                is_coming = bool(backlog.waiting) or backlog.is_flying
                self.has_ttl = bool(options.ttl_maximum or options.ttl_minimum) or is_coming
                pager.sweep(Search(self._is_late, self.expire), self._swept)
            elif not self._is_sweeping:
                core.schedule(backlog, now + (self._sweep_us - steady) / 1e6)

    def _swept(self) -> None:
        self._is_sweeping = False
        steady = self.whole.core.steady_us
        soonest = self._soonest_us or steady + SWEEP_US
        self._sweep_us = min(max(soonest, steady + LEAST_SWEEP_US), steady + SWEEP_US)
        self.whole.due()

    def _is_late(self, payload: bytes, _attempts: int, since_us: int, _offset: int) -> bool:
        core = self.whole.core
        facts = known_facts(payload)
        ends = [self._end_of_life(facts, since_us)]
        if facts.expires_ms:
            ends.append(facts.expires_ms * 1_000 - core.shift_us)
        expires = min(filter(None, ends), default=0)
        if not expires:
            return False
        self.has_ttl = True
        if expires <= core.steady_us:
            return True
        if not self._soonest_us or expires < self._soonest_us:
            self._soonest_us = expires
        return False

    def _end_of_life(self, facts: Facts, since_us: int) -> int:
        """Return when a message's time to live ends; 0 is never."""
        options = self.whole.options
        ttl = facts.ttl_ms
        if not ttl:
            ttl = options.ttl_maximum or options.ttl_minimum
        elif options.ttl_maximum and ttl > options.ttl_maximum:
            ttl = options.ttl_maximum
        elif ttl < options.ttl_minimum:
            ttl = options.ttl_minimum
        return since_us + ttl * 1_000 if ttl else 0

    def _start(self, entry: SpecialEntry, steady: int) -> None:
        if entry.state not in (READY, OUT):
            return
        facts = entry.facts
        since = entry.since_us = entry.since_us or steady
        entry.expires_us = self._end_of_life(facts, since)
        if entry.expires_us:
            self._push(entry.expires_us, entry, is_end=True)
        if facts.expires_ms:
            self._push(facts.expires_ms * 1_000, entry, is_end=True, is_dated=True)
        if facts.delivery_delay_ms:
            self._push(since + facts.delivery_delay_ms * 1_000, entry, is_end=False)
        elif facts.delivery_time_ms:
            self._push(facts.delivery_time_ms * 1_000, entry, is_end=False, is_dated=True)

    def _end(self, entry: Entry, steady: int) -> None:
        if entry.state not in (READY, OUT):
            return
        if entry.sink is not None:
            self._push(steady + RETRY_US, entry, is_end=True)
        elif self.is_over(entry):
            self.expire(entry)
        elif isinstance(entry, SpecialEntry) and entry.facts.expires_ms:
            # The wall clock was set back while a receiver had it.
            self._push(entry.facts.expires_ms * 1_000, entry, is_end=True, is_dated=True)

    def is_over(self, entry: Entry) -> bool:
        """Return whether a message's time is over."""
        if not isinstance(entry, SpecialEntry):
            return False
        core = self.whole.core
        return 0 < entry.expires_us <= core.steady_us or 0 < entry.facts.expires_ms * 1_000 <= core.wall_us

    def is_too_late(self, entry: Entry) -> bool:
        """Return whether a message that was to be handed out has expired instead."""
        if self.is_over(entry):
            self.expire(entry)
            return True
        return False

    def expire(self, entry: Entry) -> None:
        """Expire a message."""
        backlog = self.whole
        backlog.expired += 1
        if backlog.options.expiry:
            move(backlog, entry, backlog.options.expiry, "expired")
        else:
            backlog.settle(entry)

    def outgoing(self, entry: Entry) -> bytes:
        """Return the message as a receiver gets it, with the time to live that is left."""
        if not isinstance(entry, SpecialEntry) or entry.facts.expires_ms:
            return entry.payload
        # One that was read from disk for who has it already is not in order, and so has no end yet.
        expires_us = entry.expires_us or (self._end_of_life(entry.facts, entry.since_us) if entry.since_us else 0)
        if not expires_us:
            return entry.payload
        left = (expires_us - self.whole.core.steady_us) // 1_000
        return with_ttl(entry.payload, max(1, left))


def key_of(payload: bytes, name: str) -> Any:
    """Return the key of the last-value option: the subject or an application property; ``None`` if it is missing."""
    try:
        sections = Sections(payload)
        if name == "subject":
            return sections.properties.subject
        key = sections.application_properties.get(name)
    except DecodeError:
        return None
    return key if isinstance(key, str | int | bytes | bool | float) else None
