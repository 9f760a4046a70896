"""Queues and subscriptions as their receivers see them: who is given which message, and when.

Messages are handed out in the order of their arrival, to the receiver with the fewest unsettled ones, unless
more is asked for (``ordering``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import AttachOptions
from enmasse.messaging.browse import Browser
from enmasse.messaging.delivery import ACCEPTED, FAILED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.journaled import Journaled
from enmasse.messaging.options import DEFAULT_MAX_BYTES, MEMORY_MAX_BYTES, StoredOptions
from enmasse.messaging.ordering import Ordering
from enmasse.messaging.paging import Pager
from enmasse.messaging.queue_entry import DONE, OUT, READY, ROW_BYTES, Entry, with_attempts
from enmasse.messaging.redelivery import come_back, is_spent, make_dead_letter
from enmasse.messaging.selector import SELECTOR_FILTER, selector_of
from enmasse.messaging.timing import Timing
from enmasse.wire.amqp.outcomes import TOO_LARGE
from enmasse.wire.amqp.performatives import AmqpError, Modified

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.message_log import MessageLog
    from enmasse.messaging.selector import Selector

__all__ = ["Backlog", "BacklogConsumer"]


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

    def count_available(self) -> int | None:
        """What no receiver has, with what waits for its time; of a selector nobody knows how many match."""
        if self.selector is not None:
            return None
        address = self.address
        return max(0, address.depth - sum(consumer.unsettled for consumer in address.consumers))

    def on_outcome(self, delivery: Entry, state: Any) -> None:
        """The receiver settled a message."""
        self.unsettled -= 1
        delivery.sink = None
        if state is ACCEPTED:
            self.address.settle(delivery)
            return
        self.count(state)
        if state is TOO_LARGE and self.address.is_lasting:
            # Another receiver may take it.
            state = Modified(undeliverable_here=True)
        come_back(self.address, delivery, state, self)

    def confirm(self, done: Callable[[], None]) -> None:
        """Tell once what was settled is on disk."""
        log = self.address.log
        if log is None:
            done()
        else:
            log.confirm(done)


class Backlog(Journaled):
    """The messages of one queue or subscription.

    Args:
        core: whose turn and journal it takes part in.
        name: the address.
        log: where its messages are written; none keeps them in memory.
        owner: under which its settled rows are kept.
        options: what it does beyond storing.
    """

    __slots__ = ("_announced", "_draining", "browsers")

    is_lasting = True
    """Whether it outlives its receivers."""

    def __init__(
        self, core: Core, name: str, log: MessageLog | None, owner: tuple[int, int], options: StoredOptions
    ) -> None:
        super().__init__(core, name, owner, options)
        self.browsers: list[Browser] = []
        self._draining: list[BacklogConsumer] = []
        self._announced: list[tuple[Entry, BacklogConsumer]] = []
        """What is handed out once it is on disk that it is, and to whom."""
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

    def configure(self, options: StoredOptions) -> None:
        """Change what it does beyond storing; how it stores stays as it is."""
        self.options = options
        self.max_bytes = options.max_bytes or (MEMORY_MAX_BYTES if self.log is None else DEFAULT_MAX_BYTES)
        self.timing.configure()
        self.due()

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """A selector; see ``Address``."""
        return (SELECTOR_FILTER,)

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
                # It is the receiver's once it has gone out.
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

    def _dispatch_announced(self) -> None:
        """Hand out what waits, but what an earlier life of the node left only once that is on disk.

        So a message that kills the node when it is handed out is one attempt nearer to its end each time.
        """
        if self._announced:
            return
        consumers = self.consumers[:1] if self.options.exclusive else self.consumers
        room = {c: c.port.credit for c in consumers if isinstance(c, BacklogConsumer) and not c.is_blocked}
        idle: set[BacklogConsumer] = set()
        announced = self._announced
        is_new = False
        while takers := [c for c in room if room[c] > 0 and c not in idle]:
            for consumer in takers:
                entry = self.next_entry() if self.order is None else self.order.take_for(consumer, idle)
                if entry is None:
                    idle.add(consumer)
                    continue
                room[consumer] -= 1
                ref = entry.frame
                if ref is None or ref.log is not self.log or ref.first >= self.inherited_below:
                    is_new = True
                elif not is_spent(self, entry):
                    ref.hand_out(entry.row)
                    announced.append((entry, consumer))
                    continue
                if announced:
                    announced.append((entry, consumer))
                else:
                    self.deliver(entry, consumer)
        if announced:
            assert self.log is not None
            self.log.stage(self._are_announced)
        elif self._has_no_heritage(is_new):
            self.inherited_below = 0

    def _has_no_heritage(self, is_new: bool) -> bool:
        """Whether nothing is left that an earlier life of the node left and this one has not handed out."""
        pager = self.pager
        if pager is not None and pager.at is not None and pager.at < self.inherited_below:
            return False
        if self.order is None and is_new:
            # What is older went first.
            return True
        return all(first >= self.inherited_below for first in self.frames)

    def _are_announced(self, problem: str | None) -> None:
        """It is on disk that messages are handed out, or could not be written for now."""
        announced, self._announced = self._announced, []
        # A journal that cannot be written is no reason to hold messages back: the mark is tried again.
        can_go_on = problem is None or (self.log is not None and not self.log.is_closed)
        for entry, consumer in announced:
            if entry.state != OUT or self.is_closed:
                continue
            if can_go_on and consumer in self.consumers and consumer.port.credit > 0 and not consumer.is_blocked:
                self.deliver(entry, consumer)
                continue
            # What follows must not go before it.
            can_go_on = False
            if entry.frame is not None and not entry.frame.log.is_closed:
                entry.frame.give_back(entry.row)
            self.put_back(entry)
        self.due()

    def on_turn(self, now: float) -> None:
        """Hand out, then read on from disk as far as there is room."""
        if self.is_closed:
            return
        if self.timing.is_wanted:
            self.timing.run(now)
        if self.consumers:
            if self.inherited_below and self.core.is_careful:
                self._dispatch_announced()
            else:
                self.dispatch()
        for browser in self.browsers:
            browser.pump()
        pager = self.pager
        if pager is not None and (self.is_spilling or pager.at is not None or pager.waiting):
            pager.go_on()
        if self._draining and not self._is_more_coming():
            draining, self._draining = self._draining, []
            for consumer in draining:
                if consumer.is_blocked:
                    self._draining.append(consumer)
                else:
                    consumer.port.drained()
        if self.budget is not None:
            self.budget.balance(self)

    def _is_more_coming(self) -> bool:
        """Tell whether there is more to hand out than is in memory: it is read from disk, or on its way there."""
        pager = self.pager
        if self._announced or (pager is not None and pager.is_reading):
            return True
        # While the journal cannot be written nobody knows when that ends.
        is_put_aside = self.is_spilling and bool(self.waiting) and not self.core.is_pausing
        return self.is_flying or is_put_aside

    def on_deadline(self, now: float) -> None:
        """Some message expires, or may be handed out."""
        self.due()

    def start_from(self, first: int | None) -> None:
        """What is needed from the log is on disk from this offset on; nothing if nothing is."""
        if first is not None and self.pager is not None:
            assert self.log is not None
            self.inherited_below = self.log.visible
            self.pager.load(first)
            self.timing.loaded()
            self.due()

    def close(self, condition: str, description: str) -> None:
        """The address is deleted: what is not on its way to the journal is not written any more."""
        self.is_closed = True
        if self.pager is not None:
            self.pager.close()
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
