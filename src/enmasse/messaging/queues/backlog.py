"""Queues and subscriptions: the messages that one of them has on hand, their account, and their dispatch.

Rules:
1. Messages are handed out in the order of their arrival, to the receiver with the fewest unsettled ones, unless
   more is asked for (``ordering``). A message that is given back takes its old place.
2. As long as there is room in memory a message can be handed out before it is written. Beyond the window
   messages wait on disk (``paging``), whatever their durability, and return in order.
3. A row is settled in the frame that holds it; a message that was finished with before its frame was cut is
   never written (``log_share``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED, RELEASED, AmqpError
from enmasse.message.sections import is_durable
from enmasse.messaging.address import LOOKS_OF_UNIT, MAX_LOOKS, Address, AttachOptions, Declaration
from enmasse.messaging.core import MAX_UNITS
from enmasse.messaging.delivery import FAILED, SMALL_BYTES, UNSTORED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import PLAIN, Facts, known_facts
from enmasse.messaging.log.entry import (
    DONE,
    ENTRY_OVERHEAD_BYTES,
    MOVING,
    OUT,
    READY,
    ROW_BYTES,
    STAGED,
    WAITING,
    Entry,
    FrameRef,
    VolatileRow,
    with_attempts,
)
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.queues.browse import ID_FILTER, START_FILTER, Browser
from enmasse.messaging.queues.consumer import BacklogConsumer, InheritedDispatch
from enmasse.messaging.queues.jobs import PIECE_UNITS, Job, Jobs
from enmasse.messaging.queues.log_share import LogShare
from enmasse.messaging.queues.ordering import Ordering
from enmasse.messaging.queues.paging import Pager
from enmasse.messaging.queues.redelivery import is_spent, make_dead_letter
from enmasse.messaging.queues.timing import Timing
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, selector_of
from enmasse.messaging.transaction import OutcomeLog
from enmasse.model.kinds.address_settings import AddressSettings

# A backlog and its parts (paging, timing, order, receivers, ...) know each other: they are one design, each part with
# a subject of its own.
if TYPE_CHECKING:
    from enmasse.messaging.address import Account, AddressSpace
    from enmasse.messaging.core import Core, Log

UNSTORED_S = 10.0
"""Seconds for a receiver to settle a message that could not be written; then its sender has an outcome anyway."""

DEFAULT_MAX_BYTES = 4 << 30
"""Bytes that a queue or subscription may store unless its settings say otherwise."""

_MEMORY_MAX_BYTES = 128 << 20
"""The same for one that keeps its messages in memory alone."""

_SEQ = attrgetter("seq")


class _Nothing(deque[Any]):
    """The messages of those that have none: a deque of its own takes more room than all else of an idle one."""

    __slots__ = ()

    def append(self, _entry: Any) -> None:
        """Refuse, as it is shared."""
        raise TypeError("no message can be added to what all idle ones share")


NOTHING: deque[Any] = _Nothing()


def _lies_in(entries: Sequence[Entry], entry: Entry) -> bool:
    """Return whether a message has kept its place among those, which are in order: a job may have taken it there."""
    if not entries or entry.seq < entries[0].seq:
        return False
    at = bisect_left(entries, entry.seq, key=_SEQ)
    return at < len(entries) and entries[at] is entry


class Backlog(Address):
    """The messages of one queue or subscription.

    Args:
        core: the core whose turn and journal it takes part in.
        name: the address.
        log: the log to which its messages are written; ``None`` keeps them in memory.
        owner: the key under which its settled rows are kept.
        options: its settings beyond storing.
    """

    deleted_state: Any = RELEASED
    """The outcome of messages that a deletion kept from being stored."""
    depth: int
    can_resume = True
    is_lasting = True
    """True if it outlives its receivers."""
    is_shared = False
    """True if others have messages in its log."""
    is_trimming = False
    """True if the oldest messages are brought into memory to be dropped, as there are too many."""

    __slots__ = (
        "__weakref__", "_draining", "_memory_log", "browsers", "budget", "bytes_stored", "damaged", "dead_lettered",
        "depth", "expired", "first_offset", "frames", "inherited", "is_closed", "is_spilling", "jobs", "latest",
        "log", "max_bytes", "options", "order", "overhead", "owner", "pager", "ready", "resident_bytes", "returned",
        "selectors_exceeded", "seq", "share", "space", "timing", "waiting", "window",
    )  # fmt: skip

    def __init__(
        self, core: Core, name: str, log: MessageLog | None, owner: tuple[int, int], options: AddressSettings
    ) -> None:
        super().__init__(core, name)
        self.log: MessageLog | None = None
        self.share: LogShare | None = None
        self.owner = owner
        self.options = options
        self.max_bytes = 0
        self.space: AddressSpace | None = None
        self.budget: Account | None = None
        """The space, if its storage is limited; of a session's subscription, the session."""
        self.overhead = ENTRY_OVERHEAD_BYTES
        """Bytes that each message counts for beside its payload."""
        self.depth = 0
        self.bytes_stored = 0
        self.resident_bytes = 0
        """Bytes in memory, overhead included."""
        self.window = core.window_bytes
        """Bytes in memory beyond which messages wait on disk."""
        self.seq = 0
        self.ready: deque[Entry] = NOTHING
        """Messages that can be handed out, in the order of their arrival; added by ``line_up``."""
        self.returned: list[Entry] = []
        """Messages that were given back, ordered by their old places."""
        self.order: Ordering | None = None
        """Replaces ``ready`` and ``returned`` once more than the order of arrival counts."""
        self.waiting: list[Entry] = []
        """Messages that cannot be handed out before they are written, and are in no frame yet."""
        self.frames: dict[int, FrameRef] = {}
        """Frames of which something is in memory, by first offset."""
        self.first_offset = 0
        """The offset in the log at which its messages begin."""
        self.is_spilling = False
        """True while new messages wait on disk."""
        self.is_closed = False
        self.inherited: InheritedDispatch | None = None
        """Hands out the messages that an earlier run of the node left, until all of them were handed out once."""
        self.damaged = 0
        """Messages that could not be read from disk."""
        self.expired = 0
        self.dead_lettered = 0
        self.selectors_exceeded = 0
        """The times that a message was too much work for a selector."""
        self.latest: dict[Any, Entry] = {}
        """The latest message of each key, if only that is kept."""
        self._memory_log: MessageLog | None = None
        self.pager: Pager | None = None
        self.jobs: Jobs | None = None
        self.browsers: list[Browser] = []
        self._draining: list[BacklogConsumer] = []
        self.timing = Timing(self)
        if log is not None:
            self.bind(log)
        self.configure(options)

    def bind(self, log: MessageLog) -> None:
        """Have messages written to a log from now on."""
        self.log = log
        self.overhead = ROW_BYTES
        self.pager = Pager(self, log)
        self.share = LogShare(self, log)
        log.adopt(self.share)

    def apply(self, declaration: Declaration) -> None:
        """Apply a changed declaration; how it stores stays as it is."""
        super().apply(declaration)
        self.configure(declaration.settings)

    def configure(self, options: AddressSettings) -> None:
        """Change what it does beyond storing; how it stores stays as it is."""
        self.options = options
        self.max_bytes = options.max_bytes or (_MEMORY_MAX_BYTES if self.log is None else DEFAULT_MAX_BYTES)
        self.timing.configure()
        self.due()

    # Room

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be stored."""
        free = 0 if self.core.is_pressed else self.max_bytes - self.bytes_stored
        if self.budget is not None:
            return min(free, self.budget.max_bytes - self.budget.bytes_stored)
        return free

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more could be stored now."""
        return self.options.full_policy == "drop-oldest" or size + self.overhead <= self.free_bytes

    def count_bytes(self, change: int) -> None:
        """Correct the account of what is stored."""
        self.bytes_stored += change
        if self.budget is not None:
            self.budget.bytes_stored += change

    def stored(self) -> Backlog:
        """Return itself."""
        return self

    def join(self, space: AddressSpace) -> None:
        """Join a space, whose limits count."""
        self.space = space
        self.budget = space if space.max_bytes else None
        if self.budget is not None:
            space.bytes_stored += self.bytes_stored

    def counts(self) -> dict[str, int]:
        """Return the counters, with those of what is stored."""
        return super().counts() | {
            "messagesStored": self.depth,
            "bytesStored": self.bytes_stored,
            "bytesInMemory": self.resident_bytes,
            "damaged": self.damaged,
            "expired": self.expired,
            "deadLettered": self.dead_lettered,
            "selectorsExceeded": self.selectors_exceeded,
        }

    # Messages

    def writes(self, payload: bytes) -> bool:
        """Return whether a message is written in any case."""
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
            producer: has a ``settle(id, state)`` that is called when the message is stored or finished with.
            producer_id: the id for that call.
            durable: whether to write it in any case.
            facts: the facts of the message.
            is_staged: whether to hand it out only once it is stored.
            row: the row that the log writes, where it is not this entry.
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
                if self.ready is NOTHING:
                    self.ready = deque()
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
            self.line_up(entry)
        else:
            self.order.add(entry)

    def line_up(self, entry: Entry) -> None:
        """Add a message to those that can be handed out in the order of their arrival."""
        if self.ready is NOTHING:
            self.ready = deque()
        self.ready.append(entry)

    def take(self, payload: bytes, producer: Any, *, is_staged: bool = False) -> None:
        """Add a message from within the node; ``producer`` is settled when it is stored, if it is to be written."""
        is_written = producer is not None
        self.enqueue(payload, producer, 0, durable=is_written, facts=known_facts(payload), is_staged=is_staged)

    def settle(self, entry: Entry) -> None:
        """Finish with a message."""
        entry.state = DONE
        size = len(entry.payload)
        self.depth -= 1
        self.bytes_stored -= size + self.overhead
        if self.budget is not None:
            self.budget.bytes_stored -= size + self.overhead
        if entry.is_resident:
            self.resident_bytes -= size + ENTRY_OVERHEAD_BYTES
        if entry.is_special:
            self.timing.forget(entry)
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
        """Make a message available again, at its old place."""
        if entry.is_refused:
            self.refuse(entry)
            return
        if entry.key is not None and self.latest.get(entry.key) is not entry:
            # A newer message of its key came meanwhile.
            self.settle(entry)
            return
        entry.state = READY
        if self.order is not None:
            self.order.add(entry)
        elif not (_lies_in(self.ready, entry) or _lies_in(self.returned, entry)):
            insort(self.returned, entry, key=_SEQ)
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

    def in_memory(self, after: int | None = None) -> list[Entry]:
        """Return the messages in memory in the order of their arrival; some of them may not be ``READY`` any more.

        Args:
            after: the place behind which they lie; these can all be handed out. ``None`` is for all.
        """
        entries = [*self.returned, *self.ready] if self.order is None else self.order.entries()
        if after is not None:
            entries = [entry for entry in entries if entry.seq > after and entry.state == READY]
        return sorted(entries, key=_SEQ)

    def drop_done(self, *, is_all: bool) -> None:
        """Forget messages that are finished with and have kept their places: the oldest ones, or all of them."""
        ready = self.ready
        while ready and ready[0].state == DONE:
            ready.popleft()
        if is_all and ready:
            self.ready = deque([entry for entry in ready if entry.state != DONE])
        if is_all and self.returned:
            self.returned = [entry for entry in self.returned if entry.state != DONE]

    def do(self, job: Job) -> None:
        """Begin with work that goes on from turn to turn."""
        if self.jobs is None:
            self.jobs = Jobs(self)
        self.jobs.add(job)

    # Receivers

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filter for selectors; see ``Address``."""
        return (SELECTOR_FILTER, START_FILTER, ID_FILTER) if options.browse else (SELECTOR_FILTER,)

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver.

        Raises:
            AttachError: there are as many receivers as the address allows, or its filter is malformed.
        """
        selector = selector_of(options.filters)
        if selector is not None:
            selector.tally = self
        if options.browse:
            browser = Browser(self, port, options, selector)
            self.browsers.append(browser)
            return browser
        limit = self.options.max_consumers
        if limit and len(self.consumers) >= limit:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"{self.kind} {self.name!r} has {len(self.consumers)} receivers, its limit",
            )
        consumer = BacklogConsumer(self, port, options.presettle, selector, options.capabilities)
        if selector is not None:
            self.arrange().select(consumer)
        return self.add_consumer(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a receiver: its unsettled messages go back, as a failed attempt."""
        if isinstance(consumer, Browser):
            if consumer in self.browsers:
                self.browsers.remove(consumer)
            return
        for entry in consumer.port.take_unsettled():
            consumer.on_outcome(entry, FAILED)
        if isinstance(consumer, BacklogConsumer):
            if self.order is not None:
                self.order.remove(consumer)
            if consumer in self._draining:
                self._draining.remove(consumer)
        super().remove_consumer(consumer)

    def receivers(self) -> list[Consumer]:
        """Return every receiver's end, browsers included."""
        return [*self.consumers, *self.browsers]

    def drain(self, consumer: BacklogConsumer) -> None:
        """In this turn, hand out what there is, then use up the credit that is left [AMQP 2.6.7]."""
        if consumer not in self._draining:
            self._draining.append(consumer)
        self.due()

    # Dispatch

    def choose_first(self) -> Consumer | None:
        """Return the receiver that came first, if it has credit."""
        first = self.consumers[0] if self.consumers else None
        return first if first is not None and first.port.credit > 0 and not first.is_blocked else None

    def arrange(self) -> Ordering:
        """Hand out by more than the order of arrival from now on."""
        if self.order is None:
            self.order = Ordering(self, self.in_memory())
            self.ready.clear()
            self.returned.clear()
        return self.order

    def dispatch(self) -> bool:
        """Hand out what waits, oldest first, as far as receivers take it; return whether that is all in this turn."""
        if self.order is not None:
            return self.order.dispatch()
        ready = self.ready
        choose = self.choose_first if self.options.exclusive else self.choose
        most = min(MAX_LOOKS // (len(self.consumers) or 1) + 1, MAX_UNITS)
        for number in range(most):
            if not (ready or self.returned):
                self.core.units += number
                return True
            consumer = choose()
            if consumer is None:
                self.core.units += number
                return True
            if self.returned:
                entry = self.next_entry()
                if entry is None:
                    return True
            else:
                entry = ready.popleft()
                if entry.state != READY:
                    continue
                entry.state = OUT
            if len(entry.payload) > SMALL_BYTES and consumer.must_wait(len(entry.payload)):
                self.put_back(entry)
                continue
            self.deliver(entry, consumer)
        # To choose among many receivers takes its time, as do many messages: the rest goes in the next turn.
        self.core.units += MAX_LOOKS // LOOKS_OF_UNIT
        self.due()
        return False

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        """Send one message to one receiver."""
        payload = entry.payload
        if entry.is_special:
            if self.timing.is_too_late(entry):
                return
            payload = self.timing.outgoing(entry)
        if entry.attempts:
            if is_spent(self, entry):
                # The last attempt ended with the node that made it.
                make_dead_letter(self, entry, "attempts", {})
                return
            payload = with_attempts(payload, entry.attempts)
        consumer.deliveries += 1
        if consumer.presettle:
            consumer.send(None, payload, True)
            if consumer.is_blocked and consumer.port.follow(entry):
                # It belongs to the receiver once it has gone out.
                consumer.unsettled += 1
                entry.sink = consumer
            else:
                self.settle(entry)
        else:
            consumer.unsettled += 1
            entry.sink = consumer
            if entry.frame is not None:
                entry.frame.hand_out(entry.row)
            consumer.send(entry, payload, False)

    def is_for_nobody(self, entry: Entry, consumer: BacklogConsumer) -> bool:
        """Return true if a message that is too large for a receiver is dropped; it waits for one that takes it."""
        return False

    def redelivered(self, entry: Entry) -> bytes:
        """Return a message as it is sent again to a receiver that has it: with the time to live that is left."""
        payload = self.timing.outgoing(entry) if entry.is_special else entry.payload
        return with_attempts(payload, entry.attempts) if entry.attempts else payload

    def on_turn(self, now: float) -> None:
        """Hand out, then read on from disk as far as there is room."""
        if self.is_closed:
            return
        if self.jobs is not None:
            self.jobs.go_on()
        if self.timing.is_wanted:
            self.timing.run(now)
        is_all = True
        if self.consumers:
            if self.order is not None:
                is_all = self.order.look_on()
            if self.inherited is not None and self.core.is_careful:
                self.inherited.dispatch()
            else:
                is_all = self.dispatch() and is_all
        if self.browsers:
            self._serve_browsers()
        pager = self.pager
        if pager is not None and (self.is_spilling or pager.at is not None or pager.waiting):
            pager.go_on()
        if self._draining and is_all and not self._is_more_coming():
            draining, self._draining = self._draining, []
            for consumer in draining:
                if consumer.is_blocked:
                    self._draining.append(consumer)
                else:
                    consumer.port.drained()
        if self.budget is not None:
            self.budget.balance(self)

    def _serve_browsers(self) -> None:
        """Let browsers have what there is, as far as this turn's work goes; who had a part comes last next time."""
        core = self.core
        for browser in list(self.browsers):
            is_all = browser.pump(max(PIECE_UNITS, MAX_UNITS - core.units))
            if not is_all:
                self.browsers.remove(browser)
                self.browsers.append(browser)
                self.due()
                if core.units >= MAX_UNITS:
                    break

    def _is_more_coming(self) -> bool:
        """Return whether there is more to hand out than is in memory: it is read from disk, or on its way there."""
        pager = self.pager
        if (self.inherited is not None and self.inherited.is_busy) or (pager is not None and pager.is_reading):
            return True
        # While the journal cannot be written the end of the wait is unknown.
        is_put_aside = self.is_spilling and bool(self.waiting) and not self.core.is_pausing
        return self.is_flying or is_put_aside

    def on_deadline(self, now: float) -> None:
        """Handle a message's expiry, or the end of its wait."""
        self.due()

    # The journal

    @property
    def is_flying(self) -> bool:
        """True while messages that left memory are on their way to the disk."""
        return self.share is not None and self.share.is_flying

    def entry_of(self, row: Any) -> Entry:
        """Return this address's entry for a row of its log."""
        entry: Entry = row.entry if type(row) is VolatileRow else row
        return entry

    def lose(self, row: Any) -> bool:
        """Undo the storing of a row that is not on disk: its sender is to send again, unless that was accepted."""
        entry = self.entry_of(row)
        if entry.state == DONE:
            return False
        entry.frame = None
        if entry.producer is None:
            return True
        self.unstore(entry)
        return False

    def unstore(self, entry: Entry) -> None:
        """Give a message that is not on disk back to its sender, if a receiver has it after a while."""
        if entry.sink is None and entry.state != MOVING:
            self.refuse(entry)
            return
        entry.is_refused = True

        def give_back() -> None:
            producer, entry.producer = entry.producer, None
            if producer is not None:
                producer.settle(entry.producer_id, UNSTORED)

        self.core.call_later(UNSTORED_S, give_back)

    def memory_log(self) -> MessageLog:
        """Return the log that decides transactions of an address that writes nothing."""
        if self._memory_log is None:
            self._memory_log = MessageLog(self.core, self, 0)
        return self._memory_log

    def enlist_settlement(self, entry: Any, done: Callable[[str | None], None]) -> Log | None:
        """Have a message that a receiver has removed with the next batch, or left as it is if that fails.

        Args:
            entry: the message, or a browser's copy of it.
            done: called once that is decided.

        Returns:
            What is written; ``None`` for a copy, which is the browser's own.
        """
        if not isinstance(entry, Entry):
            return None
        log = entry.frame.log if entry.frame is not None else self.log or self.memory_log()
        if log.is_closed:
            # The topic was deleted, and what its subscriptions had of it.
            return OutcomeLog(self.name, done)

        def decided(problem: str | None) -> None:
            if problem is not None and log.is_closed:
                done(None)
                return
            if problem is None:
                if entry.sink is not None:
                    entry.sink.unsettled -= 1
                    entry.sink = None
                self.settle(entry)
            done(problem)

        log.stage_settlement(entry, decided)
        return log

    def start_from(self, first: int | None) -> None:
        """Start with the messages on disk from this offset on; ``None`` if there are none."""
        if first is not None and self.pager is not None:
            assert self.log is not None
            self.inherited = InheritedDispatch(self, self.log)
            self.pager.load(first)
            self.timing.loaded()
            self.due()

    def close(self, condition: str, description: str) -> None:
        """Close, as the address is deleted: what is not on its way to the journal is not written any more."""
        self.is_closed = True
        if self.pager is not None:
            self.pager.close()
        if self.log is not None and self.log.belongs_to(self):
            for row in self.log.close():
                entry = self.entry_of(row)
                if entry.state != DONE and entry.producer is not None:
                    self.refuse(entry)
        if self.budget is not None:
            self.budget.bytes_stored -= self.bytes_stored
            self.budget = None
        self.space = None
        if self.jobs is not None:
            self.jobs.end()
        for browser in list(self.browsers):
            browser.port.detach(AmqpError(condition, description))
            browser.on_detached()
        super().close(condition, description)
