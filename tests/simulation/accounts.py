"""What each stored address must hold, by the word of clients and journal: the oracle of the simulation.

It knows nothing of how an address works. It is told what clients did and heard and how far the journal
came, and says what must be there, what may be, and what must never be seen again.

Rules:
1. A message that was accepted is there until it is settled for good; one that nobody answered for may be.
2. What a receiver settled is never seen again in the life of that node, and in no later one once the
   settlement is on the disk for certain.
3. Of what suits a receiver, the message of the highest priority that came first goes out first.
4. What a receiver had when its node died has failed once more, as soon as the hand-out is on the disk for
   certain. Nothing else has, but what the next node was about to hand out when it died, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.messaging.queues.backlog import UNSTORED_S
from tests.simulation.copies import GONE, LEAVING, OUT, READY, Copy, Message, WallClock

if TYPE_CHECKING:
    from tests.simulation.clients import Receiver

__all__ = ["Account"]

EARLY_S = 0.002
"""How early something may happen: times are in milliseconds."""

LATE_S = 0.25
"""How late something may happen: a message's time begins at the end of the turn in which it came."""

PAGED_LATE_S = 3.0
"""The same where messages are read from disk: there they bear the time at which they were written."""

SOON_S = 1.0
"""What is due so soon does not wait on disk."""

SWEEP_S = 31.0
"""Within this time what has expired is found on disk, too."""


