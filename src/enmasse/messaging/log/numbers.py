"""The numbers of logs, which are unique in an installation: nodes draw them from ranges that control leases to them.

Rules:
1. Keys of the journal begin with the number of a log, and values hold such numbers. So what one node has stored can
   come to another without being written anew, as long as no two logs of their installation have the same.
2. A node that was never given a range counts by itself, from 1 on. Once it has one, it draws from ranges alone.
3. A range is used only once it is on disk that the node has it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from enmasse.errors import EnmasseError
from enmasse.messaging.errors import AttachError
from enmasse.messaging.storage import Operation, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from enmasse.messaging.storage import Storage

    Range = tuple[int, int]
    """The first number, and the one behind the last."""

LOG_COUNTER = b"\0log"
"""The key, in the table of entities, of the number of the next log."""

LOG_RANGES = b"l"
"""The key, in the table of entities, of the ranges that the node was given."""

FIRST_VOLATILE_LOG = 1 << 31
"""Logs from here on are deleted when a node starts."""

MANY = FIRST_VOLATILE_LOG // 2
"""A number from which on an operator is warned: half of what an installation has for logs that stay is used up."""


class LogRangeError(EnmasseError):
    """Raised when a range of numbers cannot be taken: some of them may be in use."""


class LogNumbers:
    """The numbers that a node draws for logs that stay."""

    def __init__(self) -> None:
        self.next = 1
        """The number of the next log."""
        self.ranges: list[Range] | None = None
        """The ranges that the node has, from the one in use on; None as long as it counts by itself."""
        self.given = 0
        """A number that is beyond all that control had given to any node, as far as this one was told."""

    def load(self, storage: Storage) -> None:
        """Read from the journal how far the node is."""
        counter = storage.get(Table.ENTITY, LOG_COUNTER)
        if counter is not None:
            self.next = int.from_bytes(counter, "big")
        ranges = storage.get(Table.ENTITY, LOG_RANGES)
        if ranges is not None:
            record = json.loads(ranges)
            self.given, self.ranges = record["given"], [(first, end) for first, end in record["ranges"]]
            self._go_on()

    @property
    def left(self) -> int:
        """The quantity of numbers that can be drawn yet."""
        if self.ranges is None:
            return max(0, FIRST_VOLATILE_LOG - self.next)
        return sum(end - max(first, self.next) for first, end in self.ranges)

    @property
    def problem(self) -> str:
        """The reason why an operator should see to the numbers; empty if there is none."""
        if not self.left:
            return "none is left for what is stored anew: control leases more when it is back"
        if self.next >= MANY:
            return f"{self.next:,} of {FIRST_VOLATILE_LOG:,} are used up, and none is used twice"
        return ""

    def require(self, count: int) -> None:
        """Ensure that so many can be drawn.

        Raises:
            AttachError: there are fewer.
        """
        if self.left < count:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                "the node has no number left for what is to be stored anew, and control, which leases them, has not "
                "given it more yet: try again later; what is there goes on",
            )

    def draw(self) -> int:
        """Return a number that was never used.

        Raises:
            AttachError: there is none.
        """
        self.require(1)
        number = self.next
        self.next = number + 1
        self._go_on()
        return number

    def counter(self) -> Operation:
        """Return the operation with which the journal remembers the numbers used by now."""
        return Operation(Table.ENTITY, LOG_COUNTER, self.next.to_bytes(8, "big"))

    def check(self, ranges: Iterable[Range]) -> None:
        """Check that ranges can be taken.

        Raises:
            LogRangeError: one of them is none, or overlaps what the node has used or holds.
        """
        for first, end in ranges:
            if not 0 < first < end <= FIRST_VOLATILE_LOG:
                raise LogRangeError(f"{first} to {end} is no range of numbers from 1 to {FIRST_VOLATILE_LOG}")
            held = self.ranges
            if held is not None and (first, end) in held:
                continue
            # What it has counted by itself may lie in the first range that it gets.
            if end <= self.next or (held is not None and first < self.next):
                raise LogRangeError(f"numbers up to {self.next - 1} are used, so {first} to {end} cannot be leased")
            for other, last in held or ():
                if first < last and other < end:
                    raise LogRangeError(f"{first} to {end} overlaps {other} to {last}, which the node has")

    def taking(self, ranges: Sequence[Range], given: int) -> Operation:
        """Return the operation with which the journal remembers more ranges; ``take`` is to follow it."""
        held = sorted({*(self.ranges or ()), *ranges})
        record = {"given": max(self.given, given), "ranges": held}
        return Operation(Table.ENTITY, LOG_RANGES, json.dumps(record, separators=(",", ":")).encode())

    def take(self, ranges: Sequence[Range], given: int) -> None:
        """Draw from more ranges, which are on disk."""
        self.ranges = sorted({*(self.ranges or ()), *ranges})
        self.given = max(self.given, given)
        self._go_on()

    def _go_on(self) -> None:
        """Leave ranges that are used up for the next one."""
        if self.ranges is None:
            return
        while self.ranges and self.ranges[0][1] <= self.next:
            del self.ranges[0]
        if self.ranges:
            self.next = max(self.next, self.ranges[0][0])


def without_ranges(value: bytes) -> bytes:
    """Return the record of a journal's ranges for a copy of that journal that takes its place.

    What the journal has used since the copy was made is not known to it, so it draws from none of them again.
    """
    return json.dumps({**json.loads(value), "ranges": []}, separators=(",", ":")).encode()
