"""What a stored address must hold after a crash, by the word of its clients.

Rules:
1. A message that was offered and never answered may be there or not; one that was accepted must be,
   until a receiver accepts it.
2. What a receiver accepted may come back after a crash, until it is sure that this was committed; then
   it must never be seen again.
3. What a look at the quiet address shows is the truth from then on.
4. Nothing is raised among the clients' callbacks: what does not fit is collected in ``problems``.
5. Senders and receivers are threads of their own: a message may be taken while its sender hears that it is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

__all__ = ["Ledger", "Name", "name_of"]

Name = tuple[str, int]
"""The producer and its message's number, which grows with every message."""

SHOWN = 5


def name_of(body: object) -> Name:
    """The name that a body ``PRODUCER:NUMBER`` tells, be it text or bytes."""
    text = bytes(body).decode() if isinstance(body, bytes | bytearray | memoryview) else str(body)
    producer, _, number = text.rpartition(":")
    return producer, int(number)


class Ledger:
    """The account of one queue, subscription or stream.

    Args:
        address: which, for the words of a problem.

    Attributes:
        problems: what does not fit.
        accepted_count: how often senders heard that a message was accepted.
        taken_count: how often receivers accepted one.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.accepted_count = 0
        self.taken_count = 0
        self._open: set[Name] = set()
        """Offered, without an answer."""
        self._held: set[Name] = set()
        """Accepted, so they must be there."""
        self._taken: set[Name] = set()
        """Accepted by a receiver, with a commit that is not sure."""
        self._gone: set[Name] = set()
        """The same with a commit that is sure."""
        self._seen: set[Name] = set()
        """Delivered since the last look."""

    @property
    def held(self) -> int:
        """How many messages must be there."""
        return len(self._held)

    # What senders know

    def offered(self, name: Name) -> None:
        """A message is about to be sent."""
        with self._lock:
            if not (name in self._held or name in self._taken or name in self._gone):
                self._open.add(name)

    def accepted(self, name: Name) -> None:
        """Its sender heard that it is stored."""
        with self._lock:
            self.accepted_count += 1
            self._open.discard(name)
            if not (name in self._taken or name in self._gone):
                self._held.add(name)

    def refused(self, name: Name) -> None:
        """Its sender heard that it is not stored."""
        with self._lock:
            self._open.discard(name)
            if name in self._held or name in self._taken:
                self.problems.append(f"{self.address}: {_show([name])} was refused after it was accepted")

    # What receivers know

    def delivered(self, name: Name) -> None:
        """A receiver was given a message."""
        with self._lock:
            self._seen.add(name)
            if name in self._gone:
                self.problems.append(f"{self.address}: {_show([name])} came again though it was settled for good")

    def taken(self, name: Name) -> None:
        """A receiver has accepted it."""
        with self._lock:
            self.taken_count += 1
            self._open.discard(name)
            self._held.discard(name)
            self._taken.add(name)

    def unsure(self) -> list[Name]:
        """What receivers accepted without being sure of the commit."""
        return list(self._taken)

    def sure(self, names: Iterable[Name]) -> None:
        """That they were accepted by a receiver is committed."""
        with self._lock:
            names = set(names)
            self._taken -= names
            self._gone |= names

    # After a recovery

    def look(self, runs: Sequence[Sequence[Name]], stored: int) -> None:
        """Compare with what the address really holds; nobody else may use it meanwhile.

        Args:
            runs: its messages, in each run in the order in which they come: a queue is one run, each
                partition of a stream is one.
            stored: how many there are by the node's own account.
        """
        found = [name for run in runs for name in run]
        present = set(found)
        report = self.problems.append
        if stored != len(found):
            report(f"{self.address}: {stored} messages by the node's account, {len(found)} really")
        if len(present) != len(found):
            report(f"{self.address}: {len(found) - len(present)} messages are there twice")
        if lost := self._held - present:
            report(f"{self.address}: {len(lost)} accepted messages are lost: {_show(lost)}")
        if again := present & self._gone:
            report(f"{self.address}: {len(again)} messages that were settled for good are back: {_show(again)}")
        strange = (present | self._seen) - self._held - self._open - self._taken - self._gone
        if strange:
            report(f"{self.address}: {len(strange)} messages that nobody sent: {_show(strange)}")
        for run in runs:
            self._check_order(run)
        self._gone |= self._taken - present
        self._taken = set()
        self._open = set()
        self._held = present
        self._seen = set()

    def _check_order(self, run: Sequence[Name]) -> None:
        last: dict[str, int] = {}
        for producer, number in run:
            before = last.get(producer, -1)
            if number < before:
                self.problems.append(f"{self.address}: {producer}:{number} comes after {producer}:{before}")
            last[producer] = number


def _show(names: Iterable[Name]) -> str:
    found = sorted(names)
    text = ", ".join(f"{producer}:{number}" for producer, number in found[:SHOWN])
    return f"{text}, ..." if len(found) > SHOWN else text
