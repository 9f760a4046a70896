"""What an administrator does to the messages that a queue or subscription holds: purge, move, replay.

What receivers have unsettled stays theirs; what is scheduled for later, or for another attempt, is not spared.
Memory is looked through first, then the part on disk page by page, then memory once more for what came from disk
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from enmasse.messaging.backlog import Backlog
from enmasse.messaging.queue_entry import MOVING, OUT, READY, Entry
from enmasse.messaging.redelivery import DEAD_LETTER_ANNOTATIONS, ORIGIN_ANNOTATION, move_payload
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import Sections, without_message_annotations

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.selector import Selector

__all__ = ["move", "purge", "replay"]

Done = Callable[[int, str | None], None]
"""Hears how many messages were dealt with, and what kept others from it."""


Act = Callable[["_Operation", Entry], None]


class _Operation:
    """One request on its way through a backlog."""

    def __init__(
        self, backlog: Backlog, selector: Selector | None, act: Callable[[_Operation, Entry], None], done: Done
    ) -> None:
        self.backlog = backlog
        self.selector = selector
        self.act = act
        self.done = done
        self.count = 0
        self.open = 1
        """What is not decided yet: messages on their way, and the search itself."""
        self.problem: str | None = None

    def start(self) -> None:
        self._look_in_memory()
        if self.backlog.pager is None:
            self.close()
        else:
            self.backlog.pager.sweep(self._is_wanted, self._take, self._swept)

    def _is_wanted(self, payload: bytes, attempts: int, _since_us: int) -> bool:
        return self.selector is None or self.selector.matches(payload, attempts)

    def _look_in_memory(self) -> None:
        backlog = self.backlog
        entries = [*backlog.returned, *backlog.ready]
        if backlog.order is not None:
            entries += backlog.order.entries()
        waiting = dict.fromkeys(entry for entry in entries if entry.state == READY)
        wanted = {entry for entry in waiting if self._is_wanted(entry.payload, entry.attempts, 0)}
        # One that is put back takes its place anew.
        backlog.returned = [entry for entry in backlog.returned if entry not in wanted]
        backlog.ready = deque(entry for entry in backlog.ready if entry not in wanted)
        held = [entry for entry in backlog.timing.held() if self._is_wanted(entry.payload, entry.attempts, 0)]
        for entry in [*(entry for entry in waiting if entry in wanted), *held]:
            entry.state = OUT
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.act(self, entry)

    def _swept(self) -> None:
        self._look_in_memory()
        self.close()

    def close(self, problem: str | None = None) -> None:
        """One thing is decided."""
        self.problem = self.problem or problem
        self.open -= 1
        if self.open:
            return
        log = self.backlog.log or self.backlog.memory_log()
        log.stage(lambda problem: self.done(self.count, self.problem or problem))


def purge(backlog: Backlog, selector: Selector | None, done: Done) -> None:
    """Delete what a selector wants, or everything."""

    def act(operation: _Operation, entry: Entry) -> None:
        operation.count += 1
        backlog.settle(entry)

    _Operation(backlog, selector, act, done).start()


def move(backlog: Backlog, target: Backlog, selector: Selector | None, done: Done) -> None:
    """Move what a selector wants, or everything, to another address; each message is always in one of them."""

    def act(operation: _Operation, entry: Entry) -> None:
        _move(operation, entry, target, entry.payload)

    _Operation(backlog, selector, act, done).start()


def replay(backlog: Backlog, resolve: Callable[[str], Address | None], selector: Selector | None, done: Done) -> None:
    """Move dead letters back to the addresses that they came from, as they were there."""

    def act(operation: _Operation, entry: Entry) -> None:
        try:
            origin = Sections(entry.payload).message_annotations.get(ORIGIN_ANNOTATION)
        except DecodeError:
            origin = None
        target = resolve(origin) if isinstance(origin, str) else None
        if isinstance(target, Backlog) and target is not backlog:
            payload = without_message_annotations(entry.payload, DEAD_LETTER_ANNOTATIONS)
            _move(operation, entry, target, payload)
            return
        what = "no original address" if origin is None else f"an original address {origin!r} that stores nothing here"
        operation.problem = f"some messages have {what}"
        backlog.put_back(entry)

    _Operation(backlog, selector, act, done).start()


def _move(operation: _Operation, entry: Entry, target: Backlog, payload: bytes) -> None:
    backlog = operation.backlog
    operation.open += 1

    def moved(problem: str | None) -> None:
        if problem is None:
            operation.count += 1
        else:
            entry.state = MOVING
            backlog.put_back(entry)
        operation.close(problem)

    move_payload(backlog, entry, target, payload, moved)
