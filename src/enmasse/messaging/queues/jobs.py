"""The work that goes through many messages of a queue or subscription, cut into turns.

Rules:
1. A *job* says after each piece the work that it was, in the units of the core's turn, and goes on in a later turn.
   What it has seen may have changed by then: a job looks at the state of each message when it comes to it.
2. Jobs of one address have parts of its turn in turn, and leave room for messages to be handed out.
3. A job of an address that is closed goes on at once to its end, where it finds that out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from enmasse.messaging.core import MAX_UNITS
from enmasse.messaging.part import Part

if TYPE_CHECKING:
    from enmasse.messaging.log.entry import Entry
    from enmasse.messaging.queues.backlog import Backlog

JOBS_UNITS = MAX_UNITS // 2
"""The work of an address's jobs in one turn."""

PIECE_UNITS = 200
"""The work after which a job that looks at many messages lets others go on."""

ROW_UNITS = 3
"""The cost of a message that a page brings into memory."""

LOOK_UNITS = 2
"""The cost of a message that is looked at, beside what its selector takes."""

TAKE_UNITS = 10
"""The cost of a message that is chosen: deleted, moved, or brought into memory ahead of its turn."""

Job = Iterator[int]


def always() -> bool:
    """Return true: whoever asks for a search waits for its end."""
    return True


def look(_payload: bytes) -> int:
    """Return the cost of a message that is looked at without a selector."""
    return LOOK_UNITS


class Search(NamedTuple):
    """A search through messages that lie on disk.

    Attributes:
        chooses: given a message, its failed deliveries, its arrival by the core's steady clock, and its offset.
        take: called with each message that is chosen.
        cost: given a message that was just looked at, the work that this was.
        is_wanted: returns false once nobody needs the rest.
    """

    chooses: Callable[[bytes, int, int, int], bool]
    take: Callable[[Entry], None]
    cost: Callable[[bytes], int] = look
    is_wanted: Callable[[], bool] = always


class Jobs(Part["Backlog"]):
    """The jobs of one queue or subscription."""

    __slots__ = ("_jobs",)

    def __init__(self, backlog: Backlog) -> None:
        super().__init__(backlog)
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Begin with a job in this turn."""
        self._jobs.append(job)
        if self.whole.is_closed:
            self.end()
        else:
            self.whole.due()

    def go_on(self) -> None:
        """Do a turn's part of them."""
        backlog, jobs = self.whole, self._jobs
        left = JOBS_UNITS
        while jobs and left > 0:
            job = jobs.popleft()
            share = left // (len(jobs) + 1)
            spent = 1
            for units in job:
                spent += units
                if spent >= share:
                    jobs.append(job)
                    break
            left -= spent
        backlog.core.units += JOBS_UNITS - left
        if jobs:
            backlog.due()

    def end(self) -> None:
        """Let all go on to their ends, as the address is closed."""
        while self._jobs:
            for _ in self._jobs.popleft():
                pass
