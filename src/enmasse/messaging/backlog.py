"""What queues and subscriptions have on hand: in memory as far as there is room, the rest on disk.

Rules:
1. Messages are handed out in the order of their arrival; what comes back takes its old place.
2. As long as there is room in memory a message is handed out before it is written. Beyond the window
   messages wait on disk (``paging``), whatever their durability, and come back in order.
3. A row is settled in the frame that holds it; a message that was finished with before its frame was cut
   is never written.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.browse import Browser
from enmasse.messaging.delivery import ACCEPTED, FAILED, RELEASED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.facts import PLAIN, Facts
from enmasse.messaging.message_log import MessageLog
from enmasse.messaging.options import DEFAULT_MAX_BYTES, MEMORY_MAX_BYTES, StoredOptions
from enmasse.messaging.ordering import Ordering
from enmasse.messaging.paging import Pager, guessed_bytes, known_facts
from enmasse.messaging.queue_entry import (
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
    with_attempts,
)
from enmasse.messaging.redelivery import come_back
from enmasse.messaging.selector import selector_of
from enmasse.messaging.timing import Timing
from enmasse.messaging.transaction import Fate
from enmasse.wire.amqp.performatives import AmqpError
from enmasse.wire.amqp.sections import is_durable

if TYPE_CHECKING:
    from enmasse.messaging.core import Core, Log
    from enmasse.messaging.selector import Selector
    from enmasse.messaging.space import Space

__all__ = ["Backlog", "BacklogConsumer", "VolatileRow"]

_SEQ = attrgetter("seq")


class VolatileRow:
    """A message that is on disk for want of memory only: a restart forgets it."""

    __slots__ = ("entry", "payload")
    is_durable = False
    body_at = 0

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.payload = entry.payload

    @property
    def state(self) -> int:
        """``DONE`` once it is finished with."""
        return self.entry.state

    def stored(self) -> None:
        """Nobody waits for that, unless it is part of a transaction."""
        self.entry.stored()


class BacklogConsumer(Consumer):
    """A receiver's end at a queue or subscription."""

    __slots__ = ("selector",)
    address: Backlog

    def __init__(self, address: Backlog, port: ConsumerPort, presettle: bool, selector: Selector | None) -> None:
        super().__init__(address, port, presettle)
        self.selector = selector

    def on_credit(self, gained: int, drain: bool) -> None:
        """Hand out more."""
        if drain:
            self.address.drain(self)
        else:
            self.address.due()

    def on_outcome(self, delivery: Entry, state: Any) -> None:
        """The receiver settled a message."""
        self.unsettled -= 1
        delivery.sink = None
        if state is ACCEPTED:
            self.address.settle(delivery)
            return
        self.count(state)
        come_back(self.address, delivery, state, self)

    def confirm(self, done: Callable[[], None]) -> None:
        """Tell once what was settled is on disk."""
        log = self.address.log
        if log is None:
            done()
        else:
            log.confirm(done)


