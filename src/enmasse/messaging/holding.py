"""The messages that a queue or subscription has on hand, and the account of them.

Rules:
1. What comes back takes its old place.
2. As long as there is room in memory a message can be handed out before it is written. Beyond the window
   messages wait on disk (``paging``), whatever their durability, and come back in order.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.delivery import ACCEPTED, RELEASED
from enmasse.messaging.facts import PLAIN, Facts, known_facts
from enmasse.messaging.options import StoredOptions
from enmasse.messaging.queue_entry import (
    DONE,
    ENTRY_OVERHEAD_BYTES,
    OUT,
    READY,
    STAGED,
    WAITING,
    Entry,
    FrameRef,
    VolatileRow,
)
from enmasse.wire.amqp.sections import is_durable

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.message_log import MessageLog
    from enmasse.messaging.ordering import Ordering
    from enmasse.messaging.paging import Pager
    from enmasse.messaging.space import Space
    from enmasse.messaging.timing import Timing

__all__ = ["Holding"]

_SEQ = attrgetter("seq")


class Holding(Address):
    """What a queue or subscription holds.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        owner: under which its settled rows are kept.
        options: what it does beyond storing.
    """

    deleted_state: Any = RELEASED
    """What senders hear of messages that a deletion kept from being stored."""
    timing: Timing

    __slots__ = (
        "_flying", "_memory_log", "_staying", "budget", "bytes_stored", "damaged", "dead_lettered", "depth",
        "expired", "frames", "inherited_below", "is_closed", "is_spilling", "latest", "log", "max_bytes", "options",
        "order", "overhead", "owner", "pager", "ready", "resident_bytes", "returned", "seq", "space", "timing",
        "waiting", "window",
    )  # fmt: skip

    def __init__(self, core: Core, name: str, owner: tuple[int, int], options: StoredOptions) -> None:
        super().__init__(core, name)
        self.log: MessageLog | None = None
        self.owner = owner
        self.options = options
        self.max_bytes = 0
        self.space: Space | None = None
        self.budget: Space | None = None
        """The space, if what it may store is limited."""
        self.overhead = ENTRY_OVERHEAD_BYTES
        """What a message counts for beside its payload."""
        self.depth = 0
        self.bytes_stored = 0
        self.resident_bytes = 0
        """What is in memory, overhead included."""
        self.window = core.window_bytes
        """What may be in memory before messages wait on disk."""
        self.seq = 0
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """What came back, by its old place."""
        self.order: Ordering | None = None
        """In place of the two above once more than the order of arrival counts."""
        self.waiting: list[Entry] = []
        """Those that cannot be handed out before they are written, and are in no frame yet."""
        self._flying: list[Entry] = []
        """The same, in a frame that is on its way, and to be let go then."""
        self._staying: list[Entry] = []
        """The same, to stay in memory."""
        self.frames: dict[int, FrameRef] = {}
        """Frames of which something is in memory, by first offset."""
        self.is_spilling = False
        """Whether what comes now waits on disk."""
        self.is_closed = False
        self.inherited_below = 0
        """Below this offset are messages that an earlier life of the node left, some of them not handed out yet."""
        self.damaged = 0
        """Messages that could not be read from disk."""
        self.expired = 0
        self.dead_lettered = 0
        self.latest: dict[Any, Entry] = {}
        """The latest message of each key, where only that is kept."""
        self._memory_log: MessageLog | None = None
        self.pager: Pager | None = None

    @property
    def free_bytes(self) -> int:
        """What may still be stored."""
        free = 0 if self.core.is_pressed else self.max_bytes - self.bytes_stored
        if self.budget is not None:
            return min(free, self.budget.max_bytes - self.budget.bytes_stored)
        return free

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more could be stored now."""
        return self.options.full == "drop-oldest" or size + self.overhead <= self.free_bytes

    def writes(self, payload: bytes) -> bool:
        """Whether a message is written in any case."""
        storage = self.options.storage
        return self.log is not None and (storage == "durable" or (storage == "message" and is_durable(payload)))

    def enqueue(
        self,
        payload: bytes,
        producer: Any,
        producer_id: int,
        *,
        durable: bool,
        facts: Facts = PLAIN,
        is_staged: bool = False,
        row: Any = None,
    ) -> Entry:
        """Add a message at the end.

        Args:
            payload: the message.
            producer: has a ``settle(id, state)`` that is to be told when the message is stored or finished with.
            producer_id: the id for that call.
            durable: whether to write it in any case.
            facts: what the message asks for.
            is_staged: whether to hand it out only once it is stored.
            row: what the log writes, where it is not this entry.
        """
        timing = self.timing
        is_plain = facts.is_plain and not timing.is_wanted
        if is_plain:
            entry = Entry(payload, producer, producer_id)
        else:
            entry = timing.make_entry(payload, producer, producer_id, facts)
        size = len(payload)
        self.depth += 1
        self.bytes_stored += size + self.overhead
        if self.budget is not None:
            self.budget.bytes_stored += size + self.overhead
        log = self.log
        if self.is_spilling or is_staged:
            entry.state = STAGED if is_staged else WAITING
            entry.is_resident = False
            self.waiting.append(entry)
            if not is_plain:
                timing.note(entry)
            if row is None and log is not None:
                log.add(entry if durable else VolatileRow(entry))
        else:
            if durable and row is None and log is not None:
                log.add(entry)
            if is_plain and self.order is None:
                self.seq = entry.seq = self.seq + 1
                self.resident_bytes += size + ENTRY_OVERHEAD_BYTES
                self.ready.append(entry)
            else:
                self.add(entry)
            if self.resident_bytes > self.window and log is not None and not self.options.last_value_key:
                self.is_spilling = True
        if not self.is_due:
            self.is_due = True
            self.core.due(self)
        return entry

    def add(self, entry: Entry) -> None:
        """Put a message that is in memory at the end of those that can be handed out."""
        self.seq += 1
        entry.seq = self.seq
        entry.state = READY
        entry.is_resident = True
        self.resident_bytes += len(entry.payload) + ENTRY_OVERHEAD_BYTES
        if entry.is_special:
            self.timing.arrived(entry)
        elif self.order is None:
            self.ready.append(entry)
        else:
            self.order.add(entry)

    def take(self, payload: bytes, producer: Any, *, is_staged: bool = False) -> None:
        """Add a message from within; ``producer`` is told when it is stored, if it is to be written."""
        is_written = producer is not None
        self.enqueue(payload, producer, 0, durable=is_written, facts=known_facts(payload), is_staged=is_staged)

    def settle(self, entry: Entry) -> None:
        """A message is finished with."""
        entry.state = DONE
        size = len(entry.payload)
        self.depth -= 1
        self.bytes_stored -= size + self.overhead
        if self.budget is not None:
            self.budget.bytes_stored -= size + self.overhead
        if entry.is_resident:
            self.resident_bytes -= size + ENTRY_OVERHEAD_BYTES
        if entry.is_special:
            self.timing.gone(entry)
        if entry.producer is not None:
            entry.producer.settle(entry.producer_id, ACCEPTED)
            entry.producer = None
        frame = entry.frame
        if frame is not None:
            frame.live -= 1
            frame.settled.append(entry.row)
            if not frame.is_touched:
                frame.log.touch(frame)
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def refuse(self, entry: Entry) -> None:
        """Give a message back to its sender."""
        producer, entry.producer = entry.producer, None
        self.settle(entry)
        if producer is not None:
            producer.settle(entry.producer_id, self.deleted_state if self.is_closed else RELEASED)

    def put_back(self, entry: Entry) -> None:
        """A message can be handed out again: it takes its old place."""
        if entry.is_refused:
            self.refuse(entry)
            return
        if entry.key is not None and self.latest.get(entry.key) is not entry:
            # A newer message of its key came meanwhile.
            self.settle(entry)
            return
        entry.state = READY
        if self.order is None:
            insort(self.returned, entry, key=_SEQ)
        else:
            self.order.add(entry)
        self.due()

    def next_entry(self) -> Entry | None:
        """Take the oldest message that waits."""
        if self.order is not None:
            return self.order.take_oldest()
        ready, returned = self.ready, self.returned
        while ready or returned:
            is_return = returned and (not ready or returned[0].seq < ready[0].seq)
            entry = returned.pop(0) if is_return else ready.popleft()
            if entry.state == READY:
                entry.state = OUT
                return entry
        return None

    def count_bytes(self, change: int) -> None:
        """Correct the account of what is stored."""
        self.bytes_stored += change
        if self.budget is not None:
            self.budget.bytes_stored += change

    def replace_payload(self, entry: Entry, payload: bytes) -> None:
        """A message was changed on its way."""
        change = len(payload) - len(entry.payload)
        entry.payload = payload
        entry.body_at = 0
        self.count_bytes(change)
        if entry.is_resident:
            self.resident_bytes += change

    def note_attempts(self, entry: Entry) -> None:
        """Have the failed deliveries of a message survive a restart."""
        ref = entry.frame
        if ref is not None:
            ref.note_attempts(entry.row, entry.attempts)
            ref.give_back(entry.row)
            ref.log.touch(ref)

    def join(self, space: Space) -> None:
        """Be one of a space's addresses, whose limits count."""
        self.space = space
        self.budget = space if space.max_bytes else None
        if self.budget is not None:
            space.bytes_stored += self.bytes_stored

    def counts(self) -> dict[str, int]:
        """With what is stored."""
        return super().counts() | {
            "messagesStored": self.depth,
            "bytesStored": self.bytes_stored,
            "bytesInMemory": self.resident_bytes,
            "damaged": self.damaged,
            "expired": self.expired,
            "deadLettered": self.dead_lettered,
        }
