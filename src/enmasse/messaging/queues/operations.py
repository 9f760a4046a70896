"""An administrator's operations on the messages of a queue or subscription: purge, move, replay, and their count.

What receivers have unsettled stays theirs; what is scheduled for later, or for another attempt, is not spared.
Memory is searched first, then the part on disk page by page, then memory once more for what came from disk
meanwhile. All of that goes on from turn to turn (``jobs``), as long as who asked for it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.sections import Sections, without_message_annotations
from enmasse.messaging.log.entry import MOVING, OUT, READY, Entry
from enmasse.messaging.queues.jobs import LOOK_UNITS, PIECE_UNITS, TAKE_UNITS, Job, Search, always
from enmasse.messaging.queues.places import NOWHERE, Chosen, offset_of
from enmasse.messaging.queues.redelivery import DEAD_LETTER_ANNOTATIONS, ORIGIN_ANNOTATION, move_payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.message.text_search import TextSearch
    from enmasse.messaging.address import Address
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.selectors.selector import Selector


SEARCH_UNITS, SEARCH_BYTES = 20, 50
"""The cost of the search for a text in a message, and the bytes of a message that cost a unit more."""

_BEFORE_ALL = -1 << 63
"""A place and an offset before all others."""

Done = Callable[[int, str | None], None]
"""Called with how many messages were dealt with, and what kept others from it."""


Act = Callable[["_Operation", Entry], None]


class Choice:
    """Chooses messages by a selector, by their places, by a text in them, or by several of these; all by none.

    Args:
        selector: the selector that they must match.
        places: the places where they must lie.
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

    def cost(self, payload: bytes) -> int:
        """Return the work that the message was to which this was applied last."""
        cost = LOOK_UNITS
        if self._selector is not None:
            cost += self._selector.cost(payload)
        if self._search is not None:
            cost += SEARCH_UNITS + len(payload) // SEARCH_BYTES
        return cost


ALL = Choice()


class _Operation:
    """One request on its way through a backlog."""

    def __init__(
        self,
        backlog: Backlog,
        choice: Choice,
        act: Callable[[_Operation, Entry], None],
        done: Done,
        is_wanted: Callable[[], bool],
    ) -> None:
        self.backlog = backlog
        self.choice = choice
        self.act = act
        self.done = done
        self.is_wanted = is_wanted
        self.count = 0
        self.open = 1
        """Open parts: messages on their way, and the search itself."""
        self.problem: str | None = None

    def start(self) -> None:
        self.choice.count_at(self.backlog)
        self.backlog.do(self._run())

    def _run(self) -> Job:
        pager = self.backlog.pager
        yield from self._search_memory()
        if pager is None:
            self.close()
        else:
            pager.sweep(Search(self._chooses, self._take, self.choice.cost, self.is_wanted), self._swept)

    def _chooses(self, payload: bytes, attempts: int, _since_us: int, offset: int) -> bool:
        # No message in memory has the place 0.
        return self.choice.wants(payload, attempts, 0, offset)

    def _search_memory(self) -> Job:
        choice, spent = self.choice, 0
        for entry, is_held in _in_memory(self.backlog):
            if spent >= PIECE_UNITS:
                self.backlog.drop_done(is_all=False)
                yield spent
                spent = 0
                if self.backlog.is_closed or not self.is_wanted():
                    break
            if _is_there(entry, is_held):
                if choice.wants(entry.payload, entry.attempts, entry.seq, offset_of(entry)):
                    entry.state = OUT
                    spent += TAKE_UNITS
                    self._take(entry)
                spent += choice.cost(entry.payload)
        self.backlog.drop_done(is_all=True)

    def _take(self, entry: Entry) -> None:
        self.act(self, entry)

    def _swept(self) -> None:
        self.backlog.do(self._end())

    def _end(self) -> Job:
        yield from self._search_memory()
        self.close()

    def close(self, problem: str | None = None) -> None:
        """Note the end of one part."""
        self.problem = self.problem or problem
        self.open -= 1
        if self.open:
            return
        log = self.backlog.log or self.backlog.memory_log()
        log.stage(lambda problem: self.done(self.count, self.problem or problem))


