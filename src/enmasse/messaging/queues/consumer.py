"""The receivers of queues and subscriptions, and how they are given what an earlier run of the node left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, TOO_LARGE, Modified
from enmasse.message.sections import with_message_annotations
from enmasse.message.text_search import ID_ANNOTATION
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.log.entry import (
    OUT,
    Entry,
)
from enmasse.messaging.log.message_log import MessageLog
from enmasse.messaging.part import Part
from enmasse.messaging.queues.places import IDS_CAPABILITY, Place, offset_of
from enmasse.messaging.queues.redelivery import handle_outcome, is_spent

if TYPE_CHECKING:
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.queues.shares import NameSelector
    from enmasse.messaging.selectors.selector import Selector


class BacklogConsumer(Consumer):
    """A receiver's end at a queue or subscription."""

    __slots__ = ("selector",)
    address: Backlog

    def __init__(
        self,
        address: Backlog,
        port: ConsumerPort,
        presettle: bool,
        selector: Selector | NameSelector | None,
        capabilities: Sequence[str] = (),
    ) -> None:
        super().__init__(address, port, presettle)
        self.selector = selector
        if IDS_CAPABILITY in capabilities:
            self.send = partial(_send_with_id, port)

    def reselect(self, selector: NameSelector | None) -> None:
        """Have other messages from now on, those that a selector selects; ``None``: all."""
        before = self.selector
        if (None if before is None else before.text) != (None if selector is None else selector.text):
            self.address.arrange().reselect(self, selector)

    def on_credit(self, gained: int, drain: bool) -> None:
        """Hand out more."""
        if drain:
            self.address.drain(self)
        else:
            self.address.due()

    def count_available(self) -> int | None:
        """Return the messages that no receiver has, scheduled ones included; ``None`` with a selector."""
        if self.selector is not None:
            return None
        address = self.address
        return max(0, address.depth - sum(consumer.unsettled for consumer in address.consumers))

    def on_outcome(self, delivery: Entry, state: Any) -> None:
        """Handle the receiver's outcome of a message."""
        self.unsettled -= 1
        delivery.sink = None
        if state is ACCEPTED:
            self.address.settle(delivery)
            return
        self.count(state)
        if state is TOO_LARGE and self.address.is_lasting:
            if self.address.is_for_nobody(delivery, self):
                self.address.dropped += 1
                self.address.settle(delivery)
                return
            # Another receiver may take it.
            state = Modified(undeliverable_here=True)
        handle_outcome(self.address, delivery, state, self)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once what was settled is on disk."""
        log = self.address.log
        if log is None:
            done()
        else:
            log.confirm(done)


def _send_with_id(
    port: ConsumerPort, delivery: Entry | None, payload: bytes, settled: bool, message_format: int = 0
) -> None:
    """Send a message with the id that it has at each attempt; one that is stored nowhere has none."""
    frame = None if delivery is None else delivery.frame
    if delivery is not None and frame is not None:
        name = f"{frame.log.log_id}.{Place.of(delivery.payload, 0, offset_of(delivery))}"
        with suppress(DecodeError):
            payload = with_message_annotations(payload, {ID_ANNOTATION: name})
    port.send(delivery, payload, settled, message_format)


class InheritedDispatch(Part["Backlog"]):
    """Hands out the messages that an earlier run of the node left, each once it is on disk that it is handed out.

    So a message that kills the node when it is handed out is one attempt nearer to its end each time.

    Args:
        backlog: the queue or subscription.
        log: its log.
    """

    __slots__ = ("_announced", "_log", "below")

    def __init__(self, backlog: Backlog, log: MessageLog) -> None:
        super().__init__(backlog)
        self._log = log
        self.below = log.visible
        """The offset below which messages are inherited."""
        self._announced: list[tuple[Entry, BacklogConsumer]] = []
        """Messages that are handed out once that is on disk, and their receivers."""

    @property
    def is_busy(self) -> bool:
        """True while messages wait for the disk."""
        return bool(self._announced)

    def dispatch(self) -> None:
        """Hand out what waits; inherited messages are first marked on disk as handed out."""
        if self._announced:
            return
        backlog = self.whole
        consumers = backlog.consumers[:1] if backlog.options.exclusive else backlog.consumers
        room = {c: c.port.credit for c in consumers if isinstance(c, BacklogConsumer) and not c.is_blocked}
        idle: set[BacklogConsumer] = set()
        announced = self._announced
        is_new = False
        while takers := [c for c in room if room[c] > 0 and c not in idle]:
            for consumer in takers:
                entry = backlog.next_entry() if backlog.order is None else backlog.order.take_for(consumer, idle)
                if entry is None:
                    idle.add(consumer)
                    continue
                room[consumer] -= 1
                ref = entry.frame
                if ref is None or ref.log is not self._log or ref.first >= self.below:
                    is_new = True
                elif not is_spent(backlog, entry):
                    ref.hand_out(entry.row)
                    announced.append((entry, consumer))
                    continue
                if announced:
                    announced.append((entry, consumer))
                else:
                    backlog.deliver(entry, consumer)
        if announced:
            self._log.stage(lambda problem: self._marked(backlog, problem))
        elif self._is_finished(is_new):
            backlog.inherited = None

    def _is_finished(self, is_new: bool) -> bool:
        backlog = self.whole
        pager = backlog.pager
        if pager is not None and pager.at is not None and pager.at < self.below:
            return False
        if backlog.order is None and is_new:
            # What is older went first.
            return True
        return all(first >= self.below for first in backlog.frames)

    def _marked(self, backlog: Backlog, problem: str | None) -> None:
        announced, self._announced = self._announced, []
        # A journal that cannot be written is no reason to hold messages back: the mark is tried again.
        can_go_on = problem is None or (backlog.log is not None and not backlog.log.is_closed)
        for entry, consumer in announced:
            if entry.state != OUT or backlog.is_closed:
                continue
            if can_go_on and consumer in backlog.consumers and consumer.port.credit > 0 and not consumer.is_blocked:
                backlog.deliver(entry, consumer)
                continue
            # What follows must not go before it.
            can_go_on = False
            if entry.frame is not None and not entry.frame.log.is_closed:
                entry.frame.give_back(entry.row)
            backlog.put_back(entry)
        backlog.due()