class Backlog(Address):
    """The messages of one queue or subscription.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        log: where its messages are written; none keeps them in memory.
        owner: under which its settled rows are kept.
        options: what it does beyond storing.
    """

    deleted_state: Any = RELEASED
    """What senders hear of messages that a deletion kept from being stored."""
    is_shared = False
    """Whether others have messages in its log."""

    __slots__ = (
        "_draining", "_flying", "_memory_log", "_staying", "browsers", "budget", "bytes_stored", "damaged",
        "dead_lettered",
        "depth", "expired", "frames", "is_closed", "is_spilling", "latest", "log", "max_bytes", "options", "order",
        "overhead", "owner", "pager", "ready", "resident_bytes", "returned", "seq", "space", "timing", "waiting",
        "window",
    )  # fmt: skip

    def __init__(
        self, core: Core, name: str, log: MessageLog | None, owner: tuple[int, int], options: StoredOptions
    ) -> None:
        super().__init__(core, name)
        self.log: MessageLog | None = None
        self.owner = owner
        self.space: Space | None = None
        self.budget: Space | None = None
        """The space, if what it may store is limited."""
        self.overhead = ENTRY_OVERHEAD_BYTES
        """What a message counts for beside its payload."""
        self.browsers: list[Browser] = []
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
        self.damaged = 0
        """Messages that could not be read from disk."""
        self.expired = 0
        self.dead_lettered = 0
        self.latest: dict[Any, Entry] = {}
        """The latest message of each key, where only that is kept."""
        self._memory_log: MessageLog | None = None
        self._draining: list[BacklogConsumer] = []
        self.pager: Pager | None = None
        self.timing = Timing(self)
        if log is not None:
            self.bind(log)
        self.configure(options)

    def bind(self, log: MessageLog) -> None:
        """Have messages written to a log from now on."""
        self.log = log
        self.overhead = ROW_BYTES
        self.pager = Pager(self, log)
        log.owners.append(self)

    def join(self, space: Space) -> None:
        """Be one of a space's addresses, whose limits count."""
        self.space = space
        self.budget = space if space.max_bytes else None
        if self.budget is not None:
            space.bytes_stored += self.bytes_stored

    def configure(self, options: StoredOptions) -> None:
        """Change what it does beyond storing; how it stores stays as it is."""
        self.options = options
        self.max_bytes = options.max_bytes or (MEMORY_MAX_BYTES if self.log is None else DEFAULT_MAX_BYTES)
        self.timing.configure()
        self.due()

    # Links

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A receiver joins.

        Raises:
            AttachError: there are as many receivers as the address allows, or its filter is malformed.
        """
        selector = selector_of(options.filters)
        if options.browse:
            browser = Browser(self, port, options.presettle, selector)
            self.browsers.append(browser)
            return browser
        limit = self.options.max_consumers
        if limit and len(self.consumers) >= limit:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"{self.kind} {self.name!r} has {len(self.consumers)} receivers, its limit",
            )
        consumer = BacklogConsumer(self, port, options.presettle, selector)
        if selector is not None:
            self.arrange().select(consumer)
        return self.add_consumer(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """A receiver has gone: what it had goes back, as a failed attempt."""
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

    def drain(self, consumer: BacklogConsumer) -> None:
        """In this turn, hand out what there is, then use up the credit that is left [AMQP 2.6.7]."""
        if consumer not in self._draining:
            self._draining.append(consumer)
        self.due()

    def choose_first(self) -> Consumer | None:
        """The receiver that came first, if it has credit."""
        first = self.consumers[0] if self.consumers else None
        return first if first is not None and first.port.credit > 0 and not first.is_blocked else None

    def arrange(self) -> Ordering:
        """Hand out by more than the order of arrival from now on."""
        if self.order is None:
            entries = [entry for entry in (*self.returned, *self.ready) if entry.state == READY]
            self.ready.clear()
            self.returned.clear()
            self.order = Ordering(self)
            for entry in entries:
                self.order.add(entry)
        return self.order

    # Messages

    @property
    def free_bytes(self) -> int:
        """What may still be stored."""
        free = 0 if self.core.is_pressed else self.max_bytes - self.bytes_stored
        if self.budget is not None:
            return min(free, self.budget.max_bytes - self.budget.bytes_stored)
        return free

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
            if ref.attempts is None:
                ref.attempts = {}
            ref.attempts[entry.row] = entry.attempts
            ref.log.touch(ref)

    def writes(self, payload: bytes) -> bool:
        """Whether a message is written in any case."""
        storage = self.options.storage
        return self.log is not None and (storage == "durable" or (storage == "message" and is_durable(payload)))

    def take(self, payload: bytes, producer: Any, *, is_staged: bool = False) -> None:
        """Add a message from within; ``producer`` is told when it is stored, if it is to be written."""
        is_written = producer is not None
        self.enqueue(payload, producer, 0, durable=is_written, facts=known_facts(payload), is_staged=is_staged)

    def choose_but(self, idle: set[BacklogConsumer]) -> BacklogConsumer | None:
        """The receiver with credit that has the fewest unsettled deliveries, of those not known to want nothing."""
        best: BacklogConsumer | None = None
        for consumer in self.consumers:
            assert isinstance(consumer, BacklogConsumer)
            is_free = consumer.port.credit > 0 and not consumer.is_blocked and consumer not in idle
            if is_free and (best is None or consumer.unsettled < best.unsettled):
                best = consumer
            if self.options.exclusive:
                break
        return best

    def count_bytes(self, change: int) -> None:
        """Correct the account of what is stored."""
        self.bytes_stored += change
        if self.budget is not None:
            self.budget.bytes_stored += change

    @property
    def is_flying(self) -> bool:
        """Whether messages that left memory are on their way to the disk."""
        return bool(self._flying)

    def put_back(self, entry: Entry) -> None:
        """A message can be handed out again: it takes its old place."""
        if entry.is_refused:
            self.refuse(entry)
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

    @property
    def has_ready(self) -> bool:
        """Whether something can be handed out."""
        return bool(self.ready or self.returned) or (self.order is not None and self.order.has_ready)

    def dispatch(self) -> None:
        """Hand out what waits, oldest first, as far as receivers take it."""
        if self.order is not None:
            self.order.dispatch()
            return
        ready = self.ready
        choose = self.choose_first if self.options.exclusive else self.choose
        while ready or self.returned:
            consumer = choose()
            if consumer is None:
                return
            if self.returned:
                entry = self.next_entry()
                if entry is None:
                    return
            else:
                entry = ready.popleft()
                if entry.state != READY:
                    continue
                entry.state = OUT
            self.deliver(entry, consumer)

    def deliver(self, entry: Entry, consumer: Consumer) -> None:
        """Send one message to one receiver."""
        payload = entry.payload
        if entry.is_special:
            if self.timing.is_too_late(entry):
                return
            payload = self.timing.outgoing(entry)
        consumer.deliveries += 1
        if entry.attempts:
            payload = with_attempts(payload, entry.attempts)
        if consumer.presettle:
            consumer.send(None, payload, True)
            self.settle(entry)
        else:
            consumer.unsettled += 1
            entry.sink = consumer
            consumer.send(entry, payload, False)

    def on_turn(self, now: float) -> None:
        """Hand out, then read on from disk as far as there is room."""
        if self.timing.is_wanted:
            self.timing.run(now)
        if self.consumers:
            self.dispatch()
        for browser in self.browsers:
            browser.pump()
        pager = self.pager
        if pager is not None and (self.is_spilling or pager.at is not None):
            pager.go_on()
        if self._draining and (pager is None or not pager.is_reading):
            draining, self._draining = self._draining, []
            for consumer in draining:
                if consumer.is_blocked:
                    self._draining.append(consumer)
                else:
                    consumer.port.drained()
        if self.budget is not None:
            self.budget.balance(self)

    def on_deadline(self, now: float) -> None:
        """Some message expires, or may be handed out."""
        self.due()

    # The journal

    def placed(self, first: int, rows: Sequence[Any]) -> FrameRef | None:
        """A frame with these rows is about to be written."""
        assert self.log is not None
        ref = FrameRef(self.log, self.owner, first, len(rows))
        if not (self.is_shared or self.is_spilling or self.waiting) and type(rows[0]) is not VolatileRow:
            for index, entry in enumerate(rows):
                entry.frame = ref
                entry.row = index
                if entry.attempts:
                    ref.attempts = {**(ref.attempts or {}), index: entry.attempts}
            self.frames[first] = ref
            return ref
        is_needed = False
        pager = self.pager
        for index, row in enumerate(rows):
            entry = self.entry_of(row)
            if entry is None or entry.state == DONE:
                ref.settled.append(index)
                ref.live -= 1
                continue
            entry.frame = ref
            entry.row = index
            if entry.attempts:
                ref.attempts = {**(ref.attempts or {}), index: entry.attempts}
            if entry.is_resident:
                is_needed = True
                if pager is not None and pager.at is not None:
                    # Among rows that leave memory, this one does not come back from disk.
                    ref.taken = ref.taken or set()
                    ref.taken.add(index)
            elif self.is_spilling and pager is not None:
                pager.placed(first, index)
        if is_needed or not self.is_spilling:
            self.frames[first] = ref
        if self.waiting:
            flying = self._flying if self.is_spilling else self._staying
            flying += self.waiting
            self.waiting = []
        return ref

    def found(self, first: int, rows: int, live: int, size: int) -> bool:
        """A frame is on disk when the node starts; returns whether anything of it is needed."""
        if not live:
            return False
        self.depth += live
        self.count_bytes(guessed_bytes(size, rows, live))
        return True

    def start_from(self, first: int | None) -> None:
        """What is needed from the log is on disk from this offset on; nothing if nothing is."""
        if first is not None and self.pager is not None:
            self.pager.load(first)
            self.timing.loaded()
            self.due()

    def memory_log(self) -> MessageLog:
        """What transactions of an address that writes nothing are decided with."""
        if self._memory_log is None:
            self._memory_log = MessageLog(self.core, self, 0)
        return self._memory_log

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more could be stored now."""
        return self.options.full == "drop-oldest" or size + self.overhead <= self.free_bytes

    def enlist_settlement(self, entry: Any, done: Callable[[str | None], None]) -> Log | None:
        """Have a message that a receiver has removed with the next batch, or left as it is if that fails.

        Args:
            entry: the message, or a browser's copy of it.
            done: told once that is decided.

        Returns:
            What is written; ``None`` for a copy, which is the browser's own.
        """
        if not isinstance(entry, Entry):
            return None
        log = entry.frame.log if entry.frame is not None else self.log or self.memory_log()
        if log.is_closed:
            # The topic was deleted, and what its subscriptions had of it.
            return Fate(self.name, done)

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

    def entry_of(self, row: Any) -> Entry | None:
        """This address's entry for a row of its log."""
        entry: Entry = row.entry if type(row) is VolatileRow else row
        return entry

    def is_done_with(self, first: int, following: int) -> bool:
        """Whether nothing of a frame is needed any more."""
        ref = self.frames.get(first)
        if ref is not None:
            return ref.live == 0
        return self.pager is None or not self.pager.is_ahead(following)

    def finished(self, ref: FrameRef) -> None:
        """All of a frame is settled, and that is on disk."""
        # One that was finished ahead of its page is remembered until that page's turn.
        if self.pager is None or not self.pager.is_ahead(ref.first + ref.rows):
            self.frames.pop(ref.first, None)

    def written(self) -> None:
        """What was cut is on disk: what waited for that can be handed out, or leaves memory."""
        if self._staying:
            staying, self._staying = self._staying, []
            for entry in staying:
                if entry.state == STAGED:
                    self.add(entry)
            self.due()
        if self._flying:
            flying, self._flying = self._flying, []
            assert self.pager is not None
            self.pager.written(flying)
            self.due()

    def unwritten(self) -> None:
        """What was cut is not on disk."""
        assert self.log is not None
        first = self.log.visible
        for offset in [offset for offset in self.frames if offset >= first]:
            del self.frames[offset]
        self.waiting = self._staying + self._flying + self.waiting
        self._staying = []
        self._flying = []
        if self.pager is not None:
            self.pager.unwritten(first)

    def lose(self, row: Any) -> bool:
        """A row is not on disk: its sender is to send again, unless it was told already that it need not."""
        entry = self.entry_of(row)
        if entry is None or entry.state == DONE:
            return False
        entry.frame = None
        if entry.producer is None:
            return True
        if entry.sink is not None or entry.state == MOVING:
            entry.is_refused = True
            return False
        self.refuse(entry)
        return False

    def refuse(self, entry: Entry) -> None:
        """Give a message back to its sender."""
        entry.state = DONE
        size = len(entry.payload)
        self.depth -= 1
        self.bytes_stored -= size + self.overhead
        if self.budget is not None:
            self.budget.bytes_stored -= size + self.overhead
        if entry.is_resident:
            self.resident_bytes -= size + ENTRY_OVERHEAD_BYTES
        if entry.producer is not None:
            entry.producer.settle(entry.producer_id, self.deleted_state if self.is_closed else RELEASED)
            entry.producer = None
        self.due()

    def close(self, condition: str, description: str) -> None:
        """The address is deleted: what is not on its way to the journal is not written any more."""
        self.is_closed = True
        if self.log is not None and self.log.home is self:
            for row in self.log.close():
                entry = self.entry_of(row)
                if entry is not None and entry.state != DONE and entry.producer is not None:
                    self.refuse(entry)
        if self.budget is not None:
            self.budget.bytes_stored -= self.bytes_stored
            self.budget = None
        self.space = None
        for browser in list(self.browsers):
            browser.port.detach(AmqpError(condition, description))
            browser.gone()
        super().close(condition, description)

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