def _in_memory(backlog: Backlog) -> Iterator[tuple[Entry, bool]]:
    """Yield the messages that are in memory now, and whether they were held back then."""
    entries = backlog.in_memory()[::-1]
    while entries:
        # What is deleted meanwhile is not kept.
        yield entries.pop(), False
    for entry in backlog.timing.held():
        yield entry, True


def _is_there(entry: Entry, was_held: bool) -> bool:
    """Return whether no receiver has a message, and no other operation has had it."""
    return entry.state == READY or (was_held and entry.state == OUT and entry.sink is None)


def count(
    backlog: Backlog,
    choice: Choice,
    is_meant: Callable[[bytes], bool],
    done: Done,
    is_wanted: Callable[[], bool] = always,
) -> None:
    """Count what is chosen and meant, and leave it as it is; what moves meanwhile may be counted or not."""
    choice.count_at(backlog)
    found, reached, began = 0, NOWHERE, backlog.seq

    def count_memory(after: int, beyond: int) -> Job:
        nonlocal found
        spent = 0
        for entry, is_held in _in_memory(backlog):
            offset = offset_of(entry)
            if entry.seq <= after or offset <= beyond or not _is_there(entry, is_held):
                continue
            if spent >= PIECE_UNITS:
                yield spent
                spent = 0
                if backlog.is_closed or not is_wanted():
                    return
            if choice.wants(entry.payload, entry.attempts, entry.seq, offset):
                found += is_meant(entry.payload)
            spent += choice.cost(entry.payload)

    def first() -> Job:
        yield from count_memory(_BEFORE_ALL, _BEFORE_ALL)
        if backlog.pager is None:
            done(found, None)
        else:
            backlog.pager.sweep(Search(count_row, backlog.put_back, choice.cost, is_wanted), swept)

    def count_row(payload: bytes, attempts: int, _since_us: int, offset: int) -> bool:
        nonlocal found, reached
        reached = max(reached, offset)
        found += choice.wants(payload, attempts, 0, offset) and is_meant(payload)
        return False

    def swept() -> None:
        backlog.do(last())

    def last() -> Job:
        # What came into memory before the search was there.
        yield from count_memory(began, reached)
        done(found, None)

    backlog.do(first())


def everything(_payload: bytes) -> bool:
    """Return true: every message is meant."""
    return True


def can_replay(backlog: Backlog, resolve: Callable[[str], Address | None]) -> Callable[[bytes], bool]:
    """Return a function that tells whether a dead letter has an address to go back to."""
    return lambda payload: _origin(backlog, resolve, payload)[1] is not None


def purge(backlog: Backlog, choice: Choice, done: Done, is_wanted: Callable[[], bool] = always) -> None:
    """Delete what is chosen."""

    def act(operation: _Operation, entry: Entry) -> None:
        operation.count += 1
        backlog.settle(entry)

    _Operation(backlog, choice, act, done, is_wanted).start()


def move(
    backlog: Backlog, target: Backlog, choice: Choice, done: Done, is_wanted: Callable[[], bool] = always
) -> None:
    """Move what is chosen to another address; each message is always in one of them."""

    def act(operation: _Operation, entry: Entry) -> None:
        _move(operation, entry, target, entry.payload)

    _Operation(backlog, choice, act, done, is_wanted).start()


def replay(
    backlog: Backlog,
    resolve: Callable[[str], Address | None],
    choice: Choice,
    done: Done,
    is_wanted: Callable[[], bool] = always,
) -> None:
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

    _Operation(backlog, choice, act, done, is_wanted).start()


def _origin(backlog: Backlog, resolve: Callable[[str], Address | None], payload: bytes) -> tuple[Any, Backlog | None]:
    """Return the address that a dead letter names as its origin, and where it can be sent back to."""
    try:
        origin = Sections(payload).message_annotations.get(ORIGIN_ANNOTATION)
    except DecodeError:
        origin = None
    address = resolve(origin) if isinstance(origin, str) else None
    target = None if address is None else address.stored()
    return origin, None if target is backlog else target


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
