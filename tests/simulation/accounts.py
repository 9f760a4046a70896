"""What each stored address must hold, by the word of clients and journal: the oracle of the simulation.

It knows nothing of how an address works. It is told what clients did and heard and how far the journal
came, and says what must be there, what may be, and what must never be seen again.

Rules:
1. A message that was accepted is there until it is settled for good; one that nobody answered for may be.
2. What a receiver settled is never seen again in the life of that node, and in no later one once the
   settlement is on the disk for certain.
3. Among what is ready, the message of the highest priority that came first goes out first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GONE", "LEAVING", "OUT", "READY", "Account", "Copy", "Message"]

OLD = True
READY, OUT, LEAVING, GONE = "ready", "out", "leaving", "gone"


@dataclass(slots=True)
class Message:
    """One message as its sender knows it; times in seconds of the simulation."""

    number: int
    durable: bool
    settled: bool
    priority: int = 4
    ttl: float = 0.0
    not_before: float = 0.0
    group: str | None = None
    key: str | None = None
    accepted: bool = False
    refused: bool = False
    is_orphan: bool = False
    """Whether its sender has gone without an answer."""


@dataclass(slots=True)
class Copy:
    """One message in one address."""

    message: Message
    place: float
    state: str = READY
    stamp: float = 0
    """When it was settled, by the number of the last batch then."""
    attempts: int = 0
    """Deliveries that failed."""
    failures: list[int] = field(default_factory=list)
    """When those of this life were heard of, by the number of the last batch then."""
    is_stored: bool = False
    """Whether it is known to be on the disk."""
    is_doubtful: bool = False
    """Whether it may be gone without a word."""
    expires: float = 0.0
    ready_at: float = 0.0
    holder: Any = None
    avoided: list[Any] = field(default_factory=list)
    """Receivers that said they cannot have it."""
    origins: list[Copy] = field(default_factory=list)
    """Copies elsewhere of which this one takes the place."""


class Account:
    """The account of one queue or subscription.

    Args:
        name: the address.
        storage: its option: what survives a restart.
        report: hears what does not fit.
    """

    def __init__(self, name: str, storage: str, report: Callable[[str], None]) -> None:
        self.name = name
        self.storage = storage
        self.copies: dict[int, Copy] = {}
        self.is_ordered = True
        """Whether messages go out by priority and arrival, whoever receives them."""
        self.has_priorities = False
        self.slack = 0.0
        """By how many seconds a message may be late to expire or to become ready."""
        self.max_attempts = 0
        self.can_drop = False
        """Whether its options let it drop what it took."""
        self.is_topics = False
        """Whether it gets copies of what others get too: then one may be kept that another refused."""
        self._report = report

    def problem(self, text: str) -> None:
        """Something does not fit."""
        self._report(f"{self.name}: {text}")

    # What clients do

    def offer(self, message: Message, place: float, now: float) -> Copy:
        """A message was sent here."""
        copy = Copy(message, place)
        if message.ttl:
            copy.expires = now + message.ttl
        copy.ready_at = max(now, message.not_before)
        self.copies[message.number] = copy
        return copy

    def keeps(self, copy: Copy) -> bool:
        """Whether a restart keeps it."""
        return self.storage == "durable" or (self.storage == "message" and copy.message.durable)

    def delivered(self, number: int, attempts: int, receiver: Any, now: float, *, settled: bool, stamp: int) -> None:
        """A message was handed to a receiver."""
        copy = self.copies.get(number)
        if copy is None:
            self.problem(f"message {number} was delivered, which was never sent here or is gone since a restart")
            return
        if copy.state != READY:
            self.problem(f"message {number} was delivered, which is {copy.state}")
        if copy.expires and now > copy.expires + self.slack:
            self.problem(f"message {number} was delivered {now - copy.expires:.3f} s after it expired")
        if now < copy.ready_at - self.slack:
            self.problem(f"message {number} was delivered {copy.ready_at - now:.3f} s too early")
        if attempts != copy.attempts:
            self.problem(f"message {number} says {attempts} failed deliveries, there were {copy.attempts}")
        if receiver in copy.avoided:
            self.problem(f"message {number} was delivered to a receiver that said it cannot have it")
        if self.is_ordered:
            self._check_order(copy, receiver, now)
        copy.is_doubtful = False
        if settled:
            self._gone(copy, stamp)
        else:
            copy.state = OUT
            copy.holder = receiver

    def _check_order(self, copy: Copy, receiver: Any, now: float) -> None:
        priority, place = copy.message.priority, copy.place
        for other in self.copies.values():
            if other is copy and not self.has_priorities:
                # Copies are kept in the order in which they came.
                return
            if other.state != READY or other.is_doubtful or other is copy:
                continue
            higher = other.message.priority
            if higher < priority or (higher == priority and other.place > place):
                continue
            if other.ready_at > now - self.slack or (other.expires and other.expires <= now + self.slack):
                continue
            if receiver in other.avoided:
                continue
            self.problem(
                f"message {copy.message.number} (priority {priority}) was delivered before "
                f"{other.message.number} (priority {higher}), which came first and waits"
            )
            return

    def accepted(self, number: int, stamp: int) -> None:
        """A receiver accepted a message."""
        self._gone(self.copies[number], stamp)

    def _gone(self, copy: Copy, stamp: int) -> None:
        copy.state = GONE
        copy.stamp = stamp
        copy.holder = None

    def came_back(self, number: int, stamp: int, now: float, *, failed: bool, delay: float = 0.0) -> Copy:
        """A receiver gave a message back; returns the copy, which the caller has leave if it is too often."""
        copy = self.copies[number]
        copy.state = READY
        copy.holder = None
        if failed:
            copy.attempts += 1
            copy.failures.append(stamp)
            if delay:
                copy.ready_at = now + delay
        message = copy.message
        if message.refused or (message.is_orphan and not message.accepted and not copy.is_stored):
            # Its batch may have failed meanwhile: then it goes back to its sender.
            copy.is_doubtful = True
        return copy

    def left(self, copy: Copy, stamp: int) -> None:
        """A message is on its way out: to another address, or dropped."""
        copy.state = LEAVING
        copy.stamp = stamp
        copy.holder = None

    def refused(self, number: int) -> None:
        """Its sender was told that the message is not stored."""
        copy = self.copies.get(number)
        if copy is None or copy.state == GONE:
            return
        if self.is_topics:
            copy.is_doubtful = True
        elif copy.state == READY:
            del self.copies[number]
        else:
            self.problem(f"the sender of message {number} heard that it is not stored, and a receiver has it")

    def batch_failed(self) -> None:
        """What nobody waits for any more may have been given up."""
        for copy in self.copies.values():
            message = copy.message
            is_alone = message.is_orphan or self.is_topics
            if is_alone and not copy.is_stored and not message.accepted:
                copy.is_doubtful = True

    # What must hold

    def settle_leaving(self) -> None:
        """Nothing is on its way any more: what was leaving is gone, and that is on the disk."""
        for copy in self.copies.values():
            if copy.state == LEAVING:
                copy.state = GONE
        self.forget_gone()

    def forget_gone(self) -> None:
        """All is on the disk: what is gone is never to be heard of again."""
        for number in [number for number, copy in self.copies.items() if copy.state == GONE]:
            del self.copies[number]
        for copy in self.copies.values():
            copy.failures.clear()

    def depth(self, now: float) -> tuple[int, int]:
        """How many messages the address must at least and may at most say it holds."""
        low = high = 0
        for copy in self.copies.values():
            if copy.state == GONE:
                continue
            high += 1
            is_expiring = copy.state == READY and copy.expires and copy.expires <= now
            if copy.state != LEAVING and not copy.is_doubtful and not is_expiring and not self.can_drop:
                low += 1
        return low, high

    def check_depth(self, stored: int, size: int, now: float) -> None:
        """Compare with what the address says of itself."""
        low, high = self.depth(now)
        if not low <= stored <= high:
            self.problem(f"it says it holds {stored} messages; there are {low} to {high}")
        if (stored == 0) != (size == 0):
            self.problem(f"it says it holds {stored} messages of {size} bytes")

    def check_found(self, found: dict[int, int], now: float, is_written: Callable[[float], bool]) -> None:
        """Compare with what a node that starts now finds.

        Args:
            found: the messages, with the number of their failed deliveries.
            now: the clock.
            is_written: whether what was asked for when a batch was the last is on the disk for certain.
        """
        for number, attempts in found.items():
            copy = self.copies.get(number)
            if copy is None:
                self.problem(f"after a restart it holds message {number}, which was never sent here, was refused, "
                             "or was gone at an earlier restart")  # fmt: skip
            elif not self.keeps(copy):
                self.problem(f"after a restart it holds message {number}, which is not to survive one")
            elif copy.state in {GONE, LEAVING} and is_written(copy.stamp):
                self.problem(f"after a restart it holds message {number}, which was settled, and that is on the disk")
            else:
                sure = 0 if OLD else copy.attempts - sum(not is_written(stamp) for stamp in copy.failures)
                if not sure <= attempts <= copy.attempts:
                    self.problem(f"after a restart message {number} says {attempts} failed deliveries; "
                                 f"there were {copy.attempts}, {sure} of them on the disk")  # fmt: skip
        for number, copy in self.copies.items():
            if number not in found and self.must_survive(copy, now):
                self.problem(f"after a restart message {number} is missing, which was accepted")

    def check_found_order(self, numbers: list[int]) -> None:
        """Compare the order in which a node that starts now hands out what it found."""
        if not self.is_ordered:
            return
        known = [self.copies[number] for number in numbers if number in self.copies]
        ranks = [(-copy.message.priority, copy.place) for copy in known]
        if ranks != sorted(ranks):
            self.problem(f"after a restart it hands out messages in the order {numbers}")

    def must_survive(self, copy: Copy, now: float) -> bool:
        """Whether a node that starts now must find it."""
        if not self.keeps(copy) or copy.state in {GONE, LEAVING} or copy.is_doubtful or self.can_drop:
            return False
        if copy.expires and copy.expires <= now + self.slack:
            return False
        return copy.message.accepted or copy.is_stored

    def adopt(self, found: dict[int, int], now: float) -> None:
        """A node has started: what it found is the truth from now on."""
        for number in [number for number in self.copies if number not in found]:
            del self.copies[number]
        for number, attempts in found.items():
            copy = self.copies[number]
            copy.state = READY
            copy.holder = None
            copy.attempts = attempts
            copy.failures = []
            copy.avoided = []
            copy.is_stored = True
            copy.is_doubtful = False
            copy.message.refused = False
            copy.ready_at = min(copy.ready_at, max(now, copy.message.not_before))
