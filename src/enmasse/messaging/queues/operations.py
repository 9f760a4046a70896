"""An administrator's operations on the messages of a queue or subscription: purge, move, replay, and their count.

What receivers have unsettled stays theirs; what is scheduled for later, or for another attempt, is not spared.
Memory is searched first, then the part on disk page by page, then memory once more for what came from disk
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.messaging.log.entry import MOVING, OUT, Entry
from enmasse.messaging.queues.backlog import Backlog
from enmasse.messaging.queues.places import NOWHERE, Chosen, offset_of
from enmasse.messaging.queues.redelivery import DEAD_LETTER_ANNOTATIONS, ORIGIN_ANNOTATION, move_payload
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import Sections, without_message_annotations

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.selectors.selector import Selector
    from enmasse.wire.amqp.text_search import TextSearch


Done = Callable[[int, str | None], None]
"""Called with how many messages were dealt with, and what kept others from it."""


Act = Callable[["_Operation", Entry], None]


class Choice:
    """Chooses messages by a selector, by their places, by a text in them, or by several of these; all by none.

    Args:
        selector: what they must match.
        places: where they must lie.
        search: finds the text that they must have.
    """

    __slots__ = ("_places", "_search", "_selector")

    def __init__(
        self, selector: Selector | None = None, places: Chosen | None = None, search: TextSearch | None = None
    ) -> None:
        self._selector = selector
        self._places = places
        self._search = search

    def count_at(self, backlog: Backlog) -> None:
        """Have a backlog count the messages that are too much work for the selector."""
        if self._selector is not None:
            self._selector.tally = backlog

    def wants(self, payload: bytes, attempts: int, seq: int, offset: int) -> bool:
        """Return whether a message is chosen."""
        if self._places is not None and not self._places.has(payload, seq, offset):
            return False
        if self._selector is not None and not self._selector.matches(payload, attempts):
            return False
        return self._search is None or self._search.matches(payload)


ALL = Choice()


class _Operation:
    """One request on its way through a backlog."""

    def __init__(
        self, backlog: Backlog, choice: Choice, act: Callable[[_Operation, Entry], None], done: Done
    ) -> None:
        self.backlog = backlog
        self.choice = choice
        self.act = act
        self.done = done
        self.count = 0
        self.open = 1
        """Open parts: messages on their way, and the search itself."""
        self.problem: str | None = None

    def start(self) -> None:
        self.choice.count_at(self.backlog)
        self._search_memory()
        if self.backlog.pager is None:
            self.close()
        else:
            self.backlog.pager.sweep(self._is_wanted_on_disk, self._take, self._swept)

    def _is_wanted_on_disk(self, payload: bytes, attempts: int, _since_us: int, offset: int) -> bool:
        # No message in memory has the place 0.
        return self.choice.wants(payload, attempts, 0, offset)

    def _is_wanted(self, entry: Entry) -> bool:
        return self.choice.wants(entry.payload, entry.attempts, entry.seq, offset_of(entry))

    def _search_memory(self) -> None:
        backlog = self.backlog
        waiting = backlog.in_memory()
        wanted = {entry for entry in waiting if self._is_wanted(entry)}
        # One that is put back takes its place anew.
        backlog.returned = [entry for entry in backlog.returned if entry not in wanted]
        backlog.ready = deque(entry for entry in backlog.ready if entry not in wanted)
        held = [entry for entry in backlog.timing.held() if self._is_wanted(entry)]
        for entry in [*(entry for entry in waiting if entry in wanted), *held]:
            entry.state = OUT
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.act(self, entry)

    def _swept(self) -> None:
        self._search_memory()
        self.close()

    def close(self, problem: str | None = None) -> None:
        """Note the end of one part."""
        self.problem = self.problem or problem
        self.open -= 1
        if self.open:
            return
        log = self.backlog.log or self.backlog.memory_log()
        log.stage(lambda problem: self.done(self.count, self.problem or problem))


def count(backlog: Backlog, choice: Choice, is_meant: Callable[[bytes], bool], done: Done) -> None:
    """Count what is chosen and meant, and leave it as it is; what moves meanwhile may be counted or not."""
    choice.count_at(backlog)
    found, reached, began = 0, NOWHERE, backlog.seq

    def count_entry(entry: Entry) -> None:
        nonlocal found
        if choice.wants(entry.payload, entry.attempts, entry.seq, offset_of(entry)):
            found += is_meant(entry.payload)

    def count_row(payload: bytes, attempts: int, _since_us: int, offset: int) -> bool:
        nonlocal found, reached
        reached = max(reached, offset)
        found += choice.wants(payload, attempts, 0, offset) and is_meant(payload)
        return False

    def swept() -> None:
        for entry in backlog.in_memory():
            if entry.seq > began and offset_of(entry) > reached:
                count_entry(entry)  # it came into memory before the search was there
        done(found, None)

    for entry in [*backlog.in_memory(), *backlog.timing.held()]:
        count_entry(entry)
    if backlog.pager is None:
        done(found, None)
    else:
        backlog.pager.sweep(count_row, backlog.put_back, swept)


def everything(_payload: bytes) -> bool:
    """Return true: every message is meant."""
    return True


def can_replay(backlog: Backlog, resolve: Callable[[str], Address | None]) -> Callable[[bytes], bool]:
    """Return a function that tells whether a dead letter has an address to go back to."""
    return lambda payload: _origin(backlog, resolve, payload)[1] is not None


def purge(backlog: Backlog, choice: Choice, done: Done) -> None:
    """Delete what is chosen."""

    def act(operation: _Operation, entry: Entry) -> None:
        operation.count += 1
        backlog.settle(entry)

    _Operation(backlog, choice, act, done).start()


def move(backlog: Backlog, target: Backlog, choice: Choice, done: Done) -> None:
    """Move what is chosen to another address; each message is always in one of them."""

    def act(operation: _Operation, entry: Entry) -> None:
        _move(operation, entry, target, entry.payload)

    _Operation(backlog, choice, act, done).start()


def replay(backlog: Backlog, resolve: Callable[[str], Address | None], choice: Choice, done: Done) -> None:
    """Move dead letters back to the addresses that they came from, as they were there."""

    def act(operation: _Operation, entry: Entry) -> None:
        origin, target = _origin(backlog, resolve, entry.payload)
        if target is not None:
            payload = without_message_annotations(entry.payload, DEAD_LETTER_ANNOTATIONS)
            _move(operation, entry, target, payload)
            return
        what = "no original address" if origin is None else f"an original address {origin!r} that stores nothing here"
        operation.problem = f"some messages have {what}"
        backlog.put_back(entry)

    _Operation(backlog, choice, act, done).start()


def _origin(backlog: Backlog, resolve: Callable[[str], Address | None], payload: bytes) -> tuple[Any, Backlog | None]:
    """Return the address that a dead letter names as its origin, and where it can be sent back to."""
    try:
        origin = Sections(payload).message_annotations.get(ORIGIN_ANNOTATION)
    except DecodeError:
        origin = None
    target = resolve(origin) if isinstance(origin, str) else None
    return origin, target if isinstance(target, Backlog) and target is not backlog else None


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