class Account:
    """The account of one queue or subscription.

    Args:
        name: the address.
        attributes: its options, by their names in management.
        report: hears what does not fit.
        clock: the wall clock.
    """

    def __init__(
        self, name: str, attributes: dict[str, Any], report: Callable[[str], None], clock: WallClock
    ) -> None:
        self.name = name
        self.clock = clock
        self.storage: str = attributes.get("storage", "message")
        self.max_attempts: int = attributes.get("maxAttempts", 0)
        self.exclusive: bool = attributes.get("exclusive", False)
        self.can_drop: bool = attributes.get("fullPolicy", "block") == "drop-oldest"
        self.can_reject: bool = attributes.get("fullPolicy", "block") == "reject"
        self.is_keyed: bool = bool(attributes.get("lastValueKey"))
        self._ttl_minimum: float = attributes.get("ttlMinimum", 0) / 1000
        self._ttl_maximum: float = attributes.get("ttlMaximum", 0) / 1000
        self._delay: float = attributes.get("redeliveryDelay", 0) / 1000
        self._multiplier: float = attributes.get("redeliveryDelayMultiplier", 1.0)
        self._most_delay: float = attributes.get("maxRedeliveryDelay", 0) / 1000 or 1e9
        self.dead_letter: Account | None = None
        self.expiry: Account | None = None
        self.is_shared = False
        """Whether it gets copies of what others get too: then one may be kept that another refused."""
        self.sources: list[Account] = []
        """Accounts whose messages come here when they expire or die."""
        self.is_target = False
        """Whether messages come here from other addresses, at times that nobody tells."""
        self.has_small_window = False
        """Whether so few messages stay in memory that some wait on disk."""
        self.is_paged = False
        """Whether messages may wait on disk, where priorities are not looked at."""
        self.is_cut = False
        """Whether messages may wait for their turns, and so be overtaken by others of less priority."""
        self.is_mixed = False
        """Whether receivers take what they select from whatever place, on disk too."""
        self.copies: dict[int, Copy] = {}
        """In the order in which they came."""
        self.receivers: list[Receiver] = []
        self._owners: dict[str, Receiver] = {}
        """Who is given a group's messages."""
        self._freed: set[str] = set()
        """Groups whose receiver has left of late: others may have had their next one on its way since before that."""
        self.has_heritage = False
        """Whether an earlier life of the node may have left anything: that is on its way before it is delivered."""
        self.has_failed = False
        """Whether a batch failed in this life of the node: then nothing waits for it."""
        self.is_read = False
        """Whether a receiver was there in this life of the node."""
        self._is_changed = False
        """Whether anything was settled, or given back, since all was on the disk."""
        self._report = report

    def problem(self, text: str) -> None:
        """Something does not fit."""
        self._report(f"{self.name}: {text}")

    # What clients do

    def offer(self, message: Message, now: float) -> Copy:
        """A message was sent here."""
        copy = Copy(message, came_at=now)
        copy.is_doubtful = self.can_drop or (self.can_reject and message.settled)
        late = PAGED_LATE_S if self.is_paged else LATE_S
        copy.life = self._life(message.ttl)
        if copy.life:
            copy.expires = now + copy.life
            copy.expires_by = copy.expires + late
        if message.delay:
            copy.ready_at = message.date - self.clock.shift if message.date else now + message.delay
            copy.ready_by = copy.ready_at + late
        if self.is_keyed and message.key is not None:
            for other in self.copies.values():
                if other.message.key == message.key:
                    other.is_replaced = True
                    other.is_doubtful = other.is_doubtful or other.state == READY
        self.copies[message.number] = copy
        if copy.expires and self.expiry is not None:
            self.expiry.expect(copy)
        return copy

    def clock_set(self, now: float) -> None:
        """The wall clock was set: what waits for a time of day waits for more or less."""
        for copy in self.copies.values():
            if not copy.message.date:
                continue
            ready_at = copy.message.date - self.clock.shift
            # What is due in this instant may have been looked at before the clock was set.
            is_waiting = copy.ready_at > now + EARLY_S and not copy.attempts
            if is_waiting:
                copy.ready_at = ready_at
            # What was due before may be on disk only, and then it is not due any more.
            late = max(ready_at, now) + PAGED_LATE_S
            copy.ready_by = late if is_waiting else max(copy.ready_by, late)

    def shift_of(self, copy: Copy, written_by: float) -> tuple[float, float]:
        """By how much the times of a message are other ones if a node starts now, at least and at most.

        A node that starts knows how old it is by the wall clock alone.
        """
        low, high = copy.shifts or self.clock.between(copy.came_at, written_by)
        return low - self.clock.shift, high - self.clock.shift

    def _life(self, ttl: float) -> float:
        if not ttl:
            return self._ttl_maximum or self._ttl_minimum
        if self._ttl_maximum and ttl > self._ttl_maximum:
            return self._ttl_maximum
        return max(ttl, self._ttl_minimum)

    def expect(self, origin: Copy) -> Copy:
        """A message may come here from another address."""
        copy = self.copies.get(origin.message.number)
        if copy is not None and copy.state != GONE and copy.origin is None:
            self.problem(f"message {origin.message.number} is here already and is to come again")
        if copy is None or copy.state == GONE:
            copy = self.copies[origin.message.number] = Copy(origin.message)
        copy.is_doubtful = True
        copy.origin = origin
        origin.heir = copy
        return copy

    def disown(self, copy: Copy) -> None:
        """A message does not go elsewhere after all."""
        heir = copy.heir
        copy.heir = None
        if heir is not None and heir.origin is copy and self.expiry is not None and heir.state == READY:
            self.expiry.copies.pop(copy.message.number, None)

    def keeps(self, copy: Copy) -> bool:
        """Whether a restart keeps it."""
        return self.storage == "durable" or (self.storage == "message" and copy.message.durable)

    def delivered(self, number: int, attempts: int, receiver: Receiver, *, stamp: int) -> None:
        """A message was handed to a receiver."""
        copy = self.copies.get(number)
        now = receiver.now
        if copy is None:
            self.problem(f"message {number} was delivered, which was never sent here, or is long gone")
            return
        if copy.pending is not None:
            # Parts of one batch hear of its commit one after another.
            copy.pending.early.append(
                f"{self.name}: message {number} was delivered before its transaction was committed"
            )
        if copy.state != READY:
            self.problem(f"message {number} was delivered, which is {copy.state}")
        if copy.life and now > copy.expires_by:
            self.problem(f"message {number} was delivered {now - copy.expires:.3f} s after it expired")
        if now < copy.ready_at - EARLY_S:
            self.problem(f"message {number} was delivered {copy.ready_at - now:.3f} s too early")
        if copy.is_unseen:
            copy.attempts, copy.is_unseen = attempts, False
        if attempts != copy.attempts and not self.is_target:
            self.problem(f"message {number} says {attempts} failed deliveries, there were {copy.attempts}")
        if copy.is_spent:
            self.problem(f"message {number} was delivered, which failed {copy.attempts} times and is a dead letter")
        if not self._suits(copy, receiver):
            self.problem(f"message {number} was delivered to a receiver that it does not suit")
        if copy.origin is not None:
            self._check_came(copy, now)
        elif not (self.is_target or copy.is_unordered or (self.is_paged and self.is_mixed)):
            self._check_order(copy, receiver, now)
        if copy.message.group is not None:
            self._owners.setdefault(copy.message.group, receiver)
        copy.is_doubtful = False
        is_first = copy.is_untouched and not (copy.message.delay or self.has_failed)
        copy.out_stamp = -1 if is_first else stamp
        copy.is_untouched = False
        if receiver.presettle:
            copy.out_stamp = float("inf")
            self._gone(copy, stamp)
        else:
            copy.state = OUT
            copy.holder = receiver

    def _check_came(self, copy: Copy, now: float) -> None:
        """A copy that was on its way from another address is here: it was to leave that."""
        origin = copy.origin
        assert origin is not None
        if origin.state == READY:
            if not origin.is_spent and (not origin.expires or now < origin.expires - EARLY_S):
                self.problem(f"message {copy.message.number} came here before its time was over")
            origin.state = LEAVING
        if origin.state == LEAVING:
            # Where it is stored it is handed out only once that is on the disk, with its end where it was.
            origin.stamp = -1 if self.keeps(copy) else float("inf")
        elif origin.state == OUT:
            self.problem(f"message {copy.message.number} came here while a receiver has it elsewhere")

    def _suits(self, copy: Copy, receiver: Receiver) -> bool:
        """Whether a receiver may be given a message."""
        message = copy.message
        if receiver in copy.avoided or (self.exclusive and receiver is not self.receivers[0]):
            return False
        owner = receiver if message.group is None else self._owners.get(message.group, receiver)
        if owner is not receiver and owner not in copy.avoided:
            return False
        return receiver.colour is None or receiver.colour == message.colour

    def _check_order(self, copy: Copy, receiver: Receiver, now: float) -> None:
        priority = copy.message.priority
        is_later = False
        for other in self.copies.values():
            if other is copy:
                is_later = True
                if self.is_paged:
                    return
                continue
            if other.state != READY or other.is_doubtful or other.is_unordered:
                continue
            higher = other.message.priority
            if (
                higher < priority
                or (higher == priority and is_later)
                or (higher != priority and (self.is_paged or self.is_cut))
            ):
                continue
            if other.ready_by > now or (other.life and other.expires <= now + EARLY_S):
                continue
            if self.is_paged and other.message.delay and (other.message.delay > SOON_S or self.clock.was_set):
                # It may have waited on disk, and come from there to the end of the others.
                continue
            if not self._suits(other, receiver):
                continue
            group = other.message.group
            is_late = other.is_back or other.message.delay > 0
            if self.has_heritage and (
                is_late or (group is not None and (group in self._freed or group not in self._owners))
            ):
                # What is on its way is a receiver's already, and so is its group.
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
        copy.holder = None
        self.disown(copy)
        copy.state = GONE
        copy.stamp = stamp
        self._is_changed = True

    def released(self, number: int, receiver: Receiver | None = None) -> None:
        """A receiver gave a message back as it was, or as one that it cannot have."""
        copy = self.copies[number]
        copy.state = READY
        copy.holder = None
        copy.may_be_marked = copy.is_back = self._is_changed = True
        if receiver is not None:
            copy.avoided.append(receiver)
        # Its batch may have failed meanwhile: then it goes back to its sender.
        copy.is_doubtful = copy.is_unsure or self.can_drop or copy.origin is not None

    def failed(self, number: int, stamp: int, now: float) -> None:
        """A receiver failed to process a message, or went away with it."""
        copy = self.copies[number]
        copy.attempts += 1
        self._is_changed = True
        copy.failures.append(copy.out_stamp)
        if self.max_attempts and copy.attempts >= self.max_attempts:
            self.bury(number, stamp)
            return
        self.released(number)
        copy.may_be_marked = False
        if self._delay:
            wait = self._delay * self._multiplier ** (copy.attempts - 1)
            copy.ready_at = now + min(wait, self._most_delay)
            copy.ready_by = copy.ready_at + LATE_S

    def rejected(self, number: int, stamp: int, now: float) -> None:
        """A receiver says that a message is not fit."""
        if self.max_attempts:
            self.failed(number, stamp, now)
        else:
            self.bury(number, stamp)

    def bury(self, number: int, stamp: int) -> None:
        """A message is a dead letter."""
        copy = self.copies[number]
        copy.holder = None
        if self.dead_letter is None:
            self._gone(copy, stamp)
            return
        self.disown(copy)
        copy.state = LEAVING
        # Here it is settled after it is stored there, and nobody is told when.
        copy.stamp = float("inf")
        self.dead_letter.expect(copy)

    def lose_all_receivers(self) -> None:
        """The node is gone."""
        self._owners.clear()

    def lose_receiver(self, receiver: Receiver) -> None:
        """A receiver is about to go: its groups are for others."""
        for group in [group for group, owner in self._owners.items() if owner is receiver]:
            del self._owners[group]
            self._freed.add(group)
            self._is_changed = True

    def refused(self, number: int, now: float) -> None:
        """The sender was told that the message is not stored."""
        copy = self.copies.get(number)
        if copy is None or copy.state in {GONE, LEAVING}:
            return
        if self.is_shared:
            copy.is_doubtful = True
        elif copy.state == READY:
            self.disown(copy)
            del self.copies[number]
        elif copy.pending is None and not (self.has_failed and now >= copy.came_at + UNSTORED_S):
            self.problem(f"the sender of message {number} heard that it is not stored, and a receiver has it")

    def batch_failed(self) -> None:
        """What nobody waits for any more may have been given up, and what others have, too."""
        self.has_failed = True
        for copy in self.copies.values():
            copy.is_hit = copy.is_hit or self.is_shared
            if copy.state == READY and copy.is_unsure:
                copy.is_doubtful = True

    def stored(self, number: int) -> None:
        """The sender was told that the message is stored, everywhere."""
        copy = self.copies.get(number)
        if copy is not None and copy.is_hit and copy.state == READY and not copy.is_unsure:
            copy.is_doubtful = self.can_drop

    def settle_leaving(self, now: float) -> None:
        """Nothing is on its way any more: what was leaving is gone, and is where it was to go."""
        for copy in self.copies.values():
            is_over = copy.state == READY and copy.expires and copy.expires_by <= now - SWEEP_S
            if copy.state == LEAVING or (is_over and not copy.is_doubtful):
                copy.state = GONE
                self._is_changed = True
                heir = copy.heir
                if heir is not None:
                    heir.origin = None
                    heir.is_doubtful = copy.is_unsure
        self.forget_gone()

    def forget_gone(self) -> None:
        """All is on the disk: what is gone is never to be heard of again."""
        if not self._is_changed:
            return
        self._is_changed = False
        self._freed.clear()
        for number in [number for number, copy in self.copies.items() if copy.state == GONE]:
            del self.copies[number]
        for copy in self.copies.values():
            copy.failures.clear()
            copy.may_be_marked = copy.is_back = False
