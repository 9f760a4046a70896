"""The event loop, and its turns.

A *turn* starts with the first event that reaches us and ends when the loop comes round: then the
hooks run (the messaging core's among them), and whatever was put out meanwhile is written, once for
each connection. So there is one clock reading, one callback and one write per connection and turn,
however many messages came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

import uvloop

from enmasse.net.deadlines import Deadlines

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """An output that is written at the end of a turn."""

    def flush(self) -> None:
        """Write what has gathered; never raises."""


class Backlog(Protocol):
    """Work that one turn does not bear, which those who bring it wait for."""

    @property
    def added(self) -> int:
        """The work that was ever added."""

    def after(self, call: Callable[[], None]) -> None:
        """Call something once what was added last is done; at once if it is."""


class NoBacklog:
    """The backlog where every turn does all of its work."""

    added: Final = 0

    def after(self, call: Callable[[], None]) -> None:
        """Call something at once."""
        call()


class Turn:
    """The present turn of one loop.

    Attributes:
        now: the loop's clock at the start of the turn, in seconds.
        wall: the time of day then, in seconds since 1970 UTC.
        number: the number of turns so far; several may begin at one reading of the clock.
        deadlines: far deadlines of the loop.
        backlog: the work that turns leave to those that follow.
    """

    __slots__ = (
        "_clock", "_dirty", "_due", "_hooks", "_is_begun", "_is_requested", "_later",
        "backlog", "deadlines", "loop", "now", "number", "wall",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._clock = loop.time
        self.now = loop.time()
        self.wall = time.time()
        self.number = 0
        self.deadlines = Deadlines(self)
        self.backlog: Backlog = NoBacklog()
        self._is_begun = False
        self._is_requested = False
        self._dirty: list[Flushable] = []
        self._later: list[Callable[[], None]] = []
        self._due: list[Callable[[], None]] = []
        self._hooks: list[Callable[[float], None]] = []

    def begin(self) -> float:
        """Make sure that a turn is running, and give its clock reading."""
        if not self._is_begun:
            self._is_begun = True
            self.number += 1
            self.now = self._clock()
            self.wall = time.time()
            self._due, self._later = self._later, []
            self.loop.call_soon(self._end)
        return self.now

    def request(self) -> None:
        """Have the hooks called after this: in the present turn, or in the next one where its hooks are running."""
        self.begin()
        self._is_requested = True

    def add_hook(self, hook: Callable[[float], None]) -> None:
        """Have ``hook(now)`` called at the end of every turn, before anything is written."""
        self._hooks.append(hook)

    def mark(self, dirty: Flushable) -> None:
        """Have ``dirty`` flushed at the end of this turn; the caller sees to it that it is so once."""
        self.begin()
        self._dirty.append(dirty)

    def later(self, call: Callable[[], None]) -> None:
        """Have ``call`` called in the next turn, after all that waits now."""
        self._later.append(call)
        self.begin()

    def _end(self) -> None:
        self._finish()
        if self._due:
            # What has waited is work of somebody busy: what others have just been given goes out before it.
            for call in self._due:
                try:
                    call()
                except Exception:  # noqa: BLE001  the same
                    _log.exception("Something failed that was put off to a later turn")
            self._finish()
        self._is_begun = False
        if self._later or self._is_requested:
            self.begin()

    def _finish(self) -> None:
        self._is_requested = False
        for hook in self._hooks:
            try:
                hook(self.now)
            except Exception:  # noqa: BLE001  a turn must end whatever happens in it
                _log.exception("A hook of the turn failed")
        while self._dirty:
            dirty = self._dirty
            self._dirty = []
            for flushable in dirty:
                try:
                    flushable.flush()
                except Exception:  # noqa: BLE001  whatever it is, only this one may suffer
                    _log.exception("Something failed that was put off to the end of the turn")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop of the kind that we run on."""
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end on a loop of its own, as ``asyncio.run`` does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
